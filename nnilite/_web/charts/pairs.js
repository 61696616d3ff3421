// Three and more objectives: the pairs of them that are not drawn yet, with the front of all.

import { plural } from "../lib/format.js";
import { goals } from "../lib/objectives.js";
import { html, useMemo } from "../lib/ui.js";
import { ObjectivePair } from "./objective_pair.js";

/** @import { Trial } from "../lib/trials.js" */

const OBJECTIVES_MAX = 6;
const POINTS_MAX = 5000; // in a chart, besides those on the front

/**
 * @typedef {object} PairsProps
 * @property {Trial[]} rows those that succeeded
 * @property {Trial[]} best those on the front of all objectives
 * @property {string[]} drawn the two objectives that another chart shows
 */

/** @param {PairsProps} props */
export function Pairs({ rows, best, drawn }) {
  const all = Object.keys(goals.value);
  const shown = useMemo(() => thinned(rows, best), [rows, best]);
  const names = all.slice(0, OBJECTIVES_MAX);
  const pairs = names.flatMap((x, place) => names.slice(place + 1).map((y) => ({ x, y })));
  const others = pairs.filter(({ x, y }) => !(drawn.includes(x) && drawn.includes(y)));
  if (!others.length) return null;
  return html`<div class="chart-grid">${others.map(
    ({ x, y }) =>
      html`<${ObjectivePair} key=${`${x} ${y}`} rows=${shown} best=${best} wanted=${goals.value} x=${x} y=${y} name=${`pareto-${x}-${y}`} height=${300} />`,
  )}</div>
  ${all.length > names.length && html`<p class="soft">The pairs of the first ${names.length} of ${plural(all.length, "objective")} are drawn.</p>`}`;
}

/**
 * Not more than a chart can show, with all that are on the front.
 * @param {Trial[]} rows
 * @param {Trial[]} best
 */
function thinned(rows, best) {
  const step = Math.ceil(rows.length / POINTS_MAX);
  const onFront = new Set(best);
  return step > 1 ? rows.filter((trial, place) => place % step === 0 || onFront.has(trial)) : rows;
}
