// What can be done to an experiment. While something is done to one, its buttons wait.

import { send } from "../lib/api.js";
import { signal } from "../lib/ui.js";
import { confirm } from "../parts/dialog.js";
import { messageOf, perform, say } from "../parts/toasts.js";
import { isViewed, refresh, title } from "./experiments.js";

/** @import { Signal } from "../vendor/signals.js" */
/** @import { Experiment } from "./experiments.js" */

/** @type {Signal<ReadonlySet<string>>} ids of experiments with which something is done */
export const busy = signal(/** @type {ReadonlySet<string>} */ (new Set()));

/**
 * @param {Experiment} one
 * @param {() => Promise<unknown>} work
 */
export async function during(one, work) {
  busy.value = new Set([...busy.value, one.id]);
  try {
    await work();
    await refresh();
  } finally {
    busy.value = new Set([...busy.value].filter((id) => id !== one.id));
  }
}

/**
 * @param {Experiment} one
 * @param {string} verb
 */
export const address = (one, verb = "") => `experiments/${encodeURIComponent(one.id)}${verb && `/${verb}`}`;

/**
 * Opens the experiment's own page in a tab. Browsers allow that only at once after a click, so the tab is there before
 * it is known whether the experiment can be opened.
 * @param {Experiment} one
 */
export async function open(one) {
  const tab = window.open("", "_blank");
  if (tab) tellOpening(tab, title(one));
  await during(one, async () => {
    try {
      /** @type {{ url: string }} */
      const { url } = await send("POST", address(one, "open"));
      if (tab) tab.location.href = url;
      else location.href = url;
    } catch (error) {
      tab?.close();
      say(messageOf(error), true);
    }
  });
}

/**
 * A stopped experiment gets a viewer first, which may take half a minute on a busy machine.
 * @param {Window} tab
 * @param {string} name
 */
function tellOpening(tab, name) {
  tab.opener = null;
  const page = tab.document;
  page.title = `Opening ${name} …`;
  const here = getComputedStyle(document.body);
  Object.assign(page.body.style, {
    margin: "3rem",
    font: here.font,
    color: here.color,
    background: here.backgroundColor,
  });
  const line = page.createElement("h1");
  line.textContent = `Opening ${name} …`;
  line.style.fontSize = "1.2rem";
  const more = page.createElement("p");
  more.textContent =
    "A stopped experiment is opened for reading first. On a busy machine this takes up to half a minute.";
  page.body.append(line, more);
}

/** @param {Experiment} one */
export const resume = (one) =>
  during(one, () => perform(() => send("POST", address(one, "resume")), `${title(one)} goes on.`));

/** @param {Experiment} one */
export function stop(one) {
  const act = () => during(one, () => perform(() => send("POST", address(one, "stop")), `${title(one)} is stopping.`));
  if (isViewed(one) || one.state === "DONE") return act();
  return confirm({
    title: `Stop ${title(one)}?`,
    text: "Running trials will be ended. All results are kept, and it can be resumed.",
    yes: "Stop it",
    danger: true,
    act,
  });
}

/** @param {Experiment} one */
export const remove = (one) =>
  confirm({
    title: `Delete ${title(one)}?`,
    text: `All of ${one.directory} will be deleted: results, logs and files of its trials. This cannot be undone.`,
    yes: "Delete it",
    danger: true,
    act: () => during(one, () => perform(() => send("DELETE", address(one)), `${title(one)} is deleted.`)),
  });
