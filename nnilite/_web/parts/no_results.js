// What a chart shows where there is nothing to draw.

import { loaded, profile } from "../lib/live_data.js";
import { html } from "../lib/ui.js";
import { Empty } from "./layout.js";

const OVER = new Set(["DONE", "ERROR", "STOPPED"]);

// Whether the experiment has ended, so that nothing more comes by itself.
const isOver = () => OVER.has(profile.value?.state ?? "");

export function NoResults() {
  return html`<div class="card"><${Empty} title="No results to draw">This chart needs trials with a final metric. ${
    isOver()
      ? "The overview says why trials have none; or remove filters."
      : "Remove filters, or wait for the first trial to end."
  }</${Empty}></div>`;
}

/** @param {{ children: string }} props what appears here with the first result */
export function NoResultYet({ children }) {
  if (!loaded.value) return html`<${Empty} title="Loading …" />`;
  return isOver()
    ? html`<${Empty} title="No result">No trial has reported a final metric. Failures and waiting, below, says why.</${Empty}>`
    : html`<${Empty} title="No result yet">${children}</${Empty}>`;
}

export function NoTrialsYet() {
  if (!loaded.value) return html`<${Empty} title="Loading trials …" />`;
  return isOver()
    ? html`<${Empty} title="No trials">The experiment ended before it had any.</${Empty}>`
    : html`<${Empty} title="No trials yet">The first ones appear here as soon as the tuner has proposed parameters.</${Empty}>`;
}

export const NoParameters = () =>
  html`<div class="card"><${Empty} title="No parameters to draw">The trials of this experiment have none.</${Empty}></div>`;
