// Several experiments over each other: the best result so far by trials or by time, and the best trial of each.

import { get } from "../lib/api.js";
import { count, duration, number, value } from "../lib/format.js";
import { usePreferences } from "../lib/page_preferences.js";
import { route, setQuery } from "../lib/route.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { axis, base, Chart, plotArea, series } from "../parts/chart.js";
import { Pick } from "../parts/chart_card.js";
import { Difference } from "../parts/difference.js";
import { Card, Empty, Scroll } from "../parts/layout.js";
import { isLog, LogScale, leftOut, resultAxis, shown } from "../parts/log_scale.js";
import { SavedViews } from "../parts/saved_views.js";
import { stairs } from "../parts/stairs.js";
import { ExperimentState } from "../parts/states.js";
import { messageOf } from "../parts/toasts.js";

/** @import { Json } from "../lib/wire.d.ts" */

/**
 * `points`: how many trials had succeeded, after how many seconds, and what was the best then.
 * @typedef {object} Compared
 * @property {string} id
 * @property {string} name
 * @property {string} state
 * @property {Json} config with the search space; secrets are hidden
 * @property {Json} ran what was recorded at its last start; null: nothing
 * @property {string} objective
 * @property {string} goal maximize or minimize
 * @property {Record<string, string>} objectives
 * @property {Record<string, number>} counts
 * @property {number} duration seconds
 * @property {[number, number, number][]} points
 * @property {{ id: string, sequence: number, parameters: Json, value: Json } | null} best
 */

/** @param {Compared} one */
const titleOf = (one) => one.name || one.id;

/**
 * @param {Compared} one
 * @param {Json} content
 */
const contentOf = (one, content) => ({ id: one.id, title: titleOf(one), content });

/**
 * What was recorded, without what trials ran with unless all say it: everything in it would differ from those that do not.
 * @param {Json[]} records
 */
function comparableRecords(records) {
  const all = /** @type {Record<string, Json>[]} */ (records);
  if (all.every((one) => "workers" in one)) return records;
  return all.map(({ workers: _, ...rest }) => rest);
}

/** What ran at the last start of each that has a record. @param {{ found: Compared[] }} props */
function Ran({ found }) {
  const recorded = found.filter(({ ran }) => ran !== null);
  const others = found.filter(({ ran }) => ran === null);
  if (found.length < 2) return null;
  const contents = comparableRecords(recorded.map(({ ran }) => ran));
  return html`<${Difference} title="Code, packages and machine" found=${recorded.map((one, place) => contentOf(one, contents[place]))} />
    ${others.length > 0 && html`<p class="soft small">There is no record of what ran in ${others.map(titleOf).join(", ")}.</p>`}`;
}

export function Compare() {
  const query = route.value.query;
  const ids = query.getAll("id");
  const objective = query.get("objective") ?? "";
  usePreferences("ui");
  const [found, setFound] = useState(/** @type {Compared[] | null} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let gone = false;
    setFound(null);
    setProblem("");
    if (!ids.length) return undefined;
    /** @type {Promise<{ experiments: Compared[] }>} */
    const asked = get("comparison", { id: ids, objective });
    asked.then(
      (answer) => !gone && setFound(answer.experiments),
      (error) => !gone && setProblem(messageOf(error)),
    );
    return () => {
      gone = true;
    };
  }, [ids.join(), objective]);
  const choose = html`<a href="#/overview">Choose experiments in the list</a>`;
  if (!ids.length)
    return html`<div class="card"><${Empty} title="Nothing to compare">${choose}: tick two or more.</${Empty}></div>`;
  if (problem) return html`<p class="note bad" role="alert">${problem}</p>`;
  if (!found) return html`<${Empty} title="Loading …" />`;
  return html`<h1 class="hidden">Compare experiments</h1>
    <div class="toolbar"><div class="end"><${SavedViews} place="ui" /></div></div>
    <div class="stack"><${Curves} found=${found} /><${Bests} found=${found} />
      <${Difference} title="Configurations" found=${found.map((one) => contentOf(one, one.config))} />
      <${Ran} found=${found} /></div>`;
}

/**
 * The points of a line of steps. Those that only keep it level have no symbol.
 * @param {[number, number | null][]} points
 */
function steps(points) {
  const known = new Set(points.map(([x]) => x));
  return stairs(points).map((point) => (known.has(point[0]) ? point : { value: point, symbol: "none" }));
}

/** @param {{ found: Compared[] }} props */
function Curves({ found }) {
  const query = route.value.query;
  const byTime = query.get("over") === "time";
  const names = [...new Set(found.flatMap((one) => Object.keys(one.objectives)))];
  const bests = found.flatMap(({ points }) => points.map(([, , best]) => best));
  const missing = leftOut(bests, "best result");
  const draw = () => ({
    ...base(),
    legend: { type: "scroll", top: 0, bottom: "auto", textStyle: { color: base().textStyle.color } },
    grid: plotArea({ top: 40 }),
    tooltip: { ...base().tooltip, trigger: "item" },
    xAxis: axis({
      type: "value",
      name: byTime ? "seconds since the start" : "succeeded trials",
      min: 0,
      minInterval: byTime ? 0 : 1,
    }),
    yAxis: resultAxis(bests),
    series: found.map((one, place) => ({
      type: "line",
      id: one.id,
      name: `${titleOf(one)} (${one.id})`,
      step: "end",
      symbolSize: 5,
      lineStyle: { width: 2, color: series(place), type: place < 8 ? "solid" : "dashed" },
      itemStyle: { color: series(place) },
      data: steps(one.points.map(([trials, seconds, best]) => [byTime ? seconds : trials, shown(best)])),
    })),
  });
  const controls = html`
    ${names.length > 1 && html`<${Pick} label="Objective" value=${query.get("objective") ?? found[0].objective} options=${names} set=${(one) => setQuery({ objective: one })} />`}
    <${Pick} label="Over" value=${byTime ? "time" : "trials"} options=${["trials", "time"]} set=${(one) => setQuery({ over: one === "time" ? one : null })} />
    <${LogScale} />`;
  return html`<${Card} title="Best so far" end=${controls}>
    ${missing && html`<p class="note calm small" role="status">${missing}</p>`}
    ${
      found.some((one) => one.points.length)
        ? html`<${Chart} label="Best result so far of each experiment" draw=${draw} deps=${[found, byTime, isLog()]} height=${360} />`
        : html`<${Empty} title="No result yet" />`
    }
  </${Card}>`;
}

/** @param {{ one: Compared }} props */
function BestOf({ one }) {
  if (!one.best) return "–";
  const objective = one.objective !== "default" ? `${one.objective}, ` : "";
  return html`<b>${number(one.points[one.points.length - 1][2], 6)}</b>
    <div class="soft small">${objective}${one.goal === "maximize" ? "highest" : "lowest"}, trial ${one.best.sequence}</div>`;
}

/** @param {{ found: Compared[] }} props */
function Bests({ found }) {
  return html`<${Card} title="Best of each"><${Scroll} label="Best of each"><table class="plain">
    <thead><tr>${["Experiment", "State", "Succeeded", "Ran", "Best", "Parameters of the best trial"].map((text) => html`<th key=${text} scope="col">${text}</th>`)}</tr></thead>
    <tbody>${found.map(
      (one) => html`<tr key=${one.id}>
        <td><b>${titleOf(one)}</b><div class="soft small mono">${one.id}</div></td>
        <td class="tight"><${ExperimentState} state=${one.state} /></td>
        <td class="tight">${count(one.counts.SUCCEEDED)}</td>
        <td class="tight">${duration(one.duration)}</td>
        <td class="tight"><${BestOf} one=${one} /></td>
        <td class="mono small">${one.best ? value(one.best.parameters) : ""}</td>
      </tr>`,
    )}</tbody>
  </table></${Scroll}></${Card}>`;
}
