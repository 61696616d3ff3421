// Two objectives against each other, and the trials that no other trial beats in both.

import { number, plural } from "../lib/format.js";
import { version } from "../lib/live_data.js";
import { askedMetric, front, goalOf, goals, isSeveral, metricNames, metricWord } from "../lib/objectives.js";
import { href, route, setQuery } from "../lib/route.js";
import { objective } from "../lib/trials.js";
import { html, useMemo } from "../lib/ui.js";
import { axis, base, colours, tip } from "../parts/chart.js";
import { ChartCard, Pick, TrialChip } from "../parts/chart_card.js";
import { Empty } from "../parts/layout.js";
import { NoResults } from "../parts/no_results.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { Option, Series } from "../vendor/echarts.js" */

/** @typedef {{ trial: Trial, x: number, y: number }} Point */

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
  const found = useMemo(() => {
    const points = pointsOf(
      rows.filter((trial) => trial.state === "SUCCEEDED"),
      nameX,
      nameY,
    );
    // What is searched for counts with all its objectives, also those that are not drawn.
    const isAsked = isSeveral.value && goalOf(nameX) === goalX && goalOf(nameY) === goalY;
    const wanted = isAsked ? goals.value : { [nameX]: goalX, [nameY]: goalY };
    return { points, best: pointsOf(front(rows, wanted), nameX, nameY), wanted };
  }, [rows, nameX, nameY, goalX, goalY, goals.value, version.value]);
  if (names.length < 2) {
    return html`<div class="card"><${Empty} title="Only one objective">
      Report a dictionary as the final metric, such as <code>{"default": accuracy, "latency": ms}</code>, to compare several objectives here.
    </${Empty}></div>`;
  }
  if (!found.points.length) return html`<${NoResults} />`;
  const options = names.map((name) => [name, metricWord(name)]);
  const unseen = Object.keys(found.wanted).filter((name) => name !== nameX && name !== nameY);
  const controls = html`
    <${Pick} label="x" value=${nameX} options=${options} set=${(ox) => setQuery({ ox })} /><${Pick} label="" name="Goal of x" value=${goalX} options=${GOALS} set=${(gx) => setQuery({ gx })} />
    <${Pick} label="y" value=${nameY} options=${options} set=${(oy) => setQuery({ oy })} /><${Pick} label="" name="Goal of y" value=${goalY} options=${GOALS} set=${(gy) => setQuery({ gy })} />`;
  const inWhat = unseen.length ? `all objectives, also in ${unseen.join(", ")}` : "both";
  const onFront = new Set(found.best.map(({ trial }) => trial.id));
  return html`<div class="stack">
    <${ChartCard} title=${`${metricWord(nameX)} and ${metricWord(nameY)}`} name="pareto" height=${480} controls=${controls} deps=${[found]}
      draw=${() => option(found, nameX, nameY)}
      note=${`${plural(found.best.length, "trial")} of ${found.points.length} on the front: no other trial is at least as good in ${inWhat}.`}
      data=${() => ({
        header: ["trial", nameX, nameY, "on the front"],
        rows: found.points.map(({ trial, x, y }) => [trial.id, x, y, onFront.has(trial.id)]),
      })} />
    <section class="card" aria-label="On the front"><div class="card-head"><h2>On the front</h2>
      <div class="end"><a class="button" href=${href("charts/compare", {
        ids: found.best
          .slice(0, 12)
          .map(({ trial }) => trial.id)
          .join(","),
      })}>Compare</a></div></div>
      <div class="row">${found.best.slice(0, 40).map(({ trial, x, y }) => html`<${TrialChip} key=${trial.id} id=${trial.id} value=${`${number(x)}, ${number(y)}`} />`)}</div></section>
  </div>`;
}

/**
 * Those that have both numbers.
 * @param {Trial[]} trials
 * @param {string} nameX
 * @param {string} nameY
 * @returns {Point[]}
 */
const pointsOf = (trials, nameX, nameY) =>
  trials.flatMap((trial) => {
    const [x, y] = [objective(trial.value, nameX), objective(trial.value, nameY)];
    return x === null || y === null ? [] : { trial, x, y };
  });

/**
 * @param {{ points: Point[], best: Point[], wanted: Record<string, string> }} found
 * @param {string} nameX
 * @param {string} nameY
 * @returns {Option}
 */
function option({ points, best, wanted }, nameX, nameY) {
  const c = colours();
  const onFront = new Set(best.map(({ trial }) => trial.id));
  /** @param {Point} one */
  const point = ({ trial, x, y }) => ({ value: [x, y], id: trial.id });
  /** @type {Series["tooltip"]} */
  const tooltip = {
    formatter: ({ data }) =>
      tip(`Trial ${data.id}`, [
        [metricWord(nameX), number(data.value[0], 6)],
        [metricWord(nameY), number(data.value[1], 6)],
      ]),
  };
  return {
    ...base(),
    grid: { left: 36, right: 18, top: 16, bottom: 30, containLabel: true },
    xAxis: axis({ type: "value", name: metricWord(nameX) }),
    yAxis: axis({ type: "value", name: metricWord(nameY), nameGap: 46 }),
    series: [
      {
        type: "scatter",
        symbolSize: points.length > 2000 ? 4 : 7,
        large: points.length > 20_000,
        itemStyle: { color: c["series-8"], opacity: 0.45 },
        data: points.filter(({ trial }) => !onFront.has(trial.id)).map(point),
        tooltip,
      },
      {
        type: "line",
        silent: true,
        symbol: "none",
        lineStyle: { color: c["series-2"], width: 1.5, type: "dashed" },
        // A trial beats all that lies between its corner and those of its neighbours, so the front is a staircase.
        step: wanted[nameX] === "minimize" ? "end" : "start",
        data: Object.keys(wanted).length === 2 ? best.map(({ x, y }) => [x, y]).sort((a, b) => a[0] - b[0]) : [],
      },
      { type: "scatter", symbolSize: 10, itemStyle: { color: c["series-2"] }, data: best.map(point), tooltip, z: 4 },
    ],
  };
}
