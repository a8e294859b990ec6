// The two ledgers side by side: what was meant, and what was done. New lines come by themselves.
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { api } from "../api.js";
import { ask, route } from "../router.js";
import { useResource } from "../store.js";
import { Rows } from "./rows.js";
import { Empty, Loading, Search, Trouble, Txt } from "../ui/parts.js";
import { clock, count, full, pretty } from "../text.js";

const KINDS = [["all", "Both"], ["intent", "Intent"], ["execution", "Execution"]];
const SIDES = ["intent", "execution"];
const HEIGHT = 30;
const MORE = 260;
const PAGES_MAX = 40;

/** Everything up to now, page by page; what comes later is heard. */
function useLines(live) {
  const [state, setState] = useState({ lines: [], done: false, error: null });
  const turn = useRef(0);
  const load = async () => {
    const mine = ++turn.current;
    let [cursor, lines] = [undefined, []];
    try {
      for (let page = 0; page < PAGES_MAX; page++) {
        const found = await api.ledger(live.run, "all", cursor);
        if (mine !== turn.current) return;
        lines = [...lines, ...found.items];
        setState({ lines, done: !found.next, error: null });
        cursor = found.next;
        if (!cursor) return;
      }
      setState({ lines, done: true, error: null });
    } catch (error) {
      setState({ lines, done: true, error });
    }
  };
  useEffect(() => {
    load();
    return () => (turn.current += 1);
  }, [live]);
  const heard = live.lines.value;
  const all = useMemo(() => {
    const last = state.lines.at(-1)?.seq ?? 0;
    return [...state.lines, ...heard.filter((line) => line.seq > last)];
  }, [state.lines, heard]);
  return { ...state, lines: all, load };
}

/** Entries by row: one for each ledger where both were written at one instant. */
function paired(lines, narrow) {
  const rows = [];
  for (const line of lines) {
    const last = rows.at(-1);
    if (!narrow && last?.at === line.at && !last[line.ledger] && last.seq === line.seq - 1) last[line.ledger] = line;
    else rows.push({ at: line.at, [line.ledger]: line });
    rows.at(-1).seq = line.seq;
  }
  return rows;
}

export function Ledger({ live }) {
  const { lines, done, error, load } = useLines(live);
  const [open, setOpen] = useState(null);
  const { ledger = "all", find = "", step } = route.value.query;
  const shown = useMemo(() => {
    const wanted = find.toLowerCase();
    return lines.filter((line) => (ledger === "all" || line.ledger === ledger) && (!wanted || `${line.text} ${line.type} ${line.step ?? ""}`.toLowerCase().includes(wanted)));
  }, [lines, ledger, find]);
  const narrow = matchMedia(`(max-width: ${step ? 1500 : 760}px)`).matches; // one column there
  const rows = useMemo(() => paired(shown, narrow), [shown, narrow]);
  const sides = SIDES.filter((side) => ledger === "all" || ledger === side);
  const at = open === null ? -1 : rows.findIndex((row) => SIDES.some((side) => row[side]?.seq === open));
  const toggle = (line) => setOpen(open === line.seq ? null : line.seq);
  return html`<div class="bar tools"><${Search} label="Search the event log" hint="Search the event log" value=${find} onInput=${(text) => ask({ find: text })} />
      <div class="choices" role="group" aria-label="Entries">${KINDS.map(([name, word]) => html`<button type="button" aria-pressed=${ledger === name} onClick=${() => ask({ ledger: name === "all" ? "" : name })}>${word}</button>`)}</div>
      <span class="push muted figure">${count(shown.length, "entry", "entries")}</span></div>
    <${Trouble} error=${error} again=${load} />
    ${!lines.length && !done ? html`<${Loading} />` : !shown.length ? html`<${Empty} title="No entries match these filters"></${Empty}>` : html`<div class="card ledger sides-${narrow ? "narrow" : sides.length}"><div class="ledger-row ledger-head muted"><span>Time</span>${sides.map((side) => html`<span>${side === "intent" ? "Intent: what was planned, approved and decided" : "Execution: what was started and reported"}</span>`)}</div>
      <${Rows} count=${rows.length} height=${HEIGHT} open=${at} more=${MORE} follow=${true} label="Event log" row=${(place) => html`<${Line} key=${rows[place].seq} live=${live} row=${rows[place]} sides=${sides} step=${step} open=${place === at ? open : null} toggle=${toggle} />`} /></div>`}`;
}

function Line({ live, row, sides, step, open, toggle }) {
  return html`<div role="listitem"><div class="row ledger-row"><time class="mono muted" title=${full(row.at)}>${clock(row.at)}</time>${sides.map((side) => html`<span class="book book-${side}">${row[side] && html`<button type="button" class="plain cut ${step && row[side].step === step ? "selected" : ""}" data-item aria-expanded=${open === row[side].seq ? "true" : "false"} title="Show full entry" onClick=${() => toggle(row[side])}><${Txt} v=${row[side].text} /></button>`}</span>`)}</div>
    ${open !== null && html`<${Whole} live=${live} line=${SIDES.map((side) => row[side]).find((line) => line?.seq === open)} />`}</div>`;
}

/** One entry with its whole event, below its line. */
function Whole({ live, line }) {
  const found = useResource((signal) => api.entry(live.run, line.seq, signal), [live, line.seq]);
  const { data, error } = found.state.value;
  const step = line.step && html`<button type="button" class="small plain mono" onClick=${() => ask({ step: line.step })}>Open step <${Txt} v=${line.step} /></button>`;
  return html`<div class="whole" role="region" aria-label=${`Entry ${line.seq}`} tabindex="0"><p><b>${line.type}</b> <span class="muted">entry ${line.seq}, ${full(line.at)}</span> ${step}</p>
    <pre><${Txt} v=${line.text} /></pre>${error ? html`<${Trouble} error=${error} />` : html`<pre class="value">${data ? html`<${Txt} v=${pretty(data.event)} />` : "Loading"}</pre>`}</div>`;
}
