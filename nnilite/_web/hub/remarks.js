// Another name, tags and a note for an experiment.

import { send } from "../lib/api.js";
import { html } from "../lib/ui.js";
import { openDialog } from "../parts/dialog.js";
import { RemarksForm } from "../parts/remarks_form.js";
import { refresh } from "./experiments.js";

/** @import { Words } from "../parts/remarks_form.js" */
/** @import { Experiment } from "./experiments.js" */

/** @param {Experiment} one */
export function editRemarks(one) {
  /** @param {Words} words */
  const save = async (words) => {
    await send("PUT", `experiments/${encodeURIComponent(one.id)}`, { ...words, revision: one.revision });
    await refresh();
  };
  const { id, name, tags, note } = one;
  openDialog(
    () => html`<${RemarksForm} title="Name, tags and note" id=${id} words=${{ name, tags, note }} save=${save} />`,
  );
}
