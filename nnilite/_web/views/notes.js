// What a person should know: about the results, options that have no effect, and what has not been sent yet.

import { plural } from "../lib/format.js";
import { html } from "../lib/ui.js";
import { Card } from "../parts/layout.js";

/** @import { Experiment as Profile, Backlog } from "../lib/wire.d.ts" */

/** @param {{ known: Profile }} props */
export function Notes({ known }) {
  const owed = known.owed.map(owedSentence).filter(Boolean);
  const ignored = known.withoutEffect;
  const notices = known.notices;
  if (!owed.length && !ignored.length && !notices.length) return null;
  return html`<${Card} title="Notes" class="c4">
    <table class="plain"><tbody>
      ${notices.map((sentence) => html`<tr key=${sentence} data-state="WAITING"><td><${Kind} name="note" /><div>${sentence}</div></td></tr>`)}
      ${owed.map((sentence) => html`<tr key=${sentence} data-state="WAITING"><td><${Kind} name="not sent yet" /><div>${sentence}</div></td></tr>`)}
      ${ignored.map((sentence) => html`<tr key=${sentence} data-state="UNKNOWN"><td><${Kind} name="no effect" /><div>${sentence}</div></td></tr>`)}
    </tbody></table>
  </${Card}>`;
}

/** @param {{ name: string }} props */
const Kind = ({ name }) =>
  html`<span class="row" style=${{ gap: "6px" }}><i class="dot" aria-hidden="true" /><span class="soft small">${name}</span></span>`;

/**
 * What a tracker or webhook still has to get; "" if nothing.
 * @param {Backlog} owed
 */
export function owedSentence({ name, trials, results, messages }) {
  /** @type {[number, string][]} */
  const counts = [
    [trials, "trial"],
    [results, "result"],
    [messages, "message"],
  ];
  const parts = counts.filter(([count]) => count).map(([count, what]) => plural(count, what));
  return parts.length ? `${name} waits for ${parts.join(" and ")}` : "";
}
