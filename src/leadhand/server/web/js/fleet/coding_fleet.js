// A coding fleet: who is at work, where tasks stand, what landed, what recovering was worth.
import { html, useMemo } from "../lib.js";
import { to } from "../router.js";
import { Chart } from "../ui/chart.js";
import { Ago, Copy, Empty, Meter, Said, Status, Table, Tag, Txt } from "../ui/parts.js";
import { count, duration, money, percent, strategy, words } from "../text.js";
import { Agents } from "./agents.js";

const START = "leadhand fleet start --repo ../shop";
const SUBMIT = "leadhand fleet submit search.md";

/** What stands in for a fleet where none is at work in this server. */
export function NoFleet() {
  return html`<section class="card"><${Empty} title="No fleet running"><p>A fleet runs coding agents on one repository and merges only changes that pass the gate. It includes this dashboard:</p>
    <p class="command"><code>${START}</code> <${Copy} text=${START} /></p><p>Then submit an epic:</p><p class="command"><code>${SUBMIT}</code> <${Copy} text=${SUBMIT} /></p></${Empty}></section>`;
}

/** @param {{fleet: object, refresh: () => void}} given the document of `leadhand fleet status --json` */
export function Coding({ fleet, refresh }) {
  const live = fleet.live;
  return html`<${State} fleet=${fleet} live=${live} /><${Tiles} fleet=${fleet} />
    <div class="stack"><${Flow} flow=${fleet.flow} /><${Agents} agents=${live?.agents ?? []} refresh=${refresh} /><${Letters} letters=${fleet.dead_letters} /><${Landed} landed=${fleet.landed} /><${Train} fleet=${fleet} now=${live?.train} />
      <${Recovery} recovery=${fleet.recovery} /><${Epics} epics=${fleet.epics} /><${Commits} commits=${fleet.commits} /></div>`;
}

function State({ fleet, live }) {
  const wrong = fleet.disagreements;
  const refused = Object.entries(live?.refused ?? {});
  return html`<p class="fleet-state">${live ? html`<${Tag} tone=${live.draining ? "warn" : "live"}>${live.draining ? "Draining" : "Running"}</${Tag}> on <code><${Txt} v=${live.repo} /></code>` : html`<${Tag}>Not running</${Tag}>`}
    ${live && html`<span class="muted">up to ${live.places.now} agents${live.places.now < live.places.most ? ` (configured: ${live.places.most})` : ""} · sandbox ${live.sandbox}${live.publish ? ` · publishes to ${live.publish}` : ""}</span>`}</p>
    ${live?.held_back && html`<p class="muted fleet-delay" role="status">New agents delayed: <${Txt} v=${live.held_back} />.</p>`}
    ${wrong.length > 0 && html`<div class="fleet-note tone-bad" role="alert"><b>The log and git disagree in ${count(wrong.length, "place")}.</b><ul>${wrong.slice(0, 20).map((each) => html`<li><${Txt} v=${each} /></li>`)}</ul></div>`}
    ${refused.map(([name, why]) => html`<div class="fleet-note tone-warn" role="status"><b><${Txt} v=${name} />:</b> <${Txt} v=${why} /></div>`)}`;
}

export const tile = (label, value, note) => html`<div class="card tile"><dt>${label}</dt><dd>${value}${note && html` <small>${note}</small>`}</dd></div>`;

function Tiles({ fleet }) {
  const { agents, landed, queue, recovery, spend, live } = fleet;
  const cap = live?.daily_spend ? `of ${money(live.daily_spend)} per day` : "";
  const waits = fleet.questions ? html`<a href=${to(["inbox"])}>${count(fleet.questions, "open question")}</a>` : "no open questions";
  const each = spend.per_landed == null ? "" : `${money(spend.per_landed)} per commit`;
  return html`<dl class="tiles four">${tile("Running agents", agents.now, `peak ${agents.peak}, ${agents.runs} started`)}${tile("Merged, last hour", landed.last_hour, `best hour ${landed.best_hour}`)}
    ${tile("Merged, last week", landed.last_week, `${landed.total} total`)}${tile("In merge queue", queue.waiting, queue.waiting ? `oldest ${duration(queue.oldest_s)}` : `p50 wait ${duration(queue.wait_s.p50)}`)}
    ${tile("Recovered", percent(recovery.rate), `${recovery.recovered} of ${recovery.recovered + recovery.people} failed tasks${recovery.open ? `, ${recovery.open} open` : ""}`)}${tile("First-pass success", percent(recovery.first_pass), "tasks with one attempt")}
    ${tile("Cost today", money(spend.today), [cap, each].filter(Boolean).join(", "))}${tile("Blocked tasks", fleet.dead_letters.length, waits)}</dl>`;
}

const PLACES = [
  ["planned", "Planned", "quiet"],
  ["waiting", "Waiting for a slot", "quiet"],
  ["working", "Running", "live"],
  ["gate", "Gate", "live"],
  ["train", "Merge queue", "live"],
  ["landed", "Merged", "good"],
];
const ASIDE = [
  ["again", "retrying", "warn"],
  ["dead", "blocked", "bad"],
  ["dropped", "dropped", "quiet"],
];

function Flow({ flow }) {
  const aside = ASIDE.filter(([name]) => flow[name]);
  return html`<section><h2>Task pipeline</h2><ol class="card flow">${PLACES.map(([name, label, tone]) => html`<li class="tone-${flow[name] ? tone : "quiet"}"><b>${flow[name]}</b><span>${label}</span></li>`)}</ol>
    ${aside.length > 0 && html`<p class="flow-aside">${aside.map(([name, label, tone]) => html`<${Tag} tone=${tone}>${flow[name]} ${label}</${Tag}> `)}</p>`}</section>`;
}

function Letters({ letters }) {
  if (!letters.length) return null;
  return html`<section><h2>Blocked tasks</h2><ul class="card lines">${letters.map((each) => html`<li class="pad letter"><div><a class="mono" href=${to(["runs", each.run, "graph"], { step: each.task })}><${Txt} v=${each.task} /></a> <${Tag} tone="bad">${words(each.class)}</${Tag}> <span class="muted">${count(each.attempts, "attempt")}${each.since ? html`, <${Ago} at=${each.since} />` : ""}</span></div>
    <${Said} v=${each.why} />${each.question && html`<div class="actions"><a class="button small" href=${to(["inbox"])}>Answer in the inbox</a></div>`}</li>`)}</ul></section>`;
}

function Landed({ landed }) {
  const times = useMemo(() => landed.by_hour.map(([at]) => at), [landed.by_hour.at(-1)?.[0]]);
  const values = landed.by_hour.map(([, number]) => number);
  const lines = useMemo(() => [{ label: "commits per hour", tone: "good", values }], [values.join()]);
  if (!landed.total) return html`<section class="card chart"><h2>Merged commits</h2><p class="muted">Commits on main are shown here by hour.</p></section>`;
  return html`<${Chart} label="Commits on main by hour, last two days" times=${times} lines=${lines} height=${160} />`;
}

function Train({ fleet, now }) {
  const { train, queue } = fleet;
  const rows = [
    ["Gate runs", `${train.tests} (${train.red} failed)`],
    ["Last gate run", train.counted || "–"],
    ["Changes per batch", train.batch_mean == null ? "–" : `mean ${train.batch_mean}, max ${train.batch_max}`],
    ["Bisections", train.bisections],
    ["Conflicts", train.conflicts],
    ["Flaky tests", (fleet.flaky ?? []).map((each) => `${each.name} (${each.times})`).join(", ") || "none"],
    ["Gate duration", train.gate_s.p50 == null ? "–" : `p50 ${duration(train.gate_s.p50)}, p95 ${duration(train.gate_s.p95)}`],
    ["Wait in merge queue", queue.wait_s.p50 == null ? "–" : `p50 ${duration(queue.wait_s.p50)}, p95 ${duration(queue.wait_s.p95)}`],
    ...Object.entries(train.ejected).map(([kind, number]) => [`Sent back: ${words(kind)}`, number]),
  ];
  return html`<section><h2>Merge queue</h2><div class="card pad">${now && html`<p class="muted">Now: ${now.waiting} waiting, ${count(now.gates, "gate")} running, batches of up to ${now.batch}, estimated failure rate ${percent(now.failure_rate)}</p>`}
    ${queue.names.length > 0 && html`<ol class="cars">${queue.names.slice(0, 30).map((name) => html`<li><${Tag} tone="live"><${Txt} v=${name.split("/").slice(1, -1).join("/")} /></${Tag}></li>`)}</ol>`}
    <dl class="facts">${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl></div></section>`;
}

function Recovery({ recovery }) {
  if (!recovery.failed) return html`<${NoFailures} />`;
  return html`<section><h2>Recovery by failure class</h2><${Table} label="Recovery by class" columns=${["Failure", "", "Recovered", "Asked a person", "Rate"]} figures=${3}>${recovery.by_class.map((row) => html`<tr><td><${Tag} tone="bad">${words(row.class)}</${Tag}></td><td class="progress"><${Meter} label=${`${row.recovered} recovered, ${row.people} asked a person`} total=${row.tasks} parts=${[["good", row.recovered], ["bad", row.people]]} /></td><td>${row.recovered} of ${row.tasks}</td><td class="num">${row.people}</td><td class="num">${percent(row.rate)}</td></tr>`)}</${Table}>
    <h2 class="gap">Recovery by strategy</h2><${Answers} label="Recovery by strategy" rows=${recovery.by_strategy} /></section>`;
}

export function NoFailures() {
  return html`<section class="card"><${Empty} title="No failures yet"><p>Recovery strategies and how often they worked are shown here by failure class.</p></${Empty}></section>`;
}

/** What was decided about each kind of failure, and how often it won. */
export function Answers({ label, rows }) {
  return html`<${Table} label=${label} columns=${["Failure", "Strategy", "Worked", "Times", "Rate"]} figures=${3}>${rows.map((row) => html`<tr><td><${Tag} tone="bad">${words(row.class)}</${Tag}></td><td>${strategy(row.strategy)}</td><td class="progress"><${Meter} label=${`${row.won} worked, ${row.lost} did not work, ${row.open} open`} total=${row.times} parts=${[["good", row.won], ["bad", row.lost]]} /></td><td class="num">${row.times}</td><td class="num">${percent(row.rate)}</td></tr>`)}</${Table}>`;
}

function Epics({ epics }) {
  if (!epics.length) return html`<section class="card"><${Empty} title="No epics yet"><p>An epic describes a change. Its tasks are assigned to agents.</p><p class="command"><code>${SUBMIT}</code> <${Copy} text=${SUBMIT} /></p></${Empty}></section>`;
  return html`<section><h2>Epics</h2><${Table} label="Epics" columns=${["Epic", "State", "Merged", "Cost"]} figures=${3}>${epics.slice().reverse().map((each) => html`<tr><td class="goal"><a href=${to(["runs", each.run])}><${Txt} v=${each.title || each.run} /></a></td><td><${Status} status=${each.status} /></td><td class="progress"><${Meter} label=${`${each.landed} of ${each.tasks} merged`} total=${each.tasks} parts=${[["good", each.landed]]} /> ${each.landed} of ${each.tasks}</td><td class="num">${money(each.cost)}</td></tr>`)}</${Table}></section>`;
}

function Commits({ commits }) {
  if (!commits.length) return null;
  return html`<section><h2>Recent commits on main</h2><ul class="card lines">${commits.slice(0, 15).map((each) => html`<li class="pad commit"><code>${each.sha.slice(0, 10)}</code><span class="grow"><${Txt} v=${each.subject} /></span><span class="muted"><${Txt} v=${each.by} /> · <${Ago} at=${each.at} /></span></li>`)}</ul></section>`;
}
