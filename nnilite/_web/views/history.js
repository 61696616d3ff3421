// The metric of all trials over their number, with the best so far as a line.

import { brief, number, shortened } from "../lib/format.js";
import { trialById, trials, version } from "../lib/live_data.js";
import { goals, metricWord } from "../lib/objectives.js";
import { go } from "../lib/route.js";
import { bestSoFar, isStopped, scored } from "../lib/trials.js";
import { html, useMemo, useRef, useState } from "../lib/ui.js";
import { axis, base, Chart, colours, plotArea, Save, STATE_COLOURS, tip } from "../parts/chart.js";
import { Pick } from "../parts/chart_card.js";
import { crossed, crossedIf, violation } from "../parts/crosses.js";
import { Card } from "../parts/layout.js";
import { isLog, LogScale, leftOut, resultAxis, shown } from "../parts/log_scale.js";
import { NoResultYet } from "../parts/no_results.js";
import { robustRange } from "../parts/robust_range.js";
import { stairs } from "../parts/stairs.js";
import { hollow, StoppedSwitch, withStopped } from "../parts/stopped_trials.js";

/** @import { Scored, Trial } from "../lib/trials.js" */
/** @import { Option, Series, Chart as Drawn } from "../vendor/echarts.js" */

const POINTS_MAX = 20_000;

export function History() {
  const [chosen, setChosen] = useState("");
  const names = Object.keys(goals.value);
  const name = names.includes(chosen) ? chosen : names[0];
  const goal = goals.value[name];
  const chart = useRef(/** @type {Drawn | null} */ (null));
  const stopped = withStopped();
  const ended = useMemo(
    () => scored(trials(), name, stopped).sort((a, b) => a.sequence - b.sequence),
    [version.value, name, stopped],
  );
  const best = useMemo(() => bestSoFar(ended, goal), [ended, goal]);
  const failed = useMemo(() => trials().filter((trial) => trial.state === "FAILED"), [version.value]);
  const draw = () => historyOption(ended, best, failed, { title: metricWord(name), goal });
  const data = () => ({
    header: ["sequence", "trial", metricWord(name), "best"],
    rows: ended.map((trial, place) => [trial.sequence, trial.id, trial.score, best[place]]),
  });
  const picker =
    names.length > 1 && html`<${Pick} label="Objective" value=${name} options=${names} set=${setChosen} />`;
  const missing = leftOut(
    ended.map((trial) => trial.score),
    "result",
  );
  const buttons = html`<${StoppedSwitch} />${ended.length > 0 && html`<${LogScale} /><${Save} name="history" chart=${chart} data=${data} />`}`;
  return html`<${Card} title="Metric of all trials, and the best so far" class="c12" end=${html`${picker}${buttons}`}>
    ${missing && html`<p class="note calm small" role="status">${missing}</p>`}
    ${
      ended.length
        ? html`<${Chart} label="Metric by trial number, with the best so far as a line" draw=${draw} deps=${[ended, goal, isLog()]} height=${300}
          onReady=${(one) => {
            chart.current = one;
          }} onClick=${(event) => event.data?.id && go(`trials/${event.data.id}`)} />`
        : html`<${NoResultYet}>Each trial with a final metric becomes a point here.</${NoResultYet}>`
    }
  </${Card}>`;
}

/**
 * @param {Scored[]} ended
 * @param {(number | null)[]} best
 * @param {Trial[]} failed
 * @param {{ title: string, goal: string }} axis of results
 * @returns {Option}
 */
export function historyOption(ended, best, failed, { title, goal }) {
  const c = colours();
  const step = Math.max(1, Math.ceil(ended.length / POINTS_MAX));
  const points = ended.filter((_, place) => place % step === 0);
  const values = ended.map((trial) => trial.score);
  const lows = isLog() ? {} : robustRange(values, goal);
  /**
   * @param {string} name
   * @param {Scored[]} some
   * @param {Record<string, unknown>} itemStyle
   * @returns {Series}
   */
  const pointsOf = (name, some, itemStyle) => ({
    type: "scatter",
    name,
    symbolSize: ended.length > 2000 ? 4 : 8,
    large: some.length > 5000,
    itemStyle: { ...itemStyle, opacity: ended.length > 2000 ? 0.35 : 0.6 },
    data: some.flatMap((trial) =>
      shown(trial.score) === null ? [] : { value: [trial.sequence, trial.score], id: trial.id, ...crossedIf(trial) },
    ),
    tooltip: {
      formatter: ({ data }) =>
        tip(`Trial ${data.id}`, [
          ["number", data.value[0]],
          [name === "trials" ? "metric" : "latest metric, stopped early", number(data.value[1], 6)],
          ...violation(data.id),
        ]),
    },
  });
  return {
    ...base(),
    grid: plotArea(),
    xAxis: axis({
      type: "value",
      name: "trial number",
      minInterval: 1,
      max: "dataMax",
      splitLine: { show: false },
    }),
    // Trials that failed have no result: they stand at the bottom of the chart, on an axis of their own.
    yAxis: [resultAxis(values, { ...lows, name: title }), { type: "value", show: false, min: 0, max: 1 }],
    series: [
      pointsOf(
        "trials",
        points.filter((trial) => !isStopped(trial)),
        { color: c["series-1"] },
      ),
      pointsOf("stopped early", points.filter(isStopped), hollow()),
      {
        type: "line",
        name: "best so far",
        step: "end",
        symbol: "none",
        lineStyle: { color: c["series-2"], width: 2.5 },
        data: stairs(changesOf(ended, best).map(([x, y]) => [x, shown(y)])),
        silent: true,
        z: 3,
      },
      {
        type: "scatter",
        name: "failed",
        yAxisIndex: 1,
        ...crossed(c[STATE_COLOURS.FAILED]),
        data: failed.slice(0, 2000).map(({ sequence, id }) => ({ value: [sequence, 0], id })),
        tooltip: {
          formatter: ({ data }) =>
            tip(`Trial ${data.id}`, [
              ["number", data.value[0]],
              ["failed", shortened(brief((data.id && trialById(data.id)?.reason) || ""), 80)],
            ]),
        },
      },
    ],
  };
}

/**
 * The line needs only the points where it steps, and its ends.
 * @param {Scored[]} ended
 * @param {(number | null)[]} best
 * @returns {[number, number | null][]}
 */
function changesOf(ended, best) {
  /** @type {[number, number | null][]} */
  const all = ended.map((trial, place) => [trial.sequence, best[place]]);
  return all.filter((_, place) => place === 0 || place === best.length - 1 || best[place] !== best[place - 1]);
}
