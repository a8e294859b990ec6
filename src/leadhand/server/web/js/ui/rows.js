// A long list of rows of one height: only those in view are in the document. One may be open, and taller.
import { html, useLayoutEffect, useRef, useState } from "../lib.js";

const OVER = 8;

/** @param {{count: number, height: number, row: (place: number) => any, follow?: boolean, label: string, role?: string,
 *   open?: number, more?: number}} given the row at `open` is taller by `more` pixels */
export function Rows({ count, height, row, follow = false, label, role = "list", open = -1, more = 0 }) {
  const box = useRef(null);
  const [range, setRange] = useState([0, 40]);
  const stuck = useRef(follow);
  const look = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    stuck.current = follow && open < 0 && scrollTop + clientHeight > scrollHeight - 2 * height;
    const above = open >= 0 && scrollTop > (open + 1) * height ? more : 0;
    const from = Math.max(0, Math.floor((scrollTop - above) / height) - OVER);
    const to = Math.ceil((scrollTop + clientHeight) / height) + OVER;
    if (from !== range[0] || to !== range[1]) setRange([from, to]);
  };
  useLayoutEffect(() => {
    if (stuck.current && open < 0) box.current.scrollTop = box.current.scrollHeight;
    look();
    const watch = new ResizeObserver(look);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [count, follow, open]);
  const [from, to] = [range[0], Math.min(count, range[1])];
  const shown = [];
  for (let place = from; place < to; place++) shown.push(row(place));
  return html`<div class="rows" ref=${box} onScroll=${look} tabindex="0" role="region" aria-label=${label}>
    <div role=${role} class="rows-all" style=${{ height: `${count * height + (open >= 0 ? more : 0)}px` }}><div role="presentation" class="rows-shown" style=${{ transform: `translateY(${from * height + (open >= 0 && open < from ? more : 0)}px)` }}>${shown}</div></div></div>`;
}
