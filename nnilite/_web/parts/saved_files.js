// Files that the page saves, CSV among them.

import { writeJson } from "../lib/exact_json.js";
import { profile } from "../lib/live_data.js";

/**
 * The name of a file that is saved: it begins with the experiment.
 * @param {string} what
 */
export const fileName = (what) => `${profile.value?.id ?? "experiment"}-${what}`;

/**
 * @param {string} name
 * @param {Blob | string} data
 * @param {string} [type]
 */
export function saveFile(name, data, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data instanceof Blob ? data : new Blob([data], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/**
 * Rows of values as CSV. A cell that a spreadsheet would take for a formula gets a quote in front.
 * @param {string[]} header
 * @param {unknown[][]} rows
 */
export function csv(header, rows) {
  /** @param {unknown} value */
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    let text = typeof value === "object" ? writeJson(value) : String(value);
    if (typeof value === "string" && /^[=+@\t\r-]/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [header, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}
