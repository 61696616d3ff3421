// Which trials a view is about. All of it stands in the address: state=FAILED,RUNNING  q=text  metric=0.5..
// tag=in:good|odd  p.lr=0.001..0.1  p.kernel=in:rbf|poly  m.loss=..2  seconds=10..

import { digits, writeJson } from "./exact_json.js";
import { exact, value } from "./format.js";
import { now } from "./live_data.js";
import { remarksOf } from "./remarks.js";
import { decode } from "./route.js";
import { objective, STATES, seconds } from "./trials.js";
import { useOf } from "./uses.js";

/** @import { FlatValue, Trial } from "./trials.js" */

/** @typedef {"sequence" | "id" | "state" | "started" | "ended" | "source" | "attempt" | "reason" | "service" | "cost" | "violates"} PlainField */

/** @typedef {{ field: string, low: number | null, high: number | null }} Range */

/** @typedef {{ field: string, values: Set<string> }} Choice */

/** @typedef {{ states: Set<string>, text: string, ranges: Range[], choices: Choice[] }} Filters */

/**
 * A parameter that occurs, by its dotted name with p. in front, and the range or the values it has.
 * @typedef {object} Parameter
 * @property {string} field
 * @property {number} low
 * @property {number} high
 * @property {FlatValue[]} values
 * @property {boolean} text whether it has no numeric scale
 * @property {boolean} whole whether all its values are whole numbers
 * @property {boolean} partial whether some trials do not have it
 */

const CARRIED = /^(scale|stopped)$/; // no filters, but kept from chart to chart
const KNOWN = /^(state|q|metric|seconds|tag|[apm]\..+)$/;

/**
 * The filters of an address, to carry them to another view.
 * @param {URLSearchParams} query
 */
export function filterQuery(query) {
  return new URLSearchParams([...query].filter(([name]) => KNOWN.test(name) || CARRIED.test(name)));
}

/** @param {URLSearchParams} query */
export function readFilters(query) {
  /** @type {Filters} */
  const filters = { states: new Set(), text: (query.get("q") ?? "").trim().toLowerCase(), ranges: [], choices: [] };
  for (const state of (query.get("state") ?? "").split(",")) {
    if (STATES.some((one) => one === state)) filters.states.add(state);
  }
  for (const [field, text] of query) {
    if (!KNOWN.test(field) || field === "state" || field === "q") continue;
    if (text.startsWith("in:")) {
      filters.choices.push({ field, values: new Set(readChoices(text)) });
    } else if (text.includes("..")) {
      const [low, high] = text.split("..").map((part) => (part === "" ? null : Number(part)));
      if (!Number.isNaN(low) && !Number.isNaN(high)) filters.ranges.push({ field, low, high });
    }
  }
  return filters;
}

/** @param {string} text */
export const readChoices = (text) => text.slice(3).split("|").filter(Boolean).map(decode);
/** @param {string[]} values */
export const writeChoices = (values) => (values.length ? `in:${values.map(encodeURIComponent).join("|")}` : "");
/**
 * @param {string} low
 * @param {string} high
 */
export const writeRange = (low, high) => (low === "" && high === "" ? "" : `${low}..${high}`);

/**
 * What stands in a column of the table of trials.
 * @param {Trial} trial
 * @param {string} field
 * @returns {FlatValue}
 */
export function fieldValue(trial, field) {
  if (field === "metric") return trial.score;
  if (field === "seconds") return seconds(trial, now.peek());
  if (field === "tag") return remarksOf(trial.id).tags.join(", ");
  if (field === "note") return remarksOf(trial.id).note;
  if (field === "processors" || field === "memory") return useOf(trial)?.[field] ?? null;
  if (field.startsWith("p.")) return Object.hasOwn(trial.flat, field.slice(2)) ? trial.flat[field.slice(2)] : null;
  if (field.startsWith("a.")) return attributeValue(trial, field.slice(2));
  if (field.startsWith("m.")) return objective(trial.value, field.slice(2));
  return trial[/** @type {PlainField} */ (field)];
}

/**
 * An attribute that the trial has set, as a cell shows it.
 * @param {Trial} trial
 * @param {string} name
 * @returns {FlatValue}
 */
function attributeValue(trial, name) {
  const found = Object.hasOwn(trial.attributes, name) ? trial.attributes[name] : null;
  return found === null || typeof found === "number" || typeof found === "string" ? found : writeJson(found);
}

/**
 * All digits of a number that `fieldValue` gives, where its double lacks some.
 * @param {Trial} trial
 * @param {string} field
 */
export function fieldDigits(trial, field) {
  if (field === "metric") return digits(trial, "value") ?? digits(trial.value, "default");
  const name = field.slice(2);
  if (field.startsWith("p.")) return digits(trial.flat, name);
  if (field.startsWith("a.")) return digits(trial.attributes, name);
  if (field.startsWith("m."))
    return digits(trial.value, name) ?? (name === "default" ? digits(trial, "value") : undefined);
  return undefined;
}

/**
 * A cell in full, for a tooltip.
 * @param {Trial} trial
 * @param {string} field
 */
export function fieldInFull(trial, field) {
  const found = fieldValue(trial, field);
  return fieldDigits(trial, field) ?? (typeof found === "number" ? exact(found) : value(found));
}

/**
 * @param {Filters} filters
 * @returns {(trial: Trial) => boolean} whether they leave a trial
 */
export function matcher(filters) {
  const { states, text, ranges, choices } = filters;
  return (trial) => {
    if (states.size && !states.has(trial.state)) return false;
    if (text && !matchesText(trial, text)) return false;
    for (const { field, low, high } of ranges) {
      const value = fieldValue(trial, field);
      if (typeof value !== "number" || (low !== null && value < low) || (high !== null && value > high)) return false;
    }
    for (const { field, values } of choices) {
      const found = field === "tag" ? remarksOf(trial.id).tags : [String(fieldValue(trial, field))];
      if (!found.some((one) => values.has(one))) return false;
    }
    return true;
  };
}

/**
 * By id, by number (#12), or by what stands in the reason, the tags or the note.
 * @param {Trial} trial
 * @param {string} text
 */
function matchesText(trial, text) {
  if (/^#\d+$/.test(text)) return trial.sequence === Number(text.slice(1));
  const { tags, note } = remarksOf(trial.id);
  return (
    trial.id.toLowerCase().startsWith(text) ||
    String(trial.sequence) === text ||
    [trial.reason, note, ...tags].some((said) => said !== "" && said.toLowerCase().includes(text))
  );
}

/**
 * Words for a field.
 * @param {string} field
 */
export function fieldName(field) {
  if (field === "metric") return "Metric";
  if (field === "seconds") return "Duration (s)";
  if (field === "tag") return "Tag";
  return field.slice(2);
}

/**
 * The parameters that charts draw: those that differ, or all where none does, as with a single trial.
 * @param {Parameter[]} parameters
 */
export function drawn(parameters) {
  const differing = parameters.filter(({ values }) => values.length > 1);
  return differing.length ? differing : parameters;
}

/** @typedef {Omit<Parameter, "values" | "partial"> & { values: Set<FlatValue>, times: number }} Counted */

const CATEGORIES_MAX = 40;

/**
 * The parameters that occur with their ranges and values, the further metrics, and the attributes.
 * @param {Trial[]} trials
 */
export function fieldsOf(trials) {
  /** @type {Map<string, Counted>} */
  const known = new Map();
  /** @type {Set<string>} */
  const metrics = new Set();
  /** @type {Set<string>} */
  const attributes = new Set();
  for (const trial of trials) {
    for (const name in trial.flat) {
      let field = known.get(name);
      if (!field) {
        field = {
          field: `p.${name}`,
          low: Infinity,
          high: -Infinity,
          values: new Set(),
          text: false,
          whole: true,
          times: 0,
        };
        known.set(name, field);
      }
      field.times += 1;
      addValue(field, trial.flat[name]);
    }
    for (const name in trial.attributes) attributes.add(name);
    if (trial.value !== null && typeof trial.value === "object") {
      for (const name in trial.value) if (name !== "default") metrics.add(name);
    }
  }
  const parameters = [...known.values()].map(({ times, ...field }) => ({
    ...field,
    values: [...field.values].sort(byOrder),
    partial: times < trials.length,
  }));
  return {
    parameters,
    metrics: [...metrics].map((name) => ({ field: `m.${name}` })),
    attributes: [...attributes].map((name) => ({ field: `a.${name}` })),
  };
}

/**
 * @param {Counted} field
 * @param {FlatValue} value
 */
function addValue(field, value) {
  if (value === null) return;
  if (typeof value === "number") {
    field.low = Math.min(field.low, value);
    field.high = Math.max(field.high, value);
    if (!Number.isInteger(value)) field.whole = false;
  } else field.text = true;
  if (field.values.size <= CATEGORIES_MAX) field.values.add(value);
}

/**
 * Numbers by size, and then texts by the alphabet.
 * @param {FlatValue} a
 * @param {FlatValue} b
 */
export function byOrder(a, b) {
  if (a === b || a === null || b === null) return 0;
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return a < b ? -1 : 1;
}
