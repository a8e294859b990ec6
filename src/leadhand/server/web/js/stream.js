// One event stream for all tabs of a browser: the tab that holds the lock reads it and tells the
// others. When it is closed the lock goes to another tab, which goes on at the last position that
// any of them saw; so every event comes once and in order, whoever reads.
import { signal } from "./lib.js";
import { api, signedOut } from "./api.js";
import { readEvents } from "./sse.js";

const LOCK = "leadhand.stream";
const PAUSES_S = [0.3, 0.6, 1, 2, 4, 8];
const SILENCE_S = 45; // a ping comes every 15 seconds

/** @type {import("../_npm/signals.mjs").Signal<"connecting"|"live"|"lost">} */
export const connection = signal("connecting");

const listeners = new Set();
let channel = null;
let position = "";
let stop = null;

/** @param {(events: object[]) => void} heard gets events in order; `{type: "reset"}` asks to refetch */
export function subscribe(heard) {
  listeners.add(heard);
  return () => listeners.delete(heard);
}

function tell(message) {
  if (message.kind === "events") {
    position = message.position || position;
    for (const heard of listeners) heard(message.events);
  } else if (message.kind === "connection") {
    connection.value = message.value;
  }
}

function share(message) {
  tell(message);
  channel?.postMessage(message);
}

export function open() {
  if (stop) return;
  const control = new AbortController();
  stop = () => control.abort();
  if ("BroadcastChannel" in globalThis) {
    channel = new BroadcastChannel(LOCK);
    channel.onmessage = ({ data }) => (data.kind === "hello" ? greet() : tell(data));
    channel.postMessage({ kind: "hello" });
  }
  const lead = () => read(control.signal);
  if (navigator.locks) navigator.locks.request(LOCK, { signal: control.signal }, lead).catch(() => {});
  else lead();
}

export function close() {
  stop?.();
  stop = null;
  channel?.close();
  channel = null;
  leading = false;
}

let leading = false;

/** A tab that has just come asks how things are; the leader knows. */
function greet() {
  if (leading) channel.postMessage({ kind: "connection", value: connection.value });
}

async function read(control) {
  leading = true;
  for (let tries = 0; !control.aborted; ) {
    const began = Date.now();
    const why = await once(control).catch(() => "lost");
    if (control.aborted || why === "refused") return;
    if (Date.now() - began > 5000 || why === "ended") tries = 0;
    share({ kind: "connection", value: "lost" });
    const pause = PAUSES_S[Math.min(tries++, PAUSES_S.length - 1)] * (0.75 + Math.random() / 2);
    await sleep(pause * 1000, control);
  }
}

async function once(control) {
  const silence = new AbortController();
  const both = AbortSignal.any([control, silence.signal]);
  let timer = setTimeout(() => silence.abort(), SILENCE_S * 1000);
  try {
    const response = await api.events(position, both);
    if (response.status === 401) {
      signedOut.value = true;
      return "refused";
    }
    if (!response.ok) return "lost";
    share({ kind: "connection", value: "live" });
    await readEvents(response, (batch) => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_S * 1000);
      if (batch.length) deliver(batch);
    });
    return "ended";
  } finally {
    clearTimeout(timer);
  }
}

function deliver(raw) {
  const events = [];
  let last = "";
  for (const { id, event, data } of raw) {
    last = id || last;
    if (!event) continue;
    if (event === "reset") {
      events.push({ type: "reset" });
      continue;
    }
    try {
      events.push({ type: event, ...JSON.parse(data) });
    } catch {
      events.push({ type: "reset" }); // what cannot be read is asked for again
    }
  }
  share({ kind: "events", events, position: last });
}

function sleep(ms, control) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    control.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
