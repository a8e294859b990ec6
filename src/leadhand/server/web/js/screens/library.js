// Plans kept under a name: what they say, how they fared, and a way to run them.
import { html } from "../lib.js";
import { api } from "../api.js";
import { go, to } from "../router.js";
import { may, useResource } from "../store.js";
import { confirm, confirmed } from "../ui/dialog.js";
import { Ago, Empty, Facts, Hash, Shown, Table, Title, Txt } from "../ui/parts.js";
import { Steps } from "../ui/steps.js";
import { count, duration, goalText, percent, read } from "../text.js";

export default function Library({ ident }) {
  return ident ? html`<${One} name=${ident} />` : html`<${All} />`;
}

async function keep(found) {
  const named = await confirm({ title: "Save plan", field: "Name", must: true, action: "Next" });
  const plan = named && { title: `Save ${named.text}`, body: "The plan is saved as the next version.", field: "Plan (YAML or JSON)", must: true, lines: 14, action: "Save plan" };
  if (plan && (await confirmed(plan, (said) => api.savePlan(named.text, read(said.text)), "Saved"))) found.refresh();
}

function All() {
  const found = useResource(async (signal) => (await api.library(signal)).items);
  const actions = may("operator") && html`<button type="button" onClick=${() => keep(found)}>Save plan</button>`;
  return html`<${Title} sub="Saved plans and their versions" actions=${actions}>Library</${Title}>
    <${Shown} of=${found} what="Loading the library">${(rows) => (rows.length ? html`<${Table} label="Plans" kind="kept" columns=${["Name", "Goal", "Runs", "Success rate", "Median duration", "Saved"]} figures=${2}>${rows.map((row) => html`<${Row} key=${row.name} row=${row} />`)}</${Table}>`
      : html`<${Empty} title="The library is empty"><p>Save a plan under a name to run it again with other parameters.</p><p class="command"><code>leadhand library save NAME RUN</code></p></${Empty}>`)}</${Shown}>`;
}

function Row({ row }) {
  const { uses, outcomes } = row;
  return html`<tr><td class="goal"><a data-item href=${to(["library", row.name])}><${Txt} v=${row.name} /></a><span class="muted">version ${row.version}</span></td>
    <td><${Txt} v=${row.goal} /></td><td class="num">${uses}</td><td class="num">${uses ? percent((outcomes.succeeded ?? 0) / uses) : "–"}</td><td class="num">${duration(row.median_s)}</td><td class="num muted"><${Ago} at=${row.saved} /></td></tr>`;
}

function One({ name }) {
  const found = useResource((signal) => api.plan(name, signal), [name]);
  const remove = async () => {
    const what = { title: `Remove ${name}?`, body: "All versions are removed. Runs that used the plan keep their copy.", action: "Remove plan", tone: "bad" };
    if (await confirmed(what, () => api.removePlan(name.split("@")[0]), "Removed")) go(["library"]);
  };
  const actions = may("operator") && html`<a class="button primary" href=${to(["new"], { library: name })}>Run plan</a><button type="button" class="bad" onClick=${remove}>Remove plan</button>`;
  return html`<p class="crumbs"><a href=${to(["library"])}>Library</a></p><${Title} actions=${actions}><${Txt} v=${name} /></${Title}>
    <${Shown} of=${found} what="Loading the plan">${(doc) => html`<${Plan} doc=${doc} />`}</${Shown}>`;
}

function Plan({ doc }) {
  const { document: plan, history } = doc;
  return html`<div class="stack"><section class="card pad"><${Facts} of=${{ Goal: goalText(plan.goal), Version: doc.version, Hash: html`<${Hash} of=${doc.hash} />`, Parameters: Object.keys(plan.params ?? {}).join(", "), "Rollback plan": plan.rollback_plan }} /></section>
    <section><h2>${count(plan.steps?.length ?? 0, "step")}</h2><${Steps} steps=${plan.steps ?? []} /></section>
    <section><h2>Versions</h2><${Table} label="Versions" columns=${["Version", "Author", "Runs", "Saved"]} figures=${2}>${history.map((row) => html`<tr><td>${row.version}</td><td>${row.by}</td><td class="num">${row.uses}</td><td class="num muted"><${Ago} at=${row.saved} /></td></tr>`)}</${Table}></section></div>`;
}
