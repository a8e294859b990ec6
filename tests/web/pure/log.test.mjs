// The search in a log, and sizes.
import test from "node:test";
import assert from "node:assert/strict";
import { matches, size } from "../../../src/leadhand/server/web/js/text.js";

test("a log is searched whatever the case, and places stay true", () => {
  assert.deepEqual([...matches("Error: an ERROR", "error")], [0, 10]);
  assert.deepEqual([...matches("aaaa", "aa")], [0, 2]);
  assert.deepEqual([...matches("text", "")], []);
  assert.deepEqual([...matches("\u0130 Error", "Error")], [2]); // its small form is longer
  const many = matches("x".repeat(3000), "x");
  assert.deepEqual([many.length, many.more], [2000, true]);
  assert.deepEqual([size(999), size(48_200), size(2_340_000)], ["999 bytes", "48 KB", "2.3 MB"]);
});
