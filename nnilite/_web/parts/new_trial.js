// A trial with parameters of one's own, begun from the search space or from another trial.

import { send } from "../lib/api.js";
import { digits, keepDigits, readJson, setDigits, writeJson } from "../lib/exact_json.js";
import { profile } from "../lib/live_data.js";
import { go } from "../lib/route.js";
import { html, useState } from "../lib/ui.js";
import { closeDialog, openDialog } from "./dialog.js";
import { messageOf, say } from "./toasts.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { Json, JsonObject, NewTrial, Space } from "../lib/wire.d.ts" */

/** @param {Trial | null} from */
export const newTrial = (from) => openDialog(() => html`<${Form} from=${from} />`);

/**
 * @param {Json} value
 * @returns {value is JsonObject} whether it is one of the options that have parameters of their own
 */
const isOption = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && "_name" in value;

/** @param {Json} value */
const nameOf = (value) => (isOption(value) ? value._name : value);

/**
 * A value within the space to begin with.
 * @param {Space} space
 * @returns {Json}
 */
function first({ _type: type, _value: value }) {
  if (type === "choice") return isOption(value[0]) ? nested(value[0]) : value[0];
  if (type === "randint") return value[0];
  if (type.includes("normal")) return type.includes("log") ? Math.exp(value[0]) : value[0];
  if (type.includes("log")) return Number(Math.sqrt(value[0] * value[1]).toPrecision(3));
  return type.startsWith("q") ? value[0] : Number(((value[0] + value[1]) / 2).toPrecision(3));
}

/** @param {JsonObject} option */
function nested(option) {
  const inner = Object.entries(option).filter(([name]) => name !== "_name");
  return {
    _name: option._name,
    ...Object.fromEntries(inner.map(([name, space]) => [name, first(/** @type {Space} */ (space))])),
  };
}

/**
 * One sentence on a value that the space would not give; "" if it would.
 * @param {Json} value
 * @param {Space} space
 */
function outside(value, { _type: type, _value: range }) {
  if (type === "choice") {
    const known = range.map((option) => writeJson(nameOf(option)));
    return known.includes(writeJson(nameOf(value))) ? "" : `not one of ${known.join(", ")}`;
  }
  if (typeof value !== "number") return "not a number";
  if (type.includes("normal")) return "";
  const high = type === "randint" ? range[1] - 1 : range[1];
  return value < range[0] || value > high ? `outside ${range[0]} to ${high}` : "";
}

/** @param {Record<string, Space>} space */
const simpleSpace = (space) =>
  Object.values(space).every(
    ({ _type: type, _value: value }) =>
      type !== "choice" || value.every((option) => option === null || typeof option !== "object"),
  );

/** @param {Record<string, Space>} space */
function firstOf(space) {
  const values = Object.fromEntries(Object.entries(space).map(([name, one]) => [name, first(one)]));
  for (const name in values)
    if (values[name] === space[name]._value[0]) setDigits(values, name, digits(space[name]._value, 0));
  return values;
}

/**
 * @param {JsonObject} values
 * @param {string} name of the one that changes
 * @param {Json} value
 * @param {string} text as it is typed
 */
export function changed(values, name, value, text) {
  const copy = keepDigits(values, { ...values, [name]: value });
  setDigits(copy, name, typeof value === "number" ? text.trim() : undefined);
  return copy;
}

/** @param {{ from: Trial | null }} props */
function Form({ from }) {
  const space = /** @type {Record<string, Space>} */ (profile.value?.searchSpace ?? {});
  const start = /** @type {JsonObject | undefined} */ (from?.parameters) ?? firstOf(space);
  const [values, setValues] = useState(start);
  const [text, setText] = useState(/** @type {string | null} */ (simpleSpace(space) ? null : writeJson(start, 2)));
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    let parameters = values;
    if (text !== null) {
      try {
        parameters = readJson(text);
      } catch (problem) {
        setError(`This is not JSON: ${messageOf(problem)}`);
        return;
      }
    }
    setBusy(true);
    try {
      /** @type {NewTrial} */
      const trial = await send("POST", "trials", { parameters });
      closeDialog();
      say(`Trial ${trial.id} has been added to the queue.${trial.warning && ` Note: ${trial.warning}.`}`);
      go(`trials/${trial.id}`);
    } catch (problem) {
      setError(messageOf(problem));
      setBusy(false);
    }
  };
  const asText = () => setText(text === null ? writeJson(values, 2) : null);
  return html`<form class="stack" onSubmit=${submit}>
    <div class="row"><h1 id="dialog-title">New trial</h1>${from && html`<span class="soft">parameters of ${from.id}</span>`}</div>
    ${
      text === null
        ? Object.entries(values).map(
            ([
              name,
              value,
            ]) => html`<${Field} key=${name} name=${name} value=${value} text=${digits(values, name)} space=${space[name]}
          set=${(next, typed) => setValues(changed(values, name, next, typed))} />`,
          )
        : html`<label class="field"><span>Parameters (JSON)</span><textarea rows="12" spellcheck=${false} value=${text}
          onInput=${(event) => setText(event.target.value)} /></label>`
    }
    ${error && html`<p class="note bad" role="alert">${error}</p>`}
    <div class="dialog-end">
      ${simpleSpace(space) && html`<button type="button" class="quiet" onClick=${asText}>${text === null ? "Edit as JSON" : "Edit as fields"}</button>`}
      <button type="button" onClick=${closeDialog}>Cancel</button>
      <button class="primary" type="submit" disabled=${busy}>Run it</button>
    </div>
  </form>`;
}

/**
 * `text` has all digits of a large whole number.
 * @param {{ name: string, value: Json, text: string | undefined, space: Space | undefined, set: (value: Json, text: string) => void }} props
 */
function Field({ name, value, text: written, space, set }) {
  const warning = space ? outside(value, space) : "not in the search space";
  const id = `new-${name}`;
  const choice = space?._type === "choice";
  // As it is typed: "0." is the number 0 on its way to 0.05.
  const [typed, setTyped] = useState(written ?? String(value));
  /** @param {string} text */
  const type = (text) => {
    setTyped(text);
    set(text.trim() === "" || Number.isNaN(Number(text)) ? text : Number(text), text);
  };
  return html`<div class="field">
    <label for=${id} class="small soft">${name}${space && html` <span class="mono">${space._type} ${writeJson(space._value)}</span>`}</label>
    ${
      choice
        ? html`<select id=${id} value=${written ?? writeJson(value)} onChange=${(event) => set(JSON.parse(event.target.value), event.target.value)}>
          ${space._value.map((option, place) => {
            const json = digits(space._value, place) ?? writeJson(option);
            return html`<option key=${json} value=${json}>${typeof option === "string" ? option : json}</option>`;
          })}
        </select>`
        : html`<input id=${id} inputmode="decimal" value=${typed} onInput=${(event) => type(event.target.value)} />`
    }
    ${warning && html`<span class="wrong">${warning}; the trial runs nevertheless</span>`}
  </div>`;
}
