// How long trials took.

import { duration } from "../lib/format.js";
import { now, version } from "../lib/live_data.js";
import { hasEnded, STATE_WORDS, seconds } from "../lib/trials.js";
import { html, useMemo } from "../lib/ui.js";
import { axis, base, colours, plotArea, STATE_COLOURS, tip } from "../parts/chart.js";
import { ChartCard } from "../parts/chart_card.js";
import { Card, Empty } from "../parts/layout.js";
import { binsTable, histogram } from "./metric.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { Option } from "../vendor/echarts.js" */

/** @typedef {{ trial: Trial, seconds: number }} Point */

/** @param {{ rows: Trial[] }} props */
export default function Duration({ rows }) {
  const points = useMemo(
    () =>
      rows.flatMap((trial) => {
        const spent = seconds(trial, now.peek());
        return spent === null ? [] : { trial, seconds: spent };
      }),
    [rows, version.value],
  );
  if (!points.length) return html`<div class="card"><${Empty} title="Nothing has run yet" /></div>`;
  const ended = points
    .filter(({ trial }) => hasEnded(trial))
    .map(({ seconds }) => seconds)
    .sort((a, b) => a - b);
  /** @param {number} share */
  const at = (share) => duration(ended[Math.round(share * (ended.length - 1))]);
  const sum = ended.reduce((total, one) => total + one, 0);
  return html`<div class="stack">
    ${
      ended.length > 0 &&
      html`<${Card} title="Summary"><div class="tiles">
      ${[
        ["Shortest", at(0)],
        ["Median", at(0.5)],
        ["9 of 10 below", at(0.9)],
        ["Longest", at(1)],
        ["Total", duration(sum)],
      ].map(([name, text]) => html`<div class="tile" key=${name}><span>${name}</span><b>${text}</b></div>`)}
    </div></${Card}>`
    }
    <${ChartCard} title="Duration of each trial" name="duration" height=${360} deps=${[points]} draw=${() => option(points)}
      data=${() => ({
        header: ["trial", "sequence", "state", "seconds"],
        rows: points.map(({ trial, seconds }) => [trial.id, trial.sequence, trial.state, seconds]),
      })} />
    ${
      ended.length > 4 &&
      html`<${ChartCard} title="Distribution of durations" name="durations" height=${200} deps=${[points]}
      draw=${() => histogram(ended, duration)} data=${() => binsTable(ended)} />`
    }
  </div>`;
}

/**
 * @param {Point[]} points
 * @returns {Option}
 */
function option(points) {
  const c = colours();
  const states = [...new Set(points.map(({ trial }) => trial.state))];
  return {
    ...base(),
    grid: plotArea({ top: 34 }),
    legend: { top: 0, textStyle: { color: c.soft } },
    xAxis: axis({
      type: "value",
      name: "trial number",
      minInterval: 1,
      max: "dataMax",
      splitLine: { show: false },
    }),
    yAxis: axis({ type: "value", scale: false, axisLabel: { formatter: duration } }),
    series: states.map((state) => ({
      type: "scatter",
      name: STATE_WORDS[state],
      symbolSize: points.length > 2000 ? 4 : 8,
      large: points.length > 20_000,
      itemStyle: { color: c[STATE_COLOURS[state]], opacity: 0.65 },
      data: points
        .filter(({ trial }) => trial.state === state)
        .map(({ trial, seconds }) => ({ value: [trial.sequence, seconds], id: trial.id })),
      tooltip: {
        formatter: ({ data }) =>
          tip(`Trial ${data.id}`, [
            ["duration", duration(data.value[1])],
            ["number", data.value[0]],
          ]),
      },
    })),
  };
}
