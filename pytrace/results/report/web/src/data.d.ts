// What a report holds (pytrace/results/formats/report_data.py), for scripts/check: texts, frames and places are referred to by number.

/** A number, as text where a double does not hold it; of texts their number. */
export type Cell = number | string;
/** Name (a text), unit, 1 for numbers, 0 for texts by number, 2 and 3 for texts; what people call it (a text). */
export type Column = [number | string, string, number, number?];
/** Least and greatest value, null at an open end; label. */
export type Bucket = [Cell | null, Cell | null, string];
/** Numbers of the buckets that are not empty, and their counts. */
export type Counts = [number[], Cell[]];
/** Times in seconds, and values. */
export type Line = [number[], (Cell | null)[]];

interface Named { name: number; help: number; note: string }
interface Keyed extends Named { unit: string; columns: Column[]; keys: Cell[][] }

export interface Listing { title: string; rows: [number, number][]; of: number[] }

/** Stacks with calls that are not in the trie (data.py); sides: 0 a stack, 1 callers, 2 and 3 innermost functions. */
export interface Gathered { sides: number[]; frames: number[]; values: Cell[][]; before: Cell[][] | null }

export interface FlamePart extends Named {
  kind: "flame";
  measures: [string, string][];
  labels: number[];
  groups: number[][];
  nodes: [number[], number[], number[]];
  node: number[];
  group: number[];
  values: Cell[][];
  before: Cell[][] | null;
  counts: string;
  what: string;
  period: number;
  slices: number[] | null;
  slice: number;
  start: number;
  lost: number[];
  lists: Listing[];
  callers: [string, number[]];
  gathered: Gathered | null;
}
export interface TablePart extends Named { kind: "table"; columns: Column[]; rows: Cell[][]; sort: number; boot?: number }
export interface HistogramPart extends Keyed { kind: "histogram"; buckets: Bucket[]; counts: Counts[]; before: Counts[] | null; by: number }
export interface LinesPart extends Keyed { kind: "lines"; lines: Line[]; interval: number; of: string; before: Line[] | null }
export interface HeatPart extends Keyed { kind: "heat"; buckets: Bucket[]; steps: Counts[][]; starts: number[]; times: number[] }
export interface SpansPart extends Named {
  kind: "spans";
  begin: number;
  tracks: [number, number][];
  track: number[]; level: number[]; start: number[]; took: Cell[]; label: number[];
  columns: number[]; details: number[][];
}
export type Part = FlamePart | TablePart | HistogramPart | LinesPart | HeatPart | SpansPart;

export interface Data {
  texts: string[];
  /** Names and modules (texts), and kinds. */
  frames: [number[], number[], number[]];
  /** Files (texts) and lines. */
  places: [number[], number[]];
  parts: Part[];
  /** A tool's, whose question is the title. */
  tool: boolean;
}

/** The tree of a flame graph (buildTree): arrays by number of node. */
export interface Tree {
  parent: Int32Array; id: Int32Array; leaf: Int32Array; depth: Int32Array; start: Int32Array; children: Int32Array;
  total: Float64Array; self: Float64Array; old: Float64Array; oldSelf: Float64Array;
  /** Of the functions all that they have themselves, now and before. */
  own: Map<number, [number, number]>;
  /** Of each sample 1 if it is chosen. */
  chosen: Uint8Array;
  name(node: number): string;
  module(node: number): string;
  kind(node: number): number;
  isFrame(node: number): boolean;
  widths: Float64Array;
  x: Float64Array;
  matched: Uint8Array | null;
  above?: Int32Array;
}
/** A frame that the canvas shows: its place, and the calls that it folds or the narrow ones that it gathers. */
export interface Shown { tree: Tree; node: number; x: number; width: number; row: number; fold?: number[] | null; many?: number; above?: boolean }
