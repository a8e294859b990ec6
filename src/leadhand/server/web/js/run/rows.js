// Plan and execution on the same rows: each step as approved, and how its time was spent.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { api } from "../api.js";
import { ask, route, to } from "../router.js";
import { now, onRefetch, resource, soon } from "../store.js";
import { ENDED, filter, shown, stepState } from "../status.js";
import { duration, label, millis, origin, short } from "../text.js";
import { StepSearch, stepCount } from "./graph.js";
import { Empty, Glyph, Loading, Tag, Trouble, Txt } from "../ui/parts.js";

const AGAIN_MS = 1000; // the server reads the log of the run for them
const PLAN = "";

export function PlanRows({ live, step }) {
  const { doc, error, load } = useRows(live);
  const ids = useOrder(live, doc);
  const span = useSpan(live, doc);
  const { ids: all, revision } = live.shape.value;
  if (!all.length && revision === null) return html`<${Loading} what="Loading the steps" />`;
  if (!all.length && !doc?.plan.length) return html`<${Empty} title="No steps yet"><p>The planner has not proposed steps yet.</p></${Empty}>`;
  const height = innerWidth > 760 ? 48 : 92;
  const { planner } = live.head.value;
  const row = (place) => (ids[place] === PLAN ? html`<${PlanRow} key="plan" live=${live} doc=${doc} span=${span} />`
    : html`<${StepRow} key=${ids[place]} signal=${live.nodes.get(ids[place])} row=${doc?.rows.get(ids[place])} rows=${doc?.rows} span=${span} planner=${planner} selected=${ids[place] === step} />`);
  return html`<${Tools} live=${live} doc=${doc} shown=${ids.length - (ids[0] === PLAN)} /><${Trouble} error=${error} again=${load} />
    <div class="plan-rows card" onKeyDown=${walk}><div class="plan-row-head" aria-hidden="true"><span>Plan</span><span>State</span><span class="num">Worked</span><${Scale} span=${span} /></div>
      <${Rows} count=${ids.length} height=${height} label="Steps: plan and execution" row=${row} /></div><${Legend} />`;
}

/** Rows by step; after the first time only those that changed are asked for. */
export function useRows(live) {
  const found = useMemo(() => {
    const rows = new Map();
    let seq = 0;
    const made = resource(async (signal) => {
      const doc = await api.rows(live.run, seq, signal);
      for (const row of doc.rows) rows.set(row.id, row);
      seq = doc.seq;
      return { ...doc, rows };
    });
    // Where a run is large, its log is.
    return { ...made, again: soon(made.refresh, Math.max(AGAIN_MS, live.shape.peek().ids.length)) };
  }, [live, live.shape.value.ids.length > AGAIN_MS]);
  useEffect(() => {
    found.refresh();
    const stop = onRefetch(found.soon);
    return () => (stop(), found.drop());
  }, [found]);
  useEffect(found.again, [live.touched.value, live.head.value?.waiting, live.head.value?.status]);
  const { data, error } = found.state.value;
  return { doc: data, error, load: found.refresh };
}

/** The steps of the plan in its order, then those that are only proposed or expected. */
function useOrder(live, doc) {
  const { q: text = "", only = "" } = route.value.query;
  const [turn, setTurn] = useState(0);
  const open = Boolean(text) && !ENDED.has(live.head.value?.status);
  useEffect(() => {
    const timer = open && setInterval(() => setTurn((before) => before + 1), 1000);
    return () => clearInterval(timer);
  }, [open]);
  return useMemo(() => {
    const wanted = filter(text);
    const off = only ? otherwise(doc) : null;
    const place = (id) => doc?.rows.get(id)?.place ?? Infinity;
    const ids = live.shape.value.ids.filter((id) => (!off || off.has(id)) && (!wanted || wanted(live.nodes.get(id)?.peek() ?? { id })));
    const order = new Map(ids.map((id, at) => [id, at]));
    ids.sort((one, other) => place(one) - place(other) || order.get(one) - order.get(other));
    return doc?.plan.length && !wanted && !off ? [PLAN, ...ids] : ids;
  }, [live.shape.value, doc, text, only, turn]);
}

/** The steps that were not done as the approved plan says. */
function otherwise(doc) {
  const steps = (doc?.deviations ?? []).flatMap((each) => each.steps);
  return new Set([...steps, ...[...(doc?.rows.values() ?? [])].filter((row) => row.replaced_by).map((row) => row.id)]);
}

/** Seconds since the run began that are drawn; a long wait before the first step only where it is wanted. */
function useSpan(live, doc) {
  const head = live.head.value;
  const zero = millis(doc?.started ?? head.started);
  const end = doc?.end ?? Math.max((now.value - zero) / 1000, 1);
  const first = Math.min(...[...(doc?.rows.values() ?? [])].slice(0, 50).map((row) => row.segments[0]?.from ?? Infinity));
  const late = Number.isFinite(first) && first > end / 2;
  const from = late && route.value.query.axis !== "all" ? first : 0;
  return { from, to: Math.max(end, from + 0.001), late, end };
}

function Tools({ live, doc, shown: visible }) {
  const { only, axis } = route.value.query;
  const found = doc?.deviations ?? [];
  const late = useSpan(live, doc).late;
  return html`<div class="bar tools"><${StepSearch} />
      ${late && html`<button type="button" class="small" onClick=${() => ask({ axis: axis === "all" ? "" : "all" })}>${axis === "all" ? "Start the time axis at the approval" : "Show the time before the approval"}</button>`}
      <span class="push muted">${stepCount(live, visible)}</span></div>
    ${doc?.approved > 0 && (found.length ? html`<div class="otherwise note tone-warn"><b>Deviations from the approved plan:</b> ${doc.deviated} <button type="button" class="small" aria-pressed=${only ? "true" : "false"} onClick=${() => ask({ only: only ? "" : "otherwise" })}>${only ? "Show all steps" : "Show only these steps"}</button>
      <${Told} found=${found.slice(0, TOLD)} />${found.length > TOLD && html`<details><summary>${found.length - TOLD} more</summary><${Told} found=${found.slice(TOLD)} /></details>`}</div>`
      : html`<p class="otherwise muted">Nothing was done outside the approved plan (revision ${doc.approved}).</p>`)}
    ${doc?.expected?.length > 0 && html`<p class="otherwise muted">Added by later revisions, as the approved plan expected: <${Txt} v=${short(doc.expected.join(", "), 300)} />.</p>`}`;
}

const TOLD = 8;

function Told({ found }) {
  return html`<ul aria-label="Deviations">${found.map((each) => html`<li>${each.kind !== "revision" && html`${each.steps.slice(0, 5).map((id) => html`<button type="button" class="small plain mono" onClick=${() => ask({ step: id })}><${Txt} v=${id} /></button> `)}${each.steps.length > 5 ? `and ${each.steps.length - 5} more ` : ""}`}<${Txt} v=${each.text} /></li>`)}</ul>`;
}

function Scale({ span }) {
  const marks = [0, 0.25, 0.5, 0.75, 1];
  return html`<span class="scale">${marks.map((share) => html`<i style=${{ left: `${share * 100}%` }}>${duration(span.from + (span.to - span.from) * share)}</i>`)}</span>`;
}

/** @type {Record<string, [string, string]>} tone and words of what a segment is */
const KINDS = {
  dependencies: ["faint", "Waiting for dependencies"], start_time: ["quiet", "Waiting for the start time"], queued: ["quiet", "Ready, waiting for a free worker"], held: ["ask", "Held"],
  retry: ["warn", "Retry pause"], attempt: ["live", "Attempt"], probe: ["live", "Probe of a lost attempt"], question: ["ask", "Waiting for a person"], recovery: ["warn", "Choosing the recovery"],
  planning: ["live", "Planning"], approval: ["ask", "Waiting for approval"], paused: ["warn", "Paused"], check: ["live", "Checking the goal"],
};

function tone(each) {
  if (each.kind !== "attempt" || each.to === null) return KINDS[each.kind][0];
  return each.outcome === "verified" ? "good" : each.outcome === "lost" ? "warn" : "bad";
}

function told(each, end) {
  const what = each.kind === "attempt" ? `Attempt ${each.attempt} by ${each.worker}${each.outcome ? `: ${each.outcome.replaceAll("_", " ")}` : ": running"}` : `${KINDS[each.kind][1]}${each.outcome ? `: ${each.outcome}` : ""}`;
  return `${what}, ${duration((each.to ?? end) - each.from)}${each.reason ? `. ${each.reason}` : ""}`;
}

/** Segments on the time axis; the one that goes on grows with the clock. */
function Lane({ segments, span, name }) {
  const whole = span.to - span.from;
  const place = (each) => {
    const [from, end] = [Math.max(span.from, each.from), each.to ?? span.end];
    return { left: `${((from - span.from) / whole) * 100}%`, width: `${Math.max(0, ((end - from) / whole) * 100)}%` };
  };
  const drawn = segments.filter((each) => (each.to ?? span.end) >= span.from);
  return html`<span class="lane" role="img" aria-label=${`${name}: ${segments.map((each) => told(each, span.end)).join("; ") || "not started"}`}>${drawn.map((each, at) => html`<i key=${at} class="seg seg-${each.kind} tone-${tone(each)}" title=${told(each, span.end)} style=${place(each)}></i>`)}</span>`;
}

function PlanRow({ live, doc, span }) {
  const waited = doc.plan.filter((each) => each.kind === "approval").reduce((sum, each) => sum + (each.to ?? span.end) - each.from, 0);
  return html`<div class="row plan-row of-plan" role="listitem"><div class="step"><a data-item href=${to(["runs", live.run, "plan"])}>Plan</a><span class="sub cut">revision ${live.head.value.proposed_revision ?? live.head.value.revision}${waited >= 1 ? `, ${duration(waited)} waiting for approval` : ""}</span></div>
    <span></span><span class="num"></span><${Lane} segments=${doc.plan} span=${span} name="Plan" /></div>`;
}

/** Seconds in which a worker was at work, or null before the first attempt. */
export function workedOf(segments, end) {
  const made = segments.filter((each) => each.kind === "attempt" || each.kind === "probe");
  return made.length ? made.reduce((sum, each) => sum + (each.to ?? end) - each.from, 0) : null;
}

function StepRow({ signal, row, rows, span, planner, selected }) {
  if (!signal) return null;
  const node = signal.value;
  const { tone: color, word, shape } = stepState(shown(node));
  const segments = row?.segments ?? [];
  const worked = workedOf(segments, span.end);
  const open = () => ask({ step: node.id });
  const said = why(node, row, rows?.get(row?.replaced_by), planner);
  return html`<div class="row plan-row tone-${color} ${selected ? "selected" : ""} ${row?.replaced_by ? "replaced" : ""}" role="listitem" data-step=${node.id} onClick=${open}>
    <div class="step"><span class="first"><button type="button" class="plain cut" data-item onClick=${(event) => (event.stopPropagation(), open())}><${Txt} v=${short(node.id, 60)} /></button>${row?.added && html`<${Tag} tone=${row.added.expected ? "quiet" : "warn"}>${row.added.expected ? "expected," : "added by"} revision ${row.added.revision}</${Tag}>`}${row?.verified === false && html`<${Tag} tone="warn">not verified</${Tag}>`}</span>
      <span class="sub cut" title=${said}><${Txt} v=${said} /></span></div>
    <span class="status tone-${color}"><${Glyph} shape=${shape} spin=${shape === "ring"} />${label(word)}${node.attempts > 1 ? html`<span class="muted"> ×${node.attempts}</span>` : ""}</span>
    <span class="num figure">${worked === null ? "" : duration(worked)}</span>
    <${Lane} segments=${segments} span=${span} name=${node.id} /></div>`;
}

const TELLING = new Set(["failed", "skipped", "cancelled", "retrying", "waiting_for_person", "waiting_for_approval", "held"]);

/** The second line of a row: what went otherwise and why; else what the plan says of the step. */
function why(node, row, heir, planner) {
  const planned = [[row?.worker ?? node.worker, row?.action ?? node.action].filter(Boolean).join(" "), row?.depends_on?.length ? `after ${row.depends_on.join(", ")}` : "", row?.criteria ? `must hold: ${row.criteria}` : row?.description ?? ""].filter(Boolean).join(" · ");
  const other = row && node.worker && node.worker !== row.worker ? `by ${node.worker} instead of ${row.worker}` : "";
  const replaced = row?.replaced_by ? `→ replaced by ${row.replaced_by}${node.reason || heir?.added?.because ? `: ${node.reason || heir.added.because}` : ""}` : "";
  const added = row?.added ? `${row.replaces ? `replaces ${row.replaces}, ` : ""}${origin(row.added.author, planner)}${row.added.because ? `: ${row.added.because}` : ""}` : "";
  return [replaced || (TELLING.has(shown(node)) && node.reason) || "", added, other, planned].filter(Boolean).join(" · ");
}

function Legend() {
  const samples = [["attempt", "good", "attempt"], ["attempt", "bad", "failed attempt"], ["retry", "warn", "retry pause"], ["question", "ask", "waiting for a person"], ["queued", "quiet", "waiting for start time or worker"], ["dependencies", "faint", "waiting for dependencies"]];
  return html`<p class="legend muted" aria-hidden="true">${samples.map(([kind, color, words]) => html`<span><i class="seg seg-${kind} tone-${color}"></i>${words}</span>`)}</p>`;
}

/** Up and down go from row to row. */
function walk(event) {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const row = event.target.closest(".plan-row");
  const next = event.key === "ArrowDown" ? row?.nextElementSibling : row?.previousElementSibling;
  const item = (row ? next : event.currentTarget.querySelector(".plan-row"))?.querySelector("[data-item]");
  if (!item) return;
  event.preventDefault();
  item.focus();
}

const OVER = 8;

/** A long list of rows of one height: only those in view are in the document. One may be open, and taller.
 * @param {{count: number, height: number, row: (place: number) => any, follow?: boolean, label: string, role?: string,
 *   open?: number, more?: number}} given the row at `open` is taller by `more` pixels */
export function Rows({ count, height, row, follow = false, label, role = "list", open = -1, more = 0 }) {
  const box = useRef(null);
  const [range, setRange] = useState([0, 40]);
  const stuck = useRef(follow);
  const look = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    stuck.current = follow && open < 0 && scrollTop + clientHeight > scrollHeight - 2 * height;
    const above = open >= 0 && scrollTop > (open + 1) * height ? more : 0;
    const from = Math.max(0, Math.floor((scrollTop - above) / height) - OVER);
    const to = Math.ceil((scrollTop + clientHeight) / height) + OVER;
    if (from !== range[0] || to !== range[1]) setRange([from, to]);
  };
  useLayoutEffect(() => {
    if (stuck.current && open < 0) box.current.scrollTop = box.current.scrollHeight;
    look();
    const watch = new ResizeObserver(look);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [count, follow, open]);
  const [from, to] = [range[0], Math.min(count, range[1])];
  const shown = [];
  for (let place = from; place < to; place++) shown.push(row(place));
  return html`<div class="rows" ref=${box} onScroll=${look} tabindex="0" role="region" aria-label=${label}>
    <div role=${role} class="rows-all" style=${{ height: `${count * height + (open >= 0 ? more : 0)}px` }}><div role="presentation" class="rows-shown" style=${{ transform: `translateY(${from * height + (open >= 0 && open < from ? more : 0)}px)` }}>${shown}</div></div></div>`;
}
