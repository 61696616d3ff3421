// All attempts of all trials, read in pages, and again while some of them run.

import { messageOf } from "../parts/toasts.js";
import { get } from "./api.js";
import { connection } from "./live_data.js";
import { useEffect, useState } from "./ui.js";

/** @import { AttemptRow, RowPage } from "./wire.d.ts" */

const PAGE = 20_000;
const EVERY_MS = 3000;

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
    /** @type {string | null} everything up to here has ended */
    let settled = null;
    const read = async () => {
      try {
        let after = settled;
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
        const open = [...kept.values()].filter((one) => one.ended === null).map((one) => one.sequence);
        const first = Math.min(...open);
        if (!open.length) settled = after;
        else settled = first > 0 ? `${first - 1}-9999999999` : null;
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
