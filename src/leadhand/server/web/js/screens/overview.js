// Home: what waits for me, what runs, what failed and why, and how runs went over a range of time.
import { html, useEffect, useMemo } from "../lib.js";
import { api } from "../api.js";
import { ask, route, to } from "../router.js";
import { follow, inbox, may, soon, useResource } from "../store.js";
import { Ago, Copy, Cost, Empty, Meter, Said, Shown, Status, Title, Took, Txt } from "../ui/parts.js";
import { Bars, Chart } from "../ui/chart.js";
import { Ask } from "../ui/ask.js";
import { costs, count, millis, money, percent, repeated } from "../text.js";
import { timeText } from "../scale.js";
import { patchRow } from "../patch.js";

const RANGES = { "24h": "24 hours", "7d": "7 days", "30d": "30 days", "90d": "90 days" };
const CARDS = 5;

/** What the figures are of: so many runs that they are counted by day begin with yesterday. */
const span = (doc) => (doc.range === "24h" && doc.interval === "day" ? "two days" : RANGES[doc.range]);

export function Overview() {
  const range = RANGES[route.value.query.range] ? route.value.query.range : "7d";
  const found = useResource((signal) => api.overview(range, signal), [range]);
  useLive(found);
  const choice = (name) => html`<button type="button" aria-pressed=${name === range} onClick=${() => ask({ range: name })}>${RANGES[name]}</button>`;
  const actions = html`<div class="choices" role="group" aria-label="Time range">${Object.keys(RANGES).map(choice)}</div><a class="button" href=${to(["usage"], { days: "30" })}>Other dates</a>`;
  return html`<${Title} actions=${actions}>Overview</${Title}>
    <${Shown} of=${found} what="Loading the overview">${(doc) => (doc.any_runs ? html`<${Whole} doc=${doc} />` : html`<${First} />`)}</${Shown}>`;
}

/** A row of what runs after an event; its steps are counted without those that others replaced. */
function rowAfter(row, event) {
  const next = patchRow(row, event);
  const counts = event.patch?.counts;
  return counts ? { ...next, steps: counts.steps - (counts.replaced ?? 0) } : next;
}

/** Rows follow the events; what a row does not hold is asked for again, not more often than once in two seconds. */
function useLive(found) {
  useEffect(() => {
    inbox.refresh();
    const again = soon(found.refresh, 2000);
    return follow((events) => {
      const { data } = found.state.value;
      if (!data || !events.some((event) => event.run && !event.run.startsWith("$"))) return;
      const patched = data.running.map((row) => events.reduce((now, event) => (event.run === row.run ? rowAfter(now, event) : now), row));
      found.state.value = { ...found.state.value, data: { ...data, running: patched } };
      again();
    });
  }, [found]);
}

function Whole({ doc }) {
  const rows = inbox.state.value.data ?? [];
  const asks = html`<section class="waits"><h2>Waiting for approval or input</h2><${Waiting} rows=${rows} /></section>`;
  const phone = innerWidth <= 760; // there what waits comes first
  return html`${phone && asks}<${Tiles} doc=${doc} waiting=${rows.total ?? doc.waiting} /><div class="stack">${!phone && asks}
    <div class="charts"><section><h2>Running now</h2><${Running} doc=${doc} /></section>
      <section><h2>Failed in the last ${span(doc)}</h2><${Failed} doc=${doc} /></section></div>
    <${Charts} doc=${doc} /></div>`;
}

function Tiles({ doc, waiting }) {
  const { total } = doc;
  const tile = (name, value, small, href) => html`<div class="tile card"><dt>${href ? html`<a href=${href}>${name}</a>` : name}</dt><dd>${value}<small>${small}</small></dd></div>`;
  return html`<dl class="tiles">${tile("Waiting", waiting, waiting === 1 ? "open item" : "open items", to(["inbox"]))}${tile("Running", doc.running_total, "now", to(["runs"], { status: "running" }))}
    ${tile("Failed", total.failed, `of ${count(total.runs, "run")}`, to(["runs"], { status: "failed", from: doc.range }))}${tile("Success rate", percent(total.success_rate), `${total.succeeded} of ${count(total.runs - total.open, "ended run")}`)}
    ${tile("Recovery rate", percent(total.recovery_rate), `${total.recovered} of ${count(total.failed_steps, "failed step")}`)}${tile("Cost", costs(total.cost, total.money), count(total.runs, "run"), to(["usage"]))}</dl>`;
}

function Waiting({ rows }) {
  if (!rows.length) return html`<p class="card pad muted">Nothing waits for a person.</p>`;
  const more = (rows.total ?? rows.length) - CARDS;
  return html`<ul class="asks">${rows.slice(0, CARDS).map((row) => html`<${Ask} key=${row.id} row=${row} />`)}</ul>${more > 0 && html`<p class="more"><a class="button" href=${to(["inbox"])}>Show ${count(more, "more item")} in the inbox</a></p>`}`;
}

function Running({ doc }) {
  if (!doc.running.length) return html`<p class="card pad muted">No run is in progress.${may("operator") ? html` <a href=${to(["new"])}>Start a run</a>` : ""}</p>`;
  const more = doc.running_total - doc.running.length;
  return html`<ul class="card now-list">${doc.running.map((row) => html`<${Row} key=${row.run} row=${row} />`)}${more > 0 && html`<li class="pad"><a href=${to(["runs"], { status: "running" })}>${count(more, "more run")}</a></li>`}</ul>`;
}

function Row({ row }) {
  const said = `${row.succeeded} of ${count(row.steps, "step")} succeeded${row.failed ? `, ${row.failed} failed` : ""}`;
  const steps = row.current.map((step) => html`<a href=${to(["runs", row.run], { step: step.id })}><${Txt} v=${step.id} /></a> <span class="muted">(<${Txt} v=${step.worker} />${step.attempt > 1 ? `, attempt ${step.attempt}` : ""})</span> `);
  return html`<li class="pad now"><div class="now-head"><${Status} status=${row.status} /><a class="grow cut" data-item href=${to(["runs", row.run])}><${Txt} v=${row.goal || row.plan || row.run} /></a><span class="muted figure"><${Took} from=${row.started} /></span></div>
    <div class="now-body"><${Meter} label=${said} total=${row.steps} parts=${[["good", row.succeeded], ["bad", row.failed]]} /><span class="figure">${said}</span>${row.cost > 0 && html`<span class="muted"><${Cost} cost=${row.cost} money=${row.money} /></span>`}
    <span>${row.current.length ? html`Running: ${steps}${row.current_total > row.current.length ? `and ${row.current_total - row.current.length} more` : ""}` : html`<span class="muted">No step is running</span>`}</span></div></li>`;
}

function Failed({ doc }) {
  if (!doc.failed.length) return html`<p class="card pad muted">No run failed in the last ${span(doc)}.</p>`;
  return html`<ul class="card now-list">${doc.failed.map((row) => html`<${Failure} key=${row.run} row=${row} />`)}${doc.failed_more && html`<li class="pad"><a href=${to(["runs"], { status: "failed", from: doc.range })}>More failed runs</a></li>`}</ul>`;
}

function Failure({ row }) {
  const message = row.error?.message;
  return html`<li class="pad now"><div class="now-head"><${Status} status="failed" /><a class="grow cut" data-item href=${to(["runs", row.run])}><${Txt} v=${row.goal || row.plan || row.run} /></a><span class="muted">${row.started_by && html`<${Txt} v=${row.started_by} />, `}<${Ago} at=${row.ended} /></span></div>
    <div class="why"><${Said} v=${row.reason} />${message && !repeated(message, [row.reason]) && html`<${Said} v=${message} />`}</div>
    ${row.step && html`<p><a href=${to(["runs", row.run], { step: row.step })}>Open failed step <${Txt} v=${row.step} /></a></p>`}</li>`;
}

function Charts({ doc }) {
  const { rows, interval } = doc;
  const times = useMemo(() => rows.map((each) => millis(each.name) / 1000), [rows]);
  const names = times.map((at) => (interval === "hour" ? timeText(at, 3600) : utcDay(at)));
  const pick = (name) => rows.map((each) => each[name]);
  const unit = interval === "hour" ? "hour" : "day (UTC)";
  const units = rows.map((each) => Math.max(0, Math.round((each.cost - each.money) * 1e6) / 1e6));
  const spent = [["dollars", "live", pick("money"), money], ["cost units", "quiet", units, undefined]].filter(([, , values]) => values.some(Boolean));
  return html`<section><h2>Last ${span(doc)}</h2><div class="charts">
    <${Bars} label=${`Runs per ${unit}`} names=${names} bars=${[{ label: "succeeded", tone: "good", values: pick("succeeded") }, { label: "failed", tone: "bad", values: pick("failed") }, { label: "cancelled or rejected", tone: "quiet", values: rows.map((each) => each.cancelled + each.rejected) }, { label: "open", tone: "ask", values: pick("open") }]} />
    <${Rates} times=${times} pick=${pick} unit=${unit} />
    ${spent.map(([name, tone, values, format]) => html`<${Bars} key=${name} label=${`Cost per ${unit}, ${name}`} names=${names} most=${0} format=${format} bars=${[{ label: name, tone, values }]} />`)}</div></section>`;
}

function Rates({ times, pick, unit }) {
  const lines = [{ label: "runs succeeded", tone: "good", values: pick("success_rate") }, { label: "failed steps recovered", tone: "live", values: pick("recovery_rate") }];
  return html`<${Chart} label=${`Success and recovery rate per ${unit}`} times=${times} lines=${lines} most=${1} format=${percent} />`;
}

function utcDay(at) {
  return new Date(at * 1000).toLocaleDateString("en", { month: "short", day: "numeric", timeZone: "UTC" });
}

const TRY = "leadhand run plan.yaml";

function First() {
  return html`<${Empty} title="No runs yet" action=${may("operator") && html`<a class="button primary" href=${to(["new"])}>Start a run</a>`}>
    <p>Start a run here, or in a terminal in the same folder. This page then shows live running runs, open items, and failed runs with the reason.</p>
    <p class="command"><code>${TRY}</code> <${Copy} text=${TRY} /></p>
    <p><a href=${to(["workers"])}>Workers</a> lists what plans can use; <a href=${to(["library"])}>Library</a> the saved plans.</p></${Empty}>`;
}
