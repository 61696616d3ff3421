// What the manager sends, as types for the checks: none of this reaches the browser or the wheel.
// A test compares the interfaces of the first part with the schemas of the same names in the OpenAPI document.

/** A JSON value. NaN and the infinities come as text. */
export type Json = null | boolean | number | string | Json[] | JsonObject;
export type JsonObject = { [name: string]: Json };

/** A time is in seconds since the epoch, a duration in seconds. */
type Time = number;
type Seconds = number;

/** Of an attempt. */
export type JobState = "WAITING" | "RUNNING" | "SUCCEEDED" | "FAILED" | "CANCELED" | "UNKNOWN" | "LOST";

export type TrialState =
  | "WAITING"
  | "RUNNING"
  | "SUCCEEDED"
  | "FAILED"
  | "EARLY_STOPPED"
  | "USER_CANCELED"
  | "SYS_CANCELED"
  | "UNKNOWN";

export interface Trial {
  id: string;
  sequence: number;
  state: TrialState;
  reason: string;
  parameters: Json;
  parameterId: number | null;
  source: string;
  attempt: number;
  created: Time;
  started: Time | null;
  ended: Time | null;
  value: Json;
  service: string;
  cost: number | null;
  attributes: JsonObject;
  violates: string;
}

export interface TrialRemarks {
  trial: string;
  tags: string[];
  note: string;
  revision: number;
}

export interface TrialDetails extends Trial {
  tags: string[];
  note: string;
  attempts: Attempt[];
  use: TrialUsage | null;
}

/** What the processes of a running trial use: busy processors, and bytes. */
export interface TrialUsage {
  trial: string;
  attempt: number;
  time: Time;
  processors: number;
  memory: number;
  gpus: GpuUse[];
}

export interface NewTrial extends Trial {
  warning: string;
}

export interface Attempt {
  trial: string;
  number: number;
  service: string;
  state: JobState;
  started: Time | null;
  ended: Time | null;
  exitCode: number | null;
  message: string;
  host: string;
  url: string;
  cost: number | null;
  image: string;
}

export interface Metric {
  trial: string;
  attempt: number;
  index: number;
  kind: "PERIODICAL" | "FINAL";
  sequence: number;
  value: Json;
  time: Time;
}

export interface ExperimentLimits {
  trialConcurrency: number;
  maxTrialNumber: number | null;
  maxExperimentDuration: Seconds | null;
  maxTrialDuration: Seconds | null;
  maxCost: number | null;
  stopAtValue: number | null;
  maxSlots: number | null;
  priority: number | null;
}

export interface Host {
  name: string;
  state: string;
  reason: string;
  running: number;
  details: JsonObject;
}

export interface ServiceState {
  name: string;
  platform: string;
  state: string;
  reason: string;
  trials: number;
  slots: number | null;
  weight: number;
  cost: number | null;
  spent: number | null;
}

/** What one tracker or webhook has not got yet. */
export interface Backlog {
  name: string;
  trials: number;
  results: number;
  messages: number;
}

export interface Experiment {
  id: string;
  name: string;
  state: string;
  reason: string;
  config: JsonObject;
  searchSpace: Json;
  platforms: string[];
  directory: string;
  version: string;
  created: Time;
  started: Time | null;
  ended: Time | null;
  duration: Seconds;
  limits: ExperimentLimits;
  counts: Partial<Record<TrialState, number>>;
  best: Trial | null;
  optimize: string;
  objectives: Record<string, string>;
  hosts: Host[];
  services: ServiceState[];
  spent: number | null;
  waiting: { reason: string; count: number }[];
  owed: Backlog[];
  withoutEffect: string[];
  tunerChoice: string;
  notices: string[];
  port: number;
  url: string;
  pid: number;
  readOnly: boolean;
  cannotResume: string;
  nextSequence: number;
  revision: number;
}

export interface Listed {
  id: string;
  name: string;
  state: string;
  port: number | null;
  url: string;
  pid: number | null;
  directory: string;
  platform: string;
  started: Time | null;
  ended: Time | null;
}

export interface FileEntry {
  path: string;
  size: number;
  modified: Time;
  here: boolean;
}

/** What is no file: a link, whose target is text, or a pipe or device. */
export interface NonFileEntry {
  path: string;
  kind: string;
  target: string;
}

export interface FileListing {
  files: FileEntry[];
  others: NonFileEntry[];
  note: string;
}

// The answers that have no name in the OpenAPI document.

/** An entry of the file roles.json of an attempt. A worker writes it, so each value may be anything. */
export type Role = Partial<
  Record<
    "role" | "rank" | "host" | "state" | "exitCode" | "reason" | "started" | "ended" | "log" | "reports" | "start",
    unknown
  >
>;

/** A part of a table: `columns` names the values of each row. `next` continues after these rows. */
export type RowPage = { columns: string[]; count: number; next: string | null; rows: Json[][] };

/** A row of /rows/attempts, with the number of its trial. */
export type AttemptRow = Attempt & { sequence: number };

/** The intermediate results of a trial, thinned out. */
export type Curve = { trial: string; steps: number[]; values: (number | null)[] };

export type Importance = {
  method: string;
  trials: number;
  importances: { parameter: string; importance: number; low: number | null; high: number | null }[];
  reason: string;
};

/** How busy a GPU is, in `details.gpuUse` of its host and in `gpus` of its trial; memory in bytes. */
export type GpuUse = { index: number; percent: number | null; memoryUsed: number; memoryTotal: number };

/** A message of the stream. */
export type Message = { changes: Change[] };
export type Change =
  | { type: "trial"; trial: Trial }
  | { type: "metric"; metric: Metric }
  | { type: "remarks"; remarks: TrialRemarks }
  | { type: "experiment"; experiment: Experiment }
  | { type: "reset" };

/** One parameter of a search space, as NNI writes it. */
export type Space = ({ _type: "choice"; _value: Json[] } | { _type: Distribution; _value: number[] }) & {
  _unit?: string;
  _default?: Json;
};
type Distribution =
  | "randint"
  | "lograndint"
  | "qrandint"
  | "qlograndint"
  | "uniform"
  | "quniform"
  | "loguniform"
  | "qloguniform"
  | "normal"
  | "qnormal"
  | "lognormal"
  | "qlognormal";
