// One step beside the graph: how it stands and why, each attempt, what it printed, what can be done.
import { html, useEffect, useRef, useState } from "../lib.js";
import { api } from "../api.js";
import { readEvents } from "../sse.js";
import { may, useResource } from "../store.js";
import { ask } from "../router.js";
import { attempt } from "../notices.js";
import { confirm, confirmed } from "../ui/dialog.js";
import { Answer } from "../screens/inbox.js";
import { Copy, Cost, Facts, Findings, Glyph, Said, Shown, Status, Tag, Took, Txt, Value } from "../ui/parts.js";
import { ENDED, SETTLED, shown } from "../status.js";
import { beyond, clock, costs, count, label, money, percent, repeated, strategy, words } from "../text.js";
import { Artifact, artifacts } from "./outputs.js";

export function Drawer({ live, step, onClose }) {
  const found = useResource((signal) => api.step(live.run, step, signal), [live, step]);
  const box = useRef(null);
  useEffect(() => box.current.focus({ preventScroll: true }), [found]);
  const touched = live.touched.value;
  useEffect(() => {
    if (touched.whole || touched.steps.has(step)) found.soon();
  }, [touched]);
  const node = live.shape.value && live.nodes.get(step)?.value; // it may come after this was opened
  return html`<aside class="drawer" ref=${box} tabindex="-1" aria-label=${`Step ${step}`}>
    <header class="drawer-head"><div><p class="muted">Step</p><h2 class="mono"><${Txt} v=${step} /></h2></div><button type="button" class="icon" aria-label="Close the step" onClick=${onClose}>✕</button></header>
    ${node && html`<div class="drawer-state"><${Status} status=${shown(node)} step=${true} /><span class="muted"><${Txt} v=${[node.worker, node.action].filter(Boolean).join(" · ")} /></span></div>`}
    <${Acts} live=${live} step=${step} node=${node} found=${found} />
    <${Shown} of=${found} what="Loading the step">${(doc) => html`<${Detail} live=${live} step=${step} node=${node ?? doc} doc=${doc} />`}</${Shown}></aside>`;
}

const ACTS = {
  redo: { title: "Retry this step?", body: "A new attempt starts; dependent steps follow.", action: "Retry step", done: "Retrying" },
  hold: { title: "Hold this step?", body: "The step does not start until a person releases it.", action: "Hold step", done: "Held" },
  release: { title: "Release this step?", body: "A step that is held for a missing approval needs as many people as its rule requires.", action: "Release step", done: "Release recorded" },
};

/** What nobody else can take over any more. */
const FIXED = new Set(["running", "probing", "succeeded", "superseded", "proposed"]);

function Acts({ live, step, node, found }) {
  if (!may("operator") || !node || node.outlook) return null;
  const asked = questionOf(live, step, found);
  const act = async (verb) => {
    const { done, ...what } = ACTS[verb];
    if (await confirmed({ ...what, field: verb === "redo" ? "Reason" : "Reason (optional)", must: verb === "redo" }, (said) => api.stepControl(live.run, step, verb, said.text), done)) (found.soon(), live.soonGraph(), live.soonHead());
  };
  const others = found.state.value.data?.others ?? [];
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
  const startable = !SETTLED.has(status) && !["running", "probing", "proposed"].includes(status);
  return html`<div class="actions">${node.status === "failed" && html`<button type="button" class="primary" onClick=${() => act("redo")}>Retry step</button>`}
    ${movable && html`<button type="button" onClick=${reassign}>Reassign step</button>`}
    ${status === "held" ? may("approver") && html`<button type="button" class="primary" onClick=${() => act("release")}>Release step</button>` : startable && html`<button type="button" onClick=${() => act("hold")}>Hold step</button>`}</div>
    ${asked && html`<div class="card pad asked"><${Said} v=${asked.text} /><${Answer} row=${asked} onDone=${live.soonHead} /></div>`}`;
}

function questionOf(live, step, found) {
  const all = found.state.value.data?.questions ?? live.head.value?.waiting_for ?? []; // the head is there first
  return all.find((each) => each.step === step && each.kind !== "review");
}

function Detail({ live, step, node, doc }) {
  const { planned, attempts_made: attempts, data: result } = doc;
  // Each text stands once, at the first place where it is read.
  const asked = may("operator") ? doc.questions.filter((each) => each.kind !== "review").map((each) => each.text) : [];
  const reason = repeated(doc.reason || node.reason, asked) ? "" : doc.reason || node.reason;
  const above = reason ? [...asked, reason] : asked;
  const made = [...attempts].reverse();
  const known = (place) => [...above, ...made.slice(0, place).map((each) => each.failure?.message)];
  return html`${reason && html`<div class="note tone-${node.status === "failed" ? "bad" : "warn"}"><${Glyph} shape=${node.status === "failed" ? "cross" : "loop"} /><${Said} v=${reason} /></div>`}
    <${Instead} doc=${doc} />
    <${Findings} findings=${doc.findings.filter((each) => !repeated(each, [...above, ...attempts.map((one) => one.failure?.message)]))} />
    ${doc.recommendations.length > 0 && html`<section class="recommends"><h3>Recommendations</h3><ul>${doc.recommendations.map((each) => html`<li><${Txt} v=${each} /></li>`)}</ul></section>`}
    <dl class="figures"><div><dt>Cost</dt><dd><${Cost} cost=${doc.cost} money=${doc.money} /></dd></div><div><dt>Duration</dt><dd class="figure"><${Took} from=${node.started} to=${node.ended} /></dd></div><div><dt>Attempts</dt><dd>${attempts.length}</dd></div></dl>
    ${attempts.length > 0 && html`<section><h3>Attempts</h3><ol class="attempts">${made.map((each, place) => html`<${Attempt} key=${each.attempt} live=${live} step=${step} made=${each} known=${known(place)} tail=${place === 0 ? doc.output : ""} />`)}</ol></section>`}
    ${result !== null && html`<section><header class="section-head"><h3>Result</h3><${Copy} text=${JSON.stringify(result, null, 2)} /></header><${Value} v=${result} />${artifacts(result).map((ref) => html`<${Artifact} of=${ref} />`)}</section>`}
    ${doc.inputs && html`<${Inputs} given=${doc.inputs} planned=${planned.parameters ?? {}} />`}
    <section><h3>Planned step</h3><${Facts} of=${Object.fromEntries(Object.entries(planned).filter(([name]) => name !== "id").map(([name, value]) => [label(name), value]))} /></section>`;
}

/** The parameters as the worker got them, each beside what the plan says where that is a template. */
function Inputs({ given, planned }) {
  const rows = Object.entries(given);
  if (!rows.length) return null;
  const same = (name) => JSON.stringify(planned[name]) === JSON.stringify(given[name]);
  return html`<section class="inputs"><header class="section-head"><h3>Inputs</h3><${Copy} text=${JSON.stringify(given, null, 2)} /></header>
    <dl class="facts">${rows.map(([name, value]) => html`<div><dt class="mono"><${Txt} v=${name} /></dt><dd><${Value} v=${value} />${!same(name) && html`<div class="muted template">from <code><${Txt} v=${typeof planned[name] === "string" ? planned[name] : JSON.stringify(planned[name])} /></code></div>`}</dd></div>`)}</dl></section>`;
}

/** What took the place of what, if so. */
function Instead({ doc }) {
  const link = (id) => html`<button type="button" class="small plain mono" onClick=${() => ask({ step: id })}><${Txt} v=${id} /></button> `;
  return html`${doc.superseded_by && html`<p class="instead">Replaced by ${link(doc.superseded_by)}</p>`}
    ${doc.replaces.length > 0 && html`<p class="instead">Replaces ${doc.replaces.map(link)}</p>`}`;
}

function Attempt({ live, step, made, known, tail }) {
  const number = made.attempt;
  const failure = made.failure;
  const status = made.status;
  const recovery = made.recovery;
  const why = recovery && !repeated(recovery.reason, known) ? beyond(recovery.reason, [failure?.message]) : "";
  return html`<li class="attempt tone-edge-${failure ? "bad" : status === "running" ? "live" : "good"}"><div class="attempt-head"><b>${number}</b><${Status} status=${status === "verified" ? "succeeded" : status} step=${true} /><span class="muted"><${Txt} v=${made.worker} /></span>
      <span class="push muted figure" title=${clock(made.started)}><${Took} from=${made.started} to=${made.ended} />${made.cost ? ` · ${costs(made.cost, made.money)}` : ""}</span></div>
    ${failure && html`<div><${Tag} tone="bad">${words(failure.class)}</${Tag}> ${repeated(failure.message, known) ? html`<span class="muted">see above</span>` : html`<${Said} v=${failure.message} />`}</div>`}
    ${recovery && html`<p class="recovery"><${Glyph} shape="loop" /><span><b>${strategy(recovery.strategy)}</b>${recovery.worker ? ` to ${recovery.worker}` : ""}${why ? html`: <${Txt} v=${why} />` : ""}</span></p>`}
    ${made.models?.length > 0 && html`<p class="muted">${count(made.models.length, "model call")}: ${made.models.map((call) => `${call.model}${call.cost != null ? ` ${money(call.cost)}` : ""}`).join(", ")}</p>`}
    ${status === "running" ? html`<${Printing} live=${live} step=${step} number=${number} />` : html`<${Output} live=${live} step=${step} number=${number} tail=${tail} />`}</li>`;
}

const PAUSE_MS = 1000;

/** The output and progress of a running step, read while its panel is open.
 *  @returns {{attempt: number, message: string, fraction: number|null, output: string} | {trouble: string} | null} */
function useLive(run, step) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    const control = new AbortController();
    followLive(run, step, control.signal, setFound);
    return () => control.abort();
  }, [run, step]);
  return found;
}

async function followLive(run, step, signal, heard) {
  while (!signal.aborted) {
    try {
      const response = await api.live(run, step, signal);
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      heard((before) => (before?.trouble ? null : before));
      await readEvents(response, (events) => events.forEach(({ event, data }) => event === "live" && heard(JSON.parse(data))));
    } catch (error) {
      if (!signal.aborted) heard({ trouble: error.message });
    }
    // The attempt ended, or has not begun: another one may come.
    if (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

/** What an attempt under way says and prints, as it does. */
function Printing({ live, step, number }) {
  const found = useLive(live.run, step);
  const box = useRef(null);
  const mine = found?.attempt === number ? found : null;
  useEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [mine?.output]);
  const share = mine?.fraction == null ? "" : percent(mine.fraction);
  return html`${mine && (share || mine.message) && html`<p class="progress-note"><progress max="1" value=${mine.fraction ?? undefined} aria-label="Progress"></progress> ${share} <${Txt} v=${mine.message} /></p>`}
    ${found?.trouble ? html`<p class="muted">The log cannot be read: <${Txt} v=${found.trouble} />. Retrying.</p>` : mine?.output ? html`<pre class="value output" tabindex="0" ref=${box} aria-label="Live log"><${Txt} v=${mine.output} /></pre>` : html`<p class="muted">No output yet</p>`}`;
}

/** What the attempt printed: the tail at once, the whole when asked for. */
function Output({ live, step, number, tail }) {
  const [text, setText] = useState(null);
  const load = () => attempt(async () => setText((await api.output(live.run, step, number)) || "No output"));
  const shownText = text ?? tail;
  return html`${shownText && html`<pre class="value output" tabindex="0"><${Txt} v=${shownText} /></pre>`}${text === null && html`<button type="button" class="small plain" onClick=${load}>${shownText ? "Full log" : "Log"}</button>`}`;
}
