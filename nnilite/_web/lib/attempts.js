// All attempts of all trials, read in pages, and again while some of them run.

import { messageOf } from "../parts/toasts.js";
import { get } from "./api.js";
import { connection, trials } from "./live_data.js";
import { hasEnded } from "./trials.js";
import { useEffect, useState } from "./ui.js";

/** @import { Trial } from "./trials.js" */
/** @import { AttemptRow, RowPage } from "./wire.d.ts" */

const PAGE = 20_000;
const EVERY_MS = 3000;

/**
 * Whether nothing more comes of a trial's present attempt, as far as is known. One that has ended may be tried again.
 * @param {Trial} trial
 * @param {AttemptRow} [attempt]
 */
const isSettled = (trial, attempt) => (attempt ? attempt.ended !== null : hasEnded(trial) && trial.started === null);

/**
 * From where to read on: from the first trial of which more may come, or from where the last page has ended.
 * @param {Map<string, AttemptRow>} kept
 * @param {string | null} end
 */
function beginOf(kept, end) {
  const open = [...kept.values()].filter((one) => one.ended === null).map((one) => one.sequence);
  const other = trials().find((trial) => !isSettled(trial, kept.get(`${trial.id} ${trial.attempt}`)));
  const first = Math.min(other?.sequence ?? Infinity, ...open);
  if (end === null || first > Number(end.split("-")[0])) return end;
  return first > 0 ? `${first - 1}-9999999999` : null;
}

/**
 * The attempts so far, null before the first answer, and why they cannot be read.
 * @param {boolean} [wanted] nothing is read without it
 */
export function useAttempts(wanted = true) {
  const [attempts, setAttempts] = useState(/** @type {AttemptRow[] | null} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (!wanted) return;
    let gone = false;
    let timer = 0;
    /** @type {Map<string, AttemptRow>} */
    const kept = new Map();
    /** @type {string | null} */
    let end = null;
    const read = async () => {
      try {
        let after = beginOf(kept, end);
        for (;;) {
          /** @type {RowPage} */
          const page = await get("rows/attempts", { after, limit: PAGE });
          for (const row of page.rows) {
            const cells = Object.fromEntries(page.columns.map((name, place) => [name, row[place]]));
            const one = /** @type {AttemptRow} */ (/** @type {unknown} */ (cells));
            kept.set(`${one.trial} ${one.number}`, one);
          }
          after = page.next ?? after;
          if (gone || page.count < PAGE) break;
        }
        end = after;
        if (!gone) setAttempts([...kept.values()]);
        setProblem("");
      } catch (error) {
        if (!gone) setProblem(messageOf(error));
      }
      if (!gone) timer = setTimeout(read, EVERY_MS);
    };
    read();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [connection.value.state, wanted]);
  return { attempts, problem };
}
