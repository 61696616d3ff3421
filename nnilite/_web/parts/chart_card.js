// A chart in a card, with its controls and its two ways of saving.

import { metricNames, metricWord } from "../lib/objectives.js";
import { go, href, setQuery } from "../lib/route.js";
import { html, useRef } from "../lib/ui.js";
import { Chart, Save } from "./chart.js";
import { Card, Scroll } from "./layout.js";

/** @import { Chart as Drawn, Item } from "../vendor/echarts.js" */
/** @import { ComponentChildren } from "../vendor/preact.js" */
/** @import { ChartProps, Table } from "./chart.js" */

/**
 * @typedef {object} CardProps
 * @property {string} title
 * @property {string} name of saved files
 * @property {() => Table} data
 * @property {ComponentChildren} [controls]
 * @property {string} [above] what the chart leaves out, said before it
 * @property {string} [note]
 * @property {number} [minWidth] pixels
 * @property {string} [class]
 */

/**
 * A click on a point that has the id of a trial opens the trial.
 * @param {CardProps & Omit<ChartProps, "label" | "onClick">} props
 */
export function ChartCard({
  title,
  name,
  draw,
  deps,
  data,
  height,
  controls,
  above,
  note,
  events,
  onReady,
  minWidth = 0,
  class: classes,
}) {
  const chart = useRef(/** @type {Drawn | null} */ (null));
  /** @param {Item} event */
  const open = (event) => {
    const id = event.data?.id ?? event.seriesId;
    if (id && !String(id).includes("\0")) go(`trials/${id}`);
  };
  /** @param {Drawn} one */
  const ready = (one) => {
    chart.current = one;
    onReady?.(one);
  };
  return html`<${Card} title=${title} class=${classes} end=${html`${controls}<${Save} name=${name} chart=${chart} data=${data} />`}>
    ${above && html`<p class="note calm small" role="status">${above}</p>`}
    <${Scroll} label=${title}><div style=${{ minWidth: `${minWidth}px` }}>
      <${Chart} label=${title} draw=${draw} deps=${deps} height=${height} events=${events} onReady=${ready} onClick=${open} />
    </div></${Scroll}>
    ${note && html`<p class="soft small">${note}</p>`}
  </${Card}>`;
}

/**
 * Chooses the number that a chart is about, where results have several.
 * @param {{ value: string, label?: string }} props
 */
export function MetricPick({ value, label = "Metric" }) {
  const names = metricNames.value;
  if (names.length < 2) return null;
  const set = (/** @type {string} */ objective) => setQuery({ objective });
  return html`<${Pick} label=${label} value=${value} options=${names.map((name) => [name, metricWord(name)])} set=${set} />`;
}

/**
 * @typedef {(string | string[])[]} Options values, or pairs of a value and what it is called
 * @param {{ label: string, value: string | number, options: Options, set: (value: string) => void, name?: string }} props
 */
export function Pick({ label, value, options, set, name }) {
  return html`<label class="inline"><span>${label}</span><select aria-label=${name ?? label} value=${value} onChange=${(event) => set(event.target.value)}>
    ${options.map((one) => {
      const [key, text] = Array.isArray(one) ? one : [one, one];
      return html`<option key=${key} value=${key}>${text}</option>`;
    })}</select></label>`;
}

/** A trial with its result, as a link. @param {{ id: string, value: string }} props */
export const TrialChip = ({ id, value }) =>
  html`<a class="chip mono" style=${{ paddingRight: "10px" }} href=${href(`trials/${id}`)}>${id}: ${value}</a>`;
