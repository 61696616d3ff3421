// Where the page is: all of it stands behind the # of the address, so that a view can be shared as a link.
import { signal } from "./ui.js";

/**
 * What a part of an address says. A link from elsewhere may have anything there: what means nothing stays as it is.
 * @param {string} part
 */
export function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function read() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { parts: parts.length ? parts : ["overview"], query: new URLSearchParams(query ?? "") };
}

export const route = signal(read());
addEventListener("hashchange", () => {
  route.value = read();
});

/**
 * @param {string} path
 * @param {URLSearchParams | Record<string, string>} [query]
 */
export function href(path, query) {
  const text = query ? new URLSearchParams(query).toString() : "";
  return `#/${path}${text ? `?${text}` : ""}`;
}

/**
 * @param {string} path
 * @param {URLSearchParams | Record<string, string>} [query]
 */
export function go(path, query) {
  location.hash = href(path, query);
}

/**
 * Change parts of the query in place: null or "" takes one away. The back button does not stop at each keystroke.
 * @param {Record<string, string | number | null | undefined>} changes
 */
export function setQuery(changes) {
  const there = read();
  // The address may be that of another view already, before its event has come: then the view that wants this is left.
  if (there.parts.join("/") !== route.value.parts.join("/")) return;
  const query = there.query;
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, String(value));
  }
  history.replaceState(null, "", href(there.parts.map(encodeURIComponent).join("/"), query));
  route.value = read();
}
