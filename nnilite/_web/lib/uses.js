// What running trials use. It is asked for while somebody looks at it, and only then.

import { get } from "./api.js";
import { bytes } from "./format.js";
import { signal, useEffect } from "./ui.js";

/** @import { Trial } from "./trials.js" */
/** @import { GpuUse, TrialUsage } from "./wire.d.ts" */

const EVERY_MS = 10_000;
/** @type {Map<string, TrialUsage>} */
const NOTHING = new Map();

/** The last words on running trials, by trial. */
export const uses = signal(NOTHING);

/**
 * What a trial uses, if it runs and something is known.
 * @param {Trial} trial
 */
export function useOf({ id, state, attempt }) {
  const use = uses.value.get(id);
  return state === "RUNNING" && use?.attempt === attempt ? use : undefined;
}

/** @param {boolean} wanted whether what stands here shows them now */
export function useUses(wanted) {
  useEffect(() => {
    if (!wanted) return;
    let timer = 0;
    let gone = false;
    const ask = async () => {
      const told = document.hidden ? null : await answer();
      if (gone) return;
      if (told) uses.value = told;
      timer = setTimeout(ask, EVERY_MS);
    };
    ask();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [wanted]);
}

/** Nothing is known while the manager does not answer; that it does not, the page tells elsewhere. */
async function answer() {
  try {
    /** @type {{ uses: TrialUsage[] }} */
    const { uses: told } = await get("uses");
    return new Map(told.map((one) => [one.trial, one]));
  } catch {
    return NOTHING;
  }
}

/** @param {number} busy */
export const processors = (busy) => busy.toFixed(busy < 10 ? 2 : 1);

/** @param {GpuUse} gpu */
export function gpuText({ index, percent, memoryUsed, memoryTotal }) {
  const memory = memoryTotal ? ` · memory ${bytes(memoryUsed)} of ${bytes(memoryTotal)}` : "";
  return `GPU ${index}${percent === null ? "" : ` ${percent} %`}${memory}`;
}
