// One trial: what it was given, how it went, what it printed and wrote.

import { get, send } from "../lib/api.js";
import { digits, setDigits, writeJson } from "../lib/exact_json.js";
import { fieldDigits } from "../lib/filters.js";
import { brief, duration, inFull, number, shellWord, shortened, value } from "../lib/format.js";
import { connection, now, onMetric, profile, trialById, trials, version } from "../lib/live_data.js";
import { goals, isSeveral } from "../lib/objectives.js";
import { go, href, route, setQuery } from "../lib/route.js";
import { selected } from "../lib/ticks.js";
import { flatten, fromWire, hasEnded, objective } from "../lib/trials.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib/ui.js";
import { Artifacts } from "../parts/artifacts.js";
import { Chart, Save } from "../parts/chart.js";
import { Copy } from "../parts/copy.js";
import { curvesOption, curvesTable, leftOutOf } from "../parts/curve_drawing.js";
import { confirm } from "../parts/dialog.js";
import { Files } from "../parts/files.js";
import { Icon } from "../parts/icons.js";
import { Card, Empty, Scroll } from "../parts/layout.js";
import { Log } from "../parts/log.js";
import { isLog, LogScale } from "../parts/log_scale.js";
import { newTrial } from "../parts/new_trial.js";
import { State, Time } from "../parts/states.js";
import { messageOf, perform } from "../parts/toasts.js";
import { Remarks } from "../parts/trial_remarks.js";
import { TrialRoles } from "../parts/trial_roles.js";
import { TrialUsage } from "../parts/trial_usage.js";

/** @import { ApiError } from "../lib/api.js" */
/** @import { Trial } from "../lib/trials.js" */
/** @import { Attempt, Curve as CurvePoints, Json, Metric, TrialDetails } from "../lib/wire.d.ts" */
/** @import { Chart as Drawn } from "../vendor/echarts.js" */

export function TrialPage() {
  const id = route.value.parts[1];
  const [details, setDetails] = useState(/** @type {(TrialDetails & Trial) | null} */ (null));
  const [problem, setProblem] = useState(/** @type {ApiError | null} */ (null));
  void version.value;
  const found = trialById(id) ?? details;
  const stamp = found ? `${found.state} ${found.attempt} ${found.started}` : "";
  useEffect(() => {
    let gone = false;
    /** @type {Promise<TrialDetails>} */
    const asked = get(`trials/${id}`);
    asked.then(
      (answer) => {
        if (!gone) {
          setDetails(fromWire(answer));
          setProblem(null);
        }
      },
      (error) => {
        if (!gone) setProblem(error);
      },
    );
    return () => {
      gone = true;
    };
  }, [id, stamp, connection.value.state]);
  if (!found) {
    if (problem?.status === 404)
      return html`<div class="card"><${Empty} title=${`There is no trial ${id} here`}><a href="#/trials">Show all trials</a></${Empty}></div>`;
    return html`<${Empty} title=${problem ? problem.message : "Loading …"} />`;
  }
  const loaded = details?.id === id ? details.attempts : null;
  const attempts = loaded ?? [];
  return html`
    <${Head} trial=${found} />
    ${found.reason && html`<p class=${`note ${found.state === "FAILED" ? "bad" : ""} ${found.reason.includes("\n") ? "mono" : ""}`} style=${{ marginBottom: "14px" }}>${found.reason}</p>`}
    ${found.violates && html`<p class="note" style=${{ marginBottom: "14px" }}>Not feasible, so never the best: it violates ${found.violates}</p>`}
    <div class="trial-page">
      <div class="stack" style=${{ alignContent: "start" }}>
        <${Metrics} trial=${found} />
        <${TrialUsage} trial=${found} />
        <${Remarks} trial=${found.id} />
        <${Parameters} trial=${found} />
        <${Attributes} trial=${found} />
      </div>
      <div class="stack" style=${{ alignContent: "start" }}>
        <${Curve} trial=${found} />
        <${Attempts} trial=${found} attempts=${loaded} problem=${problem?.message} />
      </div>
      <${TrialRoles} key=${found.id} trial=${found} attemptState=${attempts.find((one) => one.number === found.attempt)?.state} />
      <div class="all"><${Outputs} trial=${found} attempts=${attempts} /></div>
    </div>`;
}

/** @param {{ trial: Trial }} props */
function Head({ trial }) {
  const { id, sequence } = trial;
  const order = trials();
  const place = order.findIndex((one) => one.id === id);
  /** @param {number} by */
  const beside = (by) => (place < 0 ? undefined : order[place + by]);
  const fixed = profile.value?.readOnly;
  const kill = () =>
    confirm({
      title: `Kill trial ${id}?`,
      text: "Its reported results are kept.",
      yes: "Kill",
      danger: true,
      act: () => perform(() => send("DELETE", `trials/${id}`), `Trial ${id} is being killed.`),
    });
  const again = () => perform(() => send("POST", "trials/rerun", { ids: [id] }), `Trial ${id} will run again.`);
  const command = () => `nnictl trial add ${profile.value?.id} --parameters ${shellWord(writeJson(trial.parameters))}`;
  const json = () => {
    const told = { id, sequence, state: trial.state, parameters: trial.parameters, value: trial.value };
    setDigits(told, "value", digits(trial, "value"));
    return writeJson(told, 2);
  };
  return html`<div class="page-head">
    <span class="row" style=${{ gap: "4px" }}>
      ${Object.entries({ previous: beside(-1), next: beside(1) }).map(
        ([
          icon,
          other,
        ]) => html`<button key=${icon} class="icon" aria-label=${icon === "next" ? "Next trial" : "Previous trial"}
        disabled=${!other} onClick=${() => other && go(`trials/${other.id}`)}><${Icon} name=${icon} /></button>`,
      )}
    </span>
    <h1>Trial <span class="mono">${id}</span></h1>
    <span class="soft">number ${sequence}</span>
    <${State} state=${trial.state} />
    <div class="end">
      ${
        hasEnded(trial)
          ? html`<button key="again" disabled=${fixed} onClick=${again}><${Icon} name="retry" />Run again</button>`
          : html`<button key="kill" class="danger" disabled=${fixed} onClick=${kill}><${Icon} name="kill" />Kill</button>`
      }
      <button disabled=${fixed} onClick=${() => newTrial(trial)}><${Icon} name="edit" />Customise</button>
      <${Copy} small=${false} text=${json} what="Trial as JSON" label="JSON" />
      <${Copy} small=${false} text=${command} what="Command" label="Command" />
      <button aria-pressed=${selected.has(id) ? "true" : "false"} onClick=${() => selected.toggle(id)}>Select</button>
    </div>
  </div>`;
}

/** @param {Trial} trial */
function resultOf(trial) {
  if (trial.score !== null) return number(trial.score, 7);
  return trial.value === null ? "–" : shortened(value(trial.value), 60);
}

/** @param {{ trial: Trial }} props */
function Metrics({ trial }) {
  void version.value; // a trial is changed in place, and what reads any signal is drawn again by signals only
  const others =
    trial.value !== null && typeof trial.value === "object"
      ? Object.entries(trial.value).filter(([name]) => !Object.hasOwn(goals.value, name) && name !== "default")
      : [];
  /** @type {[string, number | null][]} */
  const several =
    isSeveral.value && trial.value !== null
      ? Object.keys(goals.value).map((name) => [name, objective(trial.value, name)])
      : [];
  const spent = trial.started === null ? null : (trial.ended ?? now.value) - trial.started;
  return html`<${Card} title="Final metric">
    ${several.map(([name, one]) => {
      const shown = html`<span class="big" title=${fieldDigits(trial, `m.${name}`)}>${one === null ? "–" : number(one, 7)}</span>`;
      return html`<div key=${name}>${shown} <span class="soft">${name}, ${goals.value[name]}</span></div>`;
    })}
    ${several.length === 0 && html`<div class="big" title=${fieldDigits(trial, "metric")}>${resultOf(trial)}</div>`}
    ${trial.value === null && html`<p class="soft small">${hasEnded(trial) ? "This trial ended without a final metric." : "Not reported yet."}</p>`}
    <dl class="facts" style=${{ marginTop: "12px" }}>
      ${others.map(([name, one]) => html`<dt key=${name}>${name}</dt><dd key=${`${name}-v`} class="mono" title=${digits(trial.value, name)}>${shortened(value(one))}</dd>`)}
      <dt>Created</dt><dd><${Time} at=${trial.created} /></dd>
      <dt>Started</dt><dd>${trial.started === null ? "–" : html`<${Time} at=${trial.started} />`}</dd>
      <dt>Ended</dt><dd>${trial.ended === null ? "–" : html`<${Time} at=${trial.ended} />`}</dd>
      <dt>Duration</dt><dd>${spent === null ? "–" : duration(spent)}</dd>
      <dt>Source</dt><dd>${trial.source}</dd>
    </dl>
  </${Card}>`;
}

/** @param {{ trial: Trial }} props */
function Parameters({ trial }) {
  const flat = flatten(trial.parameters);
  return html`<${Card} title="Parameters" end=${html`<${Copy} text=${() => writeJson(trial.parameters)} what="Parameters" />`}>
    <${Scroll} label="Parameters" style=${{ maxHeight: "640px", overflowY: "auto" }}>
    <dl class="facts">${Object.entries(flat).map(
      ([name, one]) => html`<dt key=${name}>${name}</dt>
      <dd key=${`${name}-v`} class=${typeof one === "number" ? "mono whole" : "mono"} title=${digits(flat, name) ?? one}>${shortened(inFull(flat, name, one))}</dd>`,
    )}</dl></${Scroll}>
  </${Card}>`;
}

/** @param {{ trial: Trial }} props */
function Attributes({ trial }) {
  void version.value;
  const all = Object.entries(trial.attributes);
  if (!all.length) return null;
  return html`<${Card} title="Attributes" end=${html`<${Copy} text=${() => writeJson(trial.attributes)} what="Attributes" />`}>
    <dl class="facts">${all.map(
      ([name, one]) => html`<dt key=${name}>${name}</dt>
      <dd key=${`${name}-v`} class=${typeof one === "number" ? "mono whole" : "mono"} title=${inFull(trial.attributes, name, one)}>${shortened(inFull(trial.attributes, name, one))}</dd>`,
    )}</dl>
  </${Card}>`;
}

const POINTS = 1000;

/** @param {{ trial: Trial }} props */
function Curve({ trial }) {
  // The trial is kept with its curve: the curve of another one must not stand here until this one's has come.
  const [shown, setShown] = useState(/** @type {{ trial: string, curve: CurvePoints | null } | null} */ (null));
  const [problem, setProblem] = useState("");
  const [key, setKey] = useState("default");
  const loaded = shown?.trial === trial.id;
  const curve = loaded ? shown.curve : null;
  const chart = useRef(/** @type {Drawn | null} */ (null));
  const keys = useMemo(() => numericKeys(trial.latest ?? trial.value), [version.value, trial.id]);
  useEffect(() => {
    let gone = false;
    /** @type {Metric[] | null} what comes before the answer, which may not have it; null: the answer is there */
    let waiting = [];
    /** @type {Promise<{ curves: CurvePoints[] }>} */
    const asked = get("curves", { trial: trial.id, points: POINTS, key });
    asked.then(
      ({ curves }) => {
        if (gone) return;
        /** @type {CurvePoints | null} */
        let curve = curves[0] ?? null;
        for (const metric of waiting ?? []) curve = withPoint(curve, metric, key);
        waiting = null;
        setShown({ trial: trial.id, curve });
        setProblem("");
      },
      (error) => {
        if (!gone) setProblem(messageOf(error));
      },
    );
    const off = onMetric((metric) => {
      if (metric.trial !== trial.id || metric.kind !== "PERIODICAL") return;
      if (waiting) waiting.push(metric);
      else setShown((known) => known && { ...known, curve: withPoint(known.curve, metric, key) });
    });
    return () => {
      gone = true;
      off();
    };
  }, [trial.id, trial.attempt, key, connection.value.state]);
  const has = curve && curve.steps.length > 0;
  const missing = curve ? leftOutOf([curve]) : "";
  const picker =
    keys.length > 1 &&
    html`<select aria-label="Which metric" value=${key} onChange=${(event) => setKey(event.target.value)}>
    ${keys.map((name) => html`<option key=${name}>${name}</option>`)}</select>`;
  const none = loaded
    ? html`<${Empty} title="None reported">A trial reports them with <code>nnilite.report_intermediate_result(value)</code>.</${Empty}>`
    : html`<${Empty} title=${problem || "Loading …"} />`;
  return html`<${Card} title="Intermediate results" end=${html`${picker}${has && html`<${LogScale} /><${Save} name=${`curve-${trial.id}`} chart=${chart} data=${() => curvesTable([curve])} />`}`}>
    ${missing && html`<p class="note calm small" role="status">${missing}</p>`}
    ${
      has
        ? html`<${Chart} label=${`Intermediate results of trial ${trial.id}`} draw=${() => curvesOption([curve])} deps=${[curve, isLog()]} height=${260} onReady=${(
            one,
          ) => {
            chart.current = one;
          }} />`
        : none
    }
  </${Card}>`;
}

/**
 * A curve with the number `key` of a metric behind its end, unless it has that point.
 * @param {CurvePoints | null} curve
 * @param {Metric} metric
 * @param {string} key
 */
function withPoint(curve, { sequence, value }, key) {
  if (!curve || sequence <= (curve.steps.at(-1) ?? -1)) return curve;
  return { ...curve, steps: [...curve.steps, sequence], values: [...curve.values, objective(value, key)] };
}

/** @param {Json} latest */
function numericKeys(latest) {
  if (latest === null || typeof latest !== "object") return ["default"];
  return Object.entries(latest).flatMap(([name, value]) => (typeof value === "number" ? [name] : []));
}

/**
 * `attempts` are null before they have been read, and `problem` says why they cannot be.
 * @param {{ trial: Trial, attempts: Attempt[] | null, problem: string | undefined }} props
 */
function Attempts({ trial, attempts, problem }) {
  if (!attempts) return html`<${Card} title="Attempts"><p class="soft">${problem ?? "Loading …"}</p></${Card}>`;
  const from = trial.created;
  const to = Math.max(trial.ended ?? now.value, from + 1);
  /** @param {Attempt} one */
  const bar = (one) => {
    if (one.started === null) return { left: "0%", width: "0%" };
    const end = one.ended ?? now.value;
    return {
      left: `${(100 * (one.started - from)) / (to - from)}%`,
      width: `${Math.max((100 * (end - one.started)) / (to - from), 0.5)}%`,
    };
  };
  const hasImages = attempts.some(({ image }) => image);
  return html`<${Card} title=${attempts.length === 1 ? "Attempt" : "Attempts"} end=${html`<span class="soft small">${duration(to - from)} since it was created</span>`}>
    ${attempts.length === 0 && html`<p class="soft">It has not been submitted yet.</p>`}
    <ol class="timeline">${attempts.map(
      (one) => html`<li key=${one.number}>
      <span class="small">Attempt ${one.number + 1}</span>
      <div class="track" data-state=${one.state}><i style=${bar(one)} /></div>
      <span class="small soft">${one.started === null ? "" : duration((one.ended ?? now.value) - one.started)}</span>
    </li>`,
    )}</ol>
    <${Scroll} label="Attempts" style=${{ marginTop: "10px" }}><table class="plain">
      <thead><tr><th>#</th><th>State</th><th>Service</th><th>Host</th><th>Exit</th><th>Started</th>${hasImages && html`<th>Image</th>`}<th>Message</th></tr></thead>
      <tbody>${attempts.map(
        (one) => html`<tr key=${one.number}>
        <td>${one.number + 1}</td><td><${State} state=${one.state} /></td><td>${one.service}</td>
        <td>${one.url ? html`<a href=${safe(one.url)} rel="noreferrer" target="_blank">${one.host || "open"}</a>` : one.host}</td>
        <td>${one.exitCode ?? ""}</td><td><${Time} at=${one.started} /></td>${hasImages && html`<td title=${one.image}>${brief(one.image)}</td>`}<td title=${one.message}>${brief(one.message)}</td>
      </tr>`,
      )}</tbody>
    </table></${Scroll}>
  </${Card}>`;
}

/**
 * A platform's link may be anything; only web pages are linked to.
 * @param {string} url
 */
const safe = (url) => (/^https?:\/\//.test(url) ? url : undefined);

const TABS = [
  ["stdout", "Output"],
  ["stderr", "Errors"],
  ["artifacts", "Artifacts"],
  ["files", "Files"],
];
const OF_FILES = new Set(["artifacts", "files"]);

/** @param {{ trial: Trial, attempts: Attempt[] }} props */
function Outputs({ trial, attempts }) {
  const apart = profile.value?.config.callback !== "log"; // there a pod's one log has both
  const tab = route.value.query.get("tab") ?? (apart && trial.state === "FAILED" ? "stderr" : "stdout");
  const number = route.value.query.get("attempt");
  const attempt = number === null ? trial.attempt : Number(number);
  const picker =
    attempts.length > 1 &&
    !OF_FILES.has(tab) &&
    html`<select aria-label="Which attempt" value=${attempt}
    onChange=${(event) => setQuery({ attempt: event.target.value })}>
    ${attempts.map((one) => html`<option key=${one.number} value=${one.number}>Attempt ${one.number + 1}</option>`)}</select>`;
  return html`<section class="card" aria-label="Output and files">
    <div class="row" style=${{ marginBottom: "10px" }}>
      <nav class="subnav" aria-label="Output and files" style=${{ margin: 0 }}>
        ${TABS.map(
          ([
            name,
            title,
          ]) => html`<a key=${name} href=${href(`trials/${trial.id}`, { tab: name })} aria-current=${tab === name ? "page" : undefined}
          onClick=${(event) => {
            event.preventDefault();
            setQuery({ tab: name });
          }}>${title}</a>`,
        )}
      </nav>
      <span style=${{ marginLeft: "auto" }}>${picker}</span>
    </div>
    ${tab === "files" && html`<${Files} key=${trial.id} trial=${trial} />`}
    ${tab === "artifacts" && html`<${Artifacts} key=${trial.id} trial=${trial} />`}
    ${
      !OF_FILES.has(tab) &&
      html`<${Log} key=${`${trial.id} ${tab} ${attempt}`} path=${`trials/${trial.id}/output/${tab}`} query=${{ attempt }} live=${!hasEnded(trial)}
          label=${tab === "stdout" ? "Output" : "Errors"} empty=${hasEnded(trial) ? "The trial printed nothing here." : "Nothing printed yet."} />`
    }
  </section>`;
}
