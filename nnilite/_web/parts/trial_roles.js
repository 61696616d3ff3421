// The processes of a distributed trial, or the pods of one with roles: how each does, and where its output is.

import { content, get } from "../lib/api.js";
import { brief, count, duration } from "../lib/format.js";
import { now, profile, version } from "../lib/live_data.js";
import { href } from "../lib/route.js";
import { hasEnded } from "../lib/trials.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { Card, Scroll } from "./layout.js";
import { ServedLink } from "./served_link.js";
import { State } from "./states.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { FileListing, Role } from "../lib/wire.d.ts" */

const BYTES_MAX = 4_000_000;
const ROWS_MAX = 1000;
const LOOK_S = 15;
const LOG_NAME = /^[\w-][\w.-]*$/;
const ENDED = ["SUCCEEDED", "FAILED", "CANCELED", "LOST"];
const WITH_ROLES = ["kubernetes", "kubeflow", "frameworkcontroller", "adl"];

/**
 * A worker writes the records, so anything that is not one is left out.
 * @param {string} text
 * @param {boolean} isOver whether the attempt is: then a role whose end was never recorded is lost
 * @returns {Role[]}
 */
function readRoles(text, isOver) {
  const found = JSON.parse(text);
  if (!Array.isArray(found)) return [];
  const roles = found.filter((one) => one !== null && typeof one === "object" && !Array.isArray(one));
  return roles.map((one) => (isOver && one.state === "RUNNING" ? { ...one, state: "LOST" } : one));
}

/** Trials of one process have no such records, and looking for them would be an error in the browser's console. */
function mayHaveRoles() {
  const config = profile.value?.config;
  const services = /** @type {{ platform: string }[]} */ ([config?.trainingService ?? []].flat());
  return Boolean(config?.distributed) || services.some((one) => WITH_ROLES.includes(one.platform));
}

/**
 * The records of the latest attempt. They are on the trial's machine if it is a distributed one.
 * @param {Trial} trial
 * @param {boolean} isOver
 */
async function fetchRoles(trial, isOver) {
  if (trial.started === null || !mayHaveRoles()) return [];
  const path = `${trial.attempt}/roles.json`;
  const isElsewhere = Boolean(profile.value?.config.distributed);
  /** @type {FileListing} */
  const { files } = await get(`trials/${trial.id}/files`, { fetch: String(isElsewhere) });
  if (!files.some((file) => file.path === path)) return [];
  const data = await content(`trials/${trial.id}/files/${path}`, BYTES_MAX);
  return readRoles(new TextDecoder().decode(data), isOver);
}

/**
 * Nothing is shown of a trial that is a single process.
 * @param {{ trial: Trial, attemptState: string | undefined }} props
 */
export function TrialRoles({ trial, attemptState }) {
  void version.value; // a trial is changed in place
  const [roles, setRoles] = useState(/** @type {Role[]} */ ([]));
  const isOver = ENDED.includes(attemptState ?? "");
  const turn = hasEnded(trial) ? 0 : Math.floor(now.value / LOOK_S);
  useEffect(() => {
    let gone = false;
    fetchRoles(trial, isOver).then(
      (found) => !gone && setRoles(found),
      // Its machine may be away: the rest of the trial is shown all the same, with what was known of its roles.
      () => {},
    );
    return () => {
      gone = true;
    };
  }, [trial.id, trial.state, trial.attempt, attemptState, turn]);
  if (roles.length === 0) return null;
  const areRanks = roles.every((one) => one.role === "rank");
  const starts = roles.some((one) => typeof one.start === "number" && one.start > 0);
  return html`<${Card} title=${areRanks ? "Ranks" : "Roles"} class="all">
    <${Scroll} label=${areRanks ? "Ranks" : "Roles"}><table class="plain">
      <thead><tr>${starts && html`<th>Start</th>`}<th>${areRanks ? "Rank" : "Role"}</th><th>Host</th><th>State</th><th>Exit</th><th class="number">Time</th><th>Output</th><th>Reason</th></tr></thead>
      <tbody>${roles.slice(0, ROWS_MAX).map(
        (one, place) => html`<tr key=${place}>
        ${starts && html`<td>${typeof one.start === "number" ? text(one.start + 1) : ""}</td>`}<td>${areRanks ? text(one.rank) : `${text(one.role)} ${text(one.rank)}`}</td><td>${text(one.host)}</td>
        <td><${State} state=${text(one.state)} /></td><td>${text(one.exitCode)}</td>
        <td class="number tight">${timeOf(one)}</td><td class="tight"><${Output} trial=${trial} role=${one} /></td>
        <td title=${text(one.reason)}>${brief(text(one.reason))}</td>
      </tr>`,
      )}</tbody>
    </table></${Scroll}>
    ${starts && html`<p class="soft small">${tellStarts(roles)}</p>`}
    ${roles.length > ROWS_MAX && html`<p class="soft small">The first ${count(ROWS_MAX)} of ${count(roles.length)}.</p>`}
  </${Card}>`;
}

/**
 * How often an elastic trial was started, and how long rank 0 did not run in between. Other ranks have no such time: a
 * number means another process, host and clock after each start.
 * @param {Role[]} roles in the order of their starts
 */
function tellStarts(roles) {
  const own = roles.filter((one) => one.rank === 0 && typeof one.start === "number");
  const pauses = own.slice(1).map((one, place) => {
    const [begun, ended] = [one.started, own[place]?.ended];
    return typeof begun === "number" && typeof ended === "number" ? Math.max(0, begun - ended) : 0;
  });
  const total = pauses.reduce((sum, pause) => sum + pause, 0);
  return `Started ${count(own.length)} times. Between two starts rank 0 did not run: ${duration(total)} in all.`;
}

/** @param {unknown} given */
const text = (given) => (typeof given === "string" || typeof given === "number" ? String(given) : "");

/** @param {Role} role */
function timeOf({ started, ended }) {
  if (typeof started !== "number") return "";
  const end = typeof ended === "number" ? ended : now.value;
  return Number.isFinite(end - started) ? duration(end - started) : "";
}

/**
 * What the reporting role prints is the output of the trial, and any other has a file.
 * @param {{ trial: Trial, role: Role }} props
 */
function Output({ trial, role }) {
  const name = `${text(role.role)} ${text(role.rank)}`;
  if (typeof role.log === "string" && LOG_NAME.test(role.log))
    return html`<${ServedLink} path=${`trials/${trial.id}/files/${trial.attempt}/roles/${role.log}`}>${role.log}</${ServedLink}>`;
  if (role.reports !== true) return null;
  return html`<a href=${href(`trials/${trial.id}`, { tab: "stdout" })} aria-label=${`Output of ${name}`}>output</a>`;
}
