// The one place that knows which view library this is.
import htm from "../vendor/htm.js";
import { Fragment, h, render } from "../vendor/preact.js";

/** @import { ComponentChildren } from "../vendor/preact.js" */

/**
 * A value within a template. The checks cannot tell which component it goes to, so functions that are written within a
 * template take anything.
 * @typedef {((...given: any[]) => unknown) | object | string | number | bigint | boolean | null | undefined} Slot
 */

export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
export { batch, computed, effect, signal, useComputed, useSignal } from "../vendor/signals.js";
export { Fragment, render };
/** @type {(strings: TemplateStringsArray, ...slots: Slot[]) => ComponentChildren} */
export const html = htm.bind(h);
