// A flame graph with its answer above it: the functions that took most, then the picture, fitted to the window.
//
// Drawn on a canvas as an icicle (callers above), as a flame (callers below), from the innermost functions, or as a
// sandwich of one function: its callers above it, what it calls below.

import { button, choice, counted, dark, el, percent, quantity, readable, redrawn, sized, tick } from "./dom.js";
import { overTime } from "./over_time.js";
import { table } from "./table.js";
import { again, buildTree, exactSum, functions, layout, rowSums, search, sourceLines } from "./tree.js";

const ROW = 18, FONT = "12px ui-monospace, monospace", SMALLEST = 0.5, LEAST_HEIGHT = 260, FEWEST_FOLDED = 4, SHOWN = 5, CHIPS = 8;
const KINDS = ["user", "kernel", "interpreter", "key"];
const VIEWS = [["icicle", "callers above"], ["flame", "callers below"], ["reversed", "innermost first"]];

/** @param {import("./data").Data} data @param {import("./data").FlamePart} part */
export function flame(data, part, number = 0) {
  const several = part.labels.map((_, label) => new Set(part.groups.map((group) => group[label])).size > 1);
  /** @type {{ measure: number, facets: (number | null)[], groups: Set<number> | null, range: number[] | null, split: number, view: string, colour: string, widths: string, scaled: boolean, folded: boolean, focus: number }} */
  const state = { measure: part.measures.length - 1, facets: part.labels.map(() => null), groups: null, range: null, split: several.indexOf(true), view: "icicle", colour: part.before ? "change" : "kind", widths: "after", scaled: false, folded: true, focus: -1 };
  // One tree, or those of a sandwich: what the function calls, and what calls it. *places* are where their nodes begin.
  /** @type {import("./data").Tree[]} */
  let trees = [];
  /** @type {import("./data").Tree} */
  let tree;
  /** @type {import("./data").Shown[]} */
  let shown = [];
  /** @type {any} */
  let found = null, hovered = null;
  /** @type {number[]} */
  let hits = [];
  /** @type {Float64Array} */
  let widths = new Float64Array(0);
  let zoom = 0, selected = -1, hit = -1, rows = 0;
  const unfolded = new Set();
  const canvas = el("canvas", { tabIndex: 0, role: "img", "aria-label": `Flame graph of ${data.texts[part.name]}: arrow keys go from frame to frame, Enter zooms, Escape shows all` });
  const box = el("div", { className: "canvas" }, canvas);
  const tip = el("div", { className: "tip", hidden: true });
  const status = el("p", { className: "status", "aria-live": "polite" });
  const matches = el("output", { className: "matches" });
  const legend = el("div", { className: "legend" });
  const answer = el("div", { className: "answer" });
  const facets = el("div", { className: "facets" });
  const query = el("input", { type: "search", placeholder: "search, or /regexp/", "aria-label": "search functions: Enter goes to the next", oninput: () => { find(); draw(); remember(); }, onkeydown: (event) => event.key === "Enter" && nextHit(event.shiftKey ? -1 : 1) });
  const context = canvas.getContext("2d");
  const listed = el("details", { className: "functions", ontoggle: () => listed.open && listFunctions() }, el("summary", { textContent: "All functions" }), el("div"));
  const whole = el("button", { type: "button", textContent: "Show all", onclick: showAll });

  const unit = () => part.measures[state.measure][1];
  // A number of this graph for people: of samples the time that they stand for, too.
  function amount(value) {
    if (unit() !== "count") return readable(value, unit());
    const counts = part.counts ? `${readable(value)} ${noun(value)}` : readable(value);
    return part.period ? `${readable(value * part.period, "s")} (${counts})` : counts;
  }
  // The same with all its digits.
  function exactly(value) {
    if (unit() !== "count") return quantity(value, unit());
    const counts = part.counts ? `${value} ${noun(value)}` : String(value);
    return part.period ? `${readable(Number(value) * part.period, "s")} (${counts})` : counts;
  }
  const noun = (value) => (Math.abs(Number(value)) === 1 ? part.counts.replace(/s$/, "") : part.counts);
  const short = (value) => (unit() === "count" && part.period ? readable(value * part.period, "s") : readable(value, unit()));

  function rebuild() {
    const asked = { ...state, reversed: state.view === "reversed" };
    trees = state.focus < 0 ? [buildTree(data, part, asked)] : [false, true].map((reversed) => buildTree(data, part, { ...asked, reversed }));
    tree = trees[0];
    zoom = 0; hovered = null; selected = -1;
    relayout();
  }

  function relayout() {
    for (const one of trees) {
      one.widths = state.widths === "before" ? one.old : one.total;
      one.x = layout(one, one.widths);
    }
    widths = tree.widths;
    find();
    draw();
    summarize();
    if (listed.open) listFunctions();
  }

  function find() {
    const text = query.value;
    hits = []; hit = -1;
    for (const one of trees) one.matched = null;
    if (!text) { found = null; matches.textContent = ""; return; }
    let test;
    const pattern = /^\/(.+?)\/?$/.exec(text);
    try {
      const expression = pattern && new RegExp(pattern[1], "i");
      test = expression ? (name) => expression.test(name) : (name) => name.toLowerCase().includes(text.toLowerCase());
    } catch (error) { matches.textContent = String(error); found = null; return; }
    found = search(tree, widths, test);
    tree.matched = found.matched;
    if (trees[1]) trees[1].matched = search(trees[1], trees[1].widths, test).matched;
    for (let node = 1; node < found.matched.length; node++) if (found.matched[node] && widths[node] > 0) hits.push(node);
    hits.sort((one, other) => widths[other] - widths[one]);
    tellMatches();
  }

  function tellMatches() {
    const place = hit < 0 ? "" : `${hit + 1} of `;
    matches.textContent = `${place}${counted(found.nodes, "frame")}: ${amount(found.sum)}, ${percent(found.sum, widths[0])}`;
  }

  // Enter in the search goes from frame to frame, the widest first.
  function nextHit(step) {
    if (!hits.length) return;
    hit = (hit + step + hits.length) % hits.length;
    selected = hits[hit];
    if (!shown.some((item) => item.node === selected && item.tree === tree && item.width > 3 && !item.fold)) {
      zoom = tree.parent[selected];
      while (zoom > 0 && widths[zoom] < 20 * widths[selected]) zoom = tree.parent[zoom];
    }
    draw();
    reveal(selected);
    say(selected);
    tellMatches();
  }

  function draw() {
    const width = box.clientWidth;
    if (!width || !trees.length) return;
    place(width);
    sized(canvas, width, rows * ROW, Math.min(devicePixelRatio || 1, 30000 / (rows * ROW)));
    context.font = FONT;
    context.textBaseline = "middle";
    const letter = context.measureText("m").width;
    for (const item of shown) drawFrame(item, letter);
    drawLegend();
    whole.disabled = zoom === 0 && state.focus < 0 && !query.value;
  }

  // The frames that the canvas shows, with their rows from the top.
  function place(width) {
    shown = [];
    const down = state.view === "flame" ? -1 : 1;
    if (trees.length > 1) {
      branch(trees[0], 0, width, 0, 1);
      branch(trees[1], 0, width, 0, -1);
      shown.splice(shown.findIndex((item) => item.tree === trees[1] && item.node === 0), 1);
    } else {
      /** @type {(number | number[])[]} */
      const above = [];
      for (let node = tree.parent[zoom]; zoom && node >= 0; node = tree.parent[node]) above.unshift(node);
      let row = 0;
      // Of those above the zoomed frame the outermost and the caller.
      const middle = above.slice(1, -1);
      if (middle.length > 3 && !unfolded.has(middle[0])) above.splice(1, middle.length, /** @type {number[]} */ (middle));
      for (const one of above) {
        const fold = Array.isArray(one) ? one : null;
        shown.push({ tree, node: Array.isArray(one) ? one[0] : one, fold, x: 0, width, row, above: true });
        row += down;
      }
      branch(tree, zoom, width, row, down);
    }
    let least = 0, most = 0;
    for (const item of shown) { least = Math.min(least, item.row); most = Math.max(most, item.row); }
    for (const item of shown) item.row -= least;
    rows = most - least + 1;
  }

  // A node over the whole width and what is below it. Long runs of single calls are one row, which opens.
  function branch(of, root, width, row, step) {
    const scale = of.widths[root] ? width / of.widths[root] : 0;
    /** @type {[number, number][]} */
    const waiting = [[root, row]];
    while (waiting.length) {
      let [node, at] = /** @type {[number, number]} */ (waiting.pop());
      const left = (one) => (of.x[one] - of.x[root]) * scale;
      shown.push({ tree: of, node, x: left(node), width: of.widths[node] * scale, row: at });
      // Calls of calls without a branch and without much time of their own.
      const chain = [];
      for (let next = only(of, node); next >= 0; next = only(of, next)) chain.push(next);
      // What else the last frame of a row, and those that are folded in it, call.
      const others = (parent, next, below) => {
        let gathered = 0, many = 0, begin = 0;
        for (let place = of.start[parent]; place < of.start[parent + 1]; place++) {
          const child = of.children[place], size = of.widths[child] * scale;
          if (child === next) continue;
          if (size >= SMALLEST) waiting.push([child, below]);
          else if (size > 0) { begin ||= left(child); gathered += size; many++; }
        }
        if (gathered >= SMALLEST) shown.push({ tree: of, node: parent, many, x: begin, width: gathered, row: below });
      };
      others(node, chain[0], at + step);
      let from = 0;
      while (from < chain.length) {
        let to = from + 1;
        while (to < chain.length - 1 && of.kind(chain[to]) === of.kind(chain[from])) to++;
        const run = chain.slice(from, to), folds = run.length >= FEWEST_FOLDED && !unfolded.has(run[0]) && !run.includes(selected);
        for (const one of folds ? run.slice(0, 1) : run) shown.push({ tree: of, node: one, fold: folds ? run : null, x: left(one), width: of.widths[one] * scale, row: (at += step) });
        run.forEach((one, place) => others(one, chain[from + place + 1], folds ? at + step : at - step * (run.length - 2 - place)));
        from = to;
      }
    }
  }

  // The only function that one calls, if nearly all of its time is there; else -1.
  function only(of, node) {
    const start = of.start[node], end = of.start[node + 1];
    if (!node || end === start) return -1;
    let widest = of.children[start];
    for (let place = start + 1; place < end; place++) if (of.widths[of.children[place]] > of.widths[widest]) widest = of.children[place];
    return of.widths[widest] >= 0.97 * of.widths[node] && of.widths[widest] > 0 ? widest : -1;
  }

  const top = (item) => item.row * ROW;

  function drawFrame(item, letter) {
    const { node, tree: of } = item, y = top(item);
    const name = item.fold ? `⋯ ${item.fold.length} calls: ${of.name(item.fold[0])} … ${of.name(item.fold[item.fold.length - 1])}` : item.many ? "" : shortName(of.name(node));
    const matched = of.matched && (item.fold ? item.fold.some((one) => of.matched[one]) : !item.many && of.matched[node]);
    context.globalAlpha = item.above ? 0.55 : 1;
    context.fillStyle = matched ? "#c026d3" : item.fold || item.many ? (dark() ? "#71717a" : "#e4e4e7") : colour(item);
    context.fillRect(item.x, y, Math.max(SMALLEST, item.width - 0.6), ROW - 1);
    const self = item.fold || item.many || item.above || state.widths === "before" ? 0 : of.self[node] / of.total[node];
    if (self > 0.01 && item.width > 4) {
      context.fillStyle = dark() ? "#0008" : "#0004";
      context.fillRect(item.x, y + ROW - 4, Math.max(1, (item.width - 0.6) * Math.min(1, self)), 3);
    }
    if (node === selected && of === tree && !item.fold && !item.many) {
      context.strokeStyle = dark() ? "#fff" : "#000";
      context.lineWidth = 2;
      context.strokeRect(item.x + 1, y + 1, Math.max(1, item.width - 2.6), ROW - 3);
    }
    const room = Math.floor((item.width - 8) / letter);
    if (room > 2 && name) {
      context.fillStyle = matched ? "#fff" : "#18181b";
      context.fillText(name.length > room ? `${name.slice(0, room - 1)}…` : name, item.x + 4, y + ROW / 2, item.width - 6);
    }
    context.globalAlpha = 1;
  }

  function colour({ tree: of, node }) {
    const light = dark() ? 62 : 74, name = of.name(node);
    if (state.colour === "change") return node || of !== tree ? changeColour(change(of, node), dark()) : dark() ? "#8b8b94" : "#d4d4d8";
    if (node === 0 && state.focus < 0) return dark() ? "#8b8b94" : "#d4d4d8";
    if (state.colour === "module") {
      const module = of.module(node);
      return module ? `hsl(${hash(module) % 360} 55% ${light}%)` : dark() ? "#8b8b94" : "#d4d4d8";
    }
    const vary = hash(name) % 12;
    const [hue, fill] = [[36 + vary, 88], [4 + vary, 82], [140 + vary, 45], [220, 12]][of.kind(node)];
    return `hsl(${hue} ${fill}% ${light - (vary % 4) * 1.5}%)`;
  }

  // From -1 (gone) to 1 (new): the change in proportion to the larger of the two.
  function change(of, node) {
    const now = of.total[node], was = of.old[node] * factor();
    return now === was ? 0 : (now - was) / Math.max(now, was);
  }

  const factor = () => (state.scaled && tree.old[0] ? tree.total[0] / tree.old[0] : 1);

  function drawLegend() {
    const entries = [];
    if (state.colour === "change") {
      const scale = el("span", { className: "scale" });
      scale.style.background = `linear-gradient(90deg, ${[-1, -0.5, 0, 0.5, 1].map((at) => changeColour(at, dark())).join(",")})`;
      entries.push("blue: less than before (−100 %: gone) ", scale, " red: more than before (+100 %: new). ",
        `Widths: ${state.widths}.`);
    } else if (state.colour === "kind") {
      const kinds = new Set(shown.map((item) => (item.node ? item.tree.kind(item.node) : -1)).filter((kind) => kind >= 0));
      for (const kind of [...kinds].sort()) entries.push(sample(`hsl(${[40, 8, 144, 220][kind]} ${[88, 82, 45, 12][kind]}% ${dark() ? 62 : 74}%)`), `${KINDS[kind]} `);
    } else {
      const totals = new Map();
      for (const item of shown) {
        const module = item.tree.module(item.node);
        if (module) totals.set(module, (totals.get(module) ?? 0) + item.width);
      }
      for (const [module] of [...totals].sort((a, b) => b[1] - a[1]).slice(0, 12))
        entries.push(sample(`hsl(${hash(module) % 360} 55% ${dark() ? 62 : 74}%)`), `${module.split("/").pop()} `);
    }
    legend.replaceChildren(...entries);
  }

  // ------------------------------------------------------------------------------------------ the answer

  // Whether all samples are shown.
  const all = () => !state.groups && !state.range;

  // What the chosen function has in stacks of which neither it nor its callers are drawn.
  function elsewhere() {
    const place = all() && part.gathered ? part.gathered.frames.indexOf(state.focus) : -1;
    return place < 0 ? "" : `, and ${amount(Number(part.gathered?.values[state.measure][place]))} in calls too rare to be drawn`;
  }

  // The functions that took most, themselves and with what they call; of a difference those that changed most.
  function summarize() {
    if (state.focus >= 0) {
      answer.replaceChildren(el("p", { className: "headline" }, el("b", { textContent: tree.name(0) }), `: ${amount(tree.total[0])}${elsewhere()}. Above it what calls it, below it what it calls.`));
      return;
    }
    const sum = tree.total[0], lists = [], summed = (rows) => rowSums(part, tree, rows, state.measure);
    let line = sum ? `${amount(sum)}${part.what ? ` ${part.what}` : ""}${state.groups ? ", of the keys that are chosen" : ""}${state.range ? ", in the time that is chosen" : ""}` : "Nothing was counted";
    if (part.before) {
      const was = tree.old[0] * factor(), delta = (row) => row.value - row.old * factor();
      line = `${amount(tree.old[0])} before, ${amount(sum)} after: ${signed(sum - tree.old[0])}${tree.old[0] ? ` (${signedPercent(sum - tree.old[0], tree.old[0])})` : ""}${state.scaled ? ", both scaled to the same total" : ""}`;
      const order = summed(part.lists[0]).filter((row) => delta(row)).sort((a, b) => delta(b) - delta(a));
      const most = Math.max(was, sum), base = `in % of all ${was > sum ? "before" : "after"}`;
      lists.push(list(`Grew most (the functions themselves, ${base})`, order.filter((row) => delta(row) > 0), delta, most, signed));
      lists.push(list(`Shrank most (${base})`, order.filter((row) => delta(row) < 0).reverse(), delta, most, signed));
    } else {
      for (const rows of part.lists) lists.push(list(rows.title, summed(rows).filter((row) => row.value).sort((a, b) => b.value - a.value), (row) => row.value, sum, short));
      const [title, chosen] = part.callers, wanted = new Set(chosen);
      const callers = functions(part, tree, state.measure, all()).filter((row) => wanted.has(row.id) && row.total).sort((a, b) => b.total - a.total);
      lists.push(list(title, callers.map((row) => ({ text: data.frames[0][row.id], frame: row.id, value: row.total })), (row) => row.value, sum, short));
    }
    answer.replaceChildren(el("p", { className: "headline", textContent: line }), ...lists.filter(Boolean));
  }

  function list(title, found, value, sum, text) {
    if (!found.length) return "";
    const lines = found.slice(0, innerHeight < 700 ? 3 : SHOWN).map((row) => {
      const share = sum ? (100 * Math.abs(value(row))) / sum : 0, name = data.texts[row.text];
      const both = part.before ? `${amount(row.old * factor())} before, ${amount(row.value)} after` : amount(value(row));
      const line = el("button", { type: "button", className: "top", title: `${name} ${data.texts[data.frames[1][row.frame]]}\n${both}\nclick: its callers, and what it calls`, onclick: () => focusOn(row.frame) },
        el("span", { className: "share", textContent: `${share.toFixed(share < 9.95 ? 1 : 0)} %` }), el("span", { className: "function", textContent: shortName(name) }), el("span", { className: "amount", textContent: text(value(row)) }));
      line.style.setProperty("--share", `${Math.min(100, share)}%`);
      return el("li", {}, line);
    });
    return el("div", {}, el("h3", { textContent: title }), el("ol", {}, ...lines));
  }

  const signed = (value) => (value > 0 ? `+${short(value)}` : short(value));
  const signedPercent = (value, of) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${percent(Math.abs(value), of)}`;

  function describe(of, node) {
    const number = (values, column) => exact(of, node, values, column);
    const lines = [[of.name(node), "name"]];
    if (part.before) {
      const delta = of.total[node] - of.old[node];
      lines.push([`before ${exactly(number(of.old, part.before))} (${percent(of.old[node], of.old[0])}), after ${exactly(number(of.total, part.values))} (${percent(of.total[node], of.total[0])})`]);
      lines.push([`change ${delta > 0 ? "+" : ""}${quantity(delta, unit())}${of.old[node] ? ` (${signedPercent(delta, of.old[node])})` : ""}`]);
    } else {
      lines.push([`${exactly(number(of.total, part.values))}, ${percent(of.total[node], of.total[0])} of all${zoom ? `, ${percent(of.total[node], of.total[zoom])} of what is shown` : ""}`]);
      if (of.self[node]) lines.push([`itself ${exactly(of.self[node])}, ${percent(of.self[node], of.total[0])}`]);
    }
    if (of.module(node)) lines.push([`${KINDS[of.kind(node)]}, ${of.module(node)}`]);
    const sources = node ? sourceLines(data, part, of, node, part.values[state.measure]) : [];
    for (const [line, value] of sources.slice(0, 4)) lines.push([sources.length > 1 ? `${line} (${percent(value, of.total[node])})` : line]);
    if (sources.length > 4) lines.push([`and ${sources.length - 4} other lines`]);
    return lines;
  }

  function exact(of, node, values, columns) {
    return Number.isSafeInteger(values[node]) ? values[node] : exactSum(part, of, node, columns[state.measure]);
  }

  // ------------------------------------------------------------------------------------------ mouse and keys

  function at(event) {
    const area = canvas.getBoundingClientRect(), px = event.clientX - area.left, py = event.clientY - area.top;
    return shown.findLast((item) => px >= item.x && px < item.x + item.width && py >= top(item) && py < top(item) + ROW);
  }

  function hover(event) {
    const item = at(event);
    canvas.style.cursor = item ? "pointer" : "default";
    tip.hidden = !item;
    if (!item) { hovered = null; return; }
    if (item !== hovered) {
      hovered = item;
      const lines = item.fold ? [[`${item.fold.length} calls, each only of the next: a click shows them`, "name"], ...item.fold.slice(0, 12).map((node) => [item.tree.name(node)]), ...(item.fold.length > 12 ? [["…"]] : [])]
        : item.many ? [[`${counted(item.many, "function")} too narrow to draw`, "name"]] : describe(item.tree, item.node);
      tip.replaceChildren(...lines.map(([text, name = ""]) => el("div", { className: name, textContent: text })));
    }
    const width = tip.offsetWidth, height = tip.offsetHeight;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + height > innerHeight ? Math.max(4, event.clientY - height - 10) : event.clientY + 18}px`;
  }

  function click(event) {
    const item = at(event);
    if (!item) return;
    if (item.fold) { unfolded.add(item.fold[0]); draw(); return; }
    if (item.many) return;
    if (trees.length > 1) { if (item.node) focusOn(item.tree.id[item.node]); return; }
    selected = -1;
    zoomTo(item.node);
  }

  function zoomTo(node) {
    zoom = node;
    draw();
    reveal(node);
    say(node);
    remember();
  }

  function focusOn(id) {
    state.focus = id;
    rebuild();
    box.scrollTop = Math.max(0, (rows * ROW - box.clientHeight) / 2);
    say(0);
    remember();
  }

  function showAll() {
    query.value = "";
    selected = -1;
    if (state.focus >= 0) { state.focus = -1; rebuild(); }
    find();
    zoomTo(0);
  }

  // Scroll the picture to a frame.
  function reveal(node) {
    const item = shown.find((one) => one.node === node && one.tree === tree && !one.fold);
    if (item && (top(item) < box.scrollTop || top(item) + ROW > box.scrollTop + box.clientHeight)) box.scrollTop = top(item) - box.clientHeight / 3;
  }

  function say(node) {
    status.textContent = describe(tree, node).map(([text]) => text).join(" · ");
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
    const outward = state.view === "flame" ? "ArrowUp" : "ArrowDown", inward = state.view === "flame" ? "ArrowDown" : "ArrowUp";
    const steps = { [outward]: widest, [inward]: () => Math.max(0, tree.parent[here]), ArrowLeft: () => beside(-1), ArrowRight: () => beside(1) };
    if (steps[event.key]) {
      const next = steps[event.key]();
      if (next >= 0) { selected = next; draw(); reveal(next); say(next); }
    } else if (event.key === "Enter" && selected >= 0) zoomTo(selected);
    else if (event.key === "Escape") { selected = -1; state.focus >= 0 ? showAll() : zoomTo(0); }
    else return;
    event.preventDefault();
  }

  function listFunctions() {
    const share = (value, of) => (of ? +((100 * value) / of).toFixed(2) : 0);
    const found = functions(part, tree, state.measure, all() && state.focus < 0), sum = tree.total[0];
    /** @type {import("./data").Column[]} */
    const columns = part.before
      ? [["function", "", 2], ["module", "", 2], ["self before", unit(), 1], ["self after", unit(), 1], ["change", unit(), 1], ["total before", unit(), 1], ["total after", unit(), 1], ["change of total", unit(), 1]]
      : [["function", "", 2], ["module", "", 2], ["self", unit(), 1], ["self %", "", 1], ["total", unit(), 1], ["total %", "", 1]];
    const rows = found.map((row) => [data.texts[data.frames[0][row.id]], data.texts[data.frames[1][row.id]], ...(part.before
      ? [row.oldSelf, row.self, row.self - row.oldSelf, row.old, row.total, row.total - row.old]
      : [row.self, share(row.self, sum), row.total, share(row.total, sum)])]);
    const own = { kind: "table", name: part.name, note: "", sort: part.before ? 4 : 2, columns, rows };
    listed.lastElementChild.replaceChildren(table(data, own, (at) => focusOn(found[at].id)));
  }

  // ------------------------------------------------------------------------------------------ controls

  function toolbar() {
    const bar = [];
    if (part.measures.length > 1)
      bar.push(choice("value", part.measures.map(([name], at) => [at, name]), (value) => { state.measure = Number(value); rebuild(); }, state.measure));
    bar.push(choice("drawn with", VIEWS, (value) => { state.view = value; rebuild(); box.scrollTop = value === "flame" ? rows * ROW : 0; remember(); }, () => state.view));
    if (several.some(Boolean)) {
      const labels = part.labels.map((label, at) => [at, data.texts[label]]).filter(([at]) => several[at]);
      bar.push(choice("split by", [[-1, "nothing"], ...labels], (value) => { state.split = Number(value); rebuild(); remember(); }, () => state.split));
    }
    const colours = [["kind", "kernel, user, interpreter"], ["module", "module"]];
    bar.push(choice("colours", part.before ? [["change", "change"], ...colours] : colours, (value) => { state.colour = value; draw(); }));
    if (part.before) {
      bar.push(choice("widths", [["after", "after"], ["before", "before"]], (value) => { state.widths = value; relayout(); }));
      bar.push(tick("scale before to the same total", (checked) => { state.scaled = checked; relayout(); }));
    }
    bar.push(query, whole, matches, legend);
    return el("div", { className: "toolbar" }, ...bar);
  }

  // The members of the key that are no stacks, as tabs: all, and the values that have most.
  function showFacets() {
    const lines = part.labels.map((label, at) => {
      if (!several[at]) return "";
      const weights = new Map();
      part.group.forEach((group, sample) => {
        if (again(part, sample)) return;
        const text = part.groups[group][at];
        weights.set(text, (weights.get(text) ?? 0) + Number(part.values[state.measure][sample]));
      });
      const sum = [...weights.values()].reduce((one, other) => one + other, 0);
      const order = [...weights].sort((a, b) => b[1] - a[1]);
      const chip = (text, name) => {
        const one = button(name, () => { state.facets[at] = text; facet(); });
        one.setAttribute("aria-pressed", state.facets[at] === text);
        return one;
      };
      const named = ([text, weight]) => `${data.texts[text].slice(0, 60) || "(none)"} ${sum ? Math.round((100 * weight) / sum) : 0} %`;
      // Values that have next to nothing are in the list: there may be many of them.
      const large = order.filter(([, weight], place) => place < CHIPS && (place < 2 || 100 * weight >= sum)).length;
      const chips = [chip(null, "all"), ...order.slice(0, large).map((one) => chip(one[0], named(one)))];
      if (order.length > large) {
        const more = choice("", [["", `${order.length - large} more`], ...order.slice(large).map((one) => [one[0], named(one)])], (text) => { state.facets[at] = text === "" ? null : Number(text); facet(); });
        if (order.slice(large).some(([text]) => text === state.facets[at])) more.lastElementChild.value = String(state.facets[at]);
        more.lastElementChild.setAttribute("aria-label", `${data.texts[label]}: others`);
        chips.push(more);
      }
      return el("div", { className: "facet", role: "group", "aria-label": data.texts[label] }, el("span", { className: "soft", textContent: data.texts[label] }), ...chips);
    });
    facets.replaceChildren(...lines.filter(Boolean));
  }

  function facet() {
    const chosen = state.facets.some((text) => text !== null);
    state.groups = chosen ? new Set(part.groups.flatMap((group, at) => (state.facets.every((text, label) => text === null || group[label] === text) ? [at] : []))) : null;
    showFacets();
    rebuild();
    remember();
  }

  // ------------------------------------------------------------------------------------------ the address

  // What is looked at, in the address of the page, so that others who open it see the same.
  function remember() {
    const kept = new URLSearchParams();
    if (state.view !== "icicle") kept.set("view", state.view);
    if (state.focus >= 0) kept.set("focus", String(state.focus));
    else if (zoom) kept.set("zoom", String(zoom));
    if (query.value) kept.set("search", query.value);
    if (state.split !== several.indexOf(true)) kept.set("split", String(state.split));
    state.facets.forEach((text, label) => { if (text !== null) kept.set(`key${label}`, String(text)); });
    if (state.range) kept.set("time", state.range.join("-"));
    const text = kept.toString();
    history.replaceState(null, "", text || location.hash ? `#part-${number}${text ? `&${text}` : ""}` : location.href);
  }

  function recall() {
    const [place, ...rest] = location.hash.slice(1).split("&");
    if (place !== `part-${number}` || !rest.length) return;
    const kept = new URLSearchParams(rest.join("&"));
    const whole = (name, most) => { const value = Number(kept.get(name) ?? -1); return Number.isInteger(value) && value >= 0 && value < most ? value : -1; };
    state.view = VIEWS.find(([view]) => view === kept.get("view"))?.[0] ?? state.view;
    if (kept.has("split")) state.split = several[whole("split", part.labels.length)] ? whole("split", part.labels.length) : -1;
    state.facets = state.facets.map((_, label) => { const text = whole(`key${label}`, data.texts.length); return part.groups.some((group) => group[label] === text) ? text : null; });
    state.focus = whole("focus", data.frames[0].length);
    query.value = kept.get("search") ?? "";
    return () => {
      const time = kept.get("time") ?? "";
      if (strip && /^\d+-\d+$/.test(time)) strip.take(...time.split("-").map(Number));
      const node = whole("zoom", tree.parent.length);
      if (state.focus < 0 && node > 0) { zoom = node; draw(); say(node); }
    };
  }

  canvas.addEventListener("mousemove", hover);
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; hovered = null; });
  canvas.addEventListener("click", click);
  canvas.addEventListener("keydown", key);
  for (const place of [window, box]) place.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  const strip = part.slices ? overTime(part, part.slices, state.measure, amount, (range) => { state.range = range; rebuild(); remember(); }) : null;
  const recalled = recall();
  const element = el("div", { className: "flame" }, answer, facets, ...(strip ? [strip] : []), toolbar(), box, status, listed, tip);
  // The picture takes what the window has left below it, so that it is seen without scrolling.
  const fit = () => { box.style.maxHeight = `${Math.max(LEAST_HEIGHT, innerHeight - (element.offsetTop ? box.getBoundingClientRect().top + scrollY - (number ? element.offsetTop : 0) : 400) - 56)}px`; };
  redrawn(box, () => { fit(); draw(); });
  addEventListener("resize", fit);
  if (state.facets.some((text) => text !== null)) facet();
  else { showFacets(); rebuild(); }
  recalled?.();
  // For tests, and for whoever wants the numbers: the frames that are drawn.
  element.frames = () => shown.filter((item) => !item.many).map((item) => ({ name: item.tree.name(item.node), folded: item.fold?.length ?? 0, depth: item.row, x: item.x, y: top(item), width: item.width, value: item.tree.total[item.node], before: item.tree.old[item.node], self: item.tree.self[item.node], colour: colour(item) }));
  return element;
}

// Names of compiled code have the path of their source: its last part is enough where there is little room.
const shortName = (name) => name.replace(/ \/\S*\/(?=\S+$)/, " ");

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
