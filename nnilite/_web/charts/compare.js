// Chosen trials side by side.
import { html, useEffect, useState } from "../lib/ui.js";
import { get } from "../lib/api.js";
import { duration, moment, value } from "../lib/format.js";
import { href, route, setQuery } from "../lib/route.js";
import { selected } from "../lib/chosen.js";
import { link, loaded, now, trial as known, trials, version } from "../lib/store.js";
import { seconds } from "../lib/trials.js";
import { Card, csv, Empty, saveFile, State } from "../parts/bits.js";
import { ChartCard } from "../parts/chart_card.js";
import { curvesOption, curvesTable } from "../parts/curves.js";
import { Icon } from "../parts/icons.js";
import { profile } from "../lib/store.js";

const MOST = 12;

export default function Compare() {
  void version.value;
  const asked = route.value.query.get("ids");
  const ids = (asked ? asked.split(",") : [...selected.value]).slice(0, MOST);
  const found = ids.map((id) => known(id)).filter(Boolean);
  const [curves, setCurves] = useState([]);
  const stamp = found.map(({ id, state, attempt }) => `${id} ${state} ${attempt}`).join();
  useEffect(() => {
    let gone = false;
    if (found.length) get("curves", { trial: found.map(({ id }) => id), points: 300 }).then(({ curves: all }) => !gone && setCurves(all.filter((curve) => curve.steps.length)), () => {});
    return () => { gone = true; };
  }, [stamp, link.value.state]);
  const keep = (next) => setQuery({ ids: next.join(",") });
  const add = (event) => {
    event.preventDefault();
    const text = new FormData(event.target).get("id").trim().toLowerCase();
    const trial = trials().find((one) => one.id.toLowerCase() === text || `#${one.sequence}` === text || String(one.sequence) === text);
    if (trial && !ids.includes(trial.id)) keep([...ids, trial.id]);
    event.target.reset();
  };
  const adding = html`<form class="row" onSubmit=${add}><input name="id" placeholder="id or #number" aria-label="Trial to add" /><button type="submit"><${Icon} name="plus" />Add</button></form>`;
  if (!found.length) {
    return html`<div class="card"><${Empty} title=${loaded.value ? "No trials chosen" : "Loading …"}>Tick trials in the <a href="#/trials">table</a> and press Compare, or name them here.</${Empty}><div class="row" style=${{ justifyContent: "center" }}>${adding}</div></div>`;
  }
  const lines = table(found);
  const save = () => saveFile(`${profile.value.id}-compare.csv`, csv(["", ...found.map(({ id }) => id)], lines.map(({ name, values }) => [name, ...values])), "text/csv");
  return html`<div class="stack">
    <${Card} title="Side by side" end=${html`${adding}<button class="small" onClick=${save}><${Icon} name="download" />CSV</button>`}>
      <div class="scroll-x"><table class="plain compare">
        <thead><tr><th><span class="hidden">Property</span></th>${found.map((trial) => html`<th key=${trial.id}><span class="row" style=${{ flexWrap: "nowrap", gap: "2px" }}><a class="mono" href=${href(`trials/${trial.id}`)}>${trial.id}</a>
          <button class="quiet small icon" aria-label=${`Take ${trial.id} away`} onClick=${() => keep(ids.filter((id) => id !== trial.id))}><${Icon} name="close" /></button></span></th>`)}</tr></thead>
        <tbody>
          <tr><th scope="row">State</th>${found.map((trial) => html`<td key=${trial.id}><${State} state=${trial.state} /></td>`)}</tr>
          ${lines.map(({ name, values }) => {
            const differs = new Set(values).size > 1;
            return html`<tr key=${name}><th scope="row">${name}</th>${values.map((one, place) => html`<td key=${place} class=${differs ? "differs" : ""}>${one}</td>`)}</tr>`;
          })}
        </tbody>
      </table></div>
    </${Card}>
    ${curves.length > 0 && html`<${ChartCard} title="Intermediate results" name="compare" height=${340} deps=${[curves]} draw=${() => curvesOption(curves, { legend: true })} data=${() => curvesTable(curves)} />`}
  </div>`;
}

function table(found) {
  const names = [...new Set(found.flatMap((trial) => Object.keys(trial.flat)))];
  const metrics = [...new Set(found.flatMap((trial) => (trial.value !== null && typeof trial.value === "object" ? Object.keys(trial.value) : [])))].filter((name) => name !== "default");
  return [
    { name: "Number", values: found.map(({ sequence }) => `#${sequence}`) },
    { name: "Metric", values: found.map((trial) => value(trial.score ?? trial.value)) },
    ...metrics.map((name) => ({ name: `Metric: ${name}`, values: found.map((trial) => value(trial.value?.[name])) })),
    { name: "Duration", values: found.map((trial) => duration(seconds(trial, now.peek()))) },
    { name: "Started", values: found.map((trial) => moment(trial.started)) },
    ...names.map((name) => ({ name, values: found.map((trial) => value(trial.flat[name])) })),
  ];
}
