// What the views share about trials: the fields that occur, and those that the address asks for.
import { fieldName, fieldsOf, matcher, readFilters } from "./filters.js";
import { profile, trials, version } from "./live_data.js";
import { route } from "./route.js";
import { computed } from "./ui.js";

/** @import { Space, TrialState } from "./wire.d.ts" */

/**
 * What the search space says of a parameter, by its dotted name. Those of an option stand below the nested choice, and
 * a name may have dots of its own. Where several options have a parameter of this name, the first one speaks for all.
 * @param {string} name
 * @param {any} [space] of any depth, and written by people
 * @returns {Partial<Space> | undefined}
 */
export function spaceOf(name, space = profile.value?.searchSpace) {
  if (!space || typeof space !== "object") return undefined;
  if (Object.hasOwn(space, name)) return space[name];
  for (let dot = name.indexOf("."); dot > 0; dot = name.indexOf(".", dot + 1)) {
    const outer = Object.hasOwn(space, name.slice(0, dot)) && space[name.slice(0, dot)];
    const options = Array.isArray(outer?._value) ? outer._value : [outer];
    for (const option of options) {
      const found = spaceOf(name.slice(dot + 1), option);
      if (found) return found;
    }
  }
  return undefined;
}

export const fields = computed(() => {
  void version.value;
  const found = fieldsOf(trials());
  for (const field of found.parameters) {
    if (spaceOf(field.field.slice(2))?._type === "choice") field.text = true; // numbers to choose from have no scale
  }
  return found;
});

export const filters = computed(() => readFilters(route.value.query));

export const filtered = computed(() => {
  void version.value;
  const { states, text, ranges, choices } = filters.value;
  if (!states.size && !text && !ranges.length && !choices.length) return trials();
  return trials().filter(matcher(filters.value));
});

export const stateCounts = computed(() => {
  void version.value;
  /** @type {Partial<Record<TrialState, number>>} */
  const counts = {};
  for (const trial of trials()) counts[trial.state] = (counts[trial.state] ?? 0) + 1;
  return counts;
});

/**
 * Whether a parameter is searched on a logarithmic scale, by its search space.
 * @param {string} name
 */
export function isLogarithmic(name) {
  const type = spaceOf(name)?._type;
  return typeof type === "string" && type.includes("log");
}

/**
 * The name of a parameter with its unit, where the search space gives one.
 * @param {string} field
 */
export function titleOf(field) {
  const name = fieldName(field);
  const unit = spaceOf(name)?._unit;
  return typeof unit === "string" && unit ? `${name} (${unit})` : name;
}
