// Figures of plotly, as far as our own charts can draw them: lines, points, bars and heat maps. They come from trials, so
// nothing of the JSON is handed on unseen: only numbers, texts and the words that are known here.

import { readJson } from "./exact_json.js";

/** @import { Json, JsonObject } from "./wire.d.ts" */

/**
 * @typedef {object} Trace
 * @property {"scatter" | "bar" | "heatmap"} type
 * @property {string} name
 * @property {string} mode lines, markers or both
 * @property {(number | string | null)[][]} points
 * @property {number} low of a heat map
 * @property {number} high
 */

/** @typedef {{ type: "value" | "log" | "category", title: string, categories: string[] | undefined }} FigureAxis */

/** @typedef {{ traces: Trace[], x: FigureAxis, y: FigureAxis }} Figure */

const TYPES = { scatter: "scatter", scattergl: "scatter", bar: "bar", heatmap: "heatmap" };
const TRACES_MAX = 50;
const POINTS_MAX = 100_000;
const TITLE_MAX = 100;

/**
 * @param {string} text
 * @returns {Figure}
 */
export function readFigure(text) {
  const { data, layout } = parseLenient(text);
  if (!Array.isArray(data) || !data.length || data.length > TRACES_MAX) throw new Error("This is no figure of plotly.");
  const raw = data.map(readTrace);
  if (raw.reduce((sum, { x }) => sum + x.length, 0) > POINTS_MAX) throw new Error("This figure has too many points.");
  const x = readAxis(
    layout?.xaxis,
    raw.flatMap((one) => one.x),
  );
  const y = readAxis(
    layout?.yaxis,
    raw.flatMap((one) => one.y),
  );
  return { traces: raw.map((one) => makeTrace(one, x, y)), x, y };
}

/**
 * JSON in which NaN and the infinities may stand, as Python writes them; they become null.
 * @param {string} text
 */
export function parseLenient(text) {
  try {
    return readJson(text);
  } catch {
    return readJson(text.replaceAll(/-?\b(NaN|Infinity)\b/g, "null"));
  }
}

/** @typedef {{ type: "scatter" | "bar" | "heatmap", name: string, mode: string, x: Json[], y: Json[], z: Json[] }} RawTrace */

/**
 * @param {Json} given
 * @returns {RawTrace}
 */
function readTrace(given) {
  const trace = /** @type {JsonObject} */ (given ?? {});
  const word = typeof trace.type === "string" ? trace.type : "scatter";
  if (!Object.hasOwn(TYPES, word)) throw new Error(`The page draws no figures of the type ${word.slice(0, 30)}.`);
  const type = /** @type {RawTrace["type"]} */ (TYPES[/** @type {keyof typeof TYPES} */ (word)]);
  const name = titleText(trace.name);
  const mode = typeof trace.mode === "string" ? trace.mode : "lines";
  if (type === "heatmap") return { type, name, mode, ...readCells(trace) };
  const y = readArray(trace.y);
  const x = trace.x === undefined ? y.map((_, place) => place) : readArray(trace.x);
  return { type, name, mode, x, y, z: [] };
}

/**
 * The cells of a heat map, one by one.
 * @param {JsonObject} trace
 */
function readCells(trace) {
  const rows = Array.isArray(trace.z) ? trace.z.map(readArray) : shaped(trace.z);
  const across = trace.x === undefined ? null : readArray(trace.x);
  const down = trace.y === undefined ? null : readArray(trace.y);
  /** @type {{ x: Json[], y: Json[], z: Json[] }} */
  const found = { x: [], y: [], z: [] };
  rows.forEach((row, line) => {
    row.forEach((value, place) => {
      found.x.push(String(across ? across[place] : place));
      found.y.push(String(down ? down[line] : line));
      found.z.push(value);
    });
  });
  return found;
}

/** How plotly names the types of numbers that it packs into text. */
const PACKED = {
  f8: Float64Array,
  f4: Float32Array,
  i1: Int8Array,
  i2: Int16Array,
  i4: Int32Array,
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
};

/**
 * @param {Json} given
 * @returns {Json[]}
 */
function readArray(given) {
  if (Array.isArray(given)) return given.map(plainCell);
  const { dtype, bdata } = /** @type {JsonObject} */ (given ?? {});
  if (typeof dtype !== "string" || typeof bdata !== "string" || !Object.hasOwn(PACKED, dtype)) {
    throw new Error("This figure has no numbers where they belong.");
  }
  const data = Uint8Array.from(atob(bdata), (one) => one.charCodeAt(0));
  return [...new PACKED[/** @type {keyof typeof PACKED} */ (dtype)](data.buffer)].map(plainCell);
}

/**
 * A packed matrix as rows.
 * @param {Json} given
 */
function shaped(given) {
  const cells = readArray(given);
  const [, width] = String(/** @type {JsonObject} */ (given).shape)
    .split(",")
    .map(Number);
  if (!(width > 0) || cells.length % width) throw new Error("This figure has no numbers where they belong.");
  return Array.from({ length: cells.length / width }, (_, line) => cells.slice(line * width, (line + 1) * width));
}

/**
 * @param {Json} value
 * @returns {number | string | null}
 */
function plainCell(value) {
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  return value === null ? null : String(value).slice(0, TITLE_MAX);
}

/**
 * @param {Json} given
 * @param {Json[]} values
 * @returns {FigureAxis}
 */
function readAxis(given, values) {
  const { title, type } = /** @type {JsonObject} */ (given ?? {});
  const words = /** @type {JsonObject | null} */ (title !== null && typeof title === "object" ? title : null);
  const isOfTexts = values.some((one) => typeof one === "string");
  return {
    type: axisType(isOfTexts, type === "log"),
    title: titleText(words ? words.text : title),
    categories: isOfTexts ? [...new Set(values.map(String))] : undefined,
  };
}

/**
 * @param {boolean} isOfTexts
 * @param {boolean} isLog
 */
function axisType(isOfTexts, isLog) {
  if (isOfTexts) return "category";
  return isLog ? "log" : "value";
}

/** @param {Json | undefined} given */
const titleText = (given) => (typeof given === "string" ? given.slice(0, TITLE_MAX) : "");

/**
 * @param {RawTrace} raw
 * @param {FigureAxis} x
 * @param {FigureAxis} y
 * @returns {Trace}
 */
function makeTrace({ type, name, mode, x: across, y: up, z }, x, y) {
  /**
   * @param {Json | undefined} value
   * @param {FigureAxis} axis
   */
  const at = (value, axis) => (axis.categories ? String(value) : plainCell(value ?? null));
  const points = across.map((value, place) => {
    const point = [at(value, x), at(up[place], y)];
    return type === "heatmap" ? [...point, plainCell(z[place])] : point;
  });
  const numbers = z.filter((one) => typeof one === "number");
  const low = numbers.reduce((least, one) => Math.min(least, one), Infinity);
  const high = numbers.reduce((most, one) => Math.max(most, one), -Infinity);
  return { type, name, mode, points, low, high };
}
