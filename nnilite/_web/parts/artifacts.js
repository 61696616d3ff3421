// What the code of a trial has kept for people: tables, images, figures and texts. A trial can write anything, so each
// file is checked before it is drawn, texts stay texts, and what is not as it should be can only be downloaded.

import { content, get, picture } from "../lib/api.js";
import { digits, writeJson } from "../lib/exact_json.js";
import { parseLenient, readFigure } from "../lib/figures.js";
import { bytes, count, number } from "../lib/format.js";
import { connection } from "../lib/live_data.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { useAnswer } from "./answer.js";
import { axis, base, Chart, plotArea, tip } from "./chart.js";
import { Card, Empty, Scroll } from "./layout.js";
import { ServedLink } from "./served_link.js";
import { Time } from "./states.js";
import { messageOf } from "./toasts.js";

/** @import { Figure, Trace } from "../lib/figures.js" */
/** @import { Trial } from "../lib/trials.js" */
/** @import { FileListing, Json } from "../lib/wire.d.ts" */

/**
 * @typedef {object} Artifact
 * @property {string} name
 * @property {string} file
 * @property {string} kind
 * @property {number} bytes
 * @property {number} time
 */

const MOST_BYTES = 5_000_000;
const INDEX_BYTES_MAX = 1_000_000;
const SHOWN_MAX = 50;
const ROWS_MAX = 200;
const COLUMNS_MAX = 50;
const TEXT_MAX = 64_000;
const IMAGE = /^image\/(png|jpeg|gif|webp)$/;

/**
 * The artifacts that an index names, the last one of each name.
 * @param {string} text
 * @returns {Artifact[]}
 */
export function readIndex(text) {
  /** @type {Map<string, Artifact>} */
  const found = new Map();
  for (const line of text.split("\n")) {
    const one = readEntry(line);
    if (!one) continue;
    found.delete(one.name);
    found.set(one.name, one);
  }
  return [...found.values()];
}

/**
 * @param {string} line
 * @returns {Artifact | null}
 */
function readEntry(line) {
  try {
    const { name, file, kind, bytes: size, time } = JSON.parse(line);
    const isWhole = [name, file, kind].every((one) => typeof one === "string" && one.length <= 200);
    const isFile = isWhole && /^[\w-][\w.-]*$/.test(file);
    return isFile && [size, time].every(Number.isFinite) ? { name, file, kind, bytes: size, time } : null;
  } catch {
    return null; // a line that was cut, or no line of ours
  }
}

/** @param {{ trial: Trial }} props */
export function Artifacts({ trial }) {
  const folder = `${trial.attempt}/artifacts`;
  const read = async () => {
    /** @type {FileListing} */
    const { files } = await get(`trials/${trial.id}/files`);
    if (!files.some(({ path }) => path === `${folder}/index.jsonl`)) return [];
    const data = await content(`trials/${trial.id}/files/${folder}/index.jsonl`, INDEX_BYTES_MAX);
    return readIndex(new TextDecoder().decode(data));
  };
  const { found, problem } = useAnswer(read, [trial.id, trial.state, trial.attempt, connection.value.state]);
  if (problem) return html`<p class="note">${problem}</p>`;
  if (!found) return html`<${Empty} title="Loading …" />`;
  if (!found.length)
    return html`<${Empty} title="No artifacts">A trial keeps them with <code>nnilite.log_artifact(name, value)</code>.</${Empty}>`;
  const latest = found.slice(-SHOWN_MAX);
  return html`<div class="artifacts">${latest.map(
    (one) =>
      html`<${Shown} key=${`${one.name} ${one.time}`} one=${one} path=${`trials/${trial.id}/files/${folder}/${one.file}`} />`,
  )}</div>
  ${found.length > SHOWN_MAX && html`<p class="soft small">The latest ${SHOWN_MAX} of ${count(found.length)} are shown; the others are among the files.</p>`}`;
}

/** @type {Record<string, (props: { one: Artifact, path: string }) => unknown>} */
const KINDS = { image: Image, table: Table, figure: Drawing, text: Text };

/** @param {{ one: Artifact, path: string }} props */
function Shown({ one, path }) {
  const Kind = Object.hasOwn(KINDS, one.kind) ? KINDS[one.kind] : null;
  const save = html`<span class="soft small">${bytes(one.bytes)}, <${Time} at=${one.time} /></span>
    <${ServedLink} class="button small" path=${path} download=${one.file}>Download</${ServedLink}>`;
  return html`<${Card} title=${one.name} end=${save}>${
    Kind && one.bytes <= MOST_BYTES
      ? html`<${Kind} one=${one} path=${path} />`
      : html`<p class="soft">This file can be downloaded only.</p>`
  }</${Card}>`;
}

/**
 * What `read` makes of a file, once it is here; a sentence where that is impossible.
 * @template T
 * @param {string} path
 * @param {(data: Uint8Array) => T} read
 */
const useContent = (path, read) => useAnswer(() => content(path, MOST_BYTES).then(read), [path]);

/** @param {{ problem: string }} props */
const Waiting = ({ problem }) =>
  problem ? html`<p class="note">${problem} It can be downloaded only.</p>` : html`<p class="soft">Loading …</p>`;

/** @param {{ one: Artifact, path: string }} props */
function Image({ one, path }) {
  const [source, setSource] = useState("");
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let made = "";
    let gone = false;
    const fetchIt = async () => {
      const found = await picture(path, MOST_BYTES);
      if (!IMAGE.test(found.type)) throw new Error("This file is not an image.");
      if (gone) return;
      made = URL.createObjectURL(found);
      setSource(made);
    };
    fetchIt().catch((error) => !gone && setProblem(messageOf(error)));
    return () => {
      gone = true;
      if (made) URL.revokeObjectURL(made);
    };
  }, [path]);
  if (!source || problem) return html`<${Waiting} problem=${problem} />`;
  return html`<img src=${source} alt=${one.name} onError=${() => setProblem("A browser cannot show this image.")} />`;
}

/** @param {Uint8Array} data */
const readText = (data) => new TextDecoder("utf-8", { fatal: true }).decode(data);

/** @param {{ one: Artifact, path: string }} props */
function Text({ one, path }) {
  const { found, problem } = useContent(path, readText);
  if (found === undefined) return html`<${Waiting} problem=${problem} />`;
  return html`<pre class="code" tabindex="0" role="group" aria-label=${one.name}>${found.slice(0, TEXT_MAX)}</pre>
    ${found.length > TEXT_MAX && html`<p class="soft small">The first ${count(TEXT_MAX)} characters.</p>`}`;
}

/**
 * @param {Uint8Array} data
 * @returns {{ columns: Json[], rows: Json[][] }}
 */
function readTable(data) {
  const { columns, rows } = parseLenient(readText(data));
  if (!Array.isArray(columns) || !Array.isArray(rows) || !rows.every(Array.isArray)) {
    throw new Error("This file is not a table.");
  }
  return { columns, rows };
}

/**
 * Whether a column has nothing but numbers, NaN and the like among them, so that they stand below each other.
 * @param {Json[][]} rows
 * @param {number} at
 */
function isNumeric(rows, at) {
  const cells = rows.slice(0, ROWS_MAX).flatMap((row) => row[at] ?? []);
  return cells.length > 0 && cells.every((cell) => typeof cell === "number");
}

/**
 * @param {Json[]} row
 * @param {number} at
 */
function cellText(row, at) {
  const cell = row[at];
  if (cell === null || cell === undefined) return "";
  if (typeof cell === "number") return digits(row, at) ?? number(cell, 7);
  return typeof cell === "string" ? cell : writeJson(cell);
}

/** @param {{ one: Artifact, path: string }} props */
function Table({ one, path }) {
  const { found, problem } = useContent(path, readTable);
  if (found === undefined) return html`<${Waiting} problem=${problem} />`;
  const columns = found.columns.slice(0, COLUMNS_MAX);
  const numeric = columns.map((_, at) => isNumeric(found.rows, at));
  const isCut = found.rows.length > ROWS_MAX || found.columns.length > COLUMNS_MAX;
  return html`<${Scroll} label=${one.name}><table class="plain">
      <thead><tr>${columns.map((_, place) => html`<th key=${place} scope="col" class=${numeric[place] ? "number" : ""}>${cellText(columns, place)}</th>`)}</tr></thead>
      <tbody>${found.rows
        .slice(0, ROWS_MAX)
        .map(
          (row, place) =>
            html`<tr key=${place}>${columns.map(
              (_, at) => html`<td key=${at} class=${numeric[at] ? "number" : ""}>${cellText(row, at)}</td>`,
            )}</tr>`,
        )}</tbody></table></${Scroll}>
    ${isCut && html`<p class="soft small">The first ${ROWS_MAX} rows and ${COLUMNS_MAX} columns of ${count(found.rows.length)} and ${count(found.columns.length)}.</p>`}`;
}

/** @param {{ one: Artifact, path: string }} props */
function Drawing({ one, path }) {
  const { found, problem } = useContent(path, (data) => readFigure(readText(data)));
  if (found === undefined) return html`<${Waiting} problem=${problem} />`;
  return html`<${Chart} label=${one.name} draw=${() => figureOption(found)} deps=${[found]} height=${340} />`;
}

/** @param {Figure} figure */
export function figureOption(figure) {
  const heat = figure.traces.find(({ type }) => type === "heatmap");
  const names = figure.traces.map(({ name }) => name).filter(Boolean);
  return {
    ...base(),
    grid: plotArea({ right: heat ? 90 : 24, top: names.length > 1 ? 40 : 22 }),
    legend: {
      show: names.length > 1,
      type: "scroll",
      top: 0,
      bottom: "auto",
      textStyle: { color: base().textStyle.color },
    },
    tooltip: { ...base().tooltip, trigger: "item", formatter: figureTip },
    xAxis: axis({ type: figure.x.type, name: figure.x.title, data: figure.x.categories }),
    yAxis: axis({
      type: figure.y.type,
      name: figure.y.title,
      data: figure.y.categories,
      scale: !figure.traces.some(({ type }) => type === "bar"), // bars are as long as what they stand for
    }),
    visualMap: heat && {
      min: heat.low,
      max: heat.high,
      right: 0,
      top: "middle",
      calculable: true,
      textStyle: { color: base().textStyle.color },
    },
    series: figure.traces.map(drawnTrace),
  };
}

/** @param {Trace} trace */
function drawnTrace({ type, name, mode, points }) {
  if (type !== "scatter") return { type, name, data: points };
  if (!mode.includes("lines")) return { type: "scatter", name, symbolSize: 7, data: points };
  return { type: "line", name, showSymbol: mode.includes("markers"), data: points };
}

/** @param {{ seriesName?: string, value?: unknown }} event */
function figureTip({ seriesName, value }) {
  const values = Array.isArray(value) ? value : [value];
  return tip(
    String(seriesName ?? ""),
    values.map((one, place) => [["x", "y", "value"][place], one]),
  );
}
