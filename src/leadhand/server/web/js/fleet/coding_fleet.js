// A coding fleet: who is at work, where tasks stand, what landed, what recovering was worth.
import { html, useMemo } from "../lib.js";
import { to } from "../router.js";
import { Chart } from "../ui/chart.js";
import { Ago, Copy, Empty, Meter, Said, Status, Table, Tag, Txt } from "../ui/parts.js";
import { count, duration, money, percent, words } from "../text.js";
import { Agents } from "./agents.js";

const START = "leadhand fleet start --repo ../shop";
const SUBMIT = "leadhand fleet submit search.md";

/** What stands in for a fleet where none is at work in this server. */
export function NoFleet() {
  return html`<section class="card"><${Empty} title="No coding agents here"><p>A fleet puts many coding agents to work on one repository, and lands only what passed its gate. It brings this page with it:</p>
    <p class="command"><code>${START}</code> <${Copy} text=${START} /></p><p>Then give it something to do:</p><p class="command"><code>${SUBMIT}</code> <${Copy} text=${SUBMIT} /></p></${Empty}></section>`;
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
  return html`<p class="fleet-state">${live ? html`<${Tag} tone=${live.draining ? "warn" : "live"}>${live.draining ? "Drains" : "At work"}</${Tag}> on <code><${Txt} v=${live.repo} /></code>` : html`<${Tag}>Not at work</${Tag}>`}
    ${live && html`<span class="muted">up to ${live.places.now} agents at once${live.places.now < live.places.most ? ` for now, ${live.places.most} at most` : ""} · sandbox ${live.sandbox}${live.publish ? ` · results go to ${live.publish}` : ""}</span>`}</p>
    ${live?.held_back && html`<div class="fleet-note tone-warn" role="status"><b>Nobody new starts:</b> <${Txt} v=${live.held_back} />.</div>`}
    ${wrong.length > 0 && html`<div class="fleet-note tone-bad" role="alert"><b>The log and git disagree in ${wrong.length} ${wrong.length === 1 ? "place" : "places"}.</b><ul>${wrong.slice(0, 20).map((each) => html`<li><${Txt} v=${each} /></li>`)}</ul></div>`}
    ${refused.map(([name, why]) => html`<div class="fleet-note tone-warn" role="status"><b><${Txt} v=${name} />:</b> <${Txt} v=${why} /></div>`)}`;
}

export const tile = (label, value, note) => html`<div class="card tile"><dt>${label}</dt><dd>${value}${note && html` <small>${note}</small>`}</dd></div>`;

function Tiles({ fleet }) {
  const { agents, landed, queue, recovery, spend, live } = fleet;
  const cap = live?.daily_spend ? `of ${money(live.daily_spend)} a day` : "";
  const waits = fleet.questions ? html`<a href=${to(["inbox"])}>${count(fleet.questions, "question")} for a person</a>` : "no question is open";
  const each = spend.per_landed == null ? "" : `${money(spend.per_landed)} for each commit`;
  return html`<dl class="tiles four">${tile("Agents now", agents.now, `${agents.peak} at most, ${agents.runs} in all`)}${tile("Landed in an hour", landed.last_hour, `${landed.best_hour} in the best hour`)}
    ${tile("Landed in a week", landed.last_week, `${landed.total} in all`)}${tile("At the train", queue.waiting, queue.waiting ? `the oldest ${duration(queue.oldest_s)}` : `half landed within ${duration(queue.wait_s.p50)}`)}
    ${tile("Recovered", percent(recovery.rate), `${recovery.recovered} of ${recovery.recovered + recovery.people} that failed${recovery.open ? `, ${recovery.open} open` : ""}`)}${tile("First pass", percent(recovery.first_pass), "tasks that needed one attempt")}
    ${tile("Spent today", money(spend.today), [cap, each].filter(Boolean).join(", "))}${tile("Dead letters", fleet.dead_letters.length, waits)}</dl>`;
}

const PLACES = [
  ["planned", "Planned", "quiet"],
  ["waiting", "Waits for a place", "quiet"],
  ["working", "Agent at work", "live"],
  ["gate", "Gate", "live"],
  ["train", "Train", "live"],
  ["landed", "On main", "good"],
];
const ASIDE = [
  ["again", "tried again soon", "warn"],
  ["dead", "for a person", "bad"],
  ["dropped", "dropped", "quiet"],
];

function Flow({ flow }) {
  const aside = ASIDE.filter(([name]) => flow[name]);
  return html`<section><h2>Where tasks stand</h2><ol class="card flow">${PLACES.map(([name, label, tone]) => html`<li class="tone-${flow[name] ? tone : "quiet"}"><b>${flow[name]}</b><span>${label}</span></li>`)}</ol>
    ${aside.length > 0 && html`<p class="flow-aside">${aside.map(([name, label, tone]) => html`<${Tag} tone=${tone}>${flow[name]} ${label}</${Tag}> `)}</p>`}</section>`;
}

function Letters({ letters }) {
  if (!letters.length) return null;
  return html`<section><h2>Dead letters</h2><ul class="card lines">${letters.map((each) => html`<li class="pad letter"><div><a class="mono" href=${to(["runs", each.run, "graph"], { step: each.task })}><${Txt} v=${each.task} /></a> <${Tag} tone="bad">${words(each.class)}</${Tag}> <span class="muted">${each.attempts} attempts${each.since ? html`, <${Ago} at=${each.since} />` : ""}</span></div>
    <${Said} v=${each.why} />${each.question && html`<div class="actions"><a class="button small" href=${to(["inbox"])}>Answer in the inbox</a></div>`}</li>`)}</ul></section>`;
}

function Landed({ landed }) {
  const times = useMemo(() => landed.by_hour.map(([at]) => at), [landed.by_hour.at(-1)?.[0]]);
  const values = landed.by_hour.map(([, number]) => number);
  const lines = useMemo(() => [{ label: "commits an hour", tone: "good", values }], [values.join()]);
  if (!landed.total) return html`<section class="card chart"><h2>Landed</h2><p class="muted">Commits on main are counted here, hour by hour.</p></section>`;
  return html`<${Chart} label="Commits on main by hour, two days" times=${times} lines=${lines} height=${160} />`;
}

function Train({ fleet, now }) {
  const { train, queue } = fleet;
  const rows = [
    ["Tests", `${train.tests}, of them ${train.red} red`],
    ["The gate's last run", train.counted || "–"],
    ["Changes for each landing", train.batch_mean == null ? "–" : `${train.batch_mean}, at most ${train.batch_max}`],
    ["Searches for a culprit", train.bisections],
    ["Conflicts", train.conflicts],
    ["Flaky tests", (fleet.flaky ?? []).map((each) => `${each.name} (${each.times})`).join(", ") || "none"],
    ["Gate", train.gate_s.p50 == null ? "–" : `${duration(train.gate_s.p50)}, 95 of 100 within ${duration(train.gate_s.p95)}`],
    ["Wait", queue.wait_s.p50 == null ? "–" : `${duration(queue.wait_s.p50)}, 95 of 100 within ${duration(queue.wait_s.p95)}`],
    ...Object.entries(train.ejected).map(([kind, number]) => [`Sent back: ${words(kind)}`, number]),
  ];
  return html`<section><h2>Merge train</h2><div class="card pad">${now && html`<p class="muted">Now: ${now.waiting} waiting, ${now.gates} gates at work, batches of up to ${now.batch}, ${percent(now.failure_rate)} expected to be at fault</p>`}
    ${queue.names.length > 0 && html`<ol class="cars">${queue.names.slice(0, 30).map((name) => html`<li><${Tag} tone="live"><${Txt} v=${name.split("/").slice(1, -1).join("/")} /></${Tag}></li>`)}</ol>`}
    <dl class="facts">${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl></div></section>`;
}

function Recovery({ recovery }) {
  if (!recovery.failed) return html`<${NoFailures} />`;
  return html`<section><h2>Recovery, by first failure</h2><${Table} label="Recovery by class" columns=${["Failure", "", "Recovered", "Needed a person", "Rate"]} figures=${3}>${recovery.by_class.map((row) => html`<tr><td><${Tag} tone="bad">${words(row.class)}</${Tag}></td><td class="progress"><${Meter} label=${`${row.recovered} recovered, ${row.people} needed a person`} total=${row.tasks} parts=${[["good", row.recovered], ["bad", row.people]]} /></td><td>${row.recovered} of ${row.tasks}</td><td class="num">${row.people}</td><td class="num">${percent(row.rate)}</td></tr>`)}</${Table}>
    <h2 class="gap">Recovery, by answer</h2><${Answers} label="Recovery by answer" rows=${recovery.by_strategy} /></section>`;
}

export function NoFailures() {
  return html`<section class="card"><${Empty} title="No failures yet"><p>When an attempt fails, what was decided and whether it won is counted here, by kind of failure.</p></${Empty}></section>`;
}

/** What was decided about each kind of failure, and how often it won. */
export function Answers({ label, rows }) {
  return html`<${Table} label=${label} columns=${["Failure", "Answer", "Won", "Times", "Rate"]} figures=${3}>${rows.map((row) => html`<tr><td><${Tag} tone="bad">${words(row.class)}</${Tag}></td><td>${words(row.strategy)}</td><td class="progress"><${Meter} label=${`${row.won} won, ${row.lost} lost, ${row.open} open`} total=${row.times} parts=${[["good", row.won], ["bad", row.lost]]} /></td><td class="num">${row.times}</td><td class="num">${percent(row.rate)}</td></tr>`)}</${Table}>`;
}

function Epics({ epics }) {
  if (!epics.length) return html`<section class="card"><${Empty} title="No epics yet"><p>An epic says what is wanted; its tasks are given to agents.</p><p class="command"><code>${SUBMIT}</code> <${Copy} text=${SUBMIT} /></p></${Empty}></section>`;
  return html`<section><h2>Epics</h2><${Table} label="Epics" columns=${["Epic", "State", "Landed", "Cost"]} figures=${3}>${epics.slice().reverse().map((each) => html`<tr><td class="goal"><a href=${to(["runs", each.run])}><${Txt} v=${each.title || each.run} /></a></td><td><${Status} status=${each.status} /></td><td class="progress"><${Meter} label=${`${each.landed} of ${each.tasks} landed`} total=${each.tasks} parts=${[["good", each.landed]]} /> ${each.landed} of ${each.tasks}</td><td class="num">${money(each.cost)}</td></tr>`)}</${Table}></section>`;
}

function Commits({ commits }) {
  if (!commits.length) return null;
  return html`<section><h2>Latest on main</h2><ul class="card lines">${commits.slice(0, 15).map((each) => html`<li class="pad commit"><code>${each.sha.slice(0, 10)}</code><span class="grow"><${Txt} v=${each.subject} /></span><span class="muted"><${Txt} v=${each.by} /> · <${Ago} at=${each.at} /></span></li>`)}</ul></section>`;
}
