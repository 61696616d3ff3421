// Intermediate results of many trials over each other.
import { html, useEffect, useMemo, useState } from "../lib/ui.js";
import { get } from "../lib/api.js";
import { plural } from "../lib/format.js";
import { route, setQuery } from "../lib/route.js";
import { objectives } from "../lib/selection.js";
import { link, profile, version } from "../lib/store.js";
import { hasEnded, objective } from "../lib/trials.js";
import { Empty } from "../parts/bits.js";
import { colours, STATE_COLOURS } from "../parts/chart.js";
import { ChartCard, Pick } from "../parts/chart_card.js";
import { curvesOption, curvesTable } from "../parts/curves.js";

const POINTS = 120;
const ORDERS = [["best", "best"], ["worst", "worst"], ["last", "latest"]];

export default function Curves({ rows }) {
  const query = route.value.query;
  const key = query.get("key") ?? "default";
  const order = query.get("order") ?? "best";
  const most = Number(query.get("most") ?? 50);
  const [curves, setCurves] = useState(null);
  const [problem, setProblem] = useState("");
  const wanted = useMemo(() => pick(rows, order, most), [rows, order, most, version.value]);
  const ids = wanted.map(({ id }) => id);
  const stamp = ids.join() + key;
  const running = wanted.some((trial) => !hasEnded(trial));
  const [tick, setTick] = useState(0);
  useEffect(() => {
    let gone = false;
    if (!ids.length) return setCurves([]);
    get("curves", { trial: ids, points: POINTS, key }).then(
      (answer) => { if (!gone) { setCurves(answer.curves.filter((curve) => curve.steps.length)); setProblem(""); } },
      (error) => !gone && setProblem(error.message),
    );
    const timer = running ? setTimeout(() => setTick(tick + 1), 3000) : 0;
    return () => { gone = true; clearTimeout(timer); };
  }, [stamp, tick, link.value.state]);
  const controls = html`
    <${Pick} label="Of the" value=${order} options=${ORDERS} set=${(one) => setQuery({ order: one === "best" ? null : one })} />
    <${Pick} label="at most" value=${most} options=${[10, 25, 50, 100, 200, 500].map(String)} set=${(one) => setQuery({ most: one === "50" ? null : one })} />
    ${objectives.value.length > 1 && html`<${Pick} label="Metric" value=${key} options=${objectives.value} set=${(one) => setQuery({ key: one === "default" ? null : one })} />`}`;
  if (problem) return html`<p class="note bad">${problem}</p>`;
  if (curves && !curves.length) {
    return html`<div class="card"><${Empty} title="No intermediate results">Trials report them by <code>nnilite.report_intermediate_result(value)</code>. Take away filters if there should be some.</${Empty}></div>`;
  }
  const states = new Map(wanted.map((trial) => [trial.id, trial.state]));
  const colour = (curve) => {
    const c = colours();
    const state = states.get(curve.trial);
    return state === "SUCCEEDED" ? c["series-1"] : c[STATE_COLOURS[state] ?? "soft"];
  };
  const opacity = (_, index) => (few ? 1 : order === "last" ? 0.6 : 1 - 0.8 * (index / (curves.length - 1)) ** 0.5);
  const few = (curves ?? []).length <= 8;
  return html`<${ChartCard} title="Intermediate results" name="intermediate" height=${480} controls=${controls} deps=${[curves]}
    draw=${() => curvesOption(curves ?? [], { colour: few ? undefined : colour, legend: few, width: few ? 2 : 1.4, opacity })}
    note=${`${plural((curves ?? []).length, "trial")}, coloured ${few ? "one by one" : "by state, paler the further from the first"}; thinned to ${POINTS} points each. A click opens the trial.`} data=${() => curvesTable(curves ?? [])} />`;
}

function pick(rows, order, most) {
  if (order === "last") return rows.slice(-most);
  const sign = (profile.value.optimize === "minimize" ? 1 : -1) * (order === "worst" ? -1 : 1);
  const worth = (trial) => objective(trial.value, "default") ?? objective(trial.latest, "default");
  const known = rows.map((trial) => [worth(trial), trial]).filter(([value]) => value !== null);
  known.sort((a, b) => (a[0] - b[0]) * sign);
  return known.slice(0, most).map(([, trial]) => trial);
}
