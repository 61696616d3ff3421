// In which fields the configurations of several experiments differ.

import { value } from "../lib/format.js";
import { html } from "../lib/ui.js";
import { Card, Scroll } from "../parts/layout.js";

/** @import { Json } from "../lib/wire.d.ts" */

/** @typedef {{ id: string, name: string, config: Json }} Configured */

/**
 * All fields of a configuration by their dotted names.
 * @param {Json} config
 * @param {string} prefix
 * @param {Map<string, string>} found
 */
function collect(config, prefix, found) {
  const isBranch = config !== null && typeof config === "object" && !Array.isArray(config);
  if (!isBranch || !Object.keys(config).length) {
    found.set(prefix, value(config));
    return found;
  }
  for (const [name, part] of Object.entries(config)) collect(part, prefix ? `${prefix}.${name}` : name, found);
  return found;
}

/**
 * The fields in which they differ, each with its text in every one of them (null: it is not set), and how many are equal.
 * @param {Json[]} configs
 */
export function difference(configs) {
  const all = configs.map((config) => collect(config, "", new Map()));
  const names = [...new Set(all.flatMap((one) => [...one.keys()]))].sort();
  const rows = names.map((name) => ({ name, texts: all.map((one) => one.get(name) ?? null) }));
  const differing = rows.filter(({ texts }) => new Set(texts).size > 1);
  return { rows: differing, same: rows.length - differing.length };
}

/** @param {{ found: Configured[] }} props */
export function ConfigDifference({ found }) {
  const { rows, same } = difference(found.map(({ config }) => config));
  if (found.length < 2) return null;
  return html`<${Card} title="Configurations">
    ${
      rows.length
        ? html`<${Scroll} label="Configurations"><table class="plain difference">
          <thead><tr><th scope="col">Field</th>${found.map((one) => html`<th key=${one.id} scope="col">${one.name || one.id}</th>`)}</tr></thead>
          <tbody>${rows.map(
            ({ name, texts }) =>
              html`<tr key=${name}><th scope="row" class="mono small">${name}</th>${texts.map(
                (text, place) =>
                  html`<td key=${found[place].id} class="mono small">${text ?? html`<span class="soft">not set</span>`}</td>`,
              )}</tr>`,
          )}</tbody></table></${Scroll}>`
        : html`<p>They do not differ.</p>`
    }
    <p class="soft small">${same} fields are the same in all.</p>
  </${Card}>`;
}
