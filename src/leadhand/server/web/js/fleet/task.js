// One task: why it is where it is, the gate's output, the difference, the transcript, the attempts.
import { html, useEffect, useMemo, useState } from "../lib.js";
import { api } from "../api.js";
import { useKeys } from "../keys.js";
import { go, subject, to } from "../router.js";
import { inbox, resource, useFleet } from "../store.js";
import { Answer, Diff } from "../ui/ask.js";
import { Ago, Copy, Facts, Out, Said, Shown, Table, Tag, Title, Took, Txt } from "../ui/parts.js";
import { count, following, label, money, short, spent, strategy, words } from "../text.js";
import { AgentActions } from "./actions.js";
import { Way } from "./board.js";

const WORDS_MS = 1500;
const OPEN_FILES = 5;

export function Task({ run, task }) {
  const found = useFleet((control) => api.fleetTask(run, task, control), [run, task]);
  useKeys("Task", { Escape: ["Back to the fleet", () => go(["fleet"])] });
  useEffect(() => {
    subject.value = task;
    return () => (subject.value = "");
  }, [task]);
  return html`<${Shown} of=${found} what="Loading the task">${(doc) => html`<${Whole} run=${run} task=${task} doc=${doc} refresh=${found.soon} />`}</${Shown}>`;
}

function Whole({ run, task, doc, refresh }) {
  const card = doc.card ?? {};
  const last = doc.attempts.at(-1);
  const failed = doc.attempts.filter((each) => each.log).reverse();
  const open = failed[0] === last && card.column !== "merged";
  return html`<p class="crumbs"><a href=${to(["fleet"])}>Fleet</a> › <a href=${to(["runs", run])}><${Txt} v=${doc.epic} /></a></p>
    <${Title} sub=${html`<${Txt} v=${doc.planned.goal.split("\n")[0].slice(0, 300)} />`} actions=${card.live ? html`<${AgentActions} run=${run} task=${task} refresh=${refresh} />` : card.held_by && html`<${Way} card=${card} />`}><span class="mono"><${Txt} v=${task} /></span></${Title}>
    <${Now} doc=${doc} run=${run} task=${task} /><div class="stack">${card.question && html`<${Question} run=${run} id=${card.question} refresh=${refresh} />`}${failed.length > 0 && open && html`<${Failure} attempt=${failed[0]} open />`}
      <${Change} change=${doc.change} /><${Transcript} run=${run} task=${task} attempts=${doc.attempts} live=${card.live} />
      <${Attempts} attempts=${doc.attempts} />${failed.filter((each) => !open || each !== failed[0]).map((each) => html`<${Failure} key=${each.attempt} attempt=${each} open=${each === failed[0]} />`)}
      <section><h2>Plan</h2><div class="card pad"><${Facts} of=${{ goal: doc.planned.goal, "why one task": doc.planned.why, brief: doc.planned.brief, "may change": doc.planned.writes.join(", "), acceptance: doc.planned.acceptance.map((argv) => argv.join(" ")).join("\n"), worker: doc.planned.worker }} />
        <p><a href=${to(["runs", run], { step: task })}>Open the step in the run</a></p></div></section></div>`;
}

/** What a person is asked about the task, with the answers; beyond the part of the inbox that is known here, where it is. */
function Question({ run, id, refresh }) {
  const row = (inbox.state.value.data ?? []).find((each) => each.id === `${run}/${id}`);
  return html`<section class="card pad asked"><h2>Waiting for an answer</h2>${row ? html`<${Said} v=${row.text} /><${Answer} row=${row} onDone=${refresh} />` : html`<p><a href=${to(["inbox", run, id])}>Open the item in the inbox</a></p>`}</section>`;
}

const TONES = { planned: "quiet", working: "live", gate: "live", merge_queue: "live", merged: "good", blocked: "bad" };

function Now({ doc, run, task }) {
  const { card, commit, planned } = doc;
  const next = planned.superseded_by;
  return html`<dl class="figures card pad task-now"><div><dt>State</dt><dd><${Tag} tone=${TONES[card?.column] ?? "quiet"}>${card ? label(card.column) : words(doc.status)}</${Tag}>${card?.reason && html` <${Txt} v=${card.reason} />`}
      ${next && html` replaced by <a class="mono" href=${to(["fleet", run, next])}><${Txt} v=${next} /></a>`}</dd></div>
    ${card?.repository && html`<div><dt>Repository</dt><dd><${Txt} v=${card.repository} /></dd></div>`}
    ${card?.coder && html`<div><dt>Agent</dt><dd><${Txt} v=${card.model ? `${card.coder} · ${card.model}` : card.coder} /></dd></div>`}
    <div><dt>Attempts</dt><dd>${doc.attempts.length}</dd></div><div><dt>Cost</dt><dd>${spent(card?.cost ?? doc.cost, card?.running_cost)}</dd></div>
    ${card?.since && html`<div><dt>${card.column === "merged" ? "Merged" : "Since"}</dt><dd><${Ago} at=${card.since} /></dd></div>`}
    ${card?.pull_request && html`<div><dt>Pull request</dt><dd><${Out} url=${card.pull_request} /></dd></div>`}
    ${commit && html`<div><dt>Commit on ${commit.branch}</dt><dd><code>${commit.sha.slice(0, 12)}</code> <${Copy} text=${commit.sha} /></dd></div>`}
    ${commit?.tests && html`<div><dt>Tests</dt><dd><${Txt} v=${commit.tests} /></dd></div>`}</dl>`;
}

/** What the gate printed, once; the tests that failed stand first. */
function Failure({ attempt, open }) {
  return html`<details class="card pad failure" open=${open}><summary><h2>Gate output of attempt ${attempt.attempt}: ${words(attempt.class ?? "failed")}</h2></summary>${!attempt.log?.startsWith("$ ") && html`<p><${Txt} v=${attempt.message} /></p>`}
    ${attempt.tests?.length > 0 && html`<p><b>Failing: </b>${attempt.tests.map((name, at) => html`${at ? ", " : ""}<code><${Txt} v=${name} /></code>`)}</p>`}
    ${attempt.log && html`<pre class="value printed output" tabindex="0" aria-label="Output of the gate"><${Txt} v=${attempt.log} /></pre>`}</details>`;
}

function Change({ change }) {
  if (!change) return html`<section><h2>Change</h2><p class="muted">No change was saved yet.</p></section>`;
  const title = change.of === "commit" ? `Commit ${change.commit.slice(0, 12)}` : `Saved work of attempt ${change.attempt}, not merged`;
  return html`<section><h2>${title}: ${count(change.files.length + change.left_out, "file")}</h2>${change.files.map((file, at) => html`<details class="card file" key=${file.path} open=${at < OPEN_FILES}><summary><span class="mono"><${Txt} v=${file.path} /></span> <span class="tone-good added">+${file.added}</span> <span class="tone-bad added">−${file.removed}</span></summary>
      <${Diff} text=${file.patch} />${file.cut && html`<p class="muted pad">The rest of this file is not shown.</p>`}</details>`)}${change.left_out > 0 && html`<p class="muted">${change.left_out} more files are not shown.</p>`}</section>`;
}

function Transcript({ run, task, attempts, live }) {
  const [chosen, setChosen] = useState(0);
  const found = useMemo(() => resource((control) => api.fleetWords(run, task, chosen || undefined, control)), [run, task, chosen]);
  useEffect(() => {
    found.refresh();
    const timer = live && !chosen ? setInterval(() => document.hidden || found.refresh(), WORDS_MS) : 0;
    return () => (clearInterval(timer), found.drop());
  }, [found, live, attempts.length]);
  const { data, error } = found.state.value;
  if (!data) return error?.status === 404 ? html`<section><h2>Transcript</h2><p class="muted">No agent has worked on this task yet.</p></section>` : null;
  return html`<section><div class="bar"><h2>Transcript</h2><label class="push">Attempt <select onChange=${(event) => setChosen(Number(event.target.value))}><option value="0">last</option>${attempts.slice(0, -1).map((each) => html`<option value=${each.attempt}>${each.attempt}</option>`)}</select></label></div>
    <ol class="words" tabindex="0" aria-label="Transcript">${data.lines.map((line) => html`<li><span class="muted">${line.tool ?? line.kind}</span> <${Txt} v=${[line.path, line.text, line.cost && money(line.cost)].filter(Boolean).join(" ")} /></li>`)}</ol>
    <p class="muted">Attempt ${data.attempt}. Text that looks like a secret is hidden.</p></section>`;
}

const OUTCOMES = { merged: "good", failed: "bad", lost: "warn", running: "live" };

function Attempts({ attempts }) {
  if (!attempts.length) return null;
  return html`<section><h2>Attempts</h2><${Table} label="Attempts" kind="tries" columns=${["Attempt", "Outcome", "Reason", "Next", "Duration", "Cost"]} figures=${4}>${attempts.map((each) => html`<tr><td>${each.attempt} <span class="muted"><${Txt} v=${each.worker} /></span></td>
    <td><${Tag} tone=${OUTCOMES[each.outcome] ?? "quiet"}>${each.outcome}</${Tag}></td><td>${each.class && html`<${Tag} tone="bad">${words(each.class)}</${Tag}> `}<${Txt} v=${short(each.message ?? "", 160)} /></td>
    <td title=${each.recovery?.reason}><${Txt} v=${following(each) || (each.recovery ? `${strategy(each.recovery.strategy)}: ${each.recovery.reason}` : "")} /></td><td class="num"><${Took} from=${each.started} to=${each.ended} /></td><td class="num">${each.cost ? money(each.cost) : "–"}</td></tr>`)}</${Table}></section>`;
}
