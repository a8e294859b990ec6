// The review of what waits: all of it, the hash that the word is given for, and four answers.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { inbox, may, now } from "../store.js";
import { attempt, notice } from "../say.js";
import { useKeys } from "../keys.js";
import { confirm } from "../ui/dialog.js";
import { Changes } from "../ui/changes.js";
import { Steps } from "../ui/steps.js";
import { Cost, Effects, Facts, Findings, Glyph, Hash, Instant, Risk, Tag, Txt } from "../ui/parts.js";
import { Amend } from "./amend.js";
import { count, duration, millis } from "../text.js";

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
    title: `Approve revision ${review.revision}?`, action: "Approve", field: "Reason, for the record",
    body: html`<p>${count(review.steps.length, "step")} may then run, exactly as shown. Any change voids it.</p><p>Digest <${Hash} of=${review.binding} groups=${8} /></p>`,
  });
  if (said) await decide(live, review, "approve", { reason: said.text || undefined, expires_s: expires ? Number(expires) : undefined }, "Approved");
}

async function reject(live, review) {
  await asked(live, review, { title: `Reject revision ${review.revision}?`, body: "Nothing of it runs, and the run ends.", action: "Reject", tone: "bad", field: "Why", must: true }, (said) => ["reject", { reason: said.text }, "Rejected"]);
}

async function send(live, review) {
  await asked(live, review, { title: "What should be different?", body: "The planner reads this text and proposes again.", action: "Send back", field: "Changes you want", must: true, lines: 5 }, (said) => ["request_changes", { text: said.text }, "Sent back to the planner"]);
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
  const refuse = () => notice("Your role may look at this, but not decide it.", "bad");
  const key = (act) => (allowed ? acts[act] : refuse);
  const sends = (review.choices ?? []).some((each) => each.answer === "request_changes");
  useKeys("Review", { a: ["Approve (asks once more)", key("approve")], ...(sends && { c: ["Request changes", key("change")] }), e: ["Amend", key("amend")], x: ["Reject", key("reject")] }, [live, review, expires, allowed, sends]);
  return html`<div class="review"><${Reach} review=${review} />
    <${Bar} review=${review} acts=${acts} allowed=${allowed} expires=${expires} setExpires=${setExpires} />
    ${amending && html`<${Amend} live=${live} review=${review} decide=${decide} onClose=${() => setAmending(false)} />`}
    ${review.approved_before && review.changes?.length > 0 && html`<section><h2>What is different from what was approved before</h2><${Changes} changes=${review.changes} /></section>`}
    <section><h2>All that will run</h2><${Steps} steps=${review.steps} risks=${review.risks} resolved=${review.resolved} unresolved=${review.unresolved} /></section>
    ${Object.keys(review.params ?? {}).length > 0 && html`<section class="card pad"><h2>Parameters</h2><${Facts} of=${review.params} /></section>`}</div>`;
}

function Reach({ review }) {
  const given = review.approvals ?? [];
  return html`<section class="card pad reach"><p class="reason"><${Glyph} shape="person" /><${Txt} v=${review.reason} /></p>
    <dl class="figures"><div><dt>Risk</dt><dd><${Risk} level=${review.risk} />${review.risk === "not declared" && review.policy_risk ? html` <span class="muted">policies count it as ${review.policy_risk}</span>` : ""}</dd></div>
      <div><dt>Steps</dt><dd>${review.steps.length}${review.cancel?.length ? html` <span class="muted">and ${review.cancel.length} taken out</span>` : ""}</dd></div>
      <div><dt>Declared cost</dt><dd><${Cost} cost=${review.cost} /></dd></div>
      <div><dt>Author</dt><dd>${review.author || "–"}</dd></div>
      <div class="wide"><dt>Touches</dt><dd><${Effects} of=${review.effects} /></dd></div>
      <div class="wide"><dt>Workers</dt><dd>${Object.keys(review.workers ?? {}).map((name) => html`<${Tag}><${Txt} v=${name} /></${Tag}> `)}</dd></div>
      ${Object.entries(review.sandboxes ?? {}).filter(([, walls]) => walls).length > 0 && html`<div class="wide"><dt>Sandbox</dt><dd>${Object.entries(review.sandboxes).map(([step, walls]) => html`<div><${Txt} v=${step} />: <${Txt} v=${walls || "none"} /></div>`)}</dd></div>`}</dl>
    ${review.untrusted && html`<p class="note tone-warn"><${Glyph} shape="broken" /><span>Results from outside had a part in this revision.</span></p>`}
    ${review.outside?.length > 0 && html`<div class="note tone-warn"><${Glyph} shape="broken" /><div>Outside of what was allowed: <${Findings} findings=${review.outside} /></div></div>`}
    ${review.widens?.length > 0 && html`<div class="note tone-warn"><${Glyph} shape="broken" /><div>Claims more than its workers promise; to approve is to believe it: <${Findings} findings=${review.widens} /></div></div>`}
    ${review.lookalikes?.length > 0 && html`<div class="note tone-warn"><${Glyph} shape="broken" /><div>Holds characters that look like others, or cannot be seen: <${Findings} findings=${review.lookalikes} /></div></div>`}
    ${review.overclaims?.length > 0 && html`<div class="note"><${Glyph} shape="broken" /><div>A planner claims more than its workers promise, and that does not count: <${Findings} findings=${review.overclaims} /></div></div>`}
    ${review.revisable && html`<p class="muted">May be revised by <${Txt} v=${review.revisable.planner} /> within what you allow: ${(review.revisable.envelope.workers ?? []).map((name) => html`<${Tag}><${Txt} v=${name} /></${Tag}> `)}</p>`}
    ${Object.keys(review.instants ?? {}).length > 0 && html`<p class="starts">Starts: ${Object.entries(review.instants).map(([step, at], place) => html`${place ? "; " : ""}<span><${Txt} v=${step} /> <${Starts} at=${at} /></span>`)}</p>`}
    ${given.length > 0 && html`<p class="muted">Approved so far by ${given.map((each) => `${each.by}${each.why ? ` (${each.why})` : ""}`).join(", ")}; ${review.people - given.length} more needed.</p>`}</section>`;
}

/** When a step may start: an instant that has passed keeps nothing waiting. */
function Starts({ at }) {
  return html`${millis(at) > now.value ? "" : "as soon as it is allowed, since "}<${Instant} at=${at} />${millis(at) > now.value ? " or later" : ""}`;
}

function Bar({ review, acts, allowed, expires, setExpires }) {
  const usual = review.limits?.approval_s; // what holds where a person says nothing
  const ends = now.value + Number(expires || usual || Infinity) * 1000;
  const late = Object.entries(review.instants ?? {}).filter(([, at]) => millis(at) >= ends).map(([step]) => step);
  return html`<div class="review-bar card" role="group" aria-label="Decide"><div class="bound"><span class="muted">You decide about exactly this</span><${Hash} of=${review.binding} groups=${8} /></div>
    ${allowed ? html`<label class="inline"><span class="muted">It</span> <select aria-label="How long the approval holds" value=${expires} onChange=${(event) => setExpires(event.target.value)}><option value="">${usual ? `expires in ${duration(usual)}, as configured` : "does not expire"}</option>${EXPIRES.map((value) => html`<option value=${value}>expires in ${duration(Number(value))}</option>`)}</select></label>
      ${late.length > 0 && html`<p class="note tone-warn"><${Glyph} shape="broken" /><span>It ends before the time of <${Txt} v=${late.join(", ")} />, which is then held. Choose a longer one.</span></p>`}
      <div class="actions"><button type="button" class="primary good" onClick=${acts.approve}>Approve <kbd>a</kbd></button>${(review.choices ?? []).some((each) => each.answer === "request_changes") && html`<button type="button" onClick=${acts.change}>Request changes <kbd>c</kbd></button>`}<button type="button" onClick=${acts.amend}>Amend <kbd>e</kbd></button><button type="button" class="bad" onClick=${acts.reject}>Reject <kbd>x</kbd></button></div>`
      : html`<p class="muted">Your role may look, but not decide.</p>`}</div>`;
}
