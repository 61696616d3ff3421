// Questions to the manager. All addresses are relative to the page, so that it works behind any prefix.
const BASE = new URL("api/v1/", document.baseURI.split("#")[0]);

/** @typedef {Record<string, string | number | null | undefined | readonly string[]>} Query */

/** @typedef {RequestInit & { timeout_ms?: number }} Options */

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

export function streamAddress() {
  const url = address("stream");
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}

/**
 * @param {string} path
 * @param {Query} query
 * @param {Options} options
 */
async function answer(path, query, options) {
  const timeout = AbortSignal.timeout(options.timeout_ms ?? 60_000);
  let response;
  try {
    response = await fetch(address(path, query), { ...options, signal: timeout, credentials: "same-origin" });
  } catch (error) {
    const late = error instanceof DOMException && error.name === "TimeoutError";
    throw new ApiError(0, late ? "The manager did not answer in time." : "The manager cannot be reached.");
  }
  if (response.ok) return response;
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
  return (await answer(path, query, options)).json();
}

/**
 * The bytes of a file, if it is not larger than `most` bytes.
 * @param {string} path
 * @param {number} most
 * @param {Query} [query]
 */
export async function content(path, most, query = {}) {
  const response = await answer(path, query, {});
  if (Number(response.headers.get("Content-Length")) > most) {
    await response.body?.cancel();
    throw new ApiError(0, "This file has grown too large to be shown here.");
  }
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
  if (method !== "DELETE") options.body = JSON.stringify(body ?? {});
  return (await answer(path, {}, options)).json();
}
