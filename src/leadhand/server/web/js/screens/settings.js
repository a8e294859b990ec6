// What holds here, and where each value came from. Secrets are never among them.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { may, refreshSession, session, useResource } from "../store.js";
import { enable, enabled } from "../keys.js";
import { confirmed } from "../ui/dialog.js";
import { leave, ThemeChoice } from "../ui/frame.js";
import { Facts, Search, Shown, Table, Title, Txt } from "../ui/parts.js";
import { pretty } from "../text.js";

async function stopAll() {
  const what = { title: "Stop all runs?", body: "No run starts new steps until the stop is lifted, even after a restart.", action: "Stop all runs", tone: "bad", field: "Reason", must: true };
  if (await confirmed(what, (said) => api.stopAll(said.text), "All runs are stopped")) refreshSession();
}

async function lift() {
  if (await confirmed({ title: "Lift the emergency stop?", action: "Lift emergency stop" }, api.liftStop, "Emergency stop lifted")) refreshSession();
}

export default function Settings() {
  const found = useResource(api.settings);
  const [wanted, setWanted] = useState("");
  const who = session.value ?? {};
  return html`<${Title}>Settings</${Title}><div class="stack">
    <section class="card pad"><h2>Account</h2><${Facts} of=${{ Person: who.person, Role: who.role, "Server version": who.version, Database: who.store }} />
      <div class="actions you"><${ThemeChoice} /><label class="check"><input type="checkbox" checked=${enabled.value} onChange=${(event) => enable(event.target.checked)} /> Enable keyboard shortcuts</label><button type="button" class="push" onClick=${leave}>Sign out</button></div></section>
    ${may("approver") && html`<section class="card pad"><h2>Emergency stop</h2><p class="muted">No run starts new steps until the stop is lifted.</p><div class="actions you">${who.stopped ? html`<button type="button" onClick=${lift}>Lift emergency stop</button>` : html`<button type="button" class="bad" onClick=${stopAll}>Stop all runs</button>`}</div></section>`}
    <section><div class="bar"><h2>Effective settings</h2><${Search} label="Search settings" value=${wanted} onInput=${setWanted} push=${true} /></div>
      <${Shown} of=${found} what="Loading settings">${(doc) => html`<${Rows} rows=${Object.entries(doc.settings).filter(([key]) => key.includes(wanted.toLowerCase()))} />`}</${Shown}></section></div>`;
}

const unset = (value) => value === null || value === "" || (typeof value === "object" && !Object.keys(value).length);

function Rows({ rows }) {
  if (!rows.length) return html`<p class="muted">No settings match this search.</p>`;
  return html`<${Table} label="Settings" kind="settings" columns=${["Setting", "Value", "Source"]}>${rows.map(([key, { value, from }]) => html`<tr><td class="mono">${key}</td><td class="mono">${unset(value) ? html`<span class="muted">not set</span>` : html`<${Txt} v=${pretty(value)} />`}</td><td class=${from === "default" ? "muted" : ""}><${Txt} v=${from} /></td></tr>`)}</${Table}>`;
}
