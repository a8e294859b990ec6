// A step under review: a comment on it, and its fields to edit in place.
import { html, signal } from "../lib.js";
import { api } from "../api.js";
import { useResource } from "../store.js";
import { Shown, Txt } from "../ui/parts.js";
import { label } from "../text.js";

const kept = new Map();

/** What was typed about a run's plan and not sent, by step: it outlives a change of the screen and of the plan. */
export function draftOf(run) {
  if (!kept.has(run)) kept.set(run, signal({ comments: {}, edits: {} }));
  return kept.get(run);
}

/** Put a value in for a step; undefined takes it out. @param {"comments"|"edits"} part */
function note(draft, part, step, value) {
  const { [step]: _gone, ...rest } = draft.value[part];
  draft.value = { ...draft.value, [part]: value === undefined ? rest : { ...rest, [step]: value } };
}

export function clear(draft, part) {
  draft.value = { ...draft.value, [part]: {} };
}

/** All changed fields as one amendment. */
export function amendment(edits) {
  const all = Object.values(edits).flatMap((fields) => Object.entries(fields));
  return { set: all.filter(([, raw]) => raw !== "").map(([path, raw]) => (typeof raw === "string" ? { path, text: raw } : { path, value: raw })), unset: all.filter(([, raw]) => raw === "").map(([path]) => path) };
}

export function StepTools({ run, step, draft, sends }) {
  const { id } = step;
  const text = draft.value.comments[id];
  const edits = draft.value.edits[id];
  return html`<div class="step-tools">
      ${sends && text === undefined && html`<button type="button" class="small" aria-label=${`Comment on step ${id}`} onClick=${() => note(draft, "comments", id, "")}>Comment</button>`}
      ${edits === undefined && html`<button type="button" class="small" aria-label=${`Edit step ${id}`} onClick=${() => note(draft, "edits", id, {})}>Edit</button>`}</div>
    ${text !== undefined && html`<div class="step-open"><label class="field">Comment on ${id}, for the planner<textarea rows="2" value=${text} onInput=${(event) => note(draft, "comments", id, event.target.value)}></textarea></label>
      <button type="button" class="small" onClick=${() => note(draft, "comments", id)}>Discard comment</button></div>`}
    ${edits !== undefined && html`<div class="step-open" role="group" aria-label=${`Fields of step ${id}`}><${Fields} run=${run} step=${step} edits=${edits} put=${(fields) => note(draft, "edits", id, fields)} />
      <button type="button" class="small" onClick=${() => note(draft, "edits", id)}>Discard changes</button></div>`}`;
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

function Fields({ run, step, edits, put }) {
  const found = useResource((signal) => api.fields(run, step.id, signal), [run, step]);
  const change = (path, raw, was) => {
    const { [path]: _before, ...rest } = edits;
    put(same(raw, was) ? rest : { ...rest, [path]: raw });
  };
  return html`<${Shown} of=${found} what="Loading the fields">${({ fields }) => html`<div class="two">${fields.map((field) => {
    const was = shown(field);
    return html`<${Field} key=${field.path} field=${field} raw=${edits[field.path] ?? was} put=${(raw) => change(field.path, raw, was)} />`;
  })}</div>`}</${Shown}>`;
}

/** What a control shows of a value; as a text it is read back by the type of its field. */
function shown({ kind, value }) {
  if (kind === "steps" || kind === "list") return value ?? [];
  return value === null ? "" : typeof value === "string" ? value : JSON.stringify(value);
}

function Field({ field, raw, put }) {
  const { kind, choices } = field;
  const name = html`<${Txt} v=${field.path.includes(".parameters[") ? field.label : label(field.label)} />`;
  const type = (event) => put(event.target.value);
  if (kind === "steps") return html`<fieldset class="field"><legend>${name}</legend><div class="picks">${choices.map((each) => html`<label class="check"><input type="checkbox" checked=${raw.some((one) => same(one, each))} onChange=${(event) => put(choices.filter((one) => (same(one, each) ? event.target.checked : raw.some((other) => same(other, one)))))} /> <${Txt} v=${each.step ?? each} /></label>`)}</div></fieldset>`;
  if (kind === "list") return html`<label class="field">${name} (one per line)<textarea class="mono" rows="3" value=${raw.join("\n")} onChange=${(event) => put(event.target.value.split("\n").filter(Boolean))}></textarea></label>`;
  return html`<label class="field">${name}${kind === "choice" || kind === "boolean" ? html`<select value=${raw} onChange=${type}>${!field.required && html`<option value="">not set</option>`}${choices.map((each) => html`<option value=${shown({ value: each })}>${String(each)}</option>`)}</select>`
    : kind === "json" || raw.includes("\n") ? html`<textarea class="mono" rows="3" value=${raw} onInput=${type}></textarea>`
      : html`<input class="mono" type=${kind === "number" ? "number" : "text"} step="any" placeholder=${field.hint} value=${raw} onInput=${type} />`}</label>`;
}
