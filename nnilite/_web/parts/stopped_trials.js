// Trials that were stopped early: the tuner has learned from their latest results, so charts show these as hollow points.
// A switch in the address leaves them out.

import { trials, version } from "../lib/live_data.js";
import { route, setQuery } from "../lib/route.js";
import { isStopped, objective, resultOf } from "../lib/trials.js";
import { computed, html } from "../lib/ui.js";
import { colours } from "./chart.js";

/** @import { Trial } from "../lib/trials.js" */

export const withStopped = () => route.value.query.get("stopped") !== "hide";

const hasStopped = computed(() => {
  void version.value;
  return trials().some(isStopped);
});

/**
 * The number that a trial has come to; null for one that was stopped early and is left out.
 * @param {Trial} trial
 * @param {string} name
 */
export const reached = (trial, name) => (isStopped(trial) && !withStopped() ? null : objective(resultOf(trial), name));

/**
 * The style of a hollow point.
 * @param {string} [colour]
 */
export const hollow = (colour = colours()["series-1"]) => ({
  color: "transparent",
  borderColor: colour,
  borderWidth: 1.4,
});

// A checkbox for the charts of a view; nothing where no trial was stopped early.
export function StoppedSwitch() {
  if (!hasStopped.value) return null;
  return html`<label class="inline" title="They have no final result; their latest one counts"><input type="checkbox" checked=${withStopped()}
    onChange=${(/** @type {Event & { target: HTMLInputElement }} */ event) => setQuery({ stopped: event.target.checked ? null : "hide" })} /><span>Stopped early</span></label>`;
}
