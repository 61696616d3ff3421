// The session by which this page is signed in. A link brings a secret behind the # of the address, which stays in the
// browser. Page and server compute the key of a session from it and from a nonce of each, so neither the link nor the key
// is sent to anybody: whoever takes the server's port later hears nothing that opens it. The key signs requests (see
// signed.js), and ends with the server.
import { code, keyOf, nonce } from "./codes.js";
import { storeAt, stored } from "./key_store.js";

/** @import { Session } from "./key_store.js" */

export const BASE = new URL("api/v1/", document.baseURI.split("#")[0]);

const PLACE = `nnilite-session ${BASE.pathname}`;
const NONCE = /^[\w.]{0,100}$/;
const TRADE_MAX_MS = 20_000;

/** @type {Session | null} */
let held = null;
/** @type {"" | "link" | "ended"} why this page is signed out: its link was no good, or what it had does not count any more */
let trouble = "";

/** Whether a new load of the page would lose what is being typed. */
export const isTyping = () => document.querySelector("dialog[open], textarea, main form.stack") !== null;
export const signInTrouble = () => trouble;
export const session = () => held;
export const isSignedIn = () => held !== null;

/** @param {Session | null} session */
async function keep(session) {
  held = session;
  await storeAt(PLACE, session);
  try {
    // Other windows hear of this. The name opens nothing.
    if (session) localStorage.setItem(PLACE, session.name);
    else localStorage.removeItem(PLACE);
  } catch {
    // other windows have to be signed in by themselves
  }
}

/**
 * Forget a session that does not count any more, unless another window has signed in meanwhile.
 * @param {Session} session
 */
export async function forget(session) {
  trouble = "ended";
  const now = (await stored(PLACE)) ?? held;
  if (now && now.name !== session.name) held = now;
  else await keep(null);
}

const linkInAddress = () => new URLSearchParams(location.hash.slice(1)).get("key");

/** Sign in by the link in the address, which is taken out of it and of the history, or by what is stored. */
export async function enter() {
  const link = linkInAddress();
  held = (await stored(PLACE)) ?? null;
  if (link !== null) await trade(link);
}

/** @param {string} secret that of a link */
async function trade(secret) {
  const [link, mine] = [await keyOf(secret), nonce()];
  const asked = { link: await code(link, "name"), nonce: mine, proof: await code(link, "link", mine) };
  const response = await fetch(new URL("sessions", BASE), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(asked),
    signal: AbortSignal.timeout(TRADE_MAX_MS),
  });
  history.replaceState(null, "", location.pathname + location.search);
  if (response.status === 401) trouble = "link";
  if (!response.ok) return;
  /** @type {{ nonce: string, proof: string }} the nonce is empty for who needs no key */
  const { nonce: theirs, proof } = await response.json();
  if (!NONCE.test(theirs) || proof !== (await code(link, "manager", mine, theirs))) trouble = "link";
  else if (theirs) await keep(await sessionOf(await code(link, "session", mine, theirs)));
}

/** @param {string} secret */
async function sessionOf(secret) {
  const key = await keyOf(secret);
  return { name: await code(key, "name"), key };
}

/** Note that the server has forgotten this session. */
export const leave = () => keep(null);

/**
 * Calls `listener` when another window of this server signs in or out.
 * @param {() => void} listener
 */
export function onSignIn(listener) {
  addEventListener("storage", async (event) => {
    if (event.key !== PLACE) return;
    held = (await stored(PLACE)) ?? null;
    listener();
  });
}

// A link that is opened in a window with this page changes no more than what stands behind the #.
addEventListener("hashchange", () => linkInAddress() !== null && location.reload());
