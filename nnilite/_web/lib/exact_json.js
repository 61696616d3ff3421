// JSON whose whole numbers keep all their digits. The page counts in doubles, which have no whole number of its own for
// each above 2**53: a seed of 64 bits would be shown, copied and sent back as another one. Charts and sorting use the
// doubles; beside them stands, for each object that was read, how its large whole numbers were written.

const MANY_DIGITS = /(?<![\w.])-?\d{16,}(?![\w.])/;
const WHOLE = /^-?\d+$/;

/** @type {WeakMap<object, Map<string, string>>} the digits by the object that holds the number, and its name there */
const kept = new WeakMap();

/**
 * The digits of a number that its double lacks.
 * @param {unknown} holder of the number
 * @param {string | number} name
 * @returns {string | undefined} undefined where the double says it all
 */
export function digits(holder, name) {
  return holder !== null && typeof holder === "object" ? kept.get(holder)?.get(String(name)) : undefined;
}

/**
 * @param {object} holder
 * @param {string} name
 * @param {string | undefined} text as the number was written
 */
export function setDigits(holder, name, text) {
  const known = kept.get(holder);
  if (text === undefined || !WHOLE.test(text) || Number.isSafeInteger(Number(text))) known?.delete(name);
  else kept.set(holder, (known ?? new Map()).set(name, text));
}

/**
 * A copy has the same digits.
 * @template {object} Copy
 * @param {object} from
 * @param {Copy} to
 */
export function keepDigits(from, to) {
  const known = kept.get(from);
  if (known) kept.set(to, new Map(known));
  else kept.delete(to);
  return to;
}

/**
 * @param {string} text JSON
 * @returns {any}
 */
export function readJson(text) {
  if (!MANY_DIGITS.test(text)) return JSON.parse(text);
  /**
   * @this {object}
   * @param {string} name
   * @param {unknown} value
   * @param {{ source?: string }} [context] how the value is written; browsers before 2025 do not tell
   */
  function look(name, value, context) {
    if (typeof value === "number") setDigits(this, name, context?.source);
    return value;
  }
  return JSON.parse(text, look);
}

/** @type {{ rawJSON?: (text: string) => unknown }} */
const { rawJSON } = /** @type {any} */ (JSON);

/**
 * @param {unknown} value
 * @param {number} [indent]
 */
export function writeJson(value, indent) {
  /**
   * @this {object}
   * @param {string} name
   * @param {unknown} one
   */
  function write(name, one) {
    const text = digits(this, name);
    return text === undefined || rawJSON === undefined ? one : rawJSON(text);
  }
  return JSON.stringify(value, write, indent);
}
