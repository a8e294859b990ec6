// Keys. Screens say which they answer to while they are open; `?` lists them all.
import { signal, useLayoutEffect } from "./lib.js";
import { go } from "./router.js";

const KEPT = "leadhand.keys";
const SEQUENCE_MS = 1200;

function kept() {
  try {
    return localStorage.getItem(KEPT) !== "off";
  } catch {
    return true;
  }
}

/** Single keys can be turned off: some people speak to their computer. */
export const enabled = signal(kept());

export function enable(on) {
  enabled.value = on;
  try {
    localStorage.setItem(KEPT, on ? "on" : "off");
  } catch {
    // It holds for this page then.
  }
}

export const helpOpen = signal(false);
export const paletteOpen = signal(false);

/** @type {Set<{title: string, keys: Record<string, [string, () => void]>}>} */
const scopes = new Set();

export const GLOBAL = {
  title: "Everywhere",
  keys: {
    "Ctrl+K": ["Go to a screen, run, plan, worker or action", () => (paletteOpen.value = true)],
    "g o": ["Overview", () => go(["overview"])],
    "g i": ["Inbox", () => go(["inbox"])],
    "g r": ["Runs", () => go(["runs"])],
    "g n": ["New run", () => go(["new"])],
    "g w": ["Workers", () => go(["workers"])],
    "g l": ["Library", () => go(["library"])],
    "g f": ["Fleet", () => go(["fleet"])],
    "g u": ["Usage", () => go(["usage"])],
    "g s": ["Settings", () => go(["settings"])],
    j: ["Next item", () => move(1)],
    k: ["Previous item", () => move(-1)],
    "/": ["Search on this screen", () => document.querySelector("[data-search]")?.focus()],
    "?": ["Show keyboard shortcuts", () => (helpOpen.value = !helpOpen.value)],
  },
};

export function allScopes() {
  return [...scopes, GLOBAL];
}

/** Keys of a screen or a part of it. @param {Record<string, [string, () => void] | null>} keys */
export function useKeys(title, keys, deps = []) {
  useLayoutEffect(() => {
    const scope = { title, keys: Object.fromEntries(Object.entries(keys).filter(([, value]) => value)) };
    scopes.add(scope);
    return () => scopes.delete(scope);
  }, deps);
}

/** j and k move the focus: what is focused can be opened by Enter, as everywhere. */
function move(by) {
  const all = [...document.querySelectorAll("[data-item]")].filter((item) => item.getClientRects().length);
  if (!all.length) return;
  const at = all.indexOf(document.activeElement.closest?.("[data-item]"));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

let before = "";
let beforeAt = 0;

/** Ctrl-K or ⌘K, also in a field. */
function opensPalette(event) {
  if (event.key?.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return false;
  event.preventDefault(); // the browser would go to its own field
  if (paletteOpen.value || !document.querySelector("dialog[open]")) paletteOpen.value = !paletteOpen.value;
  return true;
}

function pressed(event) {
  if (opensPalette(event) || paletteOpen.value) return; // also while it is still being fetched
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !enabled.value) return;
  const target = event.target;
  if (target.closest?.("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  const both = Date.now() - beforeAt < SEQUENCE_MS ? `${before} ${event.key}` : "";
  const act = find(both) ?? find(event.key);
  [before, beforeAt] = act ? ["", 0] : [event.key, Date.now()];
  if (!act) return;
  event.preventDefault();
  act();
}

function find(key) {
  for (const scope of [...scopes].reverse()) if (scope.keys[key]) return scope.keys[key][1];
  return GLOBAL.keys[key]?.[1];
}

export function listen() {
  document.addEventListener("keydown", pressed);
}
