// Where steps stand: by what comes before them, without overlap, whatever the graph.
import test from "node:test";
import assert from "node:assert/strict";
import { PLAIN_MAX, SIZE, bundled, curve, index, layout, part, ranks } from "../../../src/leadhand/server/web/js/run/layout.js";

/** A sequence that is the same on every run. */
function dice(seed) {
  return () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };
}

function random(count, seed) {
  const roll = dice(seed);
  const ids = Array.from({ length: count }, (_, place) => `s${place}`);
  const edges = [];
  for (let to = 1; to < count; to++) {
    for (let each = Math.floor(roll() * 3); each > 0; each--) edges.push([`s${Math.floor(roll() * to)}`, `s${to}`]);
  }
  return { ids, edges };
}

function large(count, width) {
  const ids = Array.from({ length: count }, (_, place) => `s${place}`);
  const edges = [];
  for (let to = width; to < count; to++) {
    edges.push([`s${to - width}`, `s${to}`]);
    if (to % 3 === 0) edges.push([`s${to - width + (to % 5)}`, `s${to}`]);
  }
  return { ids, edges };
}

test("a step stands to the right of all it depends on", () => {
  for (let seed = 1; seed <= 50; seed++) {
    const { ids, edges } = random(40, seed);
    const { x } = layout(ids, edges);
    for (const [from, to] of edges) assert.ok(x[ids.indexOf(from)] + SIZE.width < x[ids.indexOf(to)], `seed ${seed}: ${from} ${to}`);
  }
});

test("no two steps touch", () => {
  for (let seed = 1; seed <= 50; seed++) {
    const { ids, edges } = random(60, seed);
    const { x, y } = layout(ids, edges);
    for (let one = 0; one < ids.length; one++) {
      for (let other = 0; other < one; other++) {
        const apart = Math.abs(x[one] - x[other]) >= SIZE.width || Math.abs(y[one] - y[other]) >= SIZE.height;
        assert.ok(apart, `seed ${seed}: ${ids[one]} and ${ids[other]}`);
      }
    }
  }
});

test("everything lies inside the size that is told", () => {
  const { ids, edges } = random(80, 7);
  const { x, y, width, height } = layout(ids, edges);
  ids.forEach((id, place) => {
    assert.ok(x[place] >= 0 && x[place] + SIZE.width <= width + 1e-6, id);
    assert.ok(y[place] - SIZE.height / 2 >= -1e-6 && y[place] + SIZE.height / 2 <= height + 1e-6, id);
  });
});

test("a chain keeps its order, and crossings that can be avoided are", () => {
  const { y } = layout(["a", "b", "c", "d"], [["a", "d"], ["b", "c"]]);
  assert.ok(y[0] < y[1] === y[3] < y[2]);
});

test("cycles, loops and unknown steps are survived", () => {
  const found = layout(["a", "b"], [["a", "b"], ["b", "a"], ["a", "a"], ["a", "ghost"]]);
  assert.equal(found.x.length >= 2, true);
  assert.deepEqual(layout([], []).height, 0);
});

test("a layer that would be a needle is wrapped", () => {
  const ids = Array.from({ length: 400 }, (_, place) => `s${place}`);
  const { width, height } = layout(ids, []);
  assert.ok(width / height < 8 && height / width < 8, `${width} by ${height}`);
});

test("ten thousand steps are all placed", () => {
  const { ids, edges } = large(10000, 25); // how long it takes is measured by bench/page.py
  const { x, y } = layout(ids, edges);
  assert.ok(ids.every((_, place) => Number.isFinite(x[place]) && Number.isFinite(y[place])));
});

test("an edge is a path with finite numbers", () => {
  assert.match(curve([0, 0], [300, 50], [[200, 20]]), /^M[\d.-]+ [\d.-]+C.*H.*C/);
  assert.doesNotMatch(curve([0, 0], [300, 50], []), /NaN|undefined/);
});

test("ranks are longest paths", () => {
  assert.deepEqual([...ranks(index(["a", "b", "c"], [["a", "b"], ["b", "c"], ["a", "c"]]))], [0, 1, 2]);
});

function nodes(count, width) {
  const names = ["fetch", "clean", "join"];
  return Array.from({ length: count }, (_, place) => ({ id: `s${place}`, worker: names[Math.floor(place / width) % 3] }));
}

test("a small graph is drawn as it is", () => assert.equal(bundled(nodes(PLAIN_MAX, 25), []), null));

test("a large graph becomes a few bundles that hold every step once", () => {
  const { edges } = large(10000, 25);
  const found = bundled(nodes(10000, 25), edges);
  assert.ok(found.bundles.length <= 120 && found.bundles.length > 1);
  assert.equal(new Set(found.bundles.flatMap((bundle) => bundle.members)).size, 10000);
  found.edges.forEach(([from, to]) => assert.ok(parseInt(from, 10) < parseInt(to, 10)));
});

test("opening bundles comes to single steps in the end", () => {
  for (const { edges } of [{ edges: [] }, large(10000, 1), large(10000, 5000)]) {
    let [members, depth] = [nodes(10000, 1), 0];
    for (let found = bundled(members, edges); found; found = bundled(members, edges)) {
      const most = found.bundles.reduce((one, other) => (one.members.length > other.members.length ? one : other));
      assert.ok(most.members.length < members.length, "no way down");
      members = part(members, edges, most.members).nodes;
      assert.ok(++depth < 10);
    }
  }
});

test("a layer of more than 40 steps is grouped by worker; the rest is drawn as it is", () => {
  const steps = [{ id: "first", worker: "plan" }, ...Array.from({ length: 140 }, (_, n) => ({ id: `s${n}`, worker: n % 2 ? "fetch" : "read" })), { id: "odd", worker: "rare" }, { id: "last", worker: "join" }];
  const middle = steps.slice(1, -1).map((step) => step.id);
  const edges = middle.flatMap((id) => [["first", id], [id, "last"]]);
  const found = bundled(steps, edges);
  assert.deepEqual(found.bundles.map((each) => [each.label, each.members.length]).sort(), [["fetch", 70], ["join", 1], ["plan", 1], ["rare", 1], ["read", 70]]);
  assert.ok(found.bundles.every((each) => each.members.length > 1 || each.key === each.members[0]));
  assert.equal(found.edges.length, 6);
  assert.equal(bundled(part(steps, edges, found.bundles.find((each) => each.label === "fetch").members).nodes, []), null);
  assert.equal(bundled(steps.slice(0, 41), edges), null);
});
