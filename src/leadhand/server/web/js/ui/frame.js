// The frame around every screen: where one can go, who one is, and whether the page is live.
import { html, signal, useEffect } from "../lib.js";
import { api, signedOut } from "../api.js";
import { route, to } from "../router.js";
import { inbox, may, reconnected, session } from "../store.js";
import { connection } from "../stream.js";
import { dismiss, notice, notices, spoken } from "../notices.js";
import { notifying, offered, toggle } from "../notify.js";
import { allScopes, enable, enabled, helpOpen, paletteOpen } from "../keys.js";
import { LazyScreen } from "../screens/lazy_screen.js";
import { Dialogs, Modal } from "./dialog.js";
import { Mark, Tag, Txt } from "./parts.js";

export const PLACES = [
  ["overview", "Overview", "M2.5 7.5 8 3l5.5 4.5V13h-4V9.5h-3V13h-4z"],
  ["inbox", "Inbox", "M2.5 9.5 4.4 3h7.2l1.9 6.5V13h-11zM2.5 9.5H6l1 1.6h2l1-1.6h3.5"],
  ["runs", "Runs", "M2.5 4h11M2.5 8h11M2.5 12h7"],
  ["fleet", "Fleet", "M3 13V8.5M6.3 13V5M9.7 13V9.5M13 13V3"],
  ["usage", "Usage", "M8 2.5A5.5 5.5 0 1 0 13.5 8H8zM10.5 2.8a5.5 5.5 0 0 1 2.7 2.7h-2.7z"],
  ["workers", "Workers", "M8 7a2.2 2.2 0 1 0 0-4.4A2.2 2.2 0 0 0 8 7zM3.4 13.4c.3-2.7 2.2-4 4.6-4s4.3 1.3 4.6 4"],
  ["library", "Library", "M3 3h3v10H3zM6 3h3v10H6zM9.6 3.6l2.5-.6 1.7 9.4-2.5.6z"],
  ["settings", "Settings", "M2.5 4.5h6M11.5 4.5h2M2.5 11.5h2M7.5 11.5h6M10 3v3M6 10v3"],
];

const MAC = /Mac|iPhone|iPad/.test(navigator.platform ?? "");
const menu = signal(false); // on a narrow screen: whether the rest of the places is shown

/** Which project this is, and in which environment: two servers look alike otherwise. */
function Where() {
  const { project, environment, store } = session.value ?? {};
  return html`<div class="where"><b class="cut" title=${store}><${Txt} v=${project} /></b>${environment && html`<${Tag} tone="live"><${Txt} v=${environment} /></${Tag}>`}</div>`;
}

function Notify() {
  if (!offered) return null;
  return html`<button type="button" class="small plain" aria-pressed=${notifying.value} onClick=${toggle}>${notifying.value ? "Turn off notifications" : "Notify me in this browser"}</button>`;
}

function Place({ place, label, path }) {
  const here = route.value.path[0] === place;
  const waiting = place === "inbox" ? (inbox.state.value.data?.total ?? 0) : 0;
  return html`<a href=${to([place])} aria-current=${here ? "page" : undefined} class="place place-${place}" onClick=${() => (menu.value = false)}>
    <svg viewBox="0 0 16 16" aria-hidden="true"><path d=${path} /></svg><span>${label}</span>
    ${waiting > 0 && html`<b class="badge"><span class="visually-hidden">, </span>${waiting}<span class="visually-hidden"> waiting</span></b>`}</a>`;
}

export const THEMES = { "": "System theme", light: "Light theme", dark: "Dark theme" };
const theme = signal(document.documentElement.dataset.theme ?? "");

export function setTheme(name) {
  theme.value = name;
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  try {
    localStorage.setItem("leadhand.theme", name);
  } catch {
    // It holds for this page then.
  }
}

export const KeysChoice = () => html`<label class="check"><input type="checkbox" checked=${enabled.value} onChange=${(event) => enable(event.target.checked)} /> Enable keyboard shortcuts</label>`;

export function ThemeChoice() {
  return html`<label class="theme"><span class="visually-hidden">Theme</span>
    <select value=${theme.value} onChange=${(event) => setTheme(event.target.value)}>
      ${Object.entries(THEMES).map(([name, word]) => html`<option value=${name}>${word}</option>`)}</select></label>`;
}

/** Only the server can end a session: while it has not, this browser is still signed in. */
export async function leave() {
  try {
    await api.signOut();
  } catch (error) {
    if (error.status !== 401) return void notice(`You are still signed in. ${error.message}`, "bad");
  }
  session.value = null;
  signedOut.value = true;
}

function Line() {
  const live = connection.value;
  const words = { live: "Live", connecting: "Connecting", lost: "Disconnected" };
  return html`<span class="line line-${live}"><i aria-hidden="true"></i>${words[live]}</span>`;
}

function Lost() {
  if (connection.value !== "lost") return null;
  return html`<div class="banner" role="status"><strong>Disconnected.</strong> Data may be out of date. Reconnecting automatically.</div>`;
}

function Stopped() {
  const { stopped, stopped_by: by } = session.value ?? {};
  if (!stopped) return null;
  return html`<div class="banner" role="status"><strong>Emergency stop</strong>${by ? ` by ${by}` : ""}: no run starts new steps. <a href=${to(["settings"])}>Settings</a></div>`;
}

export function Frame({ children }) {
  useEffect(() => {
    if (reconnected.value) notice("Reconnected. Data is up to date.", "good");
  }, [reconnected.value]);
  return html`<div class="frame">
    <aside class="side ${menu.value ? "open" : ""}">
      <a class="brand" href=${to(["overview"])}><${Mark} />Leadhand</a>
      <${Where} />
      ${may("operator") && html`<a class="button new-run" href=${to(["new"])} onClick=${() => (menu.value = false)}><span aria-hidden="true">+</span> New run</a>`}
      <button type="button" class="plain go-to" onClick=${() => (paletteOpen.value = true)}>Go to… <kbd>${MAC ? "⌘K" : "Ctrl K"}</kbd></button>
      <nav aria-label="Screens">${PLACES.map(([place, label, path]) => html`<${Place} ...${{ place, label, path }} />`)}
        <button type="button" class="place plain more-places" aria-expanded=${menu.value} onClick=${() => (menu.value = !menu.value)}><svg viewBox="0 0 16 16" aria-hidden="true"><path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h11" /></svg><span>${menu.value ? "Less" : "More"}</span></button></nav>
      <div class="side-end">
        <${Line} /><${ThemeChoice} /><${Notify} />
        <div class="who"><span title=${session.value?.role}>${session.value?.person ?? ""}</span>
          <button type="button" class="small plain" onClick=${leave}>Sign out</button></div>
        <button type="button" class="small plain keys-button" onClick=${() => (helpOpen.value = true)}>Keyboard shortcuts <kbd>?</kbd></button>
      </div>
    </aside>
    <div class="content"><${Where} /><${Lost} /><${Stopped} /><main id="main" tabindex="-1">${children}</main></div>
    <${Notices} /><${Dialogs} />${helpOpen.value && html`<${Help} />`}${paletteOpen.value && html`<${LazyScreen} load=${() => import("./palette.js")} quiet=${true} />`}
    <div class="visually-hidden" role="status" aria-live="polite">${spoken.value}</div>
  </div>`;
}

function Notices() {
  return html`<div class="notices" role="status" aria-live="polite">${notices.value.map(({ id, text, tone }) => html`<div key=${id} class="notice tone-${tone}"><span>${text}</span>
    <button type="button" class="icon" aria-label="Dismiss" onClick=${() => dismiss(id)}>✕</button></div>`)}</div>`;
}

function Help() {
  return html`<${Modal} title="Keyboard shortcuts" wide=${true} onClose=${() => (helpOpen.value = false)}>
    <div class="help">${allScopes().map(({ title, keys }) => html`<section><h3>${title}</h3><dl>${Object.entries(keys).map(([key, [what]]) => html`<div><dt>${key.split(" ").map((one) => html`<kbd>${one}</kbd>`)}</dt><dd>${what}</dd></div>`)}</dl></section>`)}</div>
    <${KeysChoice} />
  </${Modal}>`;
}
