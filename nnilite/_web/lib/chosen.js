// Trials that are ticked in the table: for comparing, killing and running again.
import { signal } from "./ui.js";

export const selected = signal(new Set());

export function toggle(id) {
  const next = new Set(selected.value);
  if (!next.delete(id)) next.add(id);
  selected.value = next;
}
