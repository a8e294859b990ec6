// What the page says by itself: short notices, and a line for screen readers.
import { signal } from "./lib.js";

export const notices = signal([]);
export const spoken = signal("");

let number = 0;
let last = 0;

/** @param {string} text @param {"good"|"bad"|"plain"} tone */
export function notice(text, tone = "plain") {
  const id = ++number;
  notices.value = [...notices.value.slice(-3), { id, text, tone }];
  setTimeout(() => dismiss(id), tone === "bad" ? 12000 : 6000);
}

export function dismiss(id) {
  notices.value = notices.value.filter((each) => each.id !== id);
}

/** Said politely, and not more often than one can listen. */
export function announce(text) {
  if (Date.now() - last < 3000) return;
  last = Date.now();
  spoken.value = text;
}

/** Do something and say how it went; whether it worked. */
export async function attempt(act, done) {
  try {
    await act();
    if (done) notice(done, "good");
    return true;
  } catch (error) {
    notice(error.message || String(error), "bad");
    return false;
  }
}
