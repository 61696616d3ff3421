// The trials in groups: by a choice, a tag, an attribute, a service. What each group has come to, the best first.

import { fields, titleOf } from "../lib/filtered.js";
import { fieldName, fieldValue, filterQuery, writeChoices } from "../lib/filters.js";
import { count, duration, number } from "../lib/format.js";
import { now, version } from "../lib/live_data.js";
import { askedMetric, goalOf, metricWord } from "../lib/objectives.js";
import { remarksOf } from "../lib/remarks.js";
import { href, route, setQuery } from "../lib/route.js";
import { scored, seconds } from "../lib/trials.js";
import { html, useMemo } from "../lib/ui.js";
import { Save } from "../parts/chart.js";
import { MetricPick, Pick } from "../parts/chart_card.js";
import { Card, Empty, Scroll } from "../parts/layout.js";

/** @import { Scored, Trial } from "../lib/trials.js" */

const GROUPS_MAX = 50;

/**
 * @typedef {object} Group
 * @property {string} value
 * @property {Trial[]} trials
 * @property {Scored[]} results of those that are feasible, the best first
 */

/** @param {{ rows: Trial[] }} props */
export default function Groups({ rows }) {
  const name = askedMetric();
  const able = useMemo(() => ableFields(rows), [rows, version.value]);
  const asked = route.value.query.get("by");
  const by = able.find((field) => field === asked) ?? able[0];
  const found = useMemo(() => (by ? groupsOf(rows, by, name) : []), [rows, by, name, version.value]);
  if (!by) {
    return html`<div class="card"><${Empty} title="Nothing to group by">
      Trials are grouped by a choice of the search space, a tag, an attribute or a service, where there are two to ${GROUPS_MAX} of them.</${Empty}></div>`;
  }
  const title = fieldTitle(by);
  const options = able.map((field) => [field, fieldTitle(field)]);
  const data = () => ({
    header: [fieldName(by), ...HEADS],
    rows: found.map((group) => [group.value, ...figures(group)]),
  });
  const controls = html`<${Pick} label="by" value=${by} options=${options} set=${(/** @type {string} */ field) => setQuery({ by: field })} />
    <${MetricPick} value=${name} /><${Save} name="groups" data=${data} />`;
  return html`<${Card} title="Groups of trials" end=${controls}>
    <${Scroll} label="Groups of trials"><table class="plain">
      <thead><tr><th scope="col">${title}</th>${HEADS.map((head) => html`<th key=${head} scope="col" class="number">${head.replace("metric", metricWord(name))}</th>`)}</tr></thead>
      <tbody>${found.map(
        (group) => html`<tr key=${group.value}>
        <td style=${{ minWidth: "110px" }}><${GroupLink} field=${by} value=${group.value} /></td>${shownFigures(
          group,
        ).map((text, place) => html`<td key=${HEADS[place]} class="tight number">${text}</td>`)}</tr>`,
      )}</tbody>
    </table></${Scroll}>
    <p class="soft small">Best and median are of succeeded trials${rows.some((trial) => trial.violates) ? " that violate no constraint" : ""}${
      goalOf(name) ? "" : "; this number is no objective, so its highest counts as the best"
    }.</p>
  </${Card}>`;
}

const HEADS = ["best metric", "median metric", "trials", "succeeded", "failed", "stopped early", "median duration"];

/** @param {string} field */
const fieldTitle = (field) => ({ tag: "tag", service: "service" })[field] ?? titleOf(field);

/**
 * What stands for a trial in a grouping: one value, or each of its tags.
 * @param {Trial} trial
 * @param {string} field
 * @returns {string[]}
 */
function valuesOf(trial, field) {
  if (field === "tag") return remarksOf(trial.id).tags;
  const value = fieldValue(trial, field);
  return value === null || value === "" ? [] : [String(value)];
}

/**
 * The fields that divide the trials into some groups.
 * @param {Trial[]} rows
 */
function ableFields(rows) {
  const { parameters, attributes } = fields.value;
  const choices = parameters.filter(({ text }) => text).map(({ field }) => field);
  const all = [...choices, "tag", "service", ...attributes.map(({ field }) => field)];
  return all.filter((field) => {
    const values = new Set();
    for (const trial of rows) {
      for (const value of valuesOf(trial, field)) values.add(value);
      if (values.size > GROUPS_MAX) return false;
    }
    return values.size > (field === "tag" ? 0 : 1);
  });
}

/**
 * @param {Trial[]} rows
 * @param {string} field
 * @param {string} name of the metric
 */
export function groupsOf(rows, field, name) {
  const sign = goalOf(name) === "minimize" ? 1 : -1;
  /** @type {Map<string, Trial[]>} */
  const found = new Map();
  for (const trial of rows) {
    for (const value of valuesOf(trial, field)) {
      const known = found.get(value);
      if (known) known.push(trial);
      else found.set(value, [trial]);
    }
  }
  /** @type {Group[]} */
  const groups = [...found].map(([value, trials]) => ({
    value,
    trials,
    results: scored(trials, name)
      .filter(({ violates }) => !violates)
      .sort((a, b) => (a.score - b.score) * sign),
  }));
  /** @param {Group} group */
  const worth = ({ results }) => (results.length ? results[0].score * sign : Infinity);
  return groups.sort((a, b) => worth(a) - worth(b) || a.value.localeCompare(b.value));
}

/** @param {Group} group @returns {(number | null)[]} */
export function figures({ trials, results }) {
  const spent = trials
    .flatMap((trial) => (trial.ended === null ? [] : (seconds(trial, now.peek()) ?? [])))
    .sort((a, b) => a - b);
  const inState = (/** @type {string} */ state) => trials.filter((trial) => trial.state === state).length;
  return [
    results[0]?.score ?? null,
    middle(results.map(({ score }) => score)),
    trials.length,
    inState("SUCCEEDED"),
    inState("FAILED"),
    inState("EARLY_STOPPED"),
    middle(spent),
  ];
}

/** @param {number[]} values in order */
function middle(values) {
  const half = values.length / 2;
  if (!values.length) return null;
  return Number.isInteger(half) ? (values[half - 1] + values[half]) / 2 : values[Math.floor(half)];
}

/** @param {Group} group */
function shownFigures(group) {
  const [best, median, trials, succeeded, failed, stopped, spent] = figures(group);
  const counts = [trials, succeeded, failed, stopped].map((one) => count(one ?? 0));
  return [number(best), number(median), ...counts, duration(spent)];
}

/** @param {{ field: string, value: string }} props */
function GroupLink({ field, value }) {
  if (field === "service") return value;
  const query = filterQuery(route.value.query);
  query.set(field, writeChoices([value]));
  return html`<a href=${href("trials", query)}>${value}</a>`;
}
