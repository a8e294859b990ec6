// The board: where each task is, why a blocked one is blocked, the merge queue, and the epics as lanes.
import { html, useMemo, useState } from "../lib.js";
import { ask, route, to } from "../router.js";
import { Chart } from "../ui/chart.js";
import { Ago, Empty, Instant, Meter, Out, Search, Status, Table, Tag, Title, Took, Txt } from "../ui/parts.js";
import { may, now } from "../store.js";
import { api } from "../api.js";
import { attempt } from "../notices.js";
import { connection } from "../stream.js";
import { authorName, count, duration, millis, money, percent, spent, strategy, words } from "../text.js";
import { Actions, drained } from "./actions.js";

const COLUMNS = [["planned", "Planned", "quiet"], ["working", "Working", "live"], ["gate", "Gate", "live"], ["merge_queue", "Merge queue", "live"], ["merged", "Merged", "good"], ["blocked", "Blocked", "bad"], ["ended", "Skipped or cancelled", "quiet"]];
/** Columns that are there from the beginning, so that none moves when the first task is blocked. */
const ALWAYS = 6;
const ENDED_SHOWN = 10;
const SILENT_S = 60;
const place = (each) => to(["fleet", each.run, each.task]);

/** What agents at work have cost so far. */
const running = (cards, run) => cards.reduce((sum, card) => sum + (!run || card.run === run ? (card.running_cost ?? 0) : 0), 0);

/** The fleet in one sentence. Pure. */
export function sentence(fleet) {
  const { live, spend, agents, landed } = fleet;
  const open = fleet.epics.filter((each) => !each.ended).length;
  const budget = live?.daily_spend ? ` of ${money(live.daily_spend)}` : "";
  const more = running(fleet.board.cards);
  const at = live ? `${agents.now} of ${count(live.places.now, "agent")} running` : "not running";
  return [live?.repo.split(/[\\/]/).filter(Boolean).at(-1), `${count(open, "open epic")} of ${fleet.epics.length}`, at, `${landed.total} merged`, `${money(spend.today)}${budget} spent today${more ? ` + ${money(more)} so far by running agents` : ""}`].filter(Boolean).join(" · ");
}

/** @param {{fleet: object, since: string, refresh: () => void}} given the document of `leadhand fleet status --json` */
export function Board({ fleet, since, refresh }) {
  const [text, setText] = useState("");
  const flat = route.value.query.view === "flat";
  const wanted = text.trim().toLowerCase();
  const cards = useMemo(() => fleet.board.cards.filter((card) => !wanted || `${card.task} ${card.title} ${card.coder} ${card.model}`.toLowerCase().includes(wanted)), [fleet, wanted]);
  return html`<${Title} sub=${html`<span title=${fleet.live?.repo}><${Txt} v=${sentence(fleet)} /></span>`} actions=${html`<${Actions} live=${fleet.live} refresh=${refresh} />`}>Fleet</${Title}><${Notes} fleet=${fleet} refresh=${refresh} />
    <div class="stack"><${Blocked} cards=${fleet.board.cards.filter((card) => card.column === "blocked")} fleet=${fleet} />
      <section><div class="bar"><h2>Tasks</h2><${Search} label="Search tasks" value=${text} onInput=${setText} push />
        <label class="check"><input type="checkbox" checked=${!flat} onChange=${() => ask({ view: flat ? "" : "flat" })} /> Group by epic</label></div>
        ${flat ? html`<div class="card pad"><${Columns} counts=${fleet.board.columns} cards=${cards} fleet=${fleet} wanted=${wanted} /></div>` : html`<${Lanes} fleet=${fleet} cards=${cards} wanted=${wanted} />`}</section>
      <${Queue} train=${fleet.live?.train} />${fleet.live?.repositories?.map((each) => html`<${Queue} of=${each.name} train=${each.train} />`)}<${Figures} fleet=${fleet} since=${since} /></div>`;
}

function Notes({ fleet, refresh }) {
  const { live, disagreements: wrong } = fleet;
  const refused = Object.entries(live?.refused ?? {});
  const over = connection.value === "lost";
  const drain = live?.drained ?? (live?.pid === drained.value?.pid ? drained.value : null);
  const by = drain && html` by <${Txt} v=${drain.by || "a person"} />, <${Instant} at=${drain.at} />`;
  return html`${(live?.draining || drain) && html`<p class="fleet-note tone-warn" role="status">${over ? html`<b>Drained</b>${by}. The fleet has ended, and the board shows its last state. Start it again with <code>leadhand fleet start</code>.` : html`<b>Draining</b>${by}. No new agents start. The fleet and this dashboard end when the running agents have ended.`}</p>`}
    ${live?.paused && !live.draining && html`<p class="fleet-note tone-warn" role="status"><b>Paused</b> by <${Txt} v=${live.paused.by} /> <${Ago} at=${live.paused.at} />. Running agents continue; no new agents start.</p>`}
    ${fleet.limits.map((each) => html`<p class="fleet-note tone-warn" role="status"><b>Usage limit</b> of <${Txt} v=${each.login} />, ends <${Instant} at=${each.until} />${each.told ? "" : " or later"}. ${each.tasks != null && `${count(each.tasks, "task")} waiting. `}${live && may("operator") && html`<button type="button" onClick=${async () => (await attempt(() => api.fleetOrder("resume", { login: each.login }), "Limit lifted")) && refresh()}>Lift limit</button>`}</p>`)}
    ${live?.held_back && !fleet.limits.length && !live.paused && !live.draining && html`<p class="muted fleet-delay" role="status">New agents delayed: <${Txt} v=${live.held_back} />.</p>`}
    ${wrong.length > 0 && html`<div class="fleet-note tone-bad" role="alert"><b>The log and git disagree in ${count(wrong.length, "place")}.</b><ul>${wrong.slice(0, 20).map((each) => html`<li><${Txt} v=${each} /></li>`)}</ul></div>`}
    ${refused.map(([name, why]) => html`<div class="fleet-note tone-warn" role="status"><b><${Txt} v=${name} />:</b> <${Txt} v=${why} /></div>`)}`;
}

/** Every task and epic that cannot go on before a person acts, with the reason and the way out. */
function Blocked({ cards, fleet }) {
  const asked = fleet.board.lanes.flatMap((lane) => lane.waiting.map((each) => ({ ...each, run: lane.run })));
  if (!cards.length && !asked.length) return html`<p class="muted">No task is blocked.</p>`;
  const titles = Object.fromEntries(fleet.epics.map((each) => [each.run, each.title]));
  return html`<section><h2>Blocked: ${[cards.length && count(cards.length, "task"), asked.length && count(asked.length, "epic")].filter(Boolean).join(", ")}</h2><ul class="card blocked">
    ${asked.map((each) => html`<li key=${each.run + each.question}><div><b><${Txt} v=${titles[each.run]} /></b> <${Tag} tone="ask">epic</${Tag}><p><${Txt} v=${each.text} /></p></div>
      <a class="button" href=${each.kind === "review" ? to(["runs", each.run, "plan"]) : to(["inbox", each.run, each.question])}>${each.kind === "review" ? "Review plan" : "Answer"}</a></li>`)}
    ${cards.map((card) => html`<li key=${card.run + card.task}><div><a class="mono" data-item href=${place(card)}><${Txt} v=${card.task} /></a> ${card.class && html`<${Tag} tone="bad">${words(card.class)}</${Tag}> `}
      <span class="muted"><${Txt} v=${titles[card.run]} /> · ${count(card.attempt ?? 0, "attempt")}${card.since ? html` · <${Ago} at=${card.since} />` : ""}</span><p><${Txt} v=${card.reason} /></p></div><${Way} card=${card} /></li>`)}</ul></section>`;
}

/** The action that unblocks a task; the task itself shows its question with the answers. */
export function Way({ card }) {
  if (card.question) return html`<a class="button" href=${place(card)}>Answer</a>`;
  if (card.held_by) return html`<a class="button" href=${to(["runs", card.run], { step: card.task })}>Release in the run</a>`;
  return html`<a class="button" href=${place(card)}>Show details</a>`;
}

function Lanes({ fleet, cards, wanted }) {
  const rows = fleet.epics.map((epic, at) => ({ epic, lane: fleet.board.lanes[at] })).reverse();
  const open = rows.filter(({ epic }) => !epic.ended);
  const ended = rows.filter(({ epic }) => epic.ended);
  if (!rows.length) return html`<section class="card"><${Empty} title="No epics yet"><p>An epic describes a change. Its tasks are assigned to agents.</p></${Empty}></section>`;
  const shown = [...open, ...ended.slice(0, ENDED_SHOWN)];
  return html`${shown.map(({ epic, lane }) => html`<${Lane} key=${epic.run} epic=${epic} lane=${lane} fleet=${fleet} wanted=${wanted} cards=${cards.filter((card) => card.run === epic.run)} />`)}
    ${ended.length > ENDED_SHOWN && html`<p class="muted">${ended.length - ENDED_SHOWN} older epics are listed under <a href=${to(["runs"])}>Runs</a>.</p>`}`;
}

function Lane({ epic, lane, fleet, cards, wanted }) {
  const stuck = lane.columns.blocked + lane.waiting.length;
  return html`<details class="card epic-lane" open=${!epic.ended}><summary><h3><${Txt} v=${epic.title || epic.run} /></h3><${Status} status=${epic.status} />
      <span class="epic-meter"><${Meter} label=${`${epic.landed} of ${epic.tasks} merged`} total=${epic.tasks} parts=${[["good", epic.landed]]} /></span><span>${epic.landed} of ${epic.tasks} merged</span>
      ${stuck > 0 && html`<${Tag} tone="bad">${stuck} blocked</${Tag}>`}${lane.paused && html`<${Tag} tone="warn">paused</${Tag}>`}${lane.planning && html`<${Tag} tone="live">planner at work</${Tag}>`}<span class="muted">${spent(epic.cost, running(fleet.board.cards, epic.run))}</span></summary>
    <${Columns} counts=${lane.columns} cards=${cards} fleet=${fleet} run=${epic.run} wanted=${wanted} />
    <div class="epic-end"><${Plan} lane=${lane} /><a href=${to(["runs", epic.run])}>Open run</a>${lane.issue && html`<span>Issue: <${Out} url=${lane.issue} /></span>`}${epic.pull_request && html`<span>Pull request: <${Out} url=${epic.pull_request} /></span>`}</div></details>`;
}

/** The text of an epic, and the waves of the planner with its reasons. */
function Plan({ lane }) {
  if (!lane.text && !lane.waves.length) return null;
  return html`<details><summary>Plan: ${count(lane.waves.length, "wave")}</summary>${lane.text && html`<pre class="value epic-text" tabindex="0"><${Txt} v=${lane.text} /></pre>`}
    <ol class="waves">${lane.waves.map((wave) => html`<li><b><${Txt} v=${wave.because || "no reason given"} /></b> <span class="muted">${wave.tasks > 0 && `${count(wave.tasks, "task")} · `}<${Txt} v=${authorName(wave.by)} /> · <${Ago} at=${wave.at} /></span>
      ${wave.names.length > 0 && html`<p class="muted mono"><${Txt} v=${wave.names.join(", ")} />${wave.tasks > wave.names.length ? ", …" : ""}</p>`}</li>`)}</ol></details>`;
}

/** While a search narrows the cards, a column says how many of its tasks are shown. */
function Columns({ counts, cards, fleet, run, wanted }) {
  const all = fleet.board.columns;
  return html`<div class="columns">${COLUMNS.filter(([name], at) => at < ALWAYS || all[name]).map(([name, label, tone]) => {
    const mine = cards.filter((card) => card.column === name);
    const more = wanted ? 0 : counts[name] - mine.length;
    const total = wanted && counts[name] ? `${mine.length} of ${counts[name]}` : counts[name];
    return html`<section class="column ${name === "ended" ? name : ""} ${counts[name] ? "" : "zero"}" aria-label=${`${label}: ${total} ${total === 1 ? "task" : "tasks"}`}><h4 class="tone-${counts[name] ? tone : "quiet"}">${label} <b>${total}</b></h4>
      ${mine.length > 0 && html`<ul tabindex="0" aria-label=${label}>${mine.map((card) => html`<${Card} key=${card.run + card.task} card=${card} />`)}</ul>`}
      ${more > 0 && html`<p class="muted">${more} more${run ? html`: <a href=${to(["runs", run])}>open run</a>` : ""}</p>`}</section>`;
  })}</div>`;
}

function Card({ card }) {
  return useMemo(() => html`<li class="task"><a class="mono" data-item href=${place(card)}><${Txt} v=${card.task} /></a><p class="task-goal"><${Txt} v=${card.title} /></p>
    ${card.repository && html`<p class="muted">Repository <${Txt} v=${card.repository} /></p>`}
    ${card.coder && html`<p class="muted"><${Txt} v=${card.model ? `${card.coder} · ${card.model}` : card.coder} /></p>`}
    <p class="muted task-facts">${card.attempt > 1 && html`<span class="tone-warn task-again">attempt ${card.attempt}</span>`}${card.since && card.column !== "planned" && html`<span>${card.column === "merged" ? html`<${Ago} at=${card.since} />` : html`<${Took} from=${card.since} />`}</span>`}${(card.cost || card.running_cost) && html`<span>${spent(card.cost, card.running_cost)}</span>`}</p>
    ${card.words && html`<p class="task-words"><${Txt} v=${card.words} /></p>`}${card.heard && html`<${Silent} at=${card.heard} most=${card.silence_s} />`}${card.reason && html`<p class="task-reason"><${Txt} v=${card.reason} /></p>`}</li>`, [card]);
}

/** An agent that has printed nothing for a while may be stuck. */
function Silent({ at, most }) {
  const quiet = (now.value - millis(at)) / 1000;
  return quiet > SILENT_S && html`<p class="tone-warn task-again">no output for ${duration(quiet)}; it is stopped at ${duration(most)} without output or changes</p>`;
}

const BATCH = { testing: "live", "testing alone": "warn", waiting: "quiet", passed: "good", failed: "bad", "set aside": "warn" };

/** What is tested together, in the order in which it is merged. */
function Queue({ of, train }) {
  const batches = train?.batches ?? [];
  return html`<section><h2>Merge queue${of && html` of <${Txt} v=${of} />`}</h2>${batches.length ? html`<ol class="batches">${batches.map((batch) => html`<li class="card tone-${BATCH[batch.state] ?? "quiet"}"><b>${count(batch.size, "change")} · ${batch.state}</b>
    ${batch.changes.map((each) => (each.run ? html`<a class="mono" href=${place(each)} title=${each.goal}><${Txt} v=${each.task} /></a>` : html`<span><${Txt} v=${each.goal || "a change"} /></span>`))}${batch.size > batch.changes.length && html`<span class="muted">${batch.size - batch.changes.length} more</span>`}</li>`)}</ol>`
    : html`<p class="muted">No change waits for the merge queue.${train ? ` Batches have up to ${count(train.batch, "change")}.` : ""}</p>`}</section>`;
}

// Over a chosen time: merges, failures, recoveries, spending, and what recovering was worth.

const RANGES = [["3600", "Last hour"], ["86400", "Last 24 hours"], ["604800", "Last 7 days"], ["", "All time"]];

function Figures({ fleet, since }) {
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
  const { agents, gate, landed, queue, recovery, spend, train } = fleet;
  const pair = (of) => (of.p50 == null ? "–" : `p50 ${duration(of.p50)}, p95 ${duration(of.p95)}`);
  const rows = [
    ["Merged", `${landed.in_window}${landed.per_hour == null ? "" : `, ${landed.per_hour} per hour`}`],
    ["Recovered", `${percent(recovery.rate)} (${recovery.recovered} of ${recovery.recovered + recovery.people} failed tasks)`],
    ["First-pass success", percent(recovery.first_pass)],
    ["Spend", `${money(spend.in_window)}${spend.per_landed == null ? "" : `, ${money(spend.per_landed)} per commit`}`],
    ["Agents started", `${agents.runs}, peak ${agents.peak}`],
    ["Runs of the gate", `${gate.runs - gate.failed} passed, ${gate.failed} failed; ${pair(gate.seconds)}`],
    ["Wait in merge queue", pair(queue.wait_s)],
    ["Sent back", Object.entries(train.ejected).map(([kind, number]) => `${words(kind)} ${number}`).join(", ") || "none"],
    ...(fleet.live?.machines ?? []).map((each) => [`Machine ${each.name}`, `${count(each.agents, "agent")}${each.trouble && `; ${each.trouble}`}`]),
    ["Flaky tests", (fleet.flaky ?? []).map((each) => `${each.name} (${each.times})`).join(", ") || "none"],
  ];
  return html`<dl class="figures card pad">${rows.map(([name, value]) => html`<div><dt><${Txt} v=${name} /></dt><dd><${Txt} v=${value} /></dd></div>`)}</dl>`;
}

function Recovery({ recovery }) {
  if (!recovery.failed) return null;
  const share = (row) => html`<${Meter} label=${`${row.recovered} recovered, ${row.people} asked a person`} total=${row.tasks} parts=${[["good", row.recovered], ["bad", row.people]]} />`;
  const won = (row) => html`<${Meter} label=${`${row.won} worked, ${row.lost} did not work, ${row.open} open`} total=${row.times} parts=${[["good", row.won], ["bad", row.lost]]} />`;
  return html`<details class="gap"><summary>Recovery by failure class and strategy</summary>
    <${Table} label="Recovery by failure class" columns=${["Failure", "", "Recovered", "Asked a person", "Rate"]} figures=${3}>${recovery.by_class.map((row) => html`<tr><td><${Tag} tone="bad">${words(row.class)}</${Tag}></td><td class="progress">${share(row)}</td><td>${row.recovered} of ${row.tasks}</td><td class="num">${row.people}</td><td class="num">${percent(row.rate)}</td></tr>`)}</${Table}>
    <${Table} label="Recovery by strategy" columns=${["Failure", "Strategy", "Worked", "Times", "Rate"]} figures=${3}>${recovery.by_strategy.map((row) => html`<tr><td><${Tag} tone="bad">${words(row.class)}</${Tag}></td><td>${strategy(row.strategy)}</td><td class="progress">${won(row)}</td><td class="num">${row.times}</td><td class="num">${percent(row.rate)}</td></tr>`)}</${Table}></details>`;
}
