// The panel with the views that have a name: what the address shows, as links, and a link to what is shown now.

import { keepView, lastingLink, savedViews, shownAddress } from "../lib/page_preferences.js";
import { html, useState } from "../lib/ui.js";
import { Copy } from "./copy.js";
import { Icon } from "./icons.js";
import { Pop } from "./layout.js";
import { perform } from "./toasts.js";

/** @import { SavedView } from "../lib/page_preferences.js" */

/** @param {{ place: string }} props whose views: the id of an experiment, or `ui` */
export function SavedViews({ place }) {
  const views = savedViews.value;
  const [name, setName] = useState("");
  /** @param {SubmitEvent} event */
  const save = (event) => {
    event.preventDefault();
    const word = name.trim();
    perform(async () => {
      await keepView(place, word, shownAddress());
      setName("");
    }, `The view “${word}” is saved.`);
  };
  /** @param {SavedView} view */
  const forget = (view) => perform(() => keepView(place, view.name, ""), `The view “${view.name}” is removed.`);
  return html`<${Pop} label="Views" icon="views" title="Saved views and a link to this one">
    <div class="stack saved-views">
      ${!views.length && html`<p class="soft small">Save filters, columns and order under a name to find them here again.</p>`}
      ${
        views.length > 0 &&
        html`<ul>${views.map(
          (view) => html`<li key=${view.name} class="row">
          <a href=${`#/${view.address}`} aria-current=${view.address === shownAddress() ? "true" : undefined}>${view.name}</a>
          <button class="quiet small icon" aria-label=${`Remove the view ${view.name}`} onClick=${() => forget(view)}><${Icon} name="close" /></button>
        </li>`,
        )}</ul>`
      }
      <form class="row" onSubmit=${save}>
        <input value=${name} maxlength="80" placeholder="Name of this view" aria-label="Name of this view"
          onInput=${(event) => setName(event.target.value)} />
        <button type="submit" class="primary" disabled=${!name.trim()}>Save</button>
      </form>
      <div><${Copy} text=${lastingLink} what="Link" label="Copy a link to this view" /></div>
    </div>
  </${Pop}>`;
}
