// The charts, all about the trials that the filters leave.
import { html, signal, useEffect, useState } from "../lib/ui.js";
import { count, plural } from "../lib/format.js";
import { filterQuery } from "../lib/filters.js";
import { href, route } from "../lib/route.js";
import { chosen } from "../lib/selection.js";
import { loaded, trials } from "../lib/store.js";
import { Empty } from "../parts/bits.js";
import { FilterButton, FilterChips, FilterPanel, StateFilter } from "../parts/filters.js";

const CHARTS = [
  ["metric", "Metric", () => import("../charts/metric.js")],
  ["parallel", "Parallel coordinates", () => import("../charts/parallel.js")],
  ["slices", "Slices", () => import("../charts/slices.js")],
  ["contour", "Contour", () => import("../charts/contour.js")],
  ["importance", "Importance", () => import("../charts/importance.js")],
  ["curves", "Intermediate results", () => import("../charts/curves.js")],
  ["duration", "Duration", () => import("../charts/duration.js")],
  ["timeline", "Timeline", () => import("../charts/timeline.js")],
  ["pareto", "Pareto front", () => import("../charts/pareto.js")],
  ["compare", "Compare", () => import("../charts/compare.js")],
];
const AGAIN_MS = 2000;
const known = signal({});

function fetchChart(name, load) {
  load().then(
    (module) => { known.value = { ...known.value, [name]: module.default }; },
    () => setTimeout(() => fetchChart(name, load), AGAIN_MS),
  );
}

export function Charts() {
  const [open, setOpen] = useState(false);
  const name = route.value.parts[1] ?? "metric";
  const entry = CHARTS.find(([one]) => one === name);
  const Content = known.value[name];
  useEffect(() => {
    if (!entry || Content) return;
    fetchChart(name, entry[2]);
  }, [name]);
  const shared = filterQuery(route.value.query);
  const rows = chosen.value;
  return html`
    <h1 class="hidden">Charts</h1>
    <nav class="subnav" aria-label="Charts">
      ${CHARTS.map(([one, title]) => html`<a key=${one} href=${href(`charts/${one}`, shared)} aria-current=${one === name ? "page" : undefined}>${title}</a>`)}
    </nav>
    ${name !== "compare" && html`
      <div class="toolbar">
        <${StateFilter} />
        <span class="soft small">${rows.length === trials().length ? plural(rows.length, "trial") : `${count(rows.length)} of ${plural(trials().length, "trial")}`}${loaded.value ? "" : ", loading …"}</span>
        <div class="end"><${FilterButton} open=${open} setOpen=${setOpen} /></div>
      </div>
      ${open && html`<${FilterPanel} />`}
      <div class="toolbar" style=${{ marginTop: "-4px" }}><${FilterChips} /></div>`}
    ${!entry ? html`<${Empty} title="There is no such chart" />` : Content ? html`<${Content} rows=${rows} />` : html`<${Empty} title="Loading …" />`}`;
}

export function NoResults() {
  return html`<div class="card"><${Empty} title="No results to draw">Trials with a final metric are needed here. Take away filters, or wait for the first to end.</${Empty}></div>`;
}
