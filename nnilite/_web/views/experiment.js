// What the experiment is: its config, search space and logs; its results as files; and its neighbours.

import { get, send } from "../lib/api.js";
import { digits, readJson, writeJson } from "../lib/exact_json.js";
import { count, duration } from "../lib/format.js";
import { connection, profile, takeProfile } from "../lib/live_data.js";
import { href, route } from "../lib/route.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { Copy } from "../parts/copy.js";
import { Icon } from "../parts/icons.js";
import { Card, Empty, Scroll } from "../parts/layout.js";
import { Log } from "../parts/log.js";
import { ServedLink } from "../parts/served_link.js";
import { ExperimentState, Time } from "../parts/states.js";
import { messageOf, say } from "../parts/toasts.js";
import { Yaml, yaml } from "../parts/yaml.js";
import { Provenance } from "./provenance.js";

/** @import { Listed, Experiment as Profile } from "../lib/wire.d.ts" */
/** @import { ComponentChildren } from "../vendor/preact.js" */

const TABS = [
  ["config", "Config"],
  ["space", "Search space"],
  ["ran", "What ran"],
  ["logs", "Logs"],
  ["export", "Export"],
  ["others", "Other experiments"],
];
/** @type {Record<string, (props: { known: Profile }) => ComponentChildren>} */
const VIEWS = { config: Config, space: Space, ran: Provenance, logs: Logs, export: Export, others: Others };

export function Experiment() {
  const known = profile.value;
  const tab = route.value.parts[1] ?? "config";
  const Content = VIEWS[tab];
  if (!known) return html`<${Empty} title="Loading …" />`;
  return html`
    <h1 class="hidden">Experiment ${known.id}</h1>
    <nav class="subnav" aria-label="Experiment">
      ${TABS.map(([name, title]) => html`<a key=${name} href=${href(`experiment/${name}`)} aria-current=${tab === name ? "page" : undefined}>${title}</a>`)}
    </nav>
    ${Content ? html`<${Content} known=${known} />` : html`<${Empty} title="There is no such page" />`}`;
}

/** @param {{ known: Profile }} props */
function Config({ known }) {
  return html`<div class="split">
    <${Card} title="About">
      <dl class="facts">
        <dt>Experiment</dt><dd class="mono">${known.id}</dd>
        <dt>Name</dt><dd>${known.name || "–"}</dd>
        <dt>State</dt><dd><${ExperimentState} state=${known.state} /> ${known.reason}</dd>
        <dt>Created</dt><dd><${Time} at=${known.created} /></dd>
        <dt>Ended</dt><dd>${known.ended === null ? "–" : html`<${Time} at=${known.ended} />`}</dd>
        <dt>Running time</dt><dd>${duration(known.duration)}</dd>
        <dt>Trials</dt><dd>${count(known.nextSequence)}</dd>
        <dt>Platforms</dt><dd>${known.platforms.join(", ")}</dd>
        ${known.tunerChoice && html`<dt>Tuner</dt><dd>${known.tunerChoice}</dd>`}
        <dt>Folder</dt><dd class="mono">${known.directory}</dd>
        <dt>Manager</dt><dd>process ${known.pid}, nnilite ${known.version}</dd>
      </dl>
    </${Card}>
    <${Card} title="Config" end=${html`<span class="soft small">secrets are hidden</span><${Copy} text=${() => yaml(known.config)} what="Config" />`}>
      <${Yaml} value=${known.config} label="Config as YAML" />
    </${Card}>
  </div>`;
}

/**
 * A row for each parameter, those of the options of a nested choice below it.
 * @param {any} space written by people
 * @param {string} [above]
 * @returns {{ name: string, type: string, values: string, notes: string }[]}
 */
function spaceRows(space, above = "") {
  if (!space || typeof space !== "object") return [];
  return Object.entries(space).flatMap(([name, one]) => {
    const options = Array.isArray(one?._value) ? one._value : [one?._value ?? one];
    const isNested = one?._type === "choice" && options.every((/** @type {any} */ option) => option?._name);
    const shown = isNested ? options.map((/** @type {any} */ option) => option._name) : options;
    const row = {
      name: `${above}${name}`,
      type: one?._type ?? "",
      values: shown
        .map((/** @type {any} */ option, /** @type {number} */ place) =>
          isNested ? option : (digits(one?._value, place) ?? writeJson(option)),
        )
        .join(", "),
      notes: notesOn(one),
    };
    const below = isNested
      ? options.flatMap((/** @type {any} */ option) =>
          spaceRows(optionSpace(option), `${above}${name}=${option._name}.`),
        )
      : [];
    return [row, ...below];
  });
}

/** @param {any} option of a nested choice */
const optionSpace = ({ _name, ...inner }) => inner;

/**
 * @param {any} one what the search space says of a parameter
 * @returns {string}
 */
function notesOn(one) {
  const parts = [
    one?._unit && `in ${one._unit}`,
    one?._ordered && "in ascending order",
    one?._default !== undefined && `default ${digits(one, "_default") ?? writeJson(one._default)}`,
  ];
  return parts.filter(Boolean).join(", ");
}

/** @param {{ known: Profile }} props */
function Space({ known }) {
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const [problem, setProblem] = useState("");
  const entries = spaceRows(known.searchSpace);
  const isNoted = entries.some(({ notes }) => notes);
  const fixed = known.readOnly || ["STOPPED", "STOPPING"].includes(known.state);
  /** @param {SubmitEvent} event */
  const save = async (event) => {
    event.preventDefault();
    try {
      takeProfile(await send("PATCH", "experiment", { searchSpace: readJson(text ?? "") }));
      setText(null);
      setProblem("");
      say("The search space has been changed; the next proposals will use it.");
    } catch (error) {
      setProblem(error instanceof SyntaxError ? `This is not JSON: ${error.message}` : messageOf(error));
    }
  };
  return html`<${Card} title="Search space" end=${
    text === null &&
    html`<${Copy} text=${() => writeJson(known.searchSpace, 2)} what="Search space" />
    <button class="small" disabled=${fixed} onClick=${() => setText(writeJson(known.searchSpace, 2))}><${Icon} name="edit" />Edit</button>`
  }>
    ${
      text !== null
        ? html`<form class="stack" onSubmit=${save}>
          <label class="field"><span>Search space (JSON, in NNI's format)</span><textarea rows="16" spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)} /></label>
          ${problem && html`<p class="note bad" role="alert">${problem}</p>`}
          <div class="row"><button class="primary" type="submit">Save</button><button type="button" onClick=${() => {
            setText(null);
            setProblem("");
          }}>Cancel</button></div>
        </form>`
        : html`<${Scroll} label="Search space"><table class="plain">
          <thead><tr><th>Parameter</th><th>Type</th><th>Values</th>${isNoted && html`<th>Notes</th>`}</tr></thead>
          <tbody>${entries.map(
            ({ name, type, values, notes }) => html`<tr key=${name}>
            <td class="mono" style=${{ minWidth: "150px" }}>${name}</td><td class="tight">${type}</td><td class="mono wide">${values}</td>${isNoted && html`<td class="wide">${notes}</td>`}
          </tr>`,
          )}</tbody>
        </table></${Scroll}>`
    }
  </${Card}>`;
}

const LOGS = [
  ["manager", "Manager"],
  ["tuner", "Tuner"],
];

function Logs() {
  const name = route.value.query.get("log") ?? "manager";
  return html`<section class="card" aria-label="Logs">
    <nav class="subnav" aria-label="Which log" style=${{ marginBottom: "8px" }}>
      ${LOGS.map(([one, title]) => html`<a key=${one} href=${href("experiment/logs", { log: one })} aria-current=${one === name ? "page" : undefined}>${title}</a>`)}
    </nav>
    <${Log} key=${name} path=${`logs/${name}`} live=${true} label=${`Log of the ${name}`} empty="Nothing logged yet." />
  </section>`;
}

/** @param {{ known: Profile }} props */
function Export({ known }) {
  /** @param {string} format */
  return html`<div class="split">
    <${Card} title="Results of all ended trials">
      <div class="stack">
        <p class="soft">Every trial with its parameters, state and final metric.</p>
        <div class="row">
          <${ServedLink} class="button" path="export" query=${{ format: "csv" }} download=${`${known.id}.csv`}><${Icon} name="download" />CSV</${ServedLink}>
          <${ServedLink} class="button" path="export" query=${{ format: "json" }} download=${`${known.id}.json`}><${Icon} name="download" />JSON</${ServedLink}>
        </div>
      </div>
    </${Card}>
    <${Card} title="On the command line">
      <div class="stack">
        ${[
          ["Results", `nnictl experiment export ${known.id} --filename results.csv --type csv`],
          ["Files of a trial", `nnictl trial download ${known.id} --trial-id TRIAL`],
          ...(known.cannotResume ? [] : [["Resume later", `nnictl resume ${known.id}`]]),
        ].map(
          ([what, command]) => html`
          <div key=${what}><div class="soft small">${what}</div><div class="row"><code>${command}</code><${Copy} text=${command} what="Command" /></div></div>`,
        )}
      </div>
    </${Card}>
  </div>`;
}

/** @param {{ one: Listed, isThis: boolean }} props */
function ExperimentLink({ one, isThis }) {
  const isAlive = one.url && one.pid && one.state !== "STOPPED";
  if (isThis) return html`<span class="mono">${one.id}</span> <span class="soft small">this one</span>`;
  return isAlive
    ? html`<a class="mono" href=${`${one.url}/`}>${one.id}</a>`
    : html`<span class="mono">${one.id}</span>`;
}

/** @param {{ known: Profile }} props */
function Others({ known }) {
  const [found, setFound] = useState(/** @type {Listed[] | null} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    /** @type {Promise<{ experiments: Listed[] }>} */
    const asked = get("experiments");
    asked.then(
      (answer) => {
        setFound(answer.experiments);
        setProblem("");
      },
      (error) => setProblem(error.message),
    );
  }, [connection.value.state]);
  if (problem) return html`<p class="note bad">${problem}</p>`;
  if (!found) return html`<${Empty} title="Loading …" />`;
  const rows = [...found].sort((a, b) => (b.started ?? 0) - (a.started ?? 0));
  return html`<${Card} title="Experiments on this machine"><${Scroll} label="Experiments on this machine"><table class="plain">
    <thead><tr><th>Experiment</th><th>Name</th><th>State</th><th>Platform</th><th>Started</th><th>Ended</th></tr></thead>
    <tbody>${rows.map(
      (one) => html`<tr key=${one.id}>
      <td><${ExperimentLink} one=${one} isThis=${one.id === known.id} /></td>
      <td style=${{ minWidth: "9em" }}>${one.name}</td>
      <td><${ExperimentState} state=${one.state} /></td><td>${one.platform}</td><td><${Time} at=${one.started} /></td><td><${Time} at=${one.ended} /></td>
    </tr>`,
    )}</tbody>
  </table></${Scroll}></${Card}>`;
}
