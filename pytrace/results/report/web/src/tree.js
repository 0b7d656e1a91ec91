// The tree of a flame graph, of the samples that are shown: arrays by number of node, parents before children.

// options: measure (number), groups (a set of numbers; null: all), range (of slices of time; null: all), split (the label that is a frame at the root; -1: none), reversed (callers
// below), folded (a function that calls itself is one frame), focus (a function: what it calls, or reversed what calls it; -1: all).
/** @param {import("./data").Data} data @param {import("./data").FlamePart} part @returns {import("./data").Tree} */
export function buildTree(data, part, options) {
  const [names, modules, kinds] = data.frames;
  const labels = names.length; // numbers above are texts of labels
  const [depths, frames] = part.nodes, { slices } = part;
  const sides = part.gathered?.sides;
  const above = parentsOf(depths);
  const values = part.values[options.measure].map(Number);
  const olds = part.before ? part.before[options.measure].map(Number) : null;
  const focus = options.focus ?? -1, { reversed, folded } = options;
  const split = focus < 0 ? options.split : -1;
  const nodes = new Nodes(depths.length + part.groups.length + 2);
  const leaf = new Int32Array(values.length).fill(-1), chosen = new Uint8Array(values.length);
  /** @type {Map<number, [number, number]>} */
  const own = new Map();
  const itself = (side, frame, value, was) => {
    const sums = side === 1 ? null : own.get(frame);
    if (sums) { sums[0] += value; sums[1] += was; } else if (side !== 1) own.set(frame, [value, was]);
  };
  const path = [];
  // Of each node of the trie that of the tree, for the samples of one value of the label that is a frame at the root.
  const known = new Int32Array(depths.length), knownFor = new Int32Array(depths.length);
  const order = split < 0 ? null : ordered(part, split);
  for (let place = 0; place < values.length; place++) {
    const sample = order ? order[place] : place;
    if (options.groups && !options.groups.has(part.group[sample])) continue;
    if (options.range && slices && (slices[sample] < options.range[0] || slices[sample] >= options.range[1])) continue;
    const value = values[sample], was = olds ? olds[sample] : 0, side = sides ? sides[sample] : 0, node = part.node[sample];
    chosen[sample] = 1;
    if (focus < 0) itself(side, frames[node], value, was);
    if (focus >= 0 ? side === 3 : reversed ? side === 1 : side > 1) continue;
    const root = split < 0 ? 0 : nodes.child(0, labels + part.groups[part.group[sample]][split]);
    let at = root, from = node;
    path.length = 0;
    if (reversed || focus >= 0) {
      for (; from >= 0; from = above[from]) path.push(frames[from]); // innermost first
      let to = path.length;
      from = 0;
      if (focus >= 0) {
        const outermost = path.lastIndexOf(focus);
        if (outermost < 0) continue;
        itself(side, frames[node], value, was);
        if (reversed) from = outermost + 1; else to = outermost;
      }
      for (let step = 0, before = focus; step < to - from; step++) {
        const frame = path[reversed ? from + step : to - 1 - step];
        if (!folded || frame !== before) at = nodes.child(at, (before = frame));
      }
    } else {
      for (; from >= 0 && knownFor[from] !== root + 1; from = above[from]) path.push(from);
      if (from >= 0) at = known[from];
      while (path.length) {
        from = /** @type {number} */ (path.pop());
        if (!folded || nodes.id[at] !== frames[from]) at = nodes.child(at, frames[from]);
        known[from] = at;
        knownFor[from] = root + 1;
      }
    }
    nodes.self[at] += value;
    nodes.oldSelf[at] += was;
    leaf[sample] = at;
  }
  const { parent, id, total, self, old, oldSelf } = nodes.summed();
  if (focus >= 0) id[0] = focus;
  /** @type {any} */
  const tree = { parent, id, total, self, old, oldSelf, leaf, own, chosen };
  const isFrame = (node) => id[node] >= 0 && id[node] < labels;
  tree.name = (node) => (id[node] < 0 ? "all" : isFrame(node) ? data.texts[names[id[node]]] : data.texts[id[node] - labels] || "(none)");
  tree.module = (node) => (isFrame(node) ? data.texts[modules[id[node]]] : "");
  tree.kind = (node) => (isFrame(node) ? kinds[id[node]] : 3);
  tree.isFrame = isFrame;
  Object.assign(tree, childrenOf(tree, data, labels));
  return tree;
}

// Whether another sample has the number of this one: stacks that were gathered.
/** @param {import("./data").FlamePart} part @param {number} sample */
export const again = (part, sample) => part.gathered !== null && part.gathered.sides[sample] > 1;

// Samples by the value of a label.
function ordered(part, label) {
  const text = part.groups.map((group) => group[label]);
  return Uint32Array.from(part.group.keys()).sort((a, b) => text[part.group[a]] - text[part.group[b]] || a - b);
}

// Nodes by number, found by parent and frame in a hash table of numbers: a Map of a million keys takes ten times as long.
class Nodes {
  mask = 0;
  table = new Int32Array(0);

  constructor(room) {
    this.count = 1;
    this.parent = new Int32Array(room).fill(-1);
    this.id = new Int32Array(room).fill(-1);
    this.self = new Float64Array(room);
    this.oldSelf = new Float64Array(room);
    this.hash(room);
  }

  hash(room) {
    this.mask = 2 ** Math.ceil(Math.log2(room * 2 + 2)) - 1;
    this.table = new Int32Array(this.mask + 1);
    for (let node = 1; node < this.count; node++) this.table[this.place(this.parent[node], this.id[node])] = node;
  }

  // Where a node is in the table, or the empty place for it.
  place(parent, id) {
    let place = (Math.imul(parent, 0x9e3779b1) ^ Math.imul(id, 0x85ebca6b)) >>> 0;
    place = (place ^ (place >>> 15)) & this.mask;
    for (let node; (node = this.table[place]); place = (place + 1) & this.mask)
      if (this.parent[node] === parent && this.id[node] === id) break;
    return place;
  }

  child(parent, id) {
    let place = this.place(parent, id);
    if (this.table[place]) return this.table[place];
    if (this.count === this.parent.length) {
      for (const name of ["parent", "id", "self", "oldSelf"]) {
        const old = this[name];
        (this[name] = new old.constructor(this.count * 2)).set(old);
      }
      this.hash(this.count * 2);
      place = this.place(parent, id);
    }
    const node = this.count++;
    this.table[place] = node;
    this.parent[node] = parent;
    this.id[node] = id;
    return node;
  }

  // The columns, and the sums of each node and all below it.
  summed() {
    const [parent, id, self, oldSelf] = ["parent", "id", "self", "oldSelf"].map((name) => this[name].slice(0, this.count));
    const total = self.slice(), old = oldSelf.slice();
    for (let node = this.count - 1; node > 0; node--) {
      total[parent[node]] += total[node];
      old[parent[node]] += old[node];
    }
    return { parent, id, total, self, old, oldSelf };
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
// *whole*: all samples are in the tree, and so are the sums of those that were gathered.
/** @param {import("./data").FlamePart} part @param {import("./data").Tree} tree @param {number} measure @param {boolean} whole */
export function functions(part, tree, measure, whole) {
  const rows = new Map(), active = new Int32Array(tree.id.reduce((most, one) => Math.max(most, one), 0) + 1);
  const row = (id) => {
    let found = rows.get(id);
    if (!found) {
      const [self, oldSelf] = tree.own.get(id) ?? [0, 0];
      rows.set(id, (found = { id, self, total: 0, oldSelf, old: 0 }));
    }
    return found;
  };
  const waiting = [0];
  while (waiting.length) {
    const node = /** @type {number} */ (waiting.pop());
    if (node < 0) { active[tree.id[~node]]--; continue; }
    if (node && tree.isFrame(node)) {
      const id = tree.id[node], one = row(id);
      if (!active[id]++) { one.total += tree.total[node]; one.old += tree.old[node]; }
      waiting.push(~node);
    }
    for (let place = tree.start[node]; place < tree.start[node + 1]; place++) waiting.push(tree.children[place]);
  }
  if (!part.gathered) return [...rows.values()];
  const { sides, ...between } = part.gathered, above = parentsOf(part.nodes[0]), [, frames] = part.nodes;
  const add = (id, place, { values, before }, sign = 1) => {
    const one = row(id);
    one.total += sign * Number(values[measure][place]);
    one.old += before ? sign * Number(before[measure][place]) : 0;
  };
  // The tree has one side of what was gathered. Of the other it lacks the functions.
  sides.forEach((side, sample) => {
    if (!side || !tree.chosen[sample]) return;
    const node = part.node[sample], inside = tree.leaf[sample] >= 0;
    if (side === 2 && !inside) add(frames[node], sample, part);
    else if (side === 3 && inside) add(frames[node], sample, part, -1);
    else if (side === 1 && !inside) {
      const path = new Set();
      for (let one = above[node]; one >= 0; one = above[one]) path.add(frames[one]);
      for (const one of path) add(one, sample, part);
    }
  });
  if (whole) between.frames.forEach((id, place) => add(id, place, between));
  return [...rows.values()];
}

// Of the samples of a tree what each row of a list has, now and before.
/** @param {import("./data").FlamePart} part @param {import("./data").Tree} tree @param {import("./data").Listing} rows @param {number} measure */
export function rowSums(part, tree, rows, measure) {
  const found = rows.rows.map(([text, frame]) => ({ text, frame, value: 0, old: 0 }));
  rows.of.forEach((row, sample) => {
    if (row < 0 || !tree.chosen[sample]) return;
    found[row].value += Number(part.values[measure][sample]);
    if (part.before) found[row].old += Number(part.before[measure][sample]);
  });
  return found;
}
