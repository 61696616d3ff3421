// The empirical distribution function: which share of the trials has a result that is not above a value.

import { number } from "../lib/format.js";
import { trials, version } from "../lib/live_data.js";
import { askedMetric, goalOf, metricWord } from "../lib/objectives.js";
import { shares } from "../lib/ranks.js";
import { scored } from "../lib/trials.js";
import { html, useMemo } from "../lib/ui.js";
import { axis, base, colours, plotArea, tip } from "../parts/chart.js";
import { ChartCard, MetricPick } from "../parts/chart_card.js";
import { isLog, LogScale, leftOut, resultAxis, shown } from "../parts/log_scale.js";
import { NoResults } from "../parts/no_results.js";
import { withStopped } from "../parts/stopped_trials.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { Option } from "../vendor/echarts.js" */

/** @typedef {{ title: string, values: number[] }} Line */

/** @param {{ rows: Trial[] }} props */
export default function Edf({ rows }) {
  const name = askedMetric();
  const all = trials();
  const lines = useMemo(() => {
    const found = [{ title: "these trials", values: resultsOf(rows, name) }];
    if (rows.length !== all.length) found.push({ title: "all trials", values: resultsOf(all, name) });
    return found;
  }, [rows, all, name, withStopped(), version.value]);
  if (!lines[0].values.length) return html`<${NoResults} />`;
  const goal = goalOf(name);
  const hint =
    goal && ` The ${goal === "minimize" ? "further left" : "further right"} the line is, the better are the results.`;
  return html`<${ChartCard} title=${`Distribution function of ${name === "default" ? "the metric" : name}`} name="edf" height=${420} deps=${[lines, isLog()]}
    controls=${html`<${MetricPick} value=${name} /><${LogScale} />`}
    above=${leftOut(lines[0].values, "result")}
    draw=${() => option(lines, name)}
    note=${`The share of the trials whose result is not above a value.${hint ?? ""}`}
    data=${() => ({ header: ["trials", name, "share"], rows: lines.flatMap(({ title, values }) => shares(values).map(([value, share]) => [title, value, share])) })} />`;
}

/**
 * @param {Trial[]} rows
 * @param {string} name
 */
const resultsOf = (rows, name) => scored(rows, name, withStopped()).map(({ score }) => score);

/**
 * @param {Line[]} lines
 * @param {string} name of the metric
 * @returns {Option}
 */
function option(lines, name) {
  const c = colours();
  return {
    ...base(),
    grid: plotArea({ top: lines.length > 1 ? 36 : 16 }),
    legend: lines.length > 1 ? { top: 0, textStyle: { color: c.soft } } : undefined,
    xAxis: resultAxis(
      lines.flatMap(({ values }) => values),
      { name: metricWord(name) },
    ),
    yAxis: axis({ type: "value", name: "share of the trials", min: 0, max: 1 }),
    series: lines.map(({ title, values }, place) => ({
      type: "line",
      name: title,
      step: "end",
      symbolSize: 5,
      showSymbol: values.length <= 200,
      lineStyle: { color: place ? c.soft : c["series-1"], width: place ? 1.5 : 2.5, type: place ? "dashed" : "solid" },
      itemStyle: { color: place ? c.soft : c["series-1"] },
      data: shares(values).map(([value, share]) => [shown(value), share]),
      tooltip: {
        formatter: (/** @type {{ value: number[] }} */ { value }) =>
          tip(title, [
            [metricWord(name), `not above ${number(value[0], 6)}`],
            ["share", number(value[1], 3)],
          ]),
      },
    })),
  };
}
