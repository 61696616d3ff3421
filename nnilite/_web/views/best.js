// The best trial so far; with several objectives, the best of each and how many trials no other one beats.

import { digits, writeJson } from "../lib/exact_json.js";
import { count, inFull, number, plural, value } from "../lib/format.js";
import { trials, version } from "../lib/live_data.js";
import { bestAndMedian, front, goals, isSeveral } from "../lib/objectives.js";
import { href } from "../lib/route.js";
import { flatten, isBetter, score, scored } from "../lib/trials.js";
import { html, useMemo } from "../lib/ui.js";
import { Copy } from "../parts/copy.js";
import { Card, Empty, Scroll } from "../parts/layout.js";
import { NoResultYet } from "../parts/no_results.js";
import { Time } from "../parts/states.js";

/** @import { Scored } from "../lib/trials.js" */
/** @import { Experiment as Profile } from "../lib/wire.d.ts" */

/** @param {{ known: Profile }} props */
export function Best({ known }) {
  return isSeveral.value ? html`<${Objectives} />` : html`<${BestTrial} known=${known} />`;
}

// What the best trial does better than most is seen next to the one in the middle.
function MedianLink() {
  const ids = useMemo(() => bestAndMedian(trials()), [version.value, goals.value]);
  return (
    ids.length > 0 && html`<a href=${href("charts/compare", { ids: ids.join(",") })}>Compare with the median trial</a>`
  );
}

/** @param {{ known: Profile }} props */
function BestTrial({ known }) {
  const best = known.best;
  const limits = known.config.resultConstraints;
  if (!best && Array.isArray(limits) && limits.length && known.counts.SUCCEEDED) {
    return html`<${Card} title="Best trial" class="c5"><${Empty} title="No feasible result yet">No trial has succeeded with a result that satisfies ${limits.join(" and ")}.</${Empty}></${Card}>`;
  }
  if (!best) {
    return html`<${Card} title="Best trial" class="c5"><${NoResultYet}>The best trial appears here when the first one has reported its final metric.</${NoResultYet}></${Card}>`;
  }
  const flat = flatten(best.parameters);
  return html`<${Card} title=${`Best trial (${known.optimize === "minimize" ? "lowest" : "highest"} metric)`} class="c5"
    end=${html`<${Copy} text=${() => writeJson(best.parameters)} what="Parameters" label="Copy parameters" />`}>
    <div class="stack" style=${{ gap: "14px" }}>
      <div>
        <div class="big" title=${digits(best, "value") ?? digits(best.value, "default")}>${number(score(best.value), 6)}</div>
        <p class="soft small">trial <a class="mono" href=${href(`trials/${best.id}`)}>${best.id}</a>, number ${best.sequence}${
          best.ended && html`, <${Time} at=${best.ended} />`
        }</p>
      </div>
      <${MedianLink} />
      <${Scroll} label="Parameters" style=${{ maxHeight: "400px", overflowY: "auto" }}>
        <dl class="params">${Object.entries(flat).map(([name, one]) => html`<div key=${name}><dt title=${name}>${name}</dt><dd title=${inFull(flat, name, one)}>${value(one)}</dd></div>`)}</dl>
      </${Scroll}>
    </div>
  </${Card}>`;
}

/**
 * The trial that is best in one objective.
 * @param {string} name
 * @param {string} goal
 */
function leader(name, goal) {
  /** @type {Scored | null} */
  let best = null;
  for (const trial of scored(trials(), name)) {
    if (!trial.violates && (best === null || isBetter(trial.score, best.score, goal))) best = trial;
  }
  return best;
}

function Objectives() {
  const wanted = Object.entries(goals.value);
  const found = useMemo(
    () => ({ leaders: wanted.map(([name, goal]) => leader(name, goal)), best: front(trials(), goals.value) }),
    [version.value, goals.value],
  );
  return html`<${Card} title="Objectives" class="c5" end=${
    found.best.length > 0 && html`<a class="button" href=${href("charts/pareto")}>Pareto front</a>`
  }>
    <div class="stack" style=${{ gap: "14px" }}>
      <div><span class="big">${count(found.best.length)}</span> <span class="soft">
        ${found.best.length === 1 ? "trial is" : "trials are"} on the front: no other one is at least as good in all objectives
      </span></div>
      <${Scroll} label="Objectives"><table class="plain">
        <thead><tr><th>Objective</th><th>Goal</th><th class="number">Best</th><th>Trial</th></tr></thead>
        <tbody>${wanted.map(([name, goal], place) => {
          const best = found.leaders[place];
          return html`<tr key=${name}><td class="mono">${name}</td><td>${goal}</td><td class="number"><b>${best ? number(best.score, 6) : "–"}</b></td>
            <td>${best && html`<a class="mono" href=${href(`trials/${best.id}`)}>${best.id}</a>`}</td></tr>`;
        })}</tbody>
      </table></${Scroll}>
      ${
        found.best.length > 0 &&
        html`<a href=${href("charts/compare", {
          ids: found.best
            .slice(0, 12)
            .map(({ id }) => id)
            .join(","),
        })}>Compare ${found.best.length > 12 ? "the first 12" : plural(found.best.length, "trial")} of the front</a>`
      }
    </div>
  </${Card}>`;
}
