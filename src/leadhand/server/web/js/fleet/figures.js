// The fleet over a chosen time: merges, failures, recoveries, spending, and what recovering was worth.
import { html } from "../lib.js";
import { ask } from "../router.js";
import { Chart } from "../ui/chart.js";
import { Meter, Table, Tag } from "../ui/parts.js";
import { duration, money, percent, strategy, words } from "../text.js";

const RANGES = [["3600", "Last hour"], ["86400", "Last 24 hours"], ["604800", "Last 7 days"], ["", "All time"]];

export function Figures({ fleet, since }) {
  const { series } = fleet;
  const step = `per ${duration(series.step_s)}`;
  const line = (name, label, tone) => ({ label: `${label} ${step}`, tone, values: series[name] });
  return html`<section><div class="bar"><h2>Over time</h2><label class="push">Range <select value=${since} onChange=${(event) => ask({ range: event.target.value })}>${RANGES.map(([value, label]) => html`<option value=${value} selected=${value === since}>${label}</option>`)}</select></label></div>
    <${Numbers} fleet=${fleet} />
    <div class="charts"><${Chart} label="Merges and recovery" times=${series.times} lines=${[line("merged", "merged", "good"), line("failures", "failed attempts", "bad"), line("recovered", "recovered", "live")]} height=${160} />
      <${Chart} label="Spend" times=${series.times} lines=${[line("spend", "spend", "ask")]} format=${money} most=${0.01} height=${160} /></div>
    <${Recovery} recovery=${fleet.recovery} /></section>`;
}

function Numbers({ fleet }) {
  const { agents, landed, queue, recovery, spend, train } = fleet;
  const pair = (of) => (of.p50 == null ? "–" : `p50 ${duration(of.p50)}, p95 ${duration(of.p95)}`);
  const rows = [
    ["Merged", `${landed.in_window}, ${landed.per_hour} per hour`],
    ["Recovered", `${percent(recovery.rate)} (${recovery.recovered} of ${recovery.recovered + recovery.people} failed tasks)`],
    ["First-pass success", percent(recovery.first_pass)],
    ["Spend", `${money(spend.in_window)}${spend.per_landed == null ? "" : `, ${money(spend.per_landed)} per commit`}`],
    ["Agents started", `${agents.runs}, peak ${agents.peak}`],
    ["Gate runs", `${train.tests} (${train.red} failed), ${pair(train.gate_s)}`],
    ["Wait in merge queue", pair(queue.wait_s)],
    ["Sent back", Object.entries(train.ejected).map(([kind, number]) => `${words(kind)} ${number}`).join(", ") || "none"],
    ["Flaky tests", (fleet.flaky ?? []).map((each) => `${each.name} (${each.times})`).join(", ") || "none"],
  ];
  return html`<dl class="figures card pad">${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function Recovery({ recovery }) {
  if (!recovery.failed) return null;
  const share = (row) => html`<${Meter} label=${`${row.recovered} recovered, ${row.people} asked a person`} total=${row.tasks} parts=${[["good", row.recovered], ["bad", row.people]]} />`;
  const won = (row) => html`<${Meter} label=${`${row.won} worked, ${row.lost} did not work, ${row.open} open`} total=${row.times} parts=${[["good", row.won], ["bad", row.lost]]} />`;
  return html`<details class="gap"><summary>Recovery by failure class and strategy</summary>
    <${Table} label="Recovery by failure class" columns=${["Failure", "", "Recovered", "Asked a person", "Rate"]} figures=${3}>${recovery.by_class.map((row) => html`<tr><td><${Tag} tone="bad">${words(row.class)}</${Tag}></td><td class="progress">${share(row)}</td><td>${row.recovered} of ${row.tasks}</td><td class="num">${row.people}</td><td class="num">${percent(row.rate)}</td></tr>`)}</${Table}>
    <${Table} label="Recovery by strategy" columns=${["Failure", "Strategy", "Worked", "Times", "Rate"]} figures=${3}>${recovery.by_strategy.map((row) => html`<tr><td><${Tag} tone="bad">${words(row.class)}</${Tag}></td><td>${strategy(row.strategy)}</td><td class="progress">${won(row)}</td><td class="num">${row.times}</td><td class="num">${percent(row.rate)}</td></tr>`)}</${Table}></details>`;
}
