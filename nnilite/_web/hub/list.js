// The list: search, filters, and a row for each experiment with what can be done to it.

import { ariaSort, count, duration, moment, number, plural } from "../lib/format.js";
import { href, route, setQuery } from "../lib/route.js";
import { html, useState } from "../lib/ui.js";
import { Pick } from "../parts/chart_card.js";
import { Icon } from "../parts/icons.js";
import { Empty } from "../parts/layout.js";
import { ExperimentState, Time } from "../parts/states.js";
import { busy, open, remove, resume, stop } from "./actions.js";
import { bestIn, chosen, experiments, isViewed, title, trialCount } from "./experiments.js";
import { First } from "./first.js";
import { firstRows, groups } from "./groups.js";
import { Ticked, ticked, toggle } from "./many.js";
import { editRemarks } from "./remarks.js";

/** @import { Column, Digest, Experiment } from "./experiments.js" */
/** @import { Group } from "./groups.js" */

const STATES = [
  ["", "all states"],
  ["running", "running"],
  ["done", "done"],
  ["stopped", "stopped"],
  ["error", "error or damaged"],
  ["nni", "made by NNI"],
];
/** @type {[Column, string][]} */
const COLUMNS = [
  ["name", "Experiment"],
  ["state", "State"],
  ["trials", "Trials"],
  ["best", "Best"],
  ["started", "Started"],
];
const PAGE = 100; // rows at first, and with each “Show more”

export function List() {
  const query = route.value.query;
  const [most, setMost] = useState(PAGE);
  if (experiments.value === null) return html`<${Empty} title="Loading …" />`;
  const column = /** @type {Column} */ (query.get("sort") ?? "started");
  const descending = (query.get("order") ?? (column === "name" || column === "state" ? "up" : "down")) === "down";
  const found = chosen(query);
  const grouped = firstRows(groups(found, column, descending, query.get("group") === "tag"), most);
  if (!experiments.value.length) return html`<h1 class="hidden">Experiments</h1><${First} />`;
  return html`<h1 class="hidden">Experiments</h1>
    <${Toolbar} found=${found} />
    ${
      found.length
        ? html`<${Table} grouped=${grouped} column=${column} descending=${descending} isDense=${query.get("rows") === "dense"} />`
        : html`<div class="card"><${Empty} title="No experiment is like this">Remove filters to see the others.</${Empty}></div>`
    }
    ${found.length > most && html`<p class="row more"><button onClick=${() => setMost(most + PAGE)}>Show more</button><span class="soft">${count(found.length - most)} more</span></p>`}`;
}

/** @param {{ found: Experiment[] }} props */
function Toolbar({ found }) {
  const query = route.value.query;
  const all = experiments.value ?? [];
  const tags = [...new Set(all.flatMap((one) => one.tags))].sort();
  const running = all.filter((one) => one.alive && !isViewed(one)).length;
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
    <${Ticked} />
    <span class="end soft small" role="status">${found.length === all.length ? "" : `${count(found.length)} of `}${plural(all.length, "experiment")}, ${count(running)} running</span>
  </div>`;
}

/** @param {{ grouped: Group[], column: Column, descending: boolean, isDense: boolean }} props */
function Table({ grouped, column, descending, isDense }) {
  /** @param {Column} name */
  const sort = (name) => {
    const isDown = name === column ? !descending : !(name === "name" || name === "state");
    setQuery({ sort: name === "started" ? null : name, order: isDown ? "down" : "up" });
  };
  return html`<div class=${`card experiments ${isDense ? "dense" : ""}`}><table class="plain" role="table" aria-label="Experiments">
    <thead role="rowgroup"><tr role="row">
      <th role="columnheader" scope="col" class="pick-cell"><span class="hidden">Tick</span></th>
      ${COLUMNS.map(
        ([name, text]) => html`<th key=${name} role="columnheader" scope="col" class=${`${name}-cell`}
          aria-sort=${ariaSort(name === column, descending)}>
          <button class="quiet small" onClick=${() => sort(name)}>${text}${name === column && html`<${Icon} name=${descending ? "down" : "up"} />`}</button></th>`,
      )}
      <th role="columnheader" scope="col" class="act-cell"><span class="hidden">Actions</span></th>
    </tr></thead>
    ${grouped.map(
      (group) => html`<tbody role="rowgroup" key=${group.key}>
      ${group.title && html`<tr role="row" class="group"><th role="rowheader" scope="rowgroup" colspan="7">${group.title} <span class="soft">${count(group.rows.length)}</span></th></tr>`}
      ${group.rows.map((one) => html`<${Row} key=${one.id} one=${one} />`)}</tbody>`,
    )}
  </table></div>`;
}

/** @param {{ one: Experiment }} props */
function Row({ one }) {
  return html`<tr role="row" data-id=${one.id}>
    <td role="cell" class="pick-cell"><input type="checkbox" aria-label=${`Compare ${title(one)}`} checked=${ticked.value.has(one.id)} onChange=${() => toggle(one.id)} /></td>
    <td role="cell" class="name-cell">
      <div class="row"><button class="link" onClick=${() => open(one)} disabled=${busy.value.has(one.id)}>${title(one)}</button>
        ${one.madeBy === "nni" && html`<span class="badge">NNI</span>`}
        ${one.tags.map((tag) => html`<span class="chip tag" key=${tag}>${tag}</span>`)}</div>
      <div class="soft small"><span class="mono">${one.id}</span>${one.platform && ` · ${one.platform}`}</div>
      ${one.note && html`<p class="small note-line" title=${one.note}>${one.note}</p>`}
      ${[one.damage, one.trouble, one.damage ? "" : one.digest?.trouble].map((text) => text && html`<p class="wrong" key=${text}>${text}</p>`)}
    </td>
    <td role="cell" class="state-cell"><${ExperimentState} state=${one.state} /></td>
    <td role="cell" class="trials-cell">${one.digest ? html`<${Trials} digest=${one.digest} />` : html`<span class="soft">…</span>`}</td>
    <td role="cell" class="best-cell">${one.digest && html`<${Best} digest=${one.digest} />`}</td>
    <td role="cell" class="started-cell"><${Time} at=${one.started} />${
      one.digest &&
      one.digest.duration > 0 &&
      html`<div class="soft small" title=${one.ended ? `ended ${moment(one.ended)}` : undefined}>ran ${duration(one.digest.duration)}</div>`
    }</td>
    <td role="cell" class="act-cell"><${Actions} one=${one} /></td>
  </tr>`;
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
  if (digest.best === null) return "";
  return goals.map(
    ([name, goal]) => html`<div key=${name} title=${`${goal === "maximize" ? "highest" : "lowest"} is best`}>
      ${name !== "default" && html`<span class="soft small">${name} </span>`}${number(bestIn(digest.best, name), 6)}</div>`,
  );
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
