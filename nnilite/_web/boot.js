// Starts the page. Should one of its files get lost on the way (a network that changes, a manager that restarts), the
// page is loaded again, a few times; for this file itself, the script in the page sees to it. The page of all
// experiments names another program in its body.
import { enter } from "./lib/session.js";

const KEY = "nnilite-starts";
const TRIES_MAX = 5;

/** @param {(count: number) => number} change */
function tries(change) {
  try {
    const count = change(Number(sessionStorage.getItem(KEY) ?? 0));
    sessionStorage.setItem(KEY, String(count));
    return count;
  } catch {
    return TRIES_MAX; // without storage one could reload for ever
  }
}

/** When the browser has the page's stylesheets, or has given them up. */
const complete = new Promise((done) => {
  if (document.readyState === "complete") done(null);
  else addEventListener("load", done);
});

async function start() {
  await enter();
  await import(new URL(document.body.dataset.app ?? "app.js", document.baseURI).href);
  await complete;
  await restyle();
}

/** Loads stylesheets that got lost again, in place: whoever types already must not lose it to a new load of the page. */
async function restyle() {
  for (let count = 0; count < TRIES_MAX; count += 1) {
    const lost = [...document.querySelectorAll('link[rel="stylesheet"]')].filter((link) => !isThere(link));
    if (lost.length === 0) return;
    await new Promise((done) => setTimeout(done, 1000));
    await Promise.all(lost.map(loadAgain));
  }
  throw new Error("a stylesheet is missing");
}

/** @param {Element} link */
function isThere(link) {
  try {
    return link instanceof HTMLLinkElement && link.sheet !== null && link.sheet.cssRules !== null;
  } catch {
    return false; // the browser refuses to show the rules of one that got lost
  }
}

/** @param {Element} link */
function loadAgain(link) {
  const another = /** @type {Element} */ (link.cloneNode());
  return new Promise((done) => {
    another.addEventListener("load", done);
    another.addEventListener("error", done);
    link.replaceWith(another);
  });
}

start().then(
  () => tries(() => 0),
  () => {
    const app = document.getElementById("app");
    if (tries((count) => count + 1) < TRIES_MAX) setTimeout(() => location.reload(), 1000);
    else if (app) app.textContent = "This page could not be loaded. Reload it when its server is running.";
  },
);
