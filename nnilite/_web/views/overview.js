// Where the experiment stands, at a glance.

import { send } from "../lib/api.js";
import { stateCounts } from "../lib/filtered.js";
import { brief, count, duration, number, plural, shortened, span, value } from "../lib/format.js";
import { loaded, now, profile, takeProfile, trials, version } from "../lib/live_data.js";
import { go, href } from "../lib/route.js";
import { bestSoFar, flatten, hasEnded, STATE_WORDS, STATES, score, scored } from "../lib/trials.js";
import { html, useMemo, useRef, useState } from "../lib/ui.js";
import { Card, Copy, Empty, ExperimentState, State, say, Time } from "../parts/bits.js";
import { axis, base, Chart, colours, Save, STATE_COLOURS, tip } from "../parts/chart.js";
import { Icon } from "../parts/icons.js";

/** @import { Scored, Trial } from "../lib/trials.js" */
/** @import { ExperimentLimits as LimitValues, Experiment as Profile, TrialState } from "../lib/wire.d.ts" */
/** @import { Option, Chart as Drawn } from "../vendor/echarts.js" */
/** @import { ComponentChildren } from "../vendor/preact.js" */

export function Overview() {
  const known = profile.value;
  if (!known) return html`<${Empty} title="Loading …" />`;
  return html`
    <h1 class="hidden">Overview of ${known.name || known.id}</h1>
    <div class="overview">
      <${Progress} known=${known} />
      <${Best} known=${known} />
      <${History} known=${known} />
      <${Limits} known=${known} />
      <${Trouble} />
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
        <span class="soft">of ${known.limits.maxTrialNumber === null ? "any number of" : count(known.limits.maxTrialNumber)} trials ended</span>
      </div>
      <div class="bar" role="img" aria-label=${STATES.filter((state) => counts[state])
        .map((state) => `${STATE_WORDS[state]} ${counts[state]}`)
        .join(", ")}>
        ${BAR.filter((state) => counts[state]).map((state) => html`<i key=${state} data-state=${state} style=${{ width: `${(100 * (counts[state] ?? 0)) / Math.max(most, total, 1)}%` }} />`)}
      </div>
      ${known.reason && html`<p class=${`note ${known.state === "ERROR" ? "bad" : known.state === "DONE" ? "calm" : ""}`}>${known.reason}</p>`}
      <div class="tiles">
        ${STATES.filter((state) => counts[state]).map(
          (state) => html`<a class="tile" key=${state} href=${href("trials", { state })}>
          <b>${count(counts[state])}</b><span data-state=${state}><i class="dot" aria-hidden="true" />${STATE_WORDS[state]}</span></a>`,
        )}
      </div>
      <div class="tiles">
        <${Fact} name="Running time" text=${duration(spent)} />
        <${Fact} name=${left === null ? "Ended" : "Left, about"} text=${left === null ? (known.ended ? html`<${Time} at=${known.ended} />` : "–") : duration(left)} />
        <${Fact} name="Trials per hour" text=${rate === null ? "–" : rate >= 100 ? count(Math.round(rate)) : number(rate, 3)} />
        <${Fact} name="Concurrency" text=${known.limits.trialConcurrency} />
      </div>
    </div>
  </${Card}>`;
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

/** @param {{ known: Profile }} props */
function Best({ known }) {
  const best = known.best;
  if (!best) {
    return html`<${Card} title="Best trial" class="c5"><${Empty} title="No result yet">The best trial appears here when the first one has reported its final metric.</${Empty}></${Card}>`;
  }
  const flat = Object.entries(flatten(best.parameters));
  return html`<${Card} title=${`Best trial (${known.optimize === "minimize" ? "lowest" : "highest"} metric)`} class="c5"
    end=${html`<${Copy} text=${() => JSON.stringify(best.parameters)} what="Parameters" label="Copy parameters" />`}>
    <div class="stack" style=${{ gap: "14px" }}>
      <div>
        <div class="big">${number(score(best.value), 6)}</div>
        <p class="soft small">trial <a class="mono" href=${href(`trials/${best.id}`)}>${best.id}</a>, number ${best.sequence}${
          best.ended && html`, <${Time} at=${best.ended} />`
        }</p>
      </div>
      <dl class="params">${flat.map(([name, one]) => html`<div key=${name}><dt title=${name}>${name}</dt><dd>${value(one)}</dd></div>`)}</dl>
    </div>
  </${Card}>`;
}

const POINTS_MAX = 20_000;

/** @param {{ known: Profile }} props */
function History({ known }) {
  const chart = useRef(/** @type {Drawn | null} */ (null));
  const ended = useMemo(() => scored(trials()).sort((a, b) => a.sequence - b.sequence), [version.value]);
  const best = useMemo(() => bestSoFar(ended, known.optimize), [ended, known.optimize]);
  const failed = useMemo(() => trials().filter((trial) => trial.state === "FAILED"), [version.value]);
  const draw = () => historyOption(ended, best, failed);
  const data = () => ({
    header: ["sequence", "trial", "metric", "best"],
    rows: ended.map((trial, place) => [trial.sequence, trial.id, trial.score, best[place]]),
  });
  return html`<${Card} title="Metric of all trials, and the best so far" class="c12" end=${ended.length > 0 && html`<${Save} name="history" chart=${chart} data=${data} />`}>
    ${
      ended.length
        ? html`<${Chart} label="Metric by trial number, with the best so far as a line" draw=${draw} deps=${[ended, known.optimize]} height=${300}
          onReady=${(one) => {
            chart.current = one;
          }} onClick=${(event) => event.data?.id && go(`trials/${event.data.id}`)} />`
        : html`<${Empty} title=${loaded.value ? "No result yet" : "Loading …"}>Each trial with a final metric becomes a point here.</${Empty}>`
    }
  </${Card}>`;
}

/**
 * @param {Scored[]} ended
 * @param {number[]} best
 * @param {Trial[]} failed
 * @returns {Option}
 */
export function historyOption(ended, best, failed) {
  const c = colours();
  const step = Math.max(1, Math.ceil(ended.length / POINTS_MAX));
  const points = ended.filter((_, place) => place % step === 0);
  const lows = robustRange(ended.map((trial) => trial.score));
  return {
    ...base(),
    grid: { left: 8, right: 18, top: 14, bottom: 26, containLabel: true },
    xAxis: axis({
      type: "value",
      name: "trial number",
      nameGap: 26,
      minInterval: 1,
      max: "dataMax",
      splitLine: { show: false },
    }),
    yAxis: axis({ type: "value", ...lows }),
    series: [
      {
        type: "scatter",
        name: "trials",
        symbolSize: ended.length > 2000 ? 4 : 8,
        large: points.length > 5000,
        itemStyle: { color: c["series-1"], opacity: ended.length > 2000 ? 0.35 : 0.6 },
        data: points.map((trial) => ({ value: [trial.sequence, trial.score], id: trial.id })),
        tooltip: {
          formatter: ({ data }) =>
            tip(`Trial ${data.id}`, [
              ["number", data.value[0]],
              ["metric", number(data.value[1], 6)],
            ]),
        },
      },
      {
        type: "line",
        name: "best so far",
        step: "end",
        symbol: "none",
        lineStyle: { color: c["series-2"], width: 2.5 },
        data: changesOf(ended, best),
        silent: true,
        z: 3,
      },
      {
        type: "scatter",
        name: "failed",
        symbol: "path://M-4,-4L4,4M4,-4L-4,4",
        symbolSize: 7,
        silent: true,
        itemStyle: { color: "transparent", borderColor: c[STATE_COLOURS.FAILED], borderWidth: 1.5 },
        data: failed
          .slice(0, 2000)
          .map((trial) => [trial.sequence, lows.min ?? Math.min(...ended.slice(0, 5000).map((one) => one.score))]),
      },
    ],
  };
}

/**
 * The line needs only the points where it steps, and its ends.
 * @param {Scored[]} ended
 * @param {number[]} best
 */
function changesOf(ended, best) {
  return ended
    .map((trial, place) => [trial.sequence, best[place]])
    .filter((_, place) => place === 0 || place === best.length - 1 || best[place] !== best[place - 1]);
}

/**
 * A few wild results must not press all others into one line: far outliers are cut off.
 * @param {number[]} values
 */
function robustRange(values) {
  /** @type {{ min?: number, max?: number }} */
  const range = {};
  if (values.length < 20) return range;
  const order = Float64Array.from(values).sort();
  /** @param {number} share */
  const at = (share) => order[Math.round(share * (order.length - 1))];
  const [low, high] = [at(0.02), at(0.98)];
  const room = (high - low) * 1.5 || 1;
  if (order[0] < low - room * 2) range.min = low - room * 0.2;
  if (order[order.length - 1] > high + room * 2) range.max = high + room * 0.2;
  return range;
}

/** @type {[name: keyof LimitValues, title: string, hint: string][]} */
const LIMITS = [
  ["trialConcurrency", "Trials at once", "a whole number from 1"],
  ["maxTrialNumber", "Maximum number of trials", "empty: no limit"],
  ["maxExperimentDuration", "Maximum duration", "such as 90m or 12h; empty: no limit"],
  ["maxTrialDuration", "Maximum time per trial", "such as 30m; empty: no limit"],
];

/**
 * @param {keyof LimitValues} name
 * @param {number | null} limit
 */
const shownLimit = (name, limit) => (limit === null ? "" : name.endsWith("Duration") ? span(limit) : String(limit));

/** @param {{ known: Profile }} props */
function Limits({ known }) {
  const [edited, setEdited] = useState(/** @type {Record<string, string> | null} */ (null));
  const [wrong, setWrong] = useState(/** @type {(Error & { field?: string }) | null} */ (null));
  const begin = () => {
    setWrong(null);
    setEdited(Object.fromEntries(LIMITS.map(([name]) => [name, shownLimit(name, known.limits[name])])));
  };
  /** @param {SubmitEvent} event */
  const save = async (event) => {
    event.preventDefault();
    if (!edited) return;
    /** @type {Partial<Record<keyof LimitValues, string | number | null>>} */
    const changes = {};
    for (const [name] of LIMITS) {
      const text = edited[name].trim();
      if (text === shownLimit(name, known.limits[name])) continue;
      changes[name] = text === "" ? null : /^\d+$/.test(text) ? Number(text) : text;
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
  return html`<${Card} title="Limits" class="c4" end=${!edited && html`<button class="small" disabled=${over} title=${over ? "Resume the experiment to change them" : ""} onClick=${begin}><${Icon} name="edit" />Edit</button>`}>
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
        : html`<dl class="facts">${LIMITS.map(([name, title]) => html`<dt key=${name}>${title}</dt><dd key=${`${name}-value`}>${shownLimit(name, known.limits[name]) || "no limit"}</dd>`)}</dl>`
    }
  </${Card}>`;
}

// Why trials failed, have no number as their result, or wait; most frequent first.
function Trouble() {
  const groups = useMemo(() => {
    /** @type {Map<string, { reason: string, failed: boolean, times: number }>} */
    const found = new Map();
    for (const trial of trials()) {
      const failed = trial.state === "FAILED" || trial.state === "SYS_CANCELED";
      if (!failed && (trial.state !== "SUCCEEDED" || !trial.reason || trial.score !== null)) continue;
      const reason = trial.reason || "no reason given";
      const group = found.get(reason) ?? { reason, failed, times: 0 };
      group.times += 1;
      found.set(reason, group);
    }
    return [...found.values()].sort((a, b) => b.times - a.times);
  }, [version.value]);
  const waiting = profile.value?.waiting ?? [];
  return html`<${Card} title="Failures and waiting" class="c4">
    ${!groups.length && !waiting.length && html`<p class="soft">No trial has failed, and none is waiting.</p>`}
    <table class="plain"><tbody>
      ${groups.slice(0, 5).map(
        ({
          reason,
          failed,
          times,
        }) => html`<tr key=${reason} data-state=${failed ? "FAILED" : "SUCCEEDED"}><td class="tight"><b>${count(times)}</b></td>
        <td><span class="row" style=${{ gap: "6px" }}><i class="dot" aria-hidden="true" /><span class="soft small">${failed ? "failed" : "succeeded, but"}</span></span>
        <a title=${reason} href=${href("trials", { state: failed ? "FAILED,SYS_CANCELED" : "SUCCEEDED", q: reason === "no reason given" ? "" : reason })}>${brief(reason)}</a></td></tr>`,
      )}
      ${waiting.map(
        ({
          reason,
          count: times,
        }) => html`<tr key=${`w${reason}`} data-state="WAITING"><td class="tight"><b>${count(times)}</b></td>
        <td><span class="row" style=${{ gap: "6px" }}><i class="dot" aria-hidden="true" /><span class="soft small">waiting</span></span>
        <a href=${href("trials", { state: "WAITING" })}>${reason || "for its turn"}</a></td></tr>`,
      )}
    </tbody></table>
  </${Card}>`;
}

/** @param {{ known: Profile }} props */
function Hosts({ known }) {
  return html`<${Card} title="Services and hosts" class="c4" end=${html`<span class="soft small">${known.platforms.join(", ")}</span>`}>
    ${
      known.hosts.length
        ? html`<div class="scroll-x"><table class="plain">
          <thead><tr><th>Host</th><th>State</th><th class="number">Trials</th></tr></thead>
          <tbody>${known.hosts.map(
            (
              host,
            ) => html`<tr key=${host.name}><td>${host.name}${load(host) && html`<div class="soft small">${load(host)}</div>`}${host.reason && html`<div class="wrong">${host.reason}</div>`}</td>
            <td><span class="badge" data-state=${host.state}><i class="dot" aria-hidden="true" />${host.state}</span></td><td class="number">${host.running}</td></tr>`,
          )}</tbody>
        </table></div>`
        : html`<p class="soft">This training service does not list hosts.</p>`
    }
  </${Card}>`;
}

/**
 * How busy a worker of a pool is, and how many wait for one; "" for other hosts.
 * @param {Profile["hosts"][number]} host
 */
function load({ details: { busy, processors, queue } }) {
  return processors === undefined ? "" : `${busy} of ${processors} processors busy, ${queue} in the queue`;
}

/** @param {Trial} trial */
function metric(trial) {
  if (trial.score !== null || trial.value !== null) return number(trial.score ?? shortened(value(trial.value), 30));
  return score(trial.latest) === null ? "" : `${number(score(trial.latest))} …`;
}

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
    <div class="scroll-x"><table class="plain">
      <thead><tr><th>Trial</th><th>State</th><th class="number">Metric</th><th class="number">Duration</th><th>Started</th><th>Parameters</th></tr></thead>
      <tbody>${found.map(
        (trial) => html`<tr key=${trial.id}>
        <td><a class="mono" href=${href(`trials/${trial.id}`)}>${trial.id}</a> <span class="soft small">#${trial.sequence}</span></td>
        <td><${State} state=${trial.state} /></td>
        <td class="number">${metric(trial)}</td>
        <td class="number">${trial.started === null ? "" : duration((trial.ended ?? now.value) - trial.started)}</td>
        <td><${Time} at=${trial.started} /></td>
        <td class="soft small">${Object.entries(trial.flat)
          .map(([name, one]) => `${name}=${value(one)}`)
          .join("  ")}</td>
      </tr>`,
      )}</tbody>
    </table></div>
  </${Card}>`;
}
