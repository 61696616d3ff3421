// Parallel coordinates: every trial a line through its parameters and its metric. Dragging along an axis chooses lines.

import { fields, isLogarithmic, titleOf } from "../lib/filtered.js";
import { drawn, fieldName, fieldValue } from "../lib/filters.js";
import { clipped, number, plural } from "../lib/format.js";
import { version } from "../lib/live_data.js";
import { askedMetric, goalOf, metricWord } from "../lib/objectives.js";
import { decode, href, route, setQuery } from "../lib/route.js";
import { COMPARED_MAX, selected } from "../lib/ticks.js";
import { isStopped } from "../lib/trials.js";
import { html, useMemo, useRef, useState } from "../lib/ui.js";
import { base, colours } from "../parts/chart.js";
import { ChartCard, MetricPick, TrialChip } from "../parts/chart_card.js";
import { Pop } from "../parts/layout.js";
import { logAxis } from "../parts/log_scale.js";
import { NoParameters, NoResults } from "../parts/no_results.js";
import { reached, withStopped } from "../parts/stopped_trials.js";

/** @import { Parameter } from "../lib/filters.js" */
/** @import { FlatValue, Trial } from "../lib/trials.js" */
/** @import { Chart as Drawn, Option } from "../vendor/echarts.js" */

/** @typedef {{ trial: Trial, score: number }} Line */

const LINES_MAX = 4000;

/** @param {{ rows: Trial[] }} props */
export default function Parallel({ rows }) {
  const query = route.value.query;
  const name = askedMetric();
  const share = Number(query.get("top") ?? 100);
  const [brushed, setBrushed] = useState(/** @type {Trial[] | null} */ (null));
  const latest = useRef(/** @type {Line[]} */ ([]));
  const all = drawn(fields.value.parameters);
  const wanted = query.get("axes")?.split(",").map(decode) ?? all.slice(0, COMPARED_MAX).map(({ field }) => field);
  const axes = wanted.flatMap((field) => all.find((one) => one.field === field) ?? []);
  const best = useMemo(() => bestOf(rows, name, share), [rows, name, share, withStopped(), version.value]);
  const lines = useMemo(() => thin(best), [best]);
  latest.current = lines;
  if (!lines.length) return html`<${NoResults} />`;
  if (!all.length) return html`<${NoParameters} />`;
  /** @param {string} field */
  const toggle = (field) => {
    const next = wanted.includes(field) ? wanted.filter((one) => one !== field) : [...wanted, field];
    setQuery({ axes: next.map(encodeURIComponent).join(",") });
  };
  const controls = html`
    <${MetricPick} value=${name} />
    <label class="inline"><span>Best ${share} %</span><input type="range" min="1" max="100" value=${share} aria-label="Share of the best trials, in percent"
      onInput=${(event) => setQuery({ top: event.target.value === "100" ? null : event.target.value })} /></label>
    <${Pop} label="Axes" icon="columns"><div class="stack" style=${{ gap: "4px" }}>${all.map(
      ({ field }) => html`<label class="inline" key=${field}>
      <input type="checkbox" checked=${wanted.includes(field)} onChange=${() => toggle(field)} />${fieldName(field)}</label>`,
    )}</div></${Pop}>`;
  const events = {
    /**
     * @param {unknown} _
     * @param {Drawn} chart
     */
    axisareaselected: (_, chart) => {
      const picked = chart.getModel().getSeries()[0].getRawIndicesByActiveState("active");
      const chosen = new Set(picked.flatMap((index) => latest.current[index]?.trial ?? []));
      setBrushed(picked.length === latest.current.length || !chosen.size ? null : [...chosen]);
    },
  };
  const note =
    lines.length < best.length
      ? `Every ${Math.ceil(best.length / LINES_MAX)}th of ${plural(best.length, "trial")} is drawn.`
      : "Drag along an axis to select lines; click on the axis to clear the selection.";
  return html`<div class="stack">
    <${ChartCard} title="Parallel coordinates" name="parallel" height=${460} minWidth=${160 + 90 * (axes.length + 1)} controls=${controls} deps=${[lines, wanted.join()]} events=${events}
      draw=${() => option(lines, axes, name)} note=${note}
      data=${() => ({
        header: ["trial", ...axes.map(({ field }) => fieldName(field)), name],
        rows: best.map(({ trial, score }) => [trial.id, ...axes.map(({ field }) => fieldValue(trial, field)), score]),
      })} />
    ${brushed && html`<${Brushed} trials=${brushed} name=${name} />`}
  </div>`;
}

/**
 * @param {Trial[]} rows
 * @param {string} name
 * @param {number} share
 */
function bestOf(rows, name, share) {
  /** @type {Line[]} */
  const found = rows.flatMap((trial) => {
    const score = reached(trial, name);
    return score === null ? [] : { trial, score };
  });
  const sign = goalOf(name) === "minimize" ? -1 : 1;
  found.sort((a, b) => (a.score - b.score) * sign); // the best last, so that they are drawn over the others
  return share >= 100 ? found : found.slice(-Math.max(1, Math.round((found.length * share) / 100)));
}

/**
 * Not more than can be drawn, with the best one, which is the last.
 * @param {Line[]} found
 */
export const thin = (found) => {
  const step = Math.ceil(found.length / LINES_MAX);
  return step <= 1 ? found : found.filter((_, place) => (found.length - 1 - place) % step === 0);
};

/** @param {{ trials: Trial[], name: string }} props */
function Brushed({ trials, name }) {
  const sorted = bestOf(trials, name, 100).reverse();
  return html`<section class="card" aria-label="Chosen lines">
    <div class="card-head"><h2>${plural(trials.length, "trial")} chosen</h2>
      <div class="end"><button class="small" onClick=${() => {
        selected.clear();
        selected.set(
          trials.map(({ id }) => id),
          true,
        );
      }}>Select in the table</button>
      <a class="button" href=${href("charts/compare", {
        ids: sorted
          .slice(0, COMPARED_MAX)
          .map(({ trial }) => trial.id)
          .join(","),
      })}>Compare the best</a></div></div>
    <div class="row">${sorted.slice(0, 24).map(({ trial, score }) => html`<${TrialChip} key=${trial.id} id=${trial.id} value=${number(score)} />`)}</div>
  </section>`;
}

/**
 * @param {Line[]} lines
 * @param {Parameter[]} axes
 * @param {string} name
 * @returns {Option}
 */
function option(lines, axes, name) {
  const c = colours();
  const heat = [0, 1, 2, 3, 4].map((step) => c[`heat-${step}`]); // by rank: a few wild results must not make all others look alike
  const text = { color: c.text, fontSize: 12.5 };
  const first = firstAxis(axes.length ? titleOf(axes[0].field) : "");
  return {
    ...base(),
    tooltip: { show: false },
    visualMap: {
      type: "continuous",
      dimension: axes.length + 1,
      min: 0,
      max: 1,
      calculable: false,
      right: 0,
      top: 60,
      itemHeight: 260,
      itemWidth: 12,
      inRange: { color: heat },
      textStyle: { color: c.soft },
      text: ["best", "worst"],
    },
    parallel: {
      left: first.left,
      right: 110,
      top: 40,
      bottom: 24,
      parallelAxisDefault: {
        nameTextStyle: text,
        nameGap: 14,
        axisLine: { lineStyle: { color: c["line-strong"] } },
        axisTick: { lineStyle: { color: c["line-strong"] } },
        axisLabel: {
          color: c.soft,
          fontSize: 11,
          backgroundColor: c.card, // many lines would hide it
          padding: [1, 3],
          formatter: labelOf,
        },
        areaSelectStyle: { width: 18, borderColor: c.accent, color: c.accent, opacity: 0.2 },
      },
    },
    parallelAxis: [
      ...axes.map((field, dim) => ({ dim, name: dim ? titleOf(field.field) : first.name, ...scaleOf(field) })),
      { dim: axes.length, name: metricWord(name), type: "value", scale: true },
    ],
    series: [
      {
        type: "parallel",
        smooth: 0.15,
        inactiveOpacity: 0.04,
        activeOpacity: 0.9,
        lineStyle: { width: lines.length > 500 ? 1 : 1.6, opacity: lines.length > 500 ? 0.3 : 0.65 },
        data: lines.map(({ trial, score }, place) => ({
          value: [
            ...axes.map((field) => placeOf(trial, field)),
            score,
            lines.length > 1 ? place / (lines.length - 1) : 1,
          ],
          lineStyle: isStopped(trial) ? { type: "dashed" } : undefined,
        })),
      },
    ],
  };
}

/**
 * The first axis: its name is centred over it, so half of the name needs room to the left.
 * @param {string} title
 */
export function firstAxis(title) {
  const name = clipped(title, 16);
  return { name, left: Math.max(44, Math.ceil(name.length * 4.5)) };
}

const NONE = "none";

/** @param {FlatValue} value at an axis, whose room ends at the next one */
export const labelOf = (value) => (typeof value === "number" ? number(value, 3) : clipped(String(value), 16));

/**
 * Below all values of an axis, where the lines of trials go that have no such parameter; null if all trials have it.
 * @param {Parameter} parameter
 */
function floorOf({ field, low, high, partial }) {
  if (!partial) return null;
  if (low > 0 && isLogarithmic(fieldName(field))) return low * (low / high) ** 0.15;
  return low - 0.15 * (high - low || 1);
}

/**
 * Where a trial's line meets an axis.
 * @param {Trial} trial
 * @param {Parameter} parameter
 */
function placeOf(trial, parameter) {
  const value = fieldValue(trial, parameter.field);
  if (parameter.text) return value === null ? NONE : String(value);
  return value ?? floorOf(parameter);
}

/**
 * A logarithmic scale with labels at round numbers.
 * @param {number} low
 * @param {number} high
 */
function ticksOf(low, high) {
  /** @type {Option} */
  const { type, min, max, axisLabel } = logAxis(low, high);
  return { type, min, max, axisLabel: { .../** @type {Option} */ (axisLabel), fontSize: 11 } };
}

/** @param {Parameter} parameter */
export function scaleOf(parameter) {
  const { field, text, low, high, values, partial, whole } = parameter;
  if (text) return { type: "category", data: [...(partial ? [NONE] : []), ...values.map(String)] };
  const log = low > 0 && isLogarithmic(fieldName(field));
  const floor = floorOf(parameter);
  const scale = log ? { type: "log" } : { type: "value", scale: true, minInterval: whole ? 1 : 0 };
  if (floor === null) return log ? ticksOf(low, high) : scale;
  const formatter = (/** @type {number} */ one) => {
    if (one <= floor) return NONE;
    return one < low * (1 - 1e-9) ? "" : number(one, 3);
  };
  return { ...scale, min: floor, axisLabel: { color: colours().soft, fontSize: 11, formatter } };
}
