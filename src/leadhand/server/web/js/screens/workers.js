// The workers: whether each can be used, how often it failed and why, and what its actions take.
import { html, useEffect, useState } from "../lib.js";
import { api } from "../api.js";
import { route, to } from "../router.js";
import { useFollowed, useResource } from "../store.js";
import { Ago, alone, Empty, NoWorkers, Risk, Search, Shown, SortTable, Status, Tag, Title, Txt } from "../ui/parts.js";
import { count, duration, percent, short } from "../text.js";

const RISKS = ["low", "medium", "high", "critical"];
const STATES = { available: "ready", unavailable: "failed", "on trial": "retrying", "not configured": "cancelled" };

export default function Workers() {
  const found = useResource(async (signal) => {
    const [known, used] = await Promise.all([api.workers(signal), api.workerUse(signal)]);
    return { known, used };
  });
  useFollowed(/^(Attempt(Started|Reported|Lost)|Circuit)/, found, 3000);
  const { q = "" } = route.value.query;
  const [wanted, setWanted] = useState(q);
  useEffect(() => setWanted(q), [q]);
  return html`<${Title} sub="Workers that plans can use, with their actions and their recent failures">Workers</${Title}>
    <div class="bar"><${Search} label="Search workers" value=${wanted} onInput=${setWanted} /></div>
    <${Shown} of=${found} what="Loading workers">${({ known, used }) => html`<${List} offers=${known.workers} used=${used} wanted=${wanted.toLowerCase()} />`}</${Shown}>`;
}

/** One row for each worker: its use, and its actions. */
function merged(offers, used) {
  const rows = new Map(used.items.map((each) => [each.worker, { ...each, kind: "", description: "", offers: [] }]));
  for (const offer of offers) {
    const row = rows.get(offer.worker) ?? { worker: offer.worker, offers: [] };
    rows.set(offer.worker, Object.assign(row, { kind: offer.kind, description: offer.description, offers: [...row.offers, offer] }));
  }
  return [...rows.values()];
}

/** The highest risk of the actions; undeclared counts as more than any level that is declared. */
function risk(offers) {
  const levels = offers.map((each) => each.risk);
  return levels.includes("not declared") ? "not declared" : RISKS.findLast((level) => levels.includes(level));
}

const COLUMNS = [
  ["Worker", (row) => row.worker],
  ["Status", (row) => Object.keys(STATES).indexOf(row.availability)],
  ["Risk", (row) => -(RISKS.indexOf(risk(row.offers)) + 1 || 9)],
  ["Attempts", (row) => -(row.attempts ?? 0), "num"],
  ["Failure rate", (row) => -(row.failure_rate ?? -1), "num"],
  ["p50 duration", (row) => -(row.p50_s ?? -1), "num"],
  ["Last error", (row) => row.last_error?.at ?? "", "", -1],
];

function List({ offers, used, wanted }) {
  const all = merged(offers, used);
  const rows = all.filter((row) => [row.worker, row.kind, row.description, ...row.offers.map((each) => each.action)].join(" ").toLowerCase().includes(wanted));
  if (!all.length) return html`<${NoWorkers} />`;
  if (!rows.length) return html`<${Empty} title="No workers match this search"></${Empty}>`;
  return html`${alone(offers) && html`<${NoWorkers} />`}<${SortTable} label="Workers" kind="workers" columns=${COLUMNS} rows=${rows} row=${(each) => html`<${Worker} key=${each.worker} row=${each} />`} />
    <p class="muted note-below">Attempts and failures: <a href=${to(["usage"], { by: "worker" })}>last 30 days</a>. p50 duration and last error: newest ${count(used.runs, "run")}.</p>`;
}

function Worker({ row }) {
  const [open, setOpen] = useState(false);
  const { worker, circuit, last_error: error } = row;
  return html`<tr><td class="goal"><button type="button" class="plain expand" data-item aria-expanded=${open} onClick=${() => setOpen(!open)}><span class="mono"><${Txt} v=${worker} /></span></button> <${Tag}>${row.kind || "unknown kind"}</${Tag}>${row.description && html`<span class="muted clamp"><${Txt} v=${row.description} /></span>`}</td>
      <td><${Availability} state=${row.availability} circuit=${circuit} /></td><td><${Risk} level=${risk(row.offers)} /></td>
      <td class="num" data-unit=${row.attempts === 1 ? " attempt" : " attempts"}>${row.attempts ?? "–"}</td><td class="num ${row.failed ? "tone-bad" : ""} ${row.failure_rate == null ? "nil" : ""}">${percent(row.failure_rate)}</td><td class="num ${row.p50_s == null ? "nil" : ""}">${duration(row.p50_s)}</td>
      <td class="error ${error ? "" : "nil"}">${error ? html`<a href=${to(["runs", error.run], { step: error.step })}><${Txt} v=${short(error.message || error.failure_class, 90)} /></a><span class="muted"><${Ago} at=${error.at} /></span>` : html`<span class="muted">none</span>`}</td></tr>
    ${open && html`<tr class="offers"><td colspan="7"><${Details} row=${row} /></td></tr>`}`;
}

function Availability({ state = "available", circuit }) {
  return html`<${Status} status=${STATES[state]} as=${state} />${circuit && state === "unavailable" && html`<span class="muted"> until <${Ago} at=${circuit.until} /></span>`}`;
}

function Details({ row }) {
  const { circuit, offers } = row;
  return html`${circuit && html`<p>The circuit is open (${count(circuit.times, "time")} in a row)${circuit.reason ? html`: <${Txt} v=${circuit.reason} />` : ""}. ${row.availability === "on trial" ? "The next attempt decides whether it closes." : html`No run uses this worker until <${Ago} at=${circuit.until} />.`}</p>`}
    ${offers.length ? offers.map((offer) => html`<${Offer} offer=${offer} />`) : html`<p class="muted">Runs used this worker; it is not in the settings of this server.</p>`}`;
}

function Offer({ offer }) {
  const known = offer.parameters && fields(offer.parameters);
  return html`<div class="offer"><p>${offer.action && html`<b class="mono"><${Txt} v=${offer.action} /></b> `}<${Risk} level=${offer.risk} /> ${offer.effects.map((each) => html`<${Tag} tone="warn"><${Txt} v=${each} /></${Tag}> `)}${offer.idempotent ? html`<${Tag}>idempotent</${Tag}>` : ""}</p>
    <p class="muted">${[offer.timeout && `timeout ${duration(offer.timeout)}`, offer.checks.length && `checks: ${offer.checks.join(", ")}`, `version ${offer.version.slice(0, 12)}`].filter(Boolean).join(" · ")}</p>
    ${!known ? html`<p class="muted">Any parameters.</p>` : !known.length ? html`<p class="muted">No parameters.</p>` : html`<dl class="takes">${known.map((each) => html`<div><dt class="mono"><${Txt} v=${each.name} /></dt><dd>${each.type}${each.required ? "" : html` <span class="muted">optional${each.fallback === undefined ? "" : html`, default <${Txt} v=${JSON.stringify(each.fallback)} />`}</span>`}${each.description && html` <span class="muted"><${Txt} v=${each.description} /></span>`}</dd></div>`)}</dl>`}</div>`;
}

const word = (schema) => (schema.enum ? schema.enum.map((each) => JSON.stringify(each)).join(" or ") : [schema.type ?? "any"].flat().join(" or "));

/** One line for each property of a JSON Schema of an object. */
function fields(schema) {
  const must = new Set(schema.required ?? []);
  return Object.entries(schema.properties ?? {}).map(([name, each]) => ({ name, type: word(each), required: must.has(name), fallback: each.default, description: each.description ?? "" }));
}
