// Numbers, times and sizes as people read them. Times come as seconds since the epoch and are shown in the local zone.

import { digits, writeJson } from "./exact_json.js";

const WHOLE_MAX = 1e10; // seeds of 32 bits have all their digits

/** @type {Map<number, Intl.NumberFormat>} by their digits: they are dear to make */
const plainFormats = new Map();

/**
 * Never fewer digits than the whole number has: 508,220 and not 5.082e+5.
 * @param {number} digits
 */
function plainFormat(digits) {
  const known = plainFormats.get(digits);
  if (known) return known;
  const made = new Intl.NumberFormat("en", {
    maximumSignificantDigits: digits,
    maximumFractionDigits: 0,
    roundingPriority: "morePrecision",
  });
  plainFormats.set(digits, made);
  return made;
}

/**
 * @param {unknown} value
 * @param {number} [digits]
 */
export function number(value, digits = 5) {
  if (value === null || value === undefined || value === "") return "";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < WHOLE_MAX) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(digits - 2).replace(/\.?0+e/, "e");
  return plainFormat(digits).format(value);
}

/**
 * A number with all its digits, without those that only the computer's way of writing it has: 0.1 + 0.2 is 0.3.
 * @param {number} value
 */
export function exact(value) {
  const [short, long] = [String(Number(value.toPrecision(15))), String(value)];
  return short.length + 3 < long.length ? short : long;
}

/**
 * A part of an object, with all digits where it is a number.
 * @param {unknown} holder
 * @param {string | number} name
 * @param {unknown} part
 */
export function inFull(holder, name, part) {
  return digits(holder, name) ?? (typeof part === "number" ? exact(part) : value(part));
}

/**
 * A text for a place that has room for one line of so many characters; of a longer one its ends are left, which tell names apart.
 * @param {string} text
 * @param {number} [most] characters
 */
export function clipped(text, most = 24) {
  const line = text.replaceAll(/\s+/g, " ");
  const end = Math.floor((most - 1) / 2);
  return line.length > most ? `${line.slice(0, most - 1 - end)}…${line.slice(-end)}` : line;
}

/**
 * An amount in the currency of the config.
 * @param {number | null | undefined} amount
 */
export function money(amount) {
  if (amount === null || amount === undefined) return "";
  return amount >= 1 || amount === 0 ? amount.toFixed(2) : number(amount, 3);
}

/** @param {number | undefined} value */
export function count(value) {
  return (value ?? 0).toLocaleString("en");
}

/**
 * @param {number} value
 * @param {string} noun
 */
export function plural(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  /** @param {number} part */
  const pad = (part) => String(part).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${pad(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} m`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

const SECOND = { unit: "s", size: 1 };
const SPANS = [{ unit: "d", size: 86400 }, { unit: "h", size: 3600 }, { unit: "m", size: 60 }, SECOND];

/**
 * As the limits are written: 5400 -> "90m". The manager reads the same text back.
 * @param {number | null | undefined} seconds
 */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const { unit, size } = SPANS.find((one) => seconds % one.size === 0) ?? SECOND;
  return `${seconds / size}${unit}`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

/** @param {number | null | undefined} time */
export function clock(time) {
  if (time === null || time === undefined) return "";
  const date = new Date(time * 1000);
  const today = new Date().toDateString() === date.toDateString();
  return today ? CLOCK.format(date) : `${DAY.format(date)}, ${CLOCK.format(date)}`;
}

/** @param {number | null | undefined} time */
export function moment(time) {
  return time === null || time === undefined ? "" : FULL.format(new Date(time * 1000));
}

/**
 * In units of 1024, as `nnictl` and the config have them: 1536 -> "1.5 KB".
 * @param {number} size
 */
export function bytes(size) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let power = 0;
  while (size >= 1024 && power < units.length - 1) {
    size /= 1024;
    power += 1;
  }
  return `${size >= 100 || Number.isInteger(size) ? Math.round(size) : size.toFixed(1)} ${units[power]}`;
}

/** @param {unknown} given */
export function value(given) {
  if (given === null || given === undefined) return "";
  if (typeof given === "number") return number(given);
  if (typeof given === "string") return given;
  return writeJson(given);
}

/**
 * A metric may hold a megabyte, and a page cannot.
 * @param {string} text
 * @param {number} [most] characters
 */
export function shortened(text, most = 300) {
  return text.length > most ? `${text.slice(0, most)} …` : text;
}

// As in `nnilite.records.error_line`, which says why.
const MARK = "(?: *\\| |\\[rank\\d+\\]: )?";
const FRAME = new RegExp(`^(${MARK}) +File ".*", line \\d+(?:, in |$)`);
const NAMED = new RegExp(`^${MARK}([\\w.]+(?:Error|Exception)(?:: .*)?)$`);
const OF_A_LAUNCHER = /^[\w.]*(?:ChildFailedError|CalledProcessError)\b/;
const FATAL = "Fatal Python error: ";

/**
 * The exception of the last Python traceback in a text, else its last line.
 * @param {string[]} lines none of them blank
 */
function errorLine(lines) {
  const fatal = lines.filter((line) => line.startsWith(FATAL));
  const errors = fatal.length ? fatal : exceptions(lines);
  const named = lines.flatMap((line) => line.match(NAMED)?.[1] ?? []);
  const [own, ofOthers] = [errors, named].map((some) => some.filter((error) => !OF_A_LAUNCHER.test(error)));
  const found = [own, errors.length ? ofOthers : [], errors, lines].find((some) => some.length) ?? [];
  return found[found.length - 1].trim();
}

/**
 * What follows the frames of each traceback.
 * @param {string[]} lines
 */
function exceptions(lines) {
  const found = [];
  /** @type {string | null} of the frame before */
  let mark = null;
  for (const line of lines) {
    const frame = line.match(FRAME);
    if (frame) {
      mark = frame[1];
    } else if (mark !== null) {
      const unmarked = line.startsWith(mark) ? line.slice(mark.length) : line;
      if (/^\S/.test(unmarked)) {
        found.push(unmarked);
        mark = null;
      }
    }
  }
  return found;
}

/**
 * The first line and the error: of an exit code and a traceback what matters most.
 * @param {string} text
 */
export function brief(text) {
  const lines = text.split("\n").flatMap((line) => line.trimEnd() || []);
  return lines.length > 1 ? `${lines[0]}: ${errorLine(lines)}` : text;
}

/**
 * One word of a POSIX shell.
 * @param {string} text
 */
export function shellWord(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * The value of `aria-sort` for a column's head.
 * @param {boolean} isSorted whether the rows are sorted by this column
 * @param {boolean} descending
 */
export function ariaSort(isSorted, descending) {
  if (!isSorted) return undefined;
  return descending ? "descending" : "ascending";
}
