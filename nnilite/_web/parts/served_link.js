// Links to what the server serves as a file. The browser fetches these by itself and signs nothing, so where this page is
// signed in, a click gets a ticket first.

import { address, ticketFor } from "../lib/api.js";
import { isSignedIn } from "../lib/session.js";
import { html } from "../lib/ui.js";
import { messageOf, say } from "./toasts.js";

/** @import { Query } from "../lib/api.js" */
/** @import { ComponentChildren } from "../vendor/preact.js" */

/**
 * @typedef {object} ServedLinkProps
 * @property {string} path
 * @property {Query} [query]
 * @property {string} [class]
 * @property {string} [download] the name under which it is saved; without one it opens in a new tab
 * @property {ComponentChildren} [children]
 */

/** @param {ServedLinkProps} props */
export function ServedLink({ path, query, class: name, download, children }) {
  /** @param {MouseEvent} event */
  const open = (event) => {
    if (!isSignedIn() || event.button > 1) return;
    event.preventDefault();
    openWithTicket(address(path, query), download);
  };
  return html`<a class=${name} href=${address(path, query).href} download=${download} target=${download ? undefined : "_blank"}
    onClick=${open} onAuxClick=${open}>${children}</a>`;
}

/**
 * Browsers let a page open a tab only at once after a click, so the tab is there before the ticket.
 * @param {URL} url
 * @param {string} [download]
 */
async function openWithTicket(url, download) {
  const tab = download ? null : window.open("", "_blank");
  if (tab) tab.opener = null;
  try {
    url.searchParams.set("ticket", await ticketFor(url));
  } catch (error) {
    tab?.close();
    say(messageOf(error), true);
    return;
  }
  if (tab) {
    tab.location.href = url.href;
    return;
  }
  const link = document.createElement("a");
  link.href = url.href;
  link.download = download ?? "";
  link.click();
}
