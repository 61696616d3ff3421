// What the processes of a running trial use now.

import { bytes } from "../lib/format.js";
import { version } from "../lib/live_data.js";
import { html } from "../lib/ui.js";
import { gpuText, processors, useOf, useUses } from "../lib/uses.js";
import { Card } from "./layout.js";
import { Time } from "./states.js";

/** @import { Trial } from "../lib/trials.js" */

/**
 * Nothing is shown of a trial that does not run, or of which nothing is known (yet).
 * @param {{ trial: Trial }} props
 */
export function TrialUsage({ trial }) {
  void version.value; // a trial is changed in place
  useUses(trial.state === "RUNNING");
  const use = useOf(trial);
  if (!use) return null;
  return html`<${Card} title="In use now" end=${html`<span class="soft small"><${Time} at=${use.time} /></span>`}>
    <dl class="facts">
      <dt>Processors</dt><dd>${processors(use.processors)}</dd>
      <dt>Memory</dt><dd>${bytes(use.memory)}</dd>
      ${use.gpus.length > 0 && html`<dt>GPUs</dt><dd>${use.gpus.map((one) => html`<div key=${one.index}>${gpuText(one)}</div>`)}</dd>`}
    </dl>
  </${Card}>`;
}
