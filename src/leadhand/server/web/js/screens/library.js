// Saved plans: what they say, how their runs ended, what differs between versions, and a way to run them.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { go, to } from "../router.js";
import { may, useFollowed, useResource } from "../store.js";
import { confirm, confirmed } from "../ui/dialog.js";
import { Ago, Cost, Empty, Facts, Hash, Shown, Table, Title, Txt } from "../ui/parts.js";
import { Changes, Steps } from "../ui/steps.js";
import { count, duration, goalText, percent, read } from "../text.js";

const CHANGED = /^(Plan(Saved|Removed)|Run(Started|Ended))$/;

export default function Library({ ident }) {
  return ident ? html`<${One} name=${ident} />` : html`<${All} />`;
}

async function save(found, name) {
  const named = name ? { text: name } : await confirm({ title: "Save plan", field: "Name", must: true, action: "Next" });
  const plan = named && { title: `Save ${named.text}`, body: "The plan is saved as the next version.", field: "Plan (YAML or JSON)", must: true, lines: 14, action: "Save plan" };
  if (plan && (await confirmed(plan, (said) => api.savePlan(named.text, read(said.text)), "Saved"))) found.refresh();
}

function All() {
  const found = useResource(async (signal) => (await api.library(signal)).items);
  useFollowed(CHANGED, found);
  const actions = may("operator") && html`<button type="button" onClick=${() => save(found)}>Save plan</button>`;
  return html`<${Title} sub="Saved plans, their versions and how their runs ended" actions=${actions}>Library</${Title}>
    <${Shown} of=${found} what="Loading the library">${(rows) => (rows.length ? html`<${Table} label="Plans" kind="kept" columns=${["Name", "Goal", "Runs", "Success rate", "p50 duration", "Mean cost", "Last run"]} figures=${2}>${rows.map((row) => html`<${Row} key=${row.name} row=${row} />`)}</${Table}>`
      : html`<${Empty} title="The library is empty"><p>Save a plan under a name to run it again with other parameters.</p><p class="command"><code>leadhand library save NAME RUN</code></p></${Empty}>`)}</${Shown}>`;
}

function Row({ row }) {
  return html`<tr><td class="goal"><a data-item href=${to(["library", row.name])}><${Txt} v=${row.name} /></a><span class="muted">version ${row.version}, <${Ago} at=${row.saved} /></span></td>
    <td><${Txt} v=${row.goal} /></td><td class="num">${row.uses}</td><td class="num">${percent(row.success_rate)}</td><td class="num">${duration(row.median_s)}</td><td class="num"><${Cost} cost=${row.mean_cost} money=${row.mean_money} /></td><td class="num muted">${row.last_used ? html`<${Ago} at=${row.last_used} />` : "never"}</td></tr>`;
}

function One({ name }) {
  const found = useResource((signal) => api.plan(name, signal), [name]);
  useFollowed(CHANGED, found);
  const bare = name.split("@")[0];
  const remove = async () => {
    const what = { title: `Remove ${bare}?`, body: "All versions are removed. Runs that used the plan keep their copy.", action: "Remove plan", tone: "bad" };
    if (await confirmed(what, () => api.removePlan(bare), "Removed")) go(["library"]);
  };
  const actions = may("operator") && html`<a class="button primary" href=${to(["new"], { library: name })}>Run plan</a><button type="button" onClick=${() => save(found, bare)}>Save new version</button><button type="button" class="bad" onClick=${remove}>Remove plan</button>`;
  return html`<p class="crumbs"><a href=${to(["library"])}>Library</a></p><${Title} actions=${actions}><${Txt} v=${name} /></${Title}>
    <${Shown} of=${found} what="Loading the plan">${(doc) => html`<${Plan} doc=${doc} />`}</${Shown}>`;
}

function Plan({ doc }) {
  const { document: plan, history, parameters } = doc;
  return html`<div class="stack"><section class="card pad"><${Facts} of=${{ Goal: goalText(plan.goal), Version: `${doc.version} of ${history.length ? history.at(-1).version : doc.version}, saved by ${doc.by}`, Hash: html`<${Hash} of=${doc.hash} />`, "Rollback plan": plan.rollback_plan }} /></section>
    ${parameters.length > 0 && html`<section><h2>Parameters</h2><${Table} label="Parameters" columns=${["Name", "Type", "Default", "Description"]}>${parameters.map((each) => html`<tr><td class="mono"><${Txt} v=${each.name} /></td><td>${each.choices ? html`<${Txt} v=${each.choices.join(" or ")} />` : each.type}</td><td>${each.required ? "required" : each.has_default ? html`<${Txt} v=${JSON.stringify(each.default)} />` : "none"}</td><td><${Txt} v=${each.description} /></td></tr>`)}</${Table}></section>`}
    <${Versions} name=${doc.name} history=${history} />
    <section><h2>${count(plan.steps?.length ?? 0, "step")}</h2><${Steps} steps=${plan.steps ?? []} /></section></div>`;
}

function Versions({ name, history }) {
  const [first, last] = [history.at(-2)?.version, history.at(-1)?.version];
  const [from, setFrom] = useState(null);
  const [until, setUntil] = useState(null);
  const pick = (label, value, set) => html`<label class="inline">${label} <select value=${value} onChange=${(event) => set(Number(event.target.value))}>${history.map((row) => html`<option value=${row.version}>version ${row.version}</option>`)}</select></label>`;
  return html`<section><h2>Versions</h2><${Table} label="Versions" columns=${["Version", "Author", "Runs", "Success rate", "p50 duration", "Mean cost", "Saved"]} figures=${2}>${history.map((row) => html`<tr><td><a href=${to(["library", `${name}@${row.version}`])}>${row.version}</a></td><td><${Txt} v=${row.by} /></td><td class="num">${row.uses}</td><td class="num">${percent(row.success_rate)}</td><td class="num">${duration(row.median_s)}</td><td class="num"><${Cost} cost=${row.mean_cost} money=${row.mean_money} /></td><td class="num muted"><${Ago} at=${row.saved} /></td></tr>`)}</${Table}>
    ${history.length > 1 && html`<div class="bar compare"><b>Differences</b> ${pick("from", from ?? first, setFrom)} ${pick("to", until ?? last, setUntil)}</div><${Difference} name=${name} from=${from ?? first} until=${until ?? last} />`}</section>`;
}

function Difference({ name, from, until }) {
  const found = useResource((signal) => api.planDiff(name, from, until, signal), [name, from, until]);
  return html`<${Shown} of=${found} what="Loading the differences">${(doc) => html`<${Changes} changes=${doc.changes} />`}</${Shown}>`;
}
