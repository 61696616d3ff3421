// What can be done to all ticked experiments at once: compare, stop, tag, delete. Those that it does not fit are left out.

import { send } from "../lib/api.js";
import { count, plural } from "../lib/format.js";
import { href } from "../lib/route.js";
import { Ticks } from "../lib/ticks.js";
import { html, useState } from "../lib/ui.js";
import { closeDialog, confirm, openDialog } from "../parts/dialog.js";
import { messageOf, say } from "../parts/toasts.js";
import { address, during } from "./actions.js";
import { experiments, isViewed, title } from "./experiments.js";

/** @import { Experiment } from "./experiments.js" */

export const ticked = new Ticks();
const COMPARED_MAX = 10;
const NAMED = 5;

/** @param {Experiment} one */
const isOurs = (one) => one.madeBy === "nnilite";
/** @param {Experiment[]} chosen */
const named = (chosen) =>
  chosen.slice(0, NAMED).map(title).join(", ") + (chosen.length > NAMED ? ` and ${chosen.length - NAMED} more` : "");

/**
 * Does something to one after the other, and says which of them failed.
 * @param {Experiment[]} chosen
 * @param {(one: Experiment) => Promise<unknown>} work
 * @param {string} done
 */
async function eachOf(chosen, work, done) {
  let count = 0;
  for (const one of chosen) {
    try {
      await during(one, () => work(one));
      count += 1;
    } catch (error) {
      say(`${title(one)}: ${messageOf(error)}`, true);
    }
  }
  if (count) say(`${plural(count, "experiment")} ${done}.`);
}

/** @param {{ shown: Experiment[] }} props what the filters leave */
export function Ticked({ shown }) {
  const chosen = (experiments.value ?? []).filter((one) => ticked.has(one.id));
  if (!chosen.length) return null;
  const hidden = chosen.length - chosen.filter((one) => shown.includes(one)).length;
  const running = chosen.filter((one) => one.alive && !isViewed(one) && one.state !== "STOPPING");
  const gone = chosen.filter((one) => isOurs(one) && !one.alive);
  const taggable = chosen.filter((one) => isOurs(one) && !one.damage);
  const stop = () =>
    confirm({
      title: `Stop ${plural(running.length, "experiment")}?`,
      text: `${named(running)}. Running trials will be ended. All results are kept.`,
      yes: "Stop them",
      danger: true,
      act: () => eachOf(running, (one) => send("POST", address(one, "stop")), "stopping"),
    });
  const remove = () =>
    confirm({
      title: `Delete ${plural(gone.length, "experiment")}?`,
      text: `${named(gone)}. All results, logs and files of their trials will be deleted. This cannot be undone.`,
      yes: "Delete them",
      danger: true,
      act: () => eachOf(gone, (one) => send("DELETE", address(one)), "deleted").then(() => ticked.clear()),
    });
  const tag = () => openDialog(() => html`<${TagForm} chosen=${taggable} />`);
  const ids = new URLSearchParams(chosen.map(({ id }) => ["id", id]));
  const fits = chosen.length > 1 && chosen.length <= COMPARED_MAX;
  return html`<span class="row" role="group" aria-label="Ticked experiments">${
    fits
      ? html`<a class="button" href=${href("compare", ids)}>Compare ${chosen.length}</a>`
      : html`<span class="soft small">${chosen.length} ticked; 2 to ${COMPARED_MAX} can be compared</span>`
  }
    ${hidden > 0 && html`<span class="soft small" role="status">${count(hidden)} of them hidden by filters</span>`}
    ${running.length > 0 && html`<button class="danger" onClick=${stop}>Stop ${running.length}</button>`}
    ${taggable.length > 0 && html`<button onClick=${tag}>Tag ${taggable.length}</button>`}
    ${gone.length > 0 && html`<button class="danger" onClick=${remove}>Delete ${gone.length}</button>`}
    <button class="quiet" onClick=${() => ticked.clear()}>Untick</button></span>`;
}

/** @param {{ chosen: Experiment[] }} props */
function TagForm({ chosen }) {
  const [tag, setTag] = useState("");
  const name = tag.trim();
  /** @param {boolean} adds */
  const change = (adds) => {
    closeDialog();
    const others = (/** @type {Experiment} */ one) => one.tags.filter((known) => known !== name);
    const touched = chosen.filter((one) => one.tags.includes(name) !== adds);
    return eachOf(
      touched,
      (one) => {
        const tags = adds ? [...one.tags, name] : others(one);
        return send("PUT", address(one), { name: one.name, tags, note: one.note, revision: one.revision });
      },
      adds ? "tagged" : "without the tag",
    );
  };
  return html`<form class="stack" onSubmit=${(event) => {
    event.preventDefault();
    change(true);
  }}>
    <h1 id="dialog-title">Tag ${plural(chosen.length, "experiment")}</h1>
    <p class="soft small">${named(chosen)}</p>
    <label class="field"><span>Tag</span><input value=${tag} maxlength="40" onInput=${(event) => setTag(event.target.value)} /></label>
    <div class="dialog-end"><button type="button" onClick=${closeDialog}>Cancel</button>
      <button type="button" disabled=${!name} onClick=${() => change(false)}>Take away</button>
      <button class="primary" type="submit" disabled=${!name}>Add</button></div>
  </form>`;
}
