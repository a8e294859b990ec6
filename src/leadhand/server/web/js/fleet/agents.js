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
  return html`<section><h2>Agents at work</h2>${agents.length ? html`<ul class="card lines agents">${agents.map((each) => html`<${Agent} key=${`${each.run}/${each.task}`} agent=${each} refresh=${refresh} show=${() => setOpen(each)} />`)}</ul>` : html`<p class="card pad muted">None right now.</p>`}
    ${open && html`<${Words} of=${open} onClose=${() => setOpen(null)} />`}</section>`;
}

function Agent({ agent, refresh, show }) {
  const name = agent.task;
  const stop = async () => {
    const what = { title: `Stop the agent of ${name}?`, body: "What it did is saved. Its task goes on: another attempt, or whatever the ladder says.", action: "Stop it", tone: "bad", field: "Reason, for the record" };
    if (await confirmed(what, (said) => api.fleetStop(agent.run, name, said.text), `The agent of ${name} is being ended`)) refresh();
  };
  const tell = async () => {
    const what = { title: `Tell the agent of ${name}`, body: "Its conversation goes on with your words.", action: "Tell it", field: "Your words", must: true, lines: 3 };
    if (await confirmed(what, (said) => api.fleetMessage(agent.run, name, said.text), `The agent of ${name} was told`)) refresh();
  };
  return html`<li class="pad agent"><div class="agent-head"><a class="mono" href=${to(["runs", agent.run, "graph"], { step: name })}><${Txt} v=${name} /></a><${Tag} tone="live">${agent.coder}${agent.model ? html` · <${Txt} v=${agent.model} />` : ""}</${Tag}>
      <span class="muted">attempt ${agent.attempt} · <${Took} from=${agent.since} />${agent.cost ? ` · ${money(agent.cost)}` : ""}</span></div>
    <p class="agent-words"><${Txt} v=${agent.words || "nothing heard yet"} /></p>
    <div class="actions"><button type="button" class="small" onClick=${show}>All its words</button>
      ${may("operator") && html`<button type="button" class="small" onClick=${tell}>Tell it</button><button type="button" class="small bad" onClick=${stop}>Stop it</button>`}</div></li>`;
}

function Words({ of, onClose }) {
  const found = useResource((signal) => api.fleetWords(of.run, of.task, signal), [of.run, of.task]);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || found.refresh(), WORDS_MS);
    return () => clearInterval(timer);
  }, [found]);
  return html`<${Modal} title=${`The agent of ${of.task}`} onClose=${onClose} wide><${Shown} of=${found} what="Loading its words">${(doc) => html`<p class="muted">Attempt ${doc.attempt}; what looks like a secret is not shown.</p><ol class="words" tabindex="0" aria-label="What it said and did">${doc.lines.map((line) => html`<li><span class="muted">${line.tool ?? line.kind}</span> <${Txt} v=${[line.path, line.text, line.cost && money(line.cost)].filter(Boolean).join(" ")} /></li>`)}</ol>`}</${Shown}></${Modal}>`;
}
