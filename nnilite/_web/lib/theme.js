// Dark or light: the system's choice unless a person made one here. `theme` is what is shown now.
import { signal } from "./ui.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const KEY = "nnilite-theme";

function kept() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage may be forbidden; then the system decides
  }
}

const shown = () => kept() ?? (dark.matches ? "dark" : "light");

export const theme = signal(shown());

function show() {
  const choice = kept();
  if (choice) document.documentElement.dataset.theme = choice;
  else delete document.documentElement.dataset.theme;
  theme.value = shown();
}

export function switchTheme() {
  const next = theme.value === "dark" ? "light" : "dark";
  const system = dark.matches ? "dark" : "light";
  try {
    if (next === system) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    return;
  }
  show();
}

dark.addEventListener("change", show);
show();
