// Who can do what: every worker with what it takes, what it touches and how risky that is.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { useResource } from "../store.js";
import { alone, Empty, NoWorkers, Risk, Search, Shown, Tag, Title, Txt } from "../ui/parts.js";
import { count, duration } from "../text.js";

export default function Workers() {
  const found = useResource(async (signal) => ({ ...(await api.workers(signal)), circuits: (await api.metrics(signal).catch(() => ({}))).open_circuits ?? [] }));
  const [wanted, setWanted] = useState("");
  return html`<${Title} sub="Workers and their actions that plans can use">Workers</${Title}>
    <div class="bar"><${Search} label="Search workers" value=${wanted} onInput=${setWanted} /></div>
    <${Shown} of=${found} what="Loading workers">${(doc) => html`<${List} doc=${doc} wanted=${wanted.toLowerCase()} />`}</${Shown}>`;
}

/** Rows are one for each action; a card is one worker. */
function byWorker(rows) {
  const groups = new Map();
  for (const row of rows) groups.has(row.worker) ? groups.get(row.worker).push(row) : groups.set(row.worker, [row]);
  return [...groups.values()];
}

function List({ doc, wanted }) {
  const rows = doc.workers;
  const open = new Map(doc.circuits.map((each) => [each.worker, each]));
  const groups = byWorker(rows.filter((row) => `${row.worker} ${row.action} ${row.kind} ${row.description}`.toLowerCase().includes(wanted)));
  if (!rows.length) return html`<${NoWorkers} />`;
  if (!groups.length) return html`<${Empty} title="No workers match this search"></${Empty}>`;
  return html`${alone(rows) && html`<${NoWorkers} />`}<ul class="cards">${groups.map((offers) => html`<${Worker} key=${offers[0].worker} offers=${offers} circuit=${open.get(offers[0].worker)} />`)}</ul>`;
}

function Worker({ offers, circuit }) {
  const [{ worker, kind, version, description }] = offers;
  return html`<li class="card worker" data-item tabindex="-1"><header><h2 class="mono"><${Txt} v=${worker} /></h2><${Tag}>${kind}</${Tag}>${circuit && html`<${Tag} tone="bad">unavailable</${Tag}>`}</header>
    ${description && html`<p><${Txt} v=${description} /></p>`}
    ${offers.map((offer) => html`<div class="offer"><p>${offer.action && html`<b class="mono"><${Txt} v=${offer.action} /></b> `}<${Risk} level=${offer.risk} /> ${(offer.effects ?? []).map((each) => html`<${Tag} tone="warn"><${Txt} v=${each} /></${Tag}> `)}${offer.idempotent ? html`<${Tag}>idempotent</${Tag}>` : ""}</p>
      <p class="muted">${takes(offer.parameters)}${offer.timeout ? ` · timeout ${duration(offer.timeout)}` : ""}${offer.checks?.length ? ` · ${count(offer.checks.length, "check")}` : ""}</p></div>`)}
    <p class="muted version">version <span class="mono"><${Txt} v=${version} /></span></p></li>`;
}

/** Parameters in one line, those that may be left out in brackets. */
function takes(schema) {
  if (!schema) return "any parameters";
  const must = new Set(schema.required ?? []);
  const names = Object.keys(schema.properties ?? {}).map((name) => (must.has(name) ? name : `[${name}]`));
  return names.length ? `parameters: ${names.join(", ")}` : "no parameters";
}
