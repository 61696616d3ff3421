// How much each parameter matters, as the server computes it.

import { get } from "../lib/api.js";
import { filterQuery } from "../lib/filters.js";
import { clipped, count } from "../lib/format.js";
import { profile } from "../lib/live_data.js";
import { askedMetric, metricWord } from "../lib/objectives.js";
import { href, route, setQuery } from "../lib/route.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { axis, base, colours, plotArea, tip } from "../parts/chart.js";
import { ChartCard, MetricPick, Pick } from "../parts/chart_card.js";
import { Icon } from "../parts/icons.js";
import { Card, Empty } from "../parts/layout.js";
import { withStopped } from "../parts/stopped_trials.js";

/** @import { Importance as Found } from "../lib/wire.d.ts" */
/** @import { Option } from "../vendor/echarts.js" */

const METHODS = [
  ["auto", "best available"],
  ["fanova", "fANOVA"],
  ["pedAnova", "PED-ANOVA"],
];
/** @type {Record<string, string>} */
const WORDS = {
  fanova: "fANOVA: the share of the metric's variance that each parameter explains by itself, over the whole space",
  pedAnova: "PED-ANOVA: how much each parameter decides whether a trial is among the best",
};

export default function Importance() {
  const method = route.value.query.get("method") ?? "auto";
  const name = askedMetric();
  const stopped = withStopped();
  const question = `${method} ${name} ${stopped}`;
  const [found, setFound] = useState(/** @type {(Found & { asked: string }) | null} */ (null));
  const [problem, setProblem] = useState("");
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    let gone = false;
    setProblem("");
    setFound((known) => (known?.asked === question ? known : null));
    /** @type {Promise<Found>} */
    const answer = get("importance", { method, key: name, stopped: String(stopped) }, { timeout_ms: 150_000 });
    answer.then(
      (answer) => !gone && setFound({ ...answer, asked: question }),
      (error) => !gone && setProblem(error.message),
    );
    return () => {
      gone = true;
    };
  }, [question, asked]);
  const again = html`<button class="small" onClick=${() => setAsked(asked + 1)}><${Icon} name="retry" />Compute again</button>`;
  const pick = html`<${MetricPick} value=${name} /><${Pick} label="Method" value=${method} options=${METHODS} set=${(one) => setQuery({ method: one === "auto" ? null : one })} />${again}`;
  if (problem)
    return html`<${Card} title="Importance of parameters" end=${pick}><p class="note bad">${problem}</p></${Card}>`;
  if (!found)
    return html`<${Card} title="Importance of parameters" end=${pick}><${Empty} title="Computing …">This takes some seconds.</${Empty}></${Card}>`;
  if (found.reason)
    return html`<${Card} title="Importance of parameters" end=${pick}><${Empty} title="No result yet">${found.reason}.</${Empty}></${Card}>`;
  const linked = name === "default" ? "The metric" : name;
  const hasIntervals = found.importances.some(({ low }) => low !== null);
  const top = found.importances.slice(0, 2).map(({ parameter }) => `p.${parameter}`);
  const height = Math.max(160, 44 + 34 * found.importances.length);
  const subject = metricWord(name) === "metric" ? "the metric" : name;
  const lines = " A line shows where nine of ten values lie that are computed from random samples of these trials.";
  const words = WORDS[found.method] ?? found.method;
  const note = `For ${subject}. ${words}. From ${count(found.trials)} trials.${hasIntervals ? lines : ""}`;
  return html`<div class="stack">
    <${ChartCard} title="Importance of parameters" name="importance" controls=${pick} deps=${[found]} height=${height}
      draw=${() => option(found.importances)} note=${note}
      data=${() => ({ header: ["parameter", "importance", "low", "high"], rows: found.importances.map((one) => [one.parameter, one.importance, one.low, one.high]) })} />
    ${top.length === 2 && html`<p><a href=${contourOf(top, name)}>${linked} over the two most important parameters of ${profile.value?.name || "this experiment"}</a></p>`}
  </div>`;
}

/**
 * The address of the contour plot of an objective over two fields.
 * @param {string[]} fields
 * @param {string} objective
 */
function contourOf([x, y], objective) {
  const shared = filterQuery(route.value.query);
  return href("charts/contour", new URLSearchParams([...shared, ["x", x], ["y", y], ["objective", objective]]));
}

/** @param {number} share */
const percent = (share) => `${(100 * share).toFixed(2)} %`;

/**
 * @param {Found["importances"]} shares
 * @returns {Option}
 */
function option(shares) {
  const c = colours();
  const order = [...shares].reverse();
  return {
    ...base(),
    grid: plotArea({ right: 28, top: 4 }),
    xAxis: axis({
      type: "value",
      scale: false,
      axisLabel: { formatter: (/** @type {number} */ share) => `${Math.round(share * 100)} %` },
    }),
    yAxis: axis({
      type: "category",
      data: order.map(({ parameter }) => parameter),
      splitLine: { show: false },
      axisLabel: {
        color: c.text,
        fontSize: 12.5,
        formatter: (/** @type {string} */ name, /** @type {number} */ place) =>
          `${clipped(name)}  ${(100 * order[place].importance).toFixed(1)} %`,
      },
    }),
    series: [
      {
        type: "bar",
        barMaxWidth: 20,
        data: order.map(({ importance }) => importance),
        itemStyle: { color: c["series-1"], borderRadius: [0, 4, 4, 0] },
        tooltip: {
          formatter: ({ name, value, dataIndex }) => {
            const { low, high } = order[dataIndex];
            /** @type {[string, string][]} */
            const between = low === null || high === null ? [] : [["interval", `${percent(low)} to ${percent(high)}`]];
            return tip(name, [["importance", percent(value)], ...between]);
          },
        },
      },
      {
        type: "custom",
        encode: { x: [0, 2], y: 1 }, // the axis reaches to the ends of all lines
        silent: true,
        z: 3,
        data: order.flatMap(({ low, high }, place) => (low === null || high === null ? [] : [[low, place, high]])),
        renderItem: (_, api) => {
          const [left, y] = api.coord([api.value(0), api.value(1)]);
          const [right] = api.coord([api.value(2), api.value(1)]);
          const style = { stroke: c.text, lineWidth: 1.4, fill: "none" };
          const shape = {
            points: [
              [left, y - 4],
              [left, y + 4],
              [left, y],
              [right, y],
              [right, y - 4],
              [right, y + 4],
            ],
          };
          return { type: "polyline", shape, style };
        },
      },
    ],
  };
}
