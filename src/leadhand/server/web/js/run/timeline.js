// Steps as rows, and when each was worked on: table and chart are one, so they scroll as one.
import { html, useEffect, useMemo, useState } from "../lib.js";
import { api } from "../api.js";
import { ask, route } from "../router.js";
import { now, soon, useResource } from "../store.js";
import { ENDED, shown, stepState } from "../status.js";
import { duration, label, millis, short } from "../text.js";
import { filter } from "./filter.js";
import { StepSearch } from "./graph.js";
import { Rows } from "../ui/rows.js";
import { Ago, Empty, Glyph, Txt } from "../ui/parts.js";

const HEIGHT = 34;

export function Timeline({ live, step }) {
  const ids = useOrder(live);
  const tries = useTries(live);
  const span = useSpan(live);
  if (!live.shape.value.ids.length) return html`<${Empty} title="No steps yet"><p>Step times are shown here when steps start.</p></${Empty}>`;
  return html`<div class="bar tools"><${StepSearch} /><span class="push muted">${ids.length.toLocaleString("en")} of ${live.shape.value.ids.length.toLocaleString("en")} steps</span></div>
    <${Approvals} waits=${tries.waits?.[""] ?? []} />
    <div class="timeline card"><div class="timeline-head" aria-hidden="true"><span>Step</span><span>State</span><span class="num">Duration</span><${Scale} span=${span} /></div>
      <${Rows} count=${ids.length} height=${HEIGHT} label="Steps and their times" row=${(place) => html`<${Row} key=${ids[place]} signal=${live.nodes.get(ids[place])} tries=${tries.steps[ids[place]]} waits=${tries.waits?.[ids[place]]} span=${span} selected=${ids[place] === step} />`} />
    </div>`;
}

/** In the order they started; those that have not, as planned. Looked at again once a second. */
function useOrder(live) {
  const text = route.value.query.q ?? "";
  const [turn, setTurn] = useState(0);
  const open = !ENDED.has(live.head.value?.status);
  useEffect(() => {
    const timer = open && setInterval(() => setTurn((before) => before + 1), 1000);
    return () => clearInterval(timer);
  }, [open]);
  return useMemo(() => {
    const wanted = filter(text);
    const nodes = live.all().filter((node) => !wanted || wanted(node));
    const place = new Map(live.shape.value.ids.map((id, at) => [id, at]));
    const when = (node) => millis(node.started) || Infinity;
    return nodes.sort((one, other) => when(one) - when(other) || place.get(one.id) - place.get(other.id)).map((node) => node.id);
  }, [live.shape.value, text, turn]);
}

const TRIES_MS = 1000; // the server reads the whole log of the run for them
const NO_TRIES = { steps: {}, waits: {} };

/** The times of single attempts, of steps that had several, and of waits; asked for again on changes. */
function useTries(live) {
  const found = useResource((signal) => api.attempts(live.run, signal), [live]);
  const again = useMemo(() => soon(found.refresh, TRIES_MS), [found]);
  useEffect(again, [live.touched.value, live.head.value?.waiting]);
  return found.state.value.data ?? NO_TRIES;
}

const TONES = { verified: "good", failed: "bad", lost: "warn", running: "live" };

function useSpan(live) {
  const head = live.head.value;
  const from = millis(head.started);
  if (ENDED.has(head.status) && head.duration != null) return { from, to: from + Math.max(head.duration * 1000, 1) };
  return { from, to: Math.max(now.value, from + 1000) };
}

function Scale({ span }) {
  const whole = (span.to - span.from) / 1000;
  return html`<span class="scale">${[0, 0.25, 0.5, 0.75, 1].map((share) => html`<i style=${{ left: `${share * 100}%` }}>${duration(whole * share)}</i>`)}</span>`;
}

/** Where the one attempt of a step ended: before what it then waited for, if it did. */
function worked(node, waits, end) {
  const after = waits.map((each) => millis(each.started)).filter((at) => at >= millis(node.started));
  return node.attempts === 1 && after.length ? Math.min(end, ...after) : end;
}

const WAITS = { question: ["ask", "Waiting for input"], approval: ["ask", "Waiting for approval"], held: ["ask", "Held"], retry: ["warn", "Waiting to retry"], scheduled: ["quiet", "Waiting for the start time"] };
const lasted = (each, end) => ((each.ended ? millis(each.ended) : end) - millis(each.started)) / 1000;

/** How long the plan itself waited for people. */
function Approvals({ waits }) {
  if (!waits.length) return null;
  return html`<p class="waits muted">${waits.slice(-5).map((each) => html`<span>${WAITS[each.kind][1]}${each.ended ? html`: ${duration(lasted(each))}${each.outcome ? html`, <${Txt} v=${each.outcome} />` : ""}` : html` since <${Ago} at=${each.started} />`}. </span>`)}</p>`;
}

function Row({ signal, tries, waits = [], span, selected }) {
  if (!signal) return null;
  const node = signal.value;
  const { tone, word, shape } = stepState(shown(node));
  const [began, ended] = [millis(node.started), millis(node.ended)];
  const whole = span.to - span.from;
  const end = Number.isNaN(ended) ? span.to : ended;
  const place = (from, to) => ({ left: `${Math.max(0, ((from - span.from) / whole) * 100)}%`, width: `${Math.max(0.3, ((to - from) / whole) * 100)}%` });
  const bars = tries?.length > 1 ? tries.map((each) => ({ tone: TONES[each.status] ?? tone, title: `Attempt ${each.attempt} by ${each.worker}: ${each.status}`, at: place(millis(each.started), each.ended ? millis(each.ended) : end) }))
    : Number.isNaN(began) || !node.attempts ? [] : [{ tone, at: place(began, worked(node, waits, end)) }];
  const pauses = waits.map((each) => ({ tone: `${WAITS[each.kind][0]} wait`, title: `${WAITS[each.kind][1]}: ${duration(lasted(each, span.to))}${each.outcome ? `, ${each.outcome}` : ""}`, at: place(millis(each.started), each.ended ? millis(each.ended) : span.to) }));
  const took = tries?.length > 1 ? tries.reduce((sum, each) => sum + lasted(each, end), 0) : Number.isNaN(began) || !node.attempts ? null : (worked(node, waits, end) - began) / 1000;
  const waited = waits.reduce((sum, each) => sum + lasted(each, span.to), 0);
  return html`<div class="row timeline-row ${selected ? "selected" : ""}" role="listitem">
    <button type="button" class="plain cut" data-item onClick=${() => ask({ step: node.id })}><${Txt} v=${short(node.id, 60)} /></button>
    <span class="status tone-${tone}"><${Glyph} shape=${shape} spin=${shape === "ring"} />${label(word)}${node.attempts > 1 ? html`<span class="muted"> ×${node.attempts}</span>` : ""}</span>
    <span class="num figure" title=${waited ? `plus ${duration(waited)} waiting` : ""}>${took === null ? "" : duration(took)}</span>
    <span class="lane">${[...pauses, ...bars].map((bar, at) => html`<i key=${at} class="bar-of tone-${bar.tone}" title=${bar.title} style=${bar.at}></i>`)}</span></div>`;
}
