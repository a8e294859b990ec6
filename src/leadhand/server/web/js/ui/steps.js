// A plan before people: every step with all that will hold for it, in the order it was written.
import { html } from "../lib.js";
import { Risk, Tag, Txt, Value } from "./parts.js";
import { label } from "../text.js";

const FIRST = ["id", "worker", "action", "depends_on", "parameters"];
const HIDDEN = new Set(["risk_level"]);

export function Steps({ steps, risks = {}, heading = 3, resolved = {}, unresolved = {} }) {
  return html`<ol class="plan-steps">${steps.map((step) => html`<${Step} key=${step.id} step=${step} risk=${risks[step.id] ?? step.risk ?? step.risk_level} heading=${heading} known=${resolved[step.id] ?? {}} later=${unresolved[step.id] ?? []} />`)}</ol>`;
}

/** What a planner expects to propose after the steps of its plan. */
export function Outlook({ steps = [] }) {
  return steps.length > 0 && html`<h3>Expected later</h3><${Steps} steps=${steps.map((each) => (typeof each === "string" ? { id: each } : each))} heading=${4} />`;
}

function Step({ step, risk, heading, known, later }) {
  const H = `h${heading}`;
  const after = step.depends_on ?? step.after ?? [];
  const rest = Object.entries(step).filter(([name, value]) => !FIRST.includes(name) && !HIDDEN.has(name) && name !== "after" && name !== "risk" && !blank(value));
  return html`<li class="card plan-step" data-item tabindex="-1"><header><${H} class="mono"><${Txt} v=${step.id} /></${H}>
      <span class="muted"><${Txt} v=${[step.worker, step.action].filter(Boolean).join(" · ")} /></span><span class="push"><${Risk} level=${risk} /></span></header>
    ${after.length > 0 && html`<p class="muted">After ${[].concat(after).map((id) => html`<${Tag}><${Txt} v=${typeof id === "string" ? id : JSON.stringify(id)} /></${Tag}> `)}</p>`}
    ${!blank(step.parameters) && html`<dl class="facts">${Object.entries(step.parameters).map(([name, value]) => html`<div><dt class="mono"><${Txt} v=${name} /></dt><dd><${Value} v=${value} /></dd></div>`)}</dl>`}
    ${Object.keys(known).length > 0 && html`<dl class="facts known" aria-label="Resolved values">${Object.entries(known).map(([place, value]) => html`<div><dt class="mono">= <${Txt} v=${place} /></dt><dd><${Value} v=${value} /></dd></div>`)}</dl>`}
    ${later.length > 0 && html`<p class="muted">Known only when the step starts: ${later.map((place) => html`<code><${Txt} v=${place} /></code> `)}</p>`}
    ${rest.length > 0 && html`<dl class="facts small">${rest.map(([name, value]) => html`<div><dt>${label(name)}</dt><dd><${Value} v=${flat(value)} /></dd></div>`)}</dl>`}</li>`;
}

function blank(value) {
  return value === null || value === undefined || value === "" || (typeof value === "object" && Object.keys(value).length === 0);
}

function flat(value) {
  return Array.isArray(value) && value.every((each) => typeof each !== "object") ? value.join(", ") : value;
}
