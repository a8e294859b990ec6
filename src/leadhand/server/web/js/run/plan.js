// The plan in its revisions: what each said, what changed by meaning, and the review of what waits.
import { html, useEffect } from "../lib.js";
import { api } from "../api.js";
import { ask, route } from "../router.js";
import { useResource } from "../store.js";
import { useKeys } from "../keys.js";
import { Empty, Hash, Shown, Tag, Txt } from "../ui/parts.js";
import { Changes, Outlook, Steps } from "../ui/steps.js";
import { Allowed, Review } from "./review.js";
import { count, origin, short } from "../text.js";

function useRevisions(live) {
  const found = useResource(async (signal) => (await api.revisions(live.run, signal)).items, [live]);
  useEffect(found.soon, [live.head.value?.revision, live.shape.value, live.review.state.value.data?.binding, live.review.state.value.data?.revision]);
  return found;
}

export function Plan({ live }) {
  const revisions = useRevisions(live);
  const { rev, from } = route.value.query;
  const review = live.review.state.value.data;
  const list = revisions.state.value.data ?? [];
  const open = rev ? Number(rev) : null;
  const number = open ?? list.at(-1)?.number;
  const move = (by) => {
    const numbers = list.map((each) => each.number);
    const at = numbers.indexOf(open ?? numbers.at(-1));
    const next = numbers[Math.min(numbers.length - 1, Math.max(0, at + by))];
    if (next !== undefined) ask({ rev: String(next), from: "" });
  };
  useKeys("Plan", { "[": ["Previous revision", () => move(-1)], "]": ["Next revision", () => move(1)] }, [list, open]);
  const aside = html`<aside class="revisions" aria-label="Revisions"><h2>Revisions</h2>
      <${Shown} of=${revisions} what="Loading revisions">${(all) => html`<${List} all=${all} open=${open} waiting=${review?.waiting ? review.revision : null} planner=${live.head.value?.planner} />`}</${Shown}></aside>`;
  if (review?.waiting) return html`<${Waiting} live=${live} list=${list} aside=${aside} review=${review} open=${open} from=${from} />`;
  return html`<div class="plan">${aside}<div class="plan-main">${number === undefined ? html`<${Empty} title="No plan yet"><p>The planner has not proposed a plan.</p></${Empty}>` : html`<${One} live=${live} list=${list} number=${number} from=${from} />`}</div></div>`;
}

/** The revision that waits with its difference to the last approved one; another one only looked at. */
function Waiting({ live, list, aside, review, open, from }) {
  const other = open !== null && open !== review.revision ? open : undefined;
  return html`<${Review} live=${live} review=${review} looking=${other} list=${aside}>${other !== undefined ? html`<${One} live=${live} list=${list} number=${other} from=${from} />`
    : html`<${Difference} live=${live} list=${list} review=${review} from=${from} />`}</${Review}>`;
}

/** What the revision changes: by default since the last approval. */
function Difference({ live, list, review, from }) {
  const before = list.filter((each) => each.number !== review.revision);
  const base = from && from !== "none" ? Number(from) : review.approved_before ? null : (before.at(-1)?.number ?? null);
  const found = useResource((signal) => (base === null ? Promise.resolve(null) : api.diff(live.run, base, review.revision, signal)), [live, base, review.binding]);
  if (!before.length) return html`<p class="muted">No revision was approved before: everything in this plan is new.</p>`;
  const usual = review.approved_before ? "Last approved plan" : "Previous revision";
  return html`<section><div class="bar"><h2>Changes since ${base === null ? "the last approved plan" : `revision ${base}`}</h2><label class="inline push">Compare with <select value=${from ?? ""} onChange=${(event) => ask({ rev: "", from: event.target.value })}><option value="">${usual}</option>${before.map((each) => html`<option value=${String(each.number)}>Revision ${each.number}</option>`)}</select></label></div>
    ${base !== null ? html`<${Shown} of=${found} what="Loading the difference">${(doc) => doc && html`<${Changes} changes=${doc.changes} />`}</${Shown}>`
      : html`<${Changes} changes=${review.changes} />`}</section>`;
}

const TONES = { approved: "good", rejected: "bad", proposed: "ask", amended: "quiet" };

function List({ all, open, waiting, planner }) {
  if (!all.length) return html`<p class="muted">None yet.</p>`;
  return html`<ul class="revision-list">${[...all].reverse().map((each) => {
    const current = open === each.number || (open === null && (waiting ? waiting === each.number : each.number === all.at(-1).number));
    return html`<li><button type="button" class="plain revision" data-item aria-current=${current ? "true" : undefined} onClick=${() => ask({ rev: waiting === each.number ? "" : String(each.number), from: "" })}>
      <span><b>Revision ${each.number}</b> <${Tag} tone=${TONES[each.status] ?? "quiet"}>${each.status}</${Tag}></span>
      <span class="muted">${origin(each.author, planner)}${each.steps ? ` · plan of ${count(each.steps, "step")}` : ""}</span>${each.because && html`<span class="because"><${Txt} v=${short(each.because, 200)} /></span>`}</button></li>`;
  })}</ul>`;
}

/** One revision; compared with another when `from` says so. */
function One({ live, list, number, from }) {
  const comparing = from !== undefined && from !== "";
  const found = useResource((signal) => (comparing ? api.diff(live.run, Number(from), number, signal) : api.revision(live.run, number, signal)), [live, number, from]);
  return html`<${Compare} list=${list} number=${number} from=${from} /><${Shown} of=${found} what="Loading the revision">${(doc) => (comparing ? html`<${Changes} changes=${doc.changes} />` : html`<${Whole} doc=${doc} planner=${live.head.value?.planner} />`)}</${Shown}>`;
}

function Compare({ list, number, from }) {
  const earlier = list.map((each) => each.number).filter((each) => each !== number);
  return html`<div class="bar tools"><h2>Revision ${number}</h2><label class="inline push">Compare with <select value=${from ?? ""} onChange=${(event) => ask({ rev: String(number), from: event.target.value })}>
    <option value="">Show full plan</option>${earlier.map((each) => html`<option value=${String(each)}>Revision ${each}</option>`)}</select></label></div>`;
}

function Whole({ doc, planner }) {
  const { steps = [], outlook } = doc.plan;
  return html`<p class="muted">${count(steps.length, "step")}${doc.author ? ` ${origin(doc.author, planner)}` : ""}${doc.plan.final === false ? " · the planner continues after these steps" : ""}</p>${doc.approvals.length ? html`<ul class="allowed">${doc.approvals.map((each) => html`<${Allowed} each=${each} />`)}</ul>` : html`<p class="muted">Plan digest <${Hash} of=${doc.digest} /></p>`}<${Steps} steps=${steps} />
    <${Outlook} steps=${outlook} />`;
}

