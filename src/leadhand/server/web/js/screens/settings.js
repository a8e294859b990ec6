// What holds here, and where each value came from. Secrets are never among them.
import { html, useEffect, useMemo, useState } from "../lib.js";
import { api } from "../api.js";
import { may, refreshSession, resource, session } from "../store.js";
import { attempt } from "../say.js";
import { enable, enabled } from "../keys.js";
import { confirm } from "../ui/dialog.js";
import { leave, ThemeChoice } from "../ui/frame.js";
import { Facts, Shown, Title, Txt } from "../ui/parts.js";
import { pretty } from "../text.js";

async function stopAll() {
  const said = await confirm({ title: "Stop everything?", body: "Nothing new starts in any run until this is lifted. It survives restarts.", action: "Stop all runs", tone: "bad", field: "Reason", must: true });
  if (said) (await attempt(() => api.stopAll(said.text), "Nothing new starts")) && refreshSession();
}

async function lift() {
  const said = await confirm({ title: "Let runs go on?", action: "Lift the stop" });
  if (said) (await attempt(() => api.liftStop(), "Runs may go on")) && refreshSession();
}

/** `project.store` and its like as rows, whether they come as a map or as a list. Pure. */
export function rowsOf(doc) {
  const all = doc.settings ?? doc.items ?? doc;
  if (Array.isArray(all)) return all.map((row) => ({ key: row.key ?? row.name, value: row.value, from: row.from ?? row.origin }));
  return Object.entries(all).filter(([, row]) => row && typeof row === "object" && "value" in row).map(([key, row]) => ({ key, value: row.value, from: row.from ?? row.origin }));
}

export default function Settings() {
  const found = useMemo(() => resource((signal) => api.settings(signal)), []);
  const [wanted, setWanted] = useState("");
  useEffect(() => {
    found.refresh();
  }, []);
  const who = session.value ?? {};
  return html`<${Title}>Settings</${Title}><div class="stack">
    <section class="card pad"><h2>You</h2><${Facts} of=${{ person: who.person, role: who.role, server: who.version, store: who.store }} />
      <div class="actions you"><${ThemeChoice} /><label class="check"><input type="checkbox" checked=${enabled.value} onChange=${(event) => enable(event.target.checked)} /> Answer to single keys</label><button type="button" class="push" onClick=${leave}>Sign out</button></div></section>
    ${may("approver") && html`<section class="card pad"><h2>Stop everything</h2><p class="muted">For an emergency: no run starts anything new until the stop is lifted.</p><div class="actions you">${who.stopped ? html`<button type="button" onClick=${lift}>Lift the stop</button>` : html`<button type="button" class="bad" onClick=${stopAll}>Stop all runs</button>`}</div></section>`}
    <section><div class="bar"><h2>What holds</h2><label class="search push"><span class="visually-hidden">Search settings</span><input data-search type="search" placeholder="Search settings" value=${wanted} onInput=${(event) => setWanted(event.target.value)} /></label></div>
      <${Shown} of=${found} what="Loading settings">${(doc) => html`<${Table} rows=${rowsOf(doc).filter((row) => row.key.includes(wanted.toLowerCase()))} />`}</${Shown}></section></div>`;
}

const unset = (value) => value === null || value === "" || (typeof value === "object" && !Object.keys(value).length);

function Table({ rows }) {
  if (!rows.length) return html`<p class="muted">No setting is called that.</p>`;
  return html`<div class="card table-wrap" tabindex="0" role="region" aria-label="Settings"><table class="table settings"><thead><tr><th scope="col">Setting</th><th scope="col">Value</th><th scope="col">From</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr><td class="mono">${row.key}</td><td class="mono">${unset(row.value) ? html`<span class="muted">not set</span>` : html`<${Txt} v=${pretty(row.value)} />`}</td><td class=${row.from === "default" ? "muted" : ""}><${Txt} v=${row.from} /></td></tr>`)}</tbody></table></div>`;
}
