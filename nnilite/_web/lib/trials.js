// What a trial is to the page: one flat object, with its score and the dotted names of its parameters worked out once.

export const STATES = [
  "WAITING", "RUNNING", "SUCCEEDED", "FAILED", "EARLY_STOPPED", "USER_CANCELED", "SYS_CANCELED", "UNKNOWN",
];
export const STATE_WORDS = {
  WAITING: "Waiting",
  RUNNING: "Running",
  SUCCEEDED: "Succeeded",
  FAILED: "Failed",
  EARLY_STOPPED: "Stopped early",
  USER_CANCELED: "Killed",
  SYS_CANCELED: "Ended by system",
  UNKNOWN: "Unknown",
};
const LIVE = new Set(["WAITING", "RUNNING", "UNKNOWN"]);

export const hasEnded = (trial) => !LIVE.has(trial.state);

// The number that counts: the metric itself, or its `default` where it is an object.
export function score(value) {
  const found = value !== null && typeof value === "object" && !Array.isArray(value) ? value.default : value;
  return typeof found === "number" && Number.isFinite(found) ? found : null;
}

// One objective of a metric; "default" is also the number itself.
export function objective(value, name) {
  if (name === "default") return score(value);
  const found = value !== null && typeof value === "object" ? value[name] : undefined;
  return typeof found === "number" && Number.isFinite(found) ? found : null;
}

export function seconds(trial, now) {
  if (trial.started === null) return null;
  return (trial.ended ?? now) - trial.started;
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

// Dotted names; a nested choice counts by its _name, under the name of the choice itself.
export function flatten(parameters) {
  if (!isObject(parameters)) return { value: simple(parameters) };
  let plain = true;
  for (const name in parameters) {
    const value = parameters[name];
    if ((value !== null && typeof value === "object") || typeof value === "boolean") plain = false;
  }
  if (plain) return parameters;
  const flat = {};
  add(flat, "", parameters);
  return flat;
}

function add(flat, prefix, parameters) {
  for (const [name, value] of Object.entries(parameters)) {
    const key = name === "_name" && prefix ? prefix : prefix ? `${prefix}.${name}` : name;
    if (isObject(value)) add(flat, key, value);
    else flat[key] = simple(value);
  }
}

const simple = (value) => (typeof value === "number" || typeof value === "string" ? value : JSON.stringify(value));

export function fromWire(given) {
  const trial = { ...given };
  trial.score = score(trial.value);
  trial.flat = flatten(trial.parameters);
  return trial;
}

// From a row of /rows/trials, by the columns that came with it.
export function fromRow(row, place) {
  return fromWire({
    sequence: row[place.sequence],
    id: row[place.id],
    state: row[place.state],
    reason: row[place.reason],
    source: row[place.source],
    attempt: row[place.attempt],
    created: row[place.created],
    started: row[place.started],
    ended: row[place.ended],
    parameters: readable(row[place.parameters]),
    value: readable(row[place.value]),
    latest: readable(row[place.latest]),
  });
}

// What is no JSON, since NaN or an infinity stands in it, comes as text.
function readable(value) {
  if (typeof value !== "string" || !/NaN|Infinity/.test(value)) return value;
  try {
    return JSON.parse(value.replace(/(?<![\w"])(-?Infinity|NaN)(?![\w"])/g, '"$1"'));
  } catch {
    return value;
  }
}

export const isBetter = (left, right, optimize) => (optimize === "minimize" ? left < right : left > right);

// Ended trials that have a score, by the time of their end.
export function scored(trials) {
  return trials.filter((trial) => trial.score !== null && trial.state === "SUCCEEDED");
}

// The best score up to each trial of a list.
export function bestSoFar(trials, optimize) {
  let best = null;
  return trials.map((trial) => {
    if (best === null || isBetter(trial.score, best, optimize)) best = trial.score;
    return best;
  });
}
