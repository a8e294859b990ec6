// A new run: say what is wanted, see the plan and what it may do, then start. Nothing runs before.
import { html, useEffect, useRef, useState } from "../lib.js";
import { api, intent } from "../api.js";
import { go, route } from "../router.js";
import { may } from "../store.js";
import { alone, Copy, Effects, Empty, Findings, Glyph, NoWorkers, Risk, Tag, Title, Trouble, Txt } from "../ui/parts.js";
import { Outlook, Steps } from "../ui/steps.js";
import { costs, count } from "../text.js";
import { command, request } from "./run_form.js";

const EMPTY = { kind: "goal", text: "", want: "", have: "", acceptance: "", planner: "", budget: "", deadline: "", mode: "", plan: "", library: "", params: "", context: "", review: false };

export default function NewRun() {
  const { library = "" } = route.value.query;
  const [form, setForm] = useState({ ...EMPTY, library, kind: library ? "library" : "goal" });
  const [draft, setDraft] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState("");
  const [known, setKnown] = useState({});
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
      await what(request(form));
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
  if (!may("operator")) return html`<${Title}>New run</${Title}><${Empty} title="Your role may look, but not start"><p>An operator can.</p></${Empty}>`;
  return html`<${Title} sub="Say what you want. You see the plan, and what it may do, before anything runs.">New run</${Title}>
    ${known.workers && alone(known.workers) && html`<${NoWorkers} />`}
    <form class="form" onSubmit=${look}><div class="choices" role="group" aria-label="Start from">${[["goal", "A goal"], ["plan", "A plan file"], ["library", "The library"]].map(([name, word]) => html`<button type="button" aria-pressed=${form.kind === name} onClick=${() => (setForm({ ...form, kind: name }), setDraft(null), setError(null))}>${word}</button>`)}</div>
      ${form.kind === "goal" ? html`<${Goal} form=${form} set=${set} known=${known} />` : form.kind === "plan" ? html`<${PlanFile} form=${form} set=${set} />` : html`<${Kept} form=${form} set=${set} />`}
      ${form.kind !== "goal" && html`<label class="field">Parameters, a line each<textarea class="mono" rows="2" placeholder="version=v2.1.4" value=${form.params} onInput=${set("params")}></textarea></label>`}
      <${Limits} form=${form} set=${set} known=${known} />
      <${Trouble} error=${error} />
      <div class="actions"><button type="submit" class=${draft ? "" : "primary"} disabled=${Boolean(busy)}>${busy === "draft" ? "Planning" : "Show the plan"}</button>
        ${draft && draft.decision !== "refused" && html`<button type="button" class="primary" disabled=${Boolean(busy)} onClick=${start}>${busy === "start" ? "Starting" : "Start"}</button>`}</div></form>
    ${busy === "draft" && html`<p class="muted" role="status">The planner is thinking. Nothing runs yet.</p>`}
    ${draft && html`<section class="draft" tabindex="-1" ref=${shown} aria-label="The plan"><${Draft} draft=${draft} /></section>`}
    <p class="command same"><span class="muted">The same in a terminal:</span> <code>${command(form)}</code> <${Copy} text=${command(form)} /></p>`;
}

const PLANNERS = { goal: "goal: by needs and gives" };

function Goal({ form, set, known }) {
  return html`<label class="field">Goal<textarea rows="2" autofocus required=${!form.want} placeholder="Where do the bicycles run out?" value=${form.text} onInput=${set("text")}></textarea></label>
    <div class="two"><label class="field">Want: the facts that make it done<input class="mono" placeholder="summary" value=${form.want} onInput=${set("want")} /></label>
      <label class="field">Planner<select value=${form.planner} onChange=${set("planner")}><option value="">as configured</option>${known.planners?.map((name) => html`<option value=${name}>${PLANNERS[name] ?? name}</option>`)}</select></label></div>
    <label class="field">Have: what is known, a line each<textarea class="mono" rows="2" placeholder="api=http://127.0.0.1:8123" value=${form.have} onInput=${set("have")}></textarea></label>`;
}

function PlanFile({ form, set }) {
  const take = async (event) => {
    const [file] = event.target.files;
    if (file) set("plan")({ target: { value: await file.text() } });
  };
  return html`<label class="field">Plan file<input type="file" accept=".json,.yaml,.yml" onChange=${take} /></label>
    <label class="field">Plan, as YAML or JSON<textarea class="mono" rows="10" required spellcheck="false" value=${form.plan} onInput=${set("plan")}></textarea></label>`;
}

function Kept({ form, set }) {
  const [names, setNames] = useState(null);
  useEffect(() => {
    api.library().then((page) => setNames(page.items.map((row) => row.name)), () => {});
  }, []);
  return html`<label class="field">Name in the library<input required list="kept" value=${form.library} placeholder="deploy@3" onInput=${set("library")} /></label>
    <datalist id="kept">${names?.map((name) => html`<option value=${name}></option>`)}</datalist>
    ${names && html`<p class="muted">${names.length ? html`Kept: <${Txt} v=${names.slice(0, 12).join(", ")} />${names.length > 12 ? " …" : ""}` : "The library is empty: a plan comes into it by Library, Keep a plan."}</p>`}`;
}

function Limits({ form, set, known }) {
  return html`<details class="limits"><summary>Limits and review</summary><div class="two"><label class="field">Budget in dollars<input type="number" min="0" step="any" value=${form.budget} onInput=${set("budget")} /></label>
      ${form.kind === "goal" && html`<label class="field">Deadline<input placeholder="2 hours" value=${form.deadline} onInput=${set("deadline")} /></label>`}
      ${known.contexts?.length > 0 && html`<label class="field">Place<select value=${form.context} onChange=${set("context")}><option value="">none</option>${known.contexts.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>`}
      ${form.kind === "goal" && html`<label class="field">Plans ahead<select value=${form.mode} onChange=${set("mode")}><option value="">as it sees fit</option><option value="next_step">the next step</option><option value="whole">the whole plan</option><option value="direct">directly</option></select></label>`}</div>
    ${form.kind === "goal" && html`<label class="field">Accepted when, a line each<textarea class="mono" rows="2" placeholder="data.failed == 0" value=${form.acceptance} onInput=${set("acceptance")}></textarea></label>`}
    <label class="check"><input type="checkbox" checked=${form.review} onChange=${set("review")} /> Wait for a person, whatever the risk</label></details>`;
}

const TONES = { "let through": "good", "one person": "ask", "two people": "ask", refused: "bad" };
const SAYS = { "let through": "Starts at once", "one person": "Waits for one person", "two people": "Waits for two people", refused: "Is refused" };

function Draft({ draft }) {
  const { findings = [], decision, reason } = draft;
  const [plan, reach] = [draft.plan ?? {}, draft.reach ?? {}]; // a refused plan reaches nothing
  const steps = plan.steps ?? [];
  return html`<div class="card pad reach"><p class="reason tone-${TONES[decision] ?? "quiet"}"><${Glyph} shape=${decision === "let through" ? "check" : decision === "refused" ? "cross" : "person"} /><span><b>${SAYS[decision] ?? decision}</b>${reason ? html`: <${Txt} v=${reason} />` : ""}</span></p>
      <dl class="figures"><div><dt>Risk</dt><dd><${Risk} level=${reach.risk} /></dd></div><div><dt>Steps</dt><dd>${steps.length}${plan.final === false ? html` <span class="muted">then the planner looks again</span>` : ""}</dd></div><div><dt>Declared cost</dt><dd>${costs(reach.cost)}</dd></div><div><dt>May spend</dt><dd>${draft.limits?.budget == null ? "no limit" : draft.limits.budget}</dd></div><div><dt>Planner calls</dt><dd>${draft.limits?.planner_calls == null ? "–" : `at most ${draft.limits.planner_calls}`}</dd></div>
        <div class="wide"><dt>Touches</dt><dd><${Effects} of=${reach.effects} /></dd></div><div class="wide"><dt>Workers</dt><dd>${reach.workers?.length ? reach.workers.map((each) => html`<${Tag}><${Txt} v=${each} /></${Tag}> `) : "none"}</dd></div></dl>
      <${Findings} findings=${findings} /></div>
    <h2>${count(steps.length, "step")}</h2><${Steps} steps=${steps} />
    <${Outlook} steps=${plan.outlook} />`;
}
