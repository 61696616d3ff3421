// The states of trials and experiments, and times.

import { clock, moment } from "../lib/format.js";
import { STATE_WORDS } from "../lib/trials.js";
import { html } from "../lib/ui.js";

/** @import { JobState, TrialState } from "../lib/wire.d.ts" */

/** @type {Record<string, string>} */
const EXPERIMENT_WORDS = {
  INITIALIZED: "Starting",
  RUNNING: "Running",
  NO_MORE_TRIAL: "Finishing",
  TUNER_NO_MORE_TRIAL: "Finishing",
  DONE: "Done",
  ERROR: "Error",
  STOPPING: "Stopping",
  STOPPED: "Stopped",
  VIEWED: "Viewed",
  UNKNOWN: "Unknown",
};

/** @param {{ state: TrialState | JobState }} props */
export function State({ state }) {
  const moving = state === "RUNNING";
  return html`<span class="badge" data-state=${state}><i class=${`dot ${moving ? "pulse" : ""}`} aria-hidden="true" />${
    STATE_WORDS[state] ?? state
  }</span>`;
}

/** @param {{ state: string }} props */
export function ExperimentState({ state }) {
  const moving = state === "RUNNING" || state === "STOPPING";
  return html`<span class="badge" data-state=${state} title=${state}><i class=${`dot ${moving ? "pulse" : ""}`}
    aria-hidden="true" />${EXPERIMENT_WORDS[state] ?? state}</span>`;
}

/**
 * A trial gives its files and artifacts any time: nothing is shown of one that no calendar has.
 * @param {{ at: number | null }} props
 */
export function Time({ at }) {
  const date = new Date((at ?? Number.NaN) * 1000);
  if (at === null || at === undefined || Number.isNaN(date.getTime())) return "";
  return html`<time datetime=${date.toISOString()} title=${moment(at)}>${clock(at)}</time>`;
}
