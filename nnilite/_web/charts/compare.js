// Selected trials side by side.

import { get } from "../lib/api.js";
import { digits } from "../lib/exact_json.js";
import { fieldValue } from "../lib/filters.js";
import { clock, duration, value } from "../lib/format.js";
import { connection, loaded, now, trialById, trials, version } from "../lib/live_data.js";
import { bestAndMedian } from "../lib/objectives.js";
import { href, route, setQuery } from "../lib/route.js";
import { COMPARED_MAX, selected } from "../lib/ticks.js";
import { score, seconds } from "../lib/trials.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { ChartCard } from "../parts/chart_card.js";
import { curvesOption, curvesTable, leftOutOf } from "../parts/curve_drawing.js";
import { Icon } from "../parts/icons.js";
import { Card, Empty, Scroll } from "../parts/layout.js";
import { isLog, LogScale } from "../parts/log_scale.js";
import { csv, fileName, saveFile } from "../parts/saved_files.js";
import { State } from "../parts/states.js";
import { say } from "../parts/toasts.js";
import { RanWith } from "./ran_with.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { Curve } from "../lib/wire.d.ts" */

const MOST = `${COMPARED_MAX} trials can be compared at once.`;

export default function Compare() {
  void version.value;
  const asked = route.value.query.get("ids");
  const wanted = asked ? asked.split(",") : [...selected.ids.value];
  const ids = wanted.slice(0, COMPARED_MAX);
  const found = ids.flatMap((id) => trialById(id) ?? []);
  const [curves, setCurves] = useState(/** @type {Curve[]} */ ([]));
  const stamp = found.map(({ id, state, attempt }) => `${id} ${state} ${attempt}`).join();
  useEffect(() => {
    let gone = false;
    /** @type {Promise<{ curves: Curve[] }>} */
    const asked = found.length
      ? get("curves", { trial: found.map(({ id }) => id), points: 300 })
      : Promise.resolve({ curves: [] });
    asked.then(
      ({ curves: all }) => !gone && setCurves(all.filter((curve) => curve.steps.length)),
      () => {},
    );
    return () => {
      gone = true;
    };
  }, [stamp, connection.value.state]);
  /** @param {string[]} next */
  const keep = (next) => setQuery({ ids: next.join(",") });
  /** @param {SubmitEvent & { target: HTMLFormElement }} event */
  const add = (event) => {
    event.preventDefault();
    const text = String(new FormData(event.target).get("id")).trim().toLowerCase();
    const trial = trials().find(
      (one) => one.id.toLowerCase() === text || `#${one.sequence}` === text || String(one.sequence) === text,
    );
    if (!trial) return say(text ? `There is no trial ${text}.` : "Type the id of a trial, or its number.", true);
    if (!ids.includes(trial.id) && ids.length === COMPARED_MAX) return say(`${MOST} Remove one first.`, true);
    if (!ids.includes(trial.id)) keep([...ids, trial.id]);
    return event.target.reset();
  };
  const adding = html`<form class="row" onSubmit=${add}><input name="id" placeholder="id or #number" aria-label="Trial to add" /><button type="submit"><${Icon} name="plus" />Add</button></form>`;
  if (!found.length) {
    const usual = bestAndMedian(trials());
    return html`<div class="card">
      <${Empty} title=${loaded.value ? "No trials selected" : "Loading …"}>Tick trials in the <a href="#/trials">table</a> and press Compare, or add them here.
        ${usual.length > 0 && html`<br /><a href=${href("charts/compare", { ids: usual.join(",") })}>Compare the best trial with the median</a>`}</${Empty}>
      <div class="row" style=${{ justifyContent: "center" }}>${adding}</div>
    </div>`;
  }
  const lines = table(found);
  const save = () =>
    saveFile(
      fileName("compare.csv"),
      csv(
        ["", ...found.map(({ id }) => id)],
        lines.map(({ name, values }) => [name, ...values]),
      ),
      "text/csv",
    );
  return html`<div class="stack">
    ${wanted.length > ids.length && html`<p class="note calm small" role="status">${MOST} These are the first of ${wanted.length}.</p>`}
    <${Card} title="Side by side" end=${html`${adding}<button class="small" onClick=${save}><${Icon} name="download" />CSV</button>`}>
      <${Scroll} label="Side by side"><table class="plain compare">
        <thead><tr><th><span class="hidden">Property</span></th>${found.map(
          (
            trial,
          ) => html`<th key=${trial.id}><span class="row" style=${{ flexWrap: "nowrap", gap: "2px" }}><a class="mono" href=${href(`trials/${trial.id}`)}>${trial.id}</a>
          <button class="quiet small icon" aria-label=${`Remove ${trial.id}`} onClick=${() => keep(ids.filter((id) => id !== trial.id))}><${Icon} name="close" /></button></span></th>`,
        )}</tr></thead>
        <tbody>
          <tr><th scope="row">State</th>${found.map((trial) => html`<td key=${trial.id}><${State} state=${trial.state} /></td>`)}</tr>
          ${lines.map(({ name, values }) => {
            const differs = new Set(values).size > 1;
            return html`<tr key=${name}><th scope="row">${name}</th>${values.map((one, place) => html`<td key=${place} class=${differs ? "differs" : ""}>${one}</td>`)}</tr>`;
          })}
        </tbody>
      </table></${Scroll}>
    </${Card}>
    ${
      curves.length > 0 &&
      html`<${ChartCard} title="Intermediate results" name="compare" height=${340} deps=${[curves, isLog()]}
      controls=${html`<${LogScale} />`} above=${leftOutOf(curves)}
      draw=${() => curvesOption(curves, { legend: true })} data=${() => curvesTable(curves)} />`
    }
    <${RanWith} trials=${found} />
  </div>`;
}

/**
 * @param {Trial} trial
 * @param {string} name
 */
const objectiveOf = ({ value: metric }, name) =>
  metric !== null && typeof metric === "object" && !Array.isArray(metric) ? metric[name] : undefined;

/**
 * The metric, or the latest one of a trial without a final result, as the table of trials has it.
 * @param {Trial} trial
 */
function resultOf(trial) {
  if (trial.score !== null || trial.value !== null) return value(trial.score ?? trial.value);
  return score(trial.latest) === null ? "" : `${value(score(trial.latest))} …`;
}

/** @param {Trial[]} found */
function table(found) {
  const names = [...new Set(found.flatMap((trial) => Object.keys(trial.flat)))];
  const metrics = [
    ...new Set(
      found.flatMap((trial) =>
        trial.value !== null && typeof trial.value === "object" ? Object.keys(trial.value) : [],
      ),
    ),
  ].filter((name) => name !== "default");
  return [
    { name: "Number", values: found.map(({ sequence }) => `#${sequence}`) },
    { name: "Metric", values: found.map(resultOf) },
    ...metrics.map((name) => ({
      name: `Metric: ${name}`,
      values: found.map((trial) => digits(trial.value, name) ?? value(objectiveOf(trial, name))),
    })),
    { name: "Duration", values: found.map((trial) => duration(seconds(trial, now.peek()))) },
    { name: "Started", values: found.map((trial) => clock(trial.started)) },
    ...names.map((name) => ({
      name,
      values: found.map((trial) => digits(trial.flat, name) ?? value(fieldValue(trial, `p.${name}`))),
    })),
  ];
}
