// Agents at work: what each says, and a way to stop one or to tell it something.
import { html, useEffect, useState } from "../lib.js";
import { api } from "../api.js";
import { to } from "../router.js";
import { may, useResource } from "../store.js";
import { Modal, confirmed } from "../ui/dialog.js";
import { Shown, Tag, Took, Txt } from "../ui/parts.js";
import { money } from "../text.js";

const WORDS_MS = 1500;

export function Agents({ agents, refresh }) {
  const [open, setOpen] = useState(null);
  return html`<section><h2>Running agents</h2>${agents.length ? html`<ul class="card lines agents">${agents.map((each) => html`<${Agent} key=${`${each.run}/${each.task}`} agent=${each} refresh=${refresh} show=${() => setOpen(each)} />`)}</ul>` : html`<p class="card pad muted">No agents running.</p>`}
    ${open && html`<${Words} of=${open} onClose=${() => setOpen(null)} />`}</section>`;
}

function Agent({ agent, refresh, show }) {
  const name = agent.task;
  const stop = async () => {
    const what = { title: `Stop the agent of ${name}?`, body: "The agent's changes are saved. Recovery decides how the task continues.", action: "Stop agent", tone: "bad", field: "Reason (optional)" };
    if (await confirmed(what, (said) => api.fleetStop(agent.run, name, said.text), `Stopping the agent of ${name}`)) refresh();
  };
  const tell = async () => {
    const what = { title: `Message the agent of ${name}`, body: "The agent continues its session with this message.", action: "Send message", field: "Message", must: true, lines: 3 };
    if (await confirmed(what, (said) => api.fleetMessage(agent.run, name, said.text), `Message sent to the agent of ${name}`)) refresh();
  };
  return html`<li class="pad agent"><div class="agent-head"><a class="mono" href=${to(["runs", agent.run, "graph"], { step: name })}><${Txt} v=${name} /></a><${Tag} tone="live">${agent.coder}${agent.model ? html` · <${Txt} v=${agent.model} />` : ""}</${Tag}>
      <span class="muted">attempt ${agent.attempt} · <${Took} from=${agent.since} />${agent.cost ? ` · ${money(agent.cost)}` : ""}</span></div>
    <p class="agent-words"><${Txt} v=${agent.words || "No output yet"} /></p>
    <div class="actions"><button type="button" class="small" onClick=${show}>Transcript</button>
      ${may("operator") && html`<button type="button" class="small" onClick=${tell}>Message</button><button type="button" class="small bad" onClick=${stop}>Stop</button>`}</div></li>`;
}

function Words({ of, onClose }) {
  const found = useResource((signal) => api.fleetWords(of.run, of.task, signal), [of.run, of.task]);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || found.refresh(), WORDS_MS);
    return () => clearInterval(timer);
  }, [found]);
  return html`<${Modal} title=${`Transcript of ${of.task}`} onClose=${onClose} wide><${Shown} of=${found} what="Loading the transcript">${(doc) => html`<p class="muted">Attempt ${doc.attempt}. Text that looks like a secret is hidden.</p><ol class="words" tabindex="0" aria-label="Transcript">${doc.lines.map((line) => html`<li><span class="muted">${line.tool ?? line.kind}</span> <${Txt} v=${[line.path, line.text, line.cost && money(line.cost)].filter(Boolean).join(" ")} /></li>`)}</ol>`}</${Shown}></${Modal}>`;
}
