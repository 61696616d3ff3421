// What a trial is to the page: one flat object, with its score and the dotted names of its parameters worked out once.

import { digits, keepDigits, readJson, setDigits, writeJson } from "./exact_json.js";

/** @import { JobState, Json, JsonObject, Trial as WireTrial, TrialState } from "./wire.d.ts" */

/** @typedef {number | string | null} FlatValue */

/**
 * @typedef {object} Derived
 * @property {Json} latest the latest intermediate result, if there is no final one (yet)
 * @property {number | null} score the number that counts
 * @property {Record<string, FlatValue>} flat parameters by their dotted names
 */

/** @typedef {Omit<WireTrial, "parameterId"> & Derived} Trial */

/** @type {TrialState[]} */
export const STATES = [
  "WAITING",
  "RUNNING",
  "SUCCEEDED",
  "FAILED",
  "EARLY_STOPPED",
  "USER_CANCELED",
  "SYS_CANCELED",
  "UNKNOWN",
];
/** @type {Record<TrialState | JobState, string>} of trials and of their attempts */
export const STATE_WORDS = {
  WAITING: "Waiting",
  RUNNING: "Running",
  SUCCEEDED: "Succeeded",
  FAILED: "Failed",
  EARLY_STOPPED: "Stopped early",
  USER_CANCELED: "Killed",
  SYS_CANCELED: "Ended by system",
  UNKNOWN: "Unknown",
  CANCELED: "Canceled",
  LOST: "Lost",
};
const LIVE = new Set(["WAITING", "RUNNING", "UNKNOWN"]);

/** @param {{ state: TrialState }} trial */
export const hasEnded = (trial) => !LIVE.has(trial.state);

/**
 * @param {unknown} value
 * @returns {value is JsonObject}
 */
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/**
 * The number that counts: the metric itself, or its `default` where it is an object.
 * @param {Json | undefined} value
 */
export function score(value) {
  const found = isObject(value) ? value.default : value;
  return typeof found === "number" && Number.isFinite(found) ? found : null;
}

/**
 * One objective of a metric; "default" is also the number itself.
 * @param {Json | undefined} value
 * @param {string} name
 */
export function objective(value, name) {
  if (name === "default") return score(value);
  const found = isObject(value) ? value[name] : undefined;
  return typeof found === "number" && Number.isFinite(found) ? found : null;
}

/**
 * How long a trial has run.
 * @param {{ started: number | null, ended: number | null }} trial
 * @param {number} now
 */
export function seconds(trial, now) {
  if (trial.started === null) return null;
  return (trial.ended ?? now) - trial.started;
}

/**
 * Dotted names; a nested choice counts by its _name, under the name of the choice itself.
 * @param {Json} parameters
 * @returns {Record<string, FlatValue>}
 */
export function flatten(parameters) {
  if (!isObject(parameters)) return { value: simple(parameters) };
  let plain = true;
  for (const name in parameters) {
    if (!isFlat(parameters[name])) plain = false;
  }
  if (plain) return /** @type {Record<string, FlatValue>} */ (parameters);
  /** @type {Record<string, FlatValue>} */
  const flat = Object.create(null); // which keeps a parameter of the name __proto__
  add(flat, "", parameters);
  return flat;
}

/**
 * @param {Record<string, FlatValue>} flat
 * @param {string} prefix
 * @param {JsonObject} parameters
 */
function add(flat, prefix, parameters) {
  for (const [name, value] of Object.entries(parameters)) {
    let key = name;
    if (prefix) key = name === "_name" ? prefix : `${prefix}.${name}`;
    if (isObject(value)) add(flat, key, value);
    else {
      flat[key] = simple(value);
      setDigits(flat, key, digits(parameters, name));
    }
  }
}

/**
 * Null and the empty text are not: they would look as if there were none.
 * @param {Json} value
 * @returns {value is number | string}
 */
const isFlat = (value) => typeof value === "number" || (typeof value === "string" && value !== "");

/** @param {Json} value */
const simple = (value) => (isFlat(value) ? value : writeJson(value));

/**
 * @template {Omit<WireTrial, "parameterId"> & { latest?: Json }} Given
 * @param {Given} given
 * @returns {Given & Derived}
 */
export function fromWire(given) {
  const read = { ...given, latest: given.latest ?? null, score: score(given.value), flat: flatten(given.parameters) };
  return keepDigits(given, read);
}

/**
 * From a row of /rows/trials.
 * @param {Json[]} row
 * @param {Record<string, number>} place of each column
 */
export function fromRow(row, place) {
  /** @type {Record<string, Json>} */
  const trial = {};
  for (const name in place) {
    trial[name] = row[place[name]];
    setDigits(trial, name, digits(row, place[name]));
  }
  for (const name of ["parameters", "value", "latest", "attributes"]) trial[name] = readable(trial[name]);
  return fromWire(/** @type {Omit<Trial, "score" | "flat">} */ (/** @type {unknown} */ (trial)));
}

/**
 * What is no JSON, since NaN or an infinity stands in it, comes as text.
 * @param {Json} value
 * @returns {Json}
 */
function readable(value) {
  if (typeof value !== "string" || !/NaN|Infinity/.test(value)) return value;
  try {
    return readJson(value.replace(/(?<![\w"])(-?Infinity|NaN)(?![\w"])/g, '"$1"'));
  } catch {
    return value;
  }
}

/**
 * @param {number} left
 * @param {number} right
 * @param {string} optimize
 */
export const isBetter = (left, right, optimize) => (optimize === "minimize" ? left < right : left > right);

/**
 * Whether a trial was stopped early with a result: mostly its latest one, from which the tuner has learned.
 * @param {Trial} trial
 */
export const isStopped = (trial) => trial.state === "EARLY_STOPPED" && resultOf(trial) !== null;

/** @param {Trial} trial */
export const resultOf = (trial) => trial.value ?? (trial.state === "EARLY_STOPPED" ? trial.latest : null);

/** @typedef {Trial & { score: number }} Scored */

/**
 * Trials that succeeded with a number of this name, which is their score here.
 * @param {Trial[]} trials
 * @param {string} name
 * @param {boolean} [stopped] whether those that were stopped early count with their latest result
 * @returns {Scored[]}
 */
export function scored(trials, name, stopped = false) {
  if (name === "default" && !stopped) {
    return trials.filter(
      /** @returns {trial is Scored} */
      (trial) => trial.score !== null && trial.state === "SUCCEEDED",
    );
  }
  return trials.flatMap((trial) => {
    const counts = trial.state === "SUCCEEDED" || (stopped && isStopped(trial));
    const score = counts ? objective(resultOf(trial), name) : null;
    return score === null ? [] : { ...trial, score };
  });
}

/**
 * The best score up to each trial of a list; null before the first one that was not stopped early and is feasible.
 * @param {Scored[]} trials
 * @param {string} optimize
 */
export function bestSoFar(trials, optimize) {
  /** @type {number | null} */
  let best = null;
  return trials.map((trial) => {
    if (!isStopped(trial) && !trial.violates && (best === null || isBetter(trial.score, best, optimize)))
      best = trial.score;
    return best;
  });
}
