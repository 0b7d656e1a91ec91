// Histograms of many keys at once: a column for each key, a row for each bucket. One that differs stands out.

import { cellText, button, choice, counted, dark, el, keyText, percent, redrawn, sized } from "./dom.js";

const ROW = 16, LABELS = 110, NAMES = 110, NARROWEST = 2, FONT = "12px ui-monospace, monospace";
const EACH = "each", ALL = "all";

const sum = (counts) => counts.reduce((total, count) => total + count, 0);

/** @param {import("./data").Data} data @param {import("./data").HistogramPart} part */
export function keyHeat(data, part, counts, show) {
  const state = { by: part.columns.length > 1 && part.by >= 0 ? String(part.by) : EACH, colour: "share" };
  const canvas = el("canvas", { role: "img", "aria-label": "Heat map: keys × buckets; the table below has the keys and their quantiles" });
  const place = el("div", { className: "canvas" }, canvas), legend = el("div", { className: "legend" });
  const status = el("p", { className: "status", "aria-live": "polite" });
  const used = part.buckets.flatMap((_, at) => (counts.some((one) => one[at]) ? [at] : []));
  const first = used[0] ?? 0, last = used.at(-1) ?? 0, rows = last - first + 1;
  let groups = [], drawn = [], most = 1, step = NARROWEST;

  // The histograms of all keys with one name, those that counted most if there is no room for all; in the order of names.
  function prepare(room) {
    const found = new Map();
    part.keys.forEach((key, at) => {
      const name = state.by === EACH ? keyText(data.texts, part.columns, key) : cellText(data.texts, part.columns[state.by], key[state.by]);
      const known = found.get(name);
      if (known) counts[at].forEach((count, bucket) => { known.counts[bucket] += count; });
      else found.set(name, { name, counts: [...counts[at]] });
    });
    groups = [...found.values()].map((one) => ({ ...one, total: sum(one.counts) })).sort((a, b) => b.total - a.total);
    const order = new Intl.Collator("en", { numeric: true }).compare;
    drawn = groups.slice(0, Math.max(1, Math.floor(room / NARROWEST))).sort((a, b) => order(a.name, b.name));
    step = Math.min(48, room / drawn.length);
    most = Math.max(...drawn.map((one) => Math.max(...one.counts)), 1);
  }

  const depth = (one, bucket) => (state.colour === "share" ? one.counts[bucket] / one.total : Math.log1p(one.counts[bucket]) / Math.log1p(most));
  const shade = (share) => (dark() ? `hsl(${(265 + 150 * share) % 360} ${60 + 35 * share}% ${22 + 50 * share}%)` : `hsl(${50 - 50 * share} ${70 + 25 * share}% ${92 - 62 * share}%)`);

  function draw() {
    const width = place.clientWidth;
    if (!width) return;
    prepare(Math.max(width - LABELS, 100));
    const height = rows * ROW + NAMES, context = sized(canvas, width, height);
    context.font = FONT; context.textBaseline = "middle"; context.textAlign = "right";
    const ink = dark() ? "#d4d4d8" : "#3f3f46";
    context.fillStyle = ink;
    for (let bucket = first; bucket <= last; bucket++) context.fillText(part.buckets[bucket][2], LABELS - 6, (last - bucket + 0.5) * ROW, LABELS - 8);
    drawn.forEach((one, column) => {
      for (let bucket = first; bucket <= last; bucket++) {
        if (!one.counts[bucket]) continue;
        context.fillStyle = shade(depth(one, bucket));
        context.fillRect(LABELS + column * step, (last - bucket) * ROW, Math.max(step - 0.5, 0.5), ROW - 0.5);
      }
    });
    context.fillStyle = ink;
    const every = Math.ceil(13 / step);
    for (let column = 0; column < drawn.length; column += every) {
      context.save();
      context.translate(LABELS + (column + Math.min(every, 1) / 2) * step, rows * ROW + 4);
      context.rotate(-Math.PI / 2);
      context.fillText(drawn[column].name.length > 14 ? `${drawn[column].name.slice(0, 13)}…` : drawn[column].name, 0, 0);
      context.restore();
    }
    const scale = el("span", { className: "scale" });
    scale.style.background = `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map(shade).join(",")})`;
    legend.replaceChildren(...(state.colour === "share" ? ["0 % ", scale, " 100 % of the values of a key"] : ["1 ", scale, ` ${counted(most, "value")} in a cell`]));
    say();
  }

  function at(event) {
    const area = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - area.left - LABELS) / step), bucket = last - Math.floor((event.clientY - area.top) / ROW);
    return drawn[column] && bucket >= first && bucket <= last ? { one: drawn[column], bucket } : null;
  }

  /** @param {any} found */
  function say(found = null) {
    const more = groups.length - drawn.length;
    status.textContent = found ? `${found.one.name}, ${part.buckets[found.bucket][2]}${part.unit ? ` ${part.unit}` : ""}: ${found.one.counts[found.bucket]} of ${counted(found.one.total, "value")}, ${percent(found.one.counts[found.bucket], found.one.total)}`
      : `A click shows the histogram of a key.${more ? ` ${counted(more, "other key")} counted less.` : ""}`;
  }

  const merged = () => show(ALL, part.buckets.map((_, bucket) => sum(counts.map((one) => one[bucket]))));
  canvas.addEventListener("mousemove", (event) => say(at(event)));
  canvas.addEventListener("mouseleave", () => say());
  canvas.addEventListener("click", (event) => { const found = at(event); if (found) show(found.one.name, found.one.counts); });
  redrawn(place, draw);
  if (part.by >= 0) merged();
  const bar = el("div", { className: "toolbar" }, choice("colours", [["share", "share of each key"], ["log", "counts (logarithmic)"]], (value) => { state.colour = value; draw(); }));
  if (part.columns.length > 1) {
    const names = part.columns.map(([name], column) => [String(column), data.texts[name]]), each = [EACH, "each key"];
    bar.prepend(choice("columns", state.by === EACH ? [each, ...names] : [...names, each], (value) => { state.by = value; draw(); }));
  }
  bar.append(button("Merged", merged));
  const element = el("div", { className: "keyheat" }, bar, legend, place, status);
  // For tests: the columns that are drawn, and where.
  element.columns = () => drawn.map((one, column) => ({ name: one.name, total: one.total, counts: one.counts.slice(first, last + 1), x: LABELS + (column + 0.5) * step, depths: one.counts.slice(first, last + 1).map((_, bucket) => depth(one, first + bucket)) }));
  return element;
}
