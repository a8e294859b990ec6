// What the open page knows, kept right by the event stream. Screens read signals; nothing polls.
import { signal, batch, useEffect, useMemo } from "./lib.js";
import { api, signedOut } from "./api.js";
import { connection, subscribe } from "./stream.js";
import { concernsPeople, patchRow } from "./patch.js";

export const session = signal(null);
export const now = signal(Date.now());

/**
 * A document of the server: what is known of it, whether it is being asked for, and what went
 * wrong. What is known stays on the screen while it is asked for again.
 */
export function resource(ask) {
  const state = signal({ data: undefined, error: null, loading: false });
  let control = null;
  async function refresh() {
    control?.abort();
    const mine = (control = new AbortController());
    state.value = { ...state.value, loading: true };
    try {
      const data = await ask(mine.signal);
      if (!mine.signal.aborted) state.value = { data, error: null, loading: false };
    } catch (error) {
      if (!mine.signal.aborted) state.value = { ...state.value, error, loading: false };
    }
  }
  return { state, refresh, soon: soon(refresh, 200), drop: () => control?.abort() };
}

/** A document for a part of the screen: asked for when the part comes, and when all is asked for again. */
export function useResource(ask, deps = []) {
  const found = useMemo(() => resource(ask), deps);
  useEffect(() => {
    found.refresh();
    const stop = onRefetch(found.soon);
    return () => (stop(), found.drop());
  }, [found]);
  return found;
}

/** Ask for a document again when events of these types come, at most once in `ms`. */
export function useFollowed(types, found, ms = 400) {
  useEffect(() => {
    const again = soon(found.refresh, ms);
    return follow((events) => events.some((event) => types.test(event.type)) && again());
  }, [found]);
}

const FLEET_MS = 2500;
const FLEET_EVENT_MS = 1000;

/** A document of the fleet: asked for again after events, and every few seconds for what the log does not hold. */
export function useFleet(ask, deps) {
  const found = useResource(ask, deps);
  useEffect(() => {
    const again = () => document.hidden || connection.value === "lost" || found.refresh();
    const stop = follow(soon(again, FLEET_EVENT_MS));
    const timer = setInterval(again, FLEET_MS);
    return () => (stop(), clearInterval(timer));
  }, [found]);
  return found;
}

/** At most one call in `ms`, and one after the last wish. */
export function soon(act, ms) {
  let timer = 0;
  return () => {
    timer ||= setTimeout(() => {
      timer = 0;
      act();
    }, ms);
  };
}

/** How many rows of the inbox are asked for, the oldest first; the server gives at most 500. */
export const inboxLimit = signal(100);
/** The oldest rows; `total` of them says how many wait in all. */
export const inbox = resource(async (signal) => {
  const page = await api.inbox(inboxLimit.value, signal);
  return Object.assign(page.items, { total: page.total });
});

/** The rows of the list of runs that are on the screen, and how to ask for them. */
export const runs = signal({ rows: [], next: null, error: null, loading: false, filter: null });

export async function loadRuns(filter, more = false) {
  const before = runs.value;
  const cursor = more ? before.next : undefined;
  runs.value = { ...before, filter, loading: true, ...(more || same(before.filter, filter) ? {} : { rows: [], next: null }) };
  const meanwhile = [];
  const stop = follow((events) => meanwhile.push(...events));
  try {
    const page = await api.runs({ ...filter, cursor, limit: 50 });
    if (!same(runs.value.filter, filter)) return;
    const rows = more ? [...before.rows, ...page.items] : page.items;
    runs.value = { rows, next: page.next, error: null, loading: false, filter };
    patchRuns(meanwhile); // events that overtook the page
  } catch (error) {
    runs.value = { ...runs.value, error, loading: false };
  } finally {
    stop();
  }
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const reloadRuns = soon(() => runs.value.filter && loadRuns(runs.value.filter), 400);

const FLUSH_MS = 100;
const LATE_MS = 300;

let queued = [];
let timer = 0;
let frame = 0;
let flushed = 0;

/** The first event is shown with the next frame; a flood ten times a second: that reads as live, and
 *  leaves most of the time to the person. A hidden tab draws nothing, and need not keep up. */
function heard(events) {
  for (const event of events) queued.push(event);
  const wait = document.hidden ? 1000 : Math.max(0, flushed + FLUSH_MS - performance.now());
  timer ||= setTimeout(draw, wait);
}

/** With the next frame; a window that is covered gets none, and must be right all the same. */
function draw() {
  if (document.hidden) return flush();
  frame = requestAnimationFrame(flush);
  timer = setTimeout(flush, LATE_MS);
}

const readers = new Set();

/** Events in frame-sized batches: `read(events)`, inside one batch of signals. */
export function follow(read) {
  readers.add(read);
  return () => readers.delete(read);
}

function flush() {
  cancelAnimationFrame(frame);
  clearTimeout(timer);
  timer = 0;
  flushed = performance.now();
  const events = queued;
  queued = [];
  batch(() => {
    if (events.some((event) => event.type === "reset")) refetch();
    if (events.some(concernsPeople)) inbox.soon();
    if (events.some((event) => /^(StopAll|PersonChanged)/.test(event.type))) refreshSession();
    patchRuns(events);
    for (const read of readers) read(events);
  });
}

function patchRuns(events) {
  const held = runs.value;
  if (!held.filter) return;
  const index = new Map(held.rows.map((row, place) => [row.run, place]));
  let rows = null;
  let unknown = false;
  for (const event of events) {
    if (!event.run || event.run.startsWith("$")) continue;
    const place = index.get(event.run);
    if (place === undefined) unknown = true;
    else (rows ??= [...held.rows])[place] = patchRow(rows[place], event);
    unknown ||= event.type === "RunEnded"; // its reason, its order, and whether it still matches
  }
  if (rows) runs.value = { ...held, rows };
  if (unknown) reloadRuns();
}

const refetchers = new Set();

/** Called when everything on the screen must be asked for again. */
export function onRefetch(act) {
  refetchers.add(act);
  return () => refetchers.delete(act);
}

export function refetch() {
  inbox.soon();
  reloadRuns();
  for (const act of refetchers) act();
}

export const reconnected = signal(0);

export function start() {
  subscribe(heard);
  let was = connection.value;
  connection.subscribe((value) => {
    // The stream goes on where it ended, but a new server may know more than its events say.
    if (value === "live" && was === "lost") {
      reconnected.value = now.value = Date.now();
      refetch();
    }
    was = value;
  });
  // What is shown is of the time when the connection was lost: its clocks stand still until there is news.
  const tick = () => document.hidden || connection.value === "lost" || (now.value = Date.now());
  document.addEventListener("visibilitychange", () => {
    tick();
    if (!document.hidden && queued.length) flush();
  });
  setInterval(tick, 1000);
}

export async function signIn(token) {
  session.value = await api.signIn(token);
  signedOut.value = false;
}

/** Who is signed in, and whether everything is stopped, may have changed. */
export function refreshSession() {
  api.session().then((found) => (session.value = found), () => {});
}

const RANKS = ["viewer", "operator", "approver"];

/** Whether the signed-in person may do what takes this role. */
export function may(role) {
  return RANKS.indexOf(session.value?.role) >= RANKS.indexOf(role);
}
