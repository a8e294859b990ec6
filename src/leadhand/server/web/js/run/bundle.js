// A large graph as a small one: steps of one worker at one depth stand together as a bundle. Pure.
import { index, ranks } from "./layout.js";

export const PLAIN_MAX = 1200;
const BANDS_MAX = 10;
const BUNDLES_MAX = 120;
const CHUNKS = 40;

/**
 * @param {{id: string, worker: string}[]} nodes in the order of the plan
 * @param {[string, string][]} edges
 * @returns {null | {bundles: {key: string, label: string, members: string[]}[],
 *   edges: [string, string][], of: Map<string, string>, ranks: number[]}} null when it can be drawn as it is
 */
export function bundled(nodes, edges, plainMax = PLAIN_MAX) {
  if (nodes.length <= plainMax) return null;
  const band = bands(ranks(index(nodes.map((node) => node.id), edges)));
  let groups = grouped(nodes, (node, place) => `${band(place)}|${node.worker}`);
  if (groups.size > BUNDLES_MAX) groups = grouped(nodes, (_node, place) => `${band(place)}|`);
  if (groups.size < 2) groups = chunks(nodes);
  const bundles = Array.from(groups, ([key, members]) => ({ key, label: label(members), members: members.map((node) => node.id) }));
  const of = new Map(bundles.flatMap((bundle) => bundle.members.map((id) => [id, bundle.key])));
  // Bundles of one band stand above each other: edges between them would run in circles.
  const depths = new Map(bundles.map((bundle) => [bundle.key, Number.parseInt(bundle.key, 10) || 0]));
  const onward = between(edges, of).filter(([from, to]) => depths.get(from) < depths.get(to));
  return { bundles, edges: onward, of, ranks: [...depths.values()] };
}

/** Layers gathered into so many that they can be seen at once. */
function bands(rank) {
  const depth = rank.reduce((most, each) => Math.max(most, each), 0) + 1;
  return (place) => Math.floor((rank[place] * Math.min(depth, BANDS_MAX)) / depth);
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

function label(members) {
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
