// A difference by meaning: what came, what went, what is now otherwise. Order and white space are none.
import { html } from "../lib.js";
import { Txt } from "./parts.js";
import { pretty } from "../text.js";
import { byStep } from "../diff.js";

const MARKS = { added: "+", removed: "−", changed: "~", entries: "~", renamed: "›", order: "!", hold: "!" };
const WORDS = { added: "added", removed: "removed", changed: "changed", entries: "changed", renamed: "renamed", order: "leads to", hold: "leads to" };

export function Changes({ changes }) {
  if (!changes.length) return html`<p class="muted">No differences</p>`;
  return html`<div class="changes">${byStep(changes).map(([step, all]) => html`<section class="card change-group"><h3 class="mono">${step ? html`<${Txt} v=${step} />` : "Plan"}</h3>
    <ul>${all.map((change) => html`<li class="change change-${change.kind}"><span class="change-mark" aria-hidden="true">${MARKS[change.kind] ?? "~"}</span><span class="visually-hidden">${WORDS[change.kind]}</span>
      <div><code><${Txt} v=${change.rest || (step ? "the step" : change.path)} /></code><${Sides} change=${change} /></div></li>`)}</ul></section>`)}</div>`;
}

function Sides({ change }) {
  const one = (tone, value) => html`<pre class="side-${tone}"><span class="visually-hidden">${tone === "old" ? "before" : "after"}: </span><${Txt} v=${pretty(value)} /></pre>`;
  if (change.kind === "entries") return html`${change.removed?.map((each) => one("old", each))}${change.added?.map((each) => one("new", each))}`;
  if (change.text !== undefined) return html` <span><${Txt} v=${change.text} /></span>`;
  if (change.kind === "renamed") return html` <span>is now <code><${Txt} v=${change.new} /></code></span>`;
  return html`${change.kind !== "added" && one("old", change.old)}${change.kind !== "removed" && one("new", change.new)}`;
}
