// Intermediate results of many trials over each other.

import { get } from "../lib/api.js";
import { plural } from "../lib/format.js";
import { connection, version } from "../lib/live_data.js";
import { goalOf, isSeveral, metricNames, metricWord } from "../lib/objectives.js";
import { route, setQuery } from "../lib/route.js";
import { hasEnded, objective } from "../lib/trials.js";
import { html, useEffect, useMemo, useState } from "../lib/ui.js";
import { colours, STATE_COLOURS } from "../parts/chart.js";
import { ChartCard, Pick } from "../parts/chart_card.js";
import { curvesOption, curvesTable, leftOutOf } from "../parts/curve_drawing.js";
import { Empty } from "../parts/layout.js";
import { isLog, LogScale } from "../parts/log_scale.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { Curve } from "../lib/wire.d.ts" */

const POINTS = 120;
const ORDERS = [
  ["best", "best"],
  ["worst", "worst"],
  ["last", "latest"],
];

/** @param {{ rows: Trial[] }} props */
export default function Curves({ rows }) {
  const query = route.value.query;
  const [usual, setUsual] = useState("");
  const key = query.get("key") ?? (usual || metricNames.value[0]);
  const order = query.get("order") ?? "best";
  const most = Number(query.get("most") ?? 50);
  const [curves, setCurves] = useState(/** @type {Curve[] | null} */ (null));
  const [problem, setProblem] = useState("");
  const wanted = useMemo(() => pick(rows, order, most, key), [rows, order, most, key, version.value]);
  const ids = wanted.map(({ id }) => id);
  const stamp = ids.join() + key;
  const running = wanted.some((trial) => !hasEnded(trial));
  const [tick, setTick] = useState(0);
  useEffect(() => {
    let gone = false;
    if (!ids.length) return setCurves([]);
    /** @type {Promise<{ curves: Curve[] }>} */
    const asked = get("curves", { trial: ids, points: POINTS, key });
    asked.then(
      (answer) => {
        if (!gone) {
          setCurves(answer.curves.filter((curve) => curve.steps.length));
          setProblem("");
          // of several objectives, intermediate results are often a single number
          const isEmpty = answer.curves.every(({ values }) => values.every((one) => one === null));
          if (isEmpty && isSeveral.value && !query.get("key")) setUsual("default");
        }
      },
      (error) => !gone && setProblem(error.message),
    );
    const timer = running ? setTimeout(() => setTick(tick + 1), 3000) : 0;
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [stamp, tick, connection.value.state]);
  const keys = [...new Set([...metricNames.value, key])];
  const controls = html`
    <${Pick} label="Show" value=${order} options=${ORDERS} set=${(one) => setQuery({ order: one === "best" ? null : one })} />
    <${Pick} label="at most" value=${most} options=${[10, 25, 50, 100, 200, 500].map(String)} set=${(one) => setQuery({ most: one === "50" ? null : one })} />
    ${keys.length > 1 && html`<${Pick} label="Metric" value=${key} options=${keys.map((one) => [one, metricWord(one)])} set=${(one) => setQuery({ key: one })} />`}
    <${LogScale} />`;
  if (problem) return html`<p class="note bad">${problem}</p>`;
  if (curves && !curves.length) {
    return html`<div class="card"><${Empty} title="No intermediate results">
      Trials report them with <code>nnilite.report_intermediate_result(value)</code>. If there should be some, remove filters.
    </${Empty}></div>`;
  }
  const states = new Map(wanted.map((trial) => [trial.id, trial.state]));
  /** @param {Curve} curve */
  const colour = (curve) => {
    const c = colours();
    const state = states.get(curve.trial);
    return state === "SUCCEEDED" ? c["series-1"] : c[state ? STATE_COLOURS[state] : "soft"];
  };
  /**
   * @param {Curve} _
   * @param {number} index
   */
  const opacity = (_, index) => {
    if (few) return 1;
    return order === "last" ? 0.6 : 1 - 0.8 * (index / (all.length - 1)) ** 0.5;
  };
  const all = curves ?? [];
  const few = all.length <= 8;
  const coloured = few ? "one by one" : "by state, paler the further from the first";
  return html`<${ChartCard} title="Intermediate results" name="intermediate" height=${480} controls=${controls} deps=${[curves, isLog()]} above=${leftOutOf(curves ?? [])}
    draw=${() => curvesOption(curves ?? [], { colour: few ? undefined : colour, legend: few, width: few ? 2 : 1.4, opacity })}
    note=${`${plural((curves ?? []).length, "trial")}, coloured ${coloured}; at most ${POINTS} points each. A click opens the trial.`}
    data=${() => curvesTable(curves ?? [])} />`;
}

const UNRANKED = new Set(["FAILED", "USER_CANCELED", "SYS_CANCELED"]);

/**
 * Those to draw. What a trial had reported before it failed or was killed is no rank.
 * @param {Trial[]} rows
 * @param {string} order
 * @param {number} most
 * @param {string} key
 */
function pick(rows, order, most, key) {
  if (order === "last") return rows.slice(-most);
  const name = metricNames.value.includes(key) ? key : metricNames.value[0];
  const sign = (goalOf(name) === "maximize" ? -1 : 1) * (order === "worst" ? -1 : 1);
  /** @param {Trial} trial */
  const worth = (trial) => objective(trial.value, name) ?? objective(trial.latest, name);
  const known = rows.flatMap((trial) => {
    if (UNRANKED.has(trial.state)) return [];
    const value = worth(trial);
    return value === null ? [] : { trial, value };
  });
  known.sort((a, b) => (a.value - b.value) * sign);
  return known.slice(0, most).map(({ trial }) => trial);
}
