// A table that sorts, filters and is written as CSV. Only the rows in sight are in the document.

import { button, counted, download, el, local, readable, zone } from "./dom.js";

const ROW = 24, BOOT = "boot";
const FORMULA = /^'*[=+\-@\t\r\n\uff0b\uff0d\uff1d\uff20]/;

// Columns are [name, unit, kind]; kind 0: texts by number, 1: numbers, 2: texts. *pick* is called with the number of a chosen row.
/** @param {import("./data").Data} data @param {Pick<import("./data").TablePart, "name" | "columns" | "rows" | "sort" | "boot">} part @param {((at: number) => void) | null} pick */
export function table(data, part, pick = null) {
  const { columns, rows } = part;
  const title = (column) => (typeof column[0] === "number" ? data.texts[column[0]] : column[0]);
  const text = (row, at) => (columns[at][2] ? String(row[at]) : data.texts[row[at]]);
  // Times since boot are shown as times of day.
  const clock = (column) => column[1] === BOOT && part.boot !== undefined, wall = (exact) => (part.boot ?? 0) + Number(exact) / 1e9;
  const measured = part.sort >= 0 ? part.sort : ranked(columns, rows, title);
  const largest = measured >= 0 ? rows.reduce((most, row) => Math.max(most, Math.abs(Number(row[measured]))), 0) : 0;
  let order = rows.map((_, at) => at), sorted = -1, down = true, chosen = -1, widest = 0;
  const count = el("output");
  const filter = el("input", { type: "search", placeholder: "filter", "aria-label": "filter rows", oninput: refilter });
  const body = el("tbody"), heads = columns.map(head);
  const scroller = el("div", { className: "rows", tabIndex: 0, role: "region", "aria-label": "rows", onscroll: () => render() },
    el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body));
  const element = el("div", { className: "table" }, el("div", { className: "toolbar" }, filter, count, button("CSV", save)), scroller);
  if (part.sort >= 0) sort(part.sort, true);
  refilter();
  requestAnimationFrame(() => render());
  addEventListener("beforeprint", () => render(2000));
  addEventListener("afterprint", () => render());
  element.csv = csv;
  element.pick = choose;
  return element;

  function head(column, at) {
    const shown = column[3] === undefined ? title(column) : data.texts[column[3]];
    const unit = clock(column) && rows.length ? zone(wall(text(rows[0], at))) : scaled(column) ? "" : column[1];
    const act = button(unit ? `${shown} (${unit})` : shown, () => {
      sort(at, sorted === at ? !down : column[2] === 1);
      refilter();
    });
    return el("th", { scope: "col", className: column[2] === 1 ? "number" : "" }, act);
  }

  function sort(at, descending) {
    sorted = at; down = descending;
    heads.forEach((head, number) => head.setAttribute("aria-sort", number === at ? (down ? "descending" : "ascending") : "none"));
  }

  function compare(a, b) {
    if (columns[sorted][2] === 1) {
      const one = rows[a][sorted], other = rows[b][sorted];
      if (typeof one === "string" && typeof other === "string" && /^-?\d+$/.test(one) && /^-?\d+$/.test(other))
        return BigInt(one) < BigInt(other) ? -1 : BigInt(one) > BigInt(other) ? 1 : 0;
      return Number(one) - Number(other);
    }
    const one = text(rows[a], sorted), other = text(rows[b], sorted);
    return one < other ? -1 : one > other ? 1 : 0;
  }

  function refilter() {
    const wanted = filter.value.toLowerCase();
    order = [];
    rows.forEach((row, at) => {
      if (!wanted || columns.some((_, number) => text(row, number).toLowerCase().includes(wanted))) order.push(at);
    });
    if (sorted >= 0) { order.sort(compare); if (down) order.reverse(); }
    count.textContent = order.length === rows.length ? counted(rows.length, "row") : `${order.length} of ${counted(rows.length, "row")}`;
    scroller.scrollTop = 0;
    render();
  }

  function render(most = 0) {
    const first = most ? 0 : Math.max(0, Math.floor(scroller.scrollTop / ROW) - 10);
    const last = Math.min(order.length, most || first + Math.ceil((scroller.clientHeight || 480) / ROW) + 20);
    body.replaceChildren(space(first), ...order.slice(first, last).map(line), space(order.length - last));
    // As wide as the widest row so far: scrolling does not move the columns.
    if (!most && scroller.offsetWidth > widest) scroller.style.minWidth = `min(100%, ${(widest = scroller.offsetWidth)}px)`;
  }

  function space(lines) {
    const row = el("tr", { className: "space", "aria-hidden": "true" });
    row.style.height = `${lines * ROW}px`;
    return row;
  }

  function line(at) {
    const row = rows[at];
    const cells = columns.map((column, number) => {
      const exact = text(row, number), people = exact === "" ? "" : clock(column) ? local(wall(exact)).slice(11, 23) : scaled(column) ? readable(Number(exact), column[1]) : exact;
      const cell = el("td", { className: column[2] === 1 ? "number" : "", textContent: people, title: people === exact ? exact : `${exact} ${clock(column) ? `ns since ${part.boot ? "boot" : "1970"}` : column[1]}` });
      if (number === measured && largest) cell.style.setProperty("--share", `${(100 * Math.abs(Number(row[number]))) / largest}%`);
      return cell;
    });
    const element = el("tr", { className: at === chosen ? "chosen" : "" }, ...cells);
    if (pick) {
      element.tabIndex = 0;
      element.addEventListener("click", () => choose(at));
      element.addEventListener("keydown", (event) => event.key === "Enter" && choose(at));
    }
    return element;
  }

  function choose(at) {
    chosen = at;
    render();
    pick?.(at);
  }

  function save() {
    download(`${title([part.name]).replace(/[^\w.-]+/g, "") || "map"}.csv`, csv());
  }

  // As -f csv writes it: RFC 4180, and an apostrophe before what a spreadsheet would take for a formula.
  function csv() {
    const quoted = (field) => (/[",\r\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field);
    const record = (fields) => `${fields.length === 1 && !fields[0] ? '""' : fields.join(",")}\r\n`;
    const field = (row, at) => {
      const value = text(row, at);
      return quoted(columns[at][2] !== 1 && FORMULA.test(value) ? `'${value}` : value);
    };
    return record(columns.map((column) => quoted(title(column)))) + order.map((at) => record(columns.map((_, number) => field(rows[at], number)))).join("");
  }
}

// Times and sizes are shown in the unit that fits; their exact numbers are on hover and in the file.
const scaled = (column) => column[2] === 1 && /^(ns|us|ms|s|bytes|KB|MB)$/.test(column[1]);

// Numbers that are names: a larger one is not more.
const NAMES = /^(id|[a-z]?(pid|tid)|tgid|uid|gid|fd|err|errno|ret|cpu|node|[a-z]*port|maj|min|major|minor|sector|ino|inode|line|time)$/i;

// The column of numbers by which rows were printed, the largest first; -1: there is none.
function ranked(columns, rows, title) {
  if (rows.length < 2) return -1;
  return columns.findLastIndex((column, at) => column[2] === 1 && !NAMES.test(title(column)) && Number(rows[0][at]) > Number(rows.at(-1)[at]) && rows.every((row, place) => !place || Number(row[at]) <= Number(rows[place - 1][at])));
}
