// The table of all trials.

import { send } from "../lib/api.js";
import { fields, filtered } from "../lib/filtered.js";
import { byOrder, fieldDigits, fieldInFull, fieldName, fieldValue } from "../lib/filters.js";
import {
  brief,
  bytes,
  clock,
  count,
  duration,
  moment,
  money,
  number,
  plural,
  shortened,
  value,
} from "../lib/format.js";
import { loaded, now, profile, trials, version } from "../lib/live_data.js";
import { isSeveral, metricNames } from "../lib/objectives.js";
import { keepColumns, readColumns, tableOf, usePreferences } from "../lib/page_preferences.js";
import { allTags, remarksOf } from "../lib/remarks.js";
import { go, href, route, setQuery } from "../lib/route.js";
import { COMPARED_MAX, selected } from "../lib/ticks.js";
import { hasEnded, score, seconds } from "../lib/trials.js";
import { html, useMemo, useState } from "../lib/ui.js";
import { processors, useOf, uses, useUses } from "../lib/uses.js";
import { ColumnChooser } from "../parts/column_chooser.js";
import { confirm } from "../parts/dialog.js";
import { FilterButton, FilterChips, FilterPanel, Search, StateFilter } from "../parts/filter_bar.js";
import { Grid } from "../parts/grid.js";
import { Icon } from "../parts/icons.js";
import { Empty } from "../parts/layout.js";
import { newTrial } from "../parts/new_trial.js";
import { NoTrialsYet } from "../parts/no_results.js";
import { csv, fileName, saveFile } from "../parts/saved_files.js";
import { SavedViews } from "../parts/saved_views.js";
import { State } from "../parts/states.js";
import { Tick, TickAll } from "../parts/tick.js";
import { perform } from "../parts/toasts.js";

/** @import { Parameter } from "../lib/filters.js" */
/** @import { FlatValue, Trial } from "../lib/trials.js" */
/** @import { TrialUsage } from "../lib/wire.d.ts" */
/** @import { Sort } from "../parts/grid.js" */

/** @typedef {import("../parts/grid.js").Column<Trial>} Column */

/** @param {Column} it what it is, for the checks */
const column = (it) => it;

function hasConstraints() {
  const limits = profile.value?.config.resultConstraints;
  return Array.isArray(limits) && limits.length > 0;
}

/**
 * All columns that can be shown, the default ones first.
 * @param {{ parameters: Parameter[], metrics: { field: string }[], attributes: { field: string }[] }} fields
 * @returns {Column[]}
 */
function allColumns({ parameters, metrics, attributes }) {
  return [
    {
      key: "sequence",
      title: "#",
      label: "Number",
      width: 68,
      number: true,
      render: (trial) => html`<span>${trial.sequence}</span>`,
    },
    {
      key: "id",
      title: "Trial",
      width: 106,
      mono: true,
      // Not by Tab, which would have to be pressed for each row: Enter opens the row.
      render: (trial) => html`<a tabindex="-1" href=${href(`trials/${trial.id}`)}>${trial.id}</a>`,
    },
    { key: "state", title: "State", width: 150, render: (trial) => html`<${State} state=${trial.state} />` },
    {
      key: "tag",
      title: "Tags",
      width: 140,
      off: allTags().length === 0,
      render: (trial) => html`<span title=${fieldValue(trial, "tag")}>${fieldValue(trial, "tag")}</span>`,
    },
    {
      key: "metric",
      title: "Metric",
      width: 112,
      number: true,
      off: !metricNames.value.includes("default") && isSeveral.value,
      render: metricCell,
    },
    {
      key: "violates",
      title: "Violates",
      width: 190,
      off: !hasConstraints(),
      render: (trial) => html`<span title=${trial.violates}>${trial.violates}</span>`,
    },
    ...metrics.map(({ field }) =>
      column({
        key: field,
        title: field.slice(2),
        width: 100,
        number: true,
        render: (trial) => html`<span title=${fieldInFull(trial, field)}>${number(fieldValue(trial, field))}</span>`,
      }),
    ),
    {
      key: "seconds",
      title: "Duration",
      width: 96,
      number: true,
      render: (trial) => html`<span>${duration(seconds(trial, now.peek()))}</span>`,
    },
    ...parameters.map(({ field, text, values }) =>
      column({
        key: field,
        title: fieldName(field),
        width: widthFor([fieldName(field), ...(text ? values.map(value) : [])]),
        number: !text,
        render: (trial) =>
          html`<span title=${fieldInFull(trial, field)}>${shortValue(fieldValue(trial, field))}</span>`,
      }),
    ),
    ...attributes.map(({ field }) =>
      column({
        key: field,
        title: fieldName(field),
        label: `Attribute ${fieldName(field)}`,
        width: 120,
        off: true,
        render: (trial) =>
          html`<span title=${fieldInFull(trial, field)}>${shortValue(fieldValue(trial, field))}</span>`,
      }),
    ),
    {
      key: "started",
      title: "Started",
      width: 130,
      render: (trial) => html`<span title=${moment(trial.started)}>${clock(trial.started)}</span>`,
    },
    {
      key: "ended",
      title: "Ended",
      width: 130,
      off: true,
      render: (trial) => html`<span title=${moment(trial.ended)}>${clock(trial.ended)}</span>`,
    },
    { key: "source", title: "Source", width: 110, off: true, render: (trial) => html`<span>${trial.source}</span>` },
    {
      key: "service",
      title: "Service",
      width: 110,
      off: (profile.value?.services.length ?? 0) < 2,
      render: (trial) => html`<span>${trial.service}</span>`,
    },
    {
      key: "cost",
      title: "Cost",
      width: 80,
      number: true,
      off: profile.value?.spent === null,
      render: (trial) => html`<span>${money(trial.cost)}</span>`,
    },
    {
      key: "attempt",
      title: "Attempts",
      width: 90,
      off: true,
      number: true,
      render: (trial) => html`<span>${trial.attempt + 1}</span>`,
    },
    {
      key: "processors",
      title: "Processors",
      label: "Processors in use",
      width: 104,
      off: true,
      number: true,
      render: (trial) => html`<span>${usedNow(trial, ({ processors: busy }) => processors(busy))}</span>`,
    },
    {
      key: "memory",
      title: "Memory",
      label: "Memory in use",
      width: 96,
      off: true,
      number: true,
      render: (trial) => html`<span>${usedNow(trial, ({ memory }) => bytes(memory))}</span>`,
    },
    {
      key: "note",
      title: "Note",
      width: 200,
      off: true,
      render: (trial) => html`<span title=${remarksOf(trial.id).note}>${remarksOf(trial.id).note}</span>`,
    },
    {
      key: "reason",
      title: "Reason",
      width: 320,
      render: (trial) => html`<span title=${trial.reason}>${brief(trial.reason)}</span>`,
    },
  ];
}

/**
 * The width of a column, in pixels, in which these texts can be read unless they are long.
 * @param {string[]} texts
 */
export function widthFor(texts) {
  return Math.min(190, Math.max(100, ...texts.map((text) => 40 + text.length * 8)));
}

/**
 * @param {Trial} trial
 * @param {(use: TrialUsage) => string} text
 */
function usedNow(trial, text) {
  const use = useOf(trial);
  return use ? text(use) : "";
}

/** @param {FlatValue} given */
const shortValue = (given) => (typeof given === "number" ? number(given, 4) : value(given));

/** @param {Trial} trial */
function metricCell(trial) {
  if (trial.score !== null) return html`<span title=${fieldInFull(trial, "metric")}>${number(trial.score)}</span>`;
  const other = trial.value === null ? "" : shortened(value(trial.value));
  if (other) return html`<span title=${other}>${other}</span>`;
  const latest = score(trial.latest);
  return latest === null ? "" : html`<span class="soft" title="latest intermediate result">${number(latest)} …</span>`;
}

const onPhone = matchMedia("(max-width: 760px)");

/**
 * What matters most comes first where only three columns are in sight.
 * @param {Column[]} all
 */
function phoneOrder(all) {
  const first = ["sequence", isSeveral.value ? `m.${metricNames.value[0]}` : "metric", "state"];
  const rest = all.filter((column) => !column.off && !first.includes(column.key));
  return [...first.flatMap((key) => all.find((column) => column.key === key) ?? []), ...rest];
}

/**
 * @param {Column[]} all
 * @param {URLSearchParams} query
 */
function shownColumns(all, query) {
  const keys = readColumns(query);
  if (!keys) return onPhone.matches ? phoneOrder(all) : all.filter((column) => !column.off);
  const byKey = new Map(all.map((column) => [column.key, column]));
  return keys.flatMap((key) => byKey.get(key) ?? []);
}

/**
 * @param {URLSearchParams} query
 * @returns {Sort}
 */
function readSort(query) {
  const text = query.get("sort") ?? "-sequence";
  return { key: text.replace(/^-/, ""), descending: text.startsWith("-") };
}

/** @param {FlatValue} value */
const isNone = (value) => value === null || value === undefined || value === "";

/**
 * @param {Trial[]} rows
 * @param {Sort} sort
 */
export function sorted(rows, { key, descending }) {
  // Always another list: the one of all trials grows, and who keeps what follows from it would not notice.
  if (key === "sequence") return descending ? [...rows].reverse() : [...rows];
  const sign = descending ? -1 : 1;
  /** @type {[FlatValue, Trial][]} */
  const keyed = rows.map((trial) => [fieldValue(trial, key), trial]);
  keyed.sort(([a], [b]) => {
    if (isNone(a) || isNone(b)) return Number(isNone(a)) - Number(isNone(b)); // last in either direction
    return byOrder(a, b) * sign;
  });
  return keyed.map(([, trial]) => trial);
}

export function Trials() {
  const [open, setOpen] = useState(false);
  const query = route.value.query;
  const sort = readSort(query);
  const all = allColumns(fields.value);
  const columns = shownColumns(all, query);
  const table = tableOf(Object.keys(profile.value?.searchSpace ?? {}));
  usePreferences(profile.value?.id, table);
  /** @param {string[] | null} keys null: the usual ones */
  const choose = (keys) => perform(() => keepColumns(table, keys));
  useUses(columns.some(({ key }) => key === "processors" || key === "memory"));
  const rows = useMemo(() => sorted(filtered.value, sort), [version.value, route.value, uses.value]);
  const ids = useMemo(() => rows.map(({ id }) => id), [rows]);
  /** @type {Column} */
  const tick = {
    key: "select",
    title: "Select",
    width: 38,
    fixed: true,
    sortable: false,
    head: html`<${TickAll} ticks=${selected} shown=${ids} what=${`the ${plural(ids.length, "trial")} shown`} />`,
    render: ({ id }) =>
      html`<${Tick} ticks=${selected} id=${id} shown=${() => ids} label=${`Select trial ${id}`} tabindex="-1" />`,
  };
  /** @param {string} key */
  const sortBy = (key) => setQuery({ sort: sort.key === key && !sort.descending ? `-${key}` : key });
  /**
   * @param {string} from
   * @param {string} to
   */
  const moveColumn = (from, to) => {
    const keys = columns.map((column) => column.key).filter((key) => key !== from);
    keys.splice(keys.indexOf(to), 0, from);
    choose(keys);
  };
  return html`
    <h1 class="hidden">Trials</h1>
    <div class="toolbar">
      <${Search} />
      <${StateFilter} />
      <div class="end">
        <${FilterButton} open=${open} setOpen=${setOpen} />
        <${ColumnChooser} all=${all} columns=${columns} choose=${choose} />
        <${SavedViews} place=${profile.value?.id ?? ""} />
        <button onClick=${() => saveRows(rows, columns)} title="Save these rows as CSV"><${Icon} name="download" />CSV</button>
        <button class="primary" disabled=${profile.value?.readOnly} onClick=${() => newTrial(null)}><${Icon} name="plus" />New trial</button>
      </div>
    </div>
    ${open && html`<${FilterPanel} close=${() => setOpen(false)} />`}
    <div class="toolbar">
      <span class="soft small" aria-live="polite">${telling(rows)}</span>
      <${FilterChips} />
      <${Actions} shown=${ids} />
    </div>
    ${
      rows.length || trials().length
        ? html`<${Grid} label="Trials" columns=${[tick, ...columns]} rows=${rows} sort=${sort} onSort=${sortBy} onMove=${moveColumn}
          selected=${selected.ids.value} onOpen=${(trial) => go(`trials/${trial.id}`)} onToggle=${(trial) => selected.toggle(trial.id)}
          onAll=${() => selected.set(ids, true)} />`
        : html`<div class="card"><${NoTrialsYet} /></div>`
    }
    ${rows.length === 0 && trials().length > 0 && html`<${Empty} title="No matching trials">Remove a filter, or search for something else.</${Empty}>`}
  `;
}

/** @param {Trial[]} rows */
function telling(rows) {
  const all = trials().length;
  const what = rows.length === all ? plural(all, "trial") : `${count(rows.length)} of ${plural(all, "trial")}`;
  return loaded.value ? what : `${what}, loading …`;
}

/**
 * @param {Trial[]} rows
 * @param {Column[]} columns
 */
function saveRows(rows, columns) {
  const keys = columns.map((column) => column.key);
  /**
   * @param {Trial} trial
   * @param {string} key
   */
  const cell = (trial, key) => {
    const found = key === "metric" ? trial.value : fieldValue(trial, key);
    const text = typeof found === "number" ? fieldDigits(trial, key) : undefined;
    return text === undefined ? found : BigInt(text);
  };
  const data = rows.map((trial) => keys.map((key) => cell(trial, key)));
  saveFile(
    fileName("trials.csv"),
    csv(
      keys.map((key) => key.replace(/^[apm]\./, "")),
      data,
    ),
    "text/csv",
  );
}

/**
 * What can be done with the selected trials, also with those that the filters hide.
 * @param {{ shown: string[] }} props
 */
function Actions({ shown }) {
  const all = selected.ids.value;
  if (!all.size) return null;
  const inSight = shown.filter((id) => all.has(id));
  const hidden = all.size - inSight.length;
  const compared = [...new Set([...inSight, ...all])].slice(0, COMPARED_MAX);
  const known = trials().filter((trial) => all.has(trial.id));
  const live = known.filter((trial) => !hasEnded(trial));
  const ended = known.filter(hasEnded);
  const fixed = profile.value?.readOnly;
  const kill = () =>
    confirm({
      title: `Kill ${plural(live.length, "trial")}?`,
      text: "Their reported results are kept.",
      yes: "Kill",
      danger: true,
      act: () =>
        perform(
          () => Promise.all(live.map((trial) => send("DELETE", `trials/${trial.id}`))),
          `${plural(live.length, "trial")} being killed.`,
        ),
    });
  const rerun = () =>
    perform(
      () => send("POST", "trials/rerun", { ids: ended.map((trial) => trial.id) }),
      `${plural(ended.length, "trial")} will run again.`,
    );
  const again = () =>
    ended.length <= COMPARED_MAX
      ? rerun()
      : confirm({
          title: `Run ${plural(ended.length, "trial")} again?`,
          text: "Each gets another attempt with the same parameters. Its result will replace the one before.",
          yes: "Run them",
          act: rerun,
        });
  return html`<div class="row" style=${{ marginLeft: "auto" }}>
    <span class="small" role="status">${count(all.size)} selected${hidden > 0 && `, ${count(hidden)} of them hidden by filters`}</span>
    <a class="button" href=${href("charts/compare", { ids: compared.join(",") })}
      title=${all.size > COMPARED_MAX ? `In the order of the table; ${COMPARED_MAX} trials can be compared at once` : undefined}>
      ${all.size > COMPARED_MAX ? `Compare the first ${COMPARED_MAX}` : "Compare"}</a>
    ${live.length > 0 && html`<button class="danger" disabled=${fixed} onClick=${kill}><${Icon} name="kill" />Kill ${count(live.length)}</button>`}
    ${ended.length > 0 && html`<button disabled=${fixed} onClick=${again}><${Icon} name="retry" />Run ${count(ended.length)} again</button>`}
    <button class="quiet" onClick=${() => selected.clear()}>Clear</button>
  </div>`;
}
