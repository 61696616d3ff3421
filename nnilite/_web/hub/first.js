// The first page of a hub without experiments: what to do, and a button that starts an example.

import { send } from "../lib/api.js";
import { html, useState } from "../lib/ui.js";
import { Card } from "../parts/layout.js";
import { perform } from "../parts/toasts.js";
import { refresh } from "./experiments.js";

export function First() {
  const [busy, setBusy] = useState(false);
  const start = async () => {
    setBusy(true);
    await perform(() => send("POST", "examples"), "The example is running.");
    await refresh();
    setBusy(false);
  };
  return html`<${Card} title="No experiments yet">
    <p>An experiment runs your program with many sets of parameters and looks for the best ones. It then stands here.</p>
    <ol class="steps">
      <li><b>Look at one first.</b> This example fits a line in 20 short trials, on this machine. It takes some seconds.
        <p><button class="primary" disabled=${busy} onClick=${start}>${busy ? "Starting …" : "Start an example"}</button></p></li>
      <li><b>Start your own</b>, from a <a href="#/new">configuration on this page</a>, or in a terminal:
        <pre class="code">nnictl create --config FILE</pre></li>
    </ol>
  </${Card}>`;
}
