// Tags and a note of a trial: shown, and changed by a dialog.

import { send } from "../lib/api.js";
import { writeChoices } from "../lib/filters.js";
import { takeRemarks, version } from "../lib/live_data.js";
import { remarksOf } from "../lib/remarks.js";
import { href } from "../lib/route.js";
import { html } from "../lib/ui.js";
import { openDialog } from "./dialog.js";
import { Icon } from "./icons.js";
import { Card } from "./layout.js";
import { RemarksForm } from "./remarks_form.js";

/** @import { TrialRemarks } from "../lib/wire.d.ts" */
/** @import { Words } from "./remarks_form.js" */

/** @param {string} trial */
function edit(trial) {
  const { tags, note, revision } = remarksOf(trial);
  /** @param {Words} words */
  const save = async (words) => {
    /** @type {TrialRemarks} */
    const kept = await send("PUT", `trials/${trial}/remarks`, { ...words, revision });
    takeRemarks(kept);
  };
  openDialog(
    () => html`<${RemarksForm} title="Tags and note" id=${`Trial ${trial}`} words=${{ tags, note }} save=${save} />`,
  );
}

/** @param {{ trial: string }} props */
export function Remarks({ trial }) {
  void version.value;
  const { tags, note } = remarksOf(trial);
  const pencil = html`<button class="small" onClick=${() => edit(trial)} aria-label="Edit tags and note"><${Icon} name="edit" />Edit</button>`;
  return html`<${Card} title="Tags and note" end=${pencil}>
    ${tags.length > 0 && html`<div class="row"><${Tags} tags=${tags} /></div>`}
    ${note && html`<p class="said">${note}</p>`}
    ${!tags.length && !note && html`<p class="soft">None yet.</p>`}
  </${Card}>`;
}

/**
 * Each is a link to the trials that have it.
 * @param {{ tags: string[] }} props
 */
export function Tags({ tags }) {
  return tags.map(
    (tag) => html`<a class="chip tag" key=${tag} href=${href("trials", { tag: writeChoices([tag]) })}>${tag}</a>`,
  );
}
