// Line icons on a grid of 16. They are always next to a word or a label, so they are hidden from screen readers.
import { html } from "../lib/ui.js";

const PATHS = {
  bin: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.6 8.5h5.8l.6-8.5M7 7v3.5M9 7v3.5",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M6 6h7v7H6zM10 6V3H3v7h3",
  down: "M8 3v9M4 8.5 8 12.5l4-4",
  download: "M8 2.5v7M5 7l3 3 3-3M3 13h10",
  edit: "M3 13l.7-3L10.5 3.2l2.3 2.3L6 12.3z",
  filter: "M2.5 4h11M5 8h6M7 12h2",
  kill: "M4.5 4.5h7v7h-7z",
  moon: "M13 9.5A5.5 5.5 0 1 1 6.5 3a4.5 4.5 0 0 0 6.5 6.5z",
  next: "M6 3l5 5-5 5",
  open: "M9 3h4v4M13 3L7.5 8.5M11 9.5V13H3V5h3.5",
  play: "M5 3.5v9l7.5-4.5z",
  plus: "M8 3v10M3 8h10",
  previous: "M10 3L5 8l5 5",
  retry: "M12.5 6A5 5 0 1 0 13 9.5M12.8 2.5V6H9.3",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.7 10.7L14 14",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1.5v1.6M8 12.9v1.6M1.5 8h1.6M12.9 8h1.6M3.4 3.4l1.1 1.1M11.5 11.5l1.1 1.1M3.4 12.6l1.1-1.1M11.5 4.5l1.1-1.1",
  columns: "M2.5 3h11v10h-11zM6.2 3v10M9.8 3v10",
  views: "M4 2.5h8v11l-4-3-4 3z",
  up: "M8 13V4M4 7.5l4-4 4 4",
};

/** @typedef {keyof typeof PATHS} IconName */

/** @param {{ name: IconName }} props */
export function Icon({ name }) {
  return html`<svg viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round"
    stroke-linejoin="round" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}
