// Charts as SVG: lines over time, stacked bars by day. What is drawn can be read too: by the pointer, the arrow keys, and as a table.
import { html, useLayoutEffect, useRef, useState } from "../lib.js";
import { marks, nearest, timeMarks, timeText } from "../scale.js";

const TOP = 8;
const BOTTOM = 22;
const plain = (value) => value.toLocaleString("en", { maximumFractionDigits: 2 });

/** A box, and how wide it is now. */
function useWidth() {
  const box = useRef(null);
  const [width, setWidth] = useState(600);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.max(200, Math.floor(entry.contentRect.width))));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  return [box, width];
}

/**
 * @param {{label: string, times: number[], lines: {label: string, tone: string, values: (number|null)[]}[], height?: number, format?: (value: number) => string, most?: number}} given
 * seconds since 1970; null where nothing is known; `most` is the least top of the scale
 */
export function Chart({ label, times, lines, height = 200, format = plain, most = 4 }) {
  const [from, to] = [times[0] ?? 0, times.at(-1) ?? 1];
  const x = (at) => (to > from ? (at - from) / (to - from) : 0.5);
  const top = Math.max(most, ...lines.flatMap((line) => line.values));
  const step = times.length > 1 && times[1] - from >= 86000 ? 86400 : to - from < 600 ? 1 : 60;
  const draw = (place, level) => lines.map((line, index) => html`<path class="tone-${line.tone} line-${index}" d=${path(line.values, (at) => place(x(times[at])), level)} />`);
  return html`<${Plot} ...${{ label, height, format, top, draw, series: lines }} places=${times.map(x)} names=${times.map((at) => timeText(at, step))}
    axis=${(wanted) => timeMarks(from, to, wanted).map(([at, text]) => [x(at), text])} />`;
}

/** One line, broken where a value is not known; a lone value is a dot. */
function path(values, x, y) {
  return values.map((value, at) => {
    if (value == null) return "";
    const begins = values[at - 1] == null;
    return `${begins ? "M" : "L"}${x(at)} ${y(value)}${begins && values[at + 1] == null ? "m-2 0a2 2 0 1 0 4 0a2 2 0 1 0 -4 0" : ""}`;
  }).join("");
}

/**
 * @param {{label: string, names: string[], bars: {label: string, tone: string, values: number[]}[], height?: number, format?: (value: number) => string, most?: number}} given
 * one column for each name; the values of all bars are stacked in it
 */
export function Bars({ label, names, bars, height = 200, format = plain, most = 4 }) {
  const sums = names.map((_, at) => bars.reduce((sum, bar) => sum + (bar.values[at] ?? 0), 0));
  const x = (at) => (at + 0.5) / names.length;
  const draw = (place, level) => {
    const wide = Math.max(1, Math.min(48, (place(1) - place(0)) / names.length - 3));
    return names.map((_, at) => {
      let sum = 0;
      return bars.map(({ tone, values }) => {
        const value = values[at] ?? 0;
        sum += value;
        return value > 0 && html`<rect class="tone-${tone}" x=${place(x(at)) - wide / 2} y=${level(sum)} width=${wide} height=${Math.max(1, level(sum - value) - level(sum))} />`;
      });
    });
  };
  const axis = (wanted) => names.map((name, at) => [x(at), name]).filter((_, at) => (names.length - 1 - at) % Math.ceil(names.length / wanted) === 0);
  return html`<${Plot} ...${{ label, height, format, draw, names, axis, series: bars }} top=${Math.max(most, ...sums)} places=${names.map((_, at) => x(at))} />`;
}

/** Axes, marks, and what the pointer or the arrow keys are on; the last column when they are on none. */
function Plot({ label, names, series, places, axis, top, draw, height, format }) {
  const [box, width] = useWidth();
  const [at, setAt] = useState(null);
  const scale = marks(top);
  const left = Math.max(...scale.map((each) => format(each).length)) * 7.5 + 12;
  const place = (share) => Math.round((left + share * (width - left - 10)) * 10) / 10;
  const level = (value) => Math.round((height - BOTTOM - (value / scale.at(-1)) * (height - BOTTOM - TOP)) * 10) / 10;
  const last = names.length - 1;
  const shown = at == null || at > last ? last : at;
  const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -last, End: last };
  const press = (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault();
    setAt(Math.min(last, Math.max(0, shown + steps[event.key])));
  };
  const point = (event) => setAt(nearest(places.map(place), event.clientX - event.currentTarget.getBoundingClientRect().left));
  return html`<figure class="chart card"><figcaption>${label}</figcaption><${Reading} ...${{ series, shown, format }} name=${names[shown]} live=${at != null} />
    <div ref=${box} class="chart-box"><svg width=${width} height=${height} tabindex="0" role="img" aria-label=${`${label}. ${summary(series, format)}. Arrow keys read single values.`}
      onKeyDown=${press} onPointerMove=${point} onPointerLeave=${() => setAt(null)} onBlur=${() => setAt(null)}>
      ${scale.map((each) => html`<line class="grid" x1=${left} x2=${width - 10} y1=${level(each)} y2=${level(each)} /><text x=${left - 8} y=${level(each) + 4} text-anchor="end">${format(each)}</text>`)}
      ${axis(Math.max(2, Math.floor(width / 80))).map(([share, text]) => html`<text x=${place(share)} y=${height - 4} text-anchor=${share > 0.96 ? "end" : share < 0.04 ? "start" : "middle"}>${text}</text>`)}
      ${at != null && html`<line class="cursor" x1=${place(places[shown])} x2=${place(places[shown])} y1=${TOP} y2=${height - BOTTOM} />`}${draw(place, level)}</svg></div>
    <${Table} ...${{ label, names, series, format }} /></figure>`;
}

function Reading({ series, shown, format, name, live }) {
  return html`<div class="chart-read figure" aria-live=${live ? "polite" : "off"}><span class="muted">${name ?? ""}</span>
    ${series.map((each) => html`<div class="tone-${each.tone}"><i aria-hidden="true"></i>${each.label} <b>${text(each.values[shown], format)}</b></div>`)}</div>`;
}

const text = (value, format) => (value == null ? "–" : format(value));

function summary(series, format) {
  return series.map(({ label, values }) => `${label}: last ${text(values.at(-1), format)}, max ${format(Math.max(0, ...values))}`).join("; ");
}

function Table({ label, names, series, format }) {
  const [open, setOpen] = useState(false);
  return html`<details class="chart-table" onToggle=${(event) => setOpen(event.currentTarget.open)}><summary>Show as table</summary>
    ${open && html`<div class="table-wrap"><table class="table"><caption class="visually-hidden">${label}</caption><thead><tr><th scope="col">When</th>${series.map((each) => html`<th scope="col" class="num">${each.label}</th>`)}</tr></thead>
      <tbody>${names.map((name, at) => html`<tr><th scope="row">${name}</th>${series.map((each) => html`<td class="num">${text(each.values[at], format)}</td>`)}</tr>`)}</tbody></table></div>`}</details>`;
}
