// Notifications of the browser, for those who ask for them: something new waits, or a run failed.
import { signal } from "./lib.js";
import { api } from "./api.js";
import { follow, inbox } from "./store.js";
import { notice } from "./notices.js";
import { itemOf } from "./ui/ask.js";
import { to } from "./router.js";
import { short } from "./text.js";

const KEPT = "leadhand.notify";
const SHOWN_MAX = 3; // at once: more are told in one

export const offered = "Notification" in globalThis;
/** Whether this browser was asked to notify; it is kept for this browser. */
export const notifying = signal(kept());

function kept() {
  try {
    return offered && Notification.permission === "granted" && localStorage.getItem(KEPT) === "on";
  } catch {
    return false;
  }
}

/** Ask the browser for permission, or stop. */
export async function toggle() {
  const on = !notifying.value && (await Notification.requestPermission()) === "granted";
  if (!on && !notifying.value) notice("The browser does not allow notifications for this page. Its site settings can change that.", "bad");
  notifying.value = on;
  try {
    localStorage.setItem(KEPT, on ? "on" : "off");
  } catch {
    // It holds for this page then.
  }
}

/** The same tag in every tab: a browser shows one of them. A page that is looked at needs none. */
function tell(title, body, tag, address) {
  if (!notifying.value || document.hasFocus()) return;
  const shown = new Notification(title, { body, tag: `leadhand ${tag}` });
  shown.onclick = () => {
    focus();
    location.hash = address;
    shown.close();
  };
}

let known = null;

function waits(rows) {
  const fresh = known ? rows.filter((row) => !known.has(row.id)) : [];
  known = new Set(rows.map((row) => row.id));
  if (fresh.length > SHOWN_MAX) return tell(`${fresh.length} new open items`, "", "inbox", to(["inbox"]));
  for (const row of fresh) tell(short(row.title || row.text, 100), short(row.goal, 140), row.id, itemOf(row));
  return undefined;
}

async function failed(run) {
  try {
    const head = await api.run(run);
    tell(`Run failed: ${short(head.goal, 80)}`, short(head.reason, 200), run, to(["runs", run]));
  } catch {
    tell("Run failed", run, run, to(["runs", run]));
  }
}

export function watch() {
  inbox.state.subscribe(({ data }) => data && waits(data));
  follow((events) => {
    if (!notifying.value) return;
    for (const event of events) if (event.type === "RunEnded" && event.patch?.status === "failed") failed(event.run);
  });
}
