// Two parameters against each other: each trial is a point, coloured by the rank of its result. Unlike values, ranks tell
// good trials from better ones also where a few results lie far away from all others.

import { titleOf } from "../lib/filtered.js";
import { fieldName, fieldValue } from "../lib/filters.js";
import { count, number } from "../lib/format.js";
import { version } from "../lib/live_data.js";
import { askedMetric, goalOf, metricWord } from "../lib/objectives.js";
import { quantile, ranks } from "../lib/ranks.js";
import { isStopped, scored } from "../lib/trials.js";
import { html, useMemo } from "../lib/ui.js";
import { axis, base, colours, plotArea, tip } from "../parts/chart.js";
import { ChartCard, MetricPick } from "../parts/chart_card.js";
import { NoResults } from "../parts/no_results.js";
import { askedPair, NoPair, PairPick } from "../parts/parameter_pair.js";
import { hollow, withStopped } from "../parts/stopped_trials.js";
import { axisOf } from "./slices.js";

/** @import { Parameter } from "../lib/filters.js" */
/** @import { FlatValue, Scored, Trial } from "../lib/trials.js" */
/** @import { Option, Series } from "../vendor/echarts.js" */

/** @typedef {{ trial: Scored, x: FlatValue, y: FlatValue, rank: number }} Point its rank goes from 0, worst, to 1, best */

const QUARTERS = [0.25, 0.5, 0.75];

/** @param {{ rows: Trial[] }} props */
export default function Rank({ rows }) {
  const name = askedMetric();
  const { x, y } = askedPair();
  const points = useMemo(
    () => (y ? pointsOf(rows, x, y, name) : []),
    [rows, name, x?.field, y?.field, withStopped(), version.value],
  );
  if (!y) return html`<${NoPair} />`;
  if (!points.length) return html`<${NoResults} />`;
  const values = points.map(({ trial }) => trial.score);
  const [first, middle, third] = QUARTERS.map((share) => number(quantile(values, share), 4));
  return html`<${ChartCard} title=${`Rank over ${fieldName(x.field)} and ${fieldName(y.field)}`} name="rank" height=${560} deps=${[points]}
    controls=${html`<${PairPick} x=${x} y=${y} /><${MetricPick} value=${name} />`}
    draw=${() => option(points, x, y, name)}
    note=${`Each trial with a result that has both parameters is a point, coloured by its place among all of these. The quartiles of the results are ${first}, ${middle} and ${third}.`}
    data=${() => ({ header: ["trial", fieldName(x.field), fieldName(y.field), name, "rank"], rows: points.map((one) => [one.trial.id, one.x, one.y, one.trial.score, one.rank]) })} />`;
}

/**
 * @param {Trial[]} rows
 * @param {Parameter} fieldX
 * @param {Parameter} fieldY
 * @param {string} name of the metric
 * @returns {Point[]}
 */
function pointsOf(rows, fieldX, fieldY, name) {
  const found = scored(rows, name, withStopped()).flatMap((trial) => {
    const [x, y] = [fieldValue(trial, fieldX.field), fieldValue(trial, fieldY.field)];
    return x === null || y === null ? [] : { trial, x, y };
  });
  const sign = goalOf(name) === "minimize" ? -1 : 1;
  const places = ranks(found.map(({ trial }) => sign * trial.score));
  return found.map((point, index) => ({ ...point, rank: places[index] }));
}

/**
 * Smaller symbols for many points, so that they do not cover each other.
 * @param {number} points
 * @returns {number} pixels
 */
function symbolSizeFor(points) {
  if (points > 2000) return 5;
  return points > 300 ? 8 : 12;
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
  const order = [...points].sort((a, b) => a.rank - b.rank); // the best ones are drawn last, above the others
  const [worst, best] = [order[0].trial.score, order[order.length - 1].trial.score];
  const ends = goalOf(name) ? ["best", "worst"] : ["highest", "lowest"];
  /** @param {Parameter} field */
  const scale = (field) => ({ ...axisOf(field), name: titleOf(field.field) });
  /**
   * @param {Parameter} field
   * @param {FlatValue} value
   */
  const place = (field, value) => (field.text ? String(value) : value);
  const heat = [0, 1, 2, 3, 4].map((step) => c[`heat-${step}`]);
  /**
   * @param {Point[]} some
   * @param {boolean} [stopped] early: hollow, in the colour of the rank
   * @returns {Series}
   */
  const pointsOf = (some, stopped = false) => ({
    type: "scatter",
    symbolSize: symbolSizeFor(points.length),
    itemStyle: { borderColor: c.soft, borderWidth: points.length > 2000 ? 0 : 0.8 },
    data: some.map(({ trial, x, y, rank }) => ({
      value: [place(fieldX, x), place(fieldY, y), rank, trial.score],
      id: trial.id,
      itemStyle: stopped ? { ...hollow(heat[Math.round(rank * (heat.length - 1))]), borderWidth: 2 } : undefined,
    })),
    tooltip: {
      formatter: ({ data }) =>
        tip(`Trial ${data.id}${stopped ? ", stopped early" : ""}`, [
          [fieldName(fieldX.field), number(data.value[0])],
          [fieldName(fieldY.field), number(data.value[1])],
          [metricWord(name), number(data.value[3], 6)],
          ["rank", `${number(1 + (1 - data.value[2]) * (points.length - 1))} of ${count(points.length)}`],
        ]),
    },
  });
  return {
    ...base(),
    grid: plotArea({ right: 124 }),
    xAxis: axis(scale(fieldX)),
    yAxis: axis(scale(fieldY)),
    visualMap: {
      type: "continuous",
      seriesIndex: 0,
      dimension: 2,
      min: 0,
      max: 1,
      right: 0,
      top: "middle",
      itemHeight: 320,
      itemWidth: 14,
      inRange: { color: heat },
      text: [`${ends[0]} (${number(best, 4)})`, `${ends[1]} (${number(worst, 4)})`],
      textStyle: { color: c.soft },
      hoverLink: false,
    },
    series: [
      pointsOf(order.filter(({ trial }) => !isStopped(trial))),
      pointsOf(
        order.filter(({ trial }) => isStopped(trial)),
        true,
      ),
    ],
  };
}
