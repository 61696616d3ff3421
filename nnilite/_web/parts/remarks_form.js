// The form for what people say of something: tags, a note and, for some things, another name.

import { ApiError } from "../lib/api.js";
import { html, useState } from "../lib/ui.js";
import { closeDialog } from "./dialog.js";
import { messageOf, say } from "./toasts.js";

/** @typedef {{ name?: string, tags: string[], note: string }} Words */

/** @typedef {{ title: string, id: string, words: Words, save: (words: Words) => Promise<unknown> }} RemarksFormProps */

/**
 * Without a name in `words`, none can be given.
 * @param {RemarksFormProps} props
 */
export function RemarksForm({ title, id, words, save }) {
  const [name, setName] = useState(words.name ?? "");
  const [tags, setTags] = useState(words.tags.join(", "));
  const [note, setNote] = useState(words.note);
  const [fault, setFault] = useState({ field: "", message: "" });
  const [busy, setBusy] = useState(false);
  const isNamed = words.name !== undefined;
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    const given = tags.split(",").map((tag) => tag.trim());
    try {
      await save({ ...(isNamed && { name }), tags: given.filter(Boolean), note });
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
  const shown = [...(isNamed ? ["name"] : []), "tags", "note"];
  return html`<form class="stack" onSubmit=${submit}>
    <div><h1 id="dialog-title">${title}</h1><span class="soft small mono">${id}</span></div>
    ${isNamed && html`<label class="field"><span>Name</span><input value=${name} ...${marks("name")} onInput=${(event) => setName(event.target.value)} />${faultOf("name")}</label>`}
    <label class="field"><span>Tags, separated by commas</span><input value=${tags} ...${marks("tags")} onInput=${(event) => setTags(event.target.value)} />${faultOf("tags")}</label>
    <label class="field"><span>Note</span><textarea rows="6" value=${note} ...${marks("note")} onInput=${(event) => setNote(event.target.value)} />${faultOf("note")}</label>
    ${!shown.includes(fault.field) && fault.message && html`<p class="note bad" role="alert">${fault.message}</p>`}
    <div class="dialog-end"><button type="button" onClick=${closeDialog}>Cancel</button><button class="primary" type="submit" disabled=${busy}>Save</button></div>
  </form>`;
}
