// Time series as lines: the keys as a list, those that are chosen are drawn.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { dark, el, keyText, local, moment, quantity, readable, redrawn, zone } from "./dom.js";
import { keyed, keyTable } from "./histogram.js";

const FIRST = 8;
// Room for half a time at the right end of the axis.
/** @type {[number, number, number, number]} */
export const PADDING = [12, 45, 0, 0];
const COLOURS = ["#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#db2777", "#65a30d"];

// A time of day, as exact as the distance of the marks asks for; of days the date.
function clock(time, distance) {
  const text = local(time);
  return distance >= 86400 ? text.slice(0, 10) : distance < 1 ? text.slice(11, 23) : text.slice(11, 19);
}

export function axes() {
  const ink = dark() ? "#d4d4d8" : "#3f3f46", grid = { stroke: dark() ? "#3f3f46" : "#e4e4e7", width: 1 };
  // The first time of each day has its date, where there are several days.
  const day = (time) => local(time).slice(0, 10);
  const times = (_, splits) => splits.map((time, at) => {
    const begins = at ? day(time) !== day(splits[at - 1]) : day(time) !== day(splits.at(-1));
    return begins && splits[1] - splits[0] < 86400 ? local(time).slice(5, splits[1] - splits[0] < 60 ? 19 : 16) : clock(time, splits[1] - splits[0]);
  });
  return [{ stroke: ink, grid, ticks: grid, values: times, space: 110 }, { stroke: ink, grid, ticks: grid, size: 80 }];
}

/** @param {import("./data").Data} data @param {import("./data").LinesPart} part */
export function lines(data, part) {
  const all = [...part.lines.map((line, key) => ({ line, key, note: part.before ? " (after)" : "" })), ...(part.before ?? []).map((line, key) => ({ line, key, note: " (before)" }))]
    .filter((one) => one.line[0].length);
  /** @type {number[]} */
  const totals = part.lines.map((line) => line[1].reduce((/** @type {number} */ sum, value) => sum + Number(value ?? 0), 0));
  const order = [...totals.keys()].sort((a, b) => totals[b] - totals[a]);
  const name = (key) => (keyed(part) ? keyText(data.texts, part.columns, part.keys[key]) : data.texts[part.name]);
  const headline = el("p", { className: "headline" });
  const chosen = new Set(order.slice(0, FIRST));
  const place = el("div", { className: "plot" }), hover = el("div", { className: "values", "aria-live": "polite" });
  let plot = null, drawn = [];

  function draw() {
    const width = place.clientWidth;
    if (!width) return;
    plot?.destroy();
    drawn = all.filter((one) => chosen.has(one.key)).sort((a, b) => totals[b.key] - totals[a.key]);
    const times = [...new Set(drawn.flatMap((one) => one.line[0]))].sort((a, b) => a - b);
    const series = drawn.map((one) => {
      const values = new Map(one.line[0].map((time, at) => [time, one.line[1][at]]));
      return times.map((time) => { const value = values.get(time); return value === undefined || value === null ? null : Number(value); });
    });
    const few = times.length < 60, [x, y] = axes();
    if (part.unit) y.values = (_, splits) => splits.map((value) => readable(value, part.unit));
    plot = new uPlot({
      width, height: 260, legend: { show: false }, axes: [x, y], cursor: { drag: { x: true, y: false } }, padding: PADDING,
      series: [{}, ...drawn.map((one, at) => ({ stroke: COLOURS[at % COLOURS.length], width: 1.5, dash: one.note === " (before)" ? [4, 4] : undefined, points: { show: few } }))],
      hooks: { setCursor: [say] },
    }, [times, ...series], place);
    say(plot);
    answer();
  }

  // The highest point of all, what each point is, and how many of the keys are drawn.
  function answer() {
    /** @type {any} */
    let peak = null;
    part.lines.forEach((line, key) => line[1].forEach((value, at) => { if (value !== null && (!peak || Number(value) > peak.value)) peak = { key, value: Number(value), time: line[0][at] }; }));
    const each = part.interval ? `${part.of} of each ${readable(part.interval, "s")}` : part.of;
    const most = peak ? `highest ${readable(peak.value, part.unit)} at ${local(peak.time).slice(11, 23)}${keyed(part) ? ` (${name(peak.key)})` : ""}` : "Nothing was counted";
    const shown = part.lines.length > chosen.size ? `${chosen.size} of ${part.lines.length} shown` : "";
    headline.textContent = [each, most, shown].filter(Boolean).join(", ").replace(/^./, (letter) => letter.toUpperCase());
  }

  function say(plot) {
    const at = plot.cursor.idx;
    const rows = drawn.map((one, number) => {
      const square = el("span", { className: "sample" });
      square.style.background = COLOURS[number % COLOURS.length];
      const value = at === null || at === undefined ? "" : valueAt(one, plot.data[0][at]);
      return el("span", { className: "value" }, square, `${name(one.key)}${one.note} `, el("b", { textContent: value }));
    });
    hover.replaceChildren(el("span", { className: "time", textContent: at === null || at === undefined ? `times are ${zone(drawn[0]?.line[0][0] ?? 0)}` : moment(plot.data[0][at]) }), ...rows);
  }

  function valueAt(one, time) {
    const at = one.line[0].indexOf(time);
    return at < 0 || one.line[1][at] === null ? "–" : quantity(one.line[1][at], part.unit);
  }

  redrawn(place, draw);
  const element = el("div", { className: "lines" }, headline, place, hover);
  element.values = () => ({ times: plot?.data[0], series: plot?.data.slice(1) });
  if (!keyed(part)) return element;
  const last = part.lines.map((line) => line[1].findLast((value) => value !== null) ?? "");
  const list = keyTable(data, part, [["points", part.lines.map((line) => line[1].filter((value) => value !== null).length)], ["last", last], ["sum", totals]], 2, (at) => {
    if (!chosen.delete(at)) chosen.add(at);
    draw();
  });
  return el("div", { className: "split" }, list, element);
}
