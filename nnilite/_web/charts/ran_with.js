// Whether chosen trials ran with the same code, packages and machine: by what was recorded at the manager's starts.

import { get } from "../lib/api.js";
import { connection } from "../lib/live_data.js";
import { html } from "../lib/ui.js";
import { useAnswer } from "../parts/answer.js";
import { Difference } from "../parts/difference.js";
import { Card } from "../parts/layout.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { Attempt, Json } from "../lib/wire.d.ts" */

/** @typedef {{ hosts: Record<string, number>, python: string, executable: string, packages: Record<string, string> }} Worker */
/** @typedef {{ times: (number | null)[], start: Record<string, Json> | null, workers: Worker[] }} Answer */

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
 * What a trial ran with on its host, by what was said there; undefined where that is unknown, or the same everywhere.
 * @param {Worker[]} workers
 * @param {Trial} trial
 */
async function workerOf(workers, { id }) {
  if (workers.length < 2) return undefined;
  /** @type {{ attempts: Attempt[] }} */
  const { attempts } = await get(`trials/${id}`);
  const host = attempts.at(-1)?.host ?? "";
  return workers.find(({ hosts }) => host in hosts);
}

/** @param {Worker} worker */
const withoutHosts = ({ python, executable, packages }) => ({ python, executable, packages });

/**
 * @param {Trial[]} trials
 * @returns {Promise<Json[]>} what each trial ran with; the same object for those that ran with the same
 */
async function contentsOf(trials) {
  /** @param {number} start */
  const ask = (start) =>
    /** @type {Promise<Answer>} */ (get("provenance", { start: String(start), comparable: "true" }));
  const { times, workers } = await ask(-1);
  const starts = times.length ? trials.map((trial) => startOf(times, trial)) : [];
  const places = [...new Set(starts)];
  const answers = await Promise.all(places.map(ask));
  const found = await Promise.all(trials.map((trial) => workerOf(workers, trial)));
  /** @type {Map<string, Json>} */
  const known = new Map();
  return starts.map((start, number) => {
    const worker = found[number];
    const key = `${start} ${worker ? workers.indexOf(worker) : ""}`;
    if (!known.has(key)) {
      // What all workers together have is of no use for a single trial.
      const { workers: _, ...ran } = answers[places.indexOf(start)].start ?? {};
      known.set(key, worker ? { ...ran, worker: withoutHosts(worker) } : ran);
    }
    return known.get(key) ?? null;
  });
}

/** @param {{ trials: Trial[] }} props */
export function RanWith({ trials }) {
  const { found, problem } = useAnswer(
    () => contentsOf(trials),
    [trials.map(({ id, started }) => `${id} ${started}`).join(), connection.value.state],
  );
  if (problem) return html`<p class="note bad" role="alert">${problem}</p>`;
  if (!found || trials.length < 2 || found.length !== trials.length) return null;
  const title = "Code, packages and machine";
  if (new Set(found).size < 2)
    return html`<${Card} title=${title}><p>They ran after the same start of the manager, with what the${" "}
      <a href="#/experiment/ran">record of what ran</a> says.</p></${Card}>`;
  return html`<${Difference} title=${title} found=${trials.map(({ id }, place) => ({ id, title: id, content: found[place] }))} />`;
}
