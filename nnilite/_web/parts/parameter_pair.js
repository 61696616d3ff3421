// The two parameters that a chart is about, as the address asks or the first two that vary.

import { fields } from "../lib/filtered.js";
import { fieldName } from "../lib/filters.js";
import { route, setQuery } from "../lib/route.js";
import { html } from "../lib/ui.js";
import { Pick } from "./chart_card.js";
import { Empty } from "./layout.js";

/** @import { Parameter } from "../lib/filters.js" */

/** @returns {{ x: Parameter, y: Parameter | undefined }} y is missing where fewer than two parameters vary */
export function askedPair() {
  const query = route.value.query;
  const able = varying();
  const numeric = able.filter((field) => !field.text);
  const x = able.find(({ field }) => field === query.get("x")) ?? numeric[0] ?? able[0];
  const y = able.find(({ field }) => field === query.get("y")) ?? [...numeric, ...able].find((field) => field !== x);
  return { x, y };
}

const varying = () => fields.value.parameters.filter((field) => field.values.length > 1);

/** @param {{ x: Parameter, y: Parameter }} props */
export function PairPick({ x, y }) {
  const options = varying().map(({ field }) => [field, fieldName(field)]);
  return html`
    <${Pick} label="x" value=${x.field} options=${options} set=${(/** @type {string} */ one) => setQuery({ x: one })} />
    <${Pick} label="y" value=${y.field} options=${options} set=${(/** @type {string} */ one) => setQuery({ y: one })} />`;
}

export const NoPair = () =>
  html`<div class="card"><${Empty} title="Two parameters are needed">The trials so far have fewer than two that vary.</${Empty}></div>`;
