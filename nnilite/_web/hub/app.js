// The page of all experiments: header, banner, and the view that the address asks for.

import { keepFocus } from "../lib/focus.js";
import { route } from "../lib/route.js";
import { switchTheme, theme } from "../lib/theme.js";
import { html, render, useEffect } from "../lib/ui.js";
import { DialogHost } from "../parts/dialog.js";
import { Icon } from "../parts/icons.js";
import { Empty } from "../parts/layout.js";
import { SignedOut, SignOut } from "../parts/sign_in.js";
import { Toasts } from "../parts/toasts.js";
import { Compare } from "./compare.js";
import { connection, refresh } from "./experiments.js";
import { List } from "./list.js";
import { NewExperiment } from "./new.js";

/** @import { ComponentChildren } from "../vendor/preact.js" */

/** @type {[string, string, () => ComponentChildren][]} name in the address, title, view */
const VIEWS = [
  ["overview", "Experiments", List],
  ["compare", "Compare", Compare],
  ["new", "New", NewExperiment],
];

function View() {
  const known = VIEWS.find(([name]) => name === route.value.parts[0]);
  if (connection.value === "signed-out") return html`<${SignedOut} command="nnictl ui" where="of the experiments" />`;
  if (!known)
    return html`<${Empty} title="There is no such page"><a href="#/overview">Go to the experiments</a></${Empty}>`;
  const [name, , Content] = known;
  return html`<${Content} key=${name} />`;
}

function Header() {
  return html`<header class="top">
    <a class="brand" href="#/overview" title="All experiments"><img src="icon.svg" alt="" /><span class="brand-name">nnilite</span></a>
    <nav class="tabs" aria-label="Pages">${VIEWS.map(
      ([name, title]) =>
        html`<a key=${name} href=${`#/${name}`} aria-current=${route.value.parts[0] === name ? "page" : undefined}>${title}</a>`,
    )}</nav>
    <div class="top-end">
      <button class="quiet icon" onClick=${switchTheme} aria-label=${theme.value === "dark" ? "Light colours" : "Dark colours"}><${Icon} name=${theme.value === "dark" ? "sun" : "moon"} /></button>
      <${SignOut} />
    </div>
  </header>`;
}

function Banner() {
  if (connection.value !== "missing") return null;
  return html`<div class="banner bad" role="alert">
    <span><b>The page's server does not answer.</b> Experiments continue without it; <code>nnictl ui</code> starts it again.</span>
    <button class="small" onClick=${refresh}><${Icon} name="retry" />Try now</button>
  </div>`;
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const typing = /** @type {Element} */ (event.target).closest?.("input, textarea, select, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || event.key !== "/") return;
  const search = /** @type {HTMLElement | null} */ (document.querySelector("[data-search]"));
  if (!search) return;
  search.focus();
  event.preventDefault();
}

function App() {
  const place = VIEWS.find(([name]) => name === route.value.parts[0]);
  useEffect(() => {
    document.title = `${place?.[1] ?? "Experiments"} · nnilite`;
    scrollTo(0, 0);
  }, [route.value.parts.join("/")]);
  return html`
    <a class="hidden skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      document.getElementById("main")?.focus();
    }}>Skip to the content</a>
    <${Header} />
    <${Banner} />
    <main id="main" tabindex="-1"><${View} /></main>
    <${DialogHost} />
    <${Toasts} />`;
}

addEventListener("keydown", onKey);
keepFocus();
refresh();
render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
