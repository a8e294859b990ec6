// All runs: filtered and sorted by what stands in the address, with the reason of each failure.
import { html, signal, useEffect, useRef } from "../lib.js";
import { ask, go, route, to } from "../router.js";
import { loadRuns, may, runs } from "../store.js";
import { Ago, Cost, Dates, Empty, Glyph, Loading, Meter, Search, Status, Table, Tag, Title, Took, Trouble, Txt } from "../ui/parts.js";
import { confirmed } from "../ui/dialog.js";
import { ENDED, state } from "../status.js";
import { api } from "../api.js";
import { count, label as textLabel } from "../text.js";

const SHOWN = ["", "waiting", "running", "paused", "failed", "succeeded", "cancelled", "rejected"];
const ASKED = ["status", "q", "plan", "actor", "label", "environment", "from", "to", "sort"];
const TEXTS = { plan: "Plan", actor: "Started by", label: "Label", environment: "Environment" };
const RANGES = { "": "Any time", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days", "90d": "Last 90 days", dates: "Between dates" };
const SORTS = { "": "Newest first", created: "Oldest first", "-ended": "Last ended first", "-duration": "Longest first", "-cost": "Highest cost first" };
const picked = signal(""); // the first of two runs to compare

/** What the address asks for; the server gives all runs where it asks for nothing. */
const asked = () => Object.fromEntries(ASKED.map((name) => [name, route.value.query[name]]).filter(([, value]) => value));
const clear = () => ask(Object.fromEntries(ASKED.map((name) => [name, ""])));

/** Typed texts go into the address when the typing pauses: all of them, whichever field was the last. */
function useTyped() {
  const typed = useRef({});
  return (name) => (text) => {
    clearTimeout(typed.timer);
    typed.current[name] = text.trim();
    typed.timer = setTimeout(() => {
      ask(typed.current);
      typed.current = {};
    }, 250);
  };
}

export function Runs() {
  const filter = asked();
  const typed = useTyped();
  useEffect(() => void loadRuns(filter), [JSON.stringify(filter)]);
  const actions = html`<a class="button" href=${api.csv("runs", filter)} download="runs.csv">Download CSV</a>${may("operator") && html`<a class="button primary" href=${to(["new"])}>New run</a>`}`;
  return html`<${Title} actions=${actions}>Runs</${Title}>
    <div class="bar"><${Search} label="Search runs" hint="Search goals, plans and ids" value=${filter.q ?? ""} onInput=${typed("q")} />
      <${Statuses} now=${filter.status ?? ""} /></div>
    <${Filters} filter=${filter} typed=${typed} /><${List} filtered=${Object.keys(filter).some((name) => name !== "sort")} />`;
}

function Statuses({ now }) {
  return html`<div class="choices" role="group" aria-label="State">${SHOWN.map((name) => html`<button type="button" aria-pressed=${now === name} onClick=${() => ask({ status: name })}>${name ? html`<${Glyph} shape=${state(name).shape} />${textLabel(state(name).word)}` : "All"}</button>`)}</div>`;
}

function Filters({ filter, typed }) {
  const { from = "", to: until } = filter;
  const range = until || !(from in RANGES) ? "dates" : from;
  const select = (label, value, options, name) => html`<label class="field">${label}<select value=${value} onChange=${({ target: { value } }) => ask({ [name]: value === "dates" ? new Date().toISOString().slice(0, 10) : value, ...(name === "from" && { to: "" }) })}>${Object.entries(options).map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select></label>`;
  return html`<div class="filters">${select("Started", range, RANGES, "from")}${range === "dates" && html`<${Dates} from=${from in RANGES ? "" : from} to=${until} onChange=${ask} />`}${select("Sort", filter.sort ?? "", SORTS, "sort")}
    <details open=${innerWidth > 800 || Object.keys(TEXTS).some((name) => filter[name])}><summary>More filters</summary><div>${Object.entries(TEXTS).map(([name, label]) => html`<label class="field">${label}<input value=${filter[name] ?? ""} placeholder=${name === "plan" ? "name or start*" : ""} autocomplete="off" spellcheck="false" maxlength="200" onInput=${(event) => typed(name)(event.target.value)} /></label>`)}</div></details>
    ${Object.keys(filter).length > 0 && html`<button type="button" onClick=${clear}>Clear filters</button>`}</div>`;
}

function List({ filtered }) {
  const { rows, next, error, loading, filter } = runs.value;
  if (error && !rows.length) return html`<${Trouble} error=${error} again=${() => loadRuns(filter)} />`;
  if (!rows.length && (loading || !filter)) return html`<${Loading} what="Loading runs" />`;
  if (!rows.length && filtered) return html`<${Empty} title="No runs match these filters" action=${html`<button type="button" onClick=${clear}>Clear filters</button>`}></${Empty}>`;
  if (!rows.length) return html`<${Empty} title="No runs yet" action=${html`<a class="button primary" href=${to(["new"])}>Start a run</a>`}><p>Runs started here or in a terminal are listed with their progress and cost.</p></${Empty}>`;
  return html`${error && html`<${Trouble} error=${error} again=${() => loadRuns(filter)} />`}<${Table} label="Runs" kind="runs" columns=${["State", "Run", "Steps", "Cost", "Duration", "Started", "Actions"]} figures=${3}>${rows.map((row) => html`<${Row} key=${row.run} row=${row} />`)}</${Table}>
    ${next && html`<p class="more"><button type="button" disabled=${loading} onClick=${() => loadRuns(filter, true)}>Show more</button></p>`}`;
}

/** A value that runs can be filtered by. */
const By = ({ name, v, text = v }) => v && html` · <a class="by" href=${to(["runs"], { ...asked(), [name]: v })} title="Show only these runs"><${Txt} v=${text} /></a>`;

function Row({ row }) {
  const { succeeded = 0, failed = 0 } = row;
  const steps = (row.steps ?? 0) - (row.replaced ?? 0); // others stand in for those
  const words = `${succeeded} of ${count(steps, "step")} succeeded${failed ? `, ${failed} failed` : ""}`;
  const over = ENDED.has(row.status);
  return html`<tr><td><${Status} status=${row.status} awaiting=${row.awaiting} />${row.waiting && row.status !== "waiting" ? html` <span class="tag tone-ask">${count(row.waiting, "open question")}</span>` : ""}</td>
    <td class="goal"><a data-item href=${to(["runs", row.run])}><${Txt} v=${row.goal || row.plan || "(no goal)"} /></a>
      <span class="muted about"><span class="mono">${row.run}</span><${By} name="plan" v=${row.plan} />${row.library && ` · ${row.library}`}<${By} name="actor" v=${row.actor} text=${`by ${row.actor}`} /><${By} name="environment" v=${row.environment} />${(row.labels ?? []).map((each) => html`<${By} name="label" v=${each} />`)}${!row.host && !over ? " · no host" : ""}</span>
      ${over && row.reason && row.status !== "succeeded" && html`<span class="why tone-bad"><${Txt} v=${row.reason} /></span>`}${row.trouble && html`<span class="why tone-bad"><${Txt} v=${row.trouble} /></span>`}</td>
    <td class="progress"><${Meter} label=${words} total=${steps} parts=${[["good", succeeded], ["bad", failed]]} /><span class="figure">${steps ? `${succeeded} of ${steps}` : "–"}${failed ? html` <span class="tone-bad">${failed} failed</span>` : ""}${row.replaced ? html` <${Tag} tone="warn">${row.replaced} replaced</${Tag}>` : ""}</span></td>
    <td class="num"><${Cost} cost=${row.cost} money=${row.money} /></td><td class="num figure"><${Took} from=${row.started} to=${over ? (row.ended ?? row.updated) : null} /></td><td class="num muted"><${Ago} at=${row.started} /></td>
    <td class="num acts"><label class="check"><input type="checkbox" aria-label=${`Select run ${row.run} to compare`} checked=${picked.value === row.run} onChange=${() => pick(row.run)} />${!picked.value || picked.value === row.run ? "Compare" : "with this run"}</label>
      ${over && may("operator") && !row.run.endsWith("-rollback") && html`<button type="button" class="small" onClick=${() => rerun(row)}>Re-run</button>`}</td></tr>`;
}

/** The first run is marked, the second opens the comparison. */
function pick(run) {
  const first = picked.value;
  picked.value = first ? "" : run;
  if (first && first !== run) go(["compare", first, run]);
}

/** A new run of the same plan or goal. */
function rerun(row) {
  const body = html`<p>A new run of <strong><${Txt} v=${row.goal || row.plan || row.run} /></strong> starts with the same plan and inputs. Approvals are not taken over: its effects need approval again.</p>`;
  return confirmed({ title: `Re-run ${row.run}?`, body, action: "Re-run" }, async () => go(["runs", (await api.rerun(row.run)).run]), "Re-run started");
}
