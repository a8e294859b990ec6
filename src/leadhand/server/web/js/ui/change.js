// A protected change: its diff, and what a person may say about it. Nothing here lands by one click.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { inbox, may } from "../store.js";
import { attempt } from "../say.js";
import { confirm } from "./dialog.js";
import { Txt } from "./parts.js";

const LINES = 4000;

/** What kind of line of a unified diff it is, for its colour. */
export function lineKind(line) {
  if (/^(diff |index |--- |\+\+\+ |new file|deleted file|old mode|new mode|similarity|rename)/.test(line)) return "head";
  return { "+": "added", "-": "removed", "@": "place" }[line[0]] ?? "same";
}

export function Diff({ text }) {
  const lines = (text ?? "").replace(/\n$/, "").split("\n");
  return html`<div class="diff" role="region" aria-label="Diff of the change" tabindex="0"><pre>${lines.slice(0, LINES).map((line) => html`<span class="diff-line diff-${lineKind(line)}"><${Txt} v=${line || " "} />${"\n"}</span>`)}</pre>
    ${lines.length > LINES && html`<p class="note">${lines.length - LINES} more lines: leadhand answer shows all of it.</p>`}</div>`;
}

/** The diff, and the three answers. Approving asks once more, and names the commit. */
export function Change({ row, onDone }) {
  const [busy, setBusy] = useState(false);
  const [, question] = row.id.split("/", 2);
  const short = (row.commit ?? "").slice(0, 12);
  const send = async (body, done) => {
    setBusy(true);
    const sent = await attempt(() => api.answer(row.run, question, body), done);
    setBusy(false);
    if (sent) (inbox.soon(), onDone?.());
  };
  const approve = async () => {
    const body = html`<p>Exactly commit <code>${short}</code> lands on main, with: ${(row.paths ?? []).map((path, at) => html`${at ? ", " : ""}<code><${Txt} v=${path} /></code>`)}.</p>`;
    const said = await confirm({ title: "Approve this change?", body, action: "Approve this change", field: "Reason, for the record" });
    if (said) await send({ choice: "approve", commit: row.commit, text: said.text }, "Approved");
  };
  const back = async () => {
    const said = await confirm({ title: "Send it back?", body: "The agent gets your comment and does the task again.", action: "Send back", field: "What is to be different", must: true, lines: 5 });
    if (said) await send({ choice: "send_back", text: said.text }, "Sent back");
  };
  const drop = async () => {
    const said = await confirm({ title: "Drop this change?", body: "The task is skipped, and nothing of it lands.", action: "Drop", tone: "bad", field: "Reason, for the record" });
    if (said) await send({ choice: "drop", text: said.text }, "Dropped");
  };
  const choices = (row.choices ?? []).map((each) => each.answer ?? each);
  const given = row.approved_by ?? [];
  return html`<${Diff} text=${row.diff} />
    ${row.people > 1 && html`<p class="muted">${row.people} different people must approve it; approved by ${given.length ? given.join(", ") : "none so far"}.</p>`}
    ${may("approver") ? html`<div class="actions">${choices.includes("approve") && html`<button type="button" disabled=${busy} onClick=${approve}>Approve this change…</button>`}
      <button type="button" disabled=${busy} onClick=${back}>Send back with a comment…</button><button type="button" disabled=${busy} onClick=${drop}>Drop…</button></div>`
      : html`<p class="muted">You can read it, but not decide: that takes the role approver.</p>`}`;
}
