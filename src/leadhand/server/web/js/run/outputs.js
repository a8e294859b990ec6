// What a run gave: its result, what it kept, and its model calls.
import { html, useEffect, useState } from "../lib.js";
import { api } from "../api.js";
import { useResource } from "../store.js";
import { Copy, Empty, Facts, Money, Shown, Table, Tag, Txt } from "../ui/parts.js";
import { ENDED } from "../status.js";
import { duration, label, pretty, words } from "../text.js";

export function Outputs({ live }) {
  const head = live.head.value;
  const refs = artifacts(head.result);
  const none = head.result === null || head.result === undefined;
  return html`${none ? html`<${Empty} title=${ENDED.has(head.status) ? "No result" : "No result yet"}><p>${ENDED.has(head.status) ? "The run ended without a result. The event log shows the cause." : "The result is shown here when the run has produced it."}</p></${Empty}>`
    : html`<section class="card pad"><header class="section-head"><h2>Result</h2><${Copy} text=${pretty(head.result)} /></header><pre class="value result" tabindex="0"><${Txt} v=${pretty(head.result)} /></pre></section>`}
    ${refs.length > 0 && html`<section class="card pad"><h2>Artifacts</h2><ul class="lines">${refs.map((ref) => html`<li><${Artifact} of=${ref} /></li>`)}</ul></section>`}
    ${head.params && Object.keys(head.params).length > 0 && html`<section class="card pad"><h2>Inputs</h2><${Facts} of=${head.params} /></section>`}
    ${head.models?.length > 0 && html`<section><h2>Models</h2><${Table} label="Models" columns=${["Model", "Tier", "Calls", "Cost"]} figures=${2}>${head.models.map((row) => html`<tr><td>${row.model}</td><td>${row.tier}</td><td class="num figure">${row.calls ?? ""}</td><td class="num"><${Money} v=${row.cost} /></td></tr>`)}</${Table}></section><${ModelCalls} live=${live} />`}`;
}

/** A large result, to be downloaded. */
export function Artifact({ of }) {
  return html`<a class="mono" href=${`/api/v1/artifacts/${encodeURIComponent(of)}`} download>Download ${of.slice(0, 24)}</a>`;
}

/** References to large results, wherever they stand in a value. */
export function artifacts(value) {
  if (Array.isArray(value)) return value.flatMap(artifacts);
  if (!value || typeof value !== "object") return [];
  if (typeof value.$artifact === "string") return [value.$artifact];
  return Object.values(value).flatMap(artifacts);
}

// Model calls of a step, or of the planner: figures of each, prompt and answer where they are recorded.

const COLUMNS = ["Model", "Latency", "Tokens in", "Tokens out", "Cost"];

/** Without `step`: the calls of the planner. */
export function ModelCalls({ live, step }) {
  const found = useResource((control) => api.modelCalls(live.run, step ? { step } : { planner: true }, control), [live, step]);
  const last = live.lines.value.findLast((line) => line.type === "ModelCalled")?.seq;
  useEffect(() => last && found.soon(), [last]);
  return html`<${Shown} of=${found} what="Loading model calls">${({ items, next }) => items.length > 0 && html`<section class="model-calls"><${step ? "h3" : "h2"}>${step ? "Model calls" : "Model calls of the planner"}</${step ? "h3" : "h2"}>
    <${Table} label="Model calls" columns=${COLUMNS} figures=${1}>${items.map((row) => html`<${Call} key=${row.seq} run=${live.run} row=${row} />`)}</${Table}>
    ${next && html`<p class="muted">The first ${items.length} calls. The event log has all of them.</p>`}</section>`}</${Shown}>`;
}

function Call({ run, row }) {
  const [open, setOpen] = useState(false);
  const cached = row.cached ? html` <span class="muted">(${row.cached.toLocaleString("en")} cached)</span>` : "";
  return html`<tr><td><button type="button" class="plain" aria-expanded=${open} onClick=${() => setOpen(!open)}>${open ? "▾" : "▸"} <${Txt} v=${row.model} /></button>${row.failure && html` <${Tag} tone="bad">${words(row.failure)}</${Tag}>`}<p class="muted"><${Txt} v=${label(row.purpose)} /></p></td>
      <td class="num figure">${duration(row.seconds)}</td><td class="num figure">${row.input.toLocaleString("en")}${cached}</td><td class="num figure">${row.output.toLocaleString("en")}</td><td class="num"><${Money} v=${row.cost} /></td></tr>
    ${open && html`<tr><td colspan="5">${row.recorded ? html`<${Contents} run=${run} number=${row.seq} />` : html`<p class="muted">Prompt and answer: not recorded. With <code>contents = true</code> under <code>[telemetry]</code> in leadhand.toml the event log keeps what models read and answer from then on, without secrets, cut at 20,000 characters.</p>`}</td></tr>`}`;
}

function Contents({ run, number }) {
  const found = useResource((control) => api.modelCall(run, number, control), [run, number]);
  const part = (name, text) => html`<div class="message"><header class="section-head"><h4>${label(name)}</h4><${Copy} text=${text} /></header><pre class="value" tabindex="0"><${Txt} v=${text} /></pre></div>`;
  return html`<${Shown} of=${found} what="Loading the model call">${(call) => html`${call.messages.map((each) => part(each.role, each.text))}${part("answer", call.answer || "No answer")}`}</${Shown}>`;
}
