// Which trials a view is about. All of it stands in the address: state=FAILED,RUNNING  q=text  metric=0.5..
// p.lr=0.001..0.1  p.kernel=in:rbf|poly  m.loss=..2  seconds=10..
import { STATES, objective, seconds } from "./trials.js";
import { now } from "./store.js";

const KNOWN = /^(state|q|metric|seconds|[pm]\..+)$/;

// The filters of an address, to carry them to another view.
export function filterQuery(query) {
  return new URLSearchParams([...query].filter(([name]) => KNOWN.test(name)));
}

export function readFilters(query) {
  const filters = { states: new Set(), text: (query.get("q") ?? "").trim().toLowerCase(), ranges: [], choices: [] };
  for (const state of (query.get("state") ?? "").split(",")) {
    if (STATES.includes(state)) filters.states.add(state);
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

export const readChoices = (text) => text.slice(3).split("|").filter(Boolean).map(decodeURIComponent);
export const writeChoices = (values) => (values.length ? `in:${values.map(encodeURIComponent).join("|")}` : "");
export const writeRange = (low, high) => (low === "" && high === "" ? "" : `${low}..${high}`);

export function valueOf(trial, field) {
  if (field === "metric") return trial.score;
  if (field === "seconds") return seconds(trial, now.peek());
  if (field.startsWith("p.")) return trial.flat[field.slice(2)] ?? null;
  if (field.startsWith("m.")) return objective(trial.value, field.slice(2));
  return trial[field];
}

export function matcher(filters) {
  const { states, text, ranges, choices } = filters;
  return (trial) => {
    if (states.size && !states.has(trial.state)) return false;
    if (text && !found(trial, text)) return false;
    for (const { field, low, high } of ranges) {
      const value = valueOf(trial, field);
      if (typeof value !== "number" || (low !== null && value < low) || (high !== null && value > high)) return false;
    }
    for (const { field, values } of choices) {
      if (!values.has(String(valueOf(trial, field)))) return false;
    }
    return true;
  };
}

// By id, by number (#12), or by what stands in the reason.
function found(trial, text) {
  if (/^#\d+$/.test(text)) return trial.sequence === Number(text.slice(1));
  return trial.id.toLowerCase().startsWith(text) || String(trial.sequence) === text ||
    (trial.reason !== "" && trial.reason.toLowerCase().includes(text));
}

// Words for a field.
export function fieldName(field) {
  if (field === "metric") return "Metric";
  if (field === "seconds") return "Duration (s)";
  return field.slice(2);
}

const CATEGORIES_MAX = 40;

// The parameters and further metrics that occur, with their ranges or values: [{field, low, high} or {field, values}].
export function fieldsOf(trials) {
  const known = new Map();
  const metrics = new Set();
  for (const trial of trials) {
    for (const name in trial.flat) {
      let field = known.get(name);
      if (!field) known.set(name, (field = { field: `p.${name}`, low: Infinity, high: -Infinity, values: new Set() }));
      const value = trial.flat[name];
      if (typeof value === "number") {
        if (value < field.low) field.low = value;
        if (value > field.high) field.high = value;
        if (field.values.size <= CATEGORIES_MAX) field.values.add(value);
      } else if (value !== null) {
        field.text = true;
        if (field.values.size <= CATEGORIES_MAX) field.values.add(value);
      }
    }
    if (trial.value !== null && typeof trial.value === "object") {
      for (const name in trial.value) if (name !== "default") metrics.add(name);
    }
  }
  const parameters = [...known.values()].map((field) => ({
    ...field,
    values: [...field.values].sort((a, b) => (a < b ? -1 : 1)),
  }));
  return { parameters, metrics: [...metrics].map((name) => ({ field: `m.${name}` })) };
}
