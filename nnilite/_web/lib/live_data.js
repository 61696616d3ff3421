// The experiment as the page knows it. One stream of differences keeps it true: nothing is ever loaded twice.
//
// The stream is opened first, then what is missing is read in large pages (all of it at first, after a break only what
// has changed since), and changes that came meanwhile are applied after it. `version` counts what the views should see.
import { ApiError, get, openStream, RESTARTED } from "./api.js";
import { digits, keepDigits, readJson, setDigits } from "./exact_json.js";
import { putRemarks, readRemarks } from "./remarks.js";
import { isSignedIn, isTyping, onSignIn, signInTrouble } from "./session.js";
import { fromRow, fromWire } from "./trials.js";
import { computed, signal } from "./ui.js";

/** @import { Signal } from "../vendor/signals.js" */
/** @import { Trial } from "./trials.js" */
/** @import { Change, Experiment, Message, Metric, RowPage, TrialRemarks } from "./wire.d.ts" */

/**
 * The connection to the manager's stream. The times are those of the browser's clock, in milliseconds.
 * @typedef {object} Connection
 * @property {"connecting" | "live" | "lost" | "signed-out"} state
 * @property {number} since
 * @property {number} retryAt
 * @property {string} reason
 */

/** @type {Signal<Experiment | null>} */
export const profile = signal(null);
export const optimize = computed(() => profile.value?.optimize ?? "maximize");
export const version = signal(0);
/** @type {Signal<Connection>} */
export const connection = signal({ state: "connecting", since: Date.now(), retryAt: 0, reason: "" });
export const loaded = signal(false); // all trials are here
export const now = signal(Date.now() / 1000);

const FIRST_PAGE = 2000; // shown soon
const PAGE = 20_000;
const LAST = "9007199254740991";
const REDRAW_MS = 100; // and a millisecond more for each 100 trials: the views look at all of them
const OPENING_MAX_MS = 20_000;
const SILENCE_MAX_MS = 30_000; // a manager that has nothing to tell says so every ten seconds
const RETRY_MS = [300, 1000, 2000, 3000, 5000];

/** @type {Map<string, Trial>} */
const byId = new Map();
/** @type {Trial[]} by sequence, unless `unsorted` */
let inOrder = [];
let unsorted = false;
/** @type {string | null} */
let cursor = null;
let revision = 0;
/** @type {WebSocket | null} */
let socket = null;
let turn = 0; // counts the attempts to open it
let failures = 0;
let heard = 0; // when the last message came, by the browser's clock, in milliseconds
let timer = 0;
/** @type {Change[] | null} changes that came while trials were read; null: apply at once */
let waiting = null;
/** @typedef {(metric: Metric) => void} MetricListener */
/** @type {Set<MetricListener>} */
const metricListeners = new Set();

export const trials = () => inOrder;
/** @param {string} id */
export const trialById = (id) => byId.get(id);

/**
 * Calls `listener` for each metric that comes, until what it returns is called.
 * @param {MetricListener} listener
 */
export function onMetric(listener) {
  metricListeners.add(listener);
  return () => metricListeners.delete(listener);
}

let redrawTimer = 0;
function changed() {
  redrawTimer ||= setTimeout(redraw, REDRAW_MS + inOrder.length / 100);
}

function redraw() {
  clearTimeout(redrawTimer);
  redrawTimer = 0;
  version.value += 1;
}

/** @param {Trial} item */
export function put(item) {
  const known = byId.get(item.id);
  if (known) {
    const latest = item.latest ?? (known.attempt === item.attempt ? known.latest : null);
    const text = digits(item.latest === null ? known : item, "latest");
    keepDigits(item, Object.assign(known, item, { latest }));
    setDigits(known, "latest", text);
    return;
  }
  byId.set(item.id, item);
  const last = inOrder.at(-1);
  inOrder.push(item);
  if (last && last.sequence > item.sequence) unsorted = true;
}

function settle() {
  if (unsorted) inOrder = [...inOrder].sort((a, b) => a.sequence - b.sequence);
  unsorted = false;
  changed();
}

/** @param {WebSocket} socketNow */
async function readRows(socketNow) {
  for (let limit = cursor ? PAGE : FIRST_PAGE; ; limit = PAGE) {
    /** @type {RowPage} */
    const page = await get("rows/trials", { after: cursor, limit });
    if (socket !== socketNow) return;
    const place = Object.fromEntries(page.columns.map((name, index) => [name, index]));
    for (const row of page.rows) put(fromRow(row, place));
    cursor = page.next ?? cursor;
    settle();
    if (page.count < limit) return;
    await new Promise((done) => setTimeout(done)); // let the page draw
  }
}

/** @param {Change} change */
function apply(change) {
  if (change.type === "trial") put(fromWire(change.trial));
  else if (change.type === "metric") applyMetric(change.metric);
  else if (change.type === "remarks") putRemarks(change.remarks);
  else if (change.type === "experiment") takeProfile(change.experiment);
  else if (change.type === "reset") reconnect();
}

/** @param {Metric} metric */
function applyMetric(metric) {
  const known = byId.get(metric.trial);
  if (known && metric.kind === "PERIODICAL") {
    known.latest = metric.value;
    setDigits(known, "latest", digits(metric, "value"));
  }
  for (const listener of metricListeners) listener(metric);
}

/** @param {TrialRemarks} kept what this page has changed */
export function takeRemarks(kept) {
  putRemarks(kept);
  changed();
}

/** @param {Experiment} found */
export function takeProfile(found) {
  if (profile.value && profile.value.id !== found.id) location.reload(); // another experiment has taken the port
  profile.value = found;
  if (waiting === null && found.revision > revision) {
    revision = found.revision; // every change up to here has been told before
    cursor = `${revision}-${LAST}`;
  }
}

/** @param {MessageEvent<string>} message */
function take(message) {
  heard = Date.now();
  /** @type {Message} */
  const { changes } = readJson(message.data);
  if (waiting) {
    waiting.push(...changes);
    return;
  }
  for (const change of changes) apply(change);
  settle();
}

export async function connect() {
  clearTimeout(timer);
  socket?.close();
  socket = null;
  waiting = [];
  turn += 1;
  const mine = await opened(turn);
  if (mine === null) return;
  socket = mine;
  mine.onopen = () => {
    heard = Date.now();
    catchUp(mine);
  };
  // A browser may try for minutes, or for ever after a change of its network.
  setTimeout(() => mine === socket && mine.readyState === WebSocket.CONNECTING && lost(""), OPENING_MAX_MS);
  mine.onmessage = (message) => mine === socket && take(message);
  mine.onclose = () => mine === socket && lost("");
}

/**
 * The stream of this turn; null if there is none, or a later turn has begun.
 * @param {number} mine
 */
async function opened(mine) {
  try {
    const found = await openStream();
    if (mine === turn) return found;
    found.close();
  } catch (error) {
    if (mine === turn) lost(String(error), error instanceof ApiError ? error.status : 0);
  }
  return null;
}

const reconnect = () => connect();

/** @param {WebSocket} mine */
async function catchUp(mine) {
  try {
    takeProfile(await get("experiment"));
    await readRemarks();
    await readRows(mine);
  } catch (error) {
    if (mine !== socket) return;
    if (error instanceof ApiError) lost(error.message, error.status);
    else lost(String(error));
    return;
  }
  if (mine !== socket) return;
  const missed = waiting ?? [];
  waiting = null;
  for (const change of missed) apply(change);
  settle();
  redraw(); // at once: the views would say for a moment that all trials are here and none is shown
  loaded.value = true;
  failures = 0;
  connection.value = { state: "live", since: Date.now(), retryAt: 0, reason: "" };
}

/**
 * @param {string} reason
 * @param {number} [status] of the answer that was refused
 */
async function lost(reason, status) {
  const mine = socket;
  socket = null;
  mine?.close();
  if (status === undefined) status = await statusNow();
  if (socket) return; // connected again meanwhile
  const since = connection.value.state === "lost" ? connection.value.since : Date.now();
  if (status === RESTARTED && needsNoKey()) {
    if (!isTyping()) {
      location.reload(); // the server sends the page on to its new name
      return;
    }
    reason =
      "It was started again, and this page has to load anew. It waits for the end of what you type: copy that, then cancel.";
  }
  if (status === 401 || (status === RESTARTED && signInTrouble())) {
    connection.value = { state: "signed-out", since, retryAt: 0, reason };
    return;
  }
  const delay = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
  failures += 1;
  connection.value = { state: "lost", since, retryAt: Date.now() + delay, reason };
  timer = setTimeout(connect, delay);
}

/** Whether a new start of the server asks for no sign-in. What is being typed is not thrown away. */
const needsNoKey = () => !isSignedIn() && !signInTrouble() && document.querySelector("dialog[open]") === null;

/** Why the stream was refused, as a status: a WebSocket does not say. */
async function statusNow() {
  try {
    await get("version", {}, { timeout_ms: 5000 });
    return 200;
  } catch (error) {
    return error instanceof ApiError ? error.status : 0;
  }
}

export function start() {
  get("experiment").then(takeProfile, () => {}); // the first paint need not wait for the stream
  connect();
  onSignIn(connect);
  setInterval(() => {
    now.value = Date.now() / 1000;
    if (socket && connection.value.state === "live" && Date.now() - heard > SILENCE_MAX_MS) {
      lost("The manager does not answer; it may have been stopped.", 0);
    }
  }, 1000);
}
