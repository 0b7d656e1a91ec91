// The viewer of a report: unpacks the data and shows a section for each part.

import "./style.css";
import { button, el } from "./dom.js";
import { figures, isFigure } from "./figures.js";
import { flame } from "./flame.js";
import { heat } from "./heat.js";
import { histogram } from "./histogram.js";
import { lines } from "./lines.js";
import { spans } from "./spans.js";
import { table } from "./table.js";

const VIEWS = { flame, heat, histogram, lines, spans, table };

const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @returns {Promise<import("./data").Data>} */
async function unpacked() {
  const text = element("data").textContent.trim(), known = /** @type {any} */ (Uint8Array);
  const bytes = known.fromBase64 ? known.fromBase64(text) : Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function section(data, part, number) {
  const name = data.texts[part.name];
  // A single picture has the page's title. With several the comment of the script says what each is, if it is one line.
  const help = data.texts[part.help], short = data.parts.length > 1 && help.length <= 90 && !help.includes("\n") ? help : "";
  const named = data.parts.length > 1 || (part.kind !== "flame" && name.startsWith("@") && !data.tool) || / @/.test(name);
  const parts = short ? [el("h2", { className: "titled" }, short, el("span", { className: "soft", textContent: name }))] : named ? [el("h2", { textContent: name })] : [];
  if (help && !short) parts.push(el("p", { className: "help", textContent: help }));
  const note = part.note ? [el("p", { className: "note", textContent: part.note })] : [];
  if (part.kind !== "flame") parts.push(...note.splice(0));
  return el("section", { id: `part-${number}`, className: part.kind, "aria-label": name }, ...parts, VIEWS[part.kind](data, part, number), ...note);
}

function navigation(data, main) {
  const links = data.parts.map((part, number) => el("a", { href: `#part-${number}`, textContent: data.texts[part.name] }));
  const flames = data.parts.filter((part) => part.kind === "flame").length;
  if (flames > 1) links.push(button("side by side", (event) => {
    event.target.setAttribute("aria-pressed", main.classList.toggle("beside"));
  }));
  return links.length > 1 ? [el("nav", { "aria-label": "maps" }, ...links)] : [];
}

async function show() {
  const main = element("report");
  const data = await unpacked();
  const numbered = data.parts.map((part, number) => [part, number]), single = numbered.filter(([part]) => isFigure(part));
  const listed = single.length > 1 ? single : [];
  const shown = numbered.filter((one) => !listed.includes(one)).map(([part, number]) => section(data, part, number));
  main.replaceChildren(...navigation(data, main), ...(listed.length ? [figures(data, listed)] : []), ...shown);
  if (/^#part-\d+&/.test(location.hash)) document.getElementById(location.hash.slice(1).split("&")[0])?.scrollIntoView();
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

show().catch((error) => {
  element("report").replaceChildren(el("p", { className: "warning", textContent: `The report cannot be shown: ${error.message}` }));
  throw error;
});
