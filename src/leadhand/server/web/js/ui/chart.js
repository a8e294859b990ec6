// Charts by uPlot, fetched when the first is shown. Each has its figures as text for those who listen.
import { html, useEffect, useRef } from "../lib.js";

let loading = null;

function uplot() {
  loading ??= new Promise((resolve, reject) => {
    const base = new URL("../../_npm/", import.meta.url);
    const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL("uplot.css", base).href });
    const script = Object.assign(document.createElement("script"), { src: new URL("uplot.js", base).href });
    script.onload = () => resolve(globalThis.uPlot);
    script.onerror = reject;
    document.head.append(style, script);
  });
  return loading;
}


/** A colour of the theme as the canvas wants it. */
function resolved(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** @param {{label: string, times: number[], lines: {label: string, tone: string, values: number[]}[], height?: number}} given seconds since 1970 */
export function Chart({ label, times, lines, height = 200 }) {
  const box = useRef(null);
  const chart = useRef(null);
  useEffect(() => {
    let gone = false;
    const axis = { stroke: resolved("--muted"), grid: { stroke: resolved("--line"), width: 1 }, ticks: { show: false } };
    const width = () => Math.max(200, box.current?.clientWidth ?? 0);
    uplot().then((Plot) => {
      if (gone) return;
      const series = [{}, ...lines.map((line) => ({ label: line.label, stroke: resolved(`--${line.tone}`), width: 2, points: { show: false } }))];
      chart.current = new Plot({ width: width(), height, series, axes: [axis, { ...axis, size: 44 }], scales: { y: { range: (_plot, _least, most) => [0, Math.max(4, most * 1.1)] } }, legend: { show: true, live: false }, cursor: { y: false } }, [times, ...lines.map((line) => line.values)], box.current);
    }, () => {});
    const watch = new ResizeObserver(() => chart.current?.setSize({ width: width(), height }));
    watch.observe(box.current);
    return () => {
      gone = true;
      watch.disconnect();
      chart.current?.destroy();
      chart.current = null;
    };
  }, []);
  useEffect(() => chart.current?.setData([times, ...lines.map((line) => line.values)]), [times, lines]);
  const said = lines.map((line) => `${line.label}: now ${line.values.at(-1) ?? 0}, max ${Math.max(0, ...line.values)}`).join("; ");
  return html`<figure class="chart card"><figcaption>${label}<span class="visually-hidden">. ${said}</span></figcaption><div ref=${box} aria-hidden="true"></div></figure>`;
}
