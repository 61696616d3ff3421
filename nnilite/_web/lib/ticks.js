// What is ticked in a table, so that something can be done to all of it at once.
import { signal } from "./ui.js";

/** @import { Signal } from "../vendor/signals.js" */

/** How many trials can be read side by side. */
export const COMPARED_MAX = 12;

export class Ticks {
  constructor() {
    /** @type {Signal<ReadonlySet<string>>} */
    this.ids = signal(/** @type {ReadonlySet<string>} */ (new Set()));
    /** The row where a range begins: the last one that was ticked or unticked by itself. */
    this.start = "";
  }

  /** @param {string} id */
  has(id) {
    return this.ids.value.has(id);
  }

  /**
   * Tick a row, or untick it. With Shift, all rows from the last one on become like it.
   * @param {string} id
   * @param {string[]} [shown] ids of all rows, in their order; given if Shift is held
   */
  toggle(id, shown) {
    const isOn = !this.has(id);
    const [start, end] = [shown?.indexOf(this.start) ?? -1, shown?.indexOf(id) ?? -1];
    this.start = id;
    if (!shown || start < 0) this.set([id], isOn);
    else this.set(shown.slice(Math.min(start, end), Math.max(start, end) + 1), isOn);
  }

  /**
   * @param {string[]} ids
   * @param {boolean} isOn
   */
  set(ids, isOn) {
    const next = new Set(this.ids.value);
    for (const id of ids) isOn ? next.add(id) : next.delete(id);
    this.ids.value = next;
  }

  clear() {
    this.ids.value = new Set();
  }
}

/** Trials: for comparing, killing and running again. */
export const selected = new Ticks();
