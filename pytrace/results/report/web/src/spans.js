// Spans in time, below the name of their thread: those that ran within another one are below it.

import { button, counted, dark, el, local, readable, redrawn, sized, zone } from "./dom.js";

const HEIGHT = 18, TITLE = 18, GAP = 8, AXIS = 20, NARROW = 0.5;

/** @param {import("./data").Data} data @param {import("./data").SpansPart} part */
export function spans(data, part) {
  const took = part.took.map(Number), whole = part.start.reduce((most, start, at) => Math.max(most, start + took[at]), 1);
  const tops = [];
  let height = AXIS;
  for (const [, levels] of part.tracks) { tops.push(height); height += TITLE + levels * HEIGHT + GAP; }
  const colours = new Map([...new Set(part.label)].map((label) => [label, hue(data.texts[label])]));
  let first = 0, last = whole, hovered = -1, from = -1, to = -1;
  const canvas = el("canvas", { tabIndex: 0, role: "img", "aria-label": "Spans by thread: drag over a time to enlarge it, a click enlarges a span; arrow keys move, plus and minus enlarge and shrink, Escape shows all" });
  const place = el("div", { className: "canvas threads" }, canvas), status = el("p", { className: "status", "aria-live": "polite" });
  const all = button("Whole time", () => zoom(0, whole));
  const longest = took.reduce((most, time, at) => (time > took[most] ? at : most), 0);
  const answer = el("p", { className: "headline spans-answer" }, `${counted(took.length, "span")} of ${counted(part.tracks.length, "thread")} in ${readable(whole, "ns")}`,
    ...(took.length ? ["; the longest is ", button(`${data.texts[part.label[longest]]}, ${readable(took[longest], "ns")}`, () => show(longest))] : []));

  function draw() {
    const width = place.clientWidth;
    if (!width) return;
    const context = sized(canvas, width, height);
    const scale = width / (last - first), ink = dark() ? "#f4f4f5" : "#18181b", soft = dark() ? "#a1a1aa" : "#52525b";
    context.font = "12px ui-monospace, monospace"; context.textBaseline = "middle";
    axis(context, width, soft, dark() ? "#3f3f46" : "#e4e4e7");
    context.fillStyle = soft;
    part.tracks.forEach(([title], track) => context.fillText(data.texts[title], 2, tops[track] + TITLE / 2));
    // Of those that are narrower than a pixel one is drawn for all.
    const drawn = new Map();
    part.start.forEach((start, at) => {
      const left = (start - first) * scale, right = (start + took[at] - first) * scale;
      if (right < 0 || left > width) return;
      const y = tops[part.track[at]] + TITLE + part.level[at] * HEIGHT, x = Math.max(0, left), size = Math.max(1, Math.min(width, right) - x - (right - left > 3 ? 1 : 0));
      if (right - left < 1) {
        if (x - (drawn.get(y) ?? -1) < NARROW) return;
        drawn.set(y, x);
      }
      const colour = colours.get(part.label[at]);
      context.fillStyle = dark() ? `hsl(${colour} 45% ${at === hovered ? 50 : 34}%)` : `hsl(${colour} 70% ${at === hovered ? 62 : 80}%)`;
      context.fillRect(x, y, size, HEIGHT - 1);
      if (size > 24) { context.fillStyle = ink; context.fillText(fitted(data.texts[part.label[at]], size), x + 3, y + HEIGHT / 2); }
    });
    if (from >= 0) { context.fillStyle = "#3b82f640"; context.fillRect(Math.min(from, to), 0, Math.abs(to - from), height); }
    all.disabled = first <= 0 && last >= whole;
  }

  function axis(context, width, soft, line) {
    const least = ((last - first) * 90) / width, power = 10 ** Math.floor(Math.log10(least)), step = power * ([1, 2, 5, 10].find((one) => one * power >= least) ?? 10);
    for (let time = Math.ceil(first / step) * step; time <= last; time += step) {
      const x = ((time - first) * width) / (last - first);
      context.fillStyle = line; context.fillRect(x, AXIS - 4, 1, height);
      const text = readable(Math.round(time), "ns");
      context.fillStyle = soft;
      if (x + 3 + context.measureText(text).width <= width) context.fillText(text, x + 3, AXIS / 2);
    }
  }

  // The span at a place of the canvas; of narrow ones that lie there the longest.
  function at(event) {
    const area = canvas.getBoundingClientRect(), x = event.clientX - area.left, y = event.clientY - area.top, scale = (last - first) / area.width;
    const near = first + (x - 1) * scale, far = first + (x + 1) * scale;
    let best = -1;
    part.start.forEach((start, one) => {
      const top = tops[part.track[one]] + TITLE + part.level[one] * HEIGHT;
      if (y >= top && y < top + HEIGHT && start <= far && start + took[one] >= near && (best < 0 || took[one] > took[best])) best = one;
    });
    return best;
  }

  function say() {
    if (hovered < 0) { status.textContent = `Times are after ${local(part.begin)} ${zone(part.begin)}. Drag over a time to enlarge it; a click enlarges a span.`; return; }
    const lines = part.columns.map((column, number) => [data.texts[column], data.texts[part.details[number][hovered]]]).filter(([, text]) => text);
    status.replaceChildren(el("b", { textContent: data.texts[part.label[hovered]] }), ` ${readable(took[hovered], "ns")}, at ${readable(part.start[hovered], "ns")} (${local(part.begin + part.start[hovered] / 1e9).slice(11)}), ${data.texts[part.tracks[part.track[hovered]][0]]}`,
      ...lines.map(([name, text]) => el("div", { textContent: `${name}: ${text}` })));
  }

  function zoom(start, end) {
    const wide = Math.max(100, Math.min(whole, end - start));
    first = Math.max(0, Math.min(start, whole - wide)); last = first + wide;
    draw();
  }

  function show(span) {
    hovered = span;
    zoom(part.start[span] - took[span] * 0.1, part.start[span] + took[span] * 1.1);
    place.scrollTop = tops[part.track[span]] - AXIS;
    say();
  }

  const x = (event) => event.clientX - canvas.getBoundingClientRect().left, time = (place_) => first + (place_ * (last - first)) / place.clientWidth;
  canvas.addEventListener("pointerdown", (event) => { from = to = x(event); canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (from >= 0) to = x(event);
    else { const span = at(event); if (span === hovered) return; hovered = span; say(); }
    draw();
  });
  canvas.addEventListener("pointerup", (event) => {
    const [start, end] = [Math.min(from, to), Math.max(from, to)], span = at(event);
    from = -1;
    if (end - start > 4) zoom(time(start), time(end));
    else if (span >= 0) show(span);
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    const middle = time(x(event)), by = event.deltaY > 0 ? 1.25 : 0.8;
    zoom(middle - (middle - first) * by, middle + (last - middle) * by);
    event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const wide = last - first, moves = { ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2], "+": [0.2, -0.2], "-": [-0.34, 0.34] }[event.key];
    if (event.key === "Escape") zoom(0, whole);
    else if (moves) zoom(first + moves[0] * wide, last + moves[1] * wide);
    else return;
    event.preventDefault();
  });
  redrawn(place, draw);
  say();
  return el("div", {}, el("div", { className: "toolbar" }, answer, all), place, status);
}

const fitted = (text, width) => { const most = Math.floor((width - 6) / 7.3); return text.length <= most ? text : most > 2 ? `${text.slice(0, most - 1)}…` : ""; };

// One colour for one name, in all reports; names that are alike have others.
function hue(text) {
  let sum = 0;
  for (const letter of text) sum = (sum * 31 + letter.charCodeAt(0)) % 9973;
  return (sum * 137.508) % 360;
}
