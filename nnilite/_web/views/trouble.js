// Why trials failed, were tried again, succeeded with a remark on their reports, or wait; most frequent first.

import { useAttempts } from "../lib/attempts.js";
import { brief, count, plural } from "../lib/format.js";
import { profile, trialById, trials, version } from "../lib/live_data.js";
import { href } from "../lib/route.js";
import { html, useMemo, useState } from "../lib/ui.js";
import { Card } from "../parts/layout.js";

/** @import { AttemptRow } from "../lib/wire.d.ts" */

/** @typedef {{ key: string, reason: string, pattern: string, ending: Ending, times: number, same: boolean }} Group */

const SHOWN = 5;
const GAP = "…";
const NONE = "no reason given";

/**
 * A reason without what differs from trial to trial: numbers, ids and addresses. Exit codes and signals stay.
 * @param {string} reason
 */
export function folded(reason) {
  return reason.replace(
    /(exit code -?\d+|signal \d+)|0x[0-9a-f]+|\b(?=[0-9a-f-]*\d)[0-9a-f]{6,}(?:-[0-9a-f]{4,})*\b|(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|\d+/gi,
    (found, /** @type {string | undefined} */ kept) => (kept ? found : GAP),
  );
}

/**
 * The longest piece that all reasons of a group have: by it they are found in the table.
 * @param {string} pattern
 */
const longestPiece = (pattern) =>
  pattern
    .split(new RegExp(`[${GAP}\\n]`))
    .map((piece) => piece.trim())
    .reduce((best, piece) => (piece.length > best.length ? piece : best), "");

/** @typedef {"failed" | "succeeded, but" | "tried again"} Ending */

/** @param {AttemptRow[]} attempts */
function groupsOf(attempts) {
  /** @type {Map<string, Group>} */
  const found = new Map();
  /**
   * @param {Ending} ending
   * @param {string} why
   */
  const add = (ending, why) => {
    const reason = why || NONE;
    const pattern = folded(reason);
    const key = `${ending} ${pattern}`;
    const group = found.get(key) ?? { key, reason, pattern, ending, times: 0, same: true };
    group.times += 1;
    group.same &&= group.reason === reason;
    found.set(key, group);
  };
  for (const trial of trials()) {
    const failed = trial.state === "FAILED" || trial.state === "SYS_CANCELED";
    const isOdd = trial.state === "SUCCEEDED" && trial.reason;
    if (!failed && !isOdd) continue;
    add(failed ? "failed" : "succeeded, but", trial.reason);
  }
  for (const one of attempts) {
    const isBad = one.state === "FAILED" || one.state === "LOST";
    if (isBad && one.number < (trialById(one.trial)?.attempt ?? 0)) add("tried again", messageOfAttempt(one));
  }
  return [...found.values()].sort((a, b) => b.times - a.times);
}

/** @param {AttemptRow} one */
function messageOfAttempt({ state, message, exitCode }) {
  const why = message || (exitCode === null ? "" : `exit code ${exitCode}`);
  return state === "LOST" ? `lost${why && `: ${why}`}` : why;
}

export function Trouble() {
  // Attempts are read only if a trial has had more than one.
  const hasRetries = useMemo(() => trials().some(({ attempt }) => attempt > 0), [version.value]);
  const { attempts } = useAttempts(hasRetries);
  const groups = useMemo(() => groupsOf(attempts ?? []), [version.value, attempts]);
  const [all, setAll] = useState(false);
  const waiting = profile.value?.waiting ?? [];
  const more = groups.length - SHOWN;
  return html`<${Card} title="Failures and waiting" class="c4">
    ${!groups.length && !waiting.length && html`<p class="soft">No trial has failed, and none is waiting.</p>`}
    <table class="plain"><tbody>
      ${(all ? groups : groups.slice(0, SHOWN)).map((group) => html`<${Failure} key=${group.key} ...${group} />`)}
      ${waiting.map(
        ({
          reason,
          count: times,
        }) => html`<tr key=${`w${reason}`} data-state="WAITING"><td class="tight"><b>${count(times)}</b></td>
        <td><span class="row" style=${{ gap: "6px" }}><i class="dot" aria-hidden="true" /><span class="soft small">waiting</span></span>
        <a href=${href("trials", { state: "WAITING" })}>${reason || "for its turn"}</a></td></tr>`,
      )}
    </tbody></table>
    ${more > 0 && html`<button class="small quiet" onClick=${() => setAll(!all)}>${all ? "Show fewer" : `and ${plural(more, "more reason")}`}</button>`}
  </${Card}>`;
}

/** @type {Record<Ending, string>} the colour of each, by a state that has it */
const STATE_OF = { failed: "FAILED", "succeeded, but": "SUCCEEDED", "tried again": "LOST" };

/** @param {Group} props */
function Failure({ reason, pattern, ending, times, same }) {
  const words = same ? reason : longestPiece(pattern);
  const search = reason === NONE ? "" : words;
  const trialsOf = { state: ending === "failed" ? "FAILED,SYS_CANCELED" : "SUCCEEDED", q: search };
  const target = ending === "tried again" ? href("charts/timeline") : href("trials", trialsOf);
  return html`<tr data-state=${STATE_OF[ending]}><td class="tight"><b>${count(times)}</b></td>
    <td><span class="row" style=${{ gap: "6px" }}><i class="dot" aria-hidden="true" /><span class="soft small">${ending}</span></span>
    <a title=${same ? reason : `for example: ${reason}`} href=${target}>${brief(same ? reason : pattern)}</a></td></tr>`;
}
