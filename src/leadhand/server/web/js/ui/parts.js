// Small parts that every screen is made of.
import { html, useEffect, useState } from "../lib.js";
import { ago, costs, duration, full, hashed, headed, iso, label, millis, money, pieces, pretty } from "../text.js";
import { RISKS, SHAPES, runState, stepState } from "../status.js";
import { now } from "../store.js";
import { connection } from "../stream.js";
import { notice } from "../notices.js";

/** Text of agents, people and plans: shown as text, with what cannot be seen made visible. */
export function Txt({ v }) {
  const found = pieces(v);
  if (found.length === 1 && !found[0].hidden) return found[0].text;
  return found.map((piece) => (piece.hidden ? html`<span class="hidden-char" title="Invisible character">${piece.text}</span>` : piece.text));
}

/** A text that may hold what a program printed: its lines stay lines, in type of one width. */
export function Said({ v }) {
  const { head, body } = headed(v);
  return html`<span class="said"><${Txt} v=${head} />${body && html`<pre class="value printed" tabindex="0"><${Txt} v=${body} /></pre>`}</span>`;
}

/** An address on another server, as a link if it is one of the web. */
export function Out({ url }) {
  return /^https?:[/]{2}/.test(url) ? html`<a href=${url} target="_blank" rel="noreferrer"><${Txt} v=${url} /></a>` : html`<${Txt} v=${url} />`;
}

export function Glyph({ shape, spin = false }) {
  return html`<svg class=${spin ? "glyph spin" : "glyph"} viewBox="0 0 16 16" aria-hidden="true"><path d=${SHAPES[shape]} /></svg>`;
}

export function Status({ status, awaiting = "", step = false, quiet = false, as }) {
  const { word, tone, shape } = step ? stepState(status) : runState(status, awaiting);
  return html`<span class="status tone-${tone} ${quiet ? "quiet" : ""}"><${Glyph} shape=${shape} spin=${shape === "ring"} />${label(as ?? word)}</span>`;
}

export function Risk({ level }) {
  if (!level) return null;
  if (level === "not declared") return html`<span class="tag tone-warn" title="Neither the plan nor a worker declares a risk level.">risk not declared</span>`;
  return html`<span class="tag tone-${RISKS[level] ?? "quiet"}">${level} risk</span>`;
}

export function Tag({ children, tone = "quiet" }) {
  return html`<span class="tag tone-${tone}">${children}</span>`;
}

/** What a plan touches; workers that declare nothing are told together. */
export function Effects({ of }) {
  const silent = (of ?? []).filter((each) => each.startsWith("undeclared:")).map((each) => each.slice(11));
  const told = (of ?? []).filter((each) => !each.startsWith("undeclared:"));
  if (!told.length && !silent.length) return "none";
  return html`${told.map((each) => html`<${Tag} tone="warn"><${Txt} v=${each} /></${Tag}> `)}${silent.length > 0 && html`<span class="tone-warn undeclared">⚠ <${Txt} v=${silent.join(", ")} /> ${silent.length === 1 ? "declares" : "declare"} none</span>`}`;
}

export function Ago({ at }) {
  return html`<time datetime=${iso(at)} title=${`${full(at)} (${iso(at)})`}>${ago(at, now.value)}</time>`;
}

/** The logo. */
export const Mark = () => html`<svg class="mark" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" /><path d="M9 8v16h6M15 24h8M9 12h9l5 6v6" /></svg>`;

/** The same with the exact time in view, where a person decides about it. */
export function Instant({ at }) {
  return html`<${Ago} at=${at} /> (<time datetime=${iso(at)}>${full(at)}</time>)`;
}

/** How long something took, or has taken until now. */
export function Took({ from, to }) {
  const began = millis(from);
  if (Number.isNaN(began)) return "–";
  const end = millis(to);
  return duration(((Number.isNaN(end) ? now.value : end) - began) / 1000);
}

/** Money of models, for which a price is known. */
export function Money({ v }) {
  return html`<span class="figure">${money(v)}</span>`;
}

/** What counts against a budget: money, and the cost units that workers declare. */
export function Cost({ cost, money: paid }) {
  return html`<span class="figure" title="Dollars: models and coding agents. Units: the cost that workers declare, for comparison and budgets; not money.">${costs(cost, paid)}</span>`;
}

export function Loading({ what = "Loading" }) {
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSlow(true), 300);
    return () => clearTimeout(timer);
  }, []);
  return html`<div class="loading" role="status"><span class="visually-hidden">${what}</span>
    ${slow && html`<div class="bones" aria-hidden="true"><i></i><i></i><i></i></div>`}</div>`;
}

export function Empty({ title, children, action }) {
  return html`<div class="empty"><svg viewBox="0 0 64 40" aria-hidden="true"><path d="M6 20h14m8 0h10M28 20c6 0 4-12 12-12h6M28 20c6 0 4 12 12 12h6" /><rect x="1" y="14" width="14" height="12" rx="3" /><rect x="22" y="14" width="14" height="12" rx="3" /><rect x="46" y="2" width="14" height="12" rx="3" /><rect x="46" y="26" width="14" height="12" rx="3" stroke-dasharray="2 3" /></svg>
    <h2>${title}</h2><div class="measure">${children}</div>${action}</div>`;
}

const TITLES = { 0: "No connection", 403: "Not allowed", 404: "Not found", 409: "Conflict", 413: "Too large", 422: "Invalid input", 429: "Too many requests", 503: "Temporarily unavailable" };

/** Said where plans cannot be made of anything yet; a person alone can always be asked. */
export function NoWorkers() {
  return html`<div class="hint" role="note"><${Glyph} shape="person" /><p>No workers are configured, so only people and the agent that drives a run can carry out steps. List Python files under <code>[project] workers</code> in leadhand.toml (<code>leadhand init</code> writes an example), then restart the server.</p></div>`;
}

export const alone = (rows) => rows.every((row) => ["human", "caller"].includes(row.kind));

export function Trouble({ error, again, missing }) {
  if (!error) return null;
  const title = (error.status === 404 && missing) || TITLES[error.status] || error.title || "Request failed";
  const fix = error.problem?.fix;
  return html`<div class="trouble" role="alert"><${Glyph} shape="broken" /><div><strong>${title}</strong><p><${Txt} v=${error.message} /></p>
    ${fix && html`<p class="muted"><${Txt} v=${fix} /></p>`}
    <${Findings} findings=${error.findings} /></div>
    ${again && html`<button type="button" onClick=${again}>Try again</button>`}</div>`;
}

export function Findings({ findings = [] }) {
  if (!findings.length) return null;
  return html`<ul class="findings">${findings.map((each) => {
    const found = typeof each === "string" ? { message: each } : each;
    return html`<li class="level-${found.level ?? "error"}"><span class="tag tone-${found.level === "error" ? "bad" : "warn"}">${found.level ?? "finding"}</span>
      <div>${found.place && html`<code><${Txt} v=${found.place} /></code> `}<${Txt} v=${found.message} />
      ${found.fix && html`<p class="muted"><${Txt} v=${found.fix} /></p>`}</div></li>`;
  })}</ul>`;
}

/** A resource's states in one place: still asked for, gone wrong, or there. */
export function Shown({ of, children, what }) {
  const { data, error, loading } = of.state.value;
  if (data === undefined && error) return html`<${Trouble} error=${error} again=${of.refresh} />`;
  if (data === undefined) return html`<${Loading} what=${what} />`;
  // A lost connection is told once, above every screen.
  const told = error?.status === 0 && connection.value === "lost";
  return html`${error && !told && html`<${Trouble} error=${error} again=${of.refresh} />`}<div aria-busy=${loading}>${children(data)}</div>`;
}

export function Value({ v }) {
  if (v === null || v === undefined) return html`<span class="muted">none</span>`;
  if (typeof v !== "object" && !String(v).includes("\n") && String(v).length < 120) return html`<${Txt} v=${v} />`;
  if (Array.isArray(v) && v.length <= 8 && v.every((each) => typeof each !== "object" && String(each).length < 60)) return html`<${Txt} v=${v.join(", ")} />`;
  return html`<pre class="value" tabindex="0"><${Txt} v=${pretty(v)} /></pre>`;
}

/** Names and values of an object, a line each. */
export function Facts({ of }) {
  const rows = Object.entries(of).filter(([, value]) => value !== null && value !== undefined && value !== "");
  if (!rows.length) return null;
  return html`<dl class="facts">${rows.map(([name, value]) => html`<div><dt><${Txt} v=${name} /></dt><dd>${isNode(value) ? value : html`<${Value} v=${value} />`}</dd></div>`)}</dl>`;
}

function isNode(value) {
  return Boolean(value && typeof value === "object" && "props" in value && "type" in value);
}

export function Hash({ of, groups = 4 }) {
  if (!of) return null;
  return html`<code class="hash" title=${of}>${hashed(of, groups)}</code>`;
}

export function Copy({ text, label = "Copy", plain = false }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text); // there is none on a page without TLS
      notice("Copied");
    } catch {
      notice("The browser blocks copying on this page", "bad");
    }
  };
  return html`<button type="button" class=${plain ? "" : "small"} onClick=${copy}>${label}</button>`;
}

/** Shares of a whole, as a bar; the figures stand beside it in words. */
export function Meter({ parts, total, label }) {
  return html`<span class="meter" role="img" aria-label=${label}>${parts.map(([tone, value]) => value > 0 && html`<i class="tone-${tone}" style=${{ flexGrow: value }}></i>`)}
    ${total > 0 && html`<i class="rest" style=${{ flexGrow: Math.max(0, total - parts.reduce((sum, [, value]) => sum + value, 0)) }}></i>`}</span>`;
}

/** A table that scrolls by itself where it is too wide; the columns from `figures` on hold figures;
 *  `grouped` children are bodies of their own. */
export function Table({ label, columns, figures = Infinity, kind = "", grouped = false, children }) {
  return html`<div class="card table-wrap" tabindex="0" role="region" aria-label=${label}><table class="table ${kind}"><thead><tr>${columns.map((name, place) => html`<th scope="col" class=${place < figures ? "" : "num"}>${name}</th>`)}</tr></thead>${grouped ? children : html`<tbody>${children}</tbody>`}</table></div>`;
}

/** A table that a person sorts by its columns; a second click on a column reverses the order.
 * @param {{columns: [string, (row: any) => string | number, string?, number?][]}} props for each column its name, what it is
 *   sorted by, its class, and -1 where the first click sorts downwards
 */
export function SortTable({ label, columns, rows, row, kind = "" }) {
  const [by, setBy] = useState([0, 1]);
  const [place, way] = by;
  const key = columns[place][1];
  const compare = (one, other) => (one < other ? -way : one > other ? way : 0);
  const shown = [...rows].sort((one, other) => compare(key(one), key(other)));
  const choose = (at) => setBy([at, at === place ? -way : (columns[at][3] ?? 1)]);
  return html`<div class="card table-wrap" tabindex="0" role="region" aria-label=${label}><table class="table ${kind}"><thead><tr>${columns.map(([name, , look = ""], at) => html`<th scope="col" class=${look} aria-sort=${at === place ? (way > 0 ? "ascending" : "descending") : undefined}><button type="button" class="plain sort" onClick=${() => choose(at)}>${name}</button></th>`)}</tr></thead><tbody>${shown.map(row)}</tbody></table></div>`;
}

/** A field that narrows what stands below it; `/` goes to it. */
export function Search({ label, hint = label, value, onInput, push }) {
  const typed = (event) => onInput(event.target.value); // Escape empties the field without an input event
  return html`<label class="search ${push ? "push" : ""}"><span class="visually-hidden">${label}</span><input data-search type="search" placeholder=${hint} value=${value} onInput=${typed} onSearch=${typed} /></label>`;
}

/** The first and the last day of a range, in UTC, each by itself. */
export function Dates({ from = "", to = "", onChange }) {
  const day = (label, name, value) => html`<label class="field">${label}<input type="date" value=${value.match(/^\d{4}-\d\d-\d\d/)?.[0] ?? ""} onChange=${(event) => onChange({ [name]: event.target.value })} /></label>`;
  return html`${day("First day", "from", from)}${day("Last day", "to", to)}`;
}

export function Title({ children, sub, actions }) {
  return html`<header class="title"><div><h1 tabindex="-1">${children}</h1>${sub && html`<p class="muted">${sub}</p>`}</div>${actions && html`<div class="actions">${actions}</div>`}</header>`;
}
