// Histograms: the keys as a list, and the bars of the chosen one with its quantiles marked.

import { counted, el, keyText, percent, readable } from "./dom.js";
import { keyHeat } from "./key_heat.js";
import { table } from "./table.js";

const PERCENTS = [50, 90, 99, 99.9];

// Counts of all buckets of [numbers, counts]; BigInt only where a double would round.
export function spread(part, counts) {
  const all = new Array(part.buckets.length).fill(0);
  counts[0].forEach((number, at) => { all[number] = Number(counts[1][at]); });
  return all;
}

export const sum = (counts) => counts.reduce((total, count) => total + count, 0);

// The bucket of a percentile by the nearest-rank method, as the quantiles of text output.
export function quantileBucket(counts, percent) {
  const total = sum(counts);
  if (!total) return -1;
  const rank = Math.max(1, Math.ceil((percent * total) / 100 - 1e-9));
  let seen = 0;
  return counts.findIndex((count) => (seen += count) >= rank);
}

function quantileText(part, counts, percent) {
  const bucket = quantileBucket(counts, percent);
  if (bucket < 0) return "";
  const [low, high] = part.buckets[bucket];
  if (low === null) return `< ${BigInt(high) + 1n}`;
  return high === null ? `≥ ${low}` : String(low) === String(high) ? String(low) : `${low} … ${high}`;
}

// How many values, and the upper ends of the buckets of quantiles, in readable units.
export function headline(part, counts) {
  const total = sum(counts);
  if (!total) return "Nothing was counted";
  const end = (percent) => {
    const [low, high] = part.buckets[quantileBucket(counts, percent)];
    return high === null ? `≥ ${readable(Number(low), part.unit)}` : `≤ ${readable(Number(high), part.unit)}`;
  };
  return `${readable(total)} value${total === 1 ? "" : "s"}: p50 ${end(50)}, p90 ${end(90)}, p99 ${end(99)}, largest ${end(100)}`;
}

// The bars of one histogram; *before* is drawn beside it.
export function bars(part, counts, before = null) {
  const both = before ? counts.map((count, at) => Math.max(count, before[at])) : counts;
  const used = both.flatMap((count, at) => (count ? [at] : []));
  if (!used.length) return el("p", { className: "note", textContent: "nothing was counted" });
  const most = Math.max(...both), total = sum(counts);
  const marks = new Map();
  for (const one of PERCENTS) {
    const bucket = quantileBucket(counts, one);
    if (bucket >= 0) marks.set(bucket, [...(marks.get(bucket) ?? []), `p${one}`]);
  }
  const rows = [];
  for (let at = used[0]; at <= used.at(-1); at++) {
    const count = counts[at];
    const bar = el("div", { className: "bar" });
    bar.style.width = `${(100 * count) / most}%`;
    const cell = el("td", { className: "bars" }, bar);
    if (before) {
      const old = el("div", { className: "bar before" });
      old.style.width = `${(100 * before[at]) / most}%`;
      cell.prepend(old);
    }
    const change = before ? [el("td", { className: "number", textContent: before[at] }), el("td", { className: "number", textContent: `${count > before[at] ? "+" : ""}${count - before[at]}` })] : [];
    rows.push(el("tr", {}, el("th", { scope: "row", textContent: part.buckets[at][2] }), ...(change.length ? [change[0]] : []), el("td", { className: "number", textContent: count }),
      ...(change.length ? [change[1]] : [el("td", { className: "number soft", textContent: percent(count, total) })]),
      cell, el("td", { className: "marks" }, ...(marks.get(at) ?? []).map((mark) => el("span", { className: "mark", textContent: mark })))));
  }
  const heads = before ? ["before", "after", "change"] : ["count", "share"];
  return el("table", { className: "histogram" }, el("thead", {}, el("tr", {}, el("th", { textContent: part.unit || "bucket" }), ...heads.map((text) => el("th", { className: "number", textContent: text })), el("th"), el("th"))),
    el("tbody", {}, ...rows));
}

export function keyed(part) {
  return part.columns.length > 0;
}

// The keys of a part as a table; *extra* are further columns with the cells of each key.
export function keyTable(data, part, extra, sort, pick) {
  const columns = [...part.columns, ...extra.map(([title, , kind = 1]) => [title, "", kind])];
  const rows = part.keys.map((key, at) => [...key, ...extra.map(([, cells]) => cells[at])]);
  return table(data, { name: part.name, columns, rows, sort: part.columns.length + sort }, pick);
}

/** @param {import("./data").Data} data @param {import("./data").HistogramPart} part */
export function histogram(data, part) {
  const counts = part.counts.map((one) => spread(part, one)), before = part.before?.map((one) => spread(part, one));
  const view = el("div", { className: "detail" });
  /** @param {number[]} one @param {any} old */
  const draw = (title, one, old = null) => view.replaceChildren(
    ...(title ? [el("h3", { textContent: title })] : []),
    el("p", { className: old ? "note" : "headline", textContent: old ? `${counted(sum(one), "value")}, ${sum(old)} before: the thin bars` : headline(part, one) }),
    bars(part, one, old));
  const show = (at) => draw(keyed(part) ? keyText(data.texts, part.columns, part.keys[at]) : "", counts[at], before?.[at]);
  const first = counts.reduce((best, one, at) => (sum(one) > sum(counts[best]) ? at : best), 0);
  show(first);
  if (!keyed(part)) return view;
  const quantiles = PERCENTS.slice(0, 3).map((one) => [`p${one}`, counts.map((all) => quantileText(part, all, one)), 3]);
  const list = keyTable(data, part, [["count", counts.map(sum)], ...quantiles], 0, show);
  const split = el("div", { className: "split" }, list, view);
  return before || counts.length < 2 ? split : el("div", {}, keyHeat(data, part, counts, draw), split);
}
