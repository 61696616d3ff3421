// Where one is in a table: the active row, and the rows in sight. Both stay when rows come above them, or the page is
// left for a while: who reads, ticks or opens a row means that row, not its place.
import { useLayoutEffect, useMemo, useRef, useState } from "../lib/ui.js";

/** @import { AnyRow, Sort } from "./grid.js" */

export const ROW = 34; // pixels

/**
 * @typedef {object} Anchor
 * @property {AnyRow[]} rows
 * @property {string} order what they are sorted by: another order is looked at from its top
 * @property {number} index of the first row in sight
 * @property {number} into how many pixels of it are out of sight
 */

/** @typedef {{ address: string, active: string | null, id: string | undefined, into: number }} Left */

/** @type {Left | null} where the last table was left */
let left = null;

/** Return the place in a table that was left at this address. */
const known = () => (left?.address === location.hash ? left : null);

/**
 * The index of the active row, and a function that makes another one active.
 * @param {AnyRow[]} rows
 * @returns {[number, (index: number) => void]}
 */
export function useActive(rows) {
  const [id, setId] = useState(() => known()?.active ?? null);
  const before = useRef(0);
  const found = useMemo(() => rows.findIndex((row) => row.id === id), [rows, id]);
  const index = found >= 0 ? found : Math.max(0, Math.min(id === null ? 0 : before.current, rows.length - 1));
  before.current = index;
  return [index, (next) => setId(rows[next]?.id ?? null)];
}

/**
 * Keep the rows that are in sight where they are.
 * @param {{ rows: AnyRow[], sort: Sort, top: number, active: number, scrollTo: (top: number) => void }} table `top`: how
 * many pixels of all rows are out of sight above
 */
export function useAnchor({ rows, sort, top, active, scrollTo }) {
  const anchor = useRef(/** @type {Anchor | null} */ (null));
  const order = `${sort.key} ${sort.descending}`;
  /**
   * @param {string | undefined} id
   * @param {number} into
   */
  const show = (id, into) => {
    const index = rows.findIndex((row) => row.id === id);
    if (index >= 0) scrollTo(index * ROW + into);
  };
  useLayoutEffect(() => {
    const was = anchor.current;
    const index = Math.min(Math.floor(top / ROW), Math.max(0, rows.length - 1));
    anchor.current = { rows, order, index, into: top - index * ROW };
    if (!was || was.rows === rows || was.order !== order || top <= 0) return;
    const id = was.rows[was.index]?.id;
    if (rows[was.index]?.id !== id) show(id, was.into);
  });
  const latest = useRef(/** @type {Left | null} */ (null));
  useLayoutEffect(() => {
    const seen = anchor.current;
    latest.current = {
      address: location.hash,
      active: rows[active]?.id ?? null,
      id: seen?.rows[seen.index]?.id,
      into: seen?.into ?? 0,
    };
  });
  useLayoutEffect(() => {
    const place = known();
    if (place) show(place.id, place.into);
    return () => {
      left = latest.current;
    };
  }, []);
}
