// The columns of the list: what stands in each, and by what it is sorted.

import { count, duration, exact, moment, number, value } from "../lib/format.js";
import { readColumns } from "../lib/page_preferences.js";
import { html } from "../lib/ui.js";
import { ExperimentState, Time } from "../parts/states.js";
import { bestIn, experiments, hasFront, parametersOf, trialCount } from "./experiments.js";
import { Name } from "./name_cell.js";

/** @import { FlatValue } from "../lib/trials.js" */
/** @import { ComponentChildren } from "../vendor/preact.js" */
/** @import { Digest, Experiment } from "./experiments.js" */

/**
 * @typedef {object} Column
 * @property {string} key
 * @property {string} title
 * @property {string} [label] its name in the list of columns, where the title says too little
 * @property {boolean} [off] whether it is hidden unless asked for
 * @property {boolean} [fixed] whether it is always there, in its place
 * @property {boolean} [number] whether it is set in figures, to the right
 * @property {boolean} [extra] whether it has no place of its own on a phone
 * @property {boolean} [rises] whether the lowest comes first when it is sorted by
 * @property {(one: Experiment) => ComponentChildren} cell
 */

/** @type {Column[]} */
const FIXED = [
  { key: "name", title: "Experiment", fixed: true, rises: true, cell: (one) => html`<${Name} one=${one} />` },
  { key: "state", title: "State", rises: true, cell: ({ state }) => html`<${ExperimentState} state=${state} />` },
  {
    key: "trials",
    title: "Trials",
    cell: ({ digest }) => (digest ? html`<${Trials} digest=${digest} />` : html`<span class="soft">…</span>`),
  },
  { key: "best", title: "Best", cell: ({ digest }) => digest && html`<${Best} digest=${digest} />` },
  { key: "started", title: "Started", cell: (one) => html`<${Started} one=${one} />` },
  { key: "ended", title: "Ended", off: true, extra: true, cell: ({ ended }) => html`<${Time} at=${ended} />` },
  { key: "ran", title: "Ran", off: true, extra: true, number: true, cell: ran },
  { key: "platform", title: "Platform", off: true, extra: true, rises: true, cell: ({ platform }) => platform },
];
const PARAMETERS_MAX = 100;

/** @param {Experiment} one */
function ran({ digest }) {
  return digest && digest.duration > 0 ? duration(digest.duration) : "";
}

/** All columns that can be shown: those of every list, and the parameters of the best trials. */
export function allColumns() {
  /** @type {Map<string, boolean>} whether all values are numbers, by the parameter's name */
  const found = new Map();
  for (const one of experiments.value ?? []) {
    for (const [name, given] of Object.entries(parametersOf(one)))
      found.set(name, (found.get(name) ?? true) && typeof given === "number");
  }
  const names = [...found.keys()].sort().slice(0, PARAMETERS_MAX);
  return [...FIXED, ...names.map((name) => parameterColumn(name, found.get(name) ?? false))];
}

/**
 * @param {string} name
 * @param {boolean} isNumber
 * @returns {Column}
 */
const parameterColumn = (name, isNumber) => ({
  key: `p.${name}`,
  title: name,
  label: `${name} of the best trial`,
  off: true,
  extra: true,
  rises: true,
  number: isNumber,
  cell: (one) => parameterCell(parametersOf(one)[name]),
});

/** @param {FlatValue | undefined} given */
function parameterCell(given) {
  if (given === undefined) return "";
  return typeof given === "number"
    ? html`<span title=${exact(given)}>${number(given, 4)}</span>`
    : html`<span title=${value(given)}>${value(given)}</span>`;
}

/**
 * The columns that the address asks for, or the usual ones. Those that are always there come first.
 * @param {Column[]} all
 * @param {URLSearchParams} query
 */
export function shownColumns(all, query) {
  const keys = readColumns(query);
  if (!keys) return all.filter((column) => !column.off);
  const byKey = new Map(all.map((column) => [column.key, column]));
  const chosen = keys.flatMap((key) => byKey.get(key) ?? []).filter((column) => !column.fixed);
  return [...all.filter((column) => column.fixed), ...chosen];
}

/** @param {{ digest: Digest }} props */
function Trials({ digest }) {
  const failed = digest.counts.FAILED ?? 0;
  return html`<span>${count(trialCount(digest))}${digest.maxTrials !== null && html`<span class="soft"> of ${count(digest.maxTrials)}</span>`}</span>
    ${failed > 0 && html`<div class="wrong">${count(failed)} failed</div>`}`;
}

/** @param {{ digest: Digest }} props */
function Best({ digest }) {
  const goals = Object.entries(digest.objectives);
  if (hasFront(digest))
    return html`<span class="soft small">front of ${Object.keys(digest.objectives).join(", ")}</span>`;
  if (digest.best === null) return "";
  return goals.map(
    ([name, goal]) => html`<div key=${name} title=${`${goal === "maximize" ? "highest" : "lowest"} is best`}>
      ${name !== "default" && html`<span class="soft small">${name} </span>`}${number(bestIn(digest.best, name), 6)}</div>`,
  );
}

/** @param {{ one: Experiment }} props */
function Started({ one }) {
  return html`<${Time} at=${one.started} />${
    ran(one) &&
    html`<div class="soft small" title=${one.ended ? `ended ${moment(one.ended)}` : undefined}>ran ${ran(one)}</div>`
  }`;
}
