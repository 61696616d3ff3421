// Where the focus of the keyboard goes when what had it disappears: browsers then begin at the top of the page again.

const TAKES_FOCUS = "a[href], button, input, select, textarea, [tabindex='0']";
/** @type {Element | null} what had the focus at the last key; null: the pointer is in use */
let last = null;

/** Keep the focus in its place for those who use the keyboard, and nothing for others: a field would open that of a phone. */
export function keepFocus() {
  addEventListener("keydown", () => remember(document.activeElement), true);
  addEventListener("pointerdown", () => remember(null), true);
  addEventListener("focusin", ({ target }) => last && remember(/** @type {Element} */ (target)));
  new MutationObserver(restore).observe(document.body, { childList: true, subtree: true });
}

/** @param {Element | null} element */
function remember(element) {
  last = element === document.body ? null : element;
}

/** @param {MutationRecord[]} changes */
function restore(changes) {
  const gone = last;
  if (!gone || gone.isConnected || document.activeElement !== document.body) return;
  const change = changes.find(
    (one) => one.target.isConnected && [...one.removedNodes].some((node) => node.contains(gone)),
  );
  if (change) (neighbour(change) ?? document.getElementById("main"))?.focus({ preventScroll: true });
}

/**
 * The next that takes the focus, else the one before. A whole view that went has no neighbours.
 * @param {MutationRecord} change
 */
function neighbour({ target, nextSibling, previousSibling }) {
  const box = /** @type {Element} */ (target);
  if (box.id === "main") return null;
  const beside = focusable(nextSibling, "nextSibling") ?? focusable(previousSibling, "previousSibling");
  if (beside) return beside;
  for (
    let outer = box;
    outer.id !== "main" && outer !== document.body && outer.parentElement;
    outer = outer.parentElement
  ) {
    const found = focusable(outer, "nextSibling") ?? focusable(outer.previousSibling, "previousSibling");
    if (found) return found;
  }
  return null;
}

/**
 * @param {Node | null} start
 * @param {"nextSibling" | "previousSibling"} way
 */
function focusable(start, way) {
  for (let node = start; node?.isConnected; node = node[way]) {
    if (!(node instanceof HTMLElement)) continue;
    const all = [...(node.matches(TAKES_FOCUS) ? [node] : []), ...node.querySelectorAll(TAKES_FOCUS)];
    const found = all.filter((one) => !one.matches(":disabled") && one.getClientRects().length);
    if (found.length) return /** @type {HTMLElement} */ (way === "nextSibling" ? found[0] : found[found.length - 1]);
  }
  return null;
}
