// The one place that knows which view library this is.
import htm from "../vendor/htm.js";
import { Fragment, h, render } from "../vendor/preact.js";

export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
export { batch, computed, effect, signal, useComputed, useSignal } from "../vendor/signals.js";
export { Fragment, render };
export const html = htm.bind(h);
