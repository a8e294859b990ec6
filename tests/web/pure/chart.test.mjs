// Axes of charts: round marks that hold every value.
import test from "node:test";
import assert from "node:assert/strict";
import { marks, nearest, timeMarks } from "../../../src/leadhand/server/web/js/scale.js";

test("marks are round, few, and reach the largest value", () => {
  assert.deepEqual(marks(4), [0, 1, 2, 3, 4]);
  assert.deepEqual(marks(1), [0, 0.25, 0.5, 0.75, 1]);
  assert.deepEqual(marks(0.3), [0, 0.1, 0.2, 0.3]);
  for (const most of [0, 0.0003, 0.07, 1, 7, 99, 101, 12345]) {
    const found = marks(most);
    assert.ok(found.length >= 2 && found.length <= 6, `${most}: ${found}`);
    assert.ok(found.at(-1) >= most, `${most}: ${found}`);
  }
});

test("times are marked at round places, within their range and not too many", () => {
  const from = 1_790_000_123;
  for (const span of [20, 600, 7200, 86400 * 2, 86400 * 7, 86400 * 90]) {
    const found = timeMarks(from, from + span, 6);
    assert.ok(found.length >= 1 && found.length <= 7, `${span}: ${found.length}`);
    assert.ok(found.every(([at]) => at >= from && at <= from + span));
  }
});

test("the nearest column is found at both ends and between", () => {
  assert.equal(nearest([0, 10, 20], -5), 0);
  assert.equal(nearest([0, 10, 20], 14), 1);
  assert.equal(nearest([0, 10, 20], 99), 2);
});
