// The head of a run: what it is for, how it stands, what it costs, and what can be done with it.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { go, route, to } from "../router.js";
import { may, now } from "../store.js";
import { attempt } from "../notices.js";
import { confirm, confirmed } from "../ui/dialog.js";
import { Ago, Copy, Cost, Facts, Glyph, Meter, Said, Status, Took, Txt, Value } from "../ui/parts.js";
import { count, duration, full, goalText, headed, millis, origin, short, words } from "../text.js";
import { COUNTED, ENDED, runState, stepState } from "../status.js";

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

const BEGINNING = "the beginning";

/** Start the run again as a new one; from a step, with the results of the steps before it. */
async function rerun(live) {
  const all = live.all().filter((node) => !node.outlook && !node.superseded_by);
  const failed = all.filter((node) => node.status === "failed");
  const choices = [BEGINNING, ...new Set([...failed, ...all].map((node) => node.id))];
  const said = await confirm({ title: "Run this again?", body: "A new run starts with the same plan and inputs. From a step on, it takes over the results of the steps before. No approval is carried over: the review rules decide again.", action: "Start new run", choose: "Start from", choices });
  if (said) await attempt(async () => go(["runs", (await api.rerun(live.run, said.choice === BEGINNING ? "" : said.choice)).run]), "Started");
}

/** Hand the export to the browser, as a file. */
function download(run) {
  return attempt(async () => {
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(await api.exportRun(run)), download: `run-${run}.zip` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }, "Exported");
}

export function Head({ live }) {
  const head = live.head.value;
  const [verified, setVerified] = useState(null);
  const goal = goalText(head.goal) || head.plan?.plan_id || live.run;
  const reviewing = route.value.path[2] === "plan" && live.review.state.value.data?.waiting; // the review says it all
  return html`<header class="run-head ${reviewing ? "reviewing" : ""}"><div class="run-title">
      <p class="crumbs"><a href=${to(["runs"])}>Runs</a> / <span class="mono">${live.run}</span></p>
      <h1 tabindex="-1"><${Txt} v=${goal} /></h1></div>
    <div class="actions"><${Acts} live=${live} head=${head} setVerified=${setVerified} /></div>
    <${Outcome} head=${head} /><${Verified} of=${verified} />${!reviewing && html`<${Figures} live=${live} head=${head} /><${About} head=${head} />`}<${Notes} live=${live} head=${head} /></header>`;
}

function Acts({ live, head, setVerified }) {
  const button = (verb, label, tone = "") => html`<button type="button" class=${tone} onClick=${() => act(live, verb)}>${label}</button>`;
  const over = ENDED.has(head.status);
  return html`<${Copy} plain=${true} text=${location.href} label="Copy link" /><${Copy} plain=${true} text=${`leadhand show ${live.run}`} label="Copy command" />
    ${may("operator") && html`<button type="button" onClick=${() => download(live.run)}>Export</button><button type="button" onClick=${() => attempt(async () => setVerified(await api.verify(live.run)))}>Verify</button>`}
    ${may("operator") && (over ? html`<button type="button" onClick=${() => rerun(live)}>Re-run</button>${!head.rollback && head.can_roll_back && button("rollback", "Roll back")}`
      : html`${head.status === "paused" ? button("resume", "Resume run", "primary") : button("pause", "Pause run")}${button("cancel", "Cancel run")}`)}`;
}

/** What a verification of the log found, and what it cannot show. */
function Verified({ of }) {
  if (!of) return null;
  return html`<div class="note tone-${of.valid ? "good" : "bad"}" role="status"><${Glyph} shape=${of.valid ? "check" : "broken"} /><div><p>${of.valid ? "Verified" : "Not valid"}: ${count(of.entries, "log entry", "log entries")}, ${count(of.violations.length, "violation")}, ${count(of.signed_approvals, "signed approval")}.</p>
    <ul>${of.violations.map((each) => html`<li><${Txt} v=${brief(each)} /></li>`)}${of.cannot_be_shown.map((each) => html`<li class="muted">Cannot be shown: <${Txt} v=${each} /></li>`)}</ul></div></div>`;
}

/** How the run ended in one sentence, as the terminal and the export say it; and its result. */
function Outcome({ head }) {
  if (!ENDED.has(head.status) || !head.headline) return null;
  const { tone, shape } = runState(head.status);
  const more = headed(head.reason).body; // what a program printed
  return html`<div class="note outcome tone-${tone}"><${Glyph} shape=${shape} /><div><p><${Txt} v=${head.headline} /></p>
    ${more && html`<details><summary>Full reason</summary><${Said} v=${head.reason} /></details>`}
    ${head.result != null && html`<details><summary>Result: <span class="muted"><${Txt} v=${short(brief(head.result), 110)} /></span></summary><${Value} v=${head.result} /></details>`}</div></div>`;
}

const brief = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** What the run was given, and who approved what until when: one line that opens. */
function About({ head }) {
  const carried = Object.entries(head.plan?.carried ?? {}).map(([step, each]) => [step, each.param]);
  const taken = new Set(carried.map(([, param]) => param));
  const given = Object.entries(head.params ?? {}).filter(([name]) => !taken.has(name));
  const labels = (head.labels ?? []).join(", ");
  const approvals = head.approvals ?? [];
  if (!given.length && !carried.length && !labels && !approvals.length) return null;
  const by = [...new Set(approvals.map((each) => (each.by === "policy" ? "the policy" : each.by)))];
  const parts = [given.length && `Inputs: ${given.map(([name, value]) => `${name}=${brief(value)}`).join(", ")}`, by.length && `Approved by ${by.join(" and ")}`, labels && `Labels: ${labels}`];
  return html`<details class="about"><summary><${Txt} v=${short(parts.filter(Boolean).join(" · "), 150)} /></summary>
    <div class="card pad"><${Facts} of=${{ Inputs: given.length ? html`<${Facts} of=${Object.fromEntries(given)} />` : null, "Results taken over": carried.length ? html`<${Facts} of=${Object.fromEntries(carried.map(([step, param]) => [step, head.params[param]]))} />` : null, Labels: labels,
      Approvals: approvals.length ? html`<ul>${approvals.map((each) => html`<li><b><${Txt} v=${each.by} /></b>: revision ${each.revision}, <time datetime=${each.at}>${full(each.at)}</time>, ${each.until ? `until ${full(each.until)}` : "no expiry"}${each.why ? html`: <${Txt} v=${each.why} />` : ""}</li>`)}</ul>` : null }} /></div></details>`;
}

function Figures({ live, head }) {
  const budget = head.limits?.budget;
  return html`<dl class="figures">
    <div><dt>State</dt><dd><${Status} status=${head.status} awaiting=${head.awaiting} />${!head.host && !ENDED.has(head.status) && head.host !== undefined ? html` <span class="tag tone-warn">no host</span>` : ""}</dd></div>
    <div class="wide"><dt>Steps</dt><dd><${Progress} live=${live} /></dd></div>
    <div><dt>Cost</dt><dd><${Cost} cost=${head.cost} money=${head.money} />${budget ? html`<span class="muted"> of ${budget}</span>` : ""}</dd></div>
    <div><dt>Duration</dt><dd class="figure"><${Time} live=${live} head=${head} /></dd></div>
    <div class="less"><dt>Revision</dt><dd><${Revision} live=${live} head=${head} /></dd></div>
    <div class="less"><dt>Started</dt><dd><${Ago} at=${head.started} />${head.started_by ? html`<span class="muted"> by <${Txt} v=${head.started_by} /></span>` : ""}</dd></div>${head.environment ? html`<div class="less"><dt>Environment</dt><dd><${Txt} v=${head.environment} /></dd></div>` : ""}</dl>`;
}

const WAITED_MIN_S = 1;
const STILL = new Set(["waiting"]);

/** How long workers were at work, and how long the run waited; one that has not begun has taken no time. */
function Time({ live, head }) {
  const review = live.review.state.value.data;
  if (head.begun === false && !ENDED.has(head.status)) {
    const since = head.waiting_for?.[0]?.since ?? head.started;
    return html`<span class="muted">${review?.waiting ? "waiting for approval since" : "not started, created"} <${Ago} at=${since} /></span>`;
  }
  const estimated = head.estimated_duration ? html`<span class="muted"> of ${duration(head.estimated_duration)} estimated</span>` : "";
  const still = STILL.has(head.status) && head.worked != null; // no worker is at work: what passes is waiting
  if (!still && !(ENDED.has(head.status) && head.duration != null)) return html`<${Took} from=${head.started} />${estimated}`;
  const whole = still ? (now.value - millis(head.started)) / 1000 : head.duration;
  const waited = head.worked == null ? 0 : whole - head.worked;
  if (waited < WAITED_MIN_S) return html`${duration(whole)}${estimated}`;
  return html`${duration(head.worked)} working${estimated}<span class="muted">, ${duration(waited)} waiting</span>`;
}

/** The revision that is in force; and the one that waits for a person, if there is one. */
function Revision({ live, head }) {
  const review = live.review.state.value.data;
  const found = review?.waiting ? review.revision : head.proposed_revision;
  const proposed = found > (head.revision ?? 0) ? found : null; // the document may be older than the head
  const link = (number) => html`<a href=${to(["runs", live.run, "plan"])}>${number}</a>`;
  if (proposed) return html`${link(proposed)}<span class="muted"> waiting for approval${review?.author ? ` (${origin(review.author, head.planner)})` : ""}${head.revision ? `; revision ${head.revision} is active` : ""}</span>`;
  return html`${link(head.revision ?? 0)}${head.planner ? html`<span class="muted"> ${origin(head.planner, head.planner)}</span>` : ""}`;
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
  return html`
    ${review?.waiting && review.revision > (head.revision ?? 0) && route.value.path[2] !== "plan" && html`<p class="note tone-ask"><${Glyph} shape="person" /><span>Revision ${review.revision} is waiting for ${review.people > 1 ? count(review.people, "approval") : "approval"}. <a href=${to(["runs", live.run, "plan"])}>Review plan</a></span></p>`}
    ${asked.map((each) => html`<p class="note tone-ask"><${Glyph} shape="person" /><span><${Txt} v=${headed(each.text).head} /> <a href=${each.step ? to(["runs", live.run], { step: each.step }) : to(["inbox", ...each.id.split("/")])}>Answer</a></span></p>`)}
    ${(head.dropped ?? []).slice(0, 10).map((each) => html`<p class="note tone-warn"><${Glyph} shape="loop" /><span><${Txt} v=${each.step} /> ${each.status === "failed" ? "failed, and the run continued without it" : `was dropped (${words(each.status)})`}: <${Txt} v=${each.reason} /></span></p>`)}
    ${head.plan?.rerun_of && html`<p class="note tone-quiet"><${Glyph} shape="loop" /><span>Re-run of <a href=${to(["runs", head.plan.rerun_of])}>${head.plan.rerun_of}</a>${head.plan.rerun_from ? html` from its step <${Txt} v=${head.plan.rerun_from} />${head.plan.carried ? `, with the results of ${short(Object.keys(head.plan.carried).join(", "), 80)}` : ""}` : ""}. <a href=${to(["compare", head.plan.rerun_of, live.run])}>Compare</a></span></p>`}
    ${head.rollback && html`<p class="note tone-warn"><${Glyph} shape="loop" /><span>Rolled back by run <a href=${to(["runs", head.rollback.run])}>${head.rollback.run}</a>: ${head.rollback.status}</span></p>`}`;
}
