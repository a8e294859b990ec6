// The board: where each task is, why a blocked one is blocked, the merge queue, and the epics as lanes.
import { html, useMemo, useState } from "../lib.js";
import { ask, route, to } from "../router.js";
import { Ago, Empty, Meter, Search, Status, Tag, Title, Took, Txt } from "../ui/parts.js";
import { may, now } from "../store.js";
import { connection } from "../stream.js";
import { authorName, count, duration, millis, money, words } from "../text.js";
import { Actions } from "./actions.js";
import { Figures } from "./figures.js";

const COLUMNS = [["planned", "Planned", "quiet"], ["working", "Working", "live"], ["gate", "Gate", "live"], ["merge_queue", "Merge queue", "live"], ["merged", "Merged", "good"], ["blocked", "Blocked", "bad"], ["ended", "Skipped or cancelled", "quiet"]];
const ALWAYS = 5;
const ENDED_SHOWN = 10;
const SILENT_S = 60;
const place = (each) => to(["fleet", each.run, each.task]);

/** The fleet in one sentence. Pure. */
export function sentence(fleet) {
  const { live, spend, agents, landed } = fleet;
  const open = fleet.epics.filter((each) => !each.ended).length;
  const budget = live?.daily_spend ? ` of ${money(live.daily_spend)}` : "";
  const at = live ? `${agents.now} of ${count(live.places.now, "agent")} running` : "not running";
  return [live?.repo.split(/[\\/]/).filter(Boolean).at(-1), `${count(open, "open epic")} of ${fleet.epics.length}`, at, `${landed.total} merged`, `${money(spend.today)}${budget} spent today`].filter(Boolean).join(" · ");
}

/** @param {{fleet: object, since: string, refresh: () => void}} given the document of `leadhand fleet status --json` */
export function Board({ fleet, since, refresh }) {
  const [text, setText] = useState("");
  const flat = route.value.query.view === "flat";
  const wanted = text.trim().toLowerCase();
  const cards = useMemo(() => fleet.board.cards.filter((card) => !wanted || `${card.task} ${card.title} ${card.coder} ${card.model}`.toLowerCase().includes(wanted)), [fleet, wanted]);
  return html`<${Title} sub=${html`<span title=${fleet.live?.repo}><${Txt} v=${sentence(fleet)} /></span>`} actions=${html`<${Actions} live=${fleet.live} refresh=${refresh} />`}>Fleet</${Title}><${Notes} fleet=${fleet} />
    <div class="stack"><${Blocked} cards=${cards.filter((card) => card.column === "blocked")} fleet=${fleet} />
      <section><div class="bar"><h2>Tasks</h2><${Search} label="Search tasks" value=${text} onInput=${setText} push />
        <label class="check"><input type="checkbox" checked=${!flat} onChange=${() => ask({ view: flat ? "" : "flat" })} /> Group by epic</label></div>
        ${flat ? html`<div class="card pad"><${Columns} counts=${fleet.board.columns} cards=${cards} fleet=${fleet} /></div>` : html`<${Lanes} fleet=${fleet} cards=${cards} />`}</section>
      <${Queue} batches=${fleet.live?.train.batches ?? []} train=${fleet.live?.train} /><${Figures} fleet=${fleet} since=${since} /></div>`;
}

function Notes({ fleet }) {
  const { live, disagreements: wrong } = fleet;
  const refused = Object.entries(live?.refused ?? {});
  const over = connection.value === "lost";
  return html`${live?.draining && html`<p class="fleet-note tone-warn" role="status">${over ? html`<b>Drained.</b> The fleet has ended, and the board shows its last state. Start it again with <code>leadhand fleet start</code>.` : html`<b>Draining.</b> No new agents start. The fleet and this dashboard end when the running agents have ended.`}</p>`}
    ${live?.paused && !live.draining && html`<p class="fleet-note tone-warn" role="status"><b>Paused</b> by <${Txt} v=${live.paused.by} /> <${Ago} at=${live.paused.at} />. Running agents continue; no new agents start.</p>`}
    ${live?.held_back && !live.paused && !live.draining && html`<p class="muted fleet-delay" role="status">New agents delayed: <${Txt} v=${live.held_back} />.</p>`}
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
      <a class="button" href=${each.kind === "review" ? to(["runs", each.run, "plan"]) : to(["inbox"])}>${each.kind === "review" ? "Review plan" : "Answer"}</a></li>`)}
    ${cards.map((card) => html`<li key=${card.run + card.task}><div><a class="mono" data-item href=${place(card)}><${Txt} v=${card.task} /></a> ${card.class && html`<${Tag} tone="bad">${words(card.class)}</${Tag}> `}
      <span class="muted"><${Txt} v=${titles[card.run]} /> · ${count(card.attempt ?? 0, "attempt")}${card.since ? html` · <${Ago} at=${card.since} />` : ""}</span><p><${Txt} v=${card.reason} /></p></div><${Way} card=${card} /></li>`)}</ul></section>`;
}

/** The action that unblocks a task. */
export function Way({ card }) {
  if (card.question && may("operator")) return html`<a class="button" href=${to(["inbox"])}>Answer in the inbox</a>`;
  if (card.held_by) return html`<a class="button" href=${to(["runs", card.run], { step: card.task })}>Release in the run</a>`;
  return html`<a class="button" href=${place(card)}>Show details</a>`;
}

function Lanes({ fleet, cards }) {
  const rows = fleet.epics.map((epic, at) => ({ epic, lane: fleet.board.lanes[at] })).reverse();
  const open = rows.filter(({ epic }) => !epic.ended);
  const ended = rows.filter(({ epic }) => epic.ended);
  if (!rows.length) return html`<section class="card"><${Empty} title="No epics yet"><p>An epic describes a change. Its tasks are assigned to agents.</p></${Empty}></section>`;
  const shown = [...open, ...ended.slice(0, ENDED_SHOWN)];
  return html`${shown.map(({ epic, lane }) => html`<${Lane} key=${epic.run} epic=${epic} lane=${lane} fleet=${fleet} cards=${cards.filter((card) => card.run === epic.run)} />`)}
    ${ended.length > ENDED_SHOWN && html`<p class="muted">${ended.length - ENDED_SHOWN} older epics are listed under <a href=${to(["runs"])}>Runs</a>.</p>`}`;
}

function Lane({ epic, lane, fleet, cards }) {
  const stuck = lane.columns.blocked + lane.waiting.length;
  return html`<details class="card epic-lane" open=${!epic.ended}><summary><h3><${Txt} v=${epic.title || epic.run} /></h3><${Status} status=${epic.status} />
      <span class="epic-meter"><${Meter} label=${`${epic.landed} of ${epic.tasks} merged`} total=${epic.tasks} parts=${[["good", epic.landed]]} /></span><span>${epic.landed} of ${epic.tasks} merged</span>
      ${stuck > 0 && html`<${Tag} tone="bad">${stuck} blocked</${Tag}>`}${lane.paused && html`<${Tag} tone="warn">paused</${Tag}>`}${lane.planning && html`<${Tag} tone="live">planner at work</${Tag}>`}${epic.cost > 0 && html`<span class="muted">${money(epic.cost)}</span>`}</summary>
    <${Columns} counts=${lane.columns} cards=${cards} fleet=${fleet} run=${epic.run} />
    <div class="epic-end"><${Plan} lane=${lane} /><a href=${to(["runs", epic.run])}>Open run</a>${epic.pull_request && html`<span>Pull request: <${Txt} v=${epic.pull_request} /></span>`}</div></details>`;
}

/** The text of an epic, and the waves of the planner with its reasons. */
function Plan({ lane }) {
  if (!lane.text && !lane.waves.length) return null;
  return html`<details><summary>Plan: ${count(lane.waves.length, "wave")}</summary>${lane.text && html`<pre class="value epic-text" tabindex="0"><${Txt} v=${lane.text} /></pre>`}
    <ol class="waves">${lane.waves.map((wave) => html`<li><b><${Txt} v=${wave.because || "no reason given"} /></b> <span class="muted">${wave.tasks > 0 && `${count(wave.tasks, "task")} · `}<${Txt} v=${authorName(wave.by)} /> · <${Ago} at=${wave.at} /></span>
      ${wave.names.length > 0 && html`<p class="muted mono"><${Txt} v=${wave.names.join(", ")} />${wave.tasks > wave.names.length ? ", …" : ""}</p>`}</li>`)}</ol></details>`;
}

function Columns({ counts, cards, fleet, run }) {
  const all = fleet.board.columns;
  return html`<div class="columns">${COLUMNS.filter(([name], at) => at < ALWAYS || all[name]).map(([name, label, tone]) => {
    const mine = cards.filter((card) => card.column === name);
    const more = counts[name] - mine.length;
    return html`<section class="column ${all[name] ? "" : "none"} ${counts[name] ? "" : "zero"}" aria-label=${`${label}: ${count(counts[name], "task")}`}><h4 class="tone-${counts[name] ? tone : "quiet"}">${label} <b>${counts[name]}</b></h4>
      ${mine.length > 0 && html`<ul tabindex="0" aria-label=${label}>${mine.map((card) => html`<${Card} key=${card.run + card.task} card=${card} />`)}</ul>`}
      ${more > 0 && html`<p class="muted">${more} more${run ? html`: <a href=${to(["runs", run])}>open run</a>` : ""}</p>`}</section>`;
  })}</div>`;
}

function Card({ card }) {
  return useMemo(() => html`<li class="task"><a class="mono" data-item href=${place(card)}><${Txt} v=${card.task} /></a><p class="task-goal"><${Txt} v=${card.title} /></p>
    ${card.coder && html`<p class="muted"><${Txt} v=${card.model ? `${card.coder} · ${card.model}` : card.coder} /></p>`}
    <p class="muted task-facts">${card.attempt > 1 && html`<span class="tone-warn task-again">attempt ${card.attempt}</span>`}${card.since && card.column !== "planned" && html`<span>${card.column === "merged" ? html`<${Ago} at=${card.since} />` : html`<${Took} from=${card.since} />`}</span>`}${card.cost && html`<span>${money(card.cost)}</span>`}</p>
    ${card.words && html`<p class="task-words"><${Txt} v=${card.words} /></p>`}${card.heard && html`<${Silent} at=${card.heard} />`}${card.reason && html`<p class="task-reason"><${Txt} v=${card.reason} /></p>`}</li>`, [card]);
}

/** An agent that has printed nothing for a while may be stuck. */
function Silent({ at }) {
  const quiet = (now.value - millis(at)) / 1000;
  return quiet > SILENT_S && html`<p class="tone-warn task-again">no output for ${duration(quiet)}</p>`;
}

const BATCH = { testing: "live", "testing alone": "warn", waiting: "quiet", passed: "good", failed: "bad", "set aside": "warn" };

/** What is tested together, in the order in which it is merged. */
function Queue({ batches, train }) {
  return html`<section><h2>Merge queue</h2>${batches.length ? html`<ol class="batches">${batches.map((batch) => html`<li class="card tone-${BATCH[batch.state] ?? "quiet"}"><b>${count(batch.size, "change")} · ${batch.state}</b>
    ${batch.changes.map((each) => (each.run ? html`<a class="mono" href=${place(each)} title=${each.goal}><${Txt} v=${each.task} /></a>` : html`<span><${Txt} v=${each.goal || "a change"} /></span>`))}${batch.size > batch.changes.length && html`<span class="muted">${batch.size - batch.changes.length} more</span>`}</li>`)}</ol>`
    : html`<p class="muted">No change waits for the merge queue.${train ? ` Batches have up to ${count(train.batch, "change")}.` : ""}</p>`}</section>`;
}
