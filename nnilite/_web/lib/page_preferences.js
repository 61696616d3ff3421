// What the page remembers for its user: views that have a name, and the columns of a table. The server keeps it, since
// each start of a server is another origin, of which a browser remembers nothing.

import { get, send } from "./api.js";
import { decode, route, setQuery } from "./route.js";
import { signal, useEffect } from "./ui.js";

/** @import { Signal } from "../vendor/signals.js" */

/** @typedef {{ name: string, address: string }} SavedView its address is what stands behind the #/ */
/** @typedef {{ views: SavedView[], columns: string[] }} Memory without columns, a table has its usual ones */

/** @type {Signal<SavedView[]>} */
export const savedViews = signal([]);
const KEY_MAX = 1000; // characters
let saves = 0; // of views

/**
 * The name of the table of trials with these parameters: experiments that search the same have the same columns.
 * @param {string[]} parameters
 */
export const tableOf = (parameters) => `trials ${[...parameters].sort().join(",")}`.slice(0, KEY_MAX);

/**
 * Reads the named views of a place, and puts the columns that were chosen for a table into the address, unless it has
 * some already. Without these, a page works as it would for somebody who has chosen nothing.
 * @param {string | undefined} place the id of an experiment, or `ui`
 * @param {string} [table]
 */
export function usePreferences(place, table) {
  useEffect(() => {
    if (!place) return undefined;
    let gone = false;
    const before = saves;
    /** @type {Promise<Memory>} */
    const asked = get("page", { place, table });
    asked.then(
      ({ views, columns }) => {
        if (gone) return;
        if (saves === before) savedViews.value = views; // otherwise the answer may lack the view that was saved meanwhile
        if (!table || !columns.length || route.value.query.get("cols")) return;
        setQuery({ cols: writeColumns(columns) });
      },
      () => {},
    );
    return () => {
      gone = true;
    };
  }, [place, table]);
}

/** @param {string[]} keys as they stand in an address */
export const writeColumns = (keys) => keys.map(encodeURIComponent).join(",");

/**
 * The keys of the columns in an address; null: the usual ones.
 * @param {URLSearchParams} query
 */
export const readColumns = (query) => query.get("cols")?.split(",").filter(Boolean).map(decode) ?? null;

/** @type {Promise<unknown>} */
let kept = Promise.resolve();

/**
 * Shows these columns, and remembers them for the table; null: the usual ones.
 * @param {string} table
 * @param {string[] | null} keys
 * @returns {Promise<unknown>}
 */
export function keepColumns(table, keys) {
  setQuery({ cols: keys && writeColumns(keys) });
  const keep = () => send("PUT", "page/columns", { table, columns: keys ?? [] });
  kept = kept.then(keep, keep); // one after the other: the last choice is the one that stays
  return kept;
}

/**
 * Gives a view a name; without an address, it is forgotten.
 * @param {string} place
 * @param {string} name
 * @param {string} address
 */
export async function keepView(place, name, address) {
  /** @type {Memory} */
  const { views } = await send("PUT", "page/views", { place, name, address });
  saves += 1;
  savedViews.value = views;
}

/** The view that is shown, as an address behind the #/. */
export const shownAddress = () => location.hash.replace(/^#\/?/, "");

const OF_ONE_START = /^nnilite-[0-9a-f]{16}\.localhost$/;

/** The link to what is shown. The name of a page is that of one start of its server; 127.0.0.1 leads to each. */
export function lastingLink() {
  const url = new URL(location.href);
  if (OF_ONE_START.test(url.hostname)) url.hostname = "127.0.0.1";
  return url.href;
}
