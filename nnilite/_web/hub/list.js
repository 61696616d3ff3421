// The list: search, filters, and a row for each experiment with what can be done to it.

import { ariaSort, count, plural } from "../lib/format.js";
import { keepColumns, usePreferences } from "../lib/page_preferences.js";
import { href, route, setQuery } from "../lib/route.js";
import { html, useState } from "../lib/ui.js";
import { Pick } from "../parts/chart_card.js";
import { ColumnChooser } from "../parts/column_chooser.js";
import { Icon } from "../parts/icons.js";
import { Empty, Scroll } from "../parts/layout.js";
import { SavedViews } from "../parts/saved_views.js";
import { Tick, TickAll } from "../parts/tick.js";
import { perform } from "../parts/toasts.js";
import { busy, open, remove, resume, stop } from "./actions.js";
import { allColumns, shownColumns } from "./columns.js";
import { chosen, experiments, isRunning, isViewed, title } from "./experiments.js";
import { First } from "./first.js";
import { firstRows, groups } from "./groups.js";
import { Ticked, ticked } from "./many.js";
import { editRemarks } from "./remarks.js";

/** @import { Column } from "./columns.js" */
/** @import { Experiment } from "./experiments.js" */
/** @import { Group } from "./groups.js" */

const TABLE = "experiments";
const STATES = [
  ["", "all states"],
  ["running", "running"],
  ["done", "done"],
  ["stopped", "stopped"],
  ["error", "error or damaged"],
  ["nni", "made by NNI"],
];
const PAGE = 100; // rows at first, and with each “Show more”

export function List() {
  const query = route.value.query;
  const [most, setMost] = useState(PAGE);
  usePreferences("ui", TABLE);
  if (experiments.value === null) return html`<${Empty} title="Loading …" />`;
  const all = allColumns();
  const columns = shownColumns(all, query);
  const sorting = all.find(({ key }) => key === query.get("sort"))?.key ?? "started";
  const descending = (query.get("order") ?? (isRising(all, sorting) ? "up" : "down")) === "down";
  const found = chosen(query);
  const grouped = firstRows(groups(found, sorting, descending, query.get("group") === "tag"), most);
  if (!experiments.value.length) return html`<h1 class="hidden">Experiments</h1><${First} />`;
  return html`<h1 class="hidden">Experiments</h1>
    <${Toolbar} found=${found} all=${all} columns=${columns} />
    ${
      found.length
        ? html`<${Table} grouped=${grouped} columns=${columns} sorting=${sorting} descending=${descending} isDense=${query.get("rows") === "dense"} />`
        : html`<div class="card"><${Empty} title="No experiment is like this">Remove filters to see the others.</${Empty}></div>`
    }
    ${found.length > most && html`<p class="row more"><button onClick=${() => setMost(most + PAGE)}>Show more</button><span class="soft">${count(found.length - most)} more</span></p>`}`;
}

/**
 * Whether the lowest comes first when a column is sorted by.
 * @param {Column[]} all
 * @param {string} key
 */
const isRising = (all, key) => Boolean(all.find((column) => column.key === key)?.rises);

/** @param {{ found: Experiment[], all: Column[], columns: Column[] }} props */
function Toolbar({ found, all: allOfThem, columns }) {
  const query = route.value.query;
  const all = experiments.value ?? [];
  /** @param {string[] | null} keys null: the usual ones */
  const choose = (keys) => perform(() => keepColumns(TABLE, keys));
  const tags = [...new Set(all.flatMap((one) => one.tags))].sort();
  const running = all.filter(isRunning).length;
  return html`<div class="toolbar">
    <input class="search" type="search" data-search aria-label="Find experiments" placeholder="Name, id, tag, note …" value=${query.get("find") ?? ""}
      onInput=${(event) => setQuery({ find: event.target.value })} />
    <${Pick} label="Show" value=${query.get("state") ?? ""} options=${STATES} set=${(one) => setQuery({ state: one })} />
    ${
      tags.length > 0 &&
      html`<${Pick} label="Tag" value=${query.get("tag") ?? ""} options=${[["", "any"], ...tags.map((tag) => [tag, tag])]} set=${(one) => setQuery({ tag: one })} />`
    }
    ${
      tags.length > 0 &&
      html`<${Pick} label="Group" value=${query.get("group") ?? ""} options=${[["", "none"], ["tag", "by tag"]]} set=${(one) => setQuery({ group: one })} />`
    }
    <label class="inline"><input type="checkbox" checked=${query.get("rows") === "dense"}
      onChange=${(event) => setQuery({ rows: event.target.checked ? "dense" : null })} />Dense</label>
    <${Ticked} shown=${found} />
    <div class="end">
      <${ColumnChooser} all=${allOfThem} columns=${columns} choose=${choose} />
      <${SavedViews} place="ui" />
    </div>
    <span class="soft small" role="status">${found.length === all.length ? "" : `${count(found.length)} of `}${plural(all.length, "experiment")}, ${count(running)} running</span>
  </div>`;
}

/** @param {{ grouped: Group[], columns: Column[], sorting: string, descending: boolean, isDense: boolean }} props */
function Table({ grouped, columns, sorting, descending, isDense }) {
  const ids = [...new Set(grouped.flatMap(({ rows }) => rows.map(({ id }) => id)))];
  /** @param {Column} column */
  const sort = ({ key, rises }) => {
    const isDown = key === sorting ? !descending : !rises;
    setQuery({ sort: key === "started" ? null : key, order: isDown ? "down" : "up" });
  };
  return html`<div class=${`card experiments ${isDense ? "dense" : ""}`}><${Scroll} label="Experiments"><table class="plain" role="table" aria-label="Experiments">
    <thead role="rowgroup"><tr role="row">
      <th role="columnheader" scope="col" class="pick-cell"><${TickAll} ticks=${ticked} shown=${ids} what=${`the ${plural(ids.length, "experiment")} listed`} /></th>
      ${columns.map(
        (column) => html`<th key=${column.key} role="columnheader" scope="col" class=${cellClass(column)}
          aria-sort=${ariaSort(column.key === sorting, descending)}>
          <button class="quiet small" onClick=${() => sort(column)} title=${column.label}>${column.title}${
            column.key === sorting && html`<${Icon} name=${descending ? "down" : "up"} />`
          }</button></th>`,
      )}
      <th role="columnheader" scope="col" class="act-cell"><span class="hidden">Actions</span></th>
    </tr></thead>
    ${grouped.map(
      (group) => html`<tbody role="rowgroup" key=${group.key}>
      ${
        group.title &&
        html`<tr role="row" class="group"><th role="rowheader" scope="rowgroup" colspan=${columns.length + 2}>
          ${group.title} <span class="soft">${count(group.rows.length)}</span></th></tr>`
      }
      ${group.rows.map((one) => html`<${Row} key=${one.id} one=${one} columns=${columns} shown=${ids} />`)}</tbody>`,
    )}
  </table></${Scroll}></div>`;
}

/** @param {Column} column */
const cellClass = ({ key, extra, number }) => `${extra ? "extra" : key}-cell ${number ? "number" : ""}`;

/** @param {{ one: Experiment, columns: Column[], shown: string[] }} props */
function Row({ one, columns, shown }) {
  return html`<tr role="row" data-id=${one.id}>
    <td role="cell" class="pick-cell"><${Tick} ticks=${ticked} id=${one.id} shown=${() => shown} label=${`Compare ${title(one)}`} /></td>
    ${columns.map((column) => html`<td key=${column.key} role="cell" class=${cellClass(column)} data-title=${column.title}>${column.cell(one)}</td>`)}
    <td role="cell" class="act-cell"><${Actions} one=${one} /></td>
  </tr>`;
}

/** @param {{ one: Experiment }} props */
function Actions({ one }) {
  const waits = busy.value.has(one.id);
  const isOurs = one.madeBy === "nnilite";
  const name = title(one);
  const ending = isViewed(one) ? "Close" : "Stop";
  return html`<div class="acts" aria-busy=${waits}>
    <button class="small" disabled=${waits} onClick=${() => open(one)} aria-label=${`Open ${name}`}><${Icon} name="open" />Open</button>
    ${one.canResume && html`<button class="small" disabled=${waits} onClick=${() => resume(one)} aria-label=${`Resume ${name}`}><${Icon} name="play" />Resume</button>`}
    ${
      one.canRepeat &&
      html`<a class="button small quiet" href=${href("new", { from: one.id })}
      aria-label=${`Run ${name} again with changes`} title="A new experiment from its configuration">Again …</a>`
    }
    ${
      one.alive &&
      html`<button class="small danger" disabled=${waits || one.state === "STOPPING"} onClick=${() => stop(one)}
        aria-label=${`${ending} ${name}`}><${Icon} name="kill" />${ending}</button>`
    }
    ${
      isOurs &&
      !one.damage &&
      html`<button class="small icon quiet" onClick=${() => editRemarks(one)} title="Name, tags and note"
        aria-label=${`Name, tags and note of ${name}`}><${Icon} name="edit" /></button>`
    }
    ${isOurs && !one.alive && html`<button class="small icon quiet" disabled=${waits} onClick=${() => remove(one)} aria-label=${`Delete ${name}`} title="Delete"><${Icon} name="bin" /></button>`}
  </div>`;
}
