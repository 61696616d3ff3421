// Whether chosen trials ran with the same code, packages and machine: by what was recorded at the manager's starts.

import { get } from "../lib/api.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { Difference } from "../parts/difference.js";
import { Card } from "../parts/layout.js";
import { messageOf } from "../parts/toasts.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { Json } from "../lib/wire.d.ts" */

/** @typedef {{ times: (number | null)[], start: Json }} Answer */

/**
 * The start of the manager after which a trial began; the first one for a trial from before its record.
 * @param {(number | null)[]} times seconds since the epoch, the latest last
 * @param {Trial} trial
 */
function startOf(times, { started }) {
  const place = started === null ? times.length - 1 : times.findLastIndex((time) => time !== null && time <= started);
  return Math.max(place, 0);
}

/**
 * @param {Trial[]} trials
 * @returns {Promise<{ starts: number[], records: Map<number, Json> }>} the start of each trial, and what was recorded there
 */
async function recordsOf(trials) {
  /** @param {number} start */
  const ask = (start) =>
    /** @type {Promise<Answer>} */ (get("provenance", { start: String(start), comparable: "true" }));
  const { times } = await ask(-1);
  const starts = times.length ? trials.map((trial) => startOf(times, trial)) : [];
  const places = [...new Set(starts)];
  const answers = await Promise.all(places.map(ask));
  return { starts, records: new Map(places.map((place, at) => [place, answers[at].start])) };
}

/** @param {{ trials: Trial[] }} props */
export function RanWith({ trials }) {
  const [found, setFound] = useState(/** @type {Awaited<ReturnType<typeof recordsOf>> | null} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let gone = false;
    recordsOf(trials).then(
      (one) => !gone && setFound(one),
      (error) => !gone && setProblem(messageOf(error)),
    );
    return () => {
      gone = true;
    };
  }, [trials.map(({ id, started }) => `${id} ${started}`).join()]);
  if (problem) return html`<p class="note bad" role="alert">${problem}</p>`;
  if (!found || trials.length < 2 || found.starts.length !== trials.length) return null;
  const title = "Code, packages and machine";
  if (found.records.size < 2)
    return html`<${Card} title=${title}><p>They ran after the same start of the manager, with what the${" "}
      <a href="#/experiment/ran">record of what ran</a> says.</p></${Card}>`;
  return html`<${Difference} title=${title} found=${trials.map(({ id }, place) => ({
    id,
    title: id,
    content: found.records.get(found.starts[place]) ?? null,
  }))} />`;
}
