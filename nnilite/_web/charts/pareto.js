// Two objectives against each other, and the trials that no other trial beats in both.

import { objectives } from "../lib/filtered.js";
import { number, plural } from "../lib/format.js";
import { optimize, version } from "../lib/live_data.js";
import { href, route, setQuery } from "../lib/route.js";
import { objective } from "../lib/trials.js";
import { html, useMemo } from "../lib/ui.js";
import { Empty } from "../parts/bits.js";
import { axis, base, colours, tip } from "../parts/chart.js";
import { ChartCard, Pick } from "../parts/chart_card.js";
import { NoResults } from "../views/charts.js";

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
  const names = objectives.value;
  const nameX = query.get("ox") ?? names[0];
  const nameY = query.get("oy") ?? names[1];
  const goalX = query.get("gx") ?? (nameX === "default" ? optimize.value : "minimize");
  const goalY = query.get("gy") ?? "minimize";
  const found = useMemo(() => {
    /** @type {Point[]} */
    const points = rows.flatMap((trial) => {
      const [x, y] = [objective(trial.value, nameX), objective(trial.value, nameY)];
      return x === null || y === null ? [] : { trial, x, y };
    });
    return { points, front: front(points, goalX, goalY) };
  }, [rows, nameX, nameY, goalX, goalY, version.value]);
  if (names.length < 2) {
    return html`<div class="card"><${Empty} title="Only one objective">Report a dictionary as the final metric, such as <code>{"default": accuracy, "latency": ms}</code>, to compare several objectives here.</${Empty}></div>`;
  }
  if (!found.points.length) return html`<${NoResults} />`;
  const controls = html`
    <${Pick} label="x" value=${nameX} options=${names} set=${(ox) => setQuery({ ox })} /><${Pick} label="" value=${goalX} options=${GOALS} set=${(gx) => setQuery({ gx })} />
    <${Pick} label="y" value=${nameY} options=${names} set=${(oy) => setQuery({ oy })} /><${Pick} label="" value=${goalY} options=${GOALS} set=${(gy) => setQuery({ gy })} />`;
  const onFront = new Set(found.front.map(({ trial }) => trial.id));
  return html`<div class="stack">
    <${ChartCard} title=${`${nameX} and ${nameY}`} name="pareto" height=${480} controls=${controls} deps=${[found]} draw=${() => option(found, nameX, nameY)}
      note=${`${plural(found.front.length, "trial")} of ${found.points.length} on the front: no other trial is better in both.`}
      data=${() => ({ header: ["trial", nameX, nameY, "on the front"], rows: found.points.map(({ trial, x, y }) => [trial.id, x, y, onFront.has(trial.id)]) })} />
    <section class="card" aria-label="On the front"><div class="card-head"><h2>On the front</h2>
      <div class="end"><a class="button" href=${href("charts/compare", {
        ids: found.front
          .slice(0, 12)
          .map(({ trial }) => trial.id)
          .join(","),
      })}>Compare</a></div></div>
      <div class="row">${found.front.slice(0, 40).map(({ trial, x, y }) => html`<a class="chip mono" style=${{ paddingRight: "10px" }} key=${trial.id} href=${href(`trials/${trial.id}`)}>${trial.id}: ${number(x)}, ${number(y)}</a>`)}</div></section>
  </div>`;
}

/**
 * Points that no other dominates, by the first objective.
 * @param {Point[]} points
 * @param {string} goalX
 * @param {string} goalY
 */
function front(points, goalX, goalY) {
  const [signX, signY] = [goalX === "maximize" ? -1 : 1, goalY === "maximize" ? -1 : 1];
  const order = [...points].sort((a, b) => (a.x - b.x) * signX || (a.y - b.y) * signY);
  let best = Infinity;
  return order.filter(({ y }) => {
    if (y * signY >= best) return false;
    best = y * signY;
    return true;
  });
}

/**
 * @param {{ points: Point[], front: Point[] }} found
 * @param {string} nameX
 * @param {string} nameY
 * @returns {Option}
 */
function option({ points, front: best }, nameX, nameY) {
  const c = colours();
  const onFront = new Set(best.map(({ trial }) => trial.id));
  /** @param {Point} one */
  const point = ({ trial, x, y }) => ({ value: [x, y], id: trial.id });
  /** @type {Series["tooltip"]} */
  const tooltip = {
    formatter: ({ data }) =>
      tip(`Trial ${data.id}`, [
        [nameX, number(data.value[0], 6)],
        [nameY, number(data.value[1], 6)],
      ]),
  };
  return {
    ...base(),
    grid: { left: 26, right: 18, top: 16, bottom: 30, containLabel: true },
    xAxis: axis({ type: "value", name: nameX }),
    yAxis: axis({ type: "value", name: nameY, nameGap: 52 }),
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
        step: "end",
        silent: true,
        symbol: "none",
        lineStyle: { color: c["series-2"], width: 1.5, type: "dashed" },
        data: best.map(({ x, y }) => [x, y]),
      },
      { type: "scatter", symbolSize: 10, itemStyle: { color: c["series-2"] }, data: best.map(point), tooltip, z: 4 },
    ],
  };
}
