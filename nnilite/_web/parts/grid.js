// A table for any number of rows. Only the rows in sight exist. They live in a box that sticks to the frame while an
// empty box as high as all rows is scrolled under it: however fast one scrolls, there are rows in sight and no blanks.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/ui.js";
import { Icon } from "./icons.js";

const ROW = 34;
const HEAD = 36;
const HIGHEST = 15_000_000; // pixels; browsers cannot scroll much further

// columns: [{key, title, width, number, render(row), sortable, label}]; rows: an array with stable `id`s.
export function Grid({ columns, rows, sort, onSort, onMove, selected, onOpen, onToggle, label }) {
  const box = useRef();
  const [place, setPlace] = useState({ top: 0, height: 600, width: 900 });
  const [active, setActive] = useState(0);
  const all = rows.length * ROW;
  const high = Math.min(all, HIGHEST);
  const scale = all > high ? (all - place.height + HEAD) / (high - place.height + HEAD) : 1;
  const top = Math.min(place.top * scale, Math.max(all - (place.height - HEAD), 0));
  const first = Math.max(0, Math.floor(top / ROW) - 2);
  const last = Math.min(rows.length, Math.ceil((top + place.height) / ROW) + 2);
  const width = Math.max(columns.reduce((sum, column) => sum + column.width, 0), 0);

  useLayoutEffect(() => {
    const measure = () => setPlace((known) => {
      const { scrollTop, clientHeight, clientWidth } = box.current;
      const same = known.top === scrollTop && known.height === clientHeight && known.width === clientWidth;
      return same ? known : { top: scrollTop, height: clientHeight, width: clientWidth };
    });
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(box.current);
    box.current.addEventListener("scroll", measure, { passive: true });
    return () => watcher.disconnect();
  }, []);
  useEffect(() => {
    if (active >= rows.length) setActive(Math.max(rows.length - 1, 0));
  }, [rows.length]);

  const reveal = (index) => {
    const y = (index * ROW) / scale;
    const room = place.height - HEAD - ROW;
    if (y < place.top) box.current.scrollTop = y;
    else if (y > place.top + room) box.current.scrollTop = y - room;
  };
  const move = (index) => {
    const next = Math.max(0, Math.min(rows.length - 1, index));
    setActive(next);
    reveal(next);
  };
  const page = Math.max(1, Math.floor((place.height - HEAD) / ROW) - 1);
  const onKey = (event) => {
    if (event.target !== box.current || !rows.length) return;
    const steps = {
      ArrowDown: active + 1, j: active + 1, ArrowUp: active - 1, k: active - 1,
      PageDown: active + page, PageUp: active - page, Home: 0, End: rows.length - 1,
    };
    if (event.key in steps && !event.ctrlKey && !event.metaKey) move(steps[event.key]);
    else if (event.key === "Enter") onOpen?.(rows[active]);
    else if (event.key === " ") onToggle?.(rows[active]);
    else return;
    event.preventDefault();
  };

  return html`<div class="grid" ref=${box} role="grid" tabindex="0" aria-label=${label} aria-rowcount=${rows.length + 1}
    aria-colcount=${columns.length} onKeyDown=${onKey} aria-activedescendant=${rows[active] ? `row-${rows[active].id}` : undefined}>
    <div role="presentation" style=${{ height: `${high + HEAD}px`, width: `${width}px`, minWidth: "100%" }}>
      <div class="grid-view" role="presentation"
        style=${{ height: `${Math.min(place.height, high + HEAD)}px`, width: `${width}px`, minWidth: "100%" }}>
        <${Head} columns=${columns} sort=${sort} onSort=${onSort} onMove=${onMove} />
        <div role="presentation" style=${{ transform: `translateY(${first * ROW - top}px)` }}>
          ${rows.slice(first, last).map((row, offset) => html`<${Row} key=${row.id} row=${row} columns=${columns}
            index=${first + offset} active=${first + offset === active} selected=${selected?.has(row.id)}
            onActive=${setActive} stamp=${row.stamp} />`)}
        </div>
      </div>
    </div>
  </div>`;
}

function Row({ row, columns, index, active, selected, onActive }) {
  return html`<div class=${`grid-row ${active ? "active" : ""}`} role="row" id=${`row-${row.id}`} aria-rowindex=${index + 2}
    aria-selected=${selected ? "true" : "false"} onPointerDown=${() => onActive(index)}>
    ${columns.map((column) => html`<div class=${`grid-cell ${column.number ? "number" : ""} ${column.mono ? "mono" : ""}`}
      role="gridcell" key=${column.key} style=${{ width: `${column.width}px` }}>${column.render(row)}</div>`)}
  </div>`;
}

function Head({ columns, sort, onSort, onMove }) {
  const [over, setOver] = useState(null);
  const dragged = useRef(null);
  const drop = (key) => {
    if (dragged.current && dragged.current !== key) onMove?.(dragged.current, key);
    setOver(null);
  };
  return html`<div class="grid-head" role="row" aria-rowindex="1">
    ${columns.map((column) => {
      const direction = sort.key === column.key ? (sort.descending ? "descending" : "ascending") : undefined;
      return html`<div class=${`grid-cell ${column.number ? "number" : ""} ${over === column.key ? "drop" : ""}`} role="columnheader"
        key=${column.key} aria-sort=${direction} style=${{ width: `${column.width}px` }} title=${column.label ?? column.title}
        draggable=${column.fixed ? undefined : "true"}
        onDragStart=${() => { dragged.current = column.key; }}
        onDragOver=${(event) => { event.preventDefault(); setOver(column.key); }}
        onDragLeave=${() => setOver(null)}
        onDrop=${(event) => { event.preventDefault(); drop(column.key); }}>
        ${column.sortable === false
          ? html`<span class="hidden">${column.label ?? column.title}</span>${column.head}`
          : html`<button onClick=${() => onSort(column.key)}><span>${column.title}</span>${
              direction && html`<${Icon} name=${sort.descending ? "down" : "up"} />`}</button>`}
      </div>`;
    })}
  </div>`;
}
