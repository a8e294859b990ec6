// The account, the people who may sign in, and the effective settings with their meaning and source. Secrets are never among them.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { may, refreshSession, session, useFollowed, useResource } from "../store.js";
import { attempt } from "../notices.js";
import { confirmed, Modal } from "../ui/dialog.js";
import { KeysChoice, leave, ThemeChoice } from "../ui/frame.js";
import { Copy, Facts, Search, Shown, Table, Tag, Title, Txt } from "../ui/parts.js";

async function stopAll() {
  const what = { title: "Stop all runs?", body: "No run starts new steps until the stop is lifted, even after a restart.", action: "Stop all runs", tone: "bad", field: "Reason", must: true };
  if (await confirmed(what, (said) => api.stopAll(said.text), "All runs are stopped")) refreshSession();
}

async function lift() {
  if (await confirmed({ title: "Lift the emergency stop?", action: "Lift emergency stop" }, api.liftStop, "Emergency stop lifted")) refreshSession();
}

export default function Settings() {
  const who = session.value ?? {};
  return html`<${Title}>Settings</${Title}><div class="stack">
    <section class="card pad"><h2>Account</h2><${Facts} of=${{ Person: who.person, Role: who.owner ? "owner (approver)" : who.role, "Server version": who.version, Database: who.store }} />
      <div class="actions you"><${ThemeChoice} /><${KeysChoice} /><button type="button" class="push" onClick=${leave}>Sign out</button></div></section>
    ${may("approver") && html`<section class="card pad"><h2>Emergency stop</h2><p class="muted">No run starts new steps until the stop is lifted.</p><div class="actions you">${who.stopped ? html`<button type="button" onClick=${lift}>Lift emergency stop</button>` : html`<button type="button" class="bad" onClick=${stopAll}>Stop all runs</button>`}</div></section>`}
    <${People} owner=${who.owner} /><${Effective} /></div>`;
}

const ROLES = { viewer: "viewer: sees everything", operator: "operator: also starts and steers runs", approver: "approver: also approves plans" };

function People({ owner }) {
  const found = useResource(api.people);
  useFollowed(/^PersonChanged/, found);
  const [made, setMade] = useState(null);
  const change = async (name, role) => (await attempt(() => api.changeRole(name, role), `${name} is ${role}`), found.refresh());
  const remove = async (name) => {
    const what = { title: `Remove ${name}?`, body: "The token stops working and the person's sessions end. What the person did stays in the log.", action: "Remove person", tone: "bad" };
    if (await confirmed(what, () => api.removePerson(name), `${name} was removed`)) found.refresh();
  };
  const columns = owner ? ["Person", "Role", html`<span class="visually-hidden">Actions</span>`] : ["Person", "Role"];
  return html`<section><h2>People</h2><p class="muted below">${owner ? "People who may sign in. Each change is recorded in the log of the host. Approvals are recorded under these names: give each person one token." : "People who may sign in. The owner, who holds the token beside the database, adds and removes people."}</p>
    <${Shown} of=${found} what="Loading people">${({ items }) => html`<${Table} label="People" kind="people" columns=${columns}>${items.map((each) => html`<tr key=${each.name}><td><b><${Txt} v=${each.name} /></b>${each.signs ? html` <${Tag}>approvals signed</${Tag}>` : ""}</td>
      <td>${each.owner ? "owner (approver)" : owner ? html`<select aria-label=${`Role of ${each.name}`} value=${each.role} onChange=${(event) => change(each.name, event.target.value)}>${Object.entries(ROLES).map(([role, words]) => html`<option value=${role}>${words}</option>`)}</select>` : each.role}</td>
      ${owner && html`<td class="num">${!each.owner && html`<button type="button" class="small bad" aria-label=${`Remove ${each.name}`} onClick=${() => remove(each.name)}>Remove</button>`}</td>`}</tr>`)}</${Table}>`}</${Shown}>
    ${owner && html`<${AddPerson} onMade=${(person) => (setMade(person), found.refresh())} />`}
    ${made && html`<${Modal} title=${`Token of ${made.name}`} onClose=${() => setMade(null)}><p>Shown once. ${made.name} signs in with it as ${made.role}; the server keeps only its hash, in ${made.file}.</p><p class="command"><code>${made.token}</code> <${Copy} text=${made.token} label="Copy token" /></p></${Modal}>`}</section>`;
}

function AddPerson({ onMade }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState("viewer");
  const add = async (event) => {
    event.preventDefault();
    await attempt(async () => (onMade(await api.addPerson(name.trim(), role)), setName("")), "Person added");
  };
  return html`<form class="actions add" onSubmit=${add}><label class="field">Name<input required maxlength="64" autocomplete="off" value=${name} onInput=${(event) => setName(event.target.value)} /></label>
    <label class="field">Role<select value=${role} onChange=${(event) => setRole(event.target.value)}>${Object.entries(ROLES).map(([each, words]) => html`<option value=${each}>${words}</option>`)}</select></label><button type="submit">Add person</button></form>`;
}

function Effective() {
  const found = useResource(api.settings);
  useFollowed(/^(HostOpened|PersonChanged)/, found);
  const [wanted, setWanted] = useState("");
  const [all, setAll] = useState(false);
  const fits = ([key, row]) => (wanted ? `${key} ${row.meaning} ${row.text}`.toLowerCase().includes(wanted.toLowerCase()) : all || row.from !== "default");
  return html`<section><div class="bar"><h2>Effective settings</h2><div class="choices push" role="group" aria-label="Settings to show">${[[false, "Changed"], [true, "All"]].map(([value, word]) => html`<button type="button" aria-pressed=${all === value} onClick=${() => setAll(value)}>${word}</button>`)}</div><${Search} label="Search settings" hint="Search all settings" value=${wanted} onInput=${setWanted} /></div>
    <${Shown} of=${found} what="Loading settings">${(doc) => html`<${Rows} rows=${Object.entries(doc.settings).filter(fits)} wanted=${wanted} />
      <p class="muted note-below">Read from ${doc.files.length ? html`<${Txt} v=${doc.files.join(", ")} />` : "no file"} when the server started. Reference page: Settings (docs/reference/settings.md).</p>`}</${Shown}></section>`;
}

function Rows({ rows, wanted }) {
  if (!rows.length) return html`<p class="muted">${wanted ? "No settings match this search." : "Every setting has its default value."}</p>`;
  return html`<${Table} label="Settings" kind="settings" columns=${["Setting", "Value", "Source"]}>${rows.map(([key, row]) => html`<tr key=${key}><td><span class="mono">${key}</span><span class="muted meaning">${row.meaning.split("`").map((part, place) => (place % 2 ? html`<code>${part}</code>` : part))}</span></td><td title=${row.type}>${row.text === "not set" ? html`<span class="muted">not set</span>` : html`<${Txt} v=${row.text} />`}</td><td class=${row.from === "default" ? "muted" : ""}><${Txt} v=${row.from} /></td></tr>`)}</${Table}>`;
}
