// What parts of a page are laid out in: cards, panels that open, and room for wide things.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/ui.js";
import { Icon } from "./icons.js";

/** @import { ComponentChildren } from "../vendor/preact.js" */
/** @import { IconName } from "./icons.js" */

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
 * What may be wider than the page, or higher than its style lets it be. Only then the keyboard has to reach it, to scroll it.
 * @param {{ label: string, children?: ComponentChildren, style?: Record<string, string> }} props
 */
export function Scroll({ label, children, style }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [overflows, setOverflows] = useState(false);
  useEffect(() => {
    const measure = () => {
      const { scrollWidth, clientWidth, scrollHeight, clientHeight } = box.current ?? document.body;
      setOverflows(scrollWidth > clientWidth || scrollHeight > clientHeight);
    };
    const watcher = new ResizeObserver(measure);
    for (const one of [box.current, box.current?.firstElementChild]) if (one) watcher.observe(one);
    return () => watcher.disconnect();
  }, []);
  return html`<div class="scroll-x" ref=${box} style=${style} role="group" aria-label=${label} tabindex=${overflows ? "0" : undefined}>${children}</div>`;
}

/**
 * A button that opens a panel, which closes by Escape, or when a click or the focus goes elsewhere.
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
  // Not after the next frame: on a busy machine Escape may come before that.
  useLayoutEffect(() => {
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
  /** @param {FocusEvent & { relatedTarget: Node | null }} event */
  const onLeave = ({ relatedTarget }) => relatedTarget && !box.current?.contains(relatedTarget) && setOpen(false);
  return html`<div class="pop" ref=${box} onFocusOut=${onLeave}>
    <button aria-expanded=${open} aria-pressed=${pressed ? "true" : undefined} title=${title}
      onClick=${() => setOpen(!open)}>${icon && html`<${Icon} name=${icon} />`}${label}</button>
    ${open && html`<div class="pop-panel">${children}</div>`}
  </div>`;
}
