// The whole house: what is at work now, what waits, what recoveries were worth, what it costs.
import { html, signal, useEffect, useMemo } from "../lib.js";
import { api } from "../api.js";
import { follow, useResource } from "../store.js";
import { Chart } from "../ui/chart.js";
import { Ago, Shown, Title, Txt } from "../ui/parts.js";
import { Answers, Coding, NoFailures, NoFleet, tile } from "../fleet/coding_fleet.js";
import { costs, count, percent } from "../text.js";

const SAMPLES_MAX = 300;
const EVERY_MS = 1000;
const REFRESH_MS = 2500;

/** What the stream tells of the last minutes, one sample a second. */
const seen = signal({ times: [], ended: [], failed: [] });
let window_ = { ended: 0, failed: 0 };

function useSamples() {
  useEffect(() => {
    const stop = follow((events) => {
      for (const event of events) {
        if (event.type !== "AttemptReported") continue;
        const failed = ["failed", "retrying", "waiting_for_person"].includes(event.patch?.step?.status);
        window_[failed ? "failed" : "ended"] += 1;
      }
    });
    const timer = setInterval(() => {
      const { times, ended, failed } = seen.value;
      const add = (list, value) => [...list, value].slice(-SAMPLES_MAX);
      seen.value = { times: add(times, Date.now() / 1000), ended: add(ended, window_.ended), failed: add(failed, window_.failed) };
      window_ = { ended: 0, failed: 0 };
    }, EVERY_MS);
    return () => (stop(), clearInterval(timer));
  }, []);
}

async function figures(control) {
  const fleet = await api.fleet(control);
  if (fleet) return { fleet };
  const [metrics, open] = await Promise.all([api.metrics(control), api.runs({ status: "running", limit: 200 }, control)]);
  return { metrics, rows: open.items };
}

export default function Fleet() {
  const found = useResource(figures);
  useSamples();
  useEffect(() => {
    const timer = setInterval(() => document.hidden || found.refresh(), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const doc = found.state.value.data;
  const repo = doc?.fleet?.live?.repo;
  const sub = doc?.fleet ? `Agents, tasks and merges${repo ? ` on ${repo}` : ""}` : "Runs, throughput and recovery of this server";
  return html`<${Title} sub=${sub}>Fleet</${Title}>
    <${Shown} of=${found} what="Loading figures">${(doc) => (doc.fleet ? html`<${Coding} fleet=${doc.fleet} refresh=${found.soon} />` : html`<${House} ...${doc} />`)}</${Shown}>`;
}

/** A server without a fleet: what all its runs amount to. */
function House({ metrics, rows }) {
  return html`<${Tiles} metrics=${metrics} rows=${rows} /><div class="stack"><${Pace} /><${Recovery} rows=${metrics.recovery} /><${Circuits} circuits=${metrics.open_circuits ?? []} /><${NoFleet} /></div>`;
}

function Tiles({ metrics, rows }) {
  const runs = metrics.runs ?? {};
  const sum = (list, field) => list.reduce((total, row) => total + (row[field] ?? 0), 0);
  const left = sum(rows, "steps") - sum(rows, "settled");
  return html`<dl class="tiles">${tile("Running", runs.running ?? 0, runs.waiting ? `${runs.waiting} waiting for approval or input` : "")}${tile("Remaining steps", left, "in running runs")}
    ${tile("First-pass success", percent(metrics.first_pass_rate), `${metrics.first_pass ?? 0} of ${metrics.steps_tried ?? 0}`)}${tile("Recovered", percent(metrics.recovery_rate), `${metrics.recovered ?? 0} of ${metrics.failed_steps ?? 0}`)}
    ${tile("Cost", costs(metrics.cost, metrics.money), "all runs")}</dl>`;
}

function Pace() {
  const { times, ended, failed } = seen.value;
  const lines = useMemo(() => [{ label: "verified per second", tone: "good", values: ended }, { label: "failed per second", tone: "bad", values: failed }], [times]);
  if (times.length < 8) return html`<section class="card chart"><h2>Throughput</h2><p class="muted">Counts the attempts that end while this screen is open.</p></section>`;
  return html`<${Chart} label="Throughput since this screen was opened" times=${times} lines=${lines} />`;
}

function Recovery({ rows }) {
  if (!rows.length) return html`<${NoFailures} />`;
  return html`<section><h2>Recovery by strategy</h2><${Answers} label="Recovery" rows=${rows} /></section>`;
}

function Circuits({ circuits }) {
  if (!circuits.length) return null;
  return html`<section><h2>Unavailable workers</h2><ul class="card lines">${circuits.map((each) => html`<li class="pad"><${Txt} v=${each.worker} /> <span class="muted">next try <${Ago} at=${each.until} />, ${count(each.times, "failure")}</span></li>`)}</ul></section>`;
}
