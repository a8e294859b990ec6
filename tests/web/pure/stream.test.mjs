// Events on their way to the screen: read from bytes however they are cut, and applied without surprise.
import test from "node:test";
import assert from "node:assert/strict";
import { parser } from "../../../src/leadhand/server/web/js/sse.js";
import { changesMore, concernsPeople, patchHead, patchNode, patchRow, tally } from "../../../src/leadhand/server/web/js/patch.js";

const TEXT = "retry: 2000\n: listening\nid: 4\n\nid: 5\nevent: AttemptStarted\ndata: {\"a\":\ndata: 1}\n\n: ping\r\nid: 6\r\ndata: x\r\n\r\ndata: y\n\n";
const WANTED = [
  { id: "4", event: "", data: "" },
  { id: "5", event: "AttemptStarted", data: '{"a":\n1}' },
  { id: "6", event: "message", data: "x" },
  { id: "6", event: "message", data: "y" },
];

test("a stream is read the same however it is cut", () => {
  for (let cut = 1; cut <= TEXT.length; cut++) {
    const found = [];
    const feed = parser((event) => found.push(event));
    for (let at = 0; at < TEXT.length; at += cut) feed(TEXT.slice(at, at + cut));
    assert.deepEqual(found, WANTED, `cut every ${cut}`);
  }
});

test("half an event is no event", () => {
  const found = [];
  parser((event) => found.push(event))("id: 1\ndata: half");
  assert.deepEqual(found, []);
});

test("a patch that says nothing new changes nothing", () => {
  const node = { id: "a", status: "running", attempts: 1 };
  assert.equal(patchNode(node, { id: "a", status: "running" }), node);
  const after = patchNode(node, { id: "a", status: "failed", unknown: 1 });
  assert.deepEqual(after, { id: "a", status: "failed", attempts: 1 });
  assert.equal(node.status, "running");
});

test("a row and a head follow the patches of their run", () => {
  const event = { at: "t2", seq: 9, patch: { status: "waiting", cost: 2, waiting: 1, counts: { steps: 9, settled: 5, succeeded: 4, failed: 1, running: 2 }, revision: 3 } };
  const row = patchRow({ run: "r", status: "running", steps: 8, cost: 1 }, event);
  assert.deepEqual([row.status, row.steps, row.succeeded, row.failed, row.cost, row.waiting, row.updated], ["waiting", 9, 4, 1, 2, 1, "t2"]);
  const head = patchHead({ seq: 3, status: "running" }, event);
  assert.deepEqual([head.seq, head.status, head.cost, head.revision], [9, "waiting", 2, 3]);
});

test("counts are of what is shown", () => {
  assert.deepEqual(tally([{ status: "failed" }, { status: "pending", outlook: true }, { status: "proposed", outlook: true }]), { failed: 1, outlook: 1, proposed: 1 });
});

test("which events are looked at again, and which concern people", () => {
  assert.equal(changesMore({ type: "RunEnded", patch: { whole: true } }), true);
  assert.equal(changesMore({ type: "AttemptReported", patch: { whole: false } }), false);
  assert.equal(changesMore({ type: "AttemptReported", patch: null }), true);
  for (const type of ["QuestionAsked", "ApprovalGiven", "ReviewRequested", "StepsHeld", "RunEnded"]) assert.equal(concernsPeople({ type }), true, type);
  assert.equal(concernsPeople({ type: "AttemptStarted" }), false);
});
