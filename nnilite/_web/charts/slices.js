// One small chart for each parameter: the metric over its values. Later trials are darker.

import { fields, isLogarithmic, titleOf } from "../lib/filtered.js";
import { drawn, fieldName, fieldValue } from "../lib/filters.js";
import { number } from "../lib/format.js";
import { version } from "../lib/live_data.js";
import { askedMetric, metricWord } from "../lib/objectives.js";
import { isStopped } from "../lib/trials.js";
import { html, useMemo } from "../lib/ui.js";
import { axis, base, colours, plotArea, tip } from "../parts/chart.js";
import { ChartCard, MetricPick } from "../parts/chart_card.js";
import { isLog, LogScale, leftOut, logAxis, resultAxis, shown } from "../parts/log_scale.js";
import { NoParameters, NoResults } from "../parts/no_results.js";
import { hollow, reached, withStopped } from "../parts/stopped_trials.js";

/** @import { Parameter } from "../lib/filters.js" */
/** @import { Trial } from "../lib/trials.js" */
/** @import { Option } from "../vendor/echarts.js" */

const SHOWN_MAX = 24; // charts
const POINTS_MAX = 5000;

/** @param {{ rows: Trial[] }} props */
export default function Slices({ rows }) {
  const name = askedMetric();
  const points = useMemo(() => {
    const found = rows.filter((trial) => reached(trial, name) !== null);
    const step = Math.ceil(found.length / POINTS_MAX);
    return step > 1 ? found.filter((_, place) => place % step === 0) : found;
  }, [rows, name, withStopped(), version.value]);
  const parameters = drawn(fields.value.parameters);
  if (!points.length) return html`<${NoResults} />`;
  if (!parameters.length) return html`<${NoParameters} />`;
  const missing = leftOut(
    points.map((trial) => reached(trial, name)),
    "result",
  );
  return html`<div class="stack">
    <div class="row"><${MetricPick} value=${name} /><${LogScale} /></div>
    ${missing && html`<p class="note calm small" role="status">${missing}</p>`}
    <div class="chart-grid">${parameters.slice(0, SHOWN_MAX).map(
      (
        field,
      ) => html`<${ChartCard} key=${field.field} title=${titleOf(field.field)} name=${`slice-${fieldName(field.field)}`} height=${230}
      deps=${[points, name, isLog()]} draw=${() => option(points, field, name)}
      data=${() => ({ header: ["trial", fieldName(field.field), name], rows: points.map((trial) => [trial.id, fieldValue(trial, field.field), reached(trial, name)]) })} />`,
    )}</div>
    ${parameters.length > SHOWN_MAX && html`<p class="soft">The first ${SHOWN_MAX} of ${parameters.length} parameters are drawn.</p>`}
  </div>`;
}

/** @param {Parameter} field */
export function axisOf(field) {
  if (field.text) return { type: "category", data: field.values.map(String), boundaryGap: true };
  const isSpread = field.low > 0 && isLogarithmic(fieldName(field.field));
  return isSpread ? logAxis(field.low, field.high) : { type: "value", scale: true, minInterval: field.whole ? 1 : 0 };
}

/**
 * @param {Trial[]} points
 * @param {Parameter} field
 * @param {string} name
 * @returns {Option}
 */
function option(points, field, name) {
  const c = colours();
  const late = points.at(-1)?.sequence;
  /** @param {Trial} trial */
  const jitter = (trial) => (((trial.sequence * 2654435761) % 1000) / 1000 - 0.5) * 22; // pixels, so that equal ones can be told apart
  return {
    ...base(),
    grid: plotArea({ right: 28 }),
    xAxis: axis({ ...axisOf(field), splitLine: { show: false } }),
    yAxis: resultAxis(
      points.map((trial) => reached(trial, name)),
      { name: metricWord(name) },
    ),
    series: [
      {
        type: "scatter",
        symbolSize: points.length > 1000 ? 4 : 7,
        itemStyle: { color: c["series-1"] },
        data: points.map((trial) => {
          const value = fieldValue(trial, field.field);
          return {
            value: [field.text && value !== null ? String(value) : value, shown(reached(trial, name))],
            id: trial.id,
            symbolOffset: field.text ? [jitter(trial), 0] : undefined,
            itemStyle: {
              ...(isStopped(trial) ? hollow() : {}),
              opacity: 0.25 + 0.65 * (late ? trial.sequence / late : 1),
            },
          };
        }),
        tooltip: {
          formatter: ({ data }) =>
            tip(`Trial ${data.id}`, [
              [fieldName(field.field), typeof data.value[0] === "number" ? number(data.value[0]) : data.value[0]],
              [metricWord(name), number(data.value[1], 6)],
            ]),
        },
      },
    ],
  };
}
