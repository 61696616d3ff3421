// Objectives against each other, the trials that no other trial beats, and how this front has grown.

import { number, plural } from "../lib/format.js";
import { version } from "../lib/live_data.js";
import { askedMetric, front, goalOf, goals, isSeveral, metricNames, metricWord } from "../lib/objectives.js";
import { href, route, setQuery } from "../lib/route.js";
import { html, useMemo } from "../lib/ui.js";
import { Pick, TrialChip } from "../parts/chart_card.js";
import { Empty } from "../parts/layout.js";
import { NoResults } from "../parts/no_results.js";
import { Hypervolume } from "./hypervolume.js";
import { ObjectivePair, pointsOf } from "./objective_pair.js";
import { Pairs } from "./pairs.js";

/** @import { Trial } from "../lib/trials.js" */

const GOALS = [
  ["minimize", "lower is better"],
  ["maximize", "higher is better"],
];

/** @param {{ rows: Trial[] }} props */
export default function Pareto({ rows }) {
  const query = route.value.query;
  const names = metricNames.value;
  const nameX = askedMetric("ox");
  const nameY = query.has("oy") ? askedMetric("oy") : (names.find((name) => name !== nameX) ?? nameX);
  const goalX = query.get("gx") ?? goalOf(nameX) ?? "minimize";
  const goalY = query.get("gy") ?? goalOf(nameY) ?? "minimize";
  // What is searched for counts with all its objectives, also those that are not drawn.
  const isAsked = isSeveral.value && goalOf(nameX) === goalX && goalOf(nameY) === goalY;
  const found = useMemo(() => {
    const wanted = isAsked ? goals.value : { [nameX]: goalX, [nameY]: goalY };
    return { succeeded: rows.filter((trial) => trial.state === "SUCCEEDED"), best: front(rows, wanted), wanted };
  }, [rows, nameX, nameY, goalX, goalY, isAsked, goals.value, version.value]);
  if (names.length < 2) {
    return html`<div class="card"><${Empty} title="Only one objective">
      Report a dictionary as the final metric, such as <code>{"default": accuracy, "latency": ms}</code>, to compare several objectives here.
    </${Empty}></div>`;
  }
  const { succeeded, best, wanted } = found;
  const drawn = pointsOf(succeeded, nameX, nameY).length;
  if (!drawn) return html`<${NoResults} />`;
  const options = names.map((name) => [name, metricWord(name)]);
  const unseen = Object.keys(wanted).filter((name) => name !== nameX && name !== nameY);
  const controls = html`
    <${Pick} label="x" value=${nameX} options=${options} set=${(ox) => setQuery({ ox })} /><${Pick} label="" name="Goal of x" value=${goalX} options=${GOALS} set=${(gx) => setQuery({ gx })} />
    <${Pick} label="y" value=${nameY} options=${options} set=${(oy) => setQuery({ oy })} /><${Pick} label="" name="Goal of y" value=${goalY} options=${GOALS} set=${(gy) => setQuery({ gy })} />`;
  const crosses = succeeded.some(({ violates }) => violates) ? " Crosses violate a constraint." : "";
  const inWhat = unseen.length ? `all objectives, also in ${unseen.join(", ")}` : "both";
  return html`<div class="stack">
    <${ObjectivePair} rows=${succeeded} best=${best} wanted=${wanted} x=${nameX} y=${nameY} name="pareto" height=${480} controls=${controls}
      note=${`${plural(best.length, "trial")} of ${drawn} on the front: no other trial is at least as good in ${inWhat}.${crosses}`} />
    ${isAsked && html`<${Pairs} rows=${succeeded} best=${best} drawn=${[nameX, nameY]} /><${Hypervolume} rows=${succeeded.filter(({ violates }) => !violates)} best=${best} />`}
    <section class="card" aria-label="On the front"><div class="card-head"><h2>On the front</h2>
      <div class="end"><a class="button" href=${href("charts/compare", {
        ids: best
          .slice(0, 12)
          .map(({ id }) => id)
          .join(","),
      })}>Compare</a></div></div>
      <div class="row">${pointsOf(best.slice(0, 40), nameX, nameY).map(
        ({ trial, x, y }) =>
          html`<${TrialChip} key=${trial.id} id=${trial.id} value=${`${number(x)}, ${number(y)}`} />`,
      )}</div></section>
  </div>`;
}
