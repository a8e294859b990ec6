// Amending: a few values by their paths, or the whole plan as text. What comes out is reviewed again.
import { html, useState } from "../lib.js";
import { Modal } from "../ui/dialog.js";
import { pretty } from "../text.js";

/** Every place of a plan that can be set, as people write it. Pure. */
export function places(steps) {
  const found = [];
  const walk = (value, path) => {
    if (value && typeof value === "object" && !Array.isArray(value)) for (const [key, each] of Object.entries(value)) walk(each, `${path}.${key}`);
    else found.push(path);
  };
  for (const { id, ...step } of steps) {
    walk(step, `steps.${id}`);
    for (const name of ["not_before", "timeout", "failure_action", "retry"]) if (!(name in step)) found.push(`steps.${id}.${name}`);
  }
  return found;
}

export function Amend({ live, review, decide, onClose }) {
  const [whole, setWhole] = useState(false);
  const [rows, setRows] = useState([{ path: "", value: "" }]);
  const [text, setText] = useState(() => pretty({ ...review.plan, steps: review.steps }));
  const change = (place, field, value) => setRows(rows.map((row, at) => (at === place ? { ...row, [field]: value } : row)));
  const submit = async (event) => {
    event.preventDefault();
    const set = rows.filter((row) => row.path.trim()).map((row) => ({ path: row.path.trim(), text: row.value }));
    if (await decide(live, review, "amend", whole ? { plan: text } : { set }, "Amended: review it again")) onClose();
  };
  return html`<${Modal} title=${`Amend revision ${review.revision}`} wide=${true} onClose=${onClose}><form onSubmit=${submit}>
    <div class="choices" role="group" aria-label="How"><button type="button" aria-pressed=${!whole} onClick=${() => setWhole(false)}>Some values</button><button type="button" aria-pressed=${whole} onClick=${() => setWhole(true)}>The whole plan</button></div>
    ${whole ? html`<label class="field">Plan, as YAML or JSON<textarea class="mono" rows="18" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>`
      : html`<datalist id="places">${places(review.steps).map((path) => html`<option value=${path}></option>`)}</datalist>
        ${rows.map((row, place) => html`<div class="pair"><label class="field">Place<input list="places" class="mono" placeholder="steps.deploy.not_before" value=${row.path} onInput=${(event) => change(place, "path", event.target.value)} /></label><label class="field">Value<input class="mono" placeholder="02:00 Europe/Berlin" value=${row.value} onInput=${(event) => change(place, "value", event.target.value)} /></label></div>`)}
        <button type="button" class="small" onClick=${() => setRows([...rows, { path: "", value: "" }])}>One more</button>`}
    <div class="actions end"><button type="button" onClick=${onClose}>Not now</button><button type="submit" class="primary">Amend</button></div></form></${Modal}>`;
}
