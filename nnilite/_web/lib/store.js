// The experiment as the page knows it. One stream of differences keeps it true: nothing is ever loaded twice.
//
// The stream is opened first, then what is missing is read in large pages (all of it at first, after a break only what
// has changed since), and changes that came meanwhile are applied after it. `version` counts what the views should see.
import { get, streamAddress } from "./api.js";
import { fromRow, fromWire } from "./trials.js";
import { signal } from "./ui.js";

export const profile = signal(null);
export const version = signal(0);
export const link = signal({ state: "connecting", since: Date.now(), retryAt: 0, reason: "" });
export const loaded = signal(false); // all trials are here
export const now = signal(Date.now() / 1000);

const FIRST_PAGE = 2000; // shown soon
const PAGE = 20_000;
const LAST = "9007199254740991";
const REDRAW_MS = 100; // and a millisecond more for each 100 trials: the views look at all of them
const RETRY_MS = [300, 1000, 2000, 3000, 5000];

const byId = new Map();
let inOrder = []; // by sequence
let cursor = null;
let revision = 0;
let socket = null;
let failures = 0;
let timer = 0;
let waiting = null; // changes that came while trials were read; null: apply at once
const metricListeners = new Set();

export const trials = () => inOrder;
export const trial = (id) => byId.get(id);

export function onMetric(listener) {
  metricListeners.add(listener);
  return () => metricListeners.delete(listener);
}

let redrawTimer = 0;
function changed() {
  redrawTimer ||= setTimeout(() => {
    redrawTimer = 0;
    version.value += 1;
  }, REDRAW_MS + inOrder.length / 100);
}

export function put(item) {
  const known = byId.get(item.id);
  if (known) {
    const latest = item.latest ?? (known.attempt === item.attempt ? known.latest : null);
    Object.assign(known, item, { latest });
    return;
  }
  byId.set(item.id, item);
  const last = inOrder.at(-1);
  inOrder.push(item);
  if (last && last.sequence > item.sequence) inOrder.needsSort = true;
}

function settle() {
  if (inOrder.needsSort) inOrder = [...inOrder].sort((a, b) => a.sequence - b.sequence);
  changed();
}

async function readRows(socketNow) {
  for (let limit = cursor ? PAGE : FIRST_PAGE; ; limit = PAGE) {
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

function apply(change) {
  if (change.type === "trial") put(fromWire({ latest: null, ...change.trial }));
  else if (change.type === "metric") applyMetric(change.metric);
  else if (change.type === "experiment") takeProfile(change.experiment);
  else if (change.type === "reset") reconnect();
}

function applyMetric(metric) {
  const known = byId.get(metric.trial);
  if (known && metric.kind === "PERIODICAL") known.latest = metric.value;
  for (const listener of metricListeners) listener(metric);
}

export function takeProfile(found) {
  if (profile.value && profile.value.id !== found.id) location.reload(); // another experiment has taken the port
  profile.value = found;
  if (waiting === null && found.revision > revision) {
    revision = found.revision; // every change up to here has been told before
    cursor = `${revision}-${LAST}`;
  }
}

function take(message) {
  const { changes } = JSON.parse(message.data);
  if (waiting) {
    waiting.push(...changes);
    return;
  }
  for (const change of changes) apply(change);
  settle();
}

export function connect() {
  clearTimeout(timer);
  socket?.close();
  waiting = [];
  const mine = new WebSocket(streamAddress());
  socket = mine;
  mine.onopen = () => catchUp(mine);
  mine.onmessage = (message) => mine === socket && take(message);
  mine.onclose = () => mine === socket && lost("");
}

const reconnect = () => connect();

async function catchUp(mine) {
  try {
    takeProfile(await get("experiment"));
    await readRows(mine);
  } catch (error) {
    if (mine === socket) lost(error.message, error.status);
    return;
  }
  if (mine !== socket) return;
  const missed = waiting;
  waiting = null;
  for (const change of missed) apply(change);
  settle();
  loaded.value = true;
  failures = 0;
  link.value = { state: "live", since: Date.now(), retryAt: 0, reason: "" };
}

async function lost(reason, status) {
  const mine = socket;
  socket = null;
  mine?.close();
  if (status === undefined) status = await statusNow();
  if (socket) return; // connected again meanwhile
  const since = link.value.state === "lost" ? link.value.since : Date.now();
  if (status === 401) {
    link.value = { state: "signed-out", since, retryAt: 0, reason };
    return;
  }
  const delay = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
  failures += 1;
  link.value = { state: "lost", since, retryAt: Date.now() + delay, reason };
  timer = setTimeout(connect, delay);
}

// Why the stream was refused: a WebSocket does not say.
async function statusNow() {
  try {
    await get("version", {}, { timeout_ms: 5000 });
    return 200;
  } catch (error) {
    return error.status;
  }
}

export function start() {
  get("experiment").then(takeProfile, () => {}); // the first paint need not wait for the stream
  connect();
  setInterval(() => {
    now.value = Date.now() / 1000;
  }, 1000);
}
