// The first screen: what needs me now, and one thing to do about each.
import { html, useEffect, useState } from "../lib.js";
import { api } from "../api.js";
import { to } from "../router.js";
import { inbox, inboxLimit, loadRuns, may, runs } from "../store.js";
import { attempt } from "../notices.js";
import { useKeys } from "../keys.js";
import { Ago, Copy, Cost, Effects, Empty, Glyph, Risk, Said, Shown, Status, Title, Txt } from "../ui/parts.js";
import { Change } from "../ui/protected_change.js";
import { answerLabel, count, label, read } from "../text.js";

const KINDS = {
  review: ["Approval", "check"],
  question: ["Question", "person"],
  failure: ["Failed step", "cross"],
  protected_change: ["Protected change", "check"],
  planner: ["Planner question", "person"],
  step: ["Question", "person"],
  task: ["Task", "person"],
  unseen: ["Unknown outcome", "broken"],
  planning: ["Planner needs input", "person"],
  hold: ["Held steps", "pause"],
  budget: ["Budget", "broken"],
  limit: ["Limit", "broken"],
};

export function Inbox() {
  useEffect(() => {
    inbox.refresh();
  }, []);
  useKeys("Inbox", { a: ["Answer the focused item", () => document.activeElement.closest(".ask")?.querySelector("button, a.button, textarea")?.focus()] });
  const number = inbox.state.value.data?.total ?? 0;
  return html`<${Title} sub=${number ? `${count(number, "open item")}, oldest first` : null}>Inbox</${Title}>
    <${Shown} of=${inbox} what="Loading the inbox">${(rows) => (rows.length ? html`<ul class="asks">${rows.map((row) => html`<${Ask} key=${row.id} row=${row} />`)}</ul><${More} rows=${rows} />` : html`<${Nothing} />`)}</${Shown}>`;
}

/** The rest of a long inbox: some more of it, up to what the server gives at once. */
function More({ rows }) {
  if (rows.length >= rows.total) return null;
  const more = () => {
    inboxLimit.value = Math.min(500, inboxLimit.value + 100);
    inbox.refresh();
  };
  return html`<p class="muted">${count(rows.total - rows.length, "more item")}. ${rows.length < 500 ? html`<button type="button" onClick=${more}>Show more</button>` : "They are listed when these are answered."}</p>`;
}

function Ask({ row }) {
  const [kind, shape] = KINDS[row.kind] ?? [label(row.kind), "person"];
  const review = row.kind === "review";
  const where = review ? to(["runs", row.run, "plan"]) : to(["runs", row.run, "graph"], row.step ? { step: row.step } : {});
  return html`<li class="card ask" data-item tabindex="-1">
    <div class="ask-head"><span class="status tone-ask"><${Glyph} shape=${shape} />${kind}</span>
      <a href=${where} class="muted">run ${row.run}${row.step ? html` · step <${Txt} v=${row.step} />` : ""}</a>${row.asked_by && html`<span class="muted">asked by <${Txt} v=${row.asked_by} /></span>`}<span class="push muted"><${Ago} at=${row.since} /></span></div>
    <${About} row=${row} />
    <div class="ask-text"><${Said} v=${row.text} /></div>
    ${review ? html`<${Leads} row=${row} /><div class="actions"><a class="button primary" href=${where}>Review plan</a></div>` : html`<${Answer} row=${row} />`}
  </li>`;
}

/** The choices of a question as buttons; words and data go along where they help. */
export function Answer({ row, onDone }) {
  return row.kind === "protected_change" ? html`<${Change} row=${row} onDone=${onDone} />` : html`<${Choices} row=${row} onDone=${onDone} />`;
}

function Choices({ row, onDone }) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState("");
  const [, question] = row.id.split("/", 2);
  const choices = (row.choices ?? []).map((choice) => choice.answer);
  const data = choices.includes("give") || row.kind === "task";
  const answer = async (choice) => {
    setBusy(choice || "send");
    const body = { choice, ...payload(choice, text, data) };
    const done = await attempt(() => api.answer(row.run, question, body), choice ? `Answered: ${answerLabel(choice)}` : "Answer sent");
    setBusy("");
    if (done) (inbox.soon(), onDone?.());
  };
  if (!may("operator")) return html`<p class="muted">Answering requires the role operator; your role is viewer.</p>`;
  return html`<label class="field">${data ? "Result or reason (text or JSON)" : choices.length ? "Comment (optional)" : "Answer"}
      <textarea rows=${choices.length ? 1 : 2} value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
    <${Leads} row=${row} />
    <div class="actions">${choices.length ? choices.map((choice, place) => html`<button type="button" class=${place === 0 ? "primary" : ""} disabled=${Boolean(busy)} onClick=${() => answer(choice)}>${answerLabel(choice)}</button>`)
      : html`<button type="button" class="primary" disabled=${!text || Boolean(busy)} onClick=${() => answer("")}>Send answer</button>`}</div>`;
}

/** Where each answer leads, and which one counts when none comes. */
function Leads({ row }) {
  if (!row.choices?.length) return null;
  return html`<dl class="leads">${row.choices.map((choice) => html`<div><dt>${answerLabel(choice.answer)}</dt><dd><${Txt} v=${choice.leads_to} /></dd></div>`)}
    ${row.default && row.until && html`<div><dt>Default</dt><dd>${answerLabel(row.default)} <${Ago} at=${row.until} /></dd></div>`}</dl>`;
}

/** What the question is about: the goal, and what the steps concerned may do. */
function About({ row }) {
  return html`<p class="ask-about"><b><${Txt} v=${row.goal || row.plan || "(no goal)"} /></b>${row.goal && row.plan ? html` <span class="muted">plan <${Txt} v=${row.plan} /></span>` : ""}</p>
    ${row.risk && html`<p class="ask-reach"><${Risk} level=${row.risk} /> <span class="muted">Side effects</span> <${Effects} of=${row.effects} />${row.cost ? html` <span class="muted">Declared cost</span> <${Cost} cost=${row.cost} />` : ""}</p>`}`;
}

/** What was written is data when it can be read as JSON and data was asked for; otherwise words. */
function payload(choice, text, data) {
  if (!text.trim()) return {};
  return data && ["give", "done"].includes(choice) ? { data: read(text) } : { text };
}

function Nothing() {
  useEffect(() => {
    loadRuns({});
  }, []);
  const recent = runs.value.rows.slice(0, 5);
  if (!recent.length && runs.value.loading) return null;
  if (!recent.length) return html`<${First} />`;
  return html`<${Empty} title="The inbox is empty"><p>Approvals, questions and tasks are listed here while a run waits for a person.</p></${Empty}>
    <section class="recent"><h2>Recent runs</h2><ul class="lines">${recent.map((row) => html`<li><a data-item href=${to(["runs", row.run])}><${Status} status=${row.status} awaiting=${row.awaiting} /><span class="grow cut"><${Txt} v=${row.goal || row.plan || row.run} /></span><span class="muted"><${Ago} at=${row.updated} /></span></a></li>`)}</ul></section>`;
}

const TRY = "leadhand run plan.yaml";

function First() {
  return html`<${Empty} title="No runs yet" action=${html`<a class="button primary" href=${to(["new"])}>Start a run</a>`}>
    <p>Start a run here or in a terminal. Its progress is shown live.</p>
    <p class="command"><code>${TRY}</code> <${Copy} text=${TRY} /></p></${Empty}>`;
}
