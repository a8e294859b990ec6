// A new run: say what is wanted, see the plan and what it may do, then start. Nothing runs before.
import { html, useEffect, useRef, useState } from "../lib.js";
import { api, intent } from "../api.js";
import { go, route, to } from "../router.js";
import { may } from "../store.js";
import { alone, Copy, Effects, Empty, Findings, Glyph, NoWorkers, Risk, Tag, Title, Trouble, Txt } from "../ui/parts.js";
import { Outlook, Steps } from "../ui/steps.js";
import { costs, count, read, short } from "../text.js";
import { command, request } from "./run_form.js";

const EMPTY = { kind: "goal", text: "", want: "", have: "", acceptance: "", planner: "", budget: "", deadline: "", mode: "", plan: "", library: "", values: {}, context: "", review: false };

export default function NewRun() {
  const { library = "" } = route.value.query;
  const [form, setForm] = useState({ ...EMPTY, library, kind: library ? "library" : "goal" });
  const [draft, setDraft] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState("");
  const [known, setKnown] = useState({});
  const [params, setParams] = useState(null);
  const key = useRef(intent());
  const shown = useRef(null);
  const set = (field) => (event) => {
    setForm({ ...form, [field]: event.target.type === "checkbox" ? event.target.checked : event.target.value });
    setDraft(null);
    key.current = intent();
  };
  const act = (name, what) => async (event) => {
    event?.preventDefault();
    setBusy(name);
    setError(null);
    try {
      await what(request(form, params));
    } catch (problem) {
      setError(problem);
    }
    setBusy("");
  };
  const look = act("draft", async (body) => setDraft(await api.draft(body)));
  const start = act("start", async (body) => {
    const made = await api.start(body, key.current);
    go(["runs", made.run]);
  });
  useEffect(() => {
    api.workers().then(setKnown, () => {});
  }, []);
  useEffect(() => {
    if (draft) shown.current?.focus();
  }, [draft]);
  if (!may("operator")) return html`<${Title}>New run</${Title}><${Empty} title="Your role cannot start runs"><p>Starting a run requires the role operator.</p></${Empty}>`;
  return html`<${Title} sub="Review the plan and its side effects before anything runs.">New run</${Title}>
    ${known.workers && alone(known.workers) && html`<${NoWorkers} />`}
    <form class="form" onSubmit=${look}><div class="choices" role="group" aria-label="Start from">${[["goal", "Goal"], ["plan", "Plan file"], ["library", "Library plan"]].map(([name, word]) => html`<button type="button" aria-pressed=${form.kind === name} onClick=${() => (setForm({ ...form, kind: name, values: {} }), setParams(null), setDraft(null), setError(null))}>${word}</button>`)}</div>
      ${form.kind === "goal" ? html`<${Goal} form=${form} set=${set} known=${known} />` : form.kind === "plan" ? html`<${PlanFile} form=${form} set=${set} onParams=${setParams} />` : html`<${Saved} form=${form} set=${set} onParams=${setParams} />`}
      ${form.kind !== "goal" && params && html`<${Params} params=${params} values=${form.values} onChange=${(name, text) => set("values")({ target: { value: { ...form.values, [name]: text } } })} />`}
      <${Limits} form=${form} set=${set} known=${known} />
      <${Trouble} error=${error} />
      <div class="actions"><button type="submit" class=${draft ? "" : "primary"} disabled=${Boolean(busy)}>${busy === "draft" ? "Planning" : "Show plan"}</button>
        ${draft && draft.decision !== "refused" && html`<button type="button" class="primary" disabled=${Boolean(busy)} onClick=${start}>${busy === "start" ? "Starting" : "Start run"}</button>`}</div></form>
    ${busy === "draft" && html`<p class="muted" role="status">Planning. Nothing runs yet.</p>`}
    ${draft && html`<section class="draft" tabindex="-1" ref=${shown} aria-label="Plan"><${Draft} draft=${draft} /></section>`}
    <p class="command same"><span class="muted">Terminal command:</span> <code>${command(form, params)}</code> <${Copy} text=${command(form, params)} /></p>`;
}

const PLANNERS = { goal: "goal: matches what workers need and give" };

function Goal({ form, set, known }) {
  return html`<label class="field">Goal<textarea rows="2" autofocus required=${!form.want} placeholder="Where do the bicycles run out?" value=${form.text} onInput=${set("text")}></textarea></label>
    <div class="two"><label class="field">Wanted facts (results that complete the goal)<input class="mono" placeholder="summary" value=${form.want} onInput=${set("want")} /></label>
      <label class="field">Planner<select value=${form.planner} onChange=${set("planner")}><option value="">Default (from settings)</option>${known.planners?.map((name) => html`<option value=${name}>${PLANNERS[name] ?? name}</option>`)}</select></label></div>
    <label class="field">Known facts (name=value, one per line)<textarea class="mono" rows="2" placeholder="api=http://127.0.0.1:8123" value=${form.have} onInput=${set("have")}></textarea></label>`;
}

/** The parameters of what is typed or chosen, as the server reads them; null while they are not known. */
function useParams(ask, deps, onParams) {
  useEffect(() => {
    let mine = true;
    const timer = setTimeout(() => ask().then((found) => mine && onParams(found), () => mine && onParams(null)), 300);
    return () => (clearTimeout(timer), (mine = false));
  }, deps);
}

function PlanFile({ form, set, onParams }) {
  const take = async (event) => {
    const [file] = event.target.files;
    if (file) set("plan")({ target: { value: await file.text() } });
  };
  useParams(async () => (form.plan.trim() ? (await api.lint(read(form.plan))).parameters : null), [form.plan], onParams);
  return html`<label class="field">Plan file<input type="file" accept=".json,.yaml,.yml" onChange=${take} /></label>
    <label class="field">Plan (YAML or JSON)<textarea class="mono" rows="10" required spellcheck="false" value=${form.plan} onInput=${set("plan")}></textarea></label>`;
}

function Saved({ form, set, onParams }) {
  const [plans, setPlans] = useState(null);
  useEffect(() => {
    api.library().then((page) => setPlans(page.items), () => {});
  }, []);
  useParams(async () => (form.library ? (await api.plan(form.library)).parameters : null), [form.library], onParams);
  if (plans && !plans.length) return html`<p class="muted">The library is empty. <a href=${to(["library"])}>Save a plan</a> first.</p>`;
  const names = (plans ?? []).map((row) => [row.name, `${row.name} (version ${row.version})${row.goal ? `: ${short(row.goal, 60)}` : ""}`]);
  if (form.library && !names.some(([name]) => name === form.library)) names.unshift([form.library, form.library]);
  return html`<label class="field">Library plan<select required value=${form.library} onChange=${set("library")}><option value="">Choose a plan</option>${names.map(([name, words]) => html`<option value=${name}>${words}</option>`)}</select></label>`;
}

function Params({ params, values, onChange }) {
  if (!params.length) return html`<p class="muted">The plan has no parameters.</p>`;
  return html`<fieldset><legend>Parameters</legend>${params.map((each) => html`<label class="field" key=${each.name}><span><span class="mono"><${Txt} v=${each.name} /></span> (${each.type}${each.required ? "" : ", optional"})${each.description && html`: <${Txt} v=${each.description} />`}</span><${Param} param=${each} value=${values[each.name] ?? ""} onInput=${(event) => onChange(each.name, event.target.value)} /></label>`)}</fieldset>`;
}

function Param({ param, value, onInput }) {
  const hint = param.has_default ? `default: ${short(JSON.stringify(param.default), 60)}` : param.type === "secret" ? "env:NAME" : "";
  const choices = param.choices?.map((each) => [JSON.stringify(each), String(each)]) ?? (param.type === "boolean" && [["true", "true"], ["false", "false"]]);
  if (choices) return html`<select required=${param.required} value=${value} onChange=${onInput}><option value="">${hint || "Choose a value"}</option>${choices.map(([key, words]) => html`<option value=${key}>${words}</option>`)}</select>`;
  if (/array|object|any/.test(param.type)) return html`<textarea class="mono" rows="2" required=${param.required} placeholder=${hint || "JSON"} value=${value} onInput=${onInput}></textarea>`;
  const number = param.type === "integer" || param.type === "number";
  return html`<input class="mono" type=${number ? "number" : "text"} step=${param.type === "integer" ? "1" : "any"} required=${param.required} placeholder=${hint} value=${value} onInput=${onInput} />`;
}

function Limits({ form, set, known }) {
  return html`<details class="limits"><summary>Limits and approval</summary><div class="two"><label class="field">Budget (dollars plus cost units)<input type="number" min="0" step="any" value=${form.budget} onInput=${set("budget")} /></label>
      ${form.kind === "goal" && html`<label class="field">Deadline<input placeholder="2 hours" value=${form.deadline} onInput=${set("deadline")} /></label>`}
      ${known.contexts?.length > 0 && html`<label class="field">Environment<select value=${form.context} onChange=${set("context")}><option value="">none</option>${known.contexts.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>`}
      ${form.kind === "goal" && html`<label class="field">Planning mode<select value=${form.mode} onChange=${set("mode")}><option value="">Automatic</option><option value="next_step">Next step</option><option value="whole">Whole plan</option><option value="direct">Direct</option></select></label>`}</div>
    ${form.kind === "goal" && html`<label class="field">Acceptance criteria (one per line)<textarea class="mono" rows="2" placeholder="data.failed == 0" value=${form.acceptance} onInput=${set("acceptance")}></textarea></label>`}
    <label class="check"><input type="checkbox" checked=${form.review} onChange=${set("review")} /> Require approval, whatever the risk</label></details>`;
}

const TONES = { "let through": "good", "one person": "ask", "two people": "ask", refused: "bad" };
const SAYS = { "let through": "Starts without approval", "one person": "Needs 1 approval", "two people": "Needs 2 approvals", refused: "Can't start" };

function Draft({ draft }) {
  const { findings = [], decision, reason } = draft;
  const [plan, reach] = [draft.plan ?? {}, draft.reach ?? {}]; // a refused plan reaches nothing
  const steps = plan.steps ?? [];
  return html`<div class="card pad reach"><p class="reason tone-${TONES[decision] ?? "quiet"}"><${Glyph} shape=${decision === "let through" ? "check" : decision === "refused" ? "cross" : "person"} /><span><b>${SAYS[decision] ?? decision}</b>${reason ? html`: <${Txt} v=${reason} />` : ""}</span></p>
      <dl class="figures"><div><dt>Risk</dt><dd><${Risk} level=${reach.risk} /></dd></div><div><dt>Steps</dt><dd>${steps.length}${plan.final === false ? html` <span class="muted">then the planner continues</span>` : ""}</dd></div><div><dt>Declared cost</dt><dd>${costs(reach.cost)}</dd></div><div><dt>Budget</dt><dd>${draft.limits?.budget == null ? "no limit" : draft.limits.budget}</dd></div><div><dt>Planner calls</dt><dd>${draft.limits?.planner_calls == null ? "–" : `at most ${draft.limits.planner_calls}`}</dd></div>
        <div class="wide"><dt>Side effects</dt><dd><${Effects} of=${reach.effects} /></dd></div><div class="wide"><dt>Workers</dt><dd>${reach.workers?.length ? reach.workers.map((each) => html`<${Tag}><${Txt} v=${each} /></${Tag}> `) : "none"}</dd></div></dl>
      <${Findings} findings=${findings} /></div>
    <h2>${count(steps.length, "step")}</h2><${Steps} steps=${steps} />
    <${Outlook} steps=${plan.outlook} />`;
}
