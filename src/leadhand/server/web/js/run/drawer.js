// One step beside the other views: how it stands and why, what it got and gave, each attempt, its log, what can be done.
import { html, signal, useEffect, useRef, useState } from "../lib.js";
import { api } from "../api.js";
import { may, useResource } from "../store.js";
import { ask, route, to } from "../router.js";
import { attempt } from "../notices.js";
import { confirm, confirmed } from "../ui/dialog.js";
import { Answer } from "../ui/ask.js";
import { Copy, Cost, Facts, Glyph, Said, Shown, Status, Table, Tag, Took, Txt, Value } from "../ui/parts.js";
import { ENDED, SETTLED, shown, stepState } from "../status.js";
import { beyond, clock, costs, duration, following, full, headed, label, origin, pretty, repeated, size, strategy, words } from "../text.js";
import { Artifact, artifacts, ModelCalls } from "./outputs.js";
import { Log } from "./log.js";

/** Whether the panel takes the whole width. */
const wide = signal(false);

export function Drawer({ live, step, onClose }) {
  const found = useResource((control) => api.step(live.run, step, control), [live, step]);
  const box = useRef(null);
  useEffect(() => box.current.focus({ preventScroll: true }), [found]);
  const touched = live.touched.value;
  useEffect(() => {
    if (touched.whole || touched.steps.has(step)) found.soon();
  }, [touched]);
  const node = live.shape.value && live.nodes.get(step)?.value; // it may come after this was opened
  return html`<aside class="drawer ${wide.value ? "wide" : ""}" ref=${box} tabindex="-1" aria-label=${`Step ${step}`}>
    <header class="drawer-head"><div><p class="muted">Step</p><h2 class="mono"><${Txt} v=${step} /></h2></div><div class="actions"><${Copy} text=${location.href} label="Copy link" /><button type="button" class="small widen" aria-pressed=${wide.value} onClick=${() => (wide.value = !wide.value)}>Full width</button><button type="button" class="icon" aria-label="Close the step" onClick=${onClose}>✕</button></div></header>
    ${node && html`<div class="drawer-state"><${Status} status=${shown(node)} step=${true} /><span class="muted"><${Txt} v=${[node.worker, node.action].filter(Boolean).join(" · ")} /></span></div>`}
    <${Shown} of=${found} what="Loading the step">${(doc) => html`<${Detail} live=${live} step=${step} node=${node ?? doc} doc=${doc} found=${found} />`}</${Shown}></aside>`;
}

const ACTS = {
  redo: { title: "Retry this step?", body: "A new attempt starts; dependent steps follow.", action: "Retry step", done: "Retrying" },
  hold: { title: "Hold this step?", body: "The step does not start until a person releases it.", action: "Hold step", done: "Held" },
  release: { title: "Release this step?", body: "A step that is held for a missing approval needs as many people as its rule requires.", action: "Release step", done: "Release recorded" },
};

/** What nobody else can take over any more. */
const FIXED = new Set(["running", "probing", "succeeded", "superseded", "proposed"]);

function Acts({ live, step, node, doc, found }) {
  if (!may("operator") || node.outlook) return null;
  const asked = doc.questions.find((each) => each.step === step && each.kind !== "review");
  const changed = () => (found.soon(), live.soonGraph(), live.soonHead());
  const act = async (verb) => {
    const { done, ...what } = ACTS[verb];
    if (await confirmed({ ...what, field: verb === "redo" ? "Reason" : "Reason (optional)", must: verb === "redo" }, (said) => api.stepControl(live.run, step, verb, said.text), done)) changed();
  };
  const { others } = doc;
  const movable = may("approver") && others.length > 0 && !FIXED.has(node.status) && !ENDED.has(live.head.value?.status);
  const reassign = async () => {
    const said = await confirm({ title: "Reassign this step to another worker?", body: "The step gets a new id, and dependent steps follow it. The change is reviewed like a plan.", action: "Reassign step", choose: "Worker", choices: others, field: "Reason (optional)" });
    let told = null;
    if (said && (await attempt(async () => (told = await api.reassign(live.run, step, said.choice, said.text)), `Reassigned to ${said.choice}`))) {
      live.load();
      if (told.status !== "waiting") ask({ step: told.step });
    }
  };
  const status = shown(node);
  // What the run did without, once it has succeeded, needs no other attempt.
  const dropped = live.head.value?.status === "succeeded" && (live.head.value.dropped ?? []).some((each) => each.step === step);
  const startable = !SETTLED.has(status) && !["running", "probing", "proposed"].includes(status);
  return html`<div class="actions">${node.status === "failed" && !dropped && html`<button type="button" class=${live.head.value?.status === "succeeded" ? "small" : "primary"} onClick=${() => act("redo")}>Retry step</button>`}
    ${movable && html`<button type="button" onClick=${reassign}>Reassign step</button>`}
    ${status === "held" ? may("approver") && html`<button type="button" class="primary" onClick=${() => act("release")}>Release step</button>` : startable && !asked && html`<button type="button" onClick=${() => act("hold")}>Hold step</button>`}</div>
    ${asked && html`<div class="card pad asked"><${Said} v=${asked.text} /><${Answer} row=${asked} onDone=${changed} /></div>`}`;
}

function Detail({ live, step, node, doc, found }) {
  const { attempts_made: attempts, data: result } = doc;
  const [chosen, choose] = useState(0);
  // Each text stands once, at the first place where it is read.
  const asked = may("operator") ? doc.questions.filter((each) => each.kind !== "review").map((each) => each.text) : [];
  const reason = repeated(doc.reason, [...asked, doc.outcome]) ? "" : doc.reason;
  const { tone, shape } = stepState(doc.status);
  return html`<div class="note outcome tone-${tone}"><${Glyph} shape=${shape} /><div><strong><${Txt} v=${doc.outcome} /></strong>${reason && html`<${Said} v=${reason} />`}<${Instead} doc=${doc} /></div></div>
    <${Acts} live=${live} step=${step} node=${node} doc=${doc} found=${found} />
    <${Inputs} live=${live} step=${step} rows=${doc.inputs} />
    ${result !== null && html`<section><header class="section-head"><h3>Result</h3><${Copy} text=${pretty(result)} /></header><${Value} v=${result} />${artifacts(result).map((ref) => html`<${Artifact} of=${ref} />`)}</section>`}
    <${Criteria} rows=${doc.criteria} />
    ${attempts.length > 0 && html`<${Log} live=${live} step=${step} attempts=${attempts} chosen=${chosen || attempts.at(-1).attempt} choose=${choose} />
      <${Attempts} attempts=${attempts} above=${[...asked, reason]} choose=${choose} />`}
    ${doc.recommendations.length > 0 && html`<section class="recommends"><h3>Recommendations</h3><ul>${doc.recommendations.map((each) => html`<li><${Said} v=${each} /></li>`)}</ul></section>`}
    <section><h3>Cost</h3><dl class="figures"><div><dt>Cost</dt><dd><${Cost} cost=${doc.cost} money=${doc.money} /></dd></div><div><dt>Duration</dt><dd class="figure"><${Took} from=${node.started} to=${node.ended} /></dd></div><div><dt>Attempts</dt><dd>${attempts.length}</dd></div></dl></section>
    ${doc.models && html`<${ModelCalls} live=${live} step=${step} />`}
    <${Origin} live=${live} step=${step} doc=${doc} />`;
}

/** The values that the worker got, each beside its expression in the plan. */
function Inputs({ live, step, rows }) {
  if (!rows.length) return null;
  const all = Object.fromEntries(rows.filter((row) => !row.cut).map((row) => [row.name, row.value]));
  return html`<section class="inputs"><header class="section-head"><h3>Inputs</h3><${Copy} text=${pretty(all)} /></header>
    <dl class="facts">${rows.map((row) => html`<div><dt class="mono"><${Txt} v=${row.name} /></dt><dd>${row.cut ? html`<a href=${api.inputAddress(live.run, step, row.name)} download>Download ${size(row.bytes)}</a>` : html`<${Value} v=${row.value} />`}
      ${row.later && html` <${Tag} tone="warn">known when the step starts</${Tag}>`}${row.expression !== null && row.expression !== row.value && html`<div class="muted template">from <code><${Txt} v=${pretty(row.expression)} /></code></div>`}</dd></div>`)}</dl></section>`;
}

const JUDGED = { met: "good", unmet: "bad" };

function Criteria({ rows }) {
  if (!rows.length) return null;
  return html`<section><h3>Success criteria</h3><${Table} label="Success criteria" columns=${["Outcome", "Criterion", "Judged by"]}>${rows.map((row) => html`<tr><td><${Tag} tone=${JUDGED[row.outcome] ?? "quiet"}>${row.outcome}</${Tag}></td>
    <td><code><${Txt} v=${row.criterion} /></code>${beyond(row.finding, [`${row.criterion} does not hold`]) && html`<${Said} v=${row.finding} />`}</td><td><${Txt} v=${row.judged_by} /></td></tr>`)}</${Table}></section>`;
}

const COLUMNS = ["Attempt", "Worker", "Started", "Duration", "Outcome"];

function Attempts({ attempts, above, choose }) {
  const known = [...above];
  return html`<section><h3>Attempts</h3><${Table} label="Attempts" columns=${COLUMNS} grouped=${true}>${[...attempts].reverse().map((made) => {
    const row = html`<${Attempt} key=${made.attempt} made=${made} known=${[...known]} choose=${choose} />`;
    known.push(made.failure?.message);
    return row;
  })}</${Table}></section>`;
}

function Attempt({ made, known, choose }) {
  const { attempt: number, failure, recovery, status } = made;
  const why = recovery && !repeated(recovery.reason, known) ? beyond(recovery.reason, [failure?.message]) : "";
  const next = following(made);
  const pause = recovery?.delay ? duration(recovery.delay) : "";
  return html`<tbody class="attempt"><tr><td><button type="button" class="small" title="Show the log" aria-label=${`Log of attempt ${number}`} onClick=${() => choose(number)}>${number}</button></td><td><${Txt} v=${made.worker} /></td><td title=${full(made.started)}>${clock(made.started, 0)}</td><td class="figure"><${Took} from=${made.started} to=${made.ended} />${made.cost ? html`<p class="muted">${costs(made.cost, made.money)}</p>` : ""}</td>
      <td><${Status} status=${status === "verified" ? "succeeded" : status} step=${true} />${failure && html` <${Tag} tone="bad">${words(failure.class)}</${Tag}>`}</td></tr>
    ${failure && html`<tr class="attempt-why"><td colspan="5"><${Said} v=${repeated(failure.message, known) ? headed(failure.message).head : failure.message} />
      ${recovery && html`<p>Recovery: <b>${strategy(recovery.strategy)}</b>${next ? `: ${next}${pause && ` after ${pause}`}` : why && html`: <${Txt} v=${why} />`}</p>`}</td></tr>`}</tbody>`;
}

const open = (id) => html`<a class="mono" href=${to(route.value.path, { ...route.value.query, step: id })}><${Txt} v=${id} /></a>`;

/** What took the place of what, if so. */
function Instead({ doc }) {
  return html`${doc.superseded_by && html`<p class="instead">Open ${open(doc.superseded_by)}</p>`}
    ${Object.entries(doc.origin.replaces).map(([id, why]) => html`<p class="instead">Replaces ${open(id)}${why && html` because: <${Said} v=${why} />`}</p>`)}`;
}

/** Where the step comes from, and what else the log holds of it. */
function Origin({ live, step, doc }) {
  const { revision, author, reason, approved_by: person } = doc.origin;
  return html`<section><h3>Origin</h3><p>Planned in <a href=${to(["runs", live.run, "plan"], { rev: revision })}>revision ${revision}</a> ${origin(author, live.head.value?.planner)}${person ? `, approved by ${person === "policy" ? "the policy" : person}` : ""}.${reason ? html` <${Said} v=${reason} />` : ""}</p>
    <p class="path"><a class="button small" href=${to(["runs", live.run, "log"], { find: step })}>Events of this step</a></p>
    <details><summary>Planned step</summary><${Facts} of=${Object.fromEntries(Object.entries(doc.planned).filter(([name]) => name !== "id").map(([name, value]) => [label(name), value]))} /></details></section>`;
}
