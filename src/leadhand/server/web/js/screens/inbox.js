// Everything that waits for a person, oldest first; filters stand in the address.
import { html, useEffect } from "../lib.js";
import { ask, route, to } from "../router.js";
import { inbox, inboxLimit, session } from "../store.js";
import { useKeys } from "../keys.js";
import { Empty, Shown, Title } from "../ui/parts.js";
import { Ask, kindName } from "../ui/ask.js";
import { count } from "../text.js";

export default function Inbox() {
  useEffect(() => {
    inbox.refresh();
  }, []);
  useKeys("Inbox", { a: ["Answer the focused item", () => document.activeElement.closest(".ask")?.querySelector("textarea, button, a.button")?.focus()] });
  const item = route.value.path.slice(1).join("/");
  const number = inbox.state.value.data?.total ?? 0;
  return html`<${Title} sub=${number ? `${count(number, "open item")}, oldest first` : null}>Inbox</${Title}>
    <${Shown} of=${inbox} what="Loading the inbox">${(rows) => (item ? html`<${Item} id=${item} rows=${rows} />` : rows.length ? html`<${List} rows=${rows} />` : html`<${Nothing} />`)}</${Shown}>`;
}

/** One item, by its address `#/inbox/RUN/ITEM`. */
function Item({ id, rows }) {
  const found = rows.find((row) => row.id === id);
  const all = html`<a class="button" href=${to(["inbox"])}>All open items</a>`;
  useEffect(() => {
    if (!found && rows.length < rows.total) more();
  }, [rows]);
  if (found) return html`<ul class="asks"><${Ask} key=${id} row=${found} /></ul><p class="more">${all}</p>`;
  return html`<${Empty} title="This item is not open" action=${all}><p>It was answered, or its run ended. <a href=${to(["runs", id.split("/")[0]])}>Show the run</a></p></${Empty}>`;
}

const more = () => {
  if (inboxLimit.value >= 500) return;
  inboxLimit.value = Math.min(500, inboxLimit.value + 100);
  inbox.refresh();
};

function List({ rows }) {
  const { kind, plan, mine } = route.value.query;
  const shown = rows.filter((row) => (!kind || row.kind === kind) && (!plan || row.plan === plan) && (!mine || row.started_by === session.value?.person));
  return html`<${Filters} rows=${rows} kind=${kind} plan=${plan} mine=${mine} />
    ${shown.length ? html`<ul class="asks">${shown.map((row) => html`<${Ask} key=${row.id} row=${row} />`)}</ul>`
      : html`<${Empty} title="No items match these filters" action=${html`<button type="button" onClick=${() => ask({ kind: "", plan: "", mine: "" })}>Clear filters</button>`} />`}<${More} rows=${rows} />`;
}

function Filters({ rows, kind, plan, mine }) {
  const names = (field, chosen) => [...new Set([...rows.map((row) => row[field]), chosen])].filter(Boolean).sort();
  const pick = (name, label, values, chosen, text = (value) => value) => html`<label class="inline">${label}<select value=${chosen ?? ""} onChange=${(event) => ask({ [name]: event.target.value })}>
    <option value="">All</option>${values.map((value) => html`<option value=${value} selected=${value === chosen}>${text(value)}</option>`)}</select></label>`;
  return html`<div class="bar">${pick("kind", "Kind", names("kind", kind), kind, kindName)}${pick("plan", "Plan", names("plan", plan), plan)}
    <label class="check"><input type="checkbox" checked=${Boolean(mine)} onChange=${(event) => ask({ mine: event.target.checked ? "1" : "" })} /> Started by me</label></div>`;
}

/** The rest of a long inbox: some more of it, up to what the server gives at once. */
function More({ rows }) {
  if (rows.length >= rows.total) return null;
  return html`<p class="muted">${count(rows.total - rows.length, "more item")}. ${rows.length < 500 ? html`<button type="button" onClick=${more}>Show more</button>` : "They are listed when these are answered."}</p>`;
}

function Nothing() {
  return html`<${Empty} title="The inbox is empty" action=${html`<a class="button" href=${to(["overview"])}>Overview</a>`}><p>Approvals, questions and tasks are listed here while a run waits for a person.</p></${Empty}>`;
}
