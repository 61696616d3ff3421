// In which fields several objects differ, such as the configurations of experiments.

import { count, inFull, plural } from "../lib/format.js";
import { html } from "../lib/ui.js";
import { Card, Scroll } from "./layout.js";

/** @import { JsonObject } from "../lib/wire.d.ts" */

/** @typedef {{ id: string, title: string, content: JsonObject }} Compared */

const ROWS_MAX = 300;

/**
 * All fields of an object by their dotted names.
 * @param {JsonObject} content
 * @param {string} prefix
 * @param {Map<string, string>} found
 */
function collect(content, prefix, found) {
  for (const [name, part] of Object.entries(content)) {
    const isBranch = part !== null && typeof part === "object" && !Array.isArray(part);
    if (isBranch && Object.keys(part).length) collect(part, `${prefix}${name}.`, found);
    else found.set(`${prefix}${name}`, inFull(content, name, part)); // seeds have many digits
  }
  return found;
}

/**
 * The fields in which they differ, each with its text in every one of them (null: it is not set), and how many are equal.
 * @param {JsonObject[]} contents
 */
export function difference(contents) {
  const all = contents.map((content) => collect(content, "", new Map()));
  const names = [...new Set(all.flatMap((one) => [...one.keys()]))].sort();
  const rows = names.map((name) => ({ name, texts: all.map((one) => one.get(name) ?? null) }));
  const differing = rows.filter(({ texts }) => new Set(texts).size > 1);
  return { rows: differing, same: rows.length - differing.length };
}

/** @param {{ title: string, found: Compared[] }} props */
export function Difference({ title, found }) {
  if (found.length < 2) return null;
  const { rows, same } = difference(found.map(({ content }) => content));
  return html`<${Card} title=${title}>
    ${
      rows.length
        ? html`<${Scroll} label=${title}><table class="plain difference">
          <thead><tr><th scope="col">Field</th>${found.map((one) => html`<th key=${one.id} scope="col">${one.title}</th>`)}</tr></thead>
          <tbody>${rows
            .slice(0, ROWS_MAX)
            .map(
              ({ name, texts }) =>
                html`<tr key=${name}><th scope="row" class="mono small">${name}</th>${texts.map(
                  (text, place) =>
                    html`<td key=${found[place].id} class="mono small">${text ?? html`<span class="soft">not set</span>`}</td>`,
                )}</tr>`,
            )}</tbody></table></${Scroll}>`
        : html`<p>They do not differ.</p>`
    }
    <p class="soft small">${rows.length > ROWS_MAX ? `The first ${ROWS_MAX} of ${count(rows.length)} fields that differ. ` : ""}${
      same === 1 ? "1 field is" : `${plural(same, "field")} are`
    } the same in all.</p>
  </${Card}>`;
}
