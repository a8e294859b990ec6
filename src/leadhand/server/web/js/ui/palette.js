// Ctrl-K: screens, runs, tasks of a fleet, plans, workers and the actions of the present screen, found by words and by keys alone.
import { html, useEffect, useRef, useState } from "../lib.js";
import { api } from "../api.js";
import { go } from "../router.js";
import { allScopes, GLOBAL, paletteOpen } from "../keys.js";
import { may } from "../store.js";
import { useModal } from "./dialog.js";
import { PLACES, setTheme, THEMES } from "./frame.js";
import { Txt } from "./parts.js";
import { state } from "../status.js";
import { hasWords, short } from "../text.js";

const RUNS = 8;
const WAIT_MS = 150;

const close = () => (paletteOpen.value = false);

/** What is known without asking: `[group, name, detail, act]`. */
function fixed() {
  const screens = PLACES.map(([place, name]) => ["Screens", name, "", () => go([place])]);
  if (may("operator")) screens.push(["Screens", "New run", "", () => go(["new"])]);
  const scoped = allScopes().filter((scope) => scope !== GLOBAL).flatMap(({ title, keys }) => Object.entries(keys).map(([key, [name, act]]) => [`Actions: ${title}`, name, key, act]));
  const themes = Object.entries(THEMES).map(([name, word]) => ["Settings", word, "", () => setTheme(name)]);
  return [...scoped, ...screens, ...themes, ["Settings", GLOBAL.keys["?"][0], "?", GLOBAL.keys["?"][1]]];
}

async function asked() {
  const [plans, workers, fleet] = await Promise.allSettled([api.library(), api.workers(), api.fleet()]);
  const names = [...new Set((workers.value?.workers ?? []).map((each) => each.worker))];
  return [
    ...(fleet.value?.board.cards ?? []).map((card) => ["Tasks", card.task, short(card.title, 60), () => go(["fleet", card.run, card.task])]),
    ...(plans.value?.items ?? []).map((row) => ["Plans", row.name, short(row.goal, 60), () => go(["library", row.name])]),
    ...names.map((name) => ["Workers", name, "", () => go(["workers"], { q: name })]),
  ];
}

/** The runs that the server finds for these words, newest first. */
function useRuns(words) {
  const [rows, setRows] = useState([]);
  useEffect(() => {
    const control = new AbortController();
    const timer = setTimeout(() => api.runs({ q: words, limit: RUNS }, control.signal).then((page) => setRows(page.items), () => {}), words ? WAIT_MS : 0);
    return () => (clearTimeout(timer), control.abort());
  }, [words]);
  return rows.map((row) => ["Runs", row.goal || row.plan || row.run, `${row.run} · ${state(row.status).word}`, () => go(["runs", row.run])]);
}

export default function Palette() {
  const box = useModal();
  const [words, setWords] = useState("");
  const [at, setAt] = useState(0);
  const [more, setMore] = useState([]);
  const known = useRef(null);
  known.current ??= fixed();
  useEffect(() => {
    asked().then(setMore);
  }, []);
  const found = [...[...known.current, ...more].filter(([, name, detail]) => hasWords(`${name} ${detail}`, words)), ...useRuns(words.trim())];
  const place = Math.min(at, found.length - 1);
  const take = (item) => {
    close();
    if (item) setTimeout(item[3]); // once the focus is back where it was
  };
  const press = (event) => {
    const next = { ArrowDown: place + 1, ArrowUp: place - 1, PageDown: place + 8, PageUp: place - 8 }[event.key];
    if (next !== undefined) setAt((Math.max(0, Math.min(found.length - 1, next))));
    else if (event.key === "Enter") take(found[place]);
    else return;
    event.preventDefault();
  };
  return html`<dialog ref=${box} class="dialog palette" aria-label="Go to" onCancel=${(event) => (event.preventDefault(), close())} onClick=${(event) => event.target === box.current && close()}>
    <input type="text" role="combobox" aria-label="Screen, run, plan, worker or action" aria-expanded="true" aria-controls="palette-list" aria-autocomplete="list" aria-activedescendant=${found.length ? `palette-${place}` : undefined}
      autofocus placeholder="Screen, run, plan, worker or action" autocomplete="off" spellcheck="false" value=${words} onKeyDown=${press} onInput=${(event) => (setWords(event.target.value), setAt(0))} />
    <ul id="palette-list" role="listbox" aria-label="Results">${found.map((item, index) => html`<${Item} key=${`${item[0]} ${item[1]} ${item[2]}`} item=${item} index=${index} group=${item[0] !== found[index - 1]?.[0]} chosen=${index === place} onTake=${take} />`)}</ul>
    ${!found.length && html`<p class="muted" role="status">No results</p>`}</dialog>`;
}

function Item({ item, index, group, chosen, onTake }) {
  const line = useRef(null);
  useEffect(() => {
    if (chosen) line.current.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  return html`<li ref=${line} id=${`palette-${index}`} role="option" aria-selected=${chosen} onClick=${() => onTake(item)}><span class="palette-group muted">${group ? item[0] : html`<span class="visually-hidden">${item[0]}</span>`}</span><span class="grow cut"><${Txt} v=${item[1]} /></span><span class="muted cut"><${Txt} v=${item[2]} /></span></li>`;
}
