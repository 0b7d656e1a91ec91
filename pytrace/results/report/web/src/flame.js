// A flame graph on a canvas: only frames that are at least half a pixel wide are drawn.

import { button, choice, counted, dark, el, percent, quantity, redrawn, tick } from "./dom.js";
import { table } from "./table.js";
import { buildTree, exactSum, functions, layout, search, sourceLines } from "./tree.js";

const ROW = 18, FONT = "12px ui-monospace, monospace", SMALLEST = 0.5;
const KINDS = ["user", "kernel", "interpreter", "key"];

export function flame(data, part) {
  const state = { measure: 0, groups: null, roots: part.labels.map(() => true), reversed: false, icicle: false, colour: part.before ? "change" : "kind", widths: "after", scaled: false };
  let tree, x, widths, zoom = 0, hovered = -1, selected = -1, found = null, shown = [], rows = 0;
  const canvas = el("canvas", { tabIndex: 0, role: "img", "aria-label": `Flame graph of ${data.texts[part.name]}: arrow keys go from frame to frame, Enter zooms, Escape shows all` });
  const box = el("div", { className: "canvas" }, canvas);
  const tip = el("div", { className: "tip", hidden: true });
  const status = el("p", { className: "status", "aria-live": "polite" });
  const matches = el("output", { className: "matches" });
  const legend = el("div", { className: "legend" });
  const query = el("input", { type: "search", placeholder: "search, or /regexp/", "aria-label": "search functions", oninput: () => { find(); draw(); } });
  const context = canvas.getContext("2d");
  const listed = el("details", { ontoggle: () => listed.open && listFunctions() }, el("summary", { textContent: "Functions" }), el("div"));

  function rebuild() {
    tree = buildTree(data, part, state);
    zoom = 0; hovered = selected = -1;
    relayout();
  }

  function relayout() {
    widths = state.widths === "before" ? tree.old : tree.total;
    x = layout(tree, widths);
    find();
    draw();
    if (listed.open) listFunctions();
  }

  function find() {
    const text = query.value;
    if (!text) { found = null; matches.textContent = ""; return; }
    let test;
    const pattern = /^\/(.+?)\/?$/.exec(text);
    try {
      const expression = pattern && new RegExp(pattern[1], "i");
      test = expression ? (name) => expression.test(name) : (name) => name.toLowerCase().includes(text.toLowerCase());
    } catch (error) { matches.textContent = error.message; found = null; return; }
    found = search(tree, widths, test);
    matches.textContent = `${counted(found.nodes, "frame")} ${found.nodes === 1 ? "matches" : "match"}: ${quantity(found.sum, unit())}, ${percent(found.sum, widths[0])}`;
  }

  const unit = () => part.measures[state.measure][1];

  function draw() {
    const width = box.clientWidth;
    if (!width || !tree) return;
    shown = visible(width);
    rows = shown.reduce((most, item) => Math.max(most, item.row), 0) + 1;
    const ratio = Math.min(devicePixelRatio || 1, 30000 / (rows * ROW));
    canvas.width = width * ratio; canvas.height = rows * ROW * ratio;
    canvas.style.width = `${width}px`; canvas.style.height = `${rows * ROW}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = FONT;
    context.textBaseline = "middle";
    const letter = context.measureText("m").width;
    for (const item of shown) drawFrame(item, letter);
    drawLegend();
  }

  // The frames that the canvas shows: those above the zoomed one over the whole width, and those below it.
  function visible(width) {
    const result = [], scale = widths[zoom] ? width / widths[zoom] : 0;
    const above = [];
    for (let node = zoom; node >= 0; node = tree.parent[node]) above.push(node);
    above.reverse().forEach((node, row) => result.push({ node, x: 0, width, row, above: node !== zoom }));
    const waiting = [zoom];
    while (waiting.length) {
      const node = waiting.pop();
      for (let place = tree.start[node]; place < tree.start[node + 1]; place++) {
        const child = tree.children[place], size = widths[child] * scale;
        if (size < SMALLEST) continue;
        result.push({ node: child, x: (x[child] - x[zoom]) * scale, width: size, row: tree.depth[child], above: false });
        waiting.push(child);
      }
    }
    return result;
  }

  const top = (item) => (state.icicle ? item.row : rows - 1 - item.row) * ROW;

  function drawFrame(item, letter) {
    const { node } = item, y = top(item), name = tree.name(node);
    context.globalAlpha = item.above ? 0.55 : 1;
    context.fillStyle = found && found.matched[node] ? "#c026d3" : colour(node, name);
    context.fillRect(item.x, y, Math.max(SMALLEST, item.width - 0.6), ROW - 1);
    if (node === selected) {
      context.strokeStyle = dark() ? "#fff" : "#000";
      context.lineWidth = 2;
      context.strokeRect(item.x + 1, y + 1, Math.max(1, item.width - 2.6), ROW - 3);
    }
    const room = Math.floor((item.width - 8) / letter);
    if (room > 2) {
      context.fillStyle = found && found.matched[node] ? "#fff" : "#18181b";
      context.fillText(name.length > room ? `${name.slice(0, room - 1)}…` : name, item.x + 4, y + ROW / 2, item.width - 6);
    }
    context.globalAlpha = 1;
  }

  function colour(node, name) {
    const light = dark() ? 62 : 74;
    if (node === 0) return dark() ? "#8b8b94" : "#d4d4d8";
    if (state.colour === "change") return changeColour(change(node), dark());
    if (state.colour === "module") {
      const module = tree.module(node);
      return module ? `hsl(${hash(module) % 360} 55% ${light}%)` : dark() ? "#8b8b94" : "#d4d4d8";
    }
    const vary = hash(name) % 12;
    const [hue, fill] = [[36 + vary, 88], [4 + vary, 82], [140 + vary, 45], [220, 12]][tree.kind(node)];
    return `hsl(${hue} ${fill}% ${light - (vary % 4) * 1.5}%)`;
  }

  // From -1 (gone) to 1 (new): the change in proportion to the larger of the two.
  function change(node) {
    const factor = state.scaled && tree.old[0] ? tree.total[0] / tree.old[0] : 1;
    const now = tree.total[node], was = tree.old[node] * factor;
    return now === was ? 0 : (now - was) / Math.max(now, was);
  }

  function drawLegend() {
    const entries = [];
    if (state.colour === "change") {
      const scale = el("span", { className: "scale" });
      scale.style.background = `linear-gradient(90deg, ${[-1, -0.5, 0, 0.5, 1].map((at) => changeColour(at, dark())).join(",")})`;
      entries.push("blue: less than before (−100 %: gone) ", scale, " red: more than before (+100 %: new). ",
        `Widths: ${state.widths}.`);
    } else if (state.colour === "kind") {
      const kinds = new Set(shown.map((item) => item.node && tree.kind(item.node)).filter((kind, at) => at));
      for (const kind of [...kinds].sort()) entries.push(sample(`hsl(${[40, 8, 144, 220][kind]} ${[88, 82, 45, 12][kind]}% ${dark() ? 62 : 74}%)`), `${KINDS[kind]} `);
    } else {
      const totals = new Map();
      for (const item of shown) {
        const module = tree.module(item.node);
        if (module) totals.set(module, (totals.get(module) ?? 0) + item.width);
      }
      for (const [module] of [...totals].sort((a, b) => b[1] - a[1]).slice(0, 12))
        entries.push(sample(`hsl(${hash(module) % 360} 55% ${dark() ? 62 : 74}%)`), `${module.split("/").pop()} `);
    }
    legend.replaceChildren(...entries);
  }

  function describe(node) {
    const number = (values, column) => exact(node, values, column);
    const lines = [[tree.name(node), "name"]];
    if (part.before) {
      const delta = tree.total[node] - tree.old[node];
      lines.push([`before ${quantity(number(tree.old, part.before), unit())} (${percent(tree.old[node], tree.old[0])}), after ${quantity(number(tree.total, part.values), unit())} (${percent(tree.total[node], tree.total[0])})`]);
      lines.push([`change ${delta > 0 ? "+" : ""}${quantity(delta, unit())}`]);
    } else {
      lines.push([`${quantity(number(tree.total, part.values), unit())}, ${percent(tree.total[node], tree.total[0])} of all${zoom ? `, ${percent(tree.total[node], tree.total[zoom])} of what is shown` : ""}`]);
      if (tree.self[node]) lines.push([`itself ${quantity(tree.self[node], unit())}, ${percent(tree.self[node], tree.total[0])}`]);
    }
    if (tree.module(node)) lines.push([`${KINDS[tree.kind(node)]}, ${tree.module(node)}`]);
    const sources = node ? sourceLines(data, part, tree, node, part.values[state.measure]) : [];
    for (const [line, value] of sources.slice(0, 4)) lines.push([sources.length > 1 ? `${line} (${percent(value, tree.total[node])})` : line]);
    if (sources.length > 4) lines.push([`and ${sources.length - 4} other lines`]);
    return lines;
  }

  function exact(node, values, columns) {
    return Number.isSafeInteger(values[node]) ? values[node] : exactSum(part, tree, node, columns[state.measure]);
  }

  function at(event) {
    const area = canvas.getBoundingClientRect(), px = event.clientX - area.left, py = event.clientY - area.top;
    return shown.findLast((item) => px >= item.x && px < item.x + item.width && py >= top(item) && py < top(item) + ROW);
  }

  function hover(event) {
    const item = at(event);
    canvas.style.cursor = item ? "pointer" : "default";
    tip.hidden = !item;
    if (!item) { hovered = -1; return; }
    if (item.node !== hovered) {
      hovered = item.node;
      tip.replaceChildren(...describe(hovered).map(([text, name = ""]) => el("div", { className: name, textContent: text })));
    }
    const width = tip.offsetWidth, height = tip.offsetHeight;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + height > innerHeight ? Math.max(4, event.clientY - height - 10) : event.clientY + 18}px`;
  }

  function zoomTo(node) {
    zoom = node;
    draw();
    say(node);
  }

  function say(node) {
    status.textContent = describe(node).map(([text]) => text).join(" · ");
  }

  function key(event) {
    const here = selected < 0 ? zoom : selected;
    const children = (node) => [...tree.children.subarray(tree.start[node], tree.start[node + 1])].filter((child) => widths[child] > 0);
    const beside = (step) => {
      if (here === 0) return here;
      const list = children(tree.parent[here]);
      return list[Math.max(0, Math.min(list.length - 1, list.indexOf(here) + step))];
    };
    const widest = () => children(here).reduce((most, child) => (most < 0 || widths[child] > widths[most] ? child : most), -1);
    const outward = state.icicle ? "ArrowDown" : "ArrowUp", inward = state.icicle ? "ArrowUp" : "ArrowDown";
    const steps = { [outward]: widest, [inward]: () => Math.max(0, tree.parent[here]), ArrowLeft: () => beside(-1), ArrowRight: () => beside(1) };
    if (steps[event.key]) {
      const next = steps[event.key]();
      if (next >= 0) { selected = next; draw(); say(next); }
    } else if (event.key === "Enter" && selected >= 0) zoomTo(selected);
    else if (event.key === "Escape") { selected = -1; zoomTo(0); }
    else return;
    event.preventDefault();
  }

  function listFunctions() {
    const rows = functions(tree, widths, tree.self);
    const own = { kind: "table", name: part.name, note: "", sort: 2, columns: [["function", "", 2], ["module", "", 2], ["total", unit(), 1], ["self", unit(), 1]],
      rows: rows.map((row) => [tree.name(row.node), tree.module(row.node), row.total, row.self]) };
    listed.lastElementChild.replaceChildren(table(data, own));
  }

  canvas.addEventListener("mousemove", hover);
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; hovered = -1; });
  canvas.addEventListener("click", (event) => { const item = at(event); if (item) { selected = -1; zoomTo(item.node); } });
  canvas.addEventListener("keydown", key);
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  const element = el("div", { className: "flame" }, toolbar(), legend, box, status, listed, tip);
  redrawn(box, draw);
  rebuild();
  // For tests, and for whoever wants the numbers: the frames that are drawn.
  element.frames = () => shown.map((item) => ({ name: tree.name(item.node), depth: item.row, x: item.x, y: top(item), width: item.width, value: tree.total[item.node], before: tree.old[item.node], self: tree.self[item.node], colour: colour(item.node, tree.name(item.node)) }));
  return element;

  function toolbar() {
    const set = (name, act) => (value) => { state[name] = value; act(); };
    const bar = [];
    if (part.measures.length > 1)
      bar.push(choice("value", part.measures.map(([name], at) => [at, name]), (value) => { state.measure = Number(value); rebuild(); }));
    if (part.groups.length > 1) {
      const options = groupOptions(data, part);
      bar.push(choice("keys", options.map(([, text], at) => [at, text]), (at) => {
        state.groups = options[at][0];
        rebuild();
      }));
    }
    // Which members of the key are frames at the root.
    part.labels.forEach((label, at) => bar.push(tick(data.texts[label], (checked) => { state.roots[at] = checked; rebuild(); }, true)));
    bar.push(choice("drawn as", [["flame", "flame"], ["icicle", "icicle"]], (value) => { state.icicle = value === "icicle"; draw(); }));
    bar.push(tick("reversed (callers)", set("reversed", rebuild)));
    const colours = [["kind", "kernel, user, interpreter"], ["module", "module"]];
    bar.push(choice("colours", part.before ? [["change", "change"], ...colours] : colours, set("colour", draw)));
    if (part.before) {
      bar.push(choice("widths", [["after", "after"], ["before", "before"]], set("widths", relayout)));
      bar.push(tick("scale before to the same total", set("scaled", draw)));
    }
    bar.push(query, button("Show all", () => { query.value = ""; selected = -1; find(); zoomTo(0); }), matches);
    return el("div", { className: "toolbar" }, ...bar);
  }
}

// Sets of groups, and their names: all, of keys of several members those with a value of the first one, and each.
function groupOptions(data, part) {
  const weights = new Float64Array(part.groups.length);
  part.group.forEach((group, sample) => { weights[group] += Number(part.values[part.values.length - 1][sample]); });
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]);
  const text = (group) => part.groups[group].map((one) => data.texts[one]).join(", ");
  const firsts = new Map();
  if (part.labels.length > 1) for (const group of order) {
    const first = part.groups[group][0];
    firsts.set(first, (firsts.get(first) ?? new Set()).add(group));
  }
  return [[null, "all"], ...[...firsts].filter(([, groups]) => groups.size > 1).map(([first, groups]) => [groups, `${data.texts[part.labels[0]]} ${data.texts[first]}`.slice(0, 200)]),
    ...order.map((group) => [new Set([group]), text(group).slice(0, 200)])];
}

function changeColour(change, isDark) {
  const size = Math.min(1, Math.abs(change)), hue = change > 0 ? 5 : 215;
  return size === 0 ? (isDark ? "#a1a1aa" : "#e4e4e7") : `hsl(${hue} ${Math.round(35 + 55 * size)}% ${Math.round((isDark ? 78 : 88) - 26 * size)}%)`;
}

function sample(colour) {
  const square = el("span", { className: "sample" });
  square.style.background = colour;
  return square;
}

function hash(text) {
  let value = 2166136261;
  for (let at = 0; at < text.length; at++) value = Math.imul(value ^ text.charCodeAt(at), 16777619);
  return value >>> 0;
}
