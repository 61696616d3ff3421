// Two objectives against each other, with the trials of a front.

import { number } from "../lib/format.js";
import { metricWord } from "../lib/objectives.js";
import { objective } from "../lib/trials.js";
import { html, useMemo } from "../lib/ui.js";
import { axis, base, colours, plotArea, tip } from "../parts/chart.js";
import { ChartCard } from "../parts/chart_card.js";
import { crossedIf, violation } from "../parts/crosses.js";

/** @import { Goals } from "../lib/objectives.js" */
/** @import { Trial } from "../lib/trials.js" */
/** @import { ComponentChildren } from "../vendor/preact.js" */
/** @import { Option, Series } from "../vendor/echarts.js" */

/** @typedef {{ trial: Trial, x: number, y: number }} Point */
/** @typedef {{ x: string, y: string }} Axes the objectives by their names */

/**
 * @typedef {object} PairProps
 * @property {Trial[]} rows those that succeeded
 * @property {Trial[]} best those on the front
 * @property {Goals} wanted what the front is of
 * @property {string} name of saved files
 * @property {number} height pixels
 * @property {ComponentChildren} [controls]
 * @property {string} [note]
 */

/** @param {PairProps & Axes} props */
export function ObjectivePair({ rows, best, wanted, x, y, name, height, controls, note }) {
  const points = useMemo(() => pointsOf(rows, x, y), [rows, x, y]);
  const onFront = useMemo(() => new Set(best.map(({ id }) => id)), [best]);
  return html`<${ChartCard} title=${`${metricWord(x)} and ${metricWord(y)}`} name=${name} height=${height} controls=${controls} note=${note}
    deps=${[points, onFront, wanted]} draw=${() => option(points, onFront, wanted, { x, y })}
    data=${() => ({
      header: ["trial", x, y, "on the front"],
      rows: points.map((one) => [one.trial.id, one.x, one.y, onFront.has(one.trial.id)]),
    })} />`;
}

/**
 * Those that have both numbers.
 * @param {Trial[]} trials
 * @param {string} nameX
 * @param {string} nameY
 * @returns {Point[]}
 */
export const pointsOf = (trials, nameX, nameY) =>
  trials.flatMap((trial) => {
    const [x, y] = [objective(trial.value, nameX), objective(trial.value, nameY)];
    return x === null || y === null ? [] : { trial, x, y };
  });

/**
 * @param {Point[]} points
 * @param {Set<string>} onFront
 * @param {Goals} wanted
 * @param {Axes} axes
 * @returns {Option}
 */
function option(points, onFront, wanted, axes) {
  const c = colours();
  const best = points.filter(({ trial }) => onFront.has(trial.id));
  /** @param {Point} one */
  const point = ({ trial, x, y }) => ({ value: [x, y], id: trial.id, ...crossedIf(trial) });
  /** @type {Series["tooltip"]} */
  const tooltip = {
    formatter: ({ data }) =>
      tip(`Trial ${data.id}`, [
        [metricWord(axes.x), number(data.value[0], 6)],
        [metricWord(axes.y), number(data.value[1], 6)],
        ...violation(data.id),
      ]),
  };
  return {
    ...base(),
    grid: plotArea(),
    xAxis: axis({ type: "value", name: metricWord(axes.x) }),
    yAxis: axis({ type: "value", name: metricWord(axes.y) }),
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
        step: wanted[axes.x] === "minimize" ? "end" : "start",
        data: Object.keys(wanted).length === 2 ? best.map(({ x, y }) => [x, y]).sort((a, b) => a[0] - b[0]) : [],
      },
      { type: "scatter", symbolSize: 10, itemStyle: { color: c["series-2"] }, data: best.map(point), tooltip, z: 4 },
    ],
  };
}
