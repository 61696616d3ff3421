// Results on a logarithmic scale: asked for by the address, and told what it cannot show.

import { count, number, plural } from "../lib/format.js";
import { route, setQuery } from "../lib/route.js";
import { html } from "../lib/ui.js";
import { axis } from "./chart.js";

const FEW = 3; // ticks; with fewer, an axis says too little
const ROOM = 0.04; // of an axis, free at each end
const SAME = 1 + 1e-9; // values whose ratio is smaller are drawn as one

export const isLog = () => route.value.query.get("scale") === "log";

// A checkbox for the charts of a view.
export function LogScale() {
  return html`<label class="inline"><input type="checkbox" checked=${isLog()}
    onChange=${(/** @type {Event & { target: HTMLInputElement }} */ event) => setQuery({ scale: event.target.checked ? "log" : null })} /><span>Log scale</span></label>`;
}

/**
 * What a logarithmic scale cannot show of these, as a sentence; empty if it shows all.
 * @param {(number | null)[]} values
 * @param {string} noun for one of them
 */
export function leftOut(values, noun) {
  if (!isLog()) return "";
  const known = values.filter((one) => one !== null);
  const low = known.filter((one) => one <= 0).length;
  if (!low) return "";
  return `Not shown: ${count(low)} of ${plural(known.length, noun)}, which ${low === 1 ? "is" : "are"} 0 or less. A log scale cannot show ${low === 1 ? "it" : "them"}.`;
}

/**
 * A value, or null where the scale has no place for it.
 * @param {number | null} value
 */
export const shown = (value) => (isLog() && value !== null && value <= 0 ? null : value);

/**
 * The axis of results. A logarithmic one goes from the lowest to the highest of them and not to whole powers of ten,
 * between which results that are close to each other would be a single line.
 * @param {(number | null)[]} values
 * @param {Record<string, unknown>} [more]
 */
export function resultAxis(values, more = {}) {
  if (!isLog()) return axis({ type: "value", ...more });
  let [low, high] = [Infinity, 0];
  for (const value of values) {
    if (value === null || value <= 0) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return logAxis(low, high, more);
}

/**
 * A logarithmic axis from one value to another, with ticks at round numbers.
 * @param {number} low above 0
 * @param {number} high 0 if there are no values
 * @param {Record<string, unknown>} [more]
 */
export function logAxis(low, high, more = {}) {
  if (!high) return axis({ type: "log", min: 1, max: 10, ...more });
  const room = high / low < SAME ? 2 : (high / low) ** ROOM;
  const [min, max] = [Math.max(low / room, Number.MIN_VALUE), Math.min(high * room, Number.MAX_VALUE)];
  const texts = new Map(logTicks(min, max).map((value) => [value, number(value, 12)]));
  return placedAxis(texts, { type: "log", min, max, ...more });
}

/**
 * An axis with ticks at these values only.
 * @param {Map<number, string>} texts by the values
 * @param {Record<string, unknown>} more
 */
export function placedAxis(texts, more) {
  const customValues = [...texts.keys()];
  const longest = [...texts.values()].reduce((one, other) => (other.length > one.length ? other : one), "");
  /**
   * For the room of labels, ECharts measures those of ticks of its own, which it does not draw.
   * @param {number} value
   */
  const label = (value) => texts.get(value) ?? longest;
  return axis({
    axisTick: { show: false, customValues },
    axisLabel: { customValues, formatter: label },
    ...more,
  });
}

/**
 * Where a logarithmic axis has its ticks: at powers of ten, and closer together where there are too few of those.
 * @param {number} low above 0
 * @param {number} high
 * @returns {number[]}
 */
export function logTicks(low, high) {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const step = Math.max(Math.ceil((to - from) / 10), 1);
  for (const digits of [[1], [1, 3], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    const found = [];
    for (let power = from; power <= to; power += digits.length === 1 ? step : 1) {
      found.push(...digits.map((digit) => Number(`${digit}e${power}`)));
    }
    const inside = found.filter((one) => one >= low && one <= high);
    if (inside.length >= FEW) return inside;
  }
  return evenTicks(low, high);
}

/**
 * Round numbers, evenly spread.
 * @param {number} low
 * @param {number} high above it
 * @param {boolean} [whole] whether there is nothing between whole numbers
 */
export function evenTicks(low, high, whole = false) {
  const power = Math.floor(Math.log10((high - low) / FEW));
  const rough = (high - low) / FEW / 10 ** power;
  const digit = [5, 2].find((one) => rough >= one) ?? 1;
  const first = Math.ceil(low / 10 ** power / digit);
  /** @type {Set<number>} of numbers that are hardly apart, some are the same */
  const found = new Set();
  for (let tick = 0; tick <= 3 * FEW && (first + tick) * digit * 10 ** power <= high; tick++) {
    found.add(Number(`${(first + tick) * digit}e${power}`));
  }
  return whole ? [...found].filter(Number.isInteger) : [...found];
}
