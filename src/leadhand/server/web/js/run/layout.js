// Where the steps of a graph stand: layers by longest path, order by barycentres. Pure.
//
// Linear in nodes and edges but for the sorting of layers, so that a thousand steps take some
// milliseconds. A layer that would be a needle is wrapped into columns.

export const SIZE = { width: 166, height: 48, gapX: 38, gapY: 16, column: 20 };
const SWEEPS = 8;
const WAYPOINTS_MAX = 4000;
const WAYPOINT_HEIGHT = 10;

/**
 * @param {string[]} ids
 * @param {[string, string][]} edges from, to; those that name unknown steps are left out
 * @param {ArrayLike<number> | null} given layers that are already known
 * @returns {{x: Float64Array, y: Float64Array, width: number, height: number,
 *   layers: number[][], edges: {from: number, to: number, points: [number, number][]}[]}}
 */
export function layout(ids, edges, size = SIZE, given = null) {
  const graph = index(ids, edges);
  const rank = given ?? ranks(graph);
  const long = withWaypoints(graph, rank);
  const layers = toLayers(long.count, long.rank);
  sort(layers, long.after, long.before);
  const placed = place(layers, long, size);
  return {
    ...placed,
    layers,
    edges: long.chains.map((chain) => ({
      from: chain[0], to: chain[chain.length - 1],
      points: chain.slice(1, -1).map((node) => [placed.x[node], placed.y[node]]),
    })),
  };
}

/** Ids as numbers, each with its neighbours. */
export function index(ids, edges) {
  const number = new Map(ids.map((id, place) => [id, place]));
  const after = ids.map(() => []);
  const before = ids.map(() => []);
  for (const [from, to] of edges) {
    const [one, other] = [number.get(from), number.get(to)];
    if (one === undefined || other === undefined || one === other) continue;
    after[one].push(other);
    before[other].push(one);
  }
  return { count: ids.length, after, before };
}

/** The layer of each node: one after the last of those before it. Cycles are cut, not refused. */
export function ranks({ count, after, before }) {
  const rank = new Int32Array(count);
  const left = Int32Array.from(before, (list) => list.length);
  const queue = [];
  for (let node = 0; node < count; node++) if (!left[node]) queue.push(node);
  for (let head = 0; head < queue.length; head++) {
    for (const next of after[queue[head]]) {
      rank[next] = Math.max(rank[next], rank[queue[head]] + 1);
      if (--left[next] === 0) queue.push(next);
    }
  }
  // A step without predecessors stands just before the first that needs it.
  for (const node of queue) {
    if (before[node].length || !after[node].length) continue;
    rank[node] = Math.max(0, Math.min(...after[node].slice(0, 1000).map((next) => rank[next])) - 1);
  }
  return rank;
}

/** Edges over more than one layer get points on the way, as long as there are not too many. */
function withWaypoints({ count, after }, rank) {
  let extra = 0;
  for (let node = 0; node < count; node++) {
    for (const next of after[node]) extra += Math.max(0, rank[next] - rank[node] - 1);
  }
  const bend = extra <= WAYPOINTS_MAX;
  const long = { count, real: count, rank: Array.from(rank), after: [], before: [], chains: [] };
  for (let node = 0; node < count; node++) (long.after.push([]), long.before.push([]));
  const join = (from, to) => (long.after[from].push(to), long.before[to].push(from));
  for (let node = 0; node < count; node++) {
    for (const next of after[node]) {
      const chain = [node];
      for (let layer = rank[node] + 1; bend && layer < rank[next]; layer++) {
        chain.push(long.count++);
        long.rank.push(layer);
        long.after.push([]);
        long.before.push([]);
      }
      chain.push(next);
      for (let place = 1; place < chain.length; place++) join(chain[place - 1], chain[place]);
      long.chains.push(chain);
    }
  }
  return long;
}

function toLayers(count, rank) {
  const layers = [];
  for (let node = 0; node < count; node++) (layers[rank[node]] ??= []).push(node);
  return Array.from(layers, (layer) => layer ?? []);
}

/** Barycentre sweeps, forth and back; the order of the last one stands. */
function sort(layers, after, before) {
  const place = [];
  const note = (layer) => layer.forEach((node, at) => (place[node] = at));
  layers.forEach(note);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const forth = sweep % 2 === 0;
    const neighbours = forth ? before : after;
    for (let step = 1; step < layers.length; step++) {
      const layer = layers[forth ? step : layers.length - 1 - step];
      const centre = new Map(layer.map((node) => [node, mean(neighbours[node], place) ?? place[node]]));
      layer.sort((one, other) => centre.get(one) - centre.get(other) || place[one] - place[other]);
      note(layer);
    }
  }
}

function mean(nodes, values) {
  if (!nodes.length) return null;
  let sum = 0;
  for (const node of nodes) sum += values[node];
  return sum / nodes.length;
}

/** Coordinates: layers from left to right, each node near the middle of its neighbours. */
function place(layers, long, size) {
  const x = new Float64Array(long.count);
  const y = new Float64Array(long.count);
  const rows = Math.max(14, Math.ceil(Math.sqrt(long.real * 1.6)));
  const tall = (node) => (node < long.real ? size.height : WAYPOINT_HEIGHT);
  let left = 0;
  for (const layer of layers) {
    const columns = Math.max(1, Math.ceil(layer.length / rows));
    stack(layer, columns, left, { x, y, tall, size });
    left += columns * (size.width + size.column) - size.column + size.gapX;
  }
  if (layers.every((layer) => layer.length <= rows)) settle(layers, long, y, { tall, gap: size.gapY });
  return { x, y, ...normalised(y, long, size), width: Math.max(0, left - size.gapX) };
}

function stack(layer, columns, left, { x, y, tall, size }) {
  const per = Math.ceil(layer.length / columns);
  for (let column = 0; column < columns; column++) {
    const part = layer.slice(column * per, (column + 1) * per);
    const height = part.reduce((sum, node) => sum + tall(node) + size.gapY, -size.gapY);
    let top = -height / 2;
    for (const node of part) {
      x[node] = left + column * (size.width + size.column);
      y[node] = top + tall(node) / 2;
      top += tall(node) + size.gapY;
    }
  }
}

function settle(layers, long, y, room) {
  for (let sweep = 0; sweep < 6; sweep++) {
    const forth = sweep % 2 === 0;
    const neighbours = forth ? long.before : long.after;
    for (let step = 0; step < layers.length; step++) {
      const layer = layers[forth ? step : layers.length - 1 - step];
      spread(layer, layer.map((node) => mean(neighbours[node], y) ?? y[node]), y, room);
    }
  }
}

/** Nodes of a layer at their wishes, in order and without touching; their middle stays. */
function spread(layer, wishes, y, { tall, gap }) {
  let floor = -Infinity;
  let shift = 0;
  layer.forEach((node, at) => {
    const half = tall(node) / 2;
    y[node] = Math.max(wishes[at], floor + half);
    floor = y[node] + half + gap;
    shift += wishes[at] - y[node];
  });
  shift /= layer.length || 1;
  for (const node of layer) y[node] += shift;
}

function normalised(y, long, size) {
  let [top, bottom] = [Infinity, -Infinity];
  for (let node = 0; node < long.real; node++) {
    top = Math.min(top, y[node]);
    bottom = Math.max(bottom, y[node]);
  }
  if (top === Infinity) return { height: 0 };
  for (let node = 0; node < long.count; node++) y[node] += size.height / 2 - top;
  return { height: bottom - top + size.height };
}

/** An edge as an SVG path: out of the right side of one, into the left side of the other. */
export function curve(from, to, points, size = SIZE) {
  let [x, y] = [from[0] + size.width, from[1]];
  let path = `M${fixed(x)} ${fixed(y)}`;
  const on = (nextX, nextY) => {
    const bend = Math.max(14, Math.abs(nextX - x) / 2);
    path += `C${fixed(x + bend)} ${fixed(y)} ${fixed(nextX - bend)} ${fixed(nextY)} ${fixed(nextX)} ${fixed(nextY)}`;
    [x, y] = [nextX, nextY];
  };
  for (const [wayX, wayY] of points) {
    on(wayX, wayY);
    path += `H${fixed(wayX + size.width)}`;
    x = wayX + size.width;
  }
  on(to[0], to[1]);
  return path;
}

/** From a step to the one that took its place: between their middles, and nodes cover the ends. */
export function bridge(from, to, size = SIZE) {
  const middle = ([x, y]) => `${fixed(x + size.width / 2)} ${fixed(y)}`;
  return `M${middle(from)}L${middle(to)}`;
}

function fixed(value) {
  return Math.round(value * 10) / 10;
}

// A wide graph as a narrow one: steps of one worker at one depth stand together as a group.

export const PLAIN_MAX = 1200;
const LAYER_MAX = 40;
const GROUP_MIN = 5;
const BANDS_MAX = 10;
const GROUPS_MAX = 120;
const CHUNKS = 40;

/**
 * @param {{id: string, worker: string}[]} nodes in the order of the plan
 * @param {[string, string][]} edges
 * @returns {null | {bundles: {key: string, label: string, members: string[]}[],
 *   edges: [string, string][], of: Map<string, string>, ranks: number[]}} null when it can be drawn as it is;
 *   a group of one member is the step itself, and its key the step's id
 */
export function bundled(nodes, edges, plainMax = PLAIN_MAX) {
  const rank = ranks(index(nodes.map((node) => node.id), edges));
  const large = nodes.length > plainMax;
  const groups = large ? banded(nodes, rank) : layered(nodes, rank);
  if (!groups) return null;
  const bundles = Array.from(groups, ([key, members]) => ({ key: members.length === 1 ? members[0].id : key, label: named(members), members: members.map((node) => node.id) }));
  const of = new Map(bundles.flatMap((bundle) => bundle.members.map((id) => [id, bundle.key])));
  // Groups of one band stand above each other: edges between them would run in circles.
  const depths = new Map(Array.from(groups.keys(), (key, place) => [bundles[place].key, Number.parseInt(key, 10) || 0]));
  const onward = between(edges, of).filter(([from, to]) => depths.get(from) < depths.get(to));
  return { bundles, edges: onward, of, ranks: [...depths.values()] };
}

/** Layers gathered into so many that they can be seen at once. */
function banded(nodes, rank) {
  const depth = rank.reduce((most, each) => Math.max(most, each), 0) + 1;
  const band = (place) => Math.floor((rank[place] * Math.min(depth, BANDS_MAX)) / depth);
  let groups = grouped(nodes, (node, place) => `${band(place)}|${node.worker}`);
  if (groups.size > GROUPS_MAX) groups = grouped(nodes, (_node, place) => `${band(place)}|`);
  return groups.size < 2 ? chunks(nodes) : groups;
}

/** Only layers of too many steps are grouped, by worker; null when there is none, or nothing beside it. */
function layered(nodes, rank) {
  const sizes = [];
  for (const each of rank) sizes[each] = (sizes[each] ?? 0) + 1;
  if (sizes.length < 2 || sizes.every((size) => size <= LAYER_MAX)) return null;
  const groups = grouped(nodes, (node, place) => (sizes[rank[place]] > LAYER_MAX ? `${rank[place]}|${node.worker}` : `${rank[place]}|${node.worker}|${node.id}`));
  const found = new Map();
  for (const [key, members] of groups) {
    if (members.length >= GROUP_MIN) found.set(key, members);
    else for (const node of members) found.set(`${key}|${node.id}`, [node]);
  }
  return found;
}

function grouped(nodes, keyOf) {
  const groups = new Map();
  nodes.forEach((node, place) => {
    const key = keyOf(node, place);
    groups.has(key) ? groups.get(key).push(node) : groups.set(key, [node]);
  });
  return groups;
}

/** Steps side by side, cut by their order. */
function chunks(nodes) {
  const per = Math.ceil(nodes.length / CHUNKS);
  return grouped(nodes, (_node, place) => `chunk ${Math.floor(place / per)}`);
}

function named(members) {
  const workers = new Set(members.map((node) => node.worker));
  if (workers.size === 1) return members[0].worker || members[0].id;
  return `${workers.size} workers`;
}

function between(edges, of) {
  const seen = new Set();
  const found = [];
  for (const [from, to] of edges) {
    const [one, other] = [of.get(from), of.get(to)];
    const key = `${one}\n${other}`;
    if (one === undefined || other === undefined || one === other || seen.has(key)) continue;
    seen.add(key);
    found.push([one, other]);
  }
  return found;
}

/** The part of a graph that some steps make up. */
export function part(nodes, edges, members) {
  const kept = new Set(members);
  return {
    nodes: nodes.filter((node) => kept.has(node.id)),
    edges: edges.filter(([from, to]) => kept.has(from) && kept.has(to)),
  };
}
