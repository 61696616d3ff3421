// A table for any number of rows. Only the rows in sight exist. They live in a box that sticks to the frame while an
// empty box as high as all rows is scrolled under it: however fast one scrolls, there are rows in sight and no blanks.
import { ariaSort, count } from "../lib/format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/ui.js";
import { ROW, useActive, useAnchor } from "./grid_place.js";
import { Icon } from "./icons.js";

/** @import { ComponentChildren } from "../vendor/preact.js" */

const HEAD = 36;
const TAKES_KEYS = "input, textarea, select, dialog, [contenteditable], .grid";
const HIGHEST = 15_000_000; // pixels; browsers cannot scroll much further
const MOST_ON_PAPER = 1000; // rows, about twenty pages

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} key
 * @property {string} title
 * @property {number} width pixels
 * @property {(row: Row) => ComponentChildren} render
 * @property {boolean} [number] whether it is set in figures, to the right
 * @property {boolean} [mono] whether all letters have one width
 * @property {boolean} [off] whether it is hidden unless asked for
 * @property {boolean} [fixed] whether it cannot be moved
 * @property {boolean} [sortable]
 * @property {string} [label] its name where the title is a sign
 * @property {ComponentChildren} [head] in place of the title
 */

/** @typedef {{ key: string, descending: boolean }} Sort */

/**
 * @template Row
 * @typedef {object} GridProps
 * @property {Column<Row>[]} columns
 * @property {Row[]} rows
 * @property {Sort} sort
 * @property {(key: string) => void} onSort
 * @property {(from: string, to: string) => void} [onMove]
 * @property {ReadonlySet<string>} [selected] ids of rows
 * @property {(row: Row) => void} [onOpen]
 * @property {(row: Row) => void} [onToggle]
 * @property {() => void} [onAll] selects all rows
 * @property {string} label
 */

/** @typedef {{ id: string }} AnyRow */

/** @param {GridProps<AnyRow>} props */
export function Grid({ columns, rows, sort, onSort, onMove, selected, onOpen, onToggle, onAll, label }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [place, setPlace] = useState({ top: 0, height: 600, width: 900 });
  const [active, setActive] = useActive(rows);
  const onPaper = usePaper();
  const all = rows.length * ROW;
  const high = Math.min(all, HIGHEST);
  const scale = all > high ? (all - place.height + HEAD) / (high - place.height + HEAD) : 1;
  const top = Math.min(place.top * scale, Math.max(all - (place.height - HEAD), 0));
  const first = onPaper ? 0 : Math.max(0, Math.floor(top / ROW) - 2);
  const last = Math.min(rows.length, onPaper ? MOST_ON_PAPER : Math.ceil((top + place.height) / ROW) + 2);
  const width = Math.max(
    columns.reduce((sum, column) => sum + column.width, 0),
    0,
  );

  const measure = () =>
    setPlace((known) => {
      const { scrollTop, clientHeight, clientWidth } = /** @type {HTMLDivElement} */ (box.current);
      const same = known.top === scrollTop && known.height === clientHeight && known.width === clientWidth;
      return same ? known : { top: scrollTop, height: clientHeight, width: clientWidth };
    });
  useLayoutEffect(() => {
    const frame = box.current;
    if (!frame) return undefined;
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(frame);
    frame.addEventListener("scroll", measure, { passive: true });
    return () => watcher.disconnect();
  }, []);
  /** @param {number} pixels of all rows */
  const scrollTo = (pixels) => {
    if (!box.current) return;
    box.current.scrollTop = pixels / scale;
    measure();
  };
  useAnchor({ rows, sort, top, active, scrollTo });

  /** @param {number} index */
  const reveal = (index) => {
    if (!box.current) return;
    const y = (index * ROW) / scale;
    const room = place.height - HEAD - ROW;
    if (y < place.top) box.current.scrollTop = y;
    else if (y > place.top + room) box.current.scrollTop = y - room;
  };
  /** @param {number} index */
  const move = (index) => {
    const next = Math.max(0, Math.min(rows.length - 1, index));
    setActive(next);
    reveal(next);
  };
  const page = Math.max(1, Math.floor((place.height - HEAD) / ROW) - 1);
  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    if (event.target === box.current && !event.defaultPrevented) step(event);
  };
  /** @param {KeyboardEvent} event */
  const step = (event) => {
    if (!rows.length) return;
    /** @type {Record<string, number>} */
    const steps = {
      ArrowDown: active + 1,
      j: active + 1,
      ArrowUp: active - 1,
      k: active - 1,
      PageDown: active + page,
      PageUp: active - page,
      Home: 0,
      End: rows.length - 1,
    };
    if (event.key in steps && !event.ctrlKey && !event.metaKey) move(steps[event.key]);
    else if (event.key === "Enter") onOpen?.(rows[active]);
    else if (event.key === " ") onToggle?.(rows[active]);
    else if (event.key === "a" && (event.ctrlKey || event.metaKey)) onAll?.();
    else return;
    event.preventDefault();
  };
  // j, k and Enter work at once: where nothing else has the focus, the table takes it.
  const latest = useRef(step);
  latest.current = step;
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const anywhere = (event) => {
      const target = /** @type {Element} */ (event.target);
      const isFree = target === document.body || target.id === "main";
      const isElsewhere = isFree || (["j", "k"].includes(event.key) && !target.closest(TAKES_KEYS));
      if (!isElsewhere || !["j", "k", "Enter"].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey)
        return;
      if (target === box.current || document.querySelector("dialog[open]") || !box.current) return;
      box.current.focus({ preventScroll: true });
      latest.current(event);
    };
    addEventListener("keydown", anywhere);
    return () => removeEventListener("keydown", anywhere);
  }, []);

  return html`<div class="grid" ref=${box} role="grid" tabindex="0" aria-multiselectable="true" aria-label=${label} aria-rowcount=${rows.length + 1}
    aria-colcount=${columns.length} onKeyDown=${onKey} aria-activedescendant=${rows[active] ? `row-${rows[active].id}` : undefined}>
    <div class="grid-room" role="presentation" style=${{ height: `${high + HEAD}px`, width: `${width}px`, minWidth: "100%" }}>
      <div class="grid-view" role="presentation"
        style=${{ height: `${Math.min(place.height, high + HEAD)}px`, width: `${width}px`, minWidth: "100%" }}>
        <${Head} columns=${columns} sort=${sort} onSort=${onSort} onMove=${onMove} />
        <div role="presentation" style=${onPaper ? undefined : { transform: `translateY(${first * ROW - top}px)` }}>
          ${rows.slice(first, last).map(
            (row, offset) => html`<${Row} key=${row.id} row=${row} columns=${columns}
            index=${first + offset} active=${first + offset === active} selected=${selected?.has(row.id)}
            onActive=${setActive} />`,
          )}
        </div>
        ${onPaper && last < rows.length && html`<p class="soft">The first ${count(last)} of ${count(rows.length)} rows.</p>`}
      </div>
    </div>
  </div>`;
}

/** Return whether the page is being printed: paper has no frame to scroll, so the rows have to be there. */
function usePaper() {
  const [onPaper, setOnPaper] = useState(false);
  useEffect(() => {
    const start = () => setOnPaper(true);
    const end = () => setOnPaper(false);
    addEventListener("beforeprint", start);
    addEventListener("afterprint", end);
    return () => {
      removeEventListener("beforeprint", start);
      removeEventListener("afterprint", end);
    };
  }, []);
  return onPaper;
}

/** @param {{ row: AnyRow, columns: Column<AnyRow>[], index: number, active: boolean, selected: boolean, onActive: (index: number) => void }} props */
function Row({ row, columns, index, active, selected, onActive }) {
  return html`<div class=${`grid-row ${active ? "active" : ""}`} role="row" id=${`row-${row.id}`} aria-rowindex=${index + 2}
    aria-selected=${selected ? "true" : "false"} onPointerDown=${() => onActive(index)}>
    ${columns.map(
      (column) => html`<div class=${`grid-cell ${column.number ? "number" : ""} ${column.mono ? "mono" : ""}`}
      role="gridcell" key=${column.key} style=${{ width: `${column.width}px` }}>${column.render(row)}</div>`,
    )}
  </div>`;
}

/** @param {Pick<GridProps<AnyRow>, "columns" | "sort" | "onSort" | "onMove">} props */
function Head({ columns, sort, onSort, onMove }) {
  const [over, setOver] = useState(/** @type {string | null} */ (null));
  const dragged = useRef(/** @type {string | null} */ (null));
  /** @param {string} key */
  const drop = (key) => {
    if (dragged.current && dragged.current !== key) onMove?.(dragged.current, key);
    setOver(null);
  };
  return html`<div class="grid-head" role="row" aria-rowindex="1">
    ${columns.map((column) => {
      const direction = ariaSort(sort.key === column.key, sort.descending);
      return html`<div class=${`grid-cell ${column.number ? "number" : ""} ${over === column.key ? "drop" : ""}`} role="columnheader"
        key=${column.key} aria-sort=${direction} style=${{ width: `${column.width}px` }} title=${column.label ?? column.title}
        draggable=${column.fixed ? undefined : "true"}
        onDragStart=${() => {
          dragged.current = column.key;
        }}
        onDragOver=${(event) => {
          event.preventDefault();
          setOver(column.key);
        }}
        onDragLeave=${() => setOver(null)}
        onDrop=${(event) => {
          event.preventDefault();
          drop(column.key);
        }}>
        ${
          column.sortable === false
            ? html`<span class="hidden">${column.label ?? column.title}</span>${column.head}`
            : html`<button onClick=${() => onSort(column.key)}><span>${column.title}</span>${
                direction && html`<${Icon} name=${sort.descending ? "down" : "up"} />`
              }</button>`
        }
      </div>`;
    })}
  </div>`;
}
