// A text that grows: the end of it at first, then what is added; more of what came before on demand.

import { piece } from "../lib/api.js";
import { bytes } from "../lib/format.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib/ui.js";
import { Copy } from "./copy.js";
import { Icon } from "./icons.js";
import { messageOf } from "./toasts.js";

const STEP = 128 * 1024; // bytes
const KEPT = 2 * 1024 * 1024; // characters shown at most, so that the page stays quick
const EVERY_MS = 1000;

// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with a control character.
const ESCAPE_SEQUENCES = /\x1b\[[0-9;?]*[ -/]*[@-~]/g;

/**
 * What a progress bar has left of a line, which it rewrites by \r. For a long line, a pattern would take minutes.
 * @param {string} line
 */
const rewritten = (line) => line.slice(line.lastIndexOf("\r", line.length - 2) + 1);

/**
 * Neither progress bars nor colours, which are escape sequences, are of use here.
 * @param {string} text
 */
const readable = (text) =>
  text.replace(ESCAPE_SEQUENCES, "").replace(/\r\n/g, "\n").split("\n").map(rewritten).join("\n");

/** @import { Query } from "../lib/api.js" */

/**
 * @typedef {object} LogProps
 * @property {string} path where the text is
 * @property {Query} [query]
 * @property {boolean} live whether it may still grow
 * @property {string} empty what to say when there is none
 * @property {string} label
 */

/** @typedef {{ bytes: number, text: string }} Piece a part of the text, and the bytes that it takes where it is */

/**
 * The text that is here, and how far it has been read.
 * @typedef {object} Reading
 * @property {Piece[]} pieces
 * @property {number} most how many characters of them are kept
 * @property {number} start of it, in bytes
 * @property {number | null} end
 * @property {TextDecoder} decoder
 * @property {boolean} busy
 */

/** @typedef {{ start: number, end: number, total: number }} Range the part that is here, in bytes */

/** @param {LogProps} props */
export function Log({ path, query, live, empty, label }) {
  const [text, setText] = useState("");
  const [range, setRange] = useState(/** @type {Range | null} */ (null));
  const [problem, setProblem] = useState("");
  const [follow, setFollow] = useState(true);
  const [find, setFind] = useState("");
  const [hit, setHit] = useState(0);
  const box = useRef(/** @type {HTMLPreElement | null} */ (null));
  const state = useRef(/** @type {Reading | null} */ (null));
  const key = JSON.stringify([path, query]);

  useEffect(() => {
    /** @type {Reading} */
    const mine = { pieces: [], most: KEPT, start: 0, end: null, decoder: new TextDecoder(), busy: false };
    state.current = mine;
    setText("");
    setRange(null);
    const more = async () => {
      if (mine.busy || document.hidden) return;
      mine.busy = true;
      try {
        const found = await piece(path, { ...query, offset: mine.end ?? -STEP, limit: STEP * 4 });
        if (state.current !== mine) return;
        if (mine.end !== null && found.total < mine.end)
          Object.assign(mine, { end: null, decoder: new TextDecoder() }); // begun anew
        else {
          if (mine.end === null) mine.start = found.offset;
          mine.end = found.next;
          append(mine.pieces, found.data.length, mine.decoder.decode(found.data, { stream: true }));
          mine.start += dropFirst(mine.pieces, mine.most);
          setText(textOf(mine.pieces));
          setRange({ start: mine.start, end: found.next, total: found.total });
        }
        setProblem("");
      } catch (error) {
        if (state.current === mine) setProblem(messageOf(error));
      } finally {
        mine.busy = false;
      }
    };
    more();
    const timer = live ? setInterval(more, EVERY_MS) : setTimeout(more, EVERY_MS);
    document.addEventListener("visibilitychange", more); // the page may have been opened behind another one
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", more);
      state.current = null;
    };
  }, [key, live]);

  /** @param {Range} range */
  const earlier = async (range) => {
    const start = Math.max(0, range.start - STEP * 2);
    const mine = state.current;
    try {
      const found = await piece(path, { ...query, offset: start, limit: range.start - start });
      // Meanwhile another text may stand here, or the beginning of this one have gone for its end.
      if (!mine || state.current !== mine || mine.start !== range.start) return;
      const added = new TextDecoder().decode(found.data);
      mine.pieces.unshift({ bytes: found.data.length, text: added });
      mine.most += added.length;
      mine.start = start;
      setFollow(false);
      setText(textOf(mine.pieces));
      setRange((known) => known && { ...known, start });
    } catch (error) {
      setProblem(messageOf(error));
    }
  };

  const shown = useMemo(() => readable(text), [text]);
  const pieces = useMemo(() => split(shown, find), [shown, find]);
  const hits = (pieces.length - 1) / 2;
  useLayoutEffect(() => {
    if (follow && !find && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown, follow]);
  useEffect(() => {
    box.current?.querySelector("mark.here")?.scrollIntoView({ block: "nearest" });
  }, [hit, find, hits]);
  const onScroll = () => {
    if (!box.current) return;
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    const atEnd = scrollHeight - scrollTop - clientHeight < 30;
    if (atEnd !== follow) setFollow(atEnd);
  };
  /** @param {number} by */
  const step = (by) => hits && setHit((hit + by + hits) % hits);
  /** @param {{ target: HTMLInputElement }} event */
  const look = (event) => {
    setFind(event.target.value);
    setHit(0);
  };
  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    if (event.key !== "Enter") return;
    step(event.shiftKey ? -1 : 1);
    event.preventDefault();
  };
  return html`<div class="stack" style=${{ gap: "8px" }}>
    <div class="row">
      <input type="search" placeholder="Search" aria-label=${`Search in ${label}`} value=${find} onInput=${look} onKeyDown=${onKey} />
      ${
        find &&
        html`<span class="soft small" role="status">${hits ? `${hit + 1} of ${hits}` : "not found"}</span>
        <button class="small icon" aria-label="Previous match" disabled=${!hits} onClick=${() => step(-1)}><${Icon} name="up" /></button>
        <button class="small icon" aria-label="Next match" disabled=${!hits} onClick=${() => step(1)}><${Icon} name="down" /></button>`
      }
      <span class="row" style=${{ marginLeft: "auto" }}>
        ${range && range.start > 0 && html`<button class="small" onClick=${() => earlier(range)}>Show earlier (${bytes(range.start)} more)</button>`}
        <label class="inline"><input type="checkbox" checked=${follow} onChange=${() => setFollow(!follow)} /><span>Follow</span></label>
        <${Copy} text=${() => shown} what="Text" />
      </span>
    </div>
    ${problem && html`<p class="note bad">${problem}</p>`}
    <pre class="log" ref=${box} tabindex="0" role="region" aria-label=${label} onScroll=${onScroll}>${
      range && !shown
        ? html`<span class="soft">${empty}</span>`
        : pieces.map((part, place) =>
            place % 2 ? html`<mark class=${(place - 1) / 2 === hit ? "here" : ""}>${part}</mark>` : part,
          )
    }</pre>
  </div>`;
}

/** @param {Piece[]} pieces */
const textOf = (pieces) => pieces.map(({ text }) => text).join("");

/**
 * @param {Piece[]} pieces
 * @param {number} bytes
 * @param {string} text
 */
function append(pieces, bytes, text) {
  const last = pieces.at(-1);
  if (last && last.bytes < STEP) Object.assign(last, { bytes: last.bytes + bytes, text: last.text + text });
  else pieces.push({ bytes, text });
}

/**
 * Drops the first pieces of more than `most` characters. Whole ones: a text with bytes that are no characters does not
 * say how many bytes a part of it takes.
 * @param {Piece[]} pieces
 * @param {number} most
 */
function dropFirst(pieces, most) {
  let left = pieces.reduce((sum, { text }) => sum + text.length, 0);
  let dropped = 0;
  while (pieces.length > 1 && left > most) {
    left -= pieces[0].text.length;
    dropped += pieces[0].bytes;
    pieces.shift();
  }
  return dropped;
}

const HITS_MAX = 5000;

/**
 * Text and hits in turn.
 * @param {string} text
 * @param {string} find
 */
export function split(text, find) {
  if (!find) return [text];
  // Not by small letters: a text may have more of them than it has letters.
  const wanted = new RegExp(find.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi");
  /** @type {string[]} */
  const parts = [];
  let from = 0;
  for (const { 0: hit, index } of text.matchAll(wanted)) {
    parts.push(text.slice(from, index), hit);
    from = index + hit.length;
    if (parts.length >= 2 * HITS_MAX) break;
  }
  return [...parts, text.slice(from)];
}
