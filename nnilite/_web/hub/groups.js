// The rows of the list in groups: by tag if asked, by what is best if sorted by that, or all in one.

import { hasFront, mainObjective, sorted } from "./experiments.js";

/** @import { Experiment } from "./experiments.js" */

/** @typedef {{ key: string, title: string, rows: Experiment[] }} Group a group without a title has no heading */

const NO_TAG = "without a tag";
const GOALS = [
  ["maximize", "The highest result is best"],
  ["minimize", "The lowest result is best"],
  ["front", "Several objectives, none of them named default"],
  ["", "No result yet"],
];

/**
 * @param {Experiment[]} all
 * @param {string} column
 * @param {boolean} descending by best: the best first
 * @param {boolean} byTag an experiment with several tags stands under each of them
 * @returns {Group[]}
 */
export function groups(all, column, descending, byTag) {
  if (byTag) return tagGroups(all).map((group) => ({ ...group, rows: inOrder(group.rows, column, descending) }));
  if (column !== "best") return [{ key: "", title: "", rows: sorted(all, column, descending) }];
  return GOALS.map(([goal, title]) => ({
    key: goal,
    title,
    rows: sorted(
      all.filter((one) => goalOf(one) === goal),
      "best",
      (goal === "maximize") === descending,
    ),
  })).filter(({ rows }) => rows.length);
}

/**
 * @param {Experiment[]} rows
 * @param {string} column
 * @param {boolean} descending
 */
function inOrder(rows, column, descending) {
  return groups(rows, column, descending, false).flatMap((group) => group.rows);
}

/**
 * Whether the highest or the lowest number is best, or a front has taken the place of one best trial; "" without a result.
 * @param {Experiment} one
 */
function goalOf({ digest }) {
  if (digest === null) return "";
  if (hasFront(digest)) return "front";
  if (digest.best === null) return "";
  return digest.objectives[mainObjective(digest)] === "minimize" ? "minimize" : "maximize";
}

/**
 * @param {Experiment[]} all
 * @returns {Group[]}
 */
function tagGroups(all) {
  const tags = [...new Set(all.flatMap((one) => one.tags))].sort();
  const tagged = tags.map((tag) => ({
    key: `tag ${tag}`,
    title: tag,
    rows: all.filter((one) => one.tags.includes(tag)),
  }));
  const others = all.filter((one) => !one.tags.length);
  return others.length ? [...tagged, { key: "others", title: NO_TAG, rows: others }] : tagged;
}

/**
 * The first rows of the groups, `most` in all.
 * @param {Group[]} all
 * @param {number} most
 */
export function firstRows(all, most) {
  let left = most;
  /** @type {Group[]} */
  const found = [];
  for (const group of all) {
    const rows = group.rows.slice(0, left);
    left -= rows.length;
    if (rows.length) found.push({ ...group, rows });
  }
  return found;
}
