// Plans kept under a name: what they say, how they fared, and a way to run them.
import { html, useEffect, useMemo } from "../lib.js";
import { api, items } from "../api.js";
import { go, to } from "../router.js";
import { may, resource } from "../store.js";
import { attempt } from "../say.js";
import { confirm } from "../ui/dialog.js";
import { Ago, Empty, Facts, Hash, Shown, Title, Txt } from "../ui/parts.js";
import { Steps } from "../ui/steps.js";
import { count, duration, goalText, percent } from "../text.js";

export default function Library({ ident }) {
  return ident ? html`<${One} name=${ident} />` : html`<${All} />`;
}

async function keep(found) {
  const named = await confirm({ title: "Keep a plan", field: "Name", must: true, action: "Go on" });
  const said = named && (await confirm({ title: `Keep ${named.text}`, body: "The plan becomes its next version.", field: "Plan, as YAML or JSON", must: true, lines: 14, action: "Keep" }));
  if (said && (await attempt(() => api.savePlan(named.text, planOf(said.text)), "Kept"))) found.refresh();
}

/** A plan as it was written: JSON when it reads as JSON, otherwise the text, for the server to read. */
export function planOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function All() {
  const found = useMemo(() => resource(async (signal) => items(await api.library(signal))), []);
  useEffect(() => {
    found.refresh();
  }, []);
  const actions = may("operator") && html`<button type="button" onClick=${() => keep(found)}>Keep a plan</button>`;
  return html`<${Title} sub="Plans that were worth keeping, in versions." actions=${actions}>Library</${Title}>
    <${Shown} of=${found} what="Loading the library">${(rows) => (rows.length ? html`<div class="card table-wrap" tabindex="0" role="region" aria-label="Plans"><table class="table kept"><thead><tr><th scope="col">Name</th><th scope="col">Goal</th><th scope="col" class="num">Uses</th><th scope="col" class="num">Succeeded</th><th scope="col" class="num">Median</th><th scope="col" class="num">Kept</th></tr></thead>
      <tbody>${rows.map((row) => html`<${Row} key=${row.name} row=${row} />`)}</tbody></table></div>`
      : html`<${Empty} title="The library is empty"><p>A plan that worked can be kept under a name and run again with other parameters.</p><p class="command"><code>leadhand library save NAME RUN</code></p></${Empty}>`)}</${Shown}>`;
}

function Row({ row }) {
  const uses = row.uses ?? 0;
  return html`<tr><td class="goal"><a data-item href=${to(["library", row.name])}><${Txt} v=${row.name} /></a><span class="muted">version ${row.version}</span></td>
    <td><${Txt} v=${goalText(row.goal)} /></td><td class="num">${uses}</td><td class="num">${uses ? percent((row.succeeded ?? 0) / uses) : "–"}</td><td class="num">${duration(row.median_s ?? row.median)}</td><td class="num muted"><${Ago} at=${row.saved ?? row.at} /></td></tr>`;
}

function One({ name }) {
  const found = useMemo(() => resource((signal) => api.plan(name, signal)), [name]);
  useEffect(() => {
    found.refresh();
  }, [found]);
  const remove = async () => {
    const said = await confirm({ title: `Remove ${name}?`, body: "All its versions go. Runs that used it keep what they ran.", action: "Remove", tone: "bad" });
    if (said && (await attempt(() => api.removePlan(name.split("@")[0]), "Removed"))) go(["library"]);
  };
  const actions = may("operator") && html`<a class="button primary" href=${to(["new"], { library: name })}>Run it</a><button type="button" class="bad" onClick=${remove}>Remove</button>`;
  return html`<p class="crumbs"><a href=${to(["library"])}>Library</a></p><${Title} actions=${actions}><${Txt} v=${name} /></${Title}>
    <${Shown} of=${found} what="Loading the plan">${(doc) => html`<${Plan} doc=${doc} />`}</${Shown}>`;
}

function Plan({ doc }) {
  const plan = doc.document ?? doc.plan ?? {};
  const versions = items(doc.history?.versions ?? doc.history ?? []);
  return html`<div class="stack"><section class="card pad"><${Facts} of=${{ goal: goalText(plan.goal), version: doc.version, hash: html`<${Hash} of=${doc.hash} />`, parameters: Object.keys(plan.params ?? {}).join(", "), rollback: plan.rollback_plan }} /></section>
    <section><h2>${count(plan.steps?.length ?? 0, "step")}</h2><${Steps} steps=${plan.steps ?? []} /></section>
    ${versions.length > 0 && html`<section><h2>Versions</h2><div class="card table-wrap" tabindex="0" role="region" aria-label="Plans"><table class="table"><thead><tr><th scope="col">Version</th><th scope="col">By</th><th scope="col" class="num">Uses</th><th scope="col" class="num">Kept</th></tr></thead><tbody>${versions.map((row) => html`<tr><td>${row.version}</td><td>${row.by ?? row.actor ?? ""}</td><td class="num">${row.uses ?? ""}</td><td class="num muted"><${Ago} at=${row.saved ?? row.at} /></td></tr>`)}</tbody></table></div></section>`}</div>`;
}
