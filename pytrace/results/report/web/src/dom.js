// Elements, and numbers as texts. Texts of traced programs only ever become text nodes.

/** @param {string} name @param {Record<string, any>} properties @param {(string | Node)[]} children @returns {any} */
export function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.includes("-") || key === "role" || key === "for") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children);
  return element;
}

// *now* is the value that is chosen, or a function that returns it.
/** @param {any} now */
export function choice(label, options, change, now = null) {
  const select = el("select", { onchange: () => change(select.value) });
  for (const [value, text] of options) select.append(el("option", { value, textContent: text }));
  if (now !== null) select.value = typeof now === "function" ? now() : now;
  return el("label", { className: "control" }, label, select);
}

export function tick(label, change, checked = false) {
  const box = el("input", { type: "checkbox", checked, onchange: () => change(box.checked) });
  return el("label", { className: "control" }, box, label);
}

export function button(text, act) {
  return el("button", { type: "button", textContent: text, onclick: act });
}

// The context of a canvas that has so many of the page's pixels, each of *ratio* of its own.
export function sized(canvas, width, height, ratio = devicePixelRatio || 1) {
  const context = canvas.getContext("2d");
  canvas.width = width * ratio; canvas.height = height * ratio;
  canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

export function counted(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

export function percent(part, whole) {
  return whole ? `${((100 * part) / whole).toFixed(2)} %` : "0.00 %";
}

const SCALES = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1 };
/** @type {[string, number][]} */
const TIMES = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
/** @type {[string, number][]} */
const SIZES = [["EB", 1e18], ["PB", 1e15], ["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["bytes", 1]];
const BYTES = { bytes: 1, KB: 1024, MB: 1024 ** 2 };

// A number for people, to three digits: times and sizes in the unit that fits (5.52 s, 4.1 kB), counts in thousands.
/** @param {number} number @param {string} unit */
export function readable(number, unit = "") {
  const size = Math.abs(number);
  if (!size && unit && unit !== "count") return `0 ${unit === "us" ? "µs" : unit}`;
  if (SCALES[unit]) {
    const seconds = size * SCALES[unit];
    const [name, one] = TIMES.find(([, one]) => seconds >= one) ?? TIMES[3];
    return `${number < 0 ? "−" : ""}${digits(seconds / one)} ${name}`;
  }
  if (BYTES[unit]) {
    const bytes = size * BYTES[unit];
    const [name, one] = SIZES.find(([, one]) => bytes >= one) ?? SIZES[6];
    return `${number < 0 ? "−" : ""}${digits(bytes / one)} ${name}`;
  }
  return `${number < 0 ? "−" : ""}${grouped(size)}${unit && unit !== "count" ? ` ${unit}` : ""}`;
}

const digits = (number) => (number >= 1000 ? grouped(Math.round(number)) : String(+number.toPrecision(3)));
const grouped = (number) => (Number.isInteger(number) ? number : +number.toPrecision(3)).toLocaleString("en").replaceAll(",", "\u202f");

// A number with its unit, of times in readable units, too. The digits are those of the text output.
export function quantity(number, unit) {
  if (unit === "count" || !unit) return String(number);
  const scale = SCALES[unit];
  if (!scale) return `${number} ${unit}`;
  const seconds = Number(number) * scale;
  for (const [name, size] of /** @type {[string, number][]} */ ([["s", 1], ["ms", 1e-3], ["us", 1e-6]]))
    if (name !== unit && Math.abs(seconds) >= size) return `${number} ${unit} (${+(seconds / size).toPrecision(4)} ${name})`;
  return `${number} ${unit}`;
}

// A time of the reader's clock, to the millisecond, and the name of its zone.
export function moment(seconds) {
  return `${local(seconds)} ${zone(seconds)}`;
}

export function local(seconds) {
  const date = new Date(seconds * 1000);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60000).toISOString().replace("T", " ").replace("Z", "");
}

export const zone = (seconds) => new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(new Date(seconds * 1000)).find((part) => part.type === "timeZoneName")?.value ?? "";

export function keyText(texts, columns, cells) {
  return cells.map((cell, at) => cellText(texts, columns[at], cell)).join(", ");
}

// A cell: a number as it is, a text by its number.
export function cellText(texts, column, cell) {
  return column[2] ? String(cell) : texts[cell];
}

export function download(name, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;

// Draws again after the size or the colours of the page changed.
export function redrawn(element, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (element.clientWidth !== width) draw((width = element.clientWidth));
  }).observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(width));
}
