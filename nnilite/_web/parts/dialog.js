// Dialogs: the browser's own, which keeps the focus inside and closes on Escape.
import { html, signal, useEffect, useRef } from "../lib/ui.js";

/** @import { ComponentChildren } from "../vendor/preact.js" */
/** @import { Signal } from "../vendor/signals.js" */

/** @type {Signal<(() => ComponentChildren) | null>} */
const current = signal(null);

/** @param {() => ComponentChildren} render */
export const openDialog = (render) => {
  current.value = render;
};
export const closeDialog = () => {
  current.value = null;
};

export function DialogHost() {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const render = current.value;
  useEffect(() => {
    if (render && !box.current?.open) box.current?.showModal();
    if (!render && box.current?.open) box.current.close();
  }, [render]);
  return html`<dialog ref=${box} onClose=${closeDialog} aria-labelledby="dialog-title"
    onClick=${(event) => event.target === box.current && closeDialog()}>
    ${render && html`<div class="dialog-body">${render()}</div>`}
  </dialog>`;
}

/**
 * Ask before something that cannot be undone.
 * @param {{ title: string, text: string, yes: string, danger?: boolean, act: () => void }} question
 */
export function confirm({ title, text, yes, danger, act }) {
  openDialog(
    () => html`
    <h1 id="dialog-title">${title}</h1>
    <p>${text}</p>
    <div class="dialog-end">
      <button onClick=${closeDialog}>Cancel</button>
      <button class=${danger ? "danger" : "primary"} onClick=${() => {
        closeDialog();
        act();
      }}>${yes}</button>
    </div>`,
  );
}
