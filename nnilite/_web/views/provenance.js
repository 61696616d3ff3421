// What ran: code, git state, packages, commands, seeds and machine, as they were at a start of the experiment's manager.

import { get } from "../lib/api.js";
import { writeJson } from "../lib/exact_json.js";
import { count, plural } from "../lib/format.js";
import { profile } from "../lib/live_data.js";
import { route, setQuery } from "../lib/route.js";
import { html, useState } from "../lib/ui.js";
import { useAnswer } from "../parts/answer.js";
import { Pick } from "../parts/chart_card.js";
import { Copy } from "../parts/copy.js";
import { Card, Empty, Scroll } from "../parts/layout.js";
import { Time } from "../parts/states.js";

/** @import { ComponentChildren } from "../vendor/preact.js" */

/**
 * Anything may be missing: other versions record other things.
 * @typedef {object} Start
 * @property {number} [time]
 * @property {string} [nnilite]
 * @property {string[]} [commands]
 * @property {Record<string, number | string>} [seeds]
 * @property {{ folder: string, hash: string | null, files: Record<string, string>, reason: string }} [code]
 * @property {{ commit: string, branch: string, diff: string | null, isCut: boolean, untracked: number | null } | null} [git]
 * @property {{ version: string, executable: string, packages: Record<string, string> }} [python]
 * @property {{ system: string, processors: number | null, gpus: string[] }} [machine]
 * @property {string[]} [environment]
 */

/**
 * What trials ran with; `hosts` have the times when they said so.
 * @typedef {{ hosts: Record<string, number>, python: string, executable: string, system: string, packages: Record<string, string>, gpus?: string[] }} Worker
 */

/** @typedef {{ times: (number | null)[], start: Start | null, workers: Worker[] }} Answer */

export function Provenance() {
  const asked = route.value.query.get("start") ?? "-1";
  /** @type {() => Promise<Answer>} */
  const ask = () => get("provenance", { start: asked });
  const { found, problem } = useAnswer(ask, [asked, profile.value?.state]);
  if (problem) return html`<p class="note bad" role="alert">${problem}</p>`;
  if (!found) return html`<${Empty} title="Loading …" />`;
  if (!found.start)
    return html`<div class="card"><${Empty} title="Nothing is recorded">
      What ran is recorded some seconds after the start, unless <code>recordProvenance</code> is false.</${Empty}></div>`;
  const { start, times, workers } = found;
  return html`<div class="split">
    <${Card} title="What ran" end=${html`<${StartPick} times=${times} asked=${asked} /><${Copy} text=${() => writeJson(start, 2)} what="Record" label="JSON" />`}>
      <${Facts} start=${start} />
    </${Card}>
    <${Workers} workers=${workers} />
    <${Difference} git=${start.git ?? null} />
    <${Packages} start=${start} workers=${workers} />
    <${Pairs} title="Files of the code" pairs=${start.code?.files ?? {}} names=${["File", "SHA-256"]} about=${start.code?.reason ?? ""} />
    <${Environment} names=${start.environment ?? []} />
  </div>`;
}

const HOSTS = 5;

/** @param {Worker} worker */
const hostsOf = ({ hosts }) => {
  const names = Object.keys(hosts);
  const more = names.length - HOSTS;
  return names.slice(0, HOSTS).join(", ") + (more > 0 ? ` and ${plural(more, "more host")}` : "");
};

/**
 * Equal ones with their number: 2 x Tesla T4, 535.129.03.
 * @param {string[]} gpus
 */
const countedGpus = (gpus) =>
  [...new Set(gpus)].map((gpu) => {
    const times = gpus.filter((one) => one === gpu).length;
    return times === 1 ? gpu : `${times} x ${gpu}`;
  });

/** @param {{ workers: Worker[] }} props */
function Workers({ workers }) {
  if (!workers.length) return null;
  return html`<${Card} title="Where trials ran">
    <p class="soft small">In the whole experiment. Each host and Python says it with the first trial that uses the SDK there.</p>
    <${Scroll} label="Where trials ran"><table class="plain">
      <thead><tr>${["Hosts", "Python", "Packages", "System and GPUs"].map((name) => html`<th key=${name} scope="col">${name}</th>`)}</tr></thead>
      <tbody>${workers.map(
        (
          worker,
          place,
        ) => html`<tr key=${place}><td title=${Object.keys(worker.hosts).join(", ")}>${hostsOf(worker)}</td>
          <td>${worker.python}<div class="mono small soft">${worker.executable}</div></td>
          <td>${count(Object.keys(worker.packages).length)}</td><td class="small">${worker.system}${countedGpus(worker.gpus ?? []).map((gpu) => html`<div key=${gpu}>${gpu}</div>`)}</td></tr>`,
      )}</tbody>
    </table></${Scroll}>
  </${Card}>`;
}

const MANAGER = "manager";

/** @param {{ start: Start, workers: Worker[] }} props */
function Packages({ start, workers }) {
  const [chosen, choose] = useState(MANAGER);
  const worker = workers[Number(chosen)];
  const options = [
    [MANAGER, "the manager"],
    ...workers.map((one, place) => [String(place), `trials on ${hostsOf(one)}`]),
  ];
  return html`
    <${Pairs} title="Packages" pairs=${(worker ?? start.python)?.packages ?? {}} names=${["Package", "Version"]}
      about=${workers.length ? "" : "of the Python that runs the manager"}
      before=${workers.length > 0 && html`<${Pick} label="Of the Python of" value=${chosen} options=${options} set=${choose} />`} />`;
}

/** @param {{ times: (number | null)[], asked: string }} props */
function StartPick({ times, asked }) {
  if (times.length < 2) return null;
  const last = times.length - 1;
  const options = times.map((time, place) => [
    place === last ? "-1" : String(place),
    time === null ? `no. ${place + 1}` : new Date(time * 1000).toLocaleString(),
  ]);
  const value = Number(asked) === last ? "-1" : asked;
  return html`<${Pick} label="Start" value=${value} options=${options} set=${(/** @type {string} */ one) => setQuery({ start: one === "-1" ? null : one })} />`;
}

/** @param {{ start: Start }} props */
function Facts({ start: { time, commands, seeds, code, git, python, machine, nnilite } }) {
  /** @type {[string, ComponentChildren][]} */
  const lines = [
    ["Started", time === undefined ? "" : html`<${Time} at=${time} />`],
    ["Command", html`<code class="lines">${[...new Set(commands ?? [])].join("\n")}</code>`],
    [
      "Seeds",
      Object.entries(seeds ?? {})
        .map(([name, seed]) => `${name} ${seed}`)
        .join(", "),
    ],
    ["Code", code && html`<span class="mono">${code.folder}</span>, ${plural(Object.keys(code.files).length, "file")}`],
    ["Hash of the code", code?.hash && html`<span class="mono">${code.hash}</span>`],
    ["Git commit", git ? html`<span class="mono">${git.commit}</span>` : "no repository"],
    ["Branch", git?.branch],
    ["Python", python && html`${python.version}, <span class="mono">${python.executable}</span>`],
    ["nnilite", nnilite],
    ["Machine", machine && `${machine.system}, ${machine.processors ?? "?"} processors`],
    ["GPUs", machine?.gpus.join(", ")],
  ];
  return html`<dl class="facts">${lines
    .filter(([, text]) => text)
    .map(([name, text]) => html`<dt key=${name}>${name}</dt><dd key=${`${name}-value`}>${text}</dd>`)}</dl>`;
}

/**
 * How far the code is from its commit.
 * @param {NonNullable<Start["git"]>} git
 */
function distance({ diff, isCut, untracked }) {
  const changed = (diff ?? "").split("\n").filter((line) => line.startsWith("diff --git ")).length;
  const since = changed ? `${isCut ? "at least " : ""}${plural(changed, "file")} changed` : "no changes";
  const others = untracked === null ? "" : `; ${plural(untracked, "file")} not in the repository`;
  return `${diff === null ? "git did not answer" : since}${others}`;
}

/** @type {[string, string][]} */
const SIGNS = [
  ["+", "added"],
  ["-", "removed"],
  ["@@", "place"],
  ["diff ", "file"],
];

/** @param {{ git: Start["git"] }} props */
function Difference({ git }) {
  if (!git) return null;
  return html`<${Card} title="Difference to the commit" end=${git.diff && html`<${Copy} text=${git.diff} what="Difference" />`}>
    <p class="soft small">${distance(git)}${git.isCut ? "; the rest of the difference is left out" : ""}. Secrets are hidden.</p>
    ${
      git.diff &&
      html`<pre class="code diff" tabindex="0" role="region" aria-label="Difference">${git.diff
        .split("\n")
        .map((line, place) => {
          const sign = SIGNS.find(([start]) => line.startsWith(start) && !/^(\+\+\+|---) /.test(line));
          return html`<span key=${place} class=${sign?.[1] ?? ""}>${`${line}\n`}</span>`;
        })}</pre>`
    }
  </${Card}>`;
}

const SHOWN = 24; // characters of a hash or a version

/** @param {{ title: string, pairs: Record<string, string>, names: string[], about: string, before?: ComponentChildren }} props */
function Pairs({ title, pairs, names, about, before }) {
  const [words, setWords] = useState("");
  const all = Object.entries(pairs);
  const found = all.filter(([name]) => name.toLowerCase().includes(words.toLowerCase()));
  if (!all.length && !about && !before) return null;
  return html`<${Card} title=${`${title} (${count(all.length)})`}
    end=${html`${before}${all.length > 10 && html`<input type="search" aria-label=${`Find in ${title}`} placeholder="Find" value=${words} onInput=${(event) => setWords(event.target.value)} />`}`}>
    ${about && html`<p class="soft small">${about}</p>`}
    <${Scroll} label=${title} style=${{ maxHeight: "420px", overflowY: "auto" }}><table class="plain">
      <thead><tr>${names.map((name) => html`<th key=${name} scope="col">${name}</th>`)}</tr></thead>
      <tbody>${found.map(([name, text]) => html`<tr key=${name}><td class="mono small">${name}</td><td class="mono small" title=${text}>${text.slice(0, SHOWN)}</td></tr>`)}</tbody>
    </table></${Scroll}>
  </${Card}>`;
}

/** @param {{ names: string[] }} props */
function Environment({ names }) {
  if (!names.length) return null;
  return html`<${Card} title=${`Environment variables (${count(names.length)})`}>
    <p class="soft small">Their names only.</p><p class="mono small">${names.join(" ")}</p></${Card}>`;
}
