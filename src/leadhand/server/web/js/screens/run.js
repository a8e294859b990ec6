// One run: its head, and five ways to look at it that share one selected step.
import { html, useEffect, useMemo } from "../lib.js";
import { route, subject, to, go } from "../router.js";
import { announce } from "../notices.js";
import { useKeys } from "../keys.js";
import { LiveRun } from "../run/live.js";
import { Head } from "../run/head.js";
import { Graph } from "../run/graph.js";
import { PlanRows } from "../run/rows.js";
import { Plan } from "../run/plan.js";
import { Ledger } from "../run/ledger.js";
import { Outputs } from "../run/outputs.js";
import { Drawer } from "../run/drawer.js";
import { Loading, Title, Trouble } from "../ui/parts.js";
import { runState } from "../status.js";
import { goalText } from "../text.js";

const TABS = { rows: ["Steps", PlanRows], graph: ["Graph", Graph], plan: ["Plan", Plan], log: ["Event log", Ledger], outputs: ["Outputs", Outputs] };

export function Run({ run, tab: named }) {
  const tab = TABS[named] ? named : "rows";
  const view = (name) => (name === "rows" ? ["runs", run] : ["runs", run, name]);
  const live = useMemo(() => new LiveRun(run), [run]);
  useEffect(() => () => live.close(), [live]);
  const step = route.value.query.step ?? "";
  const close = () => go(view(tab), { q: route.value.query.q });
  const head = live.head.value;
  const status = head?.status;
  useEffect(() => {
    if (status) announce(`Run ${run}: ${runState(status, head.awaiting).word}`);
  }, [status]);
  const goal = goalText(head?.goal);
  useEffect(() => {
    subject.value = goal;
    return () => (subject.value = "");
  }, [goal]);
  const names = Object.keys(TABS);
  useKeys("Run", {
    ...Object.fromEntries(names.map((name, place) => [String(place + 1), [TABS[name][0], () => go(view(name), { step })]])),
    Escape: step ? ["Close the step", close] : ["All runs", () => go(["runs"])],
  }, [run, tab, step]);
  if (live.error.value && !head) return html`<${Title} sub=${html`<a href=${to(["runs"])}>All runs</a>`}>Run ${run}</${Title}><${Trouble} error=${live.error.value} missing="Run not found" again=${() => live.load()} />`;
  if (!head) return html`<${Loading} what="Loading the run" />`;
  const [, View] = TABS[tab];
  return html`<div class="run ${step ? "with-drawer" : ""}"><div class="run-main"><${Head} live=${live} />
    <nav class="tabs" aria-label="Views of this run">${names.map((name) => html`<a href=${to(view(name), { step })} aria-current=${tab === name ? "page" : undefined}>${TABS[name][0]}${name === "plan" && live.review.state.value.data?.waiting ? html`<b class="badge">review</b>` : ""}</a>`)}</nav>
    <div class="view view-${tab}"><${View} key=${tab} live=${live} step=${step} /></div></div>
    ${step && html`<${Drawer} key=${step} live=${live} step=${step} onClose=${close} />`}</div>`;
}
