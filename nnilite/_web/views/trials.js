// The table of all trials.
import { html, useMemo, useState } from "../lib/ui.js";
import { clock, count, duration, moment, number, plural, shortened, value } from "../lib/format.js";
import { fieldName, valueOf } from "../lib/filters.js";
import { go, href, route, setQuery } from "../lib/route.js";
import { chosen, fields, filters } from "../lib/selection.js";
import { loaded, now, profile, trials, version } from "../lib/store.js";
import { hasEnded, score, seconds } from "../lib/trials.js";
import { attempt, csv, Empty, Pop, saveFile, State } from "../parts/bits.js";
import { FilterButton, FilterChips, FilterPanel, Search, StateFilter } from "../parts/filters.js";
import { Grid } from "../parts/grid.js";
import { Icon } from "../parts/icons.js";
import { confirm } from "../parts/dialog.js";
import { newTrial } from "../parts/new_trial.js";
import { send } from "../lib/api.js";
import { selected, toggle } from "../lib/chosen.js";

const COMPARE_MAX = 12;

// All columns that can be shown, the default ones first.
function allColumns({ parameters, metrics }) {
  return [
    { key: "sequence", title: "#", label: "Number", width: 68, number: true, render: (trial) => html`<span>${trial.sequence}</span>` },
    { key: "id", title: "Trial", width: 106, mono: true, render: (trial) => html`<a href=${href(`trials/${trial.id}`)}>${trial.id}</a>` },
    { key: "state", title: "State", width: 142, render: (trial) => html`<${State} state=${trial.state} />` },
    { key: "metric", title: "Metric", width: 112, number: true, render: metricCell },
    ...metrics.map(({ field }) => ({ key: field, title: field.slice(2), width: 100, number: true, render: (trial) => html`<span>${number(valueOf(trial, field))}</span>` })),
    { key: "seconds", title: "Duration", width: 96, number: true, render: (trial) => html`<span>${duration(seconds(trial, now.peek()))}</span>` },
    ...parameters.map(({ field, text }) => ({
      key: field, title: fieldName(field), width: Math.min(190, Math.max(100, 40 + fieldName(field).length * 8)),
      number: !text, render: (trial) => html`<span title=${trial.flat[field.slice(2)]}>${shortValue(trial.flat[field.slice(2)])}</span>`,
    })),
    { key: "started", title: "Started", width: 130, render: (trial) => html`<span title=${moment(trial.started)}>${clock(trial.started)}</span>` },
    { key: "ended", title: "Ended", width: 130, off: true, render: (trial) => html`<span title=${moment(trial.ended)}>${clock(trial.ended)}</span>` },
    { key: "source", title: "Source", width: 110, off: true, render: (trial) => html`<span>${trial.source}</span>` },
    { key: "attempt", title: "Attempts", width: 90, off: true, number: true, render: (trial) => html`<span>${trial.attempt + 1}</span>` },
    { key: "reason", title: "Reason", width: 320, render: (trial) => html`<span title=${trial.reason}>${trial.reason}</span>` },
  ];
}

const shortValue = (given) => (typeof given === "number" ? number(given, 4) : value(given));

function metricCell(trial) {
  if (trial.score !== null) return html`<span>${number(trial.score)}</span>`;
  const other = trial.value === null ? "" : shortened(value(trial.value));
  if (other) return html`<span title=${other}>${other}</span>`;
  const latest = score(trial.latest);
  return latest === null ? "" : html`<span class="soft" title="latest intermediate result">${number(latest)} …</span>`;
}

const onPhone = matchMedia("(max-width: 760px)");

// What matters most comes first where only three columns are in sight.
function phoneOrder(all) {
  const first = ["sequence", "metric", "state"];
  const rest = all.filter((column) => !column.off && !first.includes(column.key));
  return [...first.map((key) => all.find((column) => column.key === key)), ...rest];
}

function shownColumns(all, query) {
  const names = query.get("cols");
  if (!names) return onPhone.matches ? phoneOrder(all) : all.filter((column) => !column.off);
  const byKey = new Map(all.map((column) => [column.key, column]));
  return names.split(",").map(decodeURIComponent).map((key) => byKey.get(key)).filter(Boolean);
}

const writeColumns = (keys) => setQuery({ cols: keys.map(encodeURIComponent).join(",") });

function readSort(query) {
  const text = query.get("sort") ?? "-sequence";
  return { key: text.replace(/^-/, ""), descending: text.startsWith("-") };
}

export function sorted(rows, { key, descending }) {
  if (key === "sequence") return descending ? [...rows].reverse() : rows;
  const sign = descending ? -1 : 1;
  const keyed = rows.map((trial) => [valueOf(trial, key), trial]);
  keyed.sort(([a], [b]) => {
    const none = (a === null || a === undefined || a === "") - (b === null || b === undefined || b === "");
    if (none) return none; // what has no value comes last in either direction
    return a === b ? 0 : (a < b ? -1 : 1) * sign;
  });
  return keyed.map(([, trial]) => trial);
}

export function Trials() {
  const [open, setOpen] = useState(false);
  const query = route.value.query;
  const sort = readSort(query);
  const all = allColumns(fields.value);
  const columns = shownColumns(all, query);
  const rows = useMemo(() => sorted(chosen.value, sort), [version.value, route.value]);
  const tick = { key: "select", title: "Select", width: 38, fixed: true, sortable: false, render: (trial) => html`<input type="checkbox"
    tabindex="-1" aria-label=${`Select trial ${trial.id}`} checked=${selected.value.has(trial.id)} onChange=${() => toggle(trial.id)} />` };
  const sortBy = (key) => setQuery({ sort: sort.key === key && !sort.descending ? `-${key}` : key });
  const moveColumn = (from, to) => {
    const keys = columns.map((column) => column.key).filter((key) => key !== from);
    keys.splice(keys.indexOf(to), 0, from);
    writeColumns(keys);
  };
  return html`
    <h1 class="hidden">Trials</h1>
    <div class="toolbar">
      <${Search} />
      <${StateFilter} />
      <div class="end">
        <${FilterButton} open=${open} setOpen=${setOpen} />
        <${ColumnChooser} all=${all} columns=${columns} />
        <button onClick=${() => saveRows(rows, columns)} title="Save these rows as CSV"><${Icon} name="download" />CSV</button>
        <button class="primary" disabled=${profile.value?.readOnly} onClick=${() => newTrial(null)}><${Icon} name="plus" />New trial</button>
      </div>
    </div>
    ${open && html`<${FilterPanel} />`}
    <div class="toolbar">
      <span class="soft small" aria-live="polite">${telling(rows)}</span>
      <${FilterChips} />
      <${Actions} />
    </div>
    ${rows.length || trials().length
      ? html`<${Grid} label="Trials" columns=${[tick, ...columns]} rows=${rows} sort=${sort} onSort=${sortBy} onMove=${moveColumn}
          selected=${selected.value} onOpen=${(trial) => go(`trials/${trial.id}`)} onToggle=${(trial) => toggle(trial.id)} />`
      : html`<div class="card"><${Empty} title=${loaded.value ? "No trials yet" : "Loading trials …"}>
          ${loaded.value && "The first ones appear here as soon as the tuner has proposed parameters."}</${Empty}></div>`}
    ${rows.length === 0 && trials().length > 0 && html`<${Empty} title="No trial is like that">Take away a filter, or look for something else.</${Empty}>`}
  `;
}

function telling(rows) {
  const all = trials().length;
  const what = rows.length === all ? plural(all, "trial") : `${count(rows.length)} of ${plural(all, "trial")}`;
  return loaded.value ? what : `${what}, loading …`;
}

function saveRows(rows, columns) {
  const keys = columns.map((column) => column.key);
  const data = rows.map((trial) => keys.map((key) => (key === "metric" ? trial.value : valueOf(trial, key))));
  saveFile(`${profile.value.id}-trials.csv`, csv(keys.map((key) => key.replace(/^[pm]\./, "")), data), "text/csv");
}

function ColumnChooser({ all, columns }) {
  const shown = columns.map((column) => column.key);
  const rest = all.filter((column) => !shown.includes(column.key));
  const swap = (place, other) => {
    const keys = [...shown];
    [keys[place], keys[other]] = [keys[other], keys[place]];
    writeColumns(keys);
  };
  return html`<${Pop} label="Columns" icon="columns">
    <div class="stack" style=${{ gap: "4px" }}>
      ${columns.map((column, place) => html`<div class="row" key=${column.key} style=${{ justifyContent: "space-between", flexWrap: "nowrap" }}>
        <label class="inline"><input type="checkbox" checked onChange=${() => writeColumns(shown.filter((key) => key !== column.key))} />${column.label ?? column.title}</label>
        <span class="row" style=${{ gap: "2px", flexWrap: "nowrap" }}>
          <button class="quiet small icon" aria-label=${`Move ${column.title} to the left`} disabled=${place === 0} onClick=${() => swap(place, place - 1)}><${Icon} name="up" /></button>
          <button class="quiet small icon" aria-label=${`Move ${column.title} to the right`} disabled=${place === columns.length - 1} onClick=${() => swap(place, place + 1)}><${Icon} name="down" /></button>
        </span>
      </div>`)}
      ${rest.map((column) => html`<label class="inline" key=${column.key}><input type="checkbox" onChange=${() => writeColumns([...shown, column.key])} />${column.label ?? column.title}</label>`)}
      <button class="small" onClick=${() => setQuery({ cols: null })}>Back to the usual ones</button>
    </div>
  </${Pop}>`;
}

// What can be done with the selected trials.
function Actions() {
  const ids = [...selected.value];
  if (!ids.length) return null;
  const known = trials().filter((trial) => selected.value.has(trial.id));
  const live = known.filter((trial) => !hasEnded(trial));
  const ended = known.filter(hasEnded);
  const fixed = profile.value?.readOnly;
  const kill = () => confirm({
    title: `Kill ${plural(live.length, "trial")}?`, text: "What they have reported is kept.", yes: "Kill", danger: true,
    act: () => attempt(() => Promise.all(live.map((trial) => send("DELETE", `trials/${trial.id}`))), `${plural(live.length, "trial")} being killed.`),
  });
  const again = () => attempt(() => send("POST", "trials/rerun", { ids: ended.map((trial) => trial.id) }), `${plural(ended.length, "trial")} waiting to run again.`);
  return html`<div class="row" style=${{ marginLeft: "auto" }}>
    <span class="small">${count(ids.length)} selected</span>
    <a class="button" href=${href("charts/compare", { ids: ids.slice(0, COMPARE_MAX).join(",") })}>Compare</a>
    ${live.length > 0 && html`<button class="danger" disabled=${fixed} onClick=${kill}><${Icon} name="kill" />Kill ${live.length}</button>`}
    ${ended.length > 0 && html`<button disabled=${fixed} onClick=${again}><${Icon} name="retry" />Run ${ended.length} again</button>`}
    <button class="quiet" onClick=${() => { selected.value = new Set(); }}>Clear</button>
  </div>`;
}
