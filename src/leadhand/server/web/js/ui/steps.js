// A plan before people: every step with all that will hold for it, in the order it was written.
import { html } from "../lib.js";
import { Effects, Instant, Risk, Tag, Txt, Value } from "./parts.js";
import { now } from "../store.js";
import { byStep, label, millis, pretty } from "../text.js";

const FIRST = ["id", "worker", "action", "depends_on", "parameters"];
const HIDDEN = new Set(["risk_level"]);

/** `facts`, `about`, `walls`, `instants`: what a review knows of each step, by its id. */
export function Steps({ steps, risks = {}, heading = 3, resolved = {}, unresolved = {}, facts = {}, about = {}, walls = {}, instants = {}, more }) {
  return html`<ol class="plan-steps">${steps.map((step) => html`<${Step} key=${step.id} step=${step} risk=${risks[step.id] ?? step.risk ?? step.risk_level} heading=${heading} known=${resolved[step.id] ?? {}} later=${unresolved[step.id] ?? []} facts=${facts[step.id]} about=${about[step.id]} walls=${walls[step.id]} at=${instants[step.id]} more=${more} />`)}</ol>`;
}

/** What a planner expects to propose after the steps of its plan. */
export function Outlook({ steps = [] }) {
  return steps.length > 0 && html`<h3>Expected later</h3><${Steps} steps=${steps.map((each) => (typeof each === "string" ? { id: each } : each))} heading=${4} />`;
}

function Step({ step, risk, heading, known, later, facts, about, walls, at, more }) {
  const H = `h${heading}`;
  const after = step.depends_on ?? step.after ?? [];
  const rest = Object.entries(step).filter(([name, value]) => !FIRST.includes(name) && !HIDDEN.has(name) && name !== "after" && name !== "risk" && !blank(value) && !(facts && name === "undo" && !value.parameters));
  const inner = Object.entries(known).filter(([place]) => !(place.replace(/^parameters\./, "") in (step.parameters ?? {})));
  return html`<li class="card plan-step" id=${`plan-step-${step.id}`} data-item tabindex="-1"><header><${H} class="mono"><${Txt} v=${step.id} /></${H}>
      <span class="muted"><${Txt} v=${[step.worker, step.action].filter(Boolean).join(" · ")} /></span><span class="push"><${Risk} level=${risk} /></span></header>
    ${about && html`<p class="about-worker"><${Txt} v=${about} /></p>`}
    ${at && html`<p class="starts">Starts <${Starts} at=${at} /></p>`}
    ${after.length > 0 && html`<p class="muted">After ${[].concat(after).map((id) => html`<${Tag}><${Txt} v=${typeof id === "string" ? id : JSON.stringify(id)} /></${Tag}> `)}</p>`}
    ${!blank(step.parameters) && html`<dl class="facts">${Object.entries(step.parameters).map(([name, value]) => html`<div><dt class="mono"><${Txt} v=${name} /></dt><dd><${Value} v=${value} />${`parameters.${name}` in known && html`<div class="known">= <${Value} v=${known[`parameters.${name}`]} /></div>`}</dd></div>`)}</dl>`}
    ${inner.length > 0 && html`<dl class="facts known" aria-label="Resolved values">${inner.map(([place, value]) => html`<div><dt class="mono">= <${Txt} v=${place} /></dt><dd><${Value} v=${value} /></dd></div>`)}</dl>`}
    ${later.length > 0 && html`<p class="muted">Known only when the step starts: ${later.map((place) => html`<code><${Txt} v=${place} /></code> `)}</p>`}
    ${facts && html`<${Reach} facts=${facts} walls=${walls} />`}
    ${rest.length > 0 && html`<dl class="facts small">${rest.map(([name, value]) => html`<div><dt>${label(name)}</dt><dd><${Value} v=${flat(value)} /></dd></div>`)}</dl>`}
    ${more?.(step)}</li>`;
}

/** What a step changes, and how that is undone. */
function Reach({ facts, walls }) {
  const effects = [...facts.effects, ...facts.silent.map((name) => `undeclared:${name}`)];
  return html`<dl class="facts small"><div><dt>Side effects</dt><dd><${Effects} of=${effects} /></dd></div>
    ${effects.length > 0 && html`<div><dt>Rollback</dt><dd>${facts.undo ? html`<${Txt} v=${facts.undo} />` : facts.effects.length ? html`<span class="tone-bad">cannot be rolled back</span>` : "not declared"}</dd></div>`}
    ${facts.person && html`<div><dt>Carried out by</dt><dd>a person</dd></div>`}
    ${walls && html`<div><dt>Sandbox</dt><dd><${Txt} v=${walls} /></dd></div>`}</dl>`;
}

/** When a step may start: an instant that has passed keeps nothing waiting. */
function Starts({ at }) {
  return html`${millis(at) > now.value ? "" : "once approved, allowed since "}<${Instant} at=${at} />${millis(at) > now.value ? " or later" : ""}`;
}

function blank(value) {
  return value === null || value === undefined || value === "" || (typeof value === "object" && Object.keys(value).length === 0);
}

function flat(value) {
  return Array.isArray(value) && value.every((each) => typeof each !== "object") ? value.join(", ") : value;
}

// A difference by meaning: what came, what went, what is now otherwise. Order and white space are none.

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
