// All runs: by state, by words, newest first as the server gives them.
import { html, useEffect, useRef } from "../lib.js";
import { ask, route, to } from "../router.js";
import { loadRuns, may, runs } from "../store.js";
import { Ago, Cost, Empty, Glyph, Loading, Meter, Status, Title, Took, Trouble, Txt } from "../ui/parts.js";
import { ENDED, state } from "../status.js";
import { resource } from "../store.js";
import { api } from "../api.js";

const SHOWN = ["waiting", "running", "paused", "failed", "succeeded", "cancelled", "rejected"];
const ALWAYS = new Set(["waiting", "running", "failed", "succeeded"]);
const totals = resource(async (signal) => (await api.metrics(signal)).runs ?? {});

export function Runs() {
  const { status = "", q = "" } = route.value.query;
  const typing = useRef(0);
  const filter = { ...(status && { status }), ...(q && { q }) };
  useEffect(() => {
    loadRuns(filter);
    totals.refresh();
  }, [status, q]);
  const search = (event) => {
    clearTimeout(typing.current);
    typing.current = setTimeout(() => ask({ q: event.target.value.trim() }), 250);
  };
  const actions = may("operator") && html`<a class="button primary" href=${to(["new"])}>New run</a>`;
  return html`<${Title} actions=${actions}>Runs</${Title}>
    <div class="bar"><label class="search"><span class="visually-hidden">Search runs</span><input data-search type="search" placeholder="Search goals, plans and ids" value=${q} onInput=${search} /></label>
      <${Filters} now=${status} /></div>
    <${List} filtered=${Boolean(status || q)} />`;
}

function Filters({ now }) {
  const counts = totals.state.value.data ?? {};
  const all = Object.values(counts).reduce((sum, each) => sum + each, 0);
  const choice = (name, label, number) => html`<button type="button" aria-pressed=${now === name} onClick=${() => ask({ status: name })}>${name && html`<${Glyph} shape=${state(name).shape} />`}${label}${number ? html` <span class="figure">${number}</span>` : ""}</button>`;
  return html`<div class="choices" role="group" aria-label="State">${choice("", "All", all)}${SHOWN.filter((name) => ALWAYS.has(name) || counts[name] || now === name).map((name) => choice(name, state(name).word, counts[name]))}</div>`;
}

function List({ filtered }) {
  const { rows, next, error, loading, filter } = runs.value;
  if (error && !rows.length) return html`<${Trouble} error=${error} again=${() => loadRuns(filter)} />`;
  if (!rows.length && (loading || !filter)) return html`<${Loading} what="Loading runs" />`;
  if (!rows.length && filtered) return html`<${Empty} title="No run is like that" action=${html`<button type="button" onClick=${() => ask({ status: "", q: "" })}>Show all</button>`}><p>Other words or another state may find it.</p></${Empty}>`;
  if (!rows.length) return html`<${Empty} title="No runs yet" action=${html`<a class="button primary" href=${to(["new"])}>Start a run</a>`}><p>What is started here or on the command line is listed with its progress and cost.</p></${Empty}>`;
  return html`<div class="table-wrap card" tabindex="0" role="region" aria-label="Runs"><table class="table runs"><thead><tr><th scope="col">State</th><th scope="col">Goal</th><th scope="col">Steps</th><th scope="col" class="num">Cost</th><th scope="col" class="num">Took</th><th scope="col" class="num">Started</th></tr></thead>
    <tbody>${rows.map((row) => html`<${Row} key=${row.run} row=${row} />`)}</tbody></table></div>
    ${next && html`<p class="more"><button type="button" disabled=${loading} onClick=${() => loadRuns(filter, true)}>Show more</button></p>`}`;
}

function Row({ row }) {
  const { succeeded = 0, failed = 0 } = row;
  const steps = (row.steps ?? 0) - (row.replaced ?? 0); // others stand in for those
  const words = `${succeeded} of ${steps} steps succeeded${failed ? `, ${failed} failed` : ""}`;
  return html`<tr><td><${Status} status=${row.status} />${row.waiting && row.status !== "waiting" ? html` <span class="tag tone-ask">${row.waiting} for you</span>` : ""}</td>
    <td class="goal"><a data-item href=${to(["runs", row.run])}><${Txt} v=${row.goal || row.plan || "(no goal)"} /></a><span class="muted mono">${row.run}${row.library ? ` · ${row.library}` : ""}${!row.host && !ENDED.has(row.status) ? " · no host" : ""}</span></td>
    <td class="progress"><${Meter} label=${words} total=${steps} parts=${[["good", succeeded], ["bad", failed]]} /><span class="figure">${steps ? `${succeeded}/${steps}` : "none yet"}${failed ? html` <span class="tone-bad">${failed} failed</span>` : ""}</span></td>
    <td class="num"><${Cost} cost=${row.cost} money=${row.money} /></td><td class="num figure"><${Took} from=${row.started} to=${ENDED.has(row.status) ? row.updated : null} /></td><td class="num muted"><${Ago} at=${row.started} /></td></tr>`;
}
