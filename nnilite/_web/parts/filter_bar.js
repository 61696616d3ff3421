// The bar by which one chooses trials. It writes to the address, from which the views read.

import { fields, filters, stateCounts } from "../lib/filtered.js";
import { fieldName, readChoices, writeChoices, writeRange } from "../lib/filters.js";
import { count, number } from "../lib/format.js";
import { version } from "../lib/live_data.js";
import { allTags } from "../lib/remarks.js";
import { route, setQuery } from "../lib/route.js";
import { STATE_WORDS, STATES } from "../lib/trials.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/ui.js";
import { Icon } from "./icons.js";

/** @import { Parameter } from "../lib/filters.js" */
/** @import { FlatValue } from "../lib/trials.js" */
/** @import { TrialState } from "../lib/wire.d.ts" */

export function StateFilter() {
  const shown = filters.value.states;
  /** @param {TrialState} state */
  const toggle = (state) => {
    const next = new Set(shown);
    if (!next.delete(state)) next.add(state);
    setQuery({ state: [...next].join(",") });
  };
  return html`<div class="state-filter" role="group" aria-label="Filter by state">
    ${STATES.filter((state) => stateCounts.value[state] || shown.has(state)).map(
      (state) => html`
      <button key=${state} data-state=${state} aria-pressed=${shown.has(state) ? "true" : "false"}
        onClick=${() => toggle(state)}><i class="dot" aria-hidden="true" />${STATE_WORDS[state]}
        <span class="soft">${count(stateCounts.value[state])}</span></button>`,
    )}
  </div>`;
}

// A search field that writes to the address a moment after the last key.
export function Search() {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const timer = useRef(0);
  const text = route.value.query.get("q") ?? "";
  useEffect(() => {
    if (input.current && document.activeElement !== input.current) input.current.value = text;
  }, [text]);
  useLayoutEffect(() => () => clearTimeout(timer.current), []);
  const type = () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ q: input.current?.value.trim() }), 120);
  };
  return html`<input class="search" type="search" placeholder="Find by id, #number, tag, words" aria-label="Find trials"
    data-search="" ref=${input} defaultValue=${text} onInput=${type} />`;
}

/** @param {{ open: boolean, setOpen: (open: boolean) => void }} props */
export function FilterButton({ open, setOpen }) {
  const { ranges, choices } = filters.value;
  const active = ranges.length + choices.length;
  /** @param {KeyboardEvent} event */
  const onKey = ({ key }) => key === "Escape" && setOpen(false);
  return html`<button aria-expanded=${open ? "true" : "false"} aria-pressed=${active ? "true" : "false"}
    aria-controls="filters" onKeyDown=${onKey} onClick=${() => setOpen(!open)}><${Icon} name="filter" />Filters${active ? ` (${active})` : ""}</button>`;
}

/** @param {{ close: () => void }} props */
export function FilterPanel({ close }) {
  void version.value;
  /** @param {KeyboardEvent} event */
  const onKey = ({ key }) => {
    if (key !== "Escape") return;
    close();
    /** @type {HTMLElement | null} */ (document.querySelector("[aria-controls=filters]"))?.focus();
  };
  const { parameters, metrics } = fields.value;
  const tags = allTags();
  /** @type {Partial<Parameter>[]} */
  const tagged = tags.length ? [{ field: "tag", text: true, values: tags }] : [];
  /** @type {Partial<Parameter>[]} */
  const all = [...tagged, { field: "metric" }, ...metrics, { field: "seconds" }, ...parameters];
  return html`<div class="card filters" id="filters" onKeyDown=${onKey}>
    ${all.map((field) =>
      field.text
        ? html`<${ChoiceFilter} key=${field.field} ...${field} />`
        : html`<${RangeFilter} key=${field.field} ...${field} />`,
    )}
  </div>`;
}

/** @param {{ field: string, low?: number, high?: number }} props */
function RangeFilter({ field, low, high }) {
  const [from = "", to = ""] = (route.value.query.get(field) ?? "..").split("..");
  const [wrong, setWrong] = useState(false);
  /** @param {[string, string]} bounds */
  const change = (bounds) => {
    const bad = bounds.some((text) => text !== "" && Number.isNaN(Number(text)));
    setWrong(bad);
    if (!bad) setQuery({ [field]: writeRange(...bounds) });
    return !bad;
  };
  const name = fieldName(field);
  return html`<fieldset>
    <legend>${name}</legend>
    <div class="range">
      <${Bound} label=${`${name} from`} text=${from} hint=${low === undefined ? "from" : number(low)} wrong=${wrong}
        change=${(/** @type {string} */ text) => change([text, to])} />
      <span class="soft">to</span>
      <${Bound} label=${`${name} to`} text=${to} hint=${high === undefined ? "to" : number(high)} wrong=${wrong}
        change=${(/** @type {string} */ text) => change([from, text])} />
    </div>
    ${wrong && html`<span class="wrong">Enter a number, such as 0.1 or 1e-3.</span>`}
  </fieldset>`;
}

// The panel is drawn anew with each trial that ends, so what is being typed has to be kept.
/** @param {{ label: string, text: string, hint: string, wrong: boolean, change: (text: string) => boolean }} props */
function Bound({ label, text, hint, wrong, change }) {
  const [typed, setTyped] = useState(/** @type {string | null} */ (null));
  /** @param {string} given */
  const take = (given) => {
    if (change(given.trim())) setTyped(null);
  };
  return html`<input inputmode="decimal" aria-label=${label} aria-invalid=${wrong} placeholder=${hint} value=${typed ?? text}
    onInput=${(event) => setTyped(event.target.value)} onChange=${(event) => take(event.target.value)} />`;
}

/** @param {{ field: string, values: FlatValue[] }} props */
function ChoiceFilter({ field, values }) {
  const text = route.value.query.get(field) ?? "";
  const accepted = new Set(text.startsWith("in:") ? readChoices(text) : []);
  /** @param {string} value */
  const toggle = (value) => {
    const next = new Set(accepted);
    if (!next.delete(value)) next.add(value);
    setQuery({ [field]: writeChoices([...next]) });
  };
  return html`<fieldset>
    <legend>${fieldName(field)}</legend>
    <div class="choices">
      ${values.map(String).map(
        (value) => html`<label class="inline" key=${value}><input type="checkbox"
        checked=${accepted.has(value)} onChange=${() => toggle(value)} />${value}</label>`,
      )}
    </div>
  </fieldset>`;
}

// What is filtered by, each with a button that takes it away.
export function FilterChips() {
  const { ranges, choices } = filters.value;
  if (!ranges.length && !choices.length) return null;
  const chips = [
    ...ranges.map(({ field, low, high }) => [field, `${fieldName(field)}: ${low ?? "…"} to ${high ?? "…"}`]),
    ...choices.map(({ field, values }) => [field, `${fieldName(field)}: ${[...values].join(", ")}`]),
  ];
  const clear = () => setQuery(Object.fromEntries(chips.map(([field]) => [field, null])));
  return html`<div class="row">
    ${chips.map(
      ([field, text]) => html`<span class="chip" key=${field}>${text}<button aria-label=${`Remove filter ${text}`}
      onClick=${() => setQuery({ [field]: null })}><${Icon} name="close" /></button></span>`,
    )}
    <button class="quiet small" onClick=${clear}>Clear all</button>
  </div>`;
}
