// JSON values shown as YAML, which is how people wrote them.
import { digits, writeJson } from "../lib/exact_json.js";
import { html } from "../lib/ui.js";

/** @import { Json, JsonObject } from "../lib/wire.d.ts" */

/** @typedef {[string | null, string]} Piece its class, and its text */

const PLAIN = /^[A-Za-z_./~][\w ./@%+~:-]*$/;
const WORDS = /^(true|false|null|yes|no|on|off|~)$/i;
const NUMBERS = /^\.(\d|inf$|nan$)/i;

/**
 * @param {Json} value
 * @param {string} [text] how a large whole number was written
 * @returns {Piece}
 */
function scalar(value, text) {
  if (typeof value !== "string") return ["other", text ?? writeJson(value)];
  const plain = PLAIN.test(value) && !WORDS.test(value) && !NUMBERS.test(value) && !/: |:$| $|^-/.test(value);
  return ["text", plain ? value : writeJson(value)];
}

/** @param {string} name */
const key = (name) => (/^[\w.-]+$/.test(name) && !/^[\d.-]/.test(name) && !WORDS.test(name) ? name : writeJson(name));
/** @param {Json} value */
const isFlat = (value) => value === null || typeof value !== "object" || Object.keys(value).length === 0;
/** @param {Json} value */
const isShort = (value) => Array.isArray(value) && value.every(isFlat) && writeJson(value).length < 70;

/**
 * The YAML of a value.
 * @param {Json} value
 * @param {number} indent
 * @param {string} [text] how a large whole number was written
 * @returns {Generator<Piece, void>}
 */
function* pieces(value, indent, text) {
  const pad = "  ".repeat(indent);
  if (isFlat(value)) yield scalar(value, text);
  else if (Array.isArray(value) && isShort(value)) {
    yield [null, "["];
    for (const [place, item] of value.entries()) {
      if (place) yield [null, ", "];
      yield scalar(item, digits(value, place));
    }
    yield [null, "]"];
  } else if (Array.isArray(value)) {
    for (const [place, item] of value.entries()) {
      yield [null, `${pad}- `];
      const inner = [...pieces(item, indent + 1, digits(value, place))];
      if (!isFlat(item) && !isShort(item)) inner[0] = [inner[0][0], inner[0][1].trimStart()];
      yield* inner;
      if (isFlat(item) || isShort(item)) yield [null, "\n"];
    }
  } else {
    for (const [name, item] of Object.entries(/** @type {JsonObject} */ (value))) {
      yield [null, pad];
      yield ["key", `${key(name)}:`];
      const inline = isFlat(item) || isShort(item);
      yield [null, inline ? " " : "\n"];
      yield* pieces(item, indent + 1, digits(value, name));
      if (inline) yield [null, "\n"];
    }
  }
}

/** @param {Json} value */
export const yaml = (value) => [...pieces(value, 0)].map(([, text]) => text).join("");

/** @param {{ value: Json, label: string }} props */
export function Yaml({ value, label }) {
  return html`<pre class="code" tabindex="0" role="region" aria-label=${label}>${[...pieces(value, 0)].map(
    ([name, text]) => (name ? html`<span class=${name}>${text}</span>` : text),
  )}</pre>`;
}
