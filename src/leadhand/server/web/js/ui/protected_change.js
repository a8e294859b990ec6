// A protected change: its diff and the answers to it. No single click lands the change.
import { html, useMemo, useState } from "../lib.js";
import { api } from "../api.js";
import { inbox, may } from "../store.js";
import { confirmed } from "./dialog.js";
import { Txt } from "./parts.js";

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
