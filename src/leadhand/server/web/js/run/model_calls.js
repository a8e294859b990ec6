// Model calls of a step, or of a run's planner: figures of each, prompt and answer where they are recorded.
import { html, useEffect, useState } from "../lib.js";
import { api } from "../api.js";
import { useResource } from "../store.js";
import { Copy, Money, Shown, Table, Tag, Txt } from "../ui/parts.js";
import { duration, label, words } from "../text.js";

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
