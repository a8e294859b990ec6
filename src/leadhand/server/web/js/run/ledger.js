// The two ledgers: what was meant, and what was done. New lines come by themselves.
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { api } from "../api.js";
import { ask, route } from "../router.js";
import { Rows } from "../ui/rows.js";
import { Modal } from "../ui/dialog.js";
import { Empty, Facts, Loading, Search, Trouble, Txt } from "../ui/parts.js";
import { clock, full } from "../text.js";

const KINDS = [["all", "Both"], ["intent", "Intent"], ["execution", "Execution"]];
const HEIGHT = 30;
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

export function Ledger({ live }) {
  const { lines, done, error, load } = useLines(live);
  const [whole, setWhole] = useState(null);
  const { ledger = "all", find = "", step } = route.value.query;
  const shown = useMemo(() => {
    const wanted = find.toLowerCase();
    return lines.filter((line) => (ledger === "all" || line.ledger === ledger) && (!wanted || `${line.text} ${line.type}`.toLowerCase().includes(wanted)));
  }, [lines, ledger, find]);
  return html`<div class="bar tools"><${Search} label="Search the event log" hint="Search the event log" value=${find} onInput=${(text) => ask({ find: text })} />
      <div class="choices" role="group" aria-label="Entries">${KINDS.map(([name, word]) => html`<button type="button" aria-pressed=${ledger === name} onClick=${() => ask({ ledger: name === "all" ? "" : name })}>${word}</button>`)}</div>
      <span class="push muted figure">${shown.length.toLocaleString("en")} entries</span></div>
    <${Trouble} error=${error} again=${load} />
    ${!lines.length && !done ? html`<${Loading} />` : !shown.length ? html`<${Empty} title="No entries match these filters"></${Empty}>` : html`<div class="card ledger"><${Rows} count=${shown.length} height=${HEIGHT} follow=${true} label="Event log" row=${(place) => html`<${Line} key=${shown[place].seq} line=${shown[place]} marked=${step && shown[place].step === step} open=${() => setWhole(shown[place])} />`} /></div>`}
    ${whole && html`<${Whole} line=${whole} onClose=${() => setWhole(null)} />`}`;
}

/** A line that is too long for its row, whole. */
function Whole({ line, onClose }) {
  const step = line.step && html`<a href="#" onClick=${(event) => (event.preventDefault(), onClose(), ask({ step: line.step }))}><${Txt} v=${line.step} /></a>`;
  return html`<${Modal} title=${line.type} onClose=${onClose} wide=${true}><${Facts} of=${{ Entry: line.seq, Time: full(line.at), Ledger: line.ledger, Step: step }} />
    <pre class="value" tabindex="0"><${Txt} v=${line.text} /></pre></${Modal}>`;
}

function Line({ line, marked, open }) {
  return html`<div class="row ledger-row ${marked ? "selected" : ""}" role="listitem"><time class="mono muted" title=${full(line.at)}>${clock(line.at)}</time>
    <span class="kind kind-${line.ledger}">${line.ledger}</span><button type="button" class="plain cut" title="Show full entry" onClick=${open}><${Txt} v=${line.text} /></button>
    ${line.step ? html`<button type="button" class="small plain of-step" onClick=${() => ask({ step: line.step })} aria-label=${`Step ${line.step}`}><${Txt} v=${line.step} /></button>` : ""}</div>`;
}
