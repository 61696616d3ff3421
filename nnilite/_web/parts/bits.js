// Small things that all views use.

import { clock, moment } from "../lib/format.js";
import { profile } from "../lib/live_data.js";
import { STATE_WORDS } from "../lib/trials.js";
import { html, signal, useEffect, useRef, useState } from "../lib/ui.js";
import { Icon } from "./icons.js";

/** @import { TrialState } from "../lib/wire.d.ts" */
/** @import { ComponentChildren } from "../vendor/preact.js" */
/** @import { Signal } from "../vendor/signals.js" */
/** @import { IconName } from "./icons.js" */

/** @type {Record<string, string>} */
const EXPERIMENT_WORDS = {
  INITIALIZED: "Starting",
  RUNNING: "Running",
  NO_MORE_TRIAL: "Finishing",
  TUNER_NO_MORE_TRIAL: "Finishing",
  DONE: "Done",
  ERROR: "Error",
  STOPPING: "Stopping",
  STOPPED: "Stopped",
  VIEWED: "Viewed",
};

/** @param {{ state: TrialState }} props */
export function State({ state }) {
  const moving = state === "RUNNING";
  return html`<span class="badge" data-state=${state}><i class=${`dot ${moving ? "pulse" : ""}`} aria-hidden="true" />${
    STATE_WORDS[state] ?? state
  }</span>`;
}

/** @param {{ state: string }} props */
export function ExperimentState({ state }) {
  const moving = state === "RUNNING" || state === "STOPPING";
  return html`<span class="badge" data-state=${state} title=${state}><i class=${`dot ${moving ? "pulse" : ""}`}
    aria-hidden="true" />${EXPERIMENT_WORDS[state] ?? state}</span>`;
}

/**
 * @typedef {{ title?: string, end?: ComponentChildren, children?: ComponentChildren, class?: string, id?: string }} CardProps
 * @param {CardProps} props
 */
export function Card({ title, end, children, class: name = "", id }) {
  return html`<section class=${`card ${name}`} aria-label=${title}>
    ${(title || end) && html`<div class="card-head"><h2 id=${id}>${title}</h2>${end && html`<div class="end">${end}</div>`}</div>`}
    ${children}
  </section>`;
}

/** @param {{ title: string, children?: ComponentChildren }} props */
export function Empty({ title, children }) {
  return html`<div class="empty"><b>${title}</b>${children && html`<p>${children}</p>`}</div>`;
}

/**
 * What may be wider than the page. Only where it is, the keyboard has to reach it, to scroll it.
 * @param {{ label: string, children?: ComponentChildren, style?: Record<string, string> }} props
 */
export function Scroll({ label, children, style }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [isWide, setWide] = useState(false);
  useEffect(() => {
    const measure = () => box.current && setWide(box.current.scrollWidth > box.current.clientWidth);
    const watcher = new ResizeObserver(measure);
    for (const one of [box.current, box.current?.firstElementChild]) if (one) watcher.observe(one);
    return () => watcher.disconnect();
  }, []);
  return html`<div class="scroll-x" ref=${box} style=${style} role="group" aria-label=${label} tabindex=${isWide ? "0" : undefined}>${children}</div>`;
}

/** @param {{ at: number | null }} props */
export function Time({ at }) {
  if (at === null || at === undefined) return "";
  return html`<time datetime=${new Date(at * 1000).toISOString()} title=${moment(at)}>${clock(at)}</time>`;
}

/**
 * What just happened, told once and to screen readers too.
 * @type {Signal<{ id: number, text: string, bad: boolean }[]>}
 */
const toasts = signal([]);
let counter = 0;

/**
 * @param {string} text
 * @param {boolean} [bad]
 */
export function say(text, bad = false) {
  counter += 1;
  const id = counter;
  toasts.value = [...toasts.value.slice(-3), { id, text, bad }];
  setTimeout(() => unsay(id), bad ? 12_000 : 4000);
}

/** @param {number} id */
const unsay = (id) => {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
};

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.value.map(
      ({ id, text, bad }) => html`<div class=${`toast ${bad ? "bad" : ""}`} key=${id}>
      <span>${text}</span>
      <button class="quiet small icon" aria-label="Dismiss" onClick=${() => unsay(id)}><${Icon} name="close" /></button>
    </div>`,
    )}
  </div>`;
}

/**
 * @param {string} text
 * @param {string} what
 */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} copied.`);
  } catch {
    // no clipboard over plain http from elsewhere: let the browser's own selection do it
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    say(done ? `${what} copied.` : "The browser did not allow this page to copy.", !done);
  }
}

/** @param {{ text: string | (() => string), what: string, label?: string, small?: boolean }} props */
export function Copy({ text, what, label, small = true }) {
  const get = () => (typeof text === "function" ? text() : text);
  return html`<button class=${small ? "small" : ""} onClick=${() => copy(get(), what)}>
    <${Icon} name="copy" />${label ?? "Copy"}</button>`;
}

/**
 * A button that opens a panel, which closes by Escape or a click elsewhere.
 * @typedef {object} PopProps
 * @property {string} label
 * @property {IconName} [icon]
 * @property {ComponentChildren} [children]
 * @property {boolean} [pressed]
 * @property {string} [title]
 */

/** @param {PopProps} props */
export function Pop({ label, icon, children, pressed, title }) {
  const [open, setOpen] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (!open) return undefined;
    /** @param {PointerEvent} event */
    const outside = (event) => box.current?.contains(/** @type {Node} */ (event.target)) || setOpen(false);
    /** @param {KeyboardEvent} event */
    const onKey = (event) => {
      if (event.key !== "Escape") return;
      setOpen(false);
      box.current?.querySelector("button")?.focus();
    };
    addEventListener("pointerdown", outside);
    addEventListener("keydown", onKey);
    return () => {
      removeEventListener("pointerdown", outside);
      removeEventListener("keydown", onKey);
    };
  }, [open]);
  return html`<div class="pop" ref=${box}>
    <button aria-expanded=${open} aria-pressed=${pressed ? "true" : undefined} title=${title}
      onClick=${() => setOpen(!open)}>${icon && html`<${Icon} name=${icon} />`}${label}</button>
    ${open && html`<div class="pop-panel">${children}</div>`}
  </div>`;
}

/**
 * The name of a file that is saved: it begins with the experiment.
 * @param {string} what
 */
export const fileName = (what) => `${profile.value?.id ?? "experiment"}-${what}`;

/**
 * @param {string} name
 * @param {Blob | string} data
 * @param {string} [type]
 */
export function saveFile(name, data, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data instanceof Blob ? data : new Blob([data], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/**
 * Rows of values as CSV. A cell that a spreadsheet would take for a formula gets a quote in front.
 * @param {string[]} header
 * @param {unknown[][]} rows
 */
export function csv(header, rows) {
  /** @param {unknown} value */
  const cell = (value) => {
    let text =
      value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
    if (typeof value === "string" && /^[=+@\t\r-]/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [header, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

/**
 * The sentence of what was caught.
 * @param {unknown} error
 */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * Calls `work` and says what went wrong, if anything did. Resolves to whether it went well.
 * @param {() => Promise<unknown>} work
 * @param {string} [done] what to say then
 */
export async function perform(work, done) {
  try {
    await work();
  } catch (error) {
    say(messageOf(error), true);
    return false;
  }
  if (done) say(done);
  return true;
}
