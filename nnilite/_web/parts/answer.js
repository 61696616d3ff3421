// What is asked for by a part of the page, and asked for again when something changes.

import { useEffect, useState } from "../lib/ui.js";
import { messageOf } from "./toasts.js";

/**
 * The latest answer, undefined before there is one, and why there is none. One that comes after the next question, or
 * once the part is gone, is dropped.
 * @template T
 * @param {() => Promise<T>} ask
 * @param {unknown[]} inputs when one of them changes, it is asked again
 * @returns {{ found: T | undefined, problem: string }}
 */
export function useAnswer(ask, inputs) {
  const [found, setFound] = useState(/** @type {T | undefined} */ (undefined));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let gone = false;
    ask().then(
      (answer) => {
        if (gone) return;
        setFound(answer);
        setProblem("");
      },
      (error) => !gone && setProblem(messageOf(error)),
    );
    return () => {
      gone = true;
    };
  }, inputs);
  return { found, problem };
}
