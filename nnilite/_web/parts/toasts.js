// Sentences that appear for some seconds: what was done, and what went wrong.

import { html, signal } from "../lib/ui.js";
import { Icon } from "./icons.js";

/** @import { Signal } from "../vendor/signals.js" */

/**
 * What just happened, told once and to screen readers too.
 * @type {Signal<{ id: number, text: string, bad: boolean }[]>}
 */
const toasts = signal([]);
let counter = 0;

/**
 * @param {string} text
 * @param {boolean} [bad]
 */
export function say(text, bad = false) {
  counter += 1;
  const id = counter;
  toasts.value = [...toasts.value.slice(-3), { id, text, bad }];
  setTimeout(() => unsay(id), bad ? 12_000 : 4000);
}

/** @param {number} id */
const unsay = (id) => {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
};

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.value.map(
      ({ id, text, bad }) => html`<div class=${`toast ${bad ? "bad" : ""}`} key=${id}>
      <span>${text}</span>
      <button class="quiet small icon" aria-label="Dismiss" onClick=${() => unsay(id)}><${Icon} name="close" /></button>
    </div>`,
    )}
  </div>`;
}

/**
 * The sentence of what was caught.
 * @param {unknown} error
 */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * Calls `work` and says what went wrong, if anything did. Resolves to whether it went well.
 * @param {() => Promise<unknown>} work
 * @param {string} [done] what to say then
 */
export async function perform(work, done) {
  try {
    await work();
  } catch (error) {
    say(messageOf(error), true);
    return false;
  }
  if (done) say(done);
  return true;
}
