// Which screen is open stands in the address after `#`: it can be kept, sent and gone back to.
import { signal } from "./lib.js";

const TOKEN = /^#token=/; // the address that `leadhand serve` prints: a sign-in, no screen

/**
 * @param {string} hash as in `#/runs/7kq3/plan?step=a`
 * @returns {{path: string[], query: Record<string, string>}}
 */
export function parse(hash) {
  const [path, search = ""] = (TOKEN.test(hash) ? "" : hash).replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { path: parts.length ? parts : ["overview"], query: Object.fromEntries(new URLSearchParams(search)) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a screen. */
export function to(path, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value);
  const search = kept.length ? `?${new URLSearchParams(kept)}` : "";
  return `#/${path.map(encodeURIComponent).join("/")}${search}`;
}

export const route = signal(parse(globalThis.location?.hash ?? ""));

export function listen() {
  addEventListener("hashchange", () => {
    if (location.hash === "#main" || TOKEN.test(location.hash)) return;
    route.value = parse(location.hash);
  });
}

export function go(path, query) {
  location.hash = to(path, query);
}

/** The name of what a screen shows, for the window's title; "" means that of the screen. */
export const subject = signal("");

/** Change what is asked of the present screen, without a step in the history. */
export function ask(change) {
  const { path, query } = route.value;
  history.replaceState(null, "", to(path, { ...query, ...change }));
  route.value = parse(location.hash);
}
