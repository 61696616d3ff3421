// What people see of signing in and out.

import { signOut } from "../lib/api.js";
import { isSignedIn, signInTrouble } from "../lib/session.js";
import { html } from "../lib/ui.js";
import { Copy } from "./copy.js";
import { Empty } from "./layout.js";
import { perform } from "./toasts.js";

const REASONS = {
  "": ["Please sign in", ""],
  link: ["This link no longer works", "It was used already, or is older than ten minutes. "],
  ended: ["You are signed out", "The server has restarted since you signed in, or your sign-in was too old. "],
};

/**
 * What to do without a key. The words are the page's own: what answers at its address may be another program by now.
 * @param {{ command: string, where: string }} props
 */
export function SignedOut({ command, where }) {
  const [title, reason] = REASONS[signInTrouble()];
  return html`<h1 class="hidden">Sign in</h1><div class="card"><${Empty} title=${title}>
    ${reason}You need to sign in: run <code>${command}</code> on the machine ${where}, and open the link that it prints.
    <span style=${{ display: "block", marginTop: "12px" }}><${Copy} text=${command} what="Command" label="Copy the command" /></span>
  </${Empty}></div>`;
}

/** A button for who is signed in by a key. */
export function SignOut() {
  if (!isSignedIn()) return null;
  const leave = async () => {
    if (await perform(signOut)) location.reload();
  };
  return html`<button class="quiet wide-only" onClick=${leave} title="End this browser's session on the server">Sign out</button>`;
}
