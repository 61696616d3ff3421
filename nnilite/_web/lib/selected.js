// Trials that are ticked in the table: for comparing, killing and running again.
import { signal } from "./ui.js";

/** @import { Signal } from "../vendor/signals.js" */

/** @type {Signal<Set<string>>} ids of trials */
export const selected = signal(new Set());

/** @param {string} id */
export function toggleSelected(id) {
  const next = new Set(selected.value);
  if (!next.delete(id)) next.add(id);
  selected.value = next;
}
