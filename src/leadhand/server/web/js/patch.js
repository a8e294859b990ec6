// What an event changes of what a page holds. Pure: values in, values out, the old ones untouched.
import { shown } from "./status.js";

const STEP_FIELDS = ["status", "attempts", "started", "ended", "cost", "money", "reason", "worker", "action", "outlook", "error", "held", "superseded_by"];
const COUNTS = ["steps", "settled", "succeeded", "failed", "replaced"];

/** A node with what a patch says of its step; the same object when nothing is new. */
export function patchNode(node, step) {
  let changed = null;
  for (const field of STEP_FIELDS) {
    if (field in step && step[field] !== node[field]) (changed ??= { ...node })[field] = step[field];
  }
  return changed ?? node;
}

/** A row of the list of runs after an event. */
export function patchRow(row, event) {
  const patch = event.patch ?? {};
  const next = { ...row, updated: event.at ?? row.updated };
  if (patch.status) next.status = patch.status;
  if (patch.cost != null) [next.cost, next.money] = [patch.cost, patch.money ?? next.money];
  if (patch.waiting != null) [next.waiting, next.awaiting] = [patch.waiting, patch.awaiting ?? next.awaiting];
  for (const field of COUNTS) if (patch.counts && field in patch.counts) next[field] = patch.counts[field];
  return next;
}

/** The head of a run after an event. */
export function patchHead(head, event) {
  const patch = event.patch ?? {};
  const next = { ...head, seq: Math.max(head.seq ?? 0, event.seq ?? 0) };
  if (patch.status) next.status = patch.status;
  if (patch.cost != null) [next.cost, next.money] = [patch.cost, patch.money ?? next.money];
  if (patch.waiting != null) [next.waiting, next.awaiting] = [patch.waiting, patch.awaiting ?? next.awaiting];
  if (patch.revision != null) next.revision = patch.revision;
  if (patch.reason != null) next.reason = patch.reason;
  if (patch.step?.attempts > 0) next.begun = true;
  return next;
}

/** How many steps there are in each state. */
export function tally(nodes) {
  const counts = {};
  for (const node of nodes) {
    const word = shown(node);
    counts[word] = (counts[word] ?? 0) + 1;
  }
  return counts;
}

/** Whether an event may have changed more than the steps that its patch holds. */
export function changesMore(event) {
  return event.patch ? Boolean(event.patch.whole) : true;
}

/** Whether an event changes what waits for a person. */
export function concernsPeople(event) {
  return /Question|Answer|Review|Approv|Held|Released|Asked|RunEnded|Reject/.test(event.type ?? "");
}
