// Small crosses for what is never the best: trials that failed, and results that violate a constraint.

import { trialById } from "../lib/live_data.js";
import { colours } from "./chart.js";

/** @import { Trial } from "../lib/trials.js" */

/**
 * The style of a series of crosses, or of a point.
 * @param {string} [colour]
 */
export const crossed = (colour = colours().soft) => ({
  symbol: "path://M-4,-4L4,4M4,-4L-4,4",
  symbolSize: 7,
  itemStyle: { color: "transparent", borderColor: colour, borderWidth: 1.5, opacity: 1 },
});

/**
 * What makes the point of a trial a cross if its result violates a constraint.
 * @param {Trial} trial
 */
export const crossedIf = ({ violates }) => (violates ? crossed() : {});

/**
 * The line of a tooltip that says what a trial's result violates; none for a feasible one.
 * @param {string} [id] of the trial
 * @returns {[string, string][]}
 */
export function violation(id) {
  const violates = id && trialById(id)?.violates;
  return violates ? [["violates", violates]] : [];
}
