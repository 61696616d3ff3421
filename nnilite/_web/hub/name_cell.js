// The first cell of a row: the experiment's name, which opens it, with tags, id, note and what is wrong with it.

import { html } from "../lib/ui.js";
import { busy, open } from "./actions.js";
import { title } from "./experiments.js";

/** @import { Experiment } from "./experiments.js" */

/** @param {{ one: Experiment }} props */
export function Name({ one }) {
  return html`<div class="row"><button class="link" onClick=${() => open(one)} disabled=${busy.value.has(one.id)}>${title(one)}</button>
      ${one.madeBy === "nni" && html`<span class="badge">NNI</span>`}
      ${one.tags.map((tag) => html`<span class="chip tag" key=${tag}>${tag}</span>`)}</div>
    <div class="soft small"><span class="mono">${one.id}</span>${one.platform && ` · ${one.platform}`}</div>
    ${one.note && html`<p class="small note-line" title=${one.note}>${one.note}</p>`}
    ${[one.damage, one.trouble, one.damage ? "" : one.digest?.trouble, one.state === "UNKNOWN" && one.digest?.reason].map((text) => text && html`<p class="wrong" key=${text}>${text}</p>`)}`;
}
