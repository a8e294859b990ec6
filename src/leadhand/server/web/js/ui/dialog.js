// Questions of the page itself: a native dialog keeps the focus and closes on Escape.
import { html, signal, useEffect, useRef } from "../lib.js";
import { attempt } from "../notices.js";

const asked = signal(null);

/**
 * Ask before something is done.
 * @param {{title: string, body?: any, action: string, tone?: "good"|"bad", field?: string, must?: boolean,
 *   dismiss?: string, value?: string, lines?: number, choose?: string, choices?: string[]}} what `field` labels a text that goes with
 *   it, `choose` a choice
 * @returns {Promise<null | {text: string, choice: string}>} null when the person thought better of it
 */
export function confirm(what) {
  return new Promise((resolve) => {
    asked.value = { ...what, resolve };
  });
}

/** Ask, then do it and say how it went; whether it was done. @param {(said: {text: string, choice: string}) => Promise} act */
export async function confirmed(what, act, done) {
  const said = await confirm(what);
  return said !== null && attempt(() => act(said), done);
}

/** A native dialog that opens at once, and gives the focus back. */
export function useModal() {
  const box = useRef(null);
  useEffect(() => {
    const from = document.activeElement;
    box.current.showModal();
    return () => from?.isConnected && from.focus();
  }, []);
  return box;
}

export function Dialogs() {
  const what = asked.value;
  return what && html`<${Question} key=${what.title} what=${what} />`;
}

function Question({ what }) {
  const box = useModal();
  const text = useRef(null);
  const choice = useRef(null);
  const end = (answer) => {
    asked.value = null;
    what.resolve(answer);
  };
  const submit = (event) => {
    event.preventDefault();
    end({ text: text.current?.value.trim() ?? "", choice: choice.current?.value ?? "" });
  };
  return html`<dialog ref=${box} class="dialog" aria-labelledby="asked" onCancel=${(event) => (event.preventDefault(), end(null))}>
    <form onSubmit=${submit}>
      <h2 id="asked">${what.title}</h2>
      ${what.body && html`<div class="dialog-body">${what.body}</div>`}
      ${what.choices && html`<label class="field">${what.choose}<select ref=${choice}>${what.choices.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>`}
      ${what.field && html`<label class="field">${what.field}
        ${what.lines ? html`<textarea ref=${text} rows=${what.lines} required=${what.must} spellcheck="false">${what.value ?? ""}</textarea>`
          : html`<input ref=${text} required=${what.must} autocomplete="off" value=${what.value ?? ""} />`}</label>`}
      <div class="actions end">
        <button type="button" onClick=${() => end(null)}>${what.dismiss ?? "Cancel"}</button>
        <button type="submit" class="primary ${what.tone ?? ""}" autofocus=${!what.field && !what.choices}>${what.action}</button>
      </div>
    </form></dialog>`;
}

export function Modal({ title, onClose, children, wide = false }) {
  const box = useModal();
  return html`<dialog ref=${box} class="dialog ${wide ? "wide" : ""}" aria-labelledby="modal" onCancel=${(event) => (event.preventDefault(), onClose())}>
    <header class="dialog-head"><h2 id="modal">${title}</h2><button type="button" class="icon" aria-label="Close" onClick=${onClose}>✕</button></header>
    <div class="dialog-body">${children}</div></dialog>`;
}
