// Another name, tags and a note for an experiment.

import { ApiError, send } from "../lib/api.js";
import { html, useState } from "../lib/ui.js";
import { messageOf, say } from "../parts/bits.js";
import { closeDialog, openDialog } from "../parts/dialog.js";
import { refresh } from "./experiments.js";

/** @import { Experiment } from "./experiments.js" */

/** @param {Experiment} one */
export const editRemarks = (one) => openDialog(() => html`<${Form} one=${one} />`);

/** @param {{ one: Experiment }} props */
function Form({ one }) {
  const [name, setName] = useState(one.name);
  const [tags, setTags] = useState(one.tags.join(", "));
  const [note, setNote] = useState(one.note);
  const [fault, setFault] = useState({ field: "", message: "" });
  const [busy, setBusy] = useState(false);
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    const words = tags.split(",").map((tag) => tag.trim());
    const body = { name, tags: words.filter(Boolean), note, revision: one.revision };
    try {
      await send("PUT", `experiments/${encodeURIComponent(one.id)}`, body);
      await refresh();
      closeDialog();
      say("Saved.");
    } catch (error) {
      setFault({ field: (error instanceof ApiError && error.field) || "", message: messageOf(error) });
      setBusy(false);
    }
  };
  /** @param {string} field */
  const wrong = (field) => fault.message !== "" && fault.field === field;
  /** @param {string} field */
  const faultOf = (field) =>
    wrong(field) && html`<span class="wrong" id=${`wrong-${field}`} role="alert">${fault.message}</span>`;
  /** @param {string} field */
  const marks = (field) => ({
    "aria-invalid": wrong(field) ? "true" : undefined,
    "aria-describedby": wrong(field) ? `wrong-${field}` : undefined,
  });
  return html`<form class="stack" onSubmit=${submit}>
    <div><h1 id="dialog-title">Name, tags and note</h1><span class="soft small mono">${one.id}</span></div>
    <label class="field"><span>Name</span><input value=${name} ...${marks("name")} onInput=${(event) => setName(event.target.value)} />${faultOf("name")}</label>
    <label class="field"><span>Tags, with commas between them</span><input value=${tags} ...${marks("tags")} onInput=${(event) => setTags(event.target.value)} />${faultOf("tags")}</label>
    <label class="field"><span>Note</span><textarea rows="6" value=${note} ...${marks("note")} onInput=${(event) => setNote(event.target.value)} />${faultOf("note")}</label>
    ${!["name", "tags", "note"].includes(fault.field) && fault.message && html`<p class="note bad" role="alert">${fault.message}</p>`}
    <div class="dialog-end"><button type="button" onClick=${closeDialog}>Cancel</button><button class="primary" type="submit" disabled=${busy}>Save</button></div>
  </form>`;
}
