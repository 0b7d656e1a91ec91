// Histograms over time: a column for each interval between two snapshots, a row for each bucket.

import uPlot from "uplot";
import { button, choice, counted, dark, el, keyText, local, moment, readable, redrawn, zone } from "./dom.js";
import { bars, headline, keyed, keyTable, quantileBucket, spread, sum } from "./histogram.js";
import { axes, PADDING } from "./lines.js";

/** @param {import("./data").Data} data @param {import("./data").HeatPart} part */
export function heat(data, part) {
  const state = { colour: "log", scale: "equal" };
  const place = el("div", { className: "plot" }), legend = el("div", { className: "legend" }), hover = el("p", { className: "status", "aria-live": "polite" });
  const row = el("div", { className: "detail" }), answer = el("p", { className: "headline" });
  const { starts } = part;
  const totals = part.steps.map((steps) => steps.reduce((total, step) => total + sum(step[1].map(Number)), 0));
  /** @type {uPlot | null} */
  let plot = null;
  /** @type {number[][]} */
  let steps = [];
  let key = totals.reduce((best, total, at) => (total > totals[best] ? at : best), 0), first = 0, last = 0, most = 1;

  function prepare() {
    steps = part.steps[key].map((step) => spread(part, step));
    const used = part.buckets.flatMap((_, at) => (steps.some((step) => step[at]) ? [at] : []));
    first = used[0] ?? 0; last = used.at(-1) ?? 0;
    most = Math.max(1, ...steps.map((step) => Math.max(...step)));
  }

  // The ends of a bucket on the axis: buckets of equal height, or their values.
  const low = (bucket) => (state.scale === "equal" ? bucket : part.buckets[bucket][0] ?? Number(part.buckets[bucket][1]) - width(bucket));
  const high = (bucket) => (state.scale === "equal" ? bucket + 1 : part.buckets[bucket][1] === null ? Number(part.buckets[bucket][0]) + width(bucket) : Number(part.buckets[bucket][1]) + 1);
  const width = (bucket) => { const near = part.buckets[Math.min(Math.max(bucket + (part.buckets[bucket][0] === null ? 1 : -1), 0), part.buckets.length - 1)]; return Number(near[1]) - Number(near[0]) + 1 || 1; };

  function shade(count) {
    const share = state.colour === "log" ? Math.log1p(count) / Math.log1p(most) : count / most;
    return dark() ? `hsl(${(265 + 150 * share) % 360} ${60 + 35 * share}% ${22 + 50 * share}%)` : `hsl(${50 - 50 * share} ${70 + 25 * share}% ${92 - 62 * share}%)`;
  }

  function draw() {
    const size = place.clientWidth;
    if (!size) return;
    prepare();
    plot?.destroy();
    const [x, y] = axes();
    if (state.scale === "equal") {
      y.splits = () => { const by = Math.max(1, Math.ceil((last - first + 1) / 18)); return Array.from({ length: Math.floor((last - first) / by) + 1 }, (_, at) => first + at * by + 0.5); };
      y.values = (_, splits) => splits.map((at) => part.buckets[Math.floor(at)]?.[2] ?? "");
      y.size = 110;
    }
    if (part.unit) y.label = part.unit;
    plot = new uPlot({
      width: size, height: 320, legend: { show: false },
      axes: [x, y], padding: PADDING, scales: { x: { range: () => [starts[0], part.times[part.times.length - 1]] }, y: { range: () => [low(first), high(last)] } },
      series: [{}, { paths: () => null, points: { show: false } }], cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false } },
      hooks: { drawAxes: [cells], setCursor: [say], setSelect: [mark], ready: [(ready) => ready.over.addEventListener("click", () => { const found = cell(ready); if (found && !ready.select.width) pick(found.at, found.at); })] },
    }, [[starts[0], ...part.times], new Array(part.times.length + 1).fill(low(first))], place);
    const scale = el("span", { className: "scale" });
    scale.style.background = `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map((at) => shade(state.colour === "log" ? Math.expm1(at * Math.log1p(most)) : at * most)).join(",")})`;
    legend.replaceChildren("1 ", scale, ` ${counted(most, "value")} in a cell`);
  }

  function cells(plot) {
    const context = plot.ctx;
    steps.forEach((step, at) => {
      const left = plot.valToPos(starts[at], "x", true), right = plot.valToPos(part.times[at], "x", true);
      for (let bucket = first; bucket <= last; bucket++) {
        if (!step[bucket]) continue;
        const top = plot.valToPos(high(bucket), "y", true), bottom = plot.valToPos(low(bucket), "y", true);
        context.fillStyle = shade(step[bucket]);
        context.fillRect(Math.round(left), Math.round(top), Math.max(1, Math.round(right) - Math.round(left)), Math.max(1, Math.round(bottom) - Math.round(top)));
      }
    });
  }

  function cell(plot) {
    const { left, top } = plot.cursor;
    if (left === null || left === undefined || left < 0) return null;
    const time = plot.posToVal(left, "x"), value = plot.posToVal(top, "y");
    const at = part.times.findIndex((end, number) => time < end && time >= starts[number]);
    let bucket = -1;
    for (let one = first; one <= last; one++) if (value >= low(one) && value < high(one)) bucket = one;
    return at < 0 || bucket < 0 ? null : { at, bucket };
  }

  const span = (at) => `${moment(starts[at])} to ${moment(part.times[at])}`;

  function say(plot) {
    const found = cell(plot);
    hover.textContent = found ? `${span(found.at)}, ${part.buckets[found.bucket][2]}${part.unit ? ` ${part.unit}` : ""}: ${steps[found.at][found.bucket]} of ${counted(sum(steps[found.at]), "value")}` : "A click shows the histogram of an interval, dragging that of a range." + ` Times are ${zone(starts[0])}.`;
  }

  // The columns that the mouse has marked.
  function mark(plot) {
    const { left, width } = plot.select;
    if (!width) return;
    const begin = plot.posToVal(left, "x"), end = plot.posToVal(left + width, "x");
    const marked = [...starts.keys()].filter((at) => part.times[at] > begin && starts[at] < end);
    if (marked.length) pick(marked[0], marked[marked.length - 1]);
  }

  // The histogram of some intervals, and its quantiles.
  function pick(from, to) {
    const counts = part.buckets.map((_, bucket) => sum(steps.slice(from, to + 1).map((step) => step[bucket])));
    const title = `${moment(starts[from])} to ${moment(part.times[to])}${to > from ? `, ${to - from + 1} intervals` : ""}`;
    row.replaceChildren(el("h3", { textContent: title }), el("p", { className: "headline" }, headline(part, counts), " ", button("all intervals", whole)), bars(part, counts));
  }

  function whole() {
    const counts = part.buckets.map((_, bucket) => sum(steps.map((step) => step[bucket])));
    plot?.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    row.replaceChildren(el("h3", { textContent: "all intervals" }), el("p", { className: "note", textContent: counted(sum(counts), "value") }), bars(part, counts));
    answer.textContent = `${headline(part, counts)}${slowest()}`;
  }

  // The intervals whose 99th percentile is highest, those that follow one another as one.
  function slowest() {
    const tops = steps.map((step) => quantileBucket(step, 99)), worst = Math.max(...tops);
    if (worst < 0 || new Set(tops.filter((top) => top >= 0)).size < 2) return "";
    const at = tops.indexOf(worst);
    let end = at;
    while (tops[end + 1] === worst) end++;
    const high = part.buckets[worst][1];
    const last = part.times.at(-1) ?? 0, digits = last - starts[0] < starts.length ? 23 : 19; // intervals of less than a second
    const day = local(starts[0]).slice(0, 10) === local(last).slice(0, 10) ? 11 : 5; // with the date where there are several
    const from = local(starts[at]).slice(day, digits), to = local(part.times[end]).slice(day, digits);
    return `. Slowest from ${from} to ${to} ${zone(last)}${high === null ? "" : `: p99 up to ${readable(Number(high), part.unit)}`}`;
  }

  redrawn(place, draw);
  prepare();
  whole();
  const bar = el("div", { className: "toolbar" },
    choice("colours", [["log", "logarithmic"], ["linear", "linear"]], (value) => { state.colour = value; draw(); }),
    choice("buckets", [["equal", "of equal height"], ["value", "by their values"]], (value) => { state.scale = value; draw(); }));
  const element = el("div", { className: "heat" }, answer, bar, legend, place, hover, row);
  element.cells = () => steps;
  if (!keyed(part)) return element;
  const list = keyTable(data, part, [["count", totals]], 0, (at) => {
    key = at;
    prepare();
    whole();
    name.textContent = keyText(data.texts, part.columns, part.keys[key]);
    draw();
  });
  const name = el("h3", { textContent: keyText(data.texts, part.columns, part.keys[key]) });
  element.prepend(name);
  return el("div", { className: "split" }, list, element);
}
