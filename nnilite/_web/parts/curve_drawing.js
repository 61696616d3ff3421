// Intermediate results as lines, one for each trial.
import { number } from "../lib/format.js";
import { axis, base, colours, plotArea, series, tip } from "./chart.js";
import { leftOut, resultAxis, shown } from "./log_scale.js";

/** @import { Item, Option } from "../vendor/echarts.js" */
/** @import { Curve } from "../lib/wire.d.ts" */
/** @import { Table } from "./chart.js" */

/**
 * @typedef {object} Look
 * @property {(curve: Curve, index: number) => string} [colour]
 * @property {boolean} [legend]
 * @property {number} [width] of the lines
 * @property {(curve: Curve, index: number) => number} [opacity]
 */

/**
 * @param {Curve[]} curves
 * @param {Look} [look]
 * @returns {Option}
 */
export function curvesOption(
  curves,
  { colour = (_, index) => series(index), legend = false, width = 2, opacity = () => 1 } = {},
) {
  const c = colours();
  return {
    ...base(),
    grid: plotArea({ top: legend ? 34 : 14 }),
    legend: legend ? { top: 0, type: "scroll", textStyle: { color: c.soft } } : undefined,
    xAxis: axis({
      type: "value",
      name: "intermediate result",
      minInterval: 1,
      max: "dataMax",
      splitLine: { show: false },
    }),
    yAxis: resultAxis(valuesOf(curves)),
    series: curves.map((curve, index) => ({
      type: "line",
      name: curve.trial,
      id: curve.trial,
      showSymbol: curve.steps.length < 2 || (curves.length < 4 && curve.steps.length <= 60),
      symbolSize: 6,
      lineStyle: { width, color: colour(curve, index), opacity: opacity(curve, index) },
      itemStyle: { color: colour(curve, index) },
      emphasis: { focus: "series", lineStyle: { width: width + 1.5 } },
      triggerLineEvent: true,
      data: curve.steps.map((step, place) => ({ value: [step, shown(curve.values[place])], id: curve.trial })),
      tooltip: {
        formatter: (/** @type {Item<number[]>} */ { value, seriesName }) =>
          value
            ? tip(seriesName, [
                ["step", value[0]],
                ["value", number(value[1], 6)],
              ])
            : "",
      },
    })),
  };
}

/** @param {Curve[]} curves */
const valuesOf = (curves) => curves.flatMap(({ values }) => values);

/** @param {Curve[]} curves */
export const leftOutOf = (curves) => leftOut(valuesOf(curves), "intermediate result");

/**
 * @param {Curve[]} curves
 * @returns {Table}
 */
export function curvesTable(curves) {
  return {
    header: ["trial", "step", "value"],
    rows: curves.flatMap((curve) => curve.steps.map((step, place) => [curve.trial, step, curve.values[place]])),
  };
}
