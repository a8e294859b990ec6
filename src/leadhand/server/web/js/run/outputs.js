// What the run was for: its result, and what it kept.
import { html } from "../lib.js";
import { Copy, Empty, Facts, Money, Table, Txt } from "../ui/parts.js";
import { ENDED } from "../status.js";
import { pretty } from "../text.js";
import { ModelCalls } from "./model_calls.js";

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
