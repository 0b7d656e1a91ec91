// Maps of one number each, as one list.

import { el, readable } from "./dom.js";

export const isFigure = (part) => part.kind === "table" && part.rows.length === 1 && part.columns.length === 1 && part.columns[0][2] === 1;

export function figures(data, numbered) {
  const items = numbered.flatMap(([part, number]) => {
    const unit = part.columns[0][1], value = part.rows[0][0], readably = readable(Number(value), unit || "count");
    return [el("dt", { id: `part-${number}`, textContent: data.texts[part.name], title: data.texts[part.help] }), el("dd", { textContent: readably, title: `${value} ${unit}`.trim() })];
  });
  return el("section", { className: "figures", "aria-label": "numbers" }, el("dl", {}, ...items));
}
