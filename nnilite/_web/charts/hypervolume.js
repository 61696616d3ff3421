// How the front has grown: the hypervolume of all objectives, in the order in which the trials ended.

import { number, plural } from "../lib/format.js";
import { growth } from "../lib/hypervolume.js";
import { gains, goals, metricWord } from "../lib/objectives.js";
import { html, useMemo } from "../lib/ui.js";
import { axis, base, colours, plotArea, tip } from "../parts/chart.js";
import { ChartCard } from "../parts/chart_card.js";
import { stairs } from "../parts/stairs.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { Option, Series } from "../vendor/echarts.js" */

// With more, the volumes take longer than a second, which is too long for a page that follows an experiment.
const OBJECTIVES_MAX = 4;
const FRONT_MAX = 500;

/** @typedef {{ trial: Trial, reached: number[] }} Reached what a trial is worth in each objective */

/** @param {{ rows: Trial[], best: Trial[] }} props those that succeeded and are feasible, and those of them on the front */
export function Hypervolume({ rows, best }) {
  const wanted = goals.value;
  const names = Object.keys(wanted);
  const isTooMuch = names.length > OBJECTIVES_MAX || best.length > FRONT_MAX;
  const ended = isTooMuch ? [] : rows;
  // The results of an end never change: the same ends have the same volumes, however often there is news of others.
  const found = useMemo(() => volumesOf(ended), [JSON.stringify([wanted, ended.map(({ id, ended }) => [id, ended])])]);
  if (isTooMuch) {
    return html`<p class="note calm small" role="status">The hypervolume is drawn for up to ${OBJECTIVES_MAX} objectives and ${plural(FRONT_MAX, "trial")} on the front.
      Here it would take too long, with ${plural(names.length, "objective")} and ${plural(best.length, "trial")}.</p>`;
  }
  // One trial has nothing to be measured from, and numbers near the limit of what a computer can write have no product.
  if (found.volumes.length < 2 || !Number.isFinite(found.volumes.at(-1))) return null;
  const worst = names.map((name, place) => {
    const value = wanted[name] === "maximize" ? found.reference[place] : -found.reference[place];
    return `${metricWord(name)} ${number(value)}`;
  });
  return html`<${ChartCard} title="Hypervolume" name="hypervolume" height=${280} deps=${[found]} draw=${() => option(found)}
    note=${`How much of the space of objectives the front reaches, measured from the worst result in each: ${worst.join(", ")}.`}
    data=${() => ({
      header: ["succeeded trials", "trial", "hypervolume"],
      rows: found.reached.map(({ trial }, place) => [place + 1, trial.id, found.volumes[place]]),
    })} />`;
}

/** @param {Trial[]} ended those that succeeded */
function volumesOf(ended) {
  /** @type {Reached[]} */
  const reached = [...ended]
    .sort((a, b) => (a.ended ?? 0) - (b.ended ?? 0) || a.sequence - b.sequence)
    .flatMap((trial) => {
      const found = gains(trial, goals.value);
      return found === null ? [] : { trial, reached: found };
    });
  const reference = Object.keys(goals.value).map((_, place) =>
    reached.reduce((low, one) => Math.min(low, one.reached[place]), Infinity),
  );
  const points = reached.map((one) => one.reached);
  return { reached, reference, volumes: growth(points, reference) };
}

/**
 * @param {ReturnType<typeof volumesOf>} found
 * @returns {Option}
 */
function option({ reached, volumes }) {
  const colour = colours()["series-2"];
  const isStep = (/** @type {number} */ place) => place === 0 || volumes[place] !== volumes[place - 1];
  const steps = volumes.flatMap((volume, place) => (isStep(place) ? { volume, place } : []));
  /** @type {[number, number][]} the line goes on to the last trial */
  const line = [...steps, { volume: volumes[volumes.length - 1], place: volumes.length - 1 }].map(
    ({ volume, place }) => [place + 1, volume],
  );
  /** @type {Series["tooltip"]} */
  const tooltip = {
    formatter: ({ data: point }) =>
      tip(`Trial ${point.id}`, [
        ["succeeded trials", number(point.value[0])],
        ["hypervolume", number(point.value[1], 6)],
      ]),
  };
  return {
    ...base(),
    grid: plotArea(),
    xAxis: axis({
      type: "value",
      name: "succeeded trials",
      minInterval: 1,
      max: "dataMax",
      splitLine: { show: false },
    }),
    yAxis: axis({ type: "value", name: "hypervolume" }),
    series: [
      {
        type: "line",
        step: "end",
        symbol: "none",
        silent: true,
        lineStyle: { color: colour, width: 2 },
        data: stairs(line),
      },
      {
        type: "scatter",
        symbolSize: 6,
        itemStyle: { color: colour },
        data: steps.map(({ volume, place }) => ({ value: [place + 1, volume], id: reached[place].trial.id })),
        tooltip,
      },
    ],
  };
}
