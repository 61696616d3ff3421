// Requests to the server. If this page is signed in, each is signed with the key of the session, and each answer has to
// prove that its sender knows the key, too; the scheme is that of keepers. Before a request, the server has to have
// proven itself within the last second: whoever has taken its port hears random numbers and the session's name.
import { code, digest, digestOf, nonce } from "./codes.js";
import { BASE, session } from "./session.js";

/** @import { Session } from "./key_store.js" */

/** @typedef {RequestInit & { most?: number }} Asked most: the largest answer in bytes */

const PREFIX = "/api/v1/"; // of what is signed, whatever a proxy has put before it
const FRESH_MS = 1000;
const TALK_MAX_MS = 30_000; // the server takes twice that
const COUNT_MAX = 4000;
const MEET_MAX_MS = 20_000;
const NULL_BODIES = [204, 205, 304];

/** What can be said of an answer that is not the server's. */
class Unproven extends Error {}

/** An answer that is larger than was asked for. */
export class TooLarge extends Error {}

/** One exchange of nonces with the server, and what is asked after it. */
class Talk {
  /**
   * @param {Session} session
   * @param {string} mine
   * @param {string} theirs
   * @param {number} begun
   */
  constructor(session, mine, theirs, begun) {
    this.session = session;
    this.begun = begun;
    this.proven = begun;
    this.count = 0;
    this.nonces = [mine, theirs];
  }

  /** Whether a request may be sent without asking the server for another proof. */
  get isFresh() {
    const now = performance.now();
    return (
      this.session.name === session()?.name &&
      now < this.proven + FRESH_MS &&
      now < this.begun + TALK_MAX_MS &&
      this.count < COUNT_MAX
    );
  }

  /**
   * The answer to a request.
   * @param {URL} url
   * @param {Asked} asked
   */
  async ask(url, asked) {
    this.count += 1;
    const [count, method] = [this.count, asked.method ?? "GET"];
    const content = await digestOf(String(asked.body ?? ""));
    const path = PREFIX + url.href.slice(BASE.href.length);
    const made = await code(this.session.key, "request", ...this.nonces, count, method, path, content);
    const headers = {
      ...asked.headers,
      Authorization: `Nnilite ${[...this.nonces, count, content, made].join(":")}`,
      "X-Nnilite-Session": this.session.name,
    };
    const asking = performance.now();
    const answer = await fetch(url, { ...asked, headers });
    if (isUnsigned(answer)) return statusOnly(answer);
    const body = await bodyOf(answer, asked.most);
    const wanted = await code(this.session.key, "answer", ...this.nonces, count, answer.status, await digest(body));
    if (answer.headers.get("X-Nnilite-Proof") !== wanted) throw new Unproven();
    this.proven = Math.max(this.proven, asking);
    return new Response(NULL_BODIES.includes(answer.status) ? null : body, answer);
  }
}

/**
 * Whether an answer says that the request was not taken, so that there is nothing to believe but that.
 * @param {Response} answer
 */
const isUnsigned = (answer) => !answer.ok && !answer.headers.has("X-Nnilite-Proof");

/**
 * What an answer that anybody may have sent is good for.
 * @param {Response} answer
 */
const statusOnly = (answer) => new Response(null, { status: answer.status });

/**
 * @param {Response} answer
 * @param {number} [most]
 */
async function bodyOf(answer, most) {
  if (Number(answer.headers.get("Content-Length")) > (most ?? Number.POSITIVE_INFINITY)) {
    await answer.body?.cancel();
    throw new TooLarge();
  }
  return new Uint8Array(await answer.arrayBuffer());
}

/** @type {Talk | null} */
let talk = null;
/** @type {Promise<Talk | Response> | null} */
let meeting = null;

/**
 * Has the server prove itself. Returns its answer if it refuses.
 * @param {Session} session
 */
async function meet(session) {
  const [mine, begun] = [nonce(), performance.now()];
  const signal = AbortSignal.timeout(MEET_MAX_MS);
  const answer = await fetch(new URL(`sessions/${session.name}/proof?nonce=${mine}`, BASE), { signal });
  if (!answer.ok) return statusOnly(answer);
  /** @type {{ nonce?: string, proof?: string }} */
  const { nonce: theirs, proof } = await answer.json();
  if (!theirs || proof !== (await code(session.key, "manager", mine, theirs))) throw new Unproven();
  talk = new Talk(session, mine, theirs, begun);
  return talk;
}

/** @param {Session} session */
async function freshTalk(session) {
  if (talk?.isFresh) return talk;
  meeting ??= meet(session).finally(() => {
    meeting = null;
  });
  return meeting;
}

/**
 * Asks the server. If this page is signed in, an answer is the server's unless it has neither an ok status nor a body.
 * @param {URL} url
 * @param {Asked} asked
 * @returns {Promise<Response>}
 */
export async function ask(url, asked) {
  const now = session();
  if (now === null) {
    const answer = await fetch(url, asked);
    return asked.most === undefined ? answer : new Response(await bodyOf(answer, asked.most), answer);
  }
  const answer = await askBy(now, url, asked);
  // The server takes no signature that is too old, for example after this machine has slept.
  return answer.status === 401 ? askBy(now, url, asked) : answer;
}

/**
 * @param {Session} session
 * @param {URL} url
 * @param {Asked} asked
 */
async function askBy(session, url, asked) {
  const mine = await freshTalk(session);
  if (mine instanceof Response) return mine;
  try {
    const answer = await mine.ask(url, asked);
    if (isUnsigned(answer)) talk = null;
    return answer;
  } catch (error) {
    if (!(error instanceof TooLarge)) talk = null;
    throw error;
  }
}
