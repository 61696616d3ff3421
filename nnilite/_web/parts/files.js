// The files of a trial: its pictures at once, short texts on demand, all of them as links.
//
// They are listed where they are, and each is copied to the manager's machine when it is looked at. Links of the trial
// are shown as text. A trial can write anything. Pictures are only those that the manager says are pictures, and an <img> runs nothing.
// Texts are shown as text, also pages and drawings that could run something elsewhere.

import { content, get, picture } from "../lib/api.js";
import { bytes } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { useAnswer } from "./answer.js";
import { Empty, Scroll } from "./layout.js";
import { ServedLink } from "./served_link.js";
import { Time } from "./states.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { FileEntry, FileListing } from "../lib/wire.d.ts" */

const PICTURE = /\.(png|jpe?g|gif|webp)$/i;
const PICTURES_MAX = 24;
const PICTURE_BYTES_MAX = 5e6;
const TEXT_BYTES_MAX = 64_000;

/**
 * A name that is not UTF-8 cannot be part of an address: such a file is listed only.
 * @param {FileEntry} file
 */
const hasAddress = ({ path }) => !/\p{Surrogate}/u.test(path);

/**
 * What is drawn of a trial's files, and how many pictures are not.
 * @param {FileEntry[]} files
 */
function pictures(files) {
  const all = files.filter((file) => PICTURE.test(file.path) && file.size > 0 && hasAddress(file));
  const drawn = all.filter(({ size }) => size <= PICTURE_BYTES_MAX).slice(0, PICTURES_MAX);
  return { drawn, others: all.length - drawn.length };
}

/** @param {FileEntry} file */
const isShort = (file) => file.size > 0 && file.size <= TEXT_BYTES_MAX && !PICTURE.test(file.path) && hasAddress(file);

/**
 * The text of a file; null if it is none.
 * @param {Uint8Array} data
 */
function textOf(data) {
  if (data.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(data);
  } catch {
    return null;
  }
}

/** @param {{ trial: Trial }} props */
export function Files({ trial }) {
  const [listing, setListing] = useState(/** @type {FileListing | null} */ (null));
  const [problem, setProblem] = useState("");
  const [open, setOpen] = useState("");
  useEffect(() => {
    let gone = false;
    setOpen("");
    /** @type {Promise<FileListing>} */
    const asked = get(`trials/${trial.id}/files`);
    asked.then(
      (answer) => {
        if (gone) return;
        setListing(answer);
        setProblem("");
      },
      (error) => !gone && setProblem(error.message),
    );
    return () => {
      gone = true;
    };
  }, [trial.id, trial.state, trial.attempt]);
  if (problem) return html`<p class="note">${problem}</p>`;
  if (listing === null) return html`<${Empty} title="Loading …" />`;
  const { files, others, note } = listing;
  if (!files.length && !others.length && !note)
    return html`<${Empty} title="No files">What the trial writes to <code>$NNI_OUTPUT_DIR</code> is listed here.</${Empty}>`;
  /** @param {string} path */
  const toggle = (path) => setOpen(open === path ? "" : path);
  return html`${note && html`<p class="note">${note}</p>`}<${Pictures} trial=${trial} files=${files} />
    <${Scroll} label="Files"><table class="plain">
    <thead><tr><th>File</th><th class="number">Size</th><th>Changed</th><th><span class="hidden">Preview</span></th></tr></thead>
    <tbody>${files.map(
      (file) => html`<tr key=${file.path}>
        <td>${
          hasAddress(file)
            ? html`<${ServedLink} class="mono" path=${place(trial, file)}>${file.path}</${ServedLink}>`
            : html`<span class="mono" title="Its name is not UTF-8, so it has no address here.">${file.path}</span>`
        }</td>
        <td class="tight number">${bytes(file.size)}</td><td class="tight"><${Time} at=${file.modified} /></td>
        <td class="tight">${isShort(file) && html`<${ShowButton} path=${file.path} shown=${open === file.path} toggle=${toggle} />`}</td>
      </tr>${open === file.path && html`<tr key=${`${file.path} text`}><td colspan="4"><${Text} trial=${trial} file=${file} /></td></tr>`}`,
    )}${others.map(
      (one) => html`<tr key=${`other ${one.path}`}>
        <td colspan="4">
          <span class="mono" title="It is not copied, and not followed.">${one.path}${one.target && ` → ${one.target}`}</span>${" "}
          <span class="soft">${one.kind === "link" ? "link" : "no file"}</span>
        </td>
      </tr>`,
    )}</tbody>
  </table></${Scroll}>`;
}

/** @param {{ path: string, shown: boolean, toggle: (path: string) => void }} props */
function ShowButton({ path, shown, toggle }) {
  const word = shown ? "Hide" : "Show";
  return html`<button class="small" aria-expanded=${shown} aria-label=${`${word} ${path}`} onClick=${() => toggle(path)}>${word}</button>`;
}

/**
 * Where a file is read.
 * @param {Trial} trial
 * @param {FileEntry} file
 */
const place = (trial, { path }) => `trials/${trial.id}/files/${path.split("/").map(encodeURIComponent).join("/")}`;

/** @param {{ trial: Trial, files: FileEntry[] }} props */
function Pictures({ trial, files }) {
  const { drawn, others } = pictures(files);
  if (!drawn.length && !others) return null;
  const left = `${others} more ${others === 1 ? "picture is" : "pictures are"} in the list only`;
  return html`<section class="pictures" aria-label="Pictures">${drawn.map(
    (file) => html`<${Picture} key=${`${file.path} ${file.modified}`} trial=${trial} file=${file} />`,
  )}</section>
  ${
    others > 0 &&
    html`<p class="soft small">${left}: at most ${PICTURES_MAX} of up to ${bytes(PICTURE_BYTES_MAX)} are drawn.</p>`
  }`;
}

/**
 * A picture is fetched when it comes into sight, by the page itself: an <img> sends no key.
 * @param {{ trial: Trial, file: FileEntry }} props
 */
function Picture({ trial, file }) {
  const [isBroken, setBroken] = useState(false);
  const [source, setSource] = useState("");
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    let made = "";
    let gone = false;
    const fetchIt = async () => {
      try {
        const found = await picture(place(trial, file), PICTURE_BYTES_MAX);
        if (gone) return;
        made = URL.createObjectURL(found);
        setSource(made);
      } catch {
        if (!gone) setBroken(true);
      }
    };
    const watcher = new IntersectionObserver((seen) => {
      if (!seen.some((one) => one.isIntersecting)) return;
      watcher.disconnect();
      fetchIt();
    });
    if (box.current) watcher.observe(box.current);
    return () => {
      gone = true;
      watcher.disconnect();
      if (made) URL.revokeObjectURL(made);
    };
  }, []);
  const drawn = source && html`<img src=${source} alt=${file.path} onError=${() => setBroken(true)} />`;
  return html`<figure ref=${box}>
    ${isBroken ? html`<p class="note">A browser cannot show this file as a picture.</p>` : html`<${ServedLink} path=${place(trial, file)}>${drawn || "…"}</${ServedLink}>`}
    <figcaption class="small mono">${file.path}</figcaption>
  </figure>`;
}

/** @param {{ trial: Trial, file: FileEntry }} props */
function Text({ trial, file }) {
  const { found: text, problem } = useAnswer(
    () => content(place(trial, file), TEXT_BYTES_MAX).then(textOf),
    [trial.id, file.path, file.size, file.modified],
  );
  if (problem) return html`<p class="note bad">${problem}</p>`;
  if (text === undefined) return html`<p class="soft">Loading …</p>`;
  if (text === null) return html`<p class="note">This file is not UTF-8 text.</p>`;
  return html`<pre class="code" tabindex="0" role="region" aria-label=${file.path}>${text}</pre>`;
}
