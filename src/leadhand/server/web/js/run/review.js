// The review of what waits: all of it, the hash that the word is given for, and four answers.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { inbox, may, now } from "../store.js";
import { attempt, notice } from "../notices.js";
import { useKeys } from "../keys.js";
import { Modal, confirm } from "../ui/dialog.js";
import { Changes } from "../ui/plan_diff.js";
import { Steps } from "../ui/steps.js";
import { Cost, Effects, Facts, Findings, Glyph, Hash, Instant, Risk, Tag, Txt } from "../ui/parts.js";
import { authorName, count, duration, millis, pretty } from "../text.js";

const EXPIRES = ["3600", "28800", "86400", "604800"];

async function decide(live, review, verb, body, done) {
  const sent = await attempt(async () => {
    try {
      await api.decide(live.run, verb, { hash: review.binding, ...body });
    } catch (error) {
      if (error.status === 409) live.review.refresh();
      throw error;
    }
  }, done);
  if (sent) (live.review.soon(), live.soonHead(), live.soonGraph(), inbox.soon());
  return sent;
}

async function approve(live, review, expires) {
  const said = await confirm({
    title: `Approve revision ${review.revision}?`, action: "Approve", field: "Reason (optional)",
    body: html`<p>${count(review.steps.length, "step")} may run exactly as shown. Any change to the plan voids the approval.</p><p>Plan digest <${Hash} of=${review.binding} groups=${8} /></p>`,
  });
  if (said) await decide(live, review, "approve", { reason: said.text || undefined, expires_s: expires ? Number(expires) : undefined }, "Approved");
}

async function reject(live, review) {
  await asked(live, review, { title: `Reject revision ${review.revision}?`, body: "None of its steps run, and the run ends.", action: "Reject", tone: "bad", field: "Reason", must: true }, (said) => ["reject", { reason: said.text }, "Rejected"]);
}

async function send(live, review) {
  await asked(live, review, { title: "Request changes", body: "The planner gets this text and proposes a new revision.", action: "Request changes", field: "Requested changes", must: true, lines: 5 }, (said) => ["request_changes", { text: said.text }, "Changes requested"]);
}

/** Ask, then send; what was typed is asked for again, as it stands, when it could not be sent. */
async function asked(live, review, question, sending) {
  let value = "";
  for (;;) {
    const said = await confirm({ ...question, value });
    if (!said) return;
    const shown = value ? (live.review.state.value.data ?? review) : review;
    if (await decide(live, shown, ...sending(said))) return;
    value = said.text;
  }
}

export function Review({ live, review }) {
  const [amending, setAmending] = useState(false);
  const [expires, setExpires] = useState("");
  const allowed = may("approver");
  const acts = { approve: () => approve(live, review, expires), change: () => send(live, review), amend: () => setAmending(true), reject: () => reject(live, review) };
  const refuse = () => notice("Deciding requires the role approver.", "bad");
  const key = (act) => (allowed ? acts[act] : refuse);
  const sends = review.choices.some((each) => each.answer === "request_changes");
  useKeys("Review", { a: ["Approve (with confirmation)", key("approve")], ...(sends && { c: ["Request changes", key("change")] }), e: ["Amend", key("amend")], x: ["Reject", key("reject")] }, [live, review, expires, allowed, sends]);
  return html`<div class="review"><${Reach} review=${review} />
    <${Bar} review=${review} acts=${acts} sends=${sends} allowed=${allowed} expires=${expires} setExpires=${setExpires} />
    ${amending && html`<${Amend} live=${live} review=${review} onClose=${() => setAmending(false)} />`}
    ${review.approved_before && review.changes?.length > 0 && html`<section><h2>Changes since the last approved revision</h2><${Changes} changes=${review.changes} /></section>`}
    <section><h2>Steps (${review.steps.length})</h2><${Steps} steps=${review.steps} risks=${review.risks} resolved=${review.resolved} unresolved=${review.unresolved} /></section>
    ${Object.keys(review.params ?? {}).length > 0 && html`<section class="card pad"><h2>Parameters</h2><${Facts} of=${review.params} /></section>`}</div>`;
}

function Reach({ review }) {
  const given = review.approvals ?? [];
  return html`<section class="card pad reach"><p class="reason"><${Glyph} shape="person" /><${Txt} v=${review.reason} /></p>
    <dl class="figures"><div><dt>Risk</dt><dd><${Risk} level=${review.risk} />${review.risk === "not declared" && review.policy_risk ? html` <span class="muted">policies treat it as ${review.policy_risk}</span>` : ""}</dd></div>
      <div><dt>Steps</dt><dd>${review.steps.length}${review.cancel?.length ? html` <span class="muted">${review.cancel.length} removed</span>` : ""}</dd></div>
      <div><dt>Declared cost</dt><dd><${Cost} cost=${review.cost} /></dd></div>
      <div><dt>Author</dt><dd>${authorName(review.author) || "–"}</dd></div>
      <div class="wide"><dt>Side effects</dt><dd><${Effects} of=${review.effects} /></dd></div>
      <div class="wide"><dt>Workers</dt><dd>${Object.keys(review.workers ?? {}).map((name) => html`<${Tag}><${Txt} v=${name} /></${Tag}> `)}</dd></div>
      ${Object.entries(review.sandboxes ?? {}).filter(([, walls]) => walls).length > 0 && html`<div class="wide"><dt>Sandbox</dt><dd>${Object.entries(review.sandboxes).map(([step, walls]) => html`<div><${Txt} v=${step} />: <${Txt} v=${walls || "none"} /></div>`)}</dd></div>`}</dl>
    ${review.untrusted && html`<p class="note tone-warn"><${Glyph} shape="broken" /><span>Untrusted results from outside influenced this revision.</span></p>`}
    <${Warned} of=${review.outside}>Beyond what was approved before:</${Warned}>
    <${Warned} of=${review.widens}>Claims more than the workers declare; approving accepts the claim:</${Warned}>
    <${Warned} of=${review.lookalikes}>Contains look-alike or invisible characters:</${Warned}>
    <${Warned} of=${review.overclaims} tone="">Ignored claims of the planner beyond what the workers declare:</${Warned}>
    ${review.revisable && html`<p class="muted"><${Txt} v=${review.revisable.planner} /> may revise the plan within this approval, with the workers ${(review.revisable.envelope.workers ?? []).map((name) => html`<${Tag}><${Txt} v=${name} /></${Tag}> `)}</p>`}
    ${Object.keys(review.instants ?? {}).length > 0 && html`<p class="starts">Starts: ${Object.entries(review.instants).map(([step, at], place) => html`${place ? "; " : ""}<span><${Txt} v=${step} /> <${Starts} at=${at} /></span>`)}</p>`}
    ${given.length > 0 && html`<p class="muted">Approved by ${given.map((each) => `${each.by}${each.why ? ` (${each.why})` : ""}`).join(", ")}; ${count(review.people - given.length, "more approval")} needed.</p>`}</section>`;
}

/** What a reviewer must know of the plan, each finding a line. */
function Warned({ of, tone = "tone-warn", children }) {
  return of?.length > 0 && html`<div class="note ${tone}"><${Glyph} shape="broken" /><div>${children} <${Findings} findings=${of} /></div></div>`;
}

/** When a step may start: an instant that has passed keeps nothing waiting. */
function Starts({ at }) {
  return html`${millis(at) > now.value ? "" : "once approved, allowed since "}<${Instant} at=${at} />${millis(at) > now.value ? " or later" : ""}`;
}

function Bar({ review, acts, sends, allowed, expires, setExpires }) {
  const usual = review.limits?.approval_s; // what holds where a person says nothing
  const ends = now.value + Number(expires || usual || Infinity) * 1000;
  const late = Object.entries(review.instants ?? {}).filter(([, at]) => millis(at) >= ends).map(([step]) => step);
  return html`<div class="review-bar card" role="group" aria-label="Decide"><div class="bound"><span class="muted">Plan digest</span><${Hash} of=${review.binding} groups=${8} /></div>
    ${allowed ? html`<label class="inline"><span class="muted">Approval expires</span> <select aria-label="Approval expires" value=${expires} onChange=${(event) => setExpires(event.target.value)}><option value="">${usual ? `in ${duration(usual)} (from settings)` : "never"}</option>${EXPIRES.map((value) => html`<option value=${value}>in ${duration(Number(value))}</option>`)}</select></label>
      ${late.length > 0 && html`<p class="note tone-warn"><${Glyph} shape="broken" /><span>The approval expires before the start time of <${Txt} v=${late.join(", ")} />, which is then held. Choose a later expiry.</span></p>`}
      <div class="actions"><button type="button" class="primary good" onClick=${acts.approve}>Approve <kbd>a</kbd></button>${sends && html`<button type="button" onClick=${acts.change}>Request changes <kbd>c</kbd></button>`}<button type="button" onClick=${acts.amend}>Amend <kbd>e</kbd></button><button type="button" class="bad" onClick=${acts.reject}>Reject <kbd>x</kbd></button></div>`
      : html`<p class="muted">Deciding requires the role approver.</p>`}</div>`;
}

/** Every place of a plan that can be set, as people write it. */
function places(steps) {
  const found = [];
  const walk = (value, path) => {
    if (value && typeof value === "object" && !Array.isArray(value)) for (const [key, each] of Object.entries(value)) walk(each, `${path}.${key}`);
    else found.push(path);
  };
  for (const { id, ...step } of steps) {
    walk(step, `steps.${id}`);
    for (const name of ["not_before", "timeout", "failure_action", "retry"]) if (!(name in step)) found.push(`steps.${id}.${name}`);
  }
  return found;
}

/** A few values by their paths, or the whole plan as text. What comes out is reviewed again. */
function Amend({ live, review, onClose }) {
  const [whole, setWhole] = useState(false);
  const [rows, setRows] = useState([{ path: "", value: "" }]);
  const [text, setText] = useState(() => pretty({ ...review.plan, steps: review.steps }));
  const change = (place, field, value) => setRows(rows.map((row, at) => (at === place ? { ...row, [field]: value } : row)));
  const submit = async (event) => {
    event.preventDefault();
    const set = rows.filter((row) => row.path.trim()).map((row) => ({ path: row.path.trim(), text: row.value }));
    if (await decide(live, review, "amend", whole ? { plan: text } : { set }, "Amended. Review the new revision.")) onClose();
  };
  return html`<${Modal} title=${`Amend revision ${review.revision}`} wide=${true} onClose=${onClose}><form onSubmit=${submit}>
    <div class="choices" role="group" aria-label="How"><button type="button" aria-pressed=${!whole} onClick=${() => setWhole(false)}>Fields</button><button type="button" aria-pressed=${whole} onClick=${() => setWhole(true)}>Whole plan</button></div>
    ${whole ? html`<label class="field">Plan (YAML or JSON)<textarea class="mono" rows="18" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>`
      : html`<datalist id="places">${places(review.steps).map((path) => html`<option value=${path}></option>`)}</datalist>
        ${rows.map((row, place) => html`<div class="pair"><label class="field">Field<input list="places" class="mono" placeholder="steps.deploy.not_before" value=${row.path} onInput=${(event) => change(place, "path", event.target.value)} /></label><label class="field">Value<input class="mono" placeholder="02:00 Europe/Berlin" value=${row.value} onInput=${(event) => change(place, "value", event.target.value)} /></label></div>`)}
        <button type="button" class="small" onClick=${() => setRows([...rows, { path: "", value: "" }])}>Add change</button>`}
    <div class="actions end"><button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="primary">Amend plan</button></div></form></${Modal}>`;
}
