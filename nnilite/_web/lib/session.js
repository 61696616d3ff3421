// The key by which this page is signed in. A link brings a key of its own behind the # of the address, which stays in the
// browser; it is traded once for that of a session. The session's key is stored for this origin and this path, and sent
// to no other server: cookies would go to all ports of a machine, whoever listens there. It ends with the server.

export const BASE = new URL("api/v1/", document.baseURI.split("#")[0]);
export const HEADER = "X-Nnilite-Session";

const PLACE = `nnilite-session ${BASE.pathname}`;
const KEY = /^[\w-]{20,100}$/;
const TRADE_MAX_MS = 20_000;

let inMemory = ""; // where storage is forbidden
/** @type {"" | "link" | "ended"} why this page is signed out: its link was no good, or what it had does not count any more */
let trouble = "";

export const signInTrouble = () => trouble;

/** The key of the session; "" if there is none. */
export function sessionKey() {
  try {
    return localStorage.getItem(PLACE) ?? inMemory;
  } catch {
    return inMemory;
  }
}

/** @param {string} key */
function keep(key) {
  inMemory = key;
  try {
    if (key) localStorage.setItem(PLACE, key);
    else localStorage.removeItem(PLACE);
  } catch {
    // it is in memory, for as long as this page is open
  }
}

/**
 * Forget a key that does not count any more, unless another window has signed in meanwhile.
 * @param {string} key
 */
export function forget(key) {
  trouble = "ended";
  if (key === sessionKey()) keep("");
}

const linkInAddress = () => new URLSearchParams(location.hash.slice(1)).get("key");

/** Trade the key of a link for that of a session, and take it out of the address and the history. */
export async function enter() {
  const link = linkInAddress();
  if (link === null) return;
  const response = await fetch(new URL("sessions", BASE), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ link }),
    signal: AbortSignal.timeout(TRADE_MAX_MS),
  });
  history.replaceState(null, "", location.pathname + location.search);
  if (response.status === 401) trouble = "link";
  if (!response.ok) return;
  /** @type {{ key: string }} the key is empty for who needs none */
  const { key } = await response.json();
  if (KEY.test(key)) keep(key);
}

/** Have the server forget this session. */
export async function signOut() {
  const headers = { "Content-Type": "application/json", [HEADER]: sessionKey() };
  await fetch(new URL("sign-out", BASE), { method: "POST", headers, body: "{}" });
  keep("");
}

/**
 * Calls `listener` when another window of this server signs in or out.
 * @param {() => void} listener
 */
export function onSignIn(listener) {
  addEventListener("storage", (event) => event.key === PLACE && listener());
}

// A link that is opened in a window with this page changes no more than what stands behind the #.
addEventListener("hashchange", () => linkInAddress() !== null && location.reload());
