// What the search is for: its objectives with their directions, and the trials that no other one beats.

import { fields } from "./filtered.js";
import { profile, trials, version } from "./live_data.js";
import { route } from "./route.js";
import { objective, scored } from "./trials.js";
import { computed } from "./ui.js";

/** @import { Trial } from "./trials.js" */

/** @typedef {Record<string, string>} Goals maximize or minimize, by the name of a number in the final results */

/** @type {Goals} */
const DEFAULT = { default: "maximize" };

export const goals = computed(() => profile.value?.objectives ?? DEFAULT);

// Whether there is a front in place of one best trial.
export const isSeveral = computed(() => Object.keys(goals.value).join() !== "default");

// The numbers of the final results by their names, the objectives first.
export const metricNames = computed(() => {
  void version.value;
  const names = new Set(Object.keys(goals.value));
  if (trials().some((trial) => trial.score !== null)) names.add("default");
  for (const { field } of fields.value.metrics) names.add(field.slice(2));
  return [...names];
});

/**
 * The number that a view is about: the one that the address asks for, or the first objective.
 * @param {string} [key] of the address
 */
export function askedMetric(key = "objective") {
  const asked = route.value.query.get(key);
  return asked && metricNames.value.includes(asked) ? asked : metricNames.value[0];
}

/**
 * maximize or minimize; null for a number that is no objective.
 * @param {string} name
 */
export const goalOf = (name) => goals.value[name] ?? null;

/** @param {string} name */
export const metricWord = (name) => (name === "default" ? "metric" : name);

/**
 * The ids of the best trial and of the one in the middle, by `default` or the first objective; [] where there are fewer than three.
 * @param {Trial[]} all
 */
export function bestAndMedian(all) {
  const name = "default" in goals.value ? "default" : Object.keys(goals.value)[0];
  const sign = goals.value[name] === "minimize" ? 1 : -1;
  const found = scored(all, name).filter(({ violates }) => !violates);
  found.sort((a, b) => (a.score - b.score) * sign || a.sequence - b.sequence);
  return found.length < 3 ? [] : [found[0].id, found[Math.floor(found.length / 2)].id];
}

/**
 * What a trial is worth in each objective, more is better; null if it has no number for one of them.
 * @param {Trial} trial
 * @param {Goals} wanted
 */
export function gains(trial, wanted) {
  const found = [];
  for (const [name, goal] of Object.entries(wanted)) {
    const value = objective(trial.value, name);
    if (value === null) return null;
    found.push(goal === "maximize" ? value : -value);
  }
  return found;
}

/**
 * The succeeded trials that are feasible and that no other one beats, the best in the first objective first: as `nnictl trial ls --front`.
 * @param {Trial[]} all
 * @param {Goals} wanted
 */
export function front(all, wanted) {
  const points = all.flatMap((trial) => {
    const reached = trial.state === "SUCCEEDED" && !trial.violates ? gains(trial, wanted) : null;
    return reached === null ? [] : { trial, reached };
  });
  points.sort((a, b) => {
    const place = a.reached.findIndex((value, index) => value !== b.reached[index]);
    return place < 0 ? 0 : b.reached[place] - a.reached[place];
  });
  /** @type {typeof points} */
  const kept = [];
  for (const point of points) {
    const isCovered = kept.some((other) => other.reached.every((value, index) => value >= point.reached[index]));
    if (!isCovered) kept.push(point);
  }
  return kept.map(({ trial }) => trial);
}
