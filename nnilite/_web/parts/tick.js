// The boxes by which rows of a table are ticked: one a row, and one in the head for all rows.
import { html, useLayoutEffect, useRef } from "../lib/ui.js";

/** @import { Ticks } from "../lib/ticks.js" */

/**
 * A row's box. Shift ticks all rows from the last one on, and would mark their text otherwise.
 * @param {{ ticks: Ticks, id: string, shown: () => string[], label: string, tabindex?: string }} props
 */
export function Tick({ ticks, id, shown, label, tabindex }) {
  return html`<input type="checkbox" tabindex=${tabindex} aria-label=${label} checked=${ticks.has(id)}
    onMouseDown=${(/** @type {MouseEvent} */ event) => event.shiftKey && event.preventDefault()}
    onClick=${(/** @type {MouseEvent} */ event) => ticks.toggle(id, event.shiftKey ? shown() : undefined)} />`;
}

/**
 * The box in the head. It is about the rows that the filters leave, and stands between on and off if some are ticked.
 * @param {{ ticks: Ticks, shown: string[], what: string }} props
 */
export function TickAll({ ticks, shown, what }) {
  const box = useRef(/** @type {HTMLInputElement | null} */ (null));
  const ticked = shown.filter((id) => ticks.has(id)).length;
  const isOn = ticked > 0 && ticked === shown.length;
  useLayoutEffect(() => {
    if (box.current) box.current.indeterminate = ticked > 0 && !isOn;
  });
  const label = `Select ${what}`;
  return html`<input type="checkbox" ref=${box} aria-label=${label} title=${label} checked=${isOn} disabled=${!shown.length}
    onChange=${() => ticks.set(shown, !isOn)} />`;
}
