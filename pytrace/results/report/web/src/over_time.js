// Samples over time, above a flame graph: a column for each slice. The range that is marked is what the graph shows.

import { button, counted, dark, el, local, readable, redrawn, sized, zone } from "./dom.js";
import { again } from "./tree.js";

const HEIGHT = 44;

// *choose* gets the first slice and the one after the last, or null for all; *amount* makes the text of a number.
/** @param {import("./data").FlamePart} part @param {number[]} slices */
export function overTime(part, slices, measure, amount, choose) {
  const { lost } = part;
  const count = slices.reduce((most, slice) => Math.max(most, slice + 1), lost.length);
  const sums = new Float64Array(count);
  slices.forEach((slice, sample) => { if (!again(part, sample)) sums[slice] += Number(part.values[measure][sample]); });
  const most = sums.reduce((one, sum, at) => Math.max(one, sum + (lost[at] ?? 0)), 1);
  let range = null, from = -1, hovered = -1;
  const canvas = el("canvas", { tabIndex: 0, role: "img", "aria-label": "Samples over time: drag to choose a range; arrow keys move it, with shift its end; Escape shows all" });
  const place = el("div", { className: "strip" }, canvas), status = el("output", { className: "soft" });
  const whole = button("Whole time", () => take(null));

  function draw() {
    const width = place.clientWidth;
    if (!width) return;
    const context = sized(canvas, width, HEIGHT);
    const step = width / count;
    for (let at = 0; at < count; at++) {
      const kept = sums[at] / most, all = (sums[at] + (lost[at] ?? 0)) / most;
      context.globalAlpha = !range || (at >= range[0] && at < range[1]) ? 1 : 0.3;
      context.fillStyle = dark() ? "#3f3f46" : "#f4f4f5";
      context.fillRect(at * step, 0, Math.max(0.5, step - 0.3), HEIGHT);
      context.fillStyle = "#dc2626";
      if (lost[at]) context.fillRect(at * step, HEIGHT * (1 - all), Math.max(0.5, step - 0.3), HEIGHT * (all - kept));
      context.fillStyle = dark() ? `hsl(${(265 + 150 * kept) % 360} ${60 + 35 * kept}% ${30 + 42 * kept}%)` : `hsl(${45 - 45 * kept} 85% ${80 - 40 * kept}%)`;
      context.fillRect(at * step, HEIGHT * (1 - kept), Math.max(0.5, step - 0.3), HEIGHT * kept);
    }
    context.globalAlpha = 1;
    say();
  }

  function say() {
    const [first, end] = range ?? (hovered >= 0 ? [hovered, hovered + 1] : [0, count]);
    const sum = sums.subarray(first, end).reduce((one, other) => one + other, 0), missing = lost.slice(first, end).reduce((one, other) => one + other, 0);
    const clock = (slice) => local(part.start + slice * part.slice).slice(11, 23);
    const span = range || hovered >= 0 ? `${readable(first * part.slice, "s")} to ${readable(end * part.slice, "s")}, ${clock(first)} to ${clock(end)} ${zone(part.start)}: ${amount(sum)}` : `Each column is ${readable(part.slice, "s")}: drag to see what ran then`;
    status.textContent = `${span}${missing ? `; ${counted(missing, "sample")} found no room (red)` : ""}`;
    whole.disabled = !range;
  }

  function take(chosen) {
    range = chosen;
    draw();
    choose(range);
  }

  const at = (event) => { const area = canvas.getBoundingClientRect(); return Math.max(0, Math.min(count - 1, Math.floor(((event.clientX - area.left) / area.width) * count))); };
  const mark = (event) => { const to = at(event); range = [Math.min(from, to), Math.max(from, to) + 1]; draw(); };
  canvas.addEventListener("pointerdown", (event) => { from = at(event); canvas.setPointerCapture(event.pointerId); mark(event); });
  canvas.addEventListener("pointermove", (event) => { if (from >= 0) mark(event); else { hovered = at(event); say(); } });
  canvas.addEventListener("pointerup", () => { if (from >= 0) { from = -1; choose(range); } });
  canvas.addEventListener("pointerleave", () => { hovered = -1; say(); });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") take(null);
    else if (step) {
      const [first, end] = range ?? (step > 0 ? [-1, 0] : [count, count + 1]);
      const moved = event.shiftKey ? [first, Math.max(first + 1, Math.min(count, end + step))] : [first + step, end + step];
      if (moved[0] >= 0 && moved[1] <= count) take(moved);
    } else return;
    event.preventDefault();
  });
  redrawn(place, draw);
  const element = el("div", { className: "time-strip" }, place, el("div", { className: "toolbar" }, status, whole));
  element.take = (first, end) => take(first >= 0 && first < end && end <= count ? [first, end] : null);
  return element;
}
