// What waits for a person: what it is about, what each answer leads to, and the answers.
import { html, useMemo, useState } from "../lib.js";
import { api } from "../api.js";
import { to } from "../router.js";
import { inbox, may } from "../store.js";
import { attempt, notice } from "../notices.js";
import { confirm, confirmed } from "./dialog.js";
import { Ago, Cost, Effects, Glyph, Risk, Said, Txt } from "./parts.js";
import { answerLabel, authorName, label, read } from "../text.js";

export const KINDS = {
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

export const kindName = (kind) => KINDS[kind]?.[0] ?? label(kind);

/** Where it is decided: the review of a plan, or the step that asks. */
export function placeOf(row) {
  return row.kind === "review" ? to(["runs", row.run, "plan"]) : to(["runs", row.run], row.step ? { step: row.step } : {});
}

/** The address of an item: the review of a plan, or the item in the inbox. */
export const itemOf = (row) => (row.kind === "review" ? placeOf(row) : to(["inbox", ...row.id.split("/")]));

export function Ask({ row }) {
  const review = row.kind === "review";
  return html`<li class="card ask" data-item tabindex="-1">
    <div class="ask-head"><span class="status tone-ask"><${Glyph} shape=${KINDS[row.kind]?.[1] ?? "person"} />${kindName(row.kind)}</span>
      <a href=${placeOf(row)} class="muted">run ${row.run}${row.step ? html` · step <${Txt} v=${row.step} />` : ""}</a><${By} row=${row} /><span class="push muted"><${Ago} at=${row.since} /></span></div>
    <${About} row=${row} />
    <div class="ask-text"><${Said} v=${review ? row.title || row.text : row.text} /></div>
    ${review ? html`<${Leads} row=${row} /><div class="actions"><a class="button primary" href=${placeOf(row)}>Review plan</a></div>` : html`<${Answer} row=${row} />`}
  </li>`;
}

function By({ row }) {
  return html`${row.asked_by && html`<span class="muted">asked by <${Txt} v=${authorName(row.asked_by)} /></span>`}${row.started_by && row.started_by !== row.asked_by && html`<span class="muted">started by <${Txt} v=${row.started_by} /></span>`}`;
}

/** The choices of a question as buttons; words and data go along where they help. */
export function Answer({ row, onDone }) {
  return row.kind === "protected_change" ? html`<${Change} row=${row} onDone=${onDone} />` : html`<${Choices} row=${row} onDone=${onDone} />`;
}

/** Answers that end a run: asked once more. */
const ENDS = new Set(["abort", "rollback", "stop", "give up"]);

/** Whether an answer says nothing without words or data. */
export function needsText(row, choice) {
  return !choice || choice === "give" || (choice === "retry" && row.words === true);
}

function Choices({ row, onDone }) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [, question] = row.id.split("/", 2);
  const choices = (row.choices ?? []).map((choice) => choice.answer);
  const data = choices.includes("give") || row.kind === "task";
  const must = choices.length ? row.words : true;
  const answer = async (choice) => {
    if (!text.trim() && needsText(row, choice)) return void notice(`${choice ? answerLabel(choice) : "An answer"} needs a text: fill in the field above the buttons.`, "bad");
    if (!(await sure(row, choice, text))) return;
    setBusy(true);
    const done = await attempt(() => api.answer(row.run, question, { choice, ...payload(choice, text, data) }), choice ? `Answered: ${answerLabel(choice)}` : "Answer sent");
    setBusy(false);
    if (done) (inbox.soon(), onDone?.());
  };
  if (!may("operator")) return html`<p class="muted">Answering requires the role operator; your role is viewer.</p>`;
  const button = (choice) => html`<button type="button" class="small ${ENDS.has(choice) ? "bad" : choice === "done" ? "primary" : ""}" aria-describedby=${`${row.id}-${choice}`} disabled=${busy} onClick=${() => answer(choice)}>${answerLabel(choice)}</button>`;
  return html`<label class="field">${data ? "Result or reason (text or JSON)" : choices.length ? `Comment (${must ? "required to retry" : "optional"})${choices.includes("retry") ? ": the worker gets it with the next attempt" : ""}` : "Answer"}
      <textarea rows=${choices.length ? 1 : 2} value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
    ${choices.length ? html`<${Leads} row=${row} button=${button} />` : html`<div class="actions"><button type="button" class="primary" disabled=${!text.trim() || busy} onClick=${() => answer("")}>Send answer</button></div>`}`;
}

/** Ask again before a run ends by an answer, or a task is done without a result. */
async function sure(row, choice, text) {
  const leads = row.choices?.find((each) => each.answer === choice)?.leads_to ?? "";
  if (ENDS.has(choice)) return confirm({ title: `${answerLabel(choice)}?`, body: label(`${leads}.`), action: answerLabel(choice), tone: "bad" });
  if (row.kind === "task" && choice === "done" && !text.trim()) return confirm({ title: "Mark done without a result?", body: "The field is empty, so steps that use this result get nothing.", action: "Mark done" });
  return true;
}

/** Where each answer leads, and which one counts when none comes. */
function Leads({ row, button = answerLabel }) {
  if (!row.choices?.length) return null;
  return html`<dl class="leads">${row.choices.map((choice) => html`<div><dt>${button(choice.answer)}</dt><dd id=${`${row.id}-${choice.answer}`}><${Txt} v=${choice.leads_to} /></dd></div>`)}
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

// A protected change: its diff and the answers to it. No single click lands the change.

/** What kind of line of a unified diff it is, for its colour. */
function lineKind(line) {
  if (/^(diff |index |--- |\+\+\+ |new file|deleted file|old mode|new mode|similarity|rename)/.test(line)) return "head";
  return { "+": "added", "-": "removed", "@": "place" }[line[0]] ?? "same";
}

/** The whole of a unified diff, as long as it is: what is approved can be read here. Lines of one kind that
 *  follow each other are one element, and drawn once: an inbox that is asked for again does not draw them. */
export function Diff({ text }) {
  return useMemo(() => {
    const parts = [];
    for (const line of text.replace(/\n$/, "").split("\n")) {
      const kind = lineKind(line);
      if (parts.at(-1)?.kind !== kind) parts.push({ kind, lines: [] });
      parts.at(-1).lines.push(line);
    }
    return html`<div class="diff" role="region" aria-label="Diff of the change" tabindex="0"><pre>${parts.map(({ kind, lines }) => html`<span class="diff-${kind}"><${Txt} v=${`${lines.join("\n")}\n`} /></span>`)}</pre></div>`;
  }, [text]);
}

/** The diff, and the three answers. Approving asks once more, and names the commit. */
export function Change({ row, onDone }) {
  const [busy, setBusy] = useState(false);
  const [, question] = row.id.split("/", 2);
  const short = (row.commit ?? "").slice(0, 12);
  /** Ask once more, then send the answer with what was typed. */
  const ask = async (what, answer, done) => {
    const send = (said) => (setBusy(true), api.answer(row.run, question, { ...answer, text: said.text }));
    const sent = await confirmed(what, send, done);
    setBusy(false);
    if (sent) (inbox.soon(), onDone?.());
  };
  const approve = () => {
    const body = html`<p>Merges exactly commit <code>${short}</code> into main, with: ${(row.paths ?? []).map((path, at) => html`${at ? ", " : ""}<code><${Txt} v=${path} /></code>`)}.</p>`;
    ask({ title: "Approve this change?", body, action: "Approve this change", field: "Reason (optional)" }, { choice: "approve", commit: row.commit }, "Approved");
  };
  const back = () => ask({ title: "Send this change back?", body: "The agent repeats the task with your comment.", action: "Send back", field: "Comment", must: true, lines: 5 }, { choice: "send_back" }, "Sent back");
  const drop = () => ask({ title: "Drop this change?", body: "The task is skipped, and the change is not merged.", action: "Drop change", tone: "bad", field: "Reason (optional)" }, { choice: "drop" }, "Dropped");
  const choices = row.choices.map((each) => each.answer);
  const given = row.approved_by ?? [];
  return html`<${Diff} text=${row.diff} />
    ${row.people > 1 && html`<p class="muted">Needs ${row.people} approvals by different people; approved by: ${given.length ? given.join(", ") : "none"}.</p>`}
    ${may("approver") ? html`<div class="actions">${choices.includes("approve") && html`<button type="button" disabled=${busy} onClick=${approve}>Approve this change…</button>`}
      <button type="button" disabled=${busy} onClick=${back}>Send back with a comment…</button><button type="button" disabled=${busy} onClick=${drop}>Drop change…</button></div>`
      : html`<p class="muted">Deciding requires the role approver.</p>`}`;
}
