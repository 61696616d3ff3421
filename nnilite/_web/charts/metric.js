// The metric of all trials, over their number or their end, and how it is distributed.

import { clock, number } from "../lib/format.js";
import { trials, version } from "../lib/live_data.js";
import { askedMetric, goalOf, metricWord } from "../lib/objectives.js";
import { route, setQuery } from "../lib/route.js";
import { isBetter, isStopped } from "../lib/trials.js";
import { html, useMemo } from "../lib/ui.js";
import { axis, base, colours, plotArea, tip } from "../parts/chart.js";
import { ChartCard, MetricPick, Pick } from "../parts/chart_card.js";
import { crossedIf, violation } from "../parts/crosses.js";
import { isLog, LogScale, leftOut, resultAxis, shown } from "../parts/log_scale.js";
import { NoResults } from "../parts/no_results.js";
import { stairs } from "../parts/stairs.js";
import { hollow, reached, withStopped } from "../parts/stopped_trials.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { Option, Series } from "../vendor/echarts.js" */

/** @typedef {{ trial: Trial, x: number, y: number }} Point */

const BINS = 30;
/** @type {[string, string][]} */
const OVER = [
  ["sequence", "number"],
  ["ended", "time"],
];

/** What all trials had cost when each one had ended, also those that the filters leave out. */
function spentBy() {
  let total = 0;
  /** @type {Map<string, number>} */
  const found = new Map();
  for (const trial of [...trials()].sort((a, b) => (a.ended ?? Infinity) - (b.ended ?? Infinity))) {
    total += trial.cost ?? 0;
    if (trial.ended !== null) found.set(trial.id, total);
  }
  return found;
}

/**
 * Where each trial stands on the axis below; null for one that has no place there.
 * @param {string} over
 * @returns {(trial: Trial) => number | null}
 */
export function placesBy(over) {
  if (over === "sequence") return (trial) => trial.sequence;
  if (over !== "spent") return (trial) => trial.ended;
  const spent = spentBy();
  return (trial) => spent.get(trial.id) ?? null;
}

/** @param {{ rows: Trial[] }} props */
export default function Metric({ rows }) {
  const query = route.value.query;
  const name = askedMetric();
  const over = query.get("over") ?? "sequence";
  const points = useMemo(() => {
    const place = placesBy(over);
    /** @type {Point[]} */
    const found = rows.flatMap((trial) => {
      const y = reached(trial, name);
      const x = place(trial);
      return x === null || y === null ? [] : { trial, x, y };
    });
    return found.sort((a, b) => a.x - b.x);
  }, [rows, name, over, withStopped(), version.value]);
  if (!points.length) return html`<${NoResults} />`;
  const controls = html`
    <${MetricPick} value=${name} />
    <${Pick} label="over" value=${over} options=${rows.some(({ cost }) => cost !== null) ? [...OVER, ["spent", "cost so far"]] : OVER} set=${(next) => setQuery({ over: next })} />
    <${LogScale} />`;
  const values = points.map(({ y }) => y);
  const data = () => ({
    header: ["trial", "sequence", "ended", name],
    rows: points.map(({ trial, y }) => [trial.id, trial.sequence, trial.ended, y]),
  });
  return html`<div class="stack">
    <${ChartCard} title="Metric of each trial" name="metric" height=${400} controls=${controls} data=${data}
      draw=${() => scatter(points, name, over, goalOf(name))} deps=${[points, isLog()]} above=${leftOut(values, "result")} />
    <${ChartCard} title="Distribution of the metric" name="distribution" height=${220} deps=${[points]}
      draw=${() => histogram(values)} data=${() => binsTable(values)} />
  </div>`;
}

/**
 * @param {Point[]} points
 * @param {string} name
 * @param {string} over
 * @param {string | null} goal
 * @returns {Option}
 */
function scatter(points, name, over, goal) {
  const c = colours();
  const scale = over === "ended" ? 1000 : 1;
  /** @type {number | null} */
  let best = null;
  /** @type {[number, number | null][]} */
  const line = [];
  for (const { trial, x, y } of points) {
    if (!goal || isStopped(trial) || trial.violates || (best !== null && !isBetter(y, best, goal))) continue;
    best = y;
    line.push([x * scale, best]);
  }
  if (line.length) line.push([points[points.length - 1].x * scale, best]);
  /**
   * @param {Point[]} some
   * @param {Record<string, unknown>} itemStyle
   * @param {string} [how]
   * @returns {Series}
   */
  const pointsOf = (some, itemStyle, how = "") => ({
    type: "scatter",
    symbolSize: points.length > 2000 ? 4 : 8,
    large: some.length > 20_000,
    itemStyle: { ...itemStyle, opacity: points.length > 2000 ? 0.4 : 0.65 },
    data: some.flatMap(({ trial, x, y }) =>
      shown(y) === null ? [] : { value: [x * scale, y], id: trial.id, ...crossedIf(trial) },
    ),
    tooltip: {
      formatter: ({ data }) =>
        tip(`Trial ${data.id}${how}`, [
          [metricWord(name), number(data.value[1], 6)],
          over === "ended"
            ? ["ended", clock(data.value[0] / 1000)]
            : [over === "spent" ? "cost so far" : "number", number(data.value[0])],
          ...violation(data.id),
        ]),
    },
  });
  return {
    ...base(),
    grid: plotArea({ bottom: 30 }),
    dataZoom: [
      { type: "inside" },
      {
        type: "slider",
        height: 16,
        bottom: 4,
        borderColor: c.line,
        textStyle: { color: c.soft },
        showDetail: false,
        brushSelect: false,
      },
    ],
    xAxis: axis({
      type: over === "ended" ? "time" : "value",
      name: { ended: "end", spent: "cost so far" }[over] ?? "trial number",
      max: over === "spent" ? undefined : "dataMax",
      minInterval: over === "sequence" ? 1 : undefined,
      splitLine: { show: false },
    }),
    yAxis: resultAxis(
      points.map(({ y }) => y),
      { name: metricWord(name) },
    ),
    series: [
      pointsOf(
        points.filter(({ trial }) => !isStopped(trial)),
        { color: c["series-1"] },
      ),
      pointsOf(
        points.filter(({ trial }) => isStopped(trial)),
        hollow(),
        ", stopped early",
      ),
      {
        type: "line",
        step: "end",
        symbol: "none",
        silent: true,
        z: 3,
        lineStyle: { color: c["series-2"], width: 2.5 },
        data: stairs(line.map(([x, y]) => [x, shown(y)])),
      },
    ],
  };
}

/**
 * @param {number[]} values
 * @param {number} [wanted] how many
 */
export function bins(values, wanted = Math.max(5, Math.min(BINS, Math.ceil(2 * Math.sqrt(values.length))))) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const width = (high - low) / wanted || 1;
  const counts = new Array(wanted).fill(0);
  for (const value of values) counts[Math.min(wanted - 1, Math.floor((value - low) / width))] += 1;
  return { low, width, counts };
}

/** @param {number[]} values */
export function binsTable(values) {
  const { low, width, counts } = bins(values);
  return {
    header: ["from", "to", "trials"],
    rows: counts.map((count, place) => [low + place * width, low + (place + 1) * width, count]),
  };
}

/**
 * @param {number[]} values
 * @param {(value: number, digits?: number) => string} [format]
 * @returns {Option}
 */
export function histogram(values, format = number) {
  const c = colours();
  const { low, width, counts } = bins(values);
  return {
    ...base(),
    grid: plotArea({ top: 10 }),
    xAxis: axis({
      type: "category",
      data: counts.map((_, place) => format(low + (place + 0.5) * width, 3)),
      splitLine: { show: false },
    }),
    yAxis: axis({ type: "value", minInterval: 1, scale: false }),
    series: [
      {
        type: "bar",
        barCategoryGap: "8%",
        itemStyle: { color: c["series-1"], borderRadius: [3, 3, 0, 0] },
        data: counts,
        tooltip: {
          formatter: ({ dataIndex, value }) =>
            tip(`${format(low + dataIndex * width)} to ${format(low + (dataIndex + 1) * width)}`, [["trials", value]]),
        },
      },
    ],
  };
}
