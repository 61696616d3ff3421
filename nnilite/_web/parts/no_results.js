// What a chart shows where there is nothing to draw.

import { html } from "../lib/ui.js";
import { Empty } from "./layout.js";

export function NoResults() {
  return html`<div class="card"><${Empty} title="No results to draw">This chart needs trials with a final metric. Remove filters, or wait for the first trial to end.</${Empty}></div>`;
}

export const NoParameters = () =>
  html`<div class="card"><${Empty} title="No parameters to draw">The trials of this experiment have none.</${Empty}></div>`;
