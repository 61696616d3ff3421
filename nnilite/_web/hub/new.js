// A new experiment from a configuration that is pasted, typed or read from a file, with its faults beside its lines.

import { ApiError, get, send } from "../lib/api.js";
import { plural } from "../lib/format.js";
import { go, route } from "../lib/route.js";
import { html, signal, useEffect, useRef, useState } from "../lib/ui.js";
import { Card } from "../parts/layout.js";
import { messageOf, say } from "../parts/toasts.js";
import { refresh } from "./experiments.js";

/** @typedef {{ line: number | null, field: string | null, file: string | null, message: string }} Fault */

// What was typed stays when one looks at the list meanwhile.
const draft = signal({ folder: "", text: "" });
let loadedFrom = "";
const LINE_PX = 20;

export function NewExperiment() {
  const [faults, setFaults] = useState(/** @type {Fault[] | null} */ (null));
  const [warnings, setWarnings] = useState(/** @type {string[]} */ ([]));
  const [busy, setBusy] = useState(false);
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  /** @param {Partial<{ folder: string, text: string }>} change */
  const set = (change) => {
    draft.value = { ...draft.value, ...change };
    setFaults(null);
  };
  const check = async () => {
    /** @type {{ faults: Fault[], warnings: string[] }} */
    const answer = await send("POST", "checks", draft.value);
    setFaults(answer.faults);
    setWarnings(answer.warnings);
    return answer.faults.length === 0;
  };
  /** @param {() => Promise<unknown>} work */
  const during = async (work) => {
    setBusy(true);
    try {
      await work();
    } catch (error) {
      const field = error instanceof ApiError ? (error.field ?? null) : null;
      setFaults([{ line: null, field, file: null, message: messageOf(error) }]);
    } finally {
      setBusy(false);
    }
  };
  const start = async () => {
    if (!(await check())) return;
    /** @type {{ id: string }} */
    const { id } = await send("POST", "experiments", draft.value);
    say(`Experiment ${id} is running.`);
    await refresh();
    loadedFrom = "";
    go("overview");
  };
  const from = route.value.query.get("from") ?? "";
  useEffect(() => {
    if (!from || from === loadedFrom) return undefined;
    let gone = false;
    during(async () => {
      /** @type {{ text: string, folder: string }} */
      const { text, folder } = await get(`experiments/${encodeURIComponent(from)}/config`);
      if (gone) return; // that of another experiment is shown by now
      loadedFrom = from;
      set({ text, folder });
    });
    return () => {
      gone = true;
    };
  }, [from]);
  /** @param {File | undefined} file */
  const load = async (file) => file && set({ text: await file.text() });
  const ofFolder = faults?.filter((fault) => fault.field === "folder") ?? [];
  const others = faults?.filter((fault) => fault.field !== "folder") ?? [];
  return html`<h1 class="hidden">New experiment</h1><${Card} title="Configuration"><form class="stack" onSubmit=${(
    event,
  ) => {
    event.preventDefault();
    during(start);
  }}>
    ${from && html`<p class="note calm">This is the configuration of experiment <span class="mono">${from}</span>. Change it, then start another one; hidden secrets have to be written again.</p>`}
    <label class="field"><span>Folder on the experiments' machine; paths in the configuration are relative to it</span>
      <input value=${draft.value.folder} placeholder="/home/me/project" spellcheck=${false} aria-invalid=${ofFolder.length ? "true" : undefined}
        aria-describedby=${ofFolder.length ? "wrong-folder" : undefined} onInput=${(event) => set({ folder: event.target.value })} />
      ${ofFolder.length > 0 && html`<span class="wrong" id="wrong-folder" role="alert">${ofFolder[0].message}</span>`}</label>
    <label class="field"><span>Read a configuration file from this computer</span><input type="file" accept=".yml,.yaml,.json" onChange=${(event) => load(event.target.files[0])} /></label>
    <div class="field"><label class="small soft" for="new-config">Configuration (YAML)</label>
      <${Editor} area=${area} faults=${others} set=${(text) => set({ text })} /></div>
    ${others.length > 0 && html`<${Faults} faults=${others} area=${area} />`}
    ${warnings.length > 0 && faults && html`<div class="note">${warnings.map((text) => html`<p key=${text}>${text}</p>`)}</div>`}
    ${faults && !faults.length && html`<p role="status"><b>This configuration is valid.</b></p>`}
    <div class="dialog-end"><button type="button" disabled=${busy} onClick=${() => during(check)}>Check</button>
      <button class="primary" type="submit" disabled=${busy}>${busy ? "Working …" : "Start"}</button></div>
  </form></${Card}>`;
}

/** @param {{ area: { current: HTMLTextAreaElement | null }, faults: Fault[], set: (text: string) => void }} props */
function Editor({ area, faults, set }) {
  const [top, setTop] = useState(0);
  const text = draft.value.text;
  const wrong = new Set(faults.map((fault) => fault.line));
  const lines = text.split("\n").map((_, place) => place + 1);
  return html`<div class="editor">
    <div class="gutter" aria-hidden="true">
      <div style=${{ transform: `translateY(${-top}px)` }}>${lines.map((line) => html`<div key=${line} class=${wrong.has(line) ? "wrong-line" : ""}>${line}</div>`)}</div>
    </div>
    <textarea id="new-config" rows="18" wrap="off" spellcheck=${false} ref=${area} value=${text} aria-invalid=${faults.length ? "true" : undefined}
      aria-describedby=${faults.length ? "config-faults" : undefined} onScroll=${(event) => setTop(event.target.scrollTop)} onInput=${(event) => set(event.target.value)} />
  </div>`;
}

/** @param {{ faults: Fault[], area: { current: HTMLTextAreaElement | null } }} props */
function Faults({ faults, area }) {
  /** @param {number} line */
  const show = (line) => {
    const box = area.current;
    if (!box) return;
    const lines = box.value.split("\n");
    const begin = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    box.focus();
    box.setSelectionRange(begin, begin + (lines[line - 1] ?? "").length);
    box.scrollTop = Math.max(0, (line - 4) * LINE_PX);
  };
  return html`<div class="note bad" id="config-faults" role="alert"><b>${plural(faults.length, "fault")}</b>
    <ul class="faults">${faults.map(
      ({ line, field, message }) =>
        html`<li key=${`${line} ${field} ${message}`}>${
          line !== null
            ? html`<button type="button" class="small" onClick=${() => show(line)}>Line ${line}</button> `
            : ""
        }${field && html`<code>${field}</code> `}${message}</li>`,
    )}</ul></div>`;
}
