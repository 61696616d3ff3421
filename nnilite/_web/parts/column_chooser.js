// The panel in which the columns of a table are chosen and ordered.

import { html } from "../lib/ui.js";
import { Icon } from "./icons.js";
import { Pop } from "./layout.js";

/** @typedef {{ key: string, title: string, label?: string, fixed?: boolean }} Choosable a fixed one is always there */

/** @param {Choosable} column */
const nameOf = (column) => column.label ?? column.title;

/**
 * @typedef {object} ChooserProps
 * @property {Choosable[]} all
 * @property {Choosable[]} columns the shown ones
 * @property {(keys: string[] | null) => void} choose null: the usual ones
 * @param {ChooserProps} props
 */
export function ColumnChooser({ all, columns, choose }) {
  const shown = columns.map((column) => column.key);
  const rest = all.filter((column) => !shown.includes(column.key));
  /**
   * @param {number} place
   * @param {number} other
   */
  const swap = (place, other) => {
    const keys = [...shown];
    [keys[place], keys[other]] = [keys[other], keys[place]];
    choose(keys);
  };
  /** @param {number} place */
  const isStuck = (place) => !columns[place] || Boolean(columns[place].fixed);
  return html`<${Pop} label="Columns" icon="columns">
    <div class="stack" style=${{ gap: "4px" }}>
      ${columns.map(
        (
          column,
          place,
        ) => html`<div class="row" key=${column.key} style=${{ justifyContent: "space-between", flexWrap: "nowrap" }}>
        <label class="inline"><input type="checkbox" checked disabled=${column.fixed}
          onChange=${() => choose(shown.filter((key) => key !== column.key))} />${nameOf(column)}</label>
        <span class="row" style=${{ gap: "2px", flexWrap: "nowrap" }}>
          <button class="quiet small icon" aria-label=${`Move ${column.title} to the left`} disabled=${isStuck(place) || isStuck(place - 1)}
            onClick=${() => swap(place, place - 1)}><${Icon} name="up" /></button>
          <button class="quiet small icon" aria-label=${`Move ${column.title} to the right`} disabled=${isStuck(place) || isStuck(place + 1)}
            onClick=${() => swap(place, place + 1)}><${Icon} name="down" /></button>
        </span>
      </div>`,
      )}
      ${rest.map((column) => html`<label class="inline" key=${column.key}><input type="checkbox" checked=${false} onChange=${() => choose([...shown, column.key])} />${nameOf(column)}</label>`)}
      <button class="small" onClick=${() => choose(null)}>Restore the default columns</button>
    </div>
  </${Pop}>`;
}
