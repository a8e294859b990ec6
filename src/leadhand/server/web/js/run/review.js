// The review of what waits: what an approval leads to, what to consider, and the decision.
import { html, useEffect, useState } from "../lib.js";
import { api } from "../api.js";
import { ask, to } from "../router.js";
import { inbox, may, now, session, useResource } from "../store.js";
import { attempt, notice } from "../notices.js";
import { useKeys } from "../keys.js";
import { Modal, confirm } from "../ui/dialog.js";
import { Changes, Steps } from "../ui/steps.js";
import { Ago, Facts, Findings, Glyph, Hash, Instant, Loading, Risk, Tag, Trouble, Txt } from "../ui/parts.js";
import { StepTools, amendment, clear, draftOf } from "./edit_step.js";
import { Graph } from "./graph.js";
import { capital, count, duration, full, label, millis, origin, pretty, short } from "../text.js";

const EXPIRES = ["3600", "28800", "86400", "604800"];

async function decide(live, review, verb, body, done) {
  const sent = await attempt(async () => {
    try {
      await api.decide(live.run, verb, { digest: review.binding, ...body });
    } catch (error) {
      if (error.status === 409) live.review.refresh();
      throw error;
    }
  }, done);
  if (sent) (live.review.soon(), live.soonHead(), live.soonGraph(), inbox.soon());
  return sent;
}

/** What is decided, once more, where the decision is confirmed: name, effects, digest. */
function Decided({ review, children }) {
  return html`<p><b><${Txt} v=${review.name || review.run} /></b></p><p class="summary"><${Risk} level=${review.risk} /> <${Txt} v=${review.in_short} /></p>
    ${children}<p class="muted">Revision ${review.revision}, plan digest <${Hash} of=${review.binding} /></p>`;
}

async function approve(live, review, expires) {
  const left = review.people - review.approvals.length - 1;
  const said = await confirm({
    title: `Approve revision ${review.revision}?`, action: "Approve", tone: "good", field: "Reason (optional)",
    body: html`<${Decided} review=${review}><p>${count(review.steps.length, "step")} may run exactly as shown${left > 0 ? `, once ${left === 1 ? "another person" : `${left} other people`} approved too` : ""}. Any change to the plan voids the approval.</p></${Decided}>`,
  });
  if (said) await decide(live, review, "approve", { reason: said.text || undefined, expires_s: expires ? Number(expires) : undefined }, "Approved");
}

async function reject(live, review) {
  await asked(live, review, { title: `Reject revision ${review.revision}?`, body: html`<${Decided} review=${review}><p>None of its steps run, and the run ends.</p></${Decided}>`, action: "Reject", tone: "bad", field: "Reason", must: true }, (said) => ["reject", { reason: said.text }, "Rejected"]);
}

/** The comments that were typed, as the planner gets them. */
const commented = (draft) => Object.entries(draft.value.comments).filter(([, text]) => text.trim()).map(([step, text]) => ({ step, text: text.trim() }));

async function send(live, review, draft) {
  const comments = commented(draft);
  const body = html`<p>The planner gets ${comments.length ? "these comments" : "this text"}, answers each, and proposes a new revision.</p>${comments.length > 0 && html`<ul class="plain-list">${comments.map((each) => html`<li><b class="mono"><${Txt} v=${each.step} /></b> <${Txt} v=${each.text} /></li>`)}</ul>`}`;
  const question = { title: "Request changes", body, action: "Request changes", field: comments.length ? "General comment (optional)" : "Requested changes", must: !comments.length, lines: 4 };
  await asked(live, review, question, (said) => ["request_changes", { text: said.text, comments }, "Changes requested"], () => clear(draft, "comments"));
}

/** Ask, then send; what was typed is asked for again, as it stands, when it could not be sent. */
async function asked(live, review, question, sending, sent = () => {}) {
  let value = "";
  for (;;) {
    const said = await confirm({ ...question, value });
    if (!said) return;
    const shown = value ? (live.review.state.value.data ?? review) : review;
    if (await decide(live, shown, ...sending(said))) return sent();
    value = said.text;
  }
}

/** The review of the revision that waits. `looking`: another revision that is on the screen. */
export function Review({ live, review, looking, list, children }) {
  const [amending, setAmending] = useState(false);
  const [expires, setExpires] = useState("");
  const allowed = may("approver");
  const draft = draftOf(live.run);
  const [previewing, setPreviewing] = useState(false);
  const change = amendment(draft.value.edits);
  const unsent = change.set.length + change.unset.length;
  const acts = {
    approve: () => (unsent ? notice("Send or discard your changes first: they are not part of this revision.", "bad") : approve(live, review, expires)),
    change: () => send(live, review, draft), amend: () => setAmending(true), reject: () => reject(live, review), preview: () => setPreviewing(true), discard: () => clear(draft, "edits"),
  };
  const refuse = () => notice("Deciding requires the role approver.", "bad");
  const key = (act) => (allowed ? acts[act] : refuse);
  const sends = review.choices.some((each) => each.answer === "request_changes");
  useKeys("Review", { a: ["Approve (with confirmation)", key("approve")], ...(sends && { c: ["Request changes", key("change")] }), e: ["Amend", key("amend")], x: ["Reject", key("reject")] }, [live, review, expires, allowed, sends, unsent]);
  const more = allowed ? (step) => html`<${StepTools} step=${step} run=${live.run} draft=${draft} sends=${sends} />` : undefined;
  useEffect(() => {
    const next = Math.min(...Object.values(review.instants).map(millis).filter((at) => at > Date.now())) - Date.now();
    const timer = next < 2 ** 31 ? setTimeout(() => live.review.refresh(), next + 1000) : 0; // a start time that passes is no longer to come
    return () => clearTimeout(timer);
  }, [review]);
  return html`<div class="review">${looking === undefined && html`<${Summary} review=${review} planner=${live.head.value?.planner} />`}
    <${Bar} review=${review} looking=${looking} acts=${acts} sends=${sends} allowed=${allowed} expires=${expires} setExpires=${setExpires} comments=${commented(draft).length} unsent=${unsent} />${list}
    ${previewing && unsent > 0 && html`<${Preview} live=${live} review=${review} body=${change} title=${`Amend revision ${review.revision}`} onSent=${() => (clear(draft, "edits"), setPreviewing(false))} onClose=${() => setPreviewing(false)} />`}
    ${amending && html`<${Amend} live=${live} review=${review} onClose=${() => setAmending(false)} />`}
    ${looking === undefined && html`<${Answered} comments=${review.comments} /><${Checklist} checks=${review.checks} />`}
    ${children}
    ${looking === undefined && html`<${Content} live=${live} review=${review} more=${more} />`}</div>`;
}

const ANSWERS = { addressed: "good", "not addressed": "warn", "not answered": "warn" };

/** The comments on earlier revisions: what the planner says of each, and what became of the step. */
function Answered({ comments = [] }) {
  const done = comments.filter((each) => each.status === "addressed").length;
  return comments.length > 0 && html`<section class="card pad"><h2>Comments <span class="muted">${done} of ${comments.length} addressed, as the planner says</span></h2><ul class="comments">${comments.map((each) => html`<li><${Tag} tone=${ANSWERS[each.status] ?? "quiet"}>${each.status}</${Tag}><div><p>${each.step ? html`<${StepLinks} steps=${[each.step]} />` : html`<b>Plan</b> `}<${Txt} v=${each.text} /></p>
      <p class="muted">${each.by} on revision ${each.revision}${each.reason ? html` · planner: <${Txt} v=${each.reason} />` : ""} · ${each.step ? "the step" : "the plan"} is ${each.fact}</p></div></li>`)}</ul></section>`;
}

function Content({ live, review, more }) {
  const { steps, params = {} } = review;
  return html`${steps.length > 1 && html`<section class="small-graph"><h2>Graph</h2><${Graph} live=${live} step="" /></section>`}
    <section><h2>Steps to approve (${steps.length})</h2><${Steps} steps=${steps} risks=${review.risks} resolved=${review.resolved} unresolved=${review.unresolved} facts=${review.step_facts} about=${review.descriptions} walls=${review.sandboxes} instants=${review.instants} more=${more} /></section>
    ${Object.keys(params).length > 0 && html`<section class="card pad"><h2>Parameters</h2><${Facts} of=${params} /></section>`}
    <section class="card pad"><h2>Workers</h2><${Facts} of=${Object.fromEntries(Object.entries(review.workers ?? {}).map(([name, version]) => [name, `version ${version || "unknown"}`]))} /></section>`;
}

/** Bring the card of a step into view. */
function reveal(id) {
  const card = document.getElementById(`plan-step-${id}`);
  if (!card) return ask({ step: id });
  card.scrollIntoView({ block: "center" });
  card.focus({ preventScroll: true });
}

function StepLinks({ steps, most = 8, doing = {} }) {
  return html`${steps.slice(0, most).map((id) => html`<button type="button" class="step-link mono" onClick=${() => reveal(id)}><${Txt} v=${id} /></button> ${doing[id] && html`<span class="muted"><${Txt} v=${short(doing[id], 100)} /></span> `}`)}${steps.length > most && html`<span class="muted">and ${steps.length - most} more</span>`}`;
}

const TOPICS = { approvals: "Approvals", start: "What runs", changes: "Side effects", undo: "Rollback", failure: "If a step fails", cost: "Cost", asks: "Asks again", covers: "Covers", reject: "If you reject" };

/** The answer to "what will happen if I approve?", in one block. */
function Summary({ review, planner }) {
  const topics = Object.keys(TOPICS).map((topic) => [topic, review.consequences.filter((each) => each.topic === topic)]).filter(([, all]) => all.length);
  const doing = Object.fromEntries(review.steps.map((step) => [step.id, review.step_facts?.[step.id]?.doing]));
  const roles = review.people > 1 && !Object.keys(review.limits?.approvers ?? {}).length;
  const line = (topic, each) => html`<li class=${each.text.startsWith("cannot") ? "lasting" : ""}><${Txt} v=${topic === "changes" ? each.text : capital(each.text)} />${each.steps.length > 0 && html`: <${StepLinks} steps=${each.steps} doing=${{ start: doing, changes: review.descriptions }[topic]} />`}</li>`;
  return html`<section class="card pad reach"><div><div class="bar"><h2>If you approve</h2><span class="muted">Revision ${review.revision} ${origin(review.author, planner)}${review.since ? html`, asked <${Ago} at=${review.since} />` : ""}${review.estimate_s ? `, estimate ${duration(review.estimate_s)} of work` : ""}</span></div>
      <p class="summary"><${Risk} level=${review.risk} /> <${Txt} v=${review.in_short} /></p></div>
    <dl class="facts consequences">${review.because && html`<div><dt>Reason</dt><dd><${Txt} v=${review.because} /></dd></div>`}${topics.map(([topic, all]) => html`<div class="topic-${topic}"><dt>${TOPICS[topic]}</dt><dd><ul>${all.map((each) => line(topic, each))}${topic === "approvals" && html`<li class="muted">${roles ? "Anyone with the role approver may give one. " : ""}Why: <${Txt} v=${review.why || review.reason} />${review.risk === "not declared" && review.policy_risk ? ` (policies treat the risk as ${review.policy_risk})` : ""}</li>`}</ul></dd></div>`)}</dl></section>`;
}

const MARKS = { warning: ["warn", "broken", "Warning"], note: ["quiet", "dash", "Note"], ok: ["good", "check", "OK"] };

function Checklist({ checks }) {
  const order = Object.keys(MARKS);
  const sorted = [...checks].sort((one, other) => order.indexOf(one.mark) - order.indexOf(other.mark));
  const open = sorted.filter((each) => each.mark !== "ok").length;
  return html`<section class="card pad checks"><h2>Checks <span class="muted">${open ? `${open} to consider, ${sorted.length - open} in order` : "all in order"}</span></h2><ul class="checklist">${sorted.map(({ mark, name, text, steps }) => {
    const [tone, shape, word] = MARKS[mark] ?? MARKS.note;
    return html`<li class="tone-${tone}" data-mark=${mark}><${Glyph} shape=${shape} /><div><span class="visually-hidden">${word}: </span><b>${label(name)}</b> <${Txt} v=${text} />${steps.length > 0 && html`: <${StepLinks} steps=${steps} />`}</div></li>`;
  })}</ul></section>`;
}

/** One approval: by, when, until when with the time that is left, signed or not, the reason, the digest. */
export function Allowed({ each }) {
  const left = each.until ? (millis(each.until) - now.value) / 1000 : 0;
  return html`<li>Approved by <b><${Txt} v=${each.by} /></b> <${Instant} at=${each.at} />, ${each.until ? html`until <time datetime=${each.until}>${full(each.until)}</time> (${left > 0 ? `expires in ${duration(left)}` : "expired"})` : "no expiry"}, ${each.signed ? html`signed by <code><${Txt} v=${each.key} /></code>` : "not signed"}${each.why ? html`: <${Txt} v=${each.why} />` : ""} <span class="muted">plan digest <${Hash} of=${each.digest} /></span></li>`;
}

function Bar({ review, looking, acts, sends, allowed, expires, setExpires, comments, unsent }) {
  const usual = review.limits?.approval_s; // what holds where a person says nothing
  const ends = now.value + Number(expires || usual || Infinity) * 1000;
  const late = Object.entries(review.instants ?? {}).filter(([, at]) => millis(at) >= ends).map(([step]) => step);
  const mine = review.approvals.some((each) => each.by === session.value?.person);
  return html`<div class="review-bar card" role="group" aria-label="Decide"><div class="bound"><b>Decides revision ${review.revision}</b><span><span class="muted">Plan digest</span> <${Hash} of=${review.binding} /></span></div>
    ${looking !== undefined && html`<p class="note tone-warn"><${Glyph} shape="broken" /><span>You are looking at revision ${looking}. The buttons decide <a href=${to(["runs", review.run, "plan"])}>revision ${review.revision}</a>.</span></p>`}
    ${unsent > 0 && html`<div class="note tone-live unsent"><span><b>${count(unsent, "unsent change")}</b>, not part of revision ${review.revision}.</span> <button type="button" class="small primary" onClick=${acts.preview}>Preview changes</button> <button type="button" class="small" onClick=${acts.discard}>Discard changes</button></div>`}
    ${review.approvals.length > 0 && html`<ul class="allowed">${review.approvals.map((each) => html`<${Allowed} each=${each} />`)}</ul>`}
    ${allowed ? html`<label class="inline"><span class="muted">Expires</span> <select aria-label="Approval expires" value=${expires} onChange=${(event) => setExpires(event.target.value)}><option value="">${usual ? `in ${duration(usual)} (from settings)` : "never"}</option>${EXPIRES.map((value) => html`<option value=${value}>in ${duration(Number(value))}</option>`)}</select></label>
      ${late.length > 0 && html`<p class="note tone-warn late"><${Glyph} shape="broken" /><span>The approval expires before the start time of <${Txt} v=${late.join(", ")} />, which is then held. Choose a later expiry.</span></p>`}
      <div class="actions">${mine ? html`<span class="muted">You approved it. Another person must approve too.</span>` : html`<button type="button" class="primary good" onClick=${acts.approve}>Approve <kbd>a</kbd></button>`}${sends && html`<button type="button" onClick=${acts.change}>Request changes${comments > 0 ? ` (${count(comments, "comment")})` : ""} <kbd>c</kbd></button>`}<button type="button" onClick=${acts.amend}>Amend <kbd>e</kbd></button><button type="button" class="bad" onClick=${acts.reject}>Reject <kbd>x</kbd></button></div>`
      : html`<p class="muted">Deciding requires the role approver.</p>`}</div>`;
}

/** What an amendment changes, before it is sent: the difference, the findings, then one revision. */
function Preview({ live, review, body, title, onSent, onClose }) {
  const [found, setFound] = useState({});
  const [reason, setReason] = useState("");
  const key = JSON.stringify(body) + review.binding;
  useEffect(() => {
    let stale = false;
    setFound({});
    api.preview(live.run, { digest: review.binding, ...body }).then((doc) => stale || setFound({ doc }), (error) => stale || setFound({ error }));
    return () => (stale = true);
  }, [key]);
  const { doc, error } = found;
  const submit = async (event) => {
    event.preventDefault();
    if (await decide(live, review, "amend", { ...body, reason }, "Amended. Review the new revision.")) onSent();
  };
  return html`<${Modal} title=${title} wide=${true} onClose=${onClose}><form onSubmit=${submit}>
    ${!doc && !error && html`<${Loading} what="Checking the changes" />`}<${Trouble} error=${error} />
    ${doc && html`<${Changes} changes=${doc.changes} />${doc.errors.length > 0 ? html`<p class="note tone-bad"><${Glyph} shape="cross" /><span>The amended plan would be refused:</span></p><${Findings} findings=${doc.errors} />` : html`<p class="summary"><${Txt} v=${doc.summary} /></p><p>If approved now:</p><ul>${doc.starts.map((each) => html`<li><${Txt} v=${capital(each)} /></li>`)}</ul><${Findings} findings=${doc.findings} />`}`}
    <label class="field">Reason (optional)<input value=${reason} autocomplete="off" onInput=${(event) => setReason(event.target.value)} /></label>
    <p class="muted">Becomes one new revision by you, in place of revision ${review.revision}, and needs approval.</p>
    <div class="actions end"><button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="primary" disabled=${!doc || doc.errors.length > 0}>Amend plan</button></div></form></${Modal}>`;
}

/** The whole plan as text. What comes out is reviewed again. */
function Amend({ live, review, onClose }) {
  const found = useResource((signal) => api.revision(live.run, review.revision, signal), []);
  const [typed, setText] = useState(null);
  const [body, setBody] = useState(null);
  const text = typed ?? pretty(found.state.value.data?.plan ?? "");
  if (body) return html`<${Preview} live=${live} review=${review} body=${body} title=${`Amend revision ${review.revision}`} onSent=${onClose} onClose=${() => setBody(null)} />`;
  return html`<${Modal} title=${`Amend revision ${review.revision}`} wide=${true} onClose=${onClose}><form onSubmit=${(event) => (event.preventDefault(), setBody({ plan: text }))}>
    <p class="muted">To change single fields, use Edit on a step.</p><${Trouble} error=${found.state.value.error} />
    <label class="field">Plan (YAML or JSON)<textarea class="mono" rows="18" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
    <div class="actions end"><button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="primary" disabled=${!text.trim()}>Preview changes</button></div></form></${Modal}>`;
}
