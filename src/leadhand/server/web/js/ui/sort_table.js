// A table that a person sorts by its columns; a second click on a column reverses the order.
import { html, useState } from "../lib.js";

/**
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
