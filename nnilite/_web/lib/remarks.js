// What people have written about trials: tags and notes. The stream tells of changes; after a break, what is later than
// the last revision is read.

import { get } from "./api.js";

/** @import { TrialRemarks } from "./wire.d.ts" */

const PAGE = 1000;

/** @type {Map<string, TrialRemarks>} by trial */
const byTrial = new Map();
let last = 0;

/** @param {string} trial */
export const remarksOf = (trial) => byTrial.get(trial) ?? { trial, tags: [], note: "", revision: 0 };

/** All tags that trials have, in the order of the alphabet. */
export const allTags = () => [...new Set([...byTrial.values()].flatMap((one) => one.tags))].sort();

/** @param {TrialRemarks} remarks */
export function putRemarks(remarks) {
  if (remarks.revision >= remarksOf(remarks.trial).revision) byTrial.set(remarks.trial, remarks);
}

/** Read what is new. What the stream tells moves no end: another program may have written before it, unheard. */
export async function readRemarks() {
  for (;;) {
    /** @type {{ remarks: TrialRemarks[] }} */
    const { remarks } = await get("remarks", { after: last, limit: PAGE });
    for (const one of remarks) putRemarks(one);
    last = remarks.at(-1)?.revision ?? last;
    if (remarks.length < PAGE) return;
  }
}
