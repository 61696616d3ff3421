// The frame: header, tabs, banners, and the view that the address asks for. Views other than the first are loaded when
// they are first opened, or at once if this page is signed in: its port may be another program's later, and what would be
// loaded from there could use the key.

import { send } from "./lib/api.js";
import { filterQuery } from "./lib/filters.js";
import { keepFocus } from "./lib/focus.js";
import { connect, connection, now, profile, start } from "./lib/live_data.js";
import { go, href, route } from "./lib/route.js";
import { isSignedIn } from "./lib/session.js";
import { switchTheme, theme } from "./lib/theme.js";
import { html, render, signal, useEffect, useRef } from "./lib/ui.js";
import { Copy } from "./parts/copy.js";
import { closeDialog, confirm, DialogHost, openDialog } from "./parts/dialog.js";
import { Icon } from "./parts/icons.js";
import { Empty } from "./parts/layout.js";
import { SignedOut, SignOut } from "./parts/sign_in.js";
import { ExperimentState } from "./parts/states.js";
import { perform, Toasts } from "./parts/toasts.js";
import { Overview } from "./views/overview.js";

/** @import { Connection } from "./lib/live_data.js" */
/** @import { Experiment } from "./lib/wire.d.ts" */
/** @import { ComponentChildren } from "./vendor/preact.js" */
/** @import { Signal } from "./vendor/signals.js" */

const TABS = [
  ["overview", "Overview"],
  ["trials", "Trials"],
  ["charts", "Charts"],
  ["experiment", "Experiment"],
];
/** @typedef {() => ComponentChildren} Component */

/** @type {Record<string, () => Promise<Component>>} */
const LATER = {
  trials: () => import("./views/trials.js").then((module) => module.Trials),
  trial: () => import("./views/trial.js").then((module) => module.TrialPage),
  charts: () => import("./views/charts.js").then((module) => module.Charts),
  experiment: () => import("./views/experiment.js").then((module) => module.Experiment),
};
const AGAIN_MS = 2000;
/** @type {Signal<Record<string, Component>>} */
const views = signal({ overview: Overview });
/** @type {Signal<Record<string, boolean>>} */
const troubles = signal({});

/** @param {string[]} parts of the address */
function viewName([first, second]) {
  if (first === "trials" && second) return "trial";
  return TABS.some(([name]) => name === first) ? first : null;
}

/**
 * What tells a view from the others in the title and the history of a browser; the first page has the experiment's name alone.
 * @param {string[]} parts of the address
 */
function viewTitle([first, second]) {
  if (first === "trials" && second) return `Trial ${second}`;
  if (first === "overview") return "";
  return TABS.find(([name]) => name === first)?.[1] ?? "";
}

/** @param {string} name */
function fetchView(name) {
  if (views.value[name]) return;
  LATER[name]().then(
    (view) => {
      views.value = { ...views.value, [name]: view };
      troubles.value = { ...troubles.value, [name]: false };
    },
    () => {
      troubles.value = { ...troubles.value, [name]: true };
      setTimeout(() => fetchView(name), AGAIN_MS);
    },
  );
}

function View() {
  const name = viewName(route.value.parts);
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (name) fetchView(name);
    scrollTo(0, 0);
  }, [route.value.parts.join("/")]);
  let content;
  if (connection.value.state === "signed-out")
    content = html`<${SignedOut} command=${profile.value ? `nnictl webui url ${profile.value.id}` : "nnictl webui url"} where="where the experiment was started" />`;
  else if (name === null)
    content = html`<${Empty} title="There is no such page"><a href="#/overview">Go to the overview</a></${Empty}>`;
  else if (!views.value[name] && troubles.value[name])
    content = html`<${Empty} title="This page could not be loaded yet">Trying again until the manager answers.</${Empty}>`;
  else if (!views.value[name]) content = html`<${Empty} title="Loading …" />`;
  else {
    const Content = views.value[name];
    content = html`<${Content} key=${name === "trial" ? route.value.parts[1] : name} />`;
  }
  return html`<main id="main" tabindex="-1" ref=${main}>${content}</main>`;
}

function Header() {
  const known = profile.value;
  const here = route.value.parts[0];
  const shared = here === "trials" || here === "charts" ? filterQuery(route.value.query) : undefined;
  return html`<header class="top">
    <a class="brand" href="#/overview" title="Overview">
      <img src="icon.svg" alt="" /><span style=${{ minWidth: 0 }}><div class="brand-name">${known?.name || "nnilite"}</div><div class="brand-id">${known?.id ?? ""}</div></span>
    </a>
    <nav class="tabs" aria-label="Pages">
      ${TABS.map(
        ([
          name,
          title,
        ]) => html`<a key=${name} href=${href(name, name === "trials" || name === "charts" ? shared : undefined)}
        aria-current=${here === name ? "page" : undefined}>${title}</a>`,
      )}
    </nav>
    <div class="top-end">
      <${ConnectionState} />
      ${known && html`<span class="wide-only"><${ExperimentState} state=${known.state} /></span>`}
      <button class="quiet icon wide-only" onClick=${help} aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)"><b>?</b></button>
      <button class="quiet icon" onClick=${switchTheme} aria-label=${theme.value === "dark" ? "Light colours" : "Dark colours"}><${Icon} name=${theme.value === "dark" ? "sun" : "moon"} /></button>
      <${SignOut} />
      <${StopButton} known=${known} />
    </div>
  </header>`;
}

/** @type {Record<Connection["state"], string>} */
const CONNECTION_WORDS = { connecting: "Connecting", live: "Live", lost: "Not connected", "signed-out": "Signed out" };

function ConnectionState() {
  const { state } = connection.value;
  return html`<span class="badge" data-state=${state} title="Whether this page shows changes as they happen">
    <i class="dot" aria-hidden="true" />${CONNECTION_WORDS[state]}</span>`;
}

/** @param {{ known: Experiment | null }} props */
function StopButton({ known }) {
  if (!known || known.readOnly || ["STOPPED", "STOPPING"].includes(known.state)) return null;
  const stop = () =>
    confirm({
      title: "Stop this experiment?",
      text: `Running trials will be ended. All results are kept; “nnictl resume ${known.id}” continues it.`,
      yes: "Stop it",
      danger: true,
      act: () => perform(() => send("POST", "experiment/stop", {}), "The experiment is stopping."),
    });
  return html`<button class="danger" onClick=${stop}><${Icon} name="kill" />Stop</button>`;
}

function Banner() {
  const { state, since, retryAt, reason } = connection.value;
  const known = profile.value;
  if (state === "lost") {
    const stopped = known && ["STOPPED", "STOPPING"].includes(known.state);
    const wait = Math.max(0, Math.ceil(retryAt / 1000 - now.value));
    const resume = known && !known.cannotResume && `nnictl resume ${known.id} --port ${location.port || 8080}`;
    return html`<div class=${`banner ${stopped ? "" : "bad"}`} role="alert">
      <span><b>${stopped ? "The experiment is stopped." : "The connection to the manager is lost."}</b>
      ${stopped ? " This is its last state." : ` ${reason} This is the state at ${new Date(since).toLocaleTimeString()}. Trying again${wait ? ` in ${wait} s` : " …"}`}</span>
      ${resume && html`<span>To resume it: <code>${resume}</code></span><${Copy} text=${resume} what="Command" />`}
      <button class="small" onClick=${connect}><${Icon} name="retry" />Try now</button>
    </div>`;
  }
  if (known?.readOnly) {
    const resume = () => perform(() => send("POST", "experiment/resume", {}), "The experiment will resume shortly.");
    return html`<div class="banner" role="region" aria-label="Read only"><span><b>Read only.</b> ${known.cannotResume || "This experiment is open for viewing."}</span>
      ${!known.cannotResume && html`<button class="small" onClick=${resume}><${Icon} name="play" />Resume</button>`}</div>`;
  }
  return null;
}

const SHORTCUTS = [
  ["g o", "Overview"],
  ["g t", "Trials"],
  ["g c", "Charts"],
  ["g e", "Experiment"],
  ["/", "Find trials"],
  ["n", "New trial (in Trials)"],
  ["↑ ↓ j k", "Move in the table"],
  ["Enter", "Open the trial"],
  ["Space", "Select the trial"],
  ["Ctrl+A", "Select all trials of the table"],
  ["Esc", "Close"],
  ["?", "This help"],
];

function help() {
  openDialog(
    () => html`<h1 id="dialog-title">Keyboard shortcuts</h1>
    <dl class="facts">${SHORTCUTS.map(([keys, what]) => html`<dt key=${what}>${keys.split(" ").map((key) => html`<kbd key=${key}>${key}</kbd> `)}</dt><dd key=${keys}>${what}</dd>`)}</dl>
    <div class="dialog-end"><button class="primary" onClick=${closeDialog}>Close</button></div>`,
  );
}

/** @type {Record<string, string>} */
const PLACES = { o: "overview", t: "trials", c: "charts", e: "experiment" };

let pendingG = 0;
/** @param {KeyboardEvent} event */
function onKey(event) {
  const typing = /** @type {Element} */ (event.target).closest?.("input, textarea, select, dialog, [contenteditable]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const place = PLACES[event.key];
  if (place && Date.now() - pendingG < 1000) go(place);
  else if (event.key === "?") help();
  else if (event.key === "/") findTrials();
  else if (event.key === "n" && route.value.parts.join("/") === "trials") element(".toolbar .primary:enabled")?.click();
  else {
    pendingG = event.key === "g" ? Date.now() : 0;
    return;
  }
  pendingG = 0;
  event.preventDefault();
}

/**
 * @param {string} selector
 * @returns {HTMLElement | null}
 */
const element = (selector) => document.querySelector(selector);

function findTrials() {
  const focus = () => element("[data-search]")?.focus();
  if (document.querySelector("[data-search]")) focus();
  else {
    go("trials");
    setTimeout(focus, 150);
  }
}

function App() {
  const known = profile.value;
  useEffect(() => {
    const word = known ? `${known.name || known.id} · ${known.state.toLowerCase().replaceAll("_", " ")}` : "nnilite";
    document.title = [viewTitle(route.value.parts), word].filter(Boolean).join(" · ");
  }, [known?.name, known?.state, route.value.parts.join("/")]);
  return html`
    <a class="hidden skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      element("#main")?.focus();
    }}>Skip to the content</a>
    <${Header} />
    <${Banner} />
    <${View} />
    <${DialogHost} />
    <${Toasts} />`;
}

addEventListener("keydown", onKey);
keepFocus();
start();
if (isSignedIn()) Object.keys(LATER).forEach(fetchView);
render(html`<${App} />`, /** @type {HTMLElement} */ (element("#app")));
