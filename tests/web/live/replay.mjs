// Plays streams of events to the page's own model of a run, and compares it with a reload after each.
import { readFileSync } from "node:fs";
import assert from "node:assert/strict";

let graph = null;
// Documents are handed in below, and this graph once.
globalThis.fetch = () => (graph ? Promise.resolve(Response.json(graph)) : new Promise(() => {}));
const { LiveRun } = await import("../../../src/leadhand/server/web/js/run/live.js");
const { tally, patchRow } = await import("../../../src/leadhand/server/web/js/patch.js");

const FIELDS = ["status", "attempts", "started", "ended", "cost", "reason", "worker", "held", "superseded_by"];
const HEAD = ["status", "cost", "revision"];
const ROW = ["status", "steps", "settled", "succeeded", "failed", "replaced", "waiting", "cost"];

const plain = (node) => Object.fromEntries(FIELDS.map((field) => [field, node[field] ?? null]));
const pick = (doc, fields) => Object.fromEntries(fields.map((field) => [field, doc[field] ?? null]));
/** The ids of the steps that are not as they were. */
const changed = (before, after) => {
  const known = new Map(before.graph.nodes.map((node) => [node.id, JSON.stringify(plain(node))]));
  return after.graph.nodes.filter((node) => known.get(node.id) !== JSON.stringify(plain(node))).map((node) => node.id);
};
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
    const differ = changed(now, after);
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
    const { steps, whole } = live.touched.value;
    if (!whole) assert.deepEqual(differ.filter((id) => !steps.has(id)), [], `${where}: steps that open panels would not follow`);
    events += 1;
  }
  live.close();
  const hurried = new LiveRun(run); // gets all of it in one batch
  hurried.head.value = begin.head;
  hurried.take(begin.graph);
  hurried.read(told.map(({ event }) => event));
  for (const { event } of told) if (event.patch?.step) assert.ok(hurried.touched.value.steps.has(event.patch.step.id), `${name}: ${event.patch.step.id}`);
  hurried.close();
  const late = new LiveRun(run); // gets the events while its graph is on the way
  graph = begin.graph;
  const loaded = late.loadGraph();
  graph = null;
  late.head.value = begin.head;
  late.read(told.map(({ event }) => event));
  await loaded;
  assert.deepEqual(late.all().map(plain), hurried.all().map(plain), `${name}: events that overtook the graph`);
  late.close();
}
console.log(`${events} events`);
process.exit(0);
