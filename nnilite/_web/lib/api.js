// Questions to the manager. All addresses are relative to the page, so that it works behind any prefix.
import { readJson, writeJson } from "./exact_json.js";
import { BASE, forget, isSignedIn, leave, session } from "./session.js";
import { ask, TooLarge } from "./signed.js";

/** The WebSocket protocol of the stream. */
const STREAM_PROTOCOL = "nnilite";

/** @typedef {Record<string, string | number | null | undefined | readonly string[]>} Query */

/** @typedef {RequestInit & { timeout_ms?: number, most?: number }} Options */

/** The status of an answer by a server that has started anew, under another name, since this page was loaded. */
export const RESTARTED = 421;

export class ApiError extends Error {
  /**
   * @param {number} status of the answer; 0: there was none
   * @param {string} message
   * @param {string} [field] the input that is wrong
   */
  constructor(status, message, field) {
    super(message);
    this.status = status;
    this.field = field;
  }
}

/**
 * @param {string} path
 * @param {Query} query
 */
export function address(path, query = {}) {
  const url = new URL(path.replace(/^\//, ""), BASE);
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) url.searchParams.append(name, String(one));
    }
  }
  return url;
}

/** Opens the stream. A WebSocket sends no headers, so it has a ticket if this page is signed in. */
export async function openStream() {
  const url = address("stream");
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const protocols = isSignedIn() ? [STREAM_PROTOCOL, await ticketFor(address("stream"))] : [STREAM_PROTOCOL];
  return new WebSocket(url.href, protocols);
}

/**
 * What opens this address once, within seconds, without a signature.
 * @param {URL} url
 * @returns {Promise<string>}
 */
export async function ticketFor(url) {
  /** @type {{ ticket: string }} */
  const { ticket } = await send("POST", "tickets", { path: url.pathname.slice(BASE.pathname.length) });
  return ticket;
}

/**
 * @param {string} path
 * @param {Query} query
 * @param {Options} options
 */
async function answer(path, query, options) {
  const signal = AbortSignal.timeout(options.timeout_ms ?? 60_000);
  const before = session();
  let response;
  try {
    response = await ask(address(path, query), { ...options, signal, credentials: "same-origin" });
  } catch (error) {
    if (error instanceof TooLarge) throw new ApiError(0, "This file has grown too large to be shown here.");
    const late = error instanceof DOMException && error.name === "TimeoutError";
    throw new ApiError(0, late ? "The manager did not answer in time." : "The manager cannot be reached.");
  }
  if (response.ok) return response;
  if (before && (response.status === 401 || response.status === RESTARTED)) await forget(before);
  /** @type {{ error?: string, field?: string }} */
  let body = {};
  try {
    body = await response.json();
  } catch {
    // a proxy's page, perhaps; the status has to do
  }
  throw new ApiError(response.status, body.error ?? `The manager answered ${response.status}.`, body.field);
}

/**
 * @template T
 * @param {string} path
 * @param {Query} [query]
 * @param {Options} [options]
 * @returns {Promise<T>} what the OpenAPI document says of this path
 */
export async function get(path, query = {}, options = {}) {
  return readJson(await (await answer(path, query, options)).text());
}

/**
 * A picture, if it is not larger than `most` bytes.
 * @param {string} path
 * @param {number} most
 * @param {Query} [query]
 */
export async function picture(path, most, query = {}) {
  const response = await answer(path, query, { most });
  return response.blob();
}

/**
 * The bytes of a file, if it is not larger than `most` bytes.
 * @param {string} path
 * @param {number} most
 * @param {Query} [query]
 */
export async function content(path, most, query = {}) {
  const response = await answer(path, query, { most });
  return new Uint8Array(await response.arrayBuffer());
}

/**
 * A piece of a text: its bytes, where they begin, where the next ones do, and how long the text is now.
 * @param {string} path
 * @param {Query} [query]
 */
export async function piece(path, query = {}) {
  const response = await answer(path, query, {});
  /** @param {string} name */
  const number = (name) => Number(response.headers.get(name) ?? 0);
  return {
    data: new Uint8Array(await response.arrayBuffer()),
    offset: number("X-Offset"),
    next: number("X-Next-Offset"),
    total: number("X-Total-Size"),
  };
}

/**
 * @template T
 * @param {string} method
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<T>} what the OpenAPI document says of this path
 */
export async function send(method, path, body) {
  /** @type {Options} */
  const options = { method, headers: { "Content-Type": "application/json" } };
  if (method !== "DELETE") options.body = writeJson(body ?? {});
  return readJson(await (await answer(path, {}, options)).text());
}

/** Have the server forget this session. */
export async function signOut() {
  await send("POST", "sign-out");
  await leave();
}
