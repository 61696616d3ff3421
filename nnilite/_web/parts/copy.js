// Buttons that copy text.

import { html } from "../lib/ui.js";
import { Icon } from "./icons.js";
import { say } from "./toasts.js";

/**
 * @param {string} text
 * @param {string} what
 */
async function copy(text, what) {
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
