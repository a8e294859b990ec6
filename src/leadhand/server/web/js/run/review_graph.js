// The steps of a revision as a small graph; a step leads to its card below.
import { html, useMemo } from "../lib.js";
import { SIZE, curve, layout } from "./layout.js";
import { short } from "../text.js";
import { RISKS } from "../status.js";

/** More steps than this are drawn on the graph view alone. */
export const DRAWN_MAX = 120;

const ids = (step) => [].concat(step.depends_on ?? []).map((each) => (typeof each === "string" ? each : each.step));

export function ReviewGraph({ steps, risks, onOpen }) {
  const { keys, drawn } = useMemo(() => {
    const own = steps.map((step) => step.id);
    const edges = steps.flatMap((step) => ids(step).map((from) => [from, step.id]));
    const all = [...new Set([...edges.map(([from]) => from), ...own])]; // those of earlier revisions too
    return { keys: all, drawn: layout(all, edges, SIZE) };
  }, [steps]);
  const own = new Map(steps.map((step) => [step.id, step]));
  const at = (node) => [drawn.x[node], drawn.y[node]];
  const open = (id) => own.has(id) && onOpen(id);
  return html`<div class="review-graph card" tabindex="0" role="region" aria-label="Graph of the steps"><svg width=${drawn.width} height=${drawn.height} viewBox="0 0 ${drawn.width} ${drawn.height}">
    <path class="edge" d=${drawn.edges.map((edge) => curve(at(edge.from), at(edge.to), edge.points)).join("")} />
    ${keys.map((id, place) => html`<g class="node tone-${own.has(id) ? (RISKS[risks[id]] ?? "warn") : "faint"}" transform="translate(${drawn.x[place]} ${drawn.y[place] - SIZE.height / 2})" role=${own.has(id) ? "button" : undefined} tabindex=${own.has(id) ? "0" : undefined} onClick=${() => open(id)} onKeyDown=${(event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), open(id))}>
      <title>${id}</title><rect width=${SIZE.width} height=${SIZE.height} rx="8" /><text x="12" y="21">${short(id, 18)}</text><text class="sub" x="12" y="37">${short(own.has(id) ? `${own.get(id).worker ?? ""}${risks[id] ? ` · ${risks[id] === "not declared" ? "risk unknown" : `${risks[id]} risk`}` : ""}` : "earlier step", 24)}</text></g>`)}</svg></div>`;
}
