// Analysis of runs: two side by side, and the use of all over a range of days.
import { html } from "../lib.js";
import { ask, route, to } from "../router.js";
import { useFollowed, useResource } from "../store.js";
import { Ago, Cost, Dates, Empty, Shown, SortTable, Status, Table, Title, Took, Txt, Value } from "../ui/parts.js";
import { Bars } from "../ui/chart.js";
import { ENDED } from "../status.js";
import { api } from "../api.js";
import { Changes } from "../ui/steps.js";
import { count, costs, duration, label, percent } from "../text.js";

const LIVE = /^(RunStarted|RevisionApproved|RunEnded|ModelCalled|AttemptReported|QuestionAnswered)$/;

/** Two runs: outcome, inputs, plan, and every step with attempts, time and cost. */
export function Compare() {
  const [, a, b = a] = route.value.path;
  const found = useResource((signal) => api.compare(a, b, signal), [a, b]);
  useFollowed(LIVE, found);
  return html`<${Title} actions=${html`<a class="button" href=${to(["compare", b, a])}>Swap</a>`}>Compare runs</${Title}>
    <${Shown} of=${found} what="Comparing runs">${(doc) => html`<div class="stack"><${Versus} label="Both runs" doc=${doc} rows=${outcome(doc)} />
      <section><h2>Inputs</h2>${doc.inputs.length ? html`<${Versus} label="Inputs that differ" doc=${doc} rows=${doc.inputs.map((each) => [each.name, html`<${Value} v=${each.a} />`, html`<${Value} v=${each.b} />`, true])} />` : html`<p class="muted">No differences</p>`}</section>
      <section><h2>Plan</h2><${Changes} changes=${doc.changes} /></section>
      <section><h2>Steps (${doc.steps_different} of ${doc.steps_total} differ)</h2><${Versus} label="Steps" doc=${doc} rows=${doc.steps.map((step) => [step.id, side(step, doc, "a"), side(step, doc, "b"), step.differs])} /></section></div>`}</${Shown}>`;
}

/** A name and two values in each row; those that differ are marked. */
function Versus({ label: name, doc, rows }) {
  const run = (id) => html`<a class="mono" href=${to(["runs", id])}>${id}</a>`;
  return html`<${Table} label=${name} kind="versus" columns=${["", run(doc.a.run), run(doc.b.run)]}>${rows.map(([name, one, other, differs]) => html`<tr key=${name} class=${differs ? "differs" : ""}><th scope="row"><${Txt} v=${name} /></th><td>${one}</td><td>${other}</td></tr>`)}</${Table}>`;
}

function outcome({ a, b, same_result: same }) {
  const row = (name, key, show = (run) => html`<${Txt} v=${run[key] || "–"} />`) => [name, show(a), show(b), a[key] !== b[key]];
  return [
    row("State", "status", (run) => html`<${Status} status=${run.status} />`), row("Outcome", "headline"), row("Goal", "goal"), row("Plan", "plan"), row("Started by", "actor"), row("Repeats run", "rerun_of"),
    row("Started", "", (run) => html`<${Ago} at=${run.started} />`), row("Duration", "", time),
    row("Cost", "cost", (run) => html`<${Cost} cost=${run.cost} money=${run.money} />`), row("Steps", "succeeded", (run) => `${run.succeeded} of ${run.steps} succeeded${run.failed ? `, ${run.failed} failed` : ""}`), row("Attempts", "attempts"),
    row("Result", "", (run) => html`<${Value} v=${run.result} />`).with(3, same === false),
  ];
}

/** As the list has it: until now, while it is open. */
function time(run) {
  if (!ENDED.has(run.status)) return html`<${Took} from=${run.started} /> so far`;
  return `${duration(run.duration)} (working ${duration(run.worked)}, waiting ${duration(run.waited)})`;
}

function side(step, doc, name) {
  const of = step[name];
  if (!of) return html`<span class="muted">not in this plan</span>`;
  const parts = [of.attempts && count(of.attempts, "attempt"), of.duration !== null && duration(of.duration), of.worker, of.cost > 0 && costs(of.cost, of.money), of.replaced_by && `replaced by ${of.replaced_by}`].filter(Boolean);
  return html`<a href=${to(["runs", doc[name].run], { step: of.replaced_by || step.id })}><${Status} status=${of.status} step /></a> <span class="muted"><${Txt} v=${parts.join(" · ")} /></span>${of.error && html`<span class="why tone-bad"><${Txt} v=${of.error} /></span>`}`;
}

const DAYS = ["7", "30", "90", "365"];
const BY = { plan: "Plan", worker: "Worker", model: "Model", day: "Day" };
const TONES = { succeeded: "good", failed: "bad", cancelled: "quiet", rejected: "warn", open: "live" };
const whole = (value) => value?.toLocaleString("en") ?? "–";
const share = (value) => value?.toFixed(2) ?? "–";
const COST = ["Cost", "cost", (value, row) => costs(value, row.money)];
const RUNS = [["Runs", "runs", whole], COST, ["Succeeded", "success_rate", percent], ["Recovered", "recovery_rate", percent], ["Approvals per run", "approvals_per_run", share], ["Without a person", "unattended_rate", percent], ["Half answered within", "answer_median_s", duration], ["Mean duration", "duration_mean_s", duration]];
const FAILED = ["Failed", "failure_rate", percent];
const COLUMNS = {
  plan: RUNS, day: RUNS, worker: [["Attempts", "attempts", whole], FAILED, ["Time", "busy_s", duration], COST],
  model: [["Calls", "calls", whole], FAILED, ["Input tokens", "tokens_in", whole], ["Output tokens", "tokens_out", whole], COST],
};

/** Cost, outcomes, recovery, and how often people were needed. */
export function Usage() {
  const { query } = route.value;
  const by = BY[query.by] ? query.by : "plan";
  const days = DAYS.includes(query.days) ? query.days : "30";
  const asked = query.from ? { from: query.from, to: query.to } : { from: new Date(Date.now() - (days - 1) * 864e5).toISOString().slice(0, 10) };
  const deps = [asked.from, asked.to];
  const found = useResource((signal) => api.usage({ ...asked, by: "day" }, signal), deps);
  const rows = useResource((signal) => api.usage({ ...asked, by }, signal), [...deps, by]);
  useFollowed(LIVE, found, 2000);
  useFollowed(LIVE, rows, 2000);
  const choices = (label, names, now, change, text) => html`<div class="choices" role="group" aria-label=${label}>${names.map((name) => html`<button type="button" aria-pressed=${now === name} onClick=${() => ask(change(name))}>${text(name)}</button>`)}</div>`;
  return html`<${Title} actions=${html`<a class="button" href=${api.csv("usage", { ...asked, by })} download="usage.csv">Download CSV</a>`} sub=${`${asked.from} to ${asked.to ?? "today"}, in UTC. A run counts on the day it was started.`}>Usage</${Title}>
    <div class="bar">${choices("Range", DAYS, query.from ? "" : days, (name) => ({ days: name, from: "", to: "" }), (name) => `${name} days`)}<${Dates} ...${asked} onChange=${(change) => ask({ ...asked, ...change })} /></div>
    <${Shown} of=${found} what="Loading usage">${(doc) => (doc.total.runs ? html`<div class="stack"><${Totals} of=${doc.total} /><${Charts} days=${doc.rows} />
      <section><div class="section-head"><h2>By ${BY[by].toLowerCase()}</h2>${choices("Group by", Object.keys(BY), by, (name) => ({ by: name }), (name) => BY[name])}</div>
        <${Shown} of=${rows} what="Loading rows">${(each) => html`<${Rows} by=${each.by} rows=${each.rows} />`}</${Shown}></section>
      ${doc.unreadable.map((each) => html`<p class="note tone-warn">Not included: <${Txt} v=${each} /></p>`)}</div>` : html`<${Empty} title="No runs in these days"></${Empty}>`)}</${Shown}>`;
}

const MORE = { runs: (of) => `${of.open} open`, success_rate: (of) => `${of.failed} failed`, recovery_rate: (of) => `${of.recovered} of ${of.failed_steps} failed steps`, approvals_per_run: (of) => count(of.approvals, "approval"), unattended_rate: (of) => `${of.unattended} of ${of.runs} runs`, answer_median_s: (of) => count(of.answers, "answer") };

function Totals({ of }) {
  return html`<dl class="figures card pad">${RUNS.map(([label, key, show]) => html`<div><dt>${label}</dt><dd>${show(of[key], of)} <span class="muted">${MORE[key]?.(of)}</span></dd></div>`)}</dl>`;
}

function Charts({ days }) {
  const names = days.map((row) => row.name.slice(5));
  const bar = (label, tone, read) => ({ label, tone, values: days.map((row) => read(row) ?? 0) });
  const used = (bars) => bars.filter(({ values }, place) => !place || values.some(Boolean));
  return html`<div class="pair charts"><${Bars} label="Cost by day" names=${names} most=${1} bars=${used([bar("Dollars", "live", (row) => row.money), bar("Units", "quiet", (row) => row.cost - row.money)])} />
    <${Bars} label="Runs by day" names=${names} bars=${used(Object.entries(TONES).map(([key, tone]) => bar(label(key), tone, (row) => row[key])))} /></div>`;
}

function Rows({ by, rows }) {
  const columns = COLUMNS[by];
  const name = (row) => (by === "plan" && row.name ? html`<a href=${to(["runs"], { plan: row.name })}><${Txt} v=${row.name} /></a>` : html`<${Txt} v=${row.name || "(no plan id)"} />`);
  return html`<${SortTable} kind="usage" label=${`Usage by ${by}`} columns=${[[BY[by], (row) => row.name], ...columns.map(([label, key]) => [label, (row) => row[key] ?? -1, "num", -1])]} rows=${rows}
    row=${(row) => html`<tr key=${row.name}><th scope="row">${name(row)}</th>${columns.map(([, key, show]) => html`<td class="num">${show(row[key], row)}</td>`)}</tr>`} />`;
}
