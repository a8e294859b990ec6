// All runs: by state, by words, newest first as the server gives them.
import { html, useEffect, useRef } from "../lib.js";
import { ask, route, to } from "../router.js";
import { loadRuns, may, resource, runs } from "../store.js";
import { Ago, Cost, Empty, Glyph, Loading, Meter, Search, Status, Table, Title, Took, Trouble, Txt } from "../ui/parts.js";
import { ENDED, state } from "../status.js";
import { api } from "../api.js";
import { count, label as textLabel } from "../text.js";

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
  const search = (text) => {
    clearTimeout(typing.current);
    typing.current = setTimeout(() => ask({ q: text.trim() }), 250);
  };
  const actions = may("operator") && html`<a class="button primary" href=${to(["new"])}>New run</a>`;
  return html`<${Title} actions=${actions}>Runs</${Title}>
    <div class="bar"><${Search} label="Search runs" hint="Search goals, plans and ids" value=${q} onInput=${search} />
      <${Filters} now=${status} /></div>
    <${List} filtered=${Boolean(status || q)} />`;
}

function Filters({ now }) {
  const counts = totals.state.value.data ?? {};
  const all = Object.values(counts).reduce((sum, each) => sum + each, 0);
  const choice = (name, label, number) => html`<button type="button" aria-pressed=${now === name} onClick=${() => ask({ status: name })}>${name && html`<${Glyph} shape=${state(name).shape} />`}${label}${number ? html` <span class="figure">${number}</span>` : ""}</button>`;
  return html`<div class="choices" role="group" aria-label="State">${choice("", "All", all)}${SHOWN.filter((name) => ALWAYS.has(name) || counts[name] || now === name).map((name) => choice(name, textLabel(state(name).word), counts[name]))}</div>`;
}

function List({ filtered }) {
  const { rows, next, error, loading, filter } = runs.value;
  if (error && !rows.length) return html`<${Trouble} error=${error} again=${() => loadRuns(filter)} />`;
  if (!rows.length && (loading || !filter)) return html`<${Loading} what="Loading runs" />`;
  if (!rows.length && filtered) return html`<${Empty} title="No runs match these filters" action=${html`<button type="button" onClick=${() => ask({ status: "", q: "" })}>Clear filters</button>`}></${Empty}>`;
  if (!rows.length) return html`<${Empty} title="No runs yet" action=${html`<a class="button primary" href=${to(["new"])}>Start a run</a>`}><p>Runs started here or in a terminal are listed with their progress and cost.</p></${Empty}>`;
  return html`<${Table} label="Runs" kind="runs" columns=${["State", "Goal", "Steps", "Cost", "Duration", "Started"]} figures=${3}>${rows.map((row) => html`<${Row} key=${row.run} row=${row} />`)}</${Table}>
    ${next && html`<p class="more"><button type="button" disabled=${loading} onClick=${() => loadRuns(filter, true)}>Show more</button></p>`}`;
}

function Row({ row }) {
  const { succeeded = 0, failed = 0 } = row;
  const steps = (row.steps ?? 0) - (row.replaced ?? 0); // others stand in for those
  const words = `${succeeded} of ${steps} steps succeeded${failed ? `, ${failed} failed` : ""}`;
  return html`<tr><td><${Status} status=${row.status} awaiting=${row.awaiting} />${row.waiting && row.status !== "waiting" ? html` <span class="tag tone-ask">${count(row.waiting, "open question")}</span>` : ""}</td>
    <td class="goal"><a data-item href=${to(["runs", row.run])}><${Txt} v=${row.goal || row.plan || "(no goal)"} /></a><span class="muted mono">${row.run}${row.library ? ` · ${row.library}` : ""}${!row.host && !ENDED.has(row.status) ? " · no host" : ""}</span></td>
    <td class="progress"><${Meter} label=${words} total=${steps} parts=${[["good", succeeded], ["bad", failed]]} /><span class="figure">${steps ? `${succeeded}/${steps}` : "–"}${failed ? html` <span class="tone-bad">${failed} failed</span>` : ""}</span></td>
    <td class="num"><${Cost} cost=${row.cost} money=${row.money} /></td><td class="num figure"><${Took} from=${row.started} to=${ENDED.has(row.status) ? row.updated : null} /></td><td class="num muted"><${Ago} at=${row.started} /></td></tr>`;
}
