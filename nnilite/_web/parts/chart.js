// ECharts, loaded when the first chart is drawn, in the colours of the page, with saving as PNG and CSV.

import { clipped, number } from "../lib/format.js";
import { theme } from "../lib/theme.js";
import { html, useEffect, useLayoutEffect, useRef } from "../lib/ui.js";
import { Icon } from "./icons.js";
import { csv, fileName, saveFile } from "./saved_files.js";

/** @import { JobState, TrialState } from "../lib/wire.d.ts" */
/** @import { Item, Chart as Drawn, Option } from "../vendor/echarts.js" */

/** @typedef {{ header: string[], rows: unknown[][] }} Table what a CSV file gets */

/** @type {Promise<typeof import("../vendor/echarts.js")> | null} */
let library = null;
const AGAIN_MS = 2000;
const NAME_MAX = 48; // characters that fit beside an axis of 300 pixels

// Resolves when the library is there, however often it takes to load it.
export async function loadLibrary() {
  for (;;) {
    try {
      library ??= import("../vendor/echarts.js");
      return await library;
    } catch {
      library = null;
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }
}

// The colours of the page by name: colours().accent. Asked anew for each drawing, since the theme may change.
export function colours() {
  const style = getComputedStyle(document.documentElement);
  /** @type {Record<string, string>} */
  const none = {};
  return new Proxy(none, { get: (_, name) => ofTheme(style.getPropertyValue(`--${String(name)}`).trim()) });
}

/**
 * The colour that is shown now, out of `light-dark(#fff, #000)`; canvases do not know that word.
 * @param {string} colour
 */
function ofTheme(colour) {
  const [, light, dark] = /^light-dark\((.+), (.+)\)$/.exec(colour) ?? [colour, colour, colour];
  return theme.value === "dark" ? dark : light;
}

/** @type {Record<TrialState | JobState, string>} of trials and of their attempts */
export const STATE_COLOURS = {
  WAITING: "s-waiting",
  RUNNING: "s-running",
  SUCCEEDED: "s-succeeded",
  FAILED: "s-failed",
  EARLY_STOPPED: "s-early",
  USER_CANCELED: "s-killed",
  SYS_CANCELED: "s-system",
  UNKNOWN: "s-waiting",
  CANCELED: "s-killed",
  LOST: "s-system",
};

/** @param {number} index */
export const series = (index) => colours()[`series-${(index % 8) + 1}`];

/**
 * A tooltip as an element: ECharts' own are HTML text with inline styles, which the page's policy forbids.
 * @param {string} title
 * @param {[string, unknown][]} pairs
 */
export function tip(title, pairs) {
  const box = document.createElement("div");
  box.className = "chart-tip";
  /**
   * @param {string} tag
   * @param {string} text
   */
  const add = (tag, text) => {
    const line = document.createElement(tag);
    line.textContent = text;
    box.append(line);
  };
  add("b", title);
  for (const [name, value] of pairs) add("span", `${name}: ${value}`);
  return box;
}

/**
 * The part of every chart's options that makes it look like the page.
 * @param {Option} [more]
 */
export function base(more = {}) {
  const c = colours();
  return {
    animation: false,
    // All points at once: painted over several frames, they vanish and come again with each trial that ends.
    progressive: 0,
    aria: { enabled: true },
    color: [1, 2, 3, 4, 5, 6, 7, 8].map((place) => c[`series-${place}`]),
    textStyle: { color: c.soft, fontFamily: getComputedStyle(document.body).fontFamily, fontSize: 12 },
    grid: plotArea(),
    tooltip: {
      confine: true,
      backgroundColor: c.raised,
      borderColor: c.line,
      textStyle: { color: c.text, fontSize: 12.5 },
      transitionDuration: 0,
    },
    ...more,
  };
}

/**
 * The room of a chart with axes: their labels and titles are inside of these edges, in pixels, however long they are.
 * @param {{ left?: number, right?: number, top?: number, bottom?: number }} [edges]
 */
export const plotArea = (edges = {}) => ({
  left: 6,
  right: 18,
  top: 14,
  bottom: 6,
  outerBoundsMode: "same",
  outerBoundsContain: "all",
  ...edges,
});

/**
 * @param {Option} [more] its labels add to the usual ones
 * @returns {Option}
 */
export function axis({ axisLabel, ...more } = {}) {
  const c = colours();
  const isOfNumbers = more.type === "value" || more.type === "log";
  // ECharts' own labels have all digits that a computer needs, such as 0.00000000099999999, and all letters of a name.
  const formatter = isOfNumbers
    ? (/** @type {number} */ one) => number(one, 4)
    : (/** @type {string} */ one) => clipped(one);
  return {
    axisLine: { lineStyle: { color: c.line } },
    axisTick: { show: false },
    axisLabel: {
      color: c.soft,
      hideOverlap: true,
      formatter: more.type === "time" ? undefined : formatter,
      .../** @type {object} */ (axisLabel ?? {}),
    },
    splitLine: { lineStyle: { color: c.line, opacity: 0.7 } },
    nameTextStyle: { color: c.soft },
    nameLocation: "middle",
    nameGap: 8,
    nameMoveOverlap: true, // away from labels of any length
    scale: true,
    ...more,
    ...(typeof more.name === "string" ? { name: clipped(more.name, NAME_MAX) } : {}),
  };
}

/**
 * @typedef {object} ChartProps
 * @property {() => Option} draw called whenever `deps` or the theme change
 * @property {unknown[]} deps
 * @property {string} label
 * @property {number} [height]
 * @property {(event: Item) => void} [onClick]
 * @property {(chart: Drawn) => void} [onReady]
 * @property {Record<string, (event: Item, chart: Drawn) => void>} [events]
 */

/**
 * A chart with very many points is painted frame by frame, and ECharts fails in the next frame if the chart has gone by then.
 * Painted anew, without anything in it, it has no more frames to come.
 * @param {Drawn} chart
 */
function dispose(chart) {
  chart.clear();
  chart.getZr().flush();
  chart.dispose();
}

/** @param {ChartProps} props */
export function Chart({ draw, deps, label, height = 320, onClick, onReady, events }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const chart = useRef(/** @type {Drawn | null} */ (null));
  const latest = useRef({ draw, onClick, events });
  latest.current = { draw, onClick, events };
  useLayoutEffect(() => {
    // ended with its box; other effects end some frames later, and the library might come between
    let gone = false;
    const watcher = new ResizeObserver(() => chart.current?.resize({ animation: { duration: 0 } }));
    loadLibrary().then((echarts) => {
      if (gone || !box.current) return;
      const drawn = echarts.init(box.current, null, { renderer: "canvas" });
      chart.current = drawn;
      drawn.on("click", (event) => latest.current.onClick?.(event));
      for (const name of Object.keys(events ?? {})) {
        drawn.on(name, (event) => latest.current.events?.[name](event, drawn));
      }
      drawn.setOption(latest.current.draw(), true);
      watcher.observe(box.current);
      onReady?.(drawn);
      box.current.dataset.ready = "yes";
    });
    return () => {
      gone = true;
      watcher.disconnect();
      const old = chart.current;
      chart.current = null;
      if (old) dispose(old);
    };
  }, []);
  useEffect(() => {
    // Once a frame, and at once then: between a `lazyUpdate` and its frame, ECharts' own handlers of the mouse meet series
    // without data and axes without a coordinate system, and fail.
    const frame = requestAnimationFrame(() => chart.current?.setOption(latest.current.draw(), true));
    return () => cancelAnimationFrame(frame);
  }, [...deps, theme.value]);
  return html`<div class="chart" role="img" aria-label=${label} ref=${box} style=${{ height: `${height}px` }} />`;
}

/**
 * Saving: `chart` is a ref that `onReady` fills.
 * @param {{ name: string, chart?: { current: Drawn | null }, data: () => Table }} props
 */
export function Save({ name, chart, data }) {
  const file = fileName(name);
  const png = () => {
    const canvas = chart?.current?.renderToCanvas({ pixelRatio: 2, backgroundColor: colours().card });
    canvas?.toBlob((blob) => blob && saveFile(`${file}.png`, blob));
  };
  const table = () => {
    const { header, rows } = data();
    saveFile(`${file}.csv`, csv(header, rows), "text/csv");
  };
  return html`
    ${chart && html`<button class="small" onClick=${png} title="Save this chart as an image"><${Icon} name="download" />PNG</button>`}
    <button class="small" onClick=${table} title="Save the data of this chart"><${Icon} name="download" />CSV</button>`;
}
