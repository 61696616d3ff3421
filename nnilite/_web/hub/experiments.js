// All experiments of this machine, asked for again and again while the page is looked at.

import { ApiError, get, RESTARTED } from "../lib/api.js";
import { isTyping, signInTrouble } from "../lib/session.js";
import { flatten } from "../lib/trials.js";
import { signal } from "../lib/ui.js";

/** @import { FlatValue } from "../lib/trials.js" */
/** @import { Json } from "../lib/wire.d.ts" */
/** @import { Signal } from "../vendor/signals.js" */

/**
 * What the list tells of an experiment's trials. `best` is as it was reported: a number, or numbers by name.
 * @typedef {object} Digest
 * @property {Record<string, number>} counts trials by state
 * @property {number | null} maxTrials
 * @property {Json} best
 * @property {Json} parameters of the best trial; null if there is none, or they are long
 * @property {Record<string, string>} objectives maximize or minimize, by the name of a number
 * @property {number} duration seconds
 * @property {string} reason
 * @property {string} trouble
 */

/**
 * Times are seconds since the epoch.
 * @typedef {object} Experiment
 * @property {string} id
 * @property {string} name
 * @property {string} state UNKNOWN: its manager has died
 * @property {boolean} alive whether it has a manager, which may be a viewer
 * @property {string} platform
 * @property {number | null} started
 * @property {number | null} ended
 * @property {string} directory
 * @property {"nni" | "nnilite"} madeBy
 * @property {string} damage
 * @property {boolean} canResume whether a manager may go on with it now
 * @property {boolean} canRepeat whether another one can be started from its configuration
 * @property {string[]} tags
 * @property {string} note
 * @property {number} revision of name, tags and note
 * @property {string} trouble why these cannot be read
 * @property {Digest | null} digest null: not read yet
 */

const AGAIN_MS = 2500;

/** @type {Signal<Experiment[] | null>} */
export const experiments = signal(null);

/**
 * `missing`: the server does not answer.
 * @type {Signal<"connecting" | "live" | "missing" | "signed-out">}
 */
export const connection = signal(/** @type {"connecting" | "live" | "missing" | "signed-out"} */ ("connecting"));

let timer = 0;

// Ask now, and from then on again and again.
export async function refresh() {
  clearTimeout(timer);
  try {
    /** @type {{ experiments: Experiment[] }} */
    const answer = await get("experiments");
    if (!Array.isArray(answer.experiments)) throw new ApiError(0, "This answer is not from the page's server.");
    experiments.value = answer.experiments;
    connection.value = "live";
  } catch (error) {
    const status = error instanceof ApiError ? error.status : 0;
    const isRestarted = status === RESTARTED;
    if (isRestarted && !signInTrouble() && !isTyping()) location.reload(); // it sends the page on to its new name
    connection.value = status === 401 || (isRestarted && signInTrouble()) ? "signed-out" : "missing";
  }
  clearTimeout(timer);
  timer = setTimeout(refresh, AGAIN_MS);
}

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") refresh();
  else clearTimeout(timer);
});

/** @param {Experiment} one */
export const title = (one) => one.name || one.id;

/** @param {Experiment} one */
export const isViewed = (one) => one.alive && one.state === "VIEWED";

/** @param {Digest} digest */
export const trialCount = (digest) => Object.values(digest.counts).reduce((sum, count) => sum + count, 0);

/**
 * The best number in an objective; null if there is none.
 * @param {Json} best
 * @param {string} name
 */
export function bestIn(best, name) {
  const found = best !== null && typeof best === "object" && !Array.isArray(best) ? best[name] : best;
  return typeof found === "number" ? found : null;
}

/**
 * The objective in which the best trial is the best.
 * @param {Digest} digest
 */
export const mainObjective = ({ objectives }) =>
  "default" in objectives ? "default" : (Object.keys(objectives)[0] ?? "default");

/**
 * Whether its results have no number that makes one trial the best.
 * @param {Digest} digest
 */
export const hasFront = ({ best, counts, objectives }) =>
  best === null && Object.keys(objectives).length > 1 && (counts.SUCCEEDED ?? 0) > 0;

/** @type {WeakMap<Digest, Record<string, FlatValue>>} */
const flattened = new WeakMap();

/**
 * The parameters of the best trial by their dotted names; none where there is no such trial, or they are too long.
 * @param {Experiment} one
 */
export function parametersOf({ digest }) {
  if (!digest || digest.parameters === null) return {};
  const found = flattened.get(digest) ?? flatten(digest.parameters);
  flattened.set(digest, found);
  return found;
}

/**
 * @param {Experiment} one
 * @param {string} column
 * @returns {string | number | null}
 */
function sortValue(one, column) {
  if (column === "name") return title(one).toLowerCase();
  if (column === "state") return `${one.alive ? 0 : 1}${one.state}`;
  if (column === "started" || column === "ended" || column === "platform") return one[column];
  if (one.digest === null) return null;
  if (column === "ran") return one.digest.duration;
  if (column === "trials") return trialCount(one.digest);
  if (column.startsWith("p.")) return parametersOf(one)[column.slice(2)] ?? null;
  return bestIn(one.digest.best, mainObjective(one.digest));
}

/**
 * Sorted by a column; what has no value there comes last.
 * @param {Experiment[]} all
 * @param {string} column
 * @param {boolean} descending
 */
export function sorted(all, column, descending) {
  const keyed = all.map((one) => ({ one, key: sortValue(one, column) }));
  keyed.sort((a, b) => {
    if (a.key === null || b.key === null) return Number(a.key === null) - Number(b.key === null);
    if (a.key === b.key) return 0;
    const isLess = typeof a.key === typeof b.key ? a.key < b.key : typeof a.key === "number";
    return (isLess ? -1 : 1) * (descending ? -1 : 1);
  });
  return keyed.map(({ one }) => one);
}

/**
 * Whether the experiment has trials to run: one that is done or has failed still has its manager.
 * @param {Experiment} one
 */
export const isRunning = (one) => one.alive && one.state !== "DONE" && one.state !== "ERROR" && !isViewed(one);

/** @type {Record<string, (one: Experiment) => boolean>} */
const GROUPS = {
  running: isRunning,
  done: (one) => one.state === "DONE",
  stopped: (one) => one.state === "STOPPED" || one.state === "UNKNOWN" || isViewed(one),
  error: (one) => one.state === "ERROR" || one.damage !== "",
  nni: (one) => one.madeBy === "nni",
};

/** @param {URLSearchParams} query */
export function chosen(query) {
  const words = (query.get("find") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const inGroup = GROUPS[query.get("state") ?? ""] ?? (() => true);
  const tag = query.get("tag");
  return (experiments.value ?? []).filter((one) => {
    const text = [one.id, one.name, one.platform, one.note, one.madeBy, ...one.tags].join("\n").toLowerCase();
    return inGroup(one) && (!tag || one.tags.includes(tag)) && words.every((word) => text.includes(word));
  });
}
