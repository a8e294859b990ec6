// What people read: texts of others shown as they are, and figures that say what they mean.
import test from "node:test";
import assert from "node:assert/strict";
import { ago, beyond, byStep, clock, duration, hashed, hasWords, headed, iso, money, pieces, repeated, short, visible } from "../../../src/leadhand/server/web/js/text.js";
import { command, given, pairs, request } from "../../../src/leadhand/server/web/js/screens/run_form.js";
import { STATES, SHAPES, filter, runState, shown, state, stepState } from "../../../src/leadhand/server/web/js/status.js";

test("what cannot be seen is shown", () => {
  assert.equal(visible("rm\u202e -rf\u200b\u0007"), "rm\\u{202e} -rf\\u{200b}\\u{0007}");
  assert.equal(visible("plain\ntext\twith ümläuts 漢字"), "plain\ntext\twith ümläuts 漢字");
  assert.equal(visible("non\u00a0breaking\r"), "non\\u{00a0}breaking\\u{000d}");
  assert.deepEqual(pieces("a\u0000b").map((piece) => piece.hidden), [false, true, false]);
  assert.equal(visible(null), "");
});

test("every state has a word and a shape, and those that matter differ in both", () => {
  for (const each of Object.values(STATES)) assert.ok(SHAPES[each.shape] && each.word && each.tone);
  const told = ["succeeded", "failed", "running", "retrying", "waiting_for_person", "held"].map((name) => STATES[name]);
  assert.equal(new Set(told.map((each) => each.shape)).size, told.length);
  assert.notEqual(state("waiting").word, stepState("waiting").word);
  assert.deepEqual(["approval", "input", undefined].map((what) => runState("waiting", what).word), ["waiting for approval", "waiting for input", "waiting"]);
  assert.equal(runState("running", "approval").word, "running");
  const asked = { status: "waiting_for_person", error: { change: { commit: "c" } } };
  assert.deepEqual([asked, { ...asked, error: null }].map((node) => stepState(shown(node)).word), ["waiting for approval", "waiting for input"]);
  assert.equal(state("something_new").word, "something new");
});

test("durations, money, times", () => {
  assert.deepEqual([0, 0.25, 3.14, 59.6, 61, 3600, 90000].map(duration), ["0s", "250ms", "3.1s", "1m", "1m 1s", "1h", "1d 1h"]);
  assert.deepEqual([null, 0, 0.0004, 12.345].map(money), ["–", "$0", "$0.00040", "$12.35"]);
  assert.equal(ago("2026-01-01T00:00:00Z", Date.parse("2026-01-01T02:30:00Z")), "2h ago");
  assert.equal(clock("nonsense"), "–");
  assert.equal(hashed("5804a4ca0a62bd89ffff"), "5804 a4ca 0a62 bd89");
  assert.equal(short("a  b\n c", 4), "a b…");
});

test("a time to come is said to come, to the minute and in full", () => {
  const now = Date.parse("2026-11-17T04:00:00Z");
  const told = (at) => ago(at, now);
  assert.equal(told("2026-11-17T07:00:00Z"), "in 3h");
  assert.equal(told("2026-11-17T07:59:30Z"), "in 4h");
  assert.equal(told("2026-11-17T04:00:30Z"), "in 30s");
  assert.equal(told("2027-11-17T04:00:00Z"), "on Nov 17, 2027");
  assert.equal(told("2026-11-17T04:00:01Z"), "just now"); // clocks differ
  assert.equal(told("2026-11-17T03:59:58Z"), "just now");
  assert.equal(iso("2026-11-17T02:00:00-05:00"), "2026-11-17T07:00:00.000Z");
});

test("what was printed is kept apart from what is said about it, and no text is told twice", () => {
  assert.deepEqual(headed("it failed\n\n  line 1\n    line 2\n"), { head: "it failed", body: "  line 1\n    line 2" });
  assert.deepEqual(headed("just this"), { head: "just this", body: "" });
  assert.equal(repeated("no key", ["Step a failed: no key. Choose how to continue."]), true);
  assert.equal(repeated("", ["x"]), false);
  assert.equal(beyond("no key; attempt 2 of 3", ["no key"]), "attempt 2 of 3");
  assert.equal(beyond("no key", ["no key"]), "");
});

test("changes are told step by step", () => {
  const found = byStep([{ path: "steps.a.timeout" }, { path: "goal" }, { path: "steps.a" }, { path: "steps.b-2.parameters.x" }]);
  assert.deepEqual(found.map(([step, all]) => [step, all.map((each) => each.rest)]), [["a", ["timeout", ""]], ["", ["goal"]], ["b-2", ["parameters.x"]]]);
});

test("a filled-in form asks for just what was filled in", () => {
  const empty = { kind: "goal", text: " Go ", want: "a, b", have: "x=1\ny=it's", acceptance: "", planner: "", budget: "5", deadline: "", mode: "", plan: "", library: "", values: {}, context: "", review: false };
  assert.deepEqual(request(empty), { goal: { text: "Go", want: ["a", "b"], have: { x: 1, y: "it's" }, budget: 5 } });
  assert.equal(command(empty), `leadhand run Go --have x=1 --have 'y=it'\\''s' --want a --want b --budget 5`);
  assert.deepEqual(request({ ...empty, kind: "plan", plan: '{"steps": []}', budget: "", review: true }), { plan: { steps: [] }, review: true });
  assert.deepEqual(pairs("a={\"b\": [1]}\n\nnonsense"), { a: { b: [1] } });
});

test("steps are found by state, worker and words", () => {
  const node = { id: "fetch-2", worker: "http", action: "get", status: "waiting_for_person", outlook: false };
  assert.equal(filter("  "), null);
  for (const text of ["status:input", "status:waiting", "worker:ht", "FETCH http", "id:fetch-2"]) assert.equal(filter(text)(node), true, text);
  for (const text of ["status:failed", "worker:ht nothing"]) assert.equal(filter(text)(node), false, text);
});

test("a text is found by words in any order", () => {
  assert.ok(hasWords("Charge every customer", "custo CHARGE"));
  assert.ok(hasWords("Runs", ""));
  assert.ok(!hasWords("Runs", "runs inbox"));
});

test("parameters are sent by their type, and what is left empty is not sent", () => {
  const params = [["s", "string"], ["i", "integer"], ["b", "boolean"], ["o", "object"], ["e", "integer", [1, 2]], ["n", "string"]].map(([name, type, choices = null]) => ({ name, type, choices }));
  const values = { s: "12", i: "12", b: "false", o: '{"a": 1}', e: "2", n: "" };
  assert.deepEqual(given(params, values), { s: "12", i: 12, b: false, o: { a: 1 }, e: 2 });
  const form = { kind: "library", library: "deploy", values, budget: "", context: "", planner: "", review: false };
  assert.deepEqual(request(form, params), { library: "deploy", params: given(params, values) });
  assert.equal(command(form, params), `leadhand run deploy --set s=12 --set i=12 --set b=false --set 'o={"a": 1}' --set e=2`);
});
