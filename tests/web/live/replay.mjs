// Plays streams of events to the page's own model of a run, and compares it with a reload after each.
import { readFileSync } from "node:fs";
import assert from "node:assert/strict";

globalThis.fetch = () => new Promise(() => {}); // documents are handed in below
const { LiveRun } = await import("../../../src/leadhand/server/web/js/run/live.js");
const { tally, patchRow } = await import("../../../src/leadhand/server/web/js/patch.js");

const FIELDS = ["status", "attempts", "started", "ended", "cost", "reason", "worker", "held", "superseded_by"];
const HEAD = ["status", "cost", "revision"];
const ROW = ["status", "steps", "settled", "succeeded", "failed", "replaced", "waiting", "cost"];

const plain = (node) => Object.fromEntries(FIELDS.map((field) => [field, node[field] ?? null]));
const pick = (doc, fields) => Object.fromEntries(fields.map((field) => [field, doc[field] ?? null]));
const counted = (counts) => Object.fromEntries(Object.entries(counts).filter(([, number]) => number).sort());

let events = 0;
for (const { name, run, begin, told } of JSON.parse(readFileSync(process.argv[2]))) {
  const live = new LiveRun(run);
  let now = begin;
  let row = begin.row;
  let due = {};
  live.soonGraph = () => (due.graph = true);
  live.soonHead = () => (due.head = true);
  live.head.value = begin.head;
  live.take(begin.graph);
  for (const { event, after } of told) {
    now = after;
    due = {};
    live.read([event]);
    if (due.graph) live.take(now.graph); // what is asked for again is as it is by then
    if (due.head) live.head.value = now.head;
    row = patchRow(row, event);
    const where = `${name}, event ${event.seq} (${event.type})`;
    const found = Object.fromEntries(live.all().map((node) => [node.id, plain(node)]));
    const wanted = Object.fromEntries(after.graph.nodes.map((node) => [node.id, plain(node)]));
    assert.deepEqual(found, wanted, where);
    assert.deepEqual(live.shape.value.edges, after.graph.edges, where);
    assert.deepEqual(counted(live.counts.value), counted(tally(after.graph.nodes)), where);
    assert.deepEqual(pick(live.head.value, HEAD), pick(after.head, HEAD), where);
    assert.deepEqual(pick(row, ROW), pick(after.row, ROW), where);
    events += 1;
  }
  live.close();
}
console.log(`${events} events`);
process.exit(0);
