// The tree of a flame graph, of the samples that are shown: arrays by number of node, parents before children.

// options: measure (number), groups (a set of numbers; null: all), range (of slices of time; null: all), split (the label that is a frame at the root; -1: none), reversed (callers
// below), folded (a function that calls itself is one frame), focus (a function: what it calls, or reversed what calls it; -1: all).
/** @param {import("./data").Data} data @param {import("./data").FlamePart} part @returns {import("./data").Tree} */
export function buildTree(data, part, options) {
  const [names, modules, kinds] = data.frames;
  const labels = names.length; // numbers above are texts of labels
  const [depths, frames] = part.nodes, { slices } = part;
  const above = parentsOf(depths);
  const values = part.values[options.measure].map(Number);
  const olds = part.before ? part.before[options.measure].map(Number) : null;
  const focus = options.focus ?? -1;
  const nodes = new Nodes(part.node.reduce((most, node) => most + depths[node] + 2, 1));
  const leaf = new Int32Array(values.length).fill(-1);
  const path = [];
  for (let sample = 0; sample < values.length; sample++) {
    if (options.groups && !options.groups.has(part.group[sample])) continue;
    if (options.range && slices && (slices[sample] < options.range[0] || slices[sample] >= options.range[1])) continue;
    const value = values[sample], was = olds ? olds[sample] : 0;
    path.length = 0;
    for (let node = part.node[sample]; node >= 0; node = above[node]) path.push(frames[node]);
    let from = 0, to = path.length; // of the path, innermost first
    if (focus >= 0) {
      const outermost = path.lastIndexOf(focus);
      if (outermost < 0) continue;
      if (options.reversed) from = outermost + 1; else to = outermost;
    }
    let at = 0;
    nodes.add(at, value, was);
    if (options.split >= 0 && focus < 0) nodes.add((at = nodes.child(at, labels + part.groups[part.group[sample]][options.split])), value, was);
    let before = focus;
    for (let step = 0; step < to - from; step++) {
      const frame = path[options.reversed ? from + step : to - 1 - step];
      if (options.folded && frame === before) continue;
      nodes.add((at = nodes.child(at, (before = frame))), value, was);
    }
    nodes.self[at] += value;
    nodes.oldSelf[at] += was;
    leaf[sample] = at;
  }
  const { parent, id, total, self, old, oldSelf } = nodes.trimmed();
  if (focus >= 0) id[0] = focus;
  /** @type {any} */
  const tree = { parent, id, total, self, old, oldSelf, leaf, reversed: options.reversed };
  const isFrame = (node) => id[node] >= 0 && id[node] < labels;
  tree.name = (node) => (id[node] < 0 ? "all" : isFrame(node) ? data.texts[names[id[node]]] : data.texts[id[node] - labels]);
  tree.module = (node) => (isFrame(node) ? data.texts[modules[id[node]]] : "");
  tree.kind = (node) => (isFrame(node) ? kinds[id[node]] : 3);
  tree.isFrame = isFrame;
  Object.assign(tree, childrenOf(tree, data, labels));
  return tree;
}

// Nodes by number, found by parent and frame in a hash table of numbers: a Map of a million keys takes ten times as long.
class Nodes {
  constructor(most) {
    this.count = 1;
    this.parent = new Int32Array(most).fill(-1);
    this.id = new Int32Array(most).fill(-1);
    this.total = new Float64Array(most);
    this.old = new Float64Array(most);
    this.self = new Float64Array(most);
    this.oldSelf = new Float64Array(most);
    this.mask = 2 ** Math.ceil(Math.log2(most * 2 + 2)) - 1;
    this.table = new Int32Array(this.mask + 1);
  }

  child(parent, id) {
    let place = (Math.imul(parent, 0x9e3779b1) ^ Math.imul(id, 0x85ebca6b)) >>> 0;
    place = (place ^ (place >>> 15)) & this.mask;
    for (let node; (node = this.table[place]); place = (place + 1) & this.mask)
      if (this.parent[node] === parent && this.id[node] === id) return node;
    const node = this.count++;
    this.table[place] = node;
    this.parent[node] = parent;
    this.id[node] = id;
    return node;
  }

  add(node, value, was) {
    this.total[node] += value;
    this.old[node] += was;
  }

  trimmed() {
    return Object.fromEntries(["parent", "id", "total", "self", "old", "oldSelf"].map((name) => [name, this[name].slice(0, this.count)]));
  }
}

function parentsOf(depths) {
  const parents = new Int32Array(depths.length), last = [];
  for (let node = 0; node < depths.length; node++) {
    parents[node] = depths[node] ? last[depths[node] - 1] : -1;
    last[depths[node]] = node;
  }
  return parents;
}

// Children of each node by name, and the depth of each node.
function childrenOf(tree, data, labels) {
  const { parent, id } = tree, count = parent.length;
  const used = [...new Set(id)].filter((one) => one >= 0);
  const text = (one) => (one < labels ? data.texts[data.frames[0][one]] : data.texts[one - labels]);
  const rank = new Int32Array(labels + data.texts.length);
  used.map((one) => [one, text(one)]).sort((a, b) => (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0)).forEach(([one], at) => { rank[one] = at; });
  const start = new Int32Array(count + 1), depth = new Int32Array(count), children = new Int32Array(Math.max(0, count - 1));
  for (let node = 1; node < count; node++) { start[parent[node] + 1]++; depth[node] = depth[parent[node]] + 1; }
  for (let node = 0; node < count; node++) start[node + 1] += start[node];
  const next = start.slice();
  for (let node = 1; node < count; node++) children[next[parent[node]]++] = node;
  for (let node = 0; node < count; node++)
    if (start[node + 1] - start[node] > 1) children.subarray(start[node], start[node + 1]).sort((a, b) => rank[id[a]] - rank[id[b]]);
  return { start, children, depth };
}

// Where each node begins, in units of the values; widths are those of *widths*, a parent begins where its first child does.
export function layout(tree, widths) {
  const x = new Float64Array(tree.parent.length);
  for (let node = 0; node < x.length; node++) {
    let at = x[node];
    for (let place = tree.start[node]; place < tree.start[node + 1]; place++) {
      x[tree.children[place]] = at;
      at += widths[tree.children[place]];
    }
  }
  return x;
}

// Nodes whose name matches, and the sum of the values of those that are not below another match.
export function search(tree, widths, test) {
  const count = tree.parent.length, matched = new Uint8Array(count), below = new Uint8Array(count), known = new Map();
  let sum = 0, nodes = 0;
  for (let node = 1; node < count; node++) {
    const id = tree.id[node];
    let found = known.get(id);
    if (found === undefined) known.set(id, (found = test(tree.name(node))));
    const up = tree.parent[node];
    below[node] = below[up] || matched[up];
    if (!found) continue;
    matched[node] = 1;
    nodes++;
    if (!below[node]) sum += widths[node];
  }
  return { matched, sum, nodes };
}

// Exact sum of a node whose values a double does not hold.
export function exactSum(part, tree, node, column) {
  let sum = 0n;
  for (let sample = 0; sample < tree.leaf.length; sample++)
    for (let at = tree.leaf[sample]; at >= 0; at = tree.parent[at])
      if (at === node) { sum += BigInt(column[sample]); break; }
  return sum;
}

// Source lines of a node, with their values, the largest first.
export function sourceLines(data, part, tree, node, column) {
  const [depths, frames, places] = part.nodes, found = new Map();
  const above = (tree.above ??= parentsOf(depths));
  for (let sample = 0; sample < tree.leaf.length; sample++) {
    let at = tree.leaf[sample];
    if (at < 0) continue;
    let on = false;
    for (; at > 0 && !on; at = tree.parent[at]) on = at === node;
    if (!on) continue;
    // The line of the innermost frame of that function; where it calls itself, others are the same stack's.
    for (let one = part.node[sample]; one >= 0; one = above[one]) {
      if (frames[one] !== tree.id[node] || places[one] < 0) continue;
      found.set(places[one], (found.get(places[one]) ?? 0) + Number(column[sample]));
      break;
    }
  }
  return [...found].sort((a, b) => b[1] - a[1]).map(([place, value]) => [`${data.texts[data.places[0][place]]}:${data.places[1][place]}`, value]);
}

// Functions with the values of their own and of all below them, before and after; one that calls itself counts once.
export function functions(tree) {
  const count = tree.parent.length, rows = new Map();
  for (let node = 1; node < count; node++) {
    if (!tree.isFrame(node)) continue;
    const id = tree.id[node];
    let row = rows.get(id);
    if (!row) rows.set(id, (row = { node, id, self: 0, total: 0, oldSelf: 0, old: 0 }));
    row.self += tree.self[node];
    row.oldSelf += tree.oldSelf[node];
    let up = tree.parent[node];
    while (up > 0 && tree.id[up] !== id) up = tree.parent[up];
    if (up <= 0) { row.total += tree.total[node]; row.old += tree.old[node]; }
  }
  return [...rows.values()];
}

// Of the samples of a tree what each row of a list has, now and before.
/** @param {import("./data").FlamePart} part @param {import("./data").Tree} tree @param {import("./data").Listing} rows @param {number} measure */
export function rowSums(part, tree, rows, measure) {
  const found = rows.rows.map(([text, frame]) => ({ text, frame, value: 0, old: 0 }));
  rows.of.forEach((row, sample) => {
    if (tree.leaf[sample] < 0) return;
    found[row].value += Number(part.values[measure][sample]);
    if (part.before) found[row].old += Number(part.before[measure][sample]);
  });
  return found;
}
