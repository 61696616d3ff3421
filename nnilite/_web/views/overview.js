// Where the experiment stands, at a glance.

import { send } from "../lib/api.js";
import { stateCounts } from "../lib/filtered.js";
import { bytes, count, duration, money, number, plural, shortened, span, value } from "../lib/format.js";
import { now, profile, takeProfile, trials, version } from "../lib/live_data.js";
import { goals, isSeveral } from "../lib/objectives.js";
import { href } from "../lib/route.js";
import { hasEnded, objective, STATE_WORDS, STATES, score } from "../lib/trials.js";
import { html, useMemo, useRef, useState } from "../lib/ui.js";
import { gpuText } from "../lib/uses.js";
import { Icon } from "../parts/icons.js";
import { Card, Empty, Scroll } from "../parts/layout.js";
import { ExperimentState, State, Time } from "../parts/states.js";
import { say } from "../parts/toasts.js";
import { Best } from "./best.js";
import { History } from "./history.js";
import { Notes } from "./notes.js";
import { Trouble } from "./trouble.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { ExperimentLimits as LimitValues, Experiment as Profile, GpuUse, TrialState } from "../lib/wire.d.ts" */
/** @import { ComponentChildren } from "../vendor/preact.js" */

export function Overview() {
  const known = profile.value;
  if (!known) return html`<${Empty} title="Loading …" />`;
  return html`
    <h1 class="hidden">Overview of ${known.name || known.id}</h1>
    <div class="overview">
      <${Progress} known=${known} />
      <${Best} known=${known} />
      <${History} />
      <${Limits} known=${known} />
      <${Trouble} />
      <${Notes} known=${known} />
      <${Hosts} known=${known} />
      <${Latest} />
    </div>`;
}

/**
 * Seconds until the end at the present rate, or null if nothing can be said.
 * @param {Profile} known
 * @param {number} ended
 */
function remaining(known, ended) {
  const { maxTrialNumber: most, maxExperimentDuration: longest } = known.limits;
  if (known.state !== "RUNNING") return null;
  const bySpan = longest === null ? null : Math.max(longest - known.duration, 0);
  const byNumber = most === null || ended < 2 ? null : ((most - ended) * known.duration) / ended;
  const both = [bySpan, byNumber].filter((one) => one !== null);
  return both.length ? Math.max(Math.min(...both), 0) : null;
}

/** @type {TrialState[]} */
const BAR = ["SUCCEEDED", "EARLY_STOPPED", "FAILED", "USER_CANCELED", "SYS_CANCELED", "RUNNING", "UNKNOWN", "WAITING"];

/** @param {{ known: Profile }} props */
function Progress({ known }) {
  const counts = known.counts;
  const total = Object.values(counts).reduce((sum, one) => sum + one, 0);
  const ended = total - (counts.RUNNING ?? 0) - (counts.WAITING ?? 0) - (counts.UNKNOWN ?? 0);
  const most = known.limits.maxTrialNumber ?? total;
  const left = remaining(known, ended);
  const spent =
    known.state === "RUNNING"
      ? known.duration + Math.max(0, Math.min(now.value - seenAt(known), 3600))
      : known.duration;
  const rate = ended > 0 && spent > 0 ? (ended / spent) * 3600 : null;
  return html`<${Card} title="Progress" class="c7" end=${html`<${ExperimentState} state=${known.state} />`}>
    <div class="stack" style=${{ gap: "12px" }}>
      <div class="row" style=${{ alignItems: "baseline" }}>
        <span class="big">${count(ended)}</span>
        <span class="soft">${known.limits.maxTrialNumber === null ? "" : `of ${count(known.limits.maxTrialNumber)} `}trials ended</span>
      </div>
      <div class="bar" role="img" aria-label=${STATES.filter((state) => counts[state])
        .map((state) => `${STATE_WORDS[state]} ${counts[state]}`)
        .join(", ")}>
        ${BAR.filter((state) => counts[state]).map((state) => html`<i key=${state} data-state=${state} style=${{ width: `${(100 * (counts[state] ?? 0)) / Math.max(most, total, 1)}%` }} />`)}
      </div>
      ${known.reason && html`<p class=${`note ${REASON_TONES[known.state] ?? ""} ${known.reason.includes("\n") ? "mono small" : ""}`}>${known.reason}</p>`}
      <div class="tiles">
        ${STATES.filter((state) => counts[state]).map(
          (state) => html`<a class="tile" key=${state} href=${href("trials", { state })}>
          <b>${count(counts[state])}</b><span data-state=${state}><i class="dot" aria-hidden="true" />${STATE_WORDS[state]}</span></a>`,
        )}
      </div>
      <div class="tiles">
        <${Fact} name="Running time" text=${duration(spent)} />
        ${left === null ? html`<${Fact} name="Ended" text=${endOf(known)} />` : html`<${Fact} name="Left, about" text=${duration(left)} />`}
        <${Fact} name="Trials per hour" text=${shownRate(rate)} />
        <${Fact} name="Concurrency" text=${known.limits.trialConcurrency} />
        ${known.spent !== null && html`<${Fact} name=${known.limits.maxCost === null ? "Cost" : `Cost, of ${money(known.limits.maxCost)}`} text=${money(known.spent)} />`}
      </div>
    </div>
  </${Card}>`;
}

/** @type {Record<string, string>} */
const REASON_TONES = { ERROR: "bad", DONE: "calm" };

/** @param {Profile} known */
const endOf = (known) => (known.ended ? html`<${Time} at=${known.ended} />` : "–");

/** @param {number | null} rate */
function shownRate(rate) {
  if (rate === null) return "–";
  return rate >= 100 ? count(Math.round(rate)) : number(rate, 3);
}

// When this profile came: its duration counts until then.
/** @type {WeakMap<Profile, number>} */
const arrivals = new WeakMap();
/** @param {Profile} known */
function seenAt(known) {
  const seen = arrivals.get(known) ?? Date.now() / 1000;
  arrivals.set(known, seen);
  return seen;
}

/** @param {{ name: string, text: ComponentChildren }} props */
const Fact = ({ name, text }) =>
  html`<div class="tile" style=${{ borderColor: "transparent", paddingLeft: "0" }}><span>${name}</span><b style=${{ fontSize: "15px" }}>${text}</b></div>`;

/** @type {[name: keyof LimitValues, title: string, hint: string][]} */
const LIMITS = [
  ["trialConcurrency", "Trials at once", "a whole number from 1"],
  ["maxTrialNumber", "Maximum number of trials", "empty: no limit"],
  ["maxExperimentDuration", "Maximum duration", "such as 90m or 12h; empty: no limit"],
  ["maxTrialDuration", "Maximum time per trial", "such as 30m; empty: no limit"],
  ["maxCost", "Maximum cost", "a number such as 12.5; empty: no limit"],
  ["stopAtValue", "Stop at this result", "a number such as 0.95; empty: no limit"],
  ["maxSlots", "Slots shared with other experiments", "empty: as configured"],
  ["priority", "Priority among experiments", "empty: as configured"],
];
const CONFIGURED = ["maxSlots", "priority"];

/**
 * @param {keyof LimitValues} name
 * @param {number | null} [limit] missing where an older manager does not know it
 */
function shownLimit(name, limit = null) {
  if (limit === null) return "";
  return name.endsWith("Duration") ? span(limit) : String(limit);
}

/**
 * What a trial is called next to its id: its number, unless that is the id.
 * @param {Trial} trial
 */
const numberOf = ({ id, sequence }) => id !== String(sequence) && html` <span class="soft small">#${sequence}</span>`;

/** @param {keyof LimitValues} name */
const withoutLimit = (name) => (CONFIGURED.includes(name) ? "as configured" : "no limit");

/**
 * What a field of the form stands for: no limit, a number, or a text that the manager reads, such as 90m.
 * @param {keyof LimitValues} name
 * @param {string} text
 */
function limitOf(name, text) {
  if (text === "") return null;
  const isNumber = /^-?\d+$/.test(text) || (["maxCost", "stopAtValue"].includes(name) && Number.isFinite(Number(text)));
  return isNumber ? Number(text) : text;
}

/** @param {{ known: Profile }} props */
function Limits({ known }) {
  const [edited, setEdited] = useState(/** @type {Record<string, string> | null} */ (null));
  const [wrong, setWrong] = useState(/** @type {(Error & { field?: string }) | null} */ (null));
  const begun = useRef(/** @type {Record<string, string>} */ ({})); // others may change a limit meanwhile
  const begin = () => {
    setWrong(null);
    begun.current = Object.fromEntries(LIMITS.map(([name]) => [name, shownLimit(name, known.limits[name])]));
    setEdited(begun.current);
  };
  /** @param {SubmitEvent} event */
  const save = async (event) => {
    event.preventDefault();
    if (!edited) return;
    /** @type {Partial<Record<keyof LimitValues, string | number | null>>} */
    const changes = {};
    for (const [name] of LIMITS) {
      const text = edited[name].trim();
      if (text === begun.current[name]) continue;
      changes[name] = limitOf(name, text);
    }
    try {
      if (Object.keys(changes).length) {
        takeProfile(await send("PATCH", "experiment", changes));
        say("The limits have been changed.");
      }
      setEdited(null);
    } catch (error) {
      setWrong(error instanceof Error ? error : new Error(String(error)));
    }
  };
  const over = ["STOPPED", "STOPPING", "VIEWED"].includes(known.state) || known.readOnly;
  const editing = html`<button class="small" disabled=${over} title=${over ? "Resume the experiment to change them" : ""}
    onClick=${begin}><${Icon} name="edit" />Edit</button>`;
  return html`<${Card} title="Limits" class="c4" end=${!edited && editing}>
    ${
      edited
        ? html`<form class="stack" style=${{ gap: "10px" }} onSubmit=${save}>
          ${LIMITS.map(
            ([name, title, hint]) => html`<label class="field" key=${name}><span>${title} (${hint})</span>
            <input name=${name} value=${edited[name]} aria-invalid=${wrong?.field === name ? "true" : undefined}
              onInput=${(event) => setEdited({ ...edited, [name]: event.target.value })} /></label>`,
          )}
          ${wrong && html`<p class="note bad" role="alert">${wrong.message}</p>`}
          <div class="row"><button class="primary" type="submit">Save</button><button type="button" onClick=${() => setEdited(null)}>Cancel</button></div>
        </form>`
        : html`<dl class="facts">${LIMITS.map(
            ([name, title]) => html`<dt key=${name}>${title}</dt>
          <dd key=${`${name}-value`}>${shownLimit(name, known.limits[name]) || withoutLimit(name)}</dd>`,
          )}</dl>`
    }
  </${Card}>`;
}

/** @param {Profile["hosts"][number]} host */
function aboutHost(host) {
  const lines = [serviceOf(host), load(host), inUse(host), ...gpusInUse(host), note(host)];
  return lines.map((text) => text && html`<div class="soft small" key=${text}>${text}</div>`);
}

/** @param {{ known: Profile }} props */
function Hosts({ known }) {
  return html`<${Card} title="Services and hosts" class="c4" end=${html`<span class="soft small">${known.platforms.join(", ")}</span>`}>
    <${Services} known=${known} />
    ${
      known.hosts.length
        ? html`<${Scroll} label="Hosts"><table class="plain">
          <thead><tr><th>Host</th><th>State</th><th class="number">Trials</th></tr></thead>
          <tbody>${known.hosts.map(
            (host, place) => html`<tr key=${place}>
            <td>${host.name}${aboutHost(host)}${host.reason && html`<div class="wrong">${host.reason}</div>`}</td>
            <td><span class="badge" data-state=${host.state}><i class="dot" aria-hidden="true" />${host.state}</span></td><td class="number">${host.running}</td></tr>`,
          )}</tbody>
        </table></${Scroll}>`
        : known.services.length < 2 && html`<p class="soft">This training service does not list hosts.</p>`
    }
  </${Card}>`;
}

// Each service of the experiment, where there are several, money is counted, or one fails.
/** @param {{ known: Profile }} props */
function Services({ known }) {
  const priced = known.spent !== null;
  if (known.services.length < 2 && !priced && !known.services.some((one) => one.reason)) return null;
  return html`<${Scroll} label="Services"><table class="plain">
    <thead><tr><th>Service</th><th>State</th><th class="number">Trials</th>${priced && html`<th class="number">Per hour</th><th class="number">Spent</th>`}</tr></thead>
    <tbody>${known.services.map(
      (
        one,
      ) => html`<tr key=${one.name}><td>${one.name}${one.name !== one.platform && html`<div class="soft small">${one.platform}</div>`}${one.reason && html`<div class="wrong">${one.reason}</div>`}</td>
      <td><span class="badge" data-state=${one.state === "up" ? "up" : "down"}><i class="dot" aria-hidden="true" />${one.state === "up" ? "up" : "set aside"}</span></td>
      <td class="number">${one.slots === null ? one.trials : `${one.trials} of ${one.slots}`}</td>
      ${priced && html`<td class="number">${money(one.cost)}</td><td class="number">${money(one.spent)}</td>`}</tr>`,
    )}</tbody>
  </table></${Scroll}>`;
}

/**
 * Which of several services has this host; "" where there is one.
 * @param {Profile["hosts"][number]} host
 */
function serviceOf({ details: { service } }) {
  return typeof service === "string" ? service : "";
}

/**
 * How busy a worker of a pool is, and how many wait for one; "" for other hosts.
 * @param {Profile["hosts"][number]} host
 */
function load({ details: { busy, processors, queue } }) {
  return processors === undefined ? "" : `${busy} of ${processors} processors busy, ${queue} in the queue`;
}

/**
 * How much of a host's processors and memory is in use; "" where it does not tell.
 * @param {Profile["hosts"][number]} host
 */
function inUse({ details: { cpuPercent, memoryUsed, memoryTotal } }) {
  const told = [];
  if (typeof cpuPercent === "number") told.push(`CPU ${Math.round(cpuPercent)} %`);
  if (typeof memoryUsed === "number" && typeof memoryTotal === "number")
    told.push(`memory ${bytes(memoryUsed)} of ${bytes(memoryTotal)}`);
  return told.join(" · ");
}

/**
 * What else is to be known of a host's trials; "" if nothing.
 * @param {Profile["hosts"][number]} host
 */
function note({ details: { note: text } }) {
  return typeof text === "string" ? text : "";
}

/**
 * A line for each GPU of a host.
 * @param {Profile["hosts"][number]} host
 */
function gpusInUse({ details: { gpuUse } }) {
  return /** @type {GpuUse[]} */ (gpuUse ?? []).map(gpuText);
}

/** @param {Trial} trial */
function metric(trial) {
  const several = isSeveral.value ? Object.keys(goals.value).map((name) => objective(trial.value, name)) : [];
  if (several.some((one) => one !== null)) return several.map((one) => (one === null ? "–" : number(one))).join(" · ");
  if (trial.score !== null || trial.value !== null) return number(trial.score ?? shortened(value(trial.value), 30));
  return score(trial.latest) === null ? "" : `${number(score(trial.latest))} …`;
}

/** @param {Trial} trial */
const parametersOf = ({ flat }) =>
  Object.entries(flat)
    .map(([name, one]) => `${name}=${value(one)}`)
    .join("  ");

function Latest() {
  const found = useMemo(() => {
    const live = trials()
      .filter((trial) => !hasEnded(trial))
      .slice(-6)
      .reverse();
    const ended = trials()
      .slice(-200)
      .filter(hasEnded)
      .sort((a, b) => (b.ended ?? 0) - (a.ended ?? 0));
    return [...live, ...ended].slice(0, 8);
  }, [version.value]);
  if (!found.length) return null;
  return html`<${Card} title="Latest trials" class="c12" end=${html`<a class="button" href=${href("trials")}>All ${plural(
    Object.values(stateCounts.value).reduce((a, b) => a + b, 0),
    "trial",
  )}</a>`}>
    <${Scroll} label="Latest trials"><table class="plain">
      <thead><tr>
        <th>Trial</th><th>State</th><th class="number">${isSeveral.value ? Object.keys(goals.value).join(" · ") : "Metric"}</th>
        <th class="number">Duration</th><th>Started</th><th>Parameters</th>
      </tr></thead>
      <tbody>${found.map(
        (trial) => html`<tr key=${trial.id}>
        <td class="tight"><a class="mono" href=${href(`trials/${trial.id}`)}>${trial.id}</a>${numberOf(trial)}</td>
        <td class="tight"><${State} state=${trial.state} /></td>
        <td class="tight number">${metric(trial)}</td>
        <td class="tight number">${trial.started === null ? "" : duration((trial.ended ?? now.value) - trial.started)}</td>
        <td class="tight"><${Time} at=${trial.started} /></td>
        <td class="soft small wide"><span class="two-lines" title=${parametersOf(trial)}>${parametersOf(trial)}</span></td>
      </tr>`,
      )}</tbody>
    </table></${Scroll}>
  </${Card}>`;
}
