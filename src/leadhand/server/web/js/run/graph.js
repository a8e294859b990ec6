// The live graph of a run. Layout happens when the shape changes; a change of state touches one node.
import { html, signal, useComputed, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { ask, route } from "../router.js";
import { SIZE, bridge, bundled, curve, layout, part } from "./layout.js";
import { Camera } from "./camera.js";
import { useRows, workedOf } from "./rows.js";
import { SHAPES, filter, shown, stepState } from "../status.js";
import { useKeys } from "../keys.js";
import { Empty, Loading, Search } from "../ui/parts.js";
import { count, duration, label, short } from "../text.js";

/** What is drawn: the whole graph, a part of it, or bundles of steps. */
function useDrawn(live, opened) {
  const { ids, edges } = live.shape.value;
  return useMemo(() => {
    let nodes = ids.map((id) => live.nodes.get(id)?.peek()).filter(Boolean);
    let within = edges;
    for (const { members } of opened) ({ nodes, edges: within } = part(nodes, within, members));
    const bundles = bundled(nodes, within);
    const keys = bundles ? bundles.bundles.map((bundle) => bundle.key) : nodes.map((node) => node.id);
    const drawn = layout(keys, bundles ? bundles.edges : within, SIZE, bundles?.ranks);
    return { nodes, bundles, keys, drawn, edges: within };
  }, [live.shape.value, opened]);
}

const READABLE = 0.68;

export function Graph({ live, step }) {
  const { ids, revision } = live.shape.value;
  if (!ids.length && revision === null) return html`<${Loading} what="Loading the graph" />`;
  if (!ids.length) return html`<${Empty} title="No steps yet"><p>The planner has not proposed steps yet.</p></${Empty}>`;
  return html`<${Canvas} live=${live} step=${step} />`;
}

function Canvas({ live, step }) {
  const [opened, setOpened] = useState([]);
  const world = useDrawn(live, opened);
  const camera = useRef(null);
  const svg = useRef(null);
  const group = useRef(null);
  const lines = useRef(null);
  const selected = useMemo(() => signal(step), []);
  selected.value = step;
  const dim = useDim(live, world);
  const { doc } = useRows(live);
  const measured = useMemo(() => signal(null), []);
  measured.value = doc ?? null;
  useLayoutEffect(() => {
    camera.current = new Camera(svg.current, [lines.current, group.current]);
    return () => camera.current.close();
  }, []);
  useLayoutEffect(() => {
    camera.current.touched = false;
    // A small graph is better read in part than seen whole.
    camera.current.fit({ width: world.drawn.width, height: world.drawn.height }, world.keys.length <= 80 ? READABLE : undefined);
  }, [world.drawn]);
  useEffect(() => {
    const at = world.keys.indexOf(step);
    if (at >= 0) camera.current.reveal(world.drawn.x[at], world.drawn.y[at] - SIZE.height / 2, SIZE.width, SIZE.height);
  }, [step, world]);
  useKeys("Graph", {
    "+": ["Nearer", () => camera.current.zoom(1.3)],
    "-": ["Farther", () => camera.current.zoom(1 / 1.3)],
    0: ["All in view", () => camera.current.fit()],
  });
  const open = (target) => {
    if (camera.current.moving) return;
    const node = target.closest("[data-step], [data-bundle]");
    if (node?.dataset.step) ask({ step: node.dataset.step });
    else if (node) setOpened([...opened, world.bundles.bundles.find((bundle) => bundle.key === node.dataset.bundle)]);
  };
  const keys = (event) => {
    if (event.key === "Enter" || event.key === " ") (event.preventDefault(), (camera.current.travelled = 0), open(event.target));
    else if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") walk(event, world, camera.current);
  };
  return html`<${Tools} live=${live} camera=${camera} opened=${opened} setOpened=${setOpened} total=${world.nodes.length} critical=${doc?.critical.length > 1} grouped=${opened.length > 0 || world.bundles} />
    <div class="graph card"><svg class="edges" aria-hidden="true"><g ref=${lines}><${Edges} live=${live} world=${world} critical=${doc?.critical.join("\n")} /></g></svg>
      <svg class="nodes" ref=${svg} role="group" aria-label=${`Graph of ${count(world.nodes.length, "step")}. Arrow keys follow the edges.`} onClick=${(event) => open(event.target)} onKeyDown=${keys}>
      <g ref=${group}><${Drawing} live=${live} world=${world} selected=${selected} dim=${dim} measured=${measured} /></g></svg></div>`;
}

/** Apart from the rest, so that a selected step or a zoom does not touch a thousand nodes. */
function Drawing({ live, world, selected, dim, measured }) {
  const counts = useBundleCounts(live, world);
  return useMemo(() => {
    const { drawn, bundles, keys } = world;
    return keys.map((key, place) => (bundles?.bundles[place].members.length > 1
      ? html`<${BundleNode} key=${key} bundle=${bundles.bundles[place]} counts=${counts} x=${drawn.x[place]} y=${drawn.y[place]} focusable=${place === 0} />`
      : html`<${StepNode} key=${key} signal=${live.nodes.get(key)} x=${drawn.x[place]} y=${drawn.y[place]} selected=${selected} dim=${dim} measured=${measured} focusable=${place === 0} />`));
  }, [world]);
}

/** All edges are a few paths in a layer of their own: a step that changes does not have them drawn again. */
function Edges({ live, world, critical = "" }) {
  return useMemo(() => {
    const { drawn, keys } = world;
    const at = (node) => [drawn.x[node], drawn.y[node]];
    const paths = { edge: "", "edge faint": "", "edge critical": "", "edge replaced": "" };
    const places = new Map(keys.map((key, place) => [key, place]));
    const placeOf = (id) => places.get(world.bundles?.of.get(id) ?? id);
    const path = critical.split("\n").map(placeOf);
    const pairs = new Set(path.slice(1).map((place, before) => `${path[before]} ${place}`));
    for (const { from, to, points } of drawn.edges) paths[pairs.has(`${from} ${to}`) ? "edge critical" : faint(live, world, keys[to]) ? "edge faint" : "edge"] += curve(at(from), at(to), points);
    for (const pair of live.shape.peek().replaces) {
      const [old, heir] = pair.map(placeOf);
      if (old !== undefined && heir !== undefined && old !== heir) paths["edge replaced"] += bridge(at(old), at(heir));
    }
    return Object.entries(paths).map(([kind, path]) => path && html`<path class=${kind} d=${path} />`);
  }, [world, critical]);
}

function faint(live, world, key) {
  return Boolean(live.nodes.get(key)?.peek().outlook);
}

/** How many members of each bundle have which tone; kept by what changes, never counted again. */
function useBundleCounts(live, world) {
  const counts = useMemo(() => signal({}), []);
  useMemo(() => {
    const found = {};
    for (const node of world.bundles ? world.nodes : []) count1(found, world.bundles.of.get(node.id), tone(live.nodes.get(node.id)?.peek() ?? node), 1);
    counts.value = found;
  }, [world]);
  useEffect(() => {
    if (!world.bundles) return undefined;
    let waiting = null;
    const flush = () => ((counts.value = waiting), (waiting = null));
    return live.onChange((before, after) => {
      const [was, is] = [tone(before), tone(after)];
      const key = world.bundles.of.get(after.id);
      if (was === is || !key) return;
      if (!waiting) ((waiting = { ...counts.peek() }), setTimeout(flush, 100));
      waiting[key] = { ...waiting[key] };
      count1(waiting, key, was, -1);
      count1(waiting, key, is, 1);
    });
  }, [world]);
  return counts;
}

const tone = (node) => stepState(shown(node)).tone;

function count1(counts, key, name, by) {
  if (!key) return;
  (counts[key] ??= {})[name] = (counts[key][name] ?? 0) + by;
}

/** Which steps a filter leaves out; a filter by state is looked at again now and then. */
function useDim(live, world) {
  const dim = useMemo(() => signal(null), []);
  const text = route.value.query.q ?? "";
  useEffect(() => {
    const wanted = filter(text);
    const look = () => (dim.value = wanted ? new Set(live.all().filter((node) => !wanted(node)).map((node) => node.id)) : null);
    look();
    const timer = wanted && setInterval(look, 1000);
    return () => clearInterval(timer);
  }, [text, world]);
  return dim;
}

function Tools({ live, camera, opened, setOpened, total, grouped, critical }) {
  const all = live.shape.value.ids.length;
  return html`<div class="bar tools"><${StepSearch} />
    ${grouped && html`<nav class="path" aria-label="Part of the graph"><button type="button" class="small" disabled=${!opened.length} onClick=${() => setOpened([])}>All ${all.toLocaleString("en")}</button>${opened.map((bundle, place) => html`<span aria-hidden="true">›</span><button type="button" class="small" disabled=${place === opened.length - 1} onClick=${() => setOpened(opened.slice(0, place + 1))}>${bundle.label} ${bundle.members.length.toLocaleString("en")}</button>`)}</nav>`}
    <span class="push muted figure">${stepCount(live, total)}${critical && html`, <span class="critical-key">critical path</span>`}</span>
    <div class="choices" role="group" aria-label="Zoom"><button type="button" aria-label="Zoom out" onClick=${() => camera.current.zoom(1 / 1.3)}>−</button><button type="button" onClick=${() => camera.current.fit()}>Fit</button><button type="button" aria-label="Zoom in" onClick=${() => camera.current.zoom(1.3)}>+</button></div></div>`;
}

/** Steps, without those that others replaced: these are told beside them. */
export function stepCount(live, visible) {
  const total = live.shape.value.ids.length;
  if (visible !== total) return `${visible.toLocaleString("en")} of ${count(total, "step")}`;
  const { proposed, superseded = 0 } = live.counts.value;
  return [count(total - superseded, "step"), proposed && `${proposed} proposed`, superseded && `${superseded} replaced`].filter(Boolean).join(", ");
}

export function StepSearch() {
  return html`<${Search} label="Find steps" hint="Find steps: status:failed worker:…" value=${route.value.query.q ?? ""} onInput=${(text) => ask({ q: text })} />`;
}

/** Arrow keys: right and left follow edges, up and down stay in the layer. */
function walk(event, world, camera) {
  const node = event.target.closest("[data-step], [data-bundle]");
  if (!node) return;
  event.preventDefault();
  const { drawn, keys } = world;
  const here = keys.indexOf(node.dataset.step ?? node.dataset.bundle);
  const next = neighbour(event.key, here, drawn, keys.length);
  const target = next === undefined ? null : node.parentNode.children[next];
  if (!target) return;
  node.setAttribute("tabindex", "-1");
  target.setAttribute("tabindex", "0");
  camera.reveal(drawn.x[next], drawn.y[next] - SIZE.height / 2, SIZE.width, SIZE.height);
  target.focus({ preventScroll: true });
}

function neighbour(key, here, drawn, total) {
  if (key === "Home") return 0;
  if (key === "End") return total - 1;
  if (key === "ArrowRight") return drawn.edges.find((edge) => edge.from === here)?.to;
  if (key === "ArrowLeft") return drawn.edges.find((edge) => edge.to === here)?.from;
  const layer = drawn.layers.find((each) => each.includes(here)).filter((each) => each < total);
  return layer[layer.indexOf(here) + (key === "ArrowDown" ? 1 : -1)];
}

const LETTERS = 14;

/** One step, or a group of steps; each follows its own signal. */
function StepNode({ signal, x, y, selected, dim, measured, focusable }) {
  const { id } = signal.peek();
  const kind = useComputed(() => {
    const { tone, shape } = stepState(shown(signal.value));
    return `node tone-${tone} shape-${shape}${selected.value === id ? " selected" : ""}${dim.value?.has(id) ? " dim" : ""}`;
  });
  const glyph = useComputed(() => SHAPES[stepState(shown(signal.value)).shape]);
  const word = useComputed(() => detail(signal.value, measured.value?.rows.get(id)));
  // From afar the texts are not drawn. The name begins with what is drawn: who speaks to a computer says that.
  const told = useComputed(() => `${short(id, LETTERS)} ${word.value}: ${label(stepState(shown(signal.value)).word)}${id.length > LETTERS ? `. ${short(id, 80)}` : ""}${signal.value.reason ? `. ${signal.value.reason}` : ""}`);
  return html`<g class=${kind} transform="translate(${x} ${y - SIZE.height / 2})" role="button" tabindex=${focusable ? "0" : "-1"} data-step=${id} aria-label=${told}><title>${told}</title>
    <rect width=${SIZE.width} height=${SIZE.height} rx="8" /><path class="mark" transform="translate(10 16)" d=${glyph} />
    <text x="36" y="21">${short(id, LETTERS)}</text>${" "}<text class="sub" x="36" y="37">${word}</text></g>`;
}

/** The state is told by colour and shape: the second line has the reason of a failure, or duration and worker. */
function detail(node, row) {
  if (node.superseded_by) return short(`→ ${node.superseded_by}`, 18);
  if (node.status === "failed" && node.reason) return short(node.reason, 18);
  const tries = node.attempts > 1 ? ` ×${node.attempts}` : "";
  const worked = row && node.ended ? workedOf(row.segments, 0) : null;
  return short([worked === null ? "" : duration(worked), `${node.worker}${tries}`].filter(Boolean).join(" · "), 18);
}

const TONE_ORDER = ["good", "live", "warn", "ask", "bad", "quiet", "faint"];

function BundleNode({ bundle, counts, x, y, focusable }) {
  const tones = counts.value[bundle.key] ?? {};
  const total = bundle.members.length;
  let left = 0;
  const width = SIZE.width - 20;
  const bars = TONE_ORDER.filter((tone) => tones[tone]).map((tone) => {
    const wide = (width * tones[tone]) / total;
    const bar = html`<rect class="share tone-${tone}" x=${10 + left} y="34" width=${Math.max(1, wide - 1)} height="5" rx="1" />`;
    left += wide;
    return bar;
  });
  const words = TONE_ORDER.filter((tone) => tones[tone]).map((tone) => `${tones[tone]} ${WORDS[tone]}`).join(", ");
  return html`<g class="node bundle" transform="translate(${x} ${y - SIZE.height / 2})" role="button" tabindex=${focusable ? "0" : "-1"} data-bundle=${bundle.key} aria-label=${`${short(bundle.label, 15)} ${count(total, "step")}: ${words}. Open`}>
    <rect class="behind" x="5" y="-5" width=${SIZE.width} height=${SIZE.height} rx="8" /><rect width=${SIZE.width} height=${SIZE.height} rx="8" />
    <text x="10" y="20">${short(bundle.label, 15)}</text>${" "}<text class="sub end" x=${SIZE.width - 10} y="20">${total.toLocaleString("en")}</text>${bars}</g>`;
}

const WORDS = { good: "succeeded", live: "running", warn: "recovering", ask: "waiting for approval or input", bad: "failed", quiet: "not started", faint: "expected later" };
