// The log of an attempt: as it is printed while it runs, as it was kept afterwards; with a search.
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { api } from "../api.js";
import { readEvents } from "../sse.js";
import { useResource } from "../store.js";
import { Shown, Txt } from "../ui/parts.js";
import { matches, percent } from "../text.js";

const PAUSE_MS = 1000;
const LIVE_CHARS = 16_000; // the server sends no more of a running attempt
const SHOWN_CHARS = 400_000;

/** The output and progress of a running step, read while its panel is open.
 *  @returns {{attempt: number, message: string, fraction: number|null, output: string} | {trouble: string} | null} */
function useLive(run, step) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    const control = new AbortController();
    followLive(run, step, control.signal, setFound);
    return () => control.abort();
  }, [run, step]);
  return found;
}

async function followLive(run, step, signal, heard) {
  while (!signal.aborted) {
    try {
      const response = await api.live(run, step, signal);
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      heard((before) => (before?.trouble ? null : before));
      await readEvents(response, (events) => events.forEach(({ event, data }) => event === "live" && heard(JSON.parse(data))));
    } catch (error) {
      if (!signal.aborted) heard({ trouble: error.message });
    }
    // The attempt ended, or has not begun: another one may come.
    if (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

export function Log({ live, step, attempts, chosen, choose }) {
  const made = attempts.find((each) => each.attempt === chosen) ?? attempts.at(-1);
  const number = made.attempt;
  return html`<section class="log"><header class="section-head"><h3>Log</h3><span class="actions">${attempts.length > 1 && html`<label class="inline">Attempt <select value=${number} onChange=${(event) => choose(Number(event.target.value))}>${attempts.map((each) => html`<option value=${each.attempt}>${each.attempt}</option>`)}</select></label>`}
      <a class="button small" href=${api.outputAddress(live.run, step, number)} download=${`${step}-${number}.log`}>Download</a></span></header>
    <${made.ended ? Kept : Printing} key=${number} live=${live} step=${step} number=${number} /></section>`;
}

/** What an attempt under way says and prints, as it does. */
function Printing({ live, step, number }) {
  const found = useLive(live.run, step);
  const mine = found?.attempt === number ? found : null;
  const share = mine?.fraction == null ? "" : percent(mine.fraction);
  return html`${mine && (share || mine.message) && html`<p class="progress-note"><progress max="1" value=${mine.fraction ?? undefined} aria-label="Progress"></progress> ${share} <${Txt} v=${mine.message} /></p>`}
    ${found?.trouble ? html`<p class="muted">The log cannot be read: <${Txt} v=${found.trouble} />. Retrying.</p>` : mine?.output ? html`<${Text} text=${mine.output} running=${true} cut=${mine.output.length >= LIVE_CHARS && "The last 16,000 characters. The whole log is kept when the attempt ends."} />` : html`<p class="muted">No output yet</p>`}`;
}

/** What an ended attempt printed. */
function Kept({ live, step, number }) {
  const found = useResource((control) => api.output(live.run, step, number, control), [live, step, number]);
  return html`<${Shown} of=${found} what="Loading the log">${(text) => (text ? html`<${Text} text=${text.slice(-SHOWN_CHARS)} cut=${text.length > SHOWN_CHARS && "The end of a long log. Download it to read the beginning."} />` : html`<p class="muted">No output</p>`)}</${Shown}>`;
}

/** A text with a search; one that grows is followed until the reader scrolls back. */
function Text({ text, cut, running = false }) {
  const [query, setQuery] = useState("");
  const [place, setPlace] = useState(0);
  const [wrap, setWrap] = useState(true);
  const [follow, setFollow] = useState(running);
  const box = useRef(null);
  const found = useMemo(() => matches(text, query), [text, query]);
  const at = found.length ? ((place % found.length) + found.length) % found.length : -1;
  useEffect(() => {
    if (follow) box.current.scrollTop = box.current.scrollHeight;
  }, [text, follow]);
  useEffect(() => {
    box.current.querySelector(".now")?.scrollIntoView({ block: "nearest" });
  }, [query, place]);
  const search = (event) => (setQuery(event.target.value), setPlace(0), setFollow(false));
  const step = (by) => (setPlace(at + by), setFollow(false));
  const keys = (event) => event.key === "Enter" && (event.preventDefault(), step(event.shiftKey ? -1 : 1));
  const scrolled = () => running && follow && box.current.scrollHeight - box.current.scrollTop - box.current.clientHeight > 40 && setFollow(false);
  return html`<div class="log-tools"><label class="search"><span class="visually-hidden">Search the log</span><input type="search" placeholder="Search the log" value=${query} onInput=${search} onKeyDown=${keys} /></label>
      ${query && html`<span class="figure" role="status">${found.length ? `${at + 1} of ${found.length}${found.more ? "+" : ""}` : "No matches"}</span><button type="button" class="small" disabled=${!found.length} aria-label="Previous match" onClick=${() => step(-1)}>↑</button><button type="button" class="small" disabled=${!found.length} aria-label="Next match" onClick=${() => step(1)}>↓</button>`}
      <button type="button" class="small push" aria-pressed=${wrap} onClick=${() => setWrap(!wrap)}>Wrap lines</button>${running && html`<button type="button" class="small" aria-pressed=${follow} onClick=${() => setFollow(!follow)}>Follow</button>`}</div>
    ${cut && html`<p class="muted">${cut}</p>`}
    <pre class="value output ${wrap ? "" : "unwrapped"}" tabindex="0" ref=${box} aria-label=${running ? "Live log" : "Log"} onScroll=${scrolled}>${marked(text, found, query.length, at)}</pre>`;
}

function marked(text, found, length, at) {
  if (!found.length) return html`<${Txt} v=${text} />`;
  let from = 0;
  const parts = found.map((start, place) => {
    const before = text.slice(from, start);
    from = start + length;
    return html`<${Txt} v=${before} /><mark class=${place === at ? "now" : ""}><${Txt} v=${text.slice(start, from)} /></mark>`;
  });
  return [...parts, html`<${Txt} v=${text.slice(from)} />`];
}
