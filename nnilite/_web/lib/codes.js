// Codes that prove who knows a key, as keepers and managers make them: HMAC-SHA256 of lines of text, in hex.
//
// The browser's own functions take a key that no script can read out again. They are there over https and at this
// machine's own names only; over plain http elsewhere, where anybody on the way can change the page itself, ours have to do.
import { hmacSha256, sha256 } from "./sha256.js";

/** @typedef {CryptoKey | Uint8Array<ArrayBuffer>} Key */

const encoder = new TextEncoder();
const HMAC = { name: "HMAC", hash: "SHA-256" };

/** @param {Uint8Array} bytes */
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export const nonce = () => hex(crypto.getRandomValues(new Uint8Array(16)));

/**
 * @param {string} secret
 * @returns {Promise<Key>}
 */
export async function keyOf(secret) {
  const bytes = encoder.encode(secret);
  return crypto.subtle ? crypto.subtle.importKey("raw", bytes, HMAC, false, ["sign"]) : bytes;
}

/**
 * The code of the parts, none of which has a line end.
 * @param {Key} key
 * @param {(string | number)[]} parts
 */
export async function code(key, ...parts) {
  const bytes = encoder.encode(["nnilite", ...parts].join("\n"));
  if (key instanceof Uint8Array) return hex(hmacSha256(key, bytes));
  return hex(new Uint8Array(await crypto.subtle.sign("HMAC", key, bytes)));
}

/**
 * The SHA-256 of a body in hex.
 * @param {Uint8Array<ArrayBuffer>} bytes
 */
export async function digest(bytes) {
  return hex(crypto.subtle ? new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)) : sha256(bytes));
}

/** @param {string} text */
export const digestOf = (text) => digest(encoder.encode(text));
