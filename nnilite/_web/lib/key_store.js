// Where the browser keeps the key of a session, for this scheme, name and port: in its database, since only there a key
// can lie that no script reads out. Where that is forbidden, this page has the key for as long as it is open.

/** @import { Key } from "./codes.js" */

/** @typedef {{ name: string, key: Key }} Session */

const STORE = "sessions";

/**
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>}
 */
const done = (request) =>
  new Promise((settle, fail) => {
    request.onsuccess = () => settle(request.result);
    request.onerror = () => fail(request.error);
  });

/** @param {IDBTransactionMode} mode */
async function store(mode) {
  const opening = indexedDB.open("nnilite", 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
  const database = await done(opening);
  const transaction = database.transaction(STORE, mode);
  transaction.oncomplete = () => database.close();
  return transaction.objectStore(STORE);
}

/**
 * @param {string} place
 * @returns {Promise<Session | undefined>}
 */
export async function stored(place) {
  try {
    return await done((await store("readonly")).get(place));
  } catch {
    return undefined;
  }
}

/**
 * Stores a session, or removes what was stored.
 * @param {string} place
 * @param {Session | null} session
 */
export async function storeAt(place, session) {
  try {
    const all = await store("readwrite");
    await (session ? done(all.put(session, place)) : done(all.delete(place)));
  } catch {
    // it is in memory, for as long as this page is open
  }
}
