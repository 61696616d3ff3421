// Questions to the manager. All addresses are relative to the page, so that it works behind any prefix.
const BASE = new URL("api/v1/", document.baseURI.split("#")[0]);

export class ApiError extends Error {
  constructor(status, message, field) {
    super(message);
    this.status = status; // 0: no answer at all
    this.field = field;
  }
}

export function address(path, query = {}) {
  const url = new URL(path.replace(/^\//, ""), BASE);
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) url.searchParams.append(name, one);
    }
  }
  return url;
}

export function streamAddress() {
  const url = address("stream");
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}

async function answer(path, query, options) {
  const timeout = AbortSignal.timeout(options.timeout_ms ?? 60_000);
  let response;
  try {
    response = await fetch(address(path, query), { ...options, signal: timeout, credentials: "same-origin" });
  } catch (error) {
    const late = error.name === "TimeoutError";
    throw new ApiError(0, late ? "The manager did not answer in time." : "The manager cannot be reached.");
  }
  if (response.ok) return response;
  let body = {};
  try {
    body = await response.json();
  } catch {
    // a proxy's page, perhaps; the status has to do
  }
  throw new ApiError(response.status, body.error ?? `The manager answered ${response.status}.`, body.field);
}

export async function get(path, query = {}, options = {}) {
  return (await answer(path, query, options)).json();
}

// A piece of a text: its bytes, where they begin, where the next ones do, and how long the text is now.
export async function piece(path, query = {}) {
  const response = await answer(path, query, {});
  const number = (name) => Number(response.headers.get(name) ?? 0);
  return {
    data: new Uint8Array(await response.arrayBuffer()),
    offset: number("X-Offset"),
    next: number("X-Next-Offset"),
    total: number("X-Total-Size"),
  };
}

export async function send(method, path, body) {
  const options = { method, headers: { "Content-Type": "application/json" } };
  if (method !== "DELETE") options.body = JSON.stringify(body ?? {});
  return (await answer(path, {}, options)).json();
}
