// What people do with a fleet: submit an epic, pause, resume, drain, stop or message an agent.
import { html, signal, useState } from "../lib.js";
import { api } from "../api.js";
import { useKeys } from "../keys.js";
import { may, session } from "../store.js";
import { attempt, notice } from "../notices.js";
import { Modal, confirmed } from "../ui/dialog.js";
import { Trouble } from "../ui/parts.js";
import { count, iso } from "../text.js";

/** What was typed of an epic stays until it is submitted. */
const draft = signal({ text: "", name: "", priority: "" });
/** The drain that was ordered here: the fleet may end before it is asked again. */
export const drained = signal(null);
const HINT = "# Add a search\n\nWhat is wanted, in a few sentences.";
const TASKS = "\n\n```yaml\ntasks:\n  - {id: index, goal: build the index, writes: [index.py]}\n```";

export function Actions({ live, refresh }) {
  const [open, setOpen] = useState(false);
  const mine = live && may("operator");
  const order = async (verb, done) => (await attempt(() => api.fleetOrder(verb), done)) && refresh();
  const drain = async () => {
    const running = live.agents.length ? `${count(live.agents.length, "running agent")} can finish within the grace period; unfinished work is saved.` : "No agents are running.";
    const what = { title: "Drain the fleet?", body: `No new agents start. ${running} Then the fleet and this dashboard end. Open epics continue with the next leadhand fleet start.`, action: "Drain fleet", tone: "bad" };
    if (!(await confirmed(what, () => api.fleetOrder("drain"), "The fleet is draining"))) return;
    drained.value = { pid: live.pid, by: session.value.person, at: iso(Date.now() * 1000) };
    refresh();
  };
  const pause = () => (live.paused ? order("resume", "The fleet starts agents again") : order("pause", "Paused: no new agents start"));
  useKeys("Fleet", mine ? { e: ["Submit epic", () => setOpen(true)], p: [live.paused ? "Resume the fleet" : "Pause the fleet", pause] } : {}, [mine, live?.paused?.at]);
  if (!mine) return null;
  return html`<button type="button" class="primary" disabled=${live.draining} onClick=${() => setOpen(true)}>Submit epic</button>
    <button type="button" disabled=${live.draining} onClick=${pause}>${live.paused ? "Resume" : "Pause"}</button>
    <button type="button" class="bad" disabled=${live.draining} onClick=${drain}>Drain</button>
    ${open && html`<${Submit} planner=${live.planner} onClose=${() => setOpen(false)} refresh=${refresh} />`}`;
}

function Submit({ planner, onClose, refresh }) {
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const { text, name, priority } = draft.value;
  const put = (change) => (draft.value = { ...draft.value, ...change });
  const file = async (event) => {
    const [given] = event.target.files;
    if (given) put({ text: await given.text(), name: given.name });
  };
  const send = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const done = await api.fleetSubmit({ text, name, priority: priority === "" ? null : Number(priority) });
      notice(done.known ? `This epic was submitted before (${done.known}); it is not done twice` : `Epic submitted: ${done.title}`, done.known ? "plain" : "good");
      put({ text: "", name: "", priority: "" });
      onClose();
      refresh();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<${Modal} title="Submit epic" onClose=${onClose} wide><form class="stack" onSubmit=${send}>
    <p class="muted">An epic describes a change in Markdown. ${planner ? "Without a list of tasks, the planner proposes them in waves." : "This fleet has no planner: list the tasks, each with id, goal and the paths it writes."}</p>
    <label class="field">Epic<textarea class="epic-input" rows="12" required spellcheck="false" placeholder=${planner ? HINT : HINT + TASKS} value=${text} onInput=${(event) => put({ text: event.target.value })}></textarea></label>
    <div class="bar"><label class="field">Markdown file<input type="file" accept=".md,.markdown,text/markdown" onChange=${file} /></label>
      <label class="field">Priority (higher is sooner)<input type="number" min="-1000" max="1000" step="1" placeholder="0" value=${priority} onInput=${(event) => put({ priority: event.target.value })} /></label></div>
    <${Trouble} error=${error} />
    <div class="actions end"><button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="primary" disabled=${busy || !text.trim()}>Submit epic</button></div></form></${Modal}>`;
}

const AGAIN = "Recovery continues the task";
const FINAL = "No other attempt: the task waits for a decision";

/** Message and stop the agent that works on a task. */
export function AgentActions({ run, task, refresh }) {
  if (!may("operator")) return null;
  const stop = async () => {
    const what = { title: `Stop the agent of ${task}?`, body: "The attempt ends with your name and reason, and its changes are saved.", action: "Stop agent", tone: "bad", choose: "Then", choices: [AGAIN, FINAL], field: "Reason (optional)" };
    if (await confirmed(what, (said) => api.fleetStop(run, task, said.text, said.choice === FINAL), `Stopping the agent of ${task}`)) refresh();
  };
  const tell = async () => {
    const what = { title: `Message the agent of ${task}`, body: "The agent continues its session with this message.", action: "Send message", field: "Message", must: true, lines: 3 };
    if (await confirmed(what, (said) => api.fleetMessage(run, task, said.text), `Message sent to the agent of ${task}`)) refresh();
  };
  return html`<button type="button" onClick=${tell}>Message agent</button><button type="button" class="bad" onClick=${stop}>Stop agent</button>`;
}
