// SHA-256 and HMAC for pages that came over plain http from another machine: there, browsers offer none of their own.

const BLOCK = 64; // bytes
const PRIMES = firstPrimes(64);
const START = PRIMES.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));
const ROUND = PRIMES.map((prime) => fraction(Math.cbrt(prime)));

/** @param {number} count */
function firstPrimes(count) {
  /** @type {number[]} */
  const found = [];
  for (let one = 2; found.length < count; one += 1) if (found.every((prime) => one % prime)) found.push(one);
  return found;
}

/** @param {number} value of which the first 32 bits of the fraction are wanted */
function fraction(value) {
  return ((value % 1) * 2 ** 32) | 0;
}

/**
 * @param {number} word
 * @param {number} by
 */
const turned = (word, by) => (word >>> by) | (word << (32 - by));

/**
 * The whole blocks of which the hash is made: the bytes, a one, zeros, and the number of bits.
 * @param {Uint8Array} bytes
 */
function padded(bytes) {
  const whole = new DataView(new ArrayBuffer(Math.ceil((bytes.length + 9) / BLOCK) * BLOCK));
  new Uint8Array(whole.buffer).set(bytes);
  whole.setUint8(bytes.length, 0x80);
  whole.setBigUint64(whole.byteLength - 8, BigInt(bytes.length) * 8n);
  return whole;
}

/**
 * Takes one block into the state.
 * @param {Int32Array} state
 * @param {DataView} data
 * @param {number} offset
 * @param {Int32Array} words room for 64
 */
function take(state, data, offset, words) {
  for (let at = 0; at < 16; at += 1) words[at] = data.getInt32(offset + 4 * at);
  for (let at = 16; at < 64; at += 1) {
    const early = words[at - 15];
    const late = words[at - 2];
    const first = turned(early, 7) ^ turned(early, 18) ^ (early >>> 3);
    const second = turned(late, 17) ^ turned(late, 19) ^ (late >>> 10);
    words[at] = words[at - 16] + first + words[at - 7] + second;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let at = 0; at < 64; at += 1) {
    const choice = (e & f) ^ (~e & g);
    const one = (h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + choice + ROUND[at] + words[at]) | 0;
    const two = ((turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + one) | 0;
    d = c;
    c = b;
    b = a;
    a = (one + two) | 0;
  }
  for (const [at, value] of [a, b, c, d, e, f, g, h].entries()) state[at] += value;
}

/**
 * @param {Uint8Array} bytes
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function sha256(bytes) {
  const data = padded(bytes);
  const [state, words] = [Int32Array.from(START), new Int32Array(64)];
  for (let offset = 0; offset < data.byteLength; offset += BLOCK) take(state, data, offset, words);
  const result = new DataView(new ArrayBuffer(32));
  for (const [at, word] of state.entries()) result.setInt32(4 * at, word);
  return new Uint8Array(result.buffer);
}

/**
 * @param {Uint8Array} key
 * @param {Uint8Array} bytes
 */
export function hmacSha256(key, bytes) {
  const block = new Uint8Array(BLOCK);
  block.set(key.length > BLOCK ? sha256(key) : key);
  /**
   * @param {number} mask
   * @param {Uint8Array} rest
   */
  const keyed = (mask, rest) => sha256(new Uint8Array([...block.map((byte) => byte ^ mask), ...rest]));
  return keyed(0x5c, keyed(0x36, bytes));
}
