// The metric over two parameters: trials as points on a surface that is interpolated between them.

import { isLogarithmic, titleOf } from "../lib/filtered.js";
import { fieldName, fieldValue } from "../lib/filters.js";
import { clipped, number } from "../lib/format.js";
import { version } from "../lib/live_data.js";
import { askedMetric, goalOf, metricWord } from "../lib/objectives.js";
import { isStopped } from "../lib/trials.js";
import { html, useMemo } from "../lib/ui.js";
import { base, colours, plotArea, tip } from "../parts/chart.js";
import { ChartCard, MetricPick } from "../parts/chart_card.js";
import { evenTicks, logTicks, placedAxis } from "../parts/log_scale.js";
import { NoResults } from "../parts/no_results.js";
import { askedPair, NoPair, PairPick } from "../parts/parameter_pair.js";
import { robustRange } from "../parts/robust_range.js";
import { reached, withStopped } from "../parts/stopped_trials.js";

/** @import { Parameter } from "../lib/filters.js" */
/** @import { FlatValue, Trial } from "../lib/trials.js" */
/** @import { Option, RenderApi } from "../vendor/echarts.js" */

const CELLS = 64; // along each axis
/** @typedef {{ trial: Trial, x: number, y: number, z: number }} Point a trial; x and y from 0 to 1, z its metric */

/** @param {number} one */
const same = (one) => one;

// Of a trial that was stopped early: a white ring with a dark edge, which is seen on light and on dark parts of the surface.
const HOLLOW = {
  color: "transparent",
  borderColor: "#ffffff",
  borderWidth: 1.6,
  shadowColor: "#14161c",
  shadowBlur: 3,
};
const LEVELS = 14;
const POINTS_MAX = 1500; // each cell looks at all of them

/** @param {{ rows: Trial[] }} props */
export default function Contour({ rows }) {
  const name = askedMetric();
  const { x: chosenX, y: chosenY } = askedPair();
  const points = useMemo(() => {
    if (!chosenY) return [];
    const [placeX, placeY] = [scale(chosenX), scale(chosenY)];
    /** @type {Point[]} */
    const found = [];
    for (const trial of rows) {
      const z = reached(trial, name);
      const [x, y] = [placeX.to(fieldValue(trial, chosenX.field)), placeY.to(fieldValue(trial, chosenY.field))];
      if (z !== null && x !== null && y !== null) found.push({ trial, x, y, z });
    }
    const step = Math.ceil(found.length / POINTS_MAX);
    return step > 1 ? found.filter((_, place) => place % step === 0) : found;
  }, [rows, name, chosenX?.field, chosenY?.field, withStopped(), version.value]);
  if (!chosenY) return html`<${NoPair} />`;
  if (points.length < 3) return html`<${NoResults} />`;
  const controls = html`
    <${PairPick} x=${chosenX} y=${chosenY} />
    <${MetricPick} value=${name} />`;
  return html`<${ChartCard} title=${`${name === "default" ? "Metric" : name} over ${fieldName(chosenX.field)} and ${fieldName(chosenY.field)}`} name="contour" height=${560} controls=${controls}
    deps=${[points]} draw=${() => option(points, chosenX, chosenY, name)}
    note="Points are trials; the surface between them is interpolated, so it is unreliable where there are none. Results far worse than all others bend it no further."
    data=${() => ({
      header: ["trial", fieldName(chosenX.field), fieldName(chosenY.field), name],
      rows: points.map(({ trial, z }) => [
        trial.id,
        fieldValue(trial, chosenX.field),
        fieldValue(trial, chosenY.field),
        z,
      ]),
    })} />`;
}

/**
 * A parameter's own scale: the place of each value from 0 to 1, and the values at which it has ticks.
 * @typedef {object} Scale
 * @property {(value: FlatValue) => number | null} to
 * @property {FlatValue[]} ticks
 */

/**
 * @param {Parameter} field
 * @returns {Scale}
 */
function scale(field) {
  if (field.text) {
    const known = field.values.map(String);
    const size = Math.max(known.length - 1, 1);
    return {
      to: (value) => (value === null || !known.includes(String(value)) ? null : known.indexOf(String(value)) / size),
      ticks: known,
    };
  }
  const isSpread = field.low > 0 && isLogarithmic(fieldName(field.field));
  const f = isSpread ? Math.log : same;
  const [low, high] = [f(field.low), f(field.high)];
  return {
    to: (value) => (typeof value === "number" ? (f(value) - low) / (high - low || 1) : null),
    ticks: isSpread ? logTicks(field.low, field.high) : evenTicks(field.low, field.high, field.whole),
  };
}

/**
 * The axis of such a scale.
 * @param {Scale} scale
 * @param {string} name
 */
function scaleAxis({ to, ticks }, name) {
  const texts = new Map(
    ticks.map((value) => [to(value) ?? 0, typeof value === "number" ? number(value, 6) : clipped(String(value))]),
  );
  return placedAxis(texts, { type: "value", min: 0, max: 1, name, splitLine: { show: false } });
}

/**
 * The same points, with results that are far worse than all others moved to where an axis would end: a single one that
 * diverged would give the rest of the surface one colour.
 * @param {Point[]} points
 * @param {string} goal
 */
export function tamed(points, goal) {
  const values = points.map(({ z }) => z);
  const { min = -Infinity, max = Infinity } = robustRange(values, goal);
  return points.map((point) => ({ ...point, z: Math.min(Math.max(point.z, min), max) }));
}

/**
 * Inverse distance weighting, a little smoothed so that single trials make no spikes. Metrics are in parts of `unit`: a sum
 * of weighted results near the largest number would be infinite.
 * @param {Point[]} points
 * @param {number} unit
 */
export function surface(points, unit) {
  /** @type {[number, number, number][]} */
  const cells = [];
  for (let column = 0; column < CELLS; column += 1) {
    for (let row = 0; row < CELLS; row += 1) {
      const [x, y] = [(column + 0.5) / CELLS, (row + 0.5) / CELLS];
      let [sum, weights] = [0, 0];
      for (const point of points) {
        const away = (point.x - x) ** 2 + (point.y - y) ** 2 + 0.0006;
        const weight = 1 / (away * away);
        sum += weight * (point.z / unit);
        weights += weight;
      }
      cells.push([column, row, sum / weights]);
    }
  }
  return cells;
}

/**
 * @param {Point[]} points
 * @param {Parameter} fieldX
 * @param {Parameter} fieldY
 * @param {string} name of the metric
 * @returns {Option}
 */
function option(points, fieldX, fieldY, name) {
  const c = colours();
  const [scaleX, scaleY] = [scale(fieldX), scale(fieldY)];
  const drawn = tamed(points, goalOf(name) ?? "");
  const unit = Math.max(...drawn.map(({ z }) => Math.abs(z))) || 1;
  const cells = surface(drawn, unit);
  const order = cells.map((cell) => cell[2]).sort((a, b) => a - b);
  const [low, high] = [order[0], order[order.length - 1]];
  const heat = [0, 1, 2, 3, 4].map((step) => c[`heat-${step}`]);
  if (goalOf(name) === "minimize") heat.reverse();
  const size = (high - low || 1) / LEVELS;
  /** @param {number} value */
  const level = (value) => low + (Math.min(Math.floor((value - low) / size), LEVELS - 1) + 0.5) * size; // bands, as contours have
  const cellAxis = { type: "category", data: Array.from({ length: CELLS }, (_, cell) => cell), show: false };
  return {
    ...base(),
    grid: plotArea({ right: 84 }),
    xAxis: [cellAxis, { ...scaleAxis(scaleX, titleOf(fieldX.field)), position: "bottom" }],
    yAxis: [cellAxis, { ...scaleAxis(scaleY, titleOf(fieldY.field)), position: "left" }],
    visualMap: {
      type: "continuous",
      seriesIndex: 0,
      dimension: 2,
      min: low,
      max: high,
      right: 0,
      top: "middle",
      itemHeight: 320,
      itemWidth: 14,
      inRange: { color: heat },
      text: [number(high * unit, 4), number(low * unit, 4)],
      textStyle: { color: c.soft },
      hoverLink: false,
    },
    series: [
      {
        type: "custom",
        data: cells.map(([x, y, z]) => [x, y, level(z)]),
        silent: true,
        renderItem: cell,
      },
      {
        type: "scatter",
        xAxisIndex: 1,
        yAxisIndex: 1,
        symbolSize: points.length > 300 ? 4 : 8,
        itemStyle: { color: "#ffffff", borderColor: "#14161c", borderWidth: 1.2 },
        data: points.map(({ trial, x, y, z }) => ({
          value: [x, y, z, ...[fieldX, fieldY].map(({ field }) => number(fieldValue(trial, field)))],
          id: trial.id,
          itemStyle: isStopped(trial) ? HOLLOW : undefined,
        })),
        tooltip: {
          formatter: ({ data }) =>
            tip(`Trial ${data.id}`, [
              [fieldName(fieldX.field), data.value[3]],
              [fieldName(fieldY.field), data.value[4]],
              [metricWord(name), number(data.value[2], 6)],
            ]),
        },
      },
    ],
  };
}

/**
 * A cell reaches a little into its neighbours: else the page shines through between them.
 * @param {unknown} _
 * @param {RenderApi} api
 */
function cell(_, api) {
  const [x, y] = api.coord([api.value(0), api.value(1)]);
  const [width, height] = api.size([1, 1]);
  return {
    type: "rect",
    shape: { x: x - width / 2, y: y - height / 2, width: width + 0.7, height: height + 0.7 },
    style: { fill: api.visual("color") },
  };
}
