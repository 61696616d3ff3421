// The charts, all about the trials that the filters leave. They are loaded as the views are; see app.js.

import { filtered } from "../lib/filtered.js";
import { filterQuery } from "../lib/filters.js";
import { count, plural } from "../lib/format.js";
import { loaded, profile, trials } from "../lib/live_data.js";
import { usePreferences } from "../lib/page_preferences.js";
import { href, route } from "../lib/route.js";
import { isSignedIn } from "../lib/session.js";
import { html, signal, useEffect, useRef, useState } from "../lib/ui.js";
import { loadLibrary } from "../parts/chart.js";
import { FilterButton, FilterChips, FilterPanel, StateFilter } from "../parts/filter_bar.js";
import { Empty } from "../parts/layout.js";
import { SavedViews } from "../parts/saved_views.js";
import { StoppedSwitch } from "../parts/stopped_trials.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { ComponentChildren } from "../vendor/preact.js" */
/** @import { Signal } from "../vendor/signals.js" */

/** @typedef {(props: { rows: Trial[] }) => ComponentChildren} ChartView */

/** @type {[name: string, title: string, load: () => Promise<{ default: ChartView }>][]} */
const CHARTS = [
  ["metric", "Metric", () => import("../charts/metric.js")],
  ["parallel", "Parallel coordinates", () => import("../charts/parallel.js")],
  ["slices", "Slices", () => import("../charts/slices.js")],
  ["contour", "Contour", () => import("../charts/contour.js")],
  ["rank", "Rank", () => import("../charts/rank.js")],
  ["importance", "Importance", () => import("../charts/importance.js")],
  ["curves", "Intermediate results", () => import("../charts/curves.js")],
  ["edf", "Distribution function", () => import("../charts/edf.js")],
  ["duration", "Duration", () => import("../charts/duration.js")],
  ["timeline", "Timeline", () => import("../charts/timeline.js")],
  ["pareto", "Pareto front", () => import("../charts/pareto.js")],
  ["groups", "Groups", () => import("../charts/groups.js")],
  ["compare", "Compare", () => import("../charts/compare.js")],
];
const WITH_STOPPED = new Set(["metric", "parallel", "slices", "contour", "rank", "importance", "edf"]);
const AGAIN_MS = 2000;
/** @type {Signal<Partial<Record<string, ChartView>>>} */
const known = signal({});

/**
 * @param {string} name
 * @param {() => Promise<{ default: ChartView }>} load
 */
function fetchChart(name, load) {
  load().then(
    (module) => {
      known.value = { ...known.value, [name]: module.default };
    },
    () => setTimeout(() => fetchChart(name, load), AGAIN_MS),
  );
}

if (isSignedIn()) {
  loadLibrary();
  for (const [name, , load] of CHARTS) fetchChart(name, load);
}

/**
 * @param {number} shown
 * @param {number} all
 */
const shownTrials = (shown, all) =>
  shown === all ? plural(all, "trial") : `${count(shown)} of ${plural(all, "trial")}`;

export function Charts() {
  const [open, setOpen] = useState(false);
  const name = route.value.parts[1] ?? "metric";
  const entry = CHARTS.find(([one]) => one === name);
  const Content = known.value[name];
  useEffect(() => {
    if (!entry || Content) return;
    fetchChart(name, entry[2]);
  }, [name]);
  const tabs = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    // On a phone the tabs scroll, and the chosen one may be outside.
    tabs.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [name]);
  usePreferences(profile.value?.id);
  const views = html`<${SavedViews} place=${profile.value?.id ?? ""} />`;
  const shared = filterQuery(route.value.query);
  const rows = filtered.value;
  return html`
    <h1 class="hidden">Charts</h1>
    <nav class="subnav" aria-label="Charts" ref=${tabs}>
      ${CHARTS.map(([one, title]) => html`<a key=${one} href=${href(`charts/${one}`, shared)} aria-current=${one === name ? "page" : undefined}>${title}</a>`)}
    </nav>
    ${
      name === "compare"
        ? html`<div class="toolbar"><div class="end">${views}</div></div>`
        : html`
      <div class="toolbar">
        <${StateFilter} />
        <span class="soft small">${shownTrials(rows.length, trials().length)}${loaded.value ? "" : ", loading …"}</span>
        <div class="end">${WITH_STOPPED.has(name) && html`<${StoppedSwitch} />`}<${FilterButton} open=${open} setOpen=${setOpen} />${views}</div>
      </div>
      ${open && html`<${FilterPanel} close=${() => setOpen(false)} />`}
      <div class="toolbar" style=${{ marginTop: "-4px" }}><${FilterChips} /></div>`
    }
    ${entry && Content ? html`<${Content} rows=${rows} />` : html`<${Empty} title=${entry ? "Loading …" : "There is no such chart"} />`}`;
}
