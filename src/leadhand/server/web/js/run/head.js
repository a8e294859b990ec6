// The head of a run: what it is for, how it stands, what it costs, and what can be done with it.
import { html } from "../lib.js";
import { api } from "../api.js";
import { route, to } from "../router.js";
import { may } from "../store.js";
import { confirmed } from "../ui/dialog.js";
import { Ago, Cost, Glyph, Meter, Said, Status, Took, Txt } from "../ui/parts.js";
import { beyond, count, duration, goalText, headed, origin, repeated } from "../text.js";
import { COUNTED, ENDED, stepState } from "../status.js";

const ACTS = {
  pause: { title: "Pause this run?", body: "No new steps start. Running steps finish.", action: "Pause run", done: "Pausing" },
  resume: { title: "Resume this run?", action: "Resume run", done: "Resuming" },
  cancel: { title: "Cancel this run?", body: "Running steps are stopped. A cancelled run cannot be resumed.", action: "Cancel run", dismiss: "Keep running", tone: "bad", done: "Cancelling" },
  rollback: { title: "Roll back this run?", body: "A new run executes the rollback plan, or undoes the completed steps in reverse order.", action: "Roll back", tone: "bad", done: "Rolling back" },
};

async function act(live, verb) {
  const { done, ...what } = ACTS[verb];
  if (await confirmed({ ...what, field: "Reason (optional)" }, (said) => api.control(live.run, verb, said.text), done)) live.soonHead();
}

export function Head({ live }) {
  const head = live.head.value;
  const goal = goalText(head.goal) || head.plan?.plan_id || live.run;
  return html`<header class="run-head"><div class="run-title">
      <p class="crumbs"><a href=${to(["runs"])}>Runs</a> / <span class="mono">${live.run}</span></p>
      <h1 tabindex="-1"><${Txt} v=${goal} /></h1></div>
    <div class="actions"><${Acts} live=${live} head=${head} /></div>
    <${Figures} live=${live} head=${head} /><${Notes} live=${live} head=${head} /></header>`;
}

function Acts({ live, head }) {
  if (!may("operator")) return null;
  const button = (verb, label, tone = "") => html`<button type="button" class=${tone} onClick=${() => act(live, verb)}>${label}</button>`;
  if (ENDED.has(head.status)) return html`${!head.rollback && head.can_roll_back && button("rollback", "Roll back")}`;
  return html`${head.status === "paused" ? button("resume", "Resume run", "primary") : button("pause", "Pause run")}${button("cancel", "Cancel run")}`;
}

function Figures({ live, head }) {
  const budget = head.limits?.budget;
  return html`<dl class="figures">
    <div><dt>State</dt><dd><${Status} status=${head.status} awaiting=${head.awaiting} />${!head.host && !ENDED.has(head.status) && head.host !== undefined ? html` <span class="tag tone-warn">no host</span>` : ""}</dd></div>
    <div class="wide"><dt>Steps</dt><dd><${Progress} live=${live} /></dd></div>
    <div><dt>Cost</dt><dd><${Cost} cost=${head.cost} money=${head.money} />${budget ? html`<span class="muted"> of ${budget}</span>` : ""}</dd></div>
    <div><dt>Duration</dt><dd class="figure"><${Time} live=${live} head=${head} /></dd></div>
    <div class="less"><dt>Revision</dt><dd><${Revision} live=${live} head=${head} /></dd></div>
    <div class="less"><dt>Started</dt><dd><${Ago} at=${head.started} /></dd></div></dl>`;
}

const WAITED_MIN_S = 1;

/** How long workers were at work, and how long the run waited; one that has not begun has taken no time. */
function Time({ live, head }) {
  const review = live.review.state.value.data;
  if (head.begun === false && !ENDED.has(head.status)) {
    const since = head.waiting_for?.[0]?.since ?? head.started;
    return html`<span class="muted">${review?.waiting ? "waiting for approval since" : "not started, created"} <${Ago} at=${since} /></span>`;
  }
  const over = ENDED.has(head.status) && head.duration != null;
  const estimated = head.estimated_duration ? html`<span class="muted"> of ${duration(head.estimated_duration)} estimated</span>` : "";
  if (!over) return html`<${Took} from=${head.started} />${estimated}`;
  const waited = head.worked == null ? 0 : head.duration - head.worked;
  if (waited < WAITED_MIN_S) return html`${duration(head.duration)}${estimated}`;
  return html`${duration(head.worked)} working${estimated}<span class="muted">, ${duration(waited)} waiting</span>`;
}

/** The revision that is in force; and the one that waits for a person, if there is one. */
function Revision({ live, head }) {
  const review = live.review.state.value.data;
  const found = review?.waiting ? review.revision : head.proposed_revision;
  const proposed = found > (head.revision ?? 0) ? found : null; // the document may be older than the head
  const link = (number) => html`<a href=${to(["runs", live.run, "plan"])}>${number}</a>`;
  if (proposed) return html`${link(proposed)}<span class="muted"> waiting for approval${review?.author ? ` (${origin(review.author)})` : ""}${head.revision ? `; revision ${head.revision} is active` : ""}</span>`;
  return html`${link(head.revision ?? 0)}${head.planner ? html`<span class="muted"> ${origin(head.planner)}</span>` : ""}`;
}

const TONES = [["good", ["succeeded"]], ["bad", ["failed"]], ["live", ["running", "probing", "starting"]], ["warn", ["retrying", "parked"]], ["ask", ["waiting_for_person", "waiting_for_approval", "held", "proposed"]], ["quiet", ["skipped", "cancelled"]]];
/** What is no part of the work: steps that others took the place of, and those that may never come. */
const ASIDE = new Set(["superseded", "outlook"]);

function Progress({ live }) {
  const counts = live.counts.value;
  const told = COUNTED.filter((status) => counts[status] > 0);
  const total = told.reduce((sum, status) => sum + (ASIDE.has(status) ? 0 : counts[status]), 0);
  const parts = TONES.map(([tone, states]) => [tone, states.reduce((sum, status) => sum + (counts[status] ?? 0), 0)]);
  const words = told.map((status) => `${counts[status]} ${stepState(status).word}`).join(", ") || "no steps yet";
  return html`<${Meter} label=${words} parts=${parts} total=${total} /><span class="counts">${told.length ? told.slice(0, 6).map((status) => html`<span class="tone-${stepState(status).tone}"><${Glyph} shape=${stepState(status).shape} />${counts[status].toLocaleString("en")} ${stepState(status).word}</span>`) : "No steps yet"}</span>`;
}

/** What a person should not have to look for. */
function Notes({ live, head }) {
  const review = live.review.state.value.data;
  const waiting = head.waiting_for ?? [];
  // What is asked about the step that is open stands beside it.
  const asked = waiting.filter((each) => each.kind !== "review" && !(each.step && each.step === route.value.query.step));
  const fault = head.fault && beyond(head.fault.why, [head.reason]);
  const known = head.fault && repeated(head.fault.why.replace(/^step \S+: \w+: /, ""), [head.reason]);
  return html`
    ${review?.waiting && review.revision > (head.revision ?? 0) && route.value.path[2] !== "plan" && html`<p class="note tone-ask"><${Glyph} shape="person" /><span>Revision ${review.revision} is waiting for ${review.people > 1 ? count(review.people, "approval") : "approval"}. <a href=${to(["runs", live.run, "plan"])}>Review plan</a></span></p>`}
    ${asked.map((each) => html`<p class="note tone-ask"><${Glyph} shape="person" /><span><${Txt} v=${headed(each.text).head} /> <a href=${each.step ? to(["runs", live.run, "graph"], { step: each.step }) : to(["inbox"])}>Answer</a></span></p>`)}
    ${head.reason && html`<p class="note tone-${head.status === "succeeded" ? "good" : "bad"}"><${Glyph} shape=${head.status === "succeeded" ? "check" : "cross"} /><span><${Said} v=${head.reason} />${head.fault && !repeated(head.fault.why, [head.reason]) && html` <span class="muted">(${FAULTS[head.fault.where] ?? head.fault.where}${known ? "" : html`: <${Txt} v=${headed(fault).head} />`})</span>`}</span></p>`}
    ${(head.dropped ?? []).slice(0, 10).map((each) => html`<p class="note tone-warn"><${Glyph} shape="loop" /><span>Dropped: <${Txt} v=${each.step} /> (${each.status}): <${Txt} v=${each.reason} /></span></p>`)}
    ${head.rollback && html`<p class="note tone-warn"><${Glyph} shape="loop" /><span>Rolled back by run <a href=${to(["runs", head.rollback.run])}>${head.rollback.run}</a>: ${head.rollback.status}</span></p>`}`;
}

const FAULTS = { planning: "planning failed", execution: "execution failed", limits: "limit reached", person: "stopped by a person" };
