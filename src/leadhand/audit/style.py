"""How the page looks: light and dark, on screens and on paper, from a phone's width up."""

STYLE = """
:root {
  color-scheme: light dark;
  --bg: #f6f7f9; --card: #ffffff; --ink: #14181f; --dim: #5b6472; --line: #e2e6ec;
  --accent: #3b5bdb; --good: #12805c; --bad: #c92a2a; --warn: #a15c00; --idle: #76808f;
  --good-bg: #e3f6ee; --bad-bg: #fdecec; --warn-bg: #fff3dc; --idle-bg: #eceff3;
  --accent-bg: #e8edff; --shadow: 0 1px 2px rgb(16 24 40 / .05), 0 1px 8px rgb(16 24 40 / .04);
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #0f1216; --card: #171b21; --ink: #e8ebf0; --dim: #9aa4b2; --line: #2a313b;
    --accent: #8aa2ff; --good: #4fd1a1; --bad: #ff8787; --warn: #ffc36b; --idle: #9aa4b2;
    --good-bg: #12362a; --bad-bg: #3d1b1d; --warn-bg: #3a2b10; --idle-bg: #242a33;
    --accent-bg: #1e2747; --shadow: none;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--bg); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 64px; }
.brand { display: flex; justify-content: space-between; color: var(--dim); font-size: 13px; }
.brand b { color: var(--ink); letter-spacing: .01em; }
h1 { font-size: 28px; line-height: 1.25; margin: 18px 0 10px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 40px 0 12px; }
h2 small { color: var(--dim); font-weight: 400; font-size: 13px; margin-left: 8px; }
p { margin: 6px 0; }
.meta { color: var(--dim); font-size: 14px; }
.meta b { color: var(--ink); font-weight: 600; }
code, pre, .mono { font-family: var(--mono); font-size: 12.5px; }
code { overflow-wrap: anywhere; }
pre {
  margin: 8px 0 0; padding: 12px 14px; background: var(--bg); border: 1px solid var(--line);
  border-radius: 8px; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 480px;
  overflow: auto;
}
.pill {
  display: inline-block; padding: 1px 10px; border-radius: 999px; font-size: 12.5px;
  font-weight: 600; background: var(--idle-bg); color: var(--idle); white-space: nowrap;
}
.good { background: var(--good-bg); color: var(--good); }
.bad { background: var(--bad-bg); color: var(--bad); }
.warn { background: var(--warn-bg); color: var(--warn); }
.note { background: var(--accent-bg); color: var(--accent); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin: 22px 0; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  box-shadow: var(--shadow); }
.tile { padding: 14px 16px; }
.tile span { color: var(--dim); font-size: 12.5px; display: block; }
.tile b { font-size: 22px; font-weight: 650; line-height: 1.3; overflow-wrap: anywhere; }
.tile i { color: var(--dim); font-style: normal; font-size: 12.5px; display: block; }
.card { padding: 4px 0; overflow: hidden; }
.verdict { padding: 16px 18px; border-left: 4px solid var(--idle); margin: 22px 0; }
.verdict.is-good { border-left-color: var(--good); }
.verdict.is-bad { border-left-color: var(--bad); }
.verdict.is-warn { border-left-color: var(--warn); }
.verdict h3 { margin: 0 0 4px; font-size: 16px; }
table { width: 100%; border-collapse: collapse; }
th { text-align: left; color: var(--dim); font-weight: 500; font-size: 12.5px; }
th, td { padding: 9px 16px; vertical-align: top; border-bottom: 1px solid var(--line); }
tr:last-child td { border-bottom: 0; }
td { overflow-wrap: anywhere; } td b { overflow-wrap: break-word; }
td.when, td.num { white-space: nowrap; color: var(--dim); font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
details.step { border-bottom: 1px solid var(--line); }
details.step:last-child { border-bottom: 0; }
details.step > summary {
  display: grid; grid-template-columns: 1fr auto auto auto; gap: 4px 14px; align-items: baseline;
  padding: 11px 16px; cursor: pointer; list-style: none;
}
details.step > summary::-webkit-details-marker { display: none; }
details.step > summary:hover { background: var(--bg); }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
details.step > summary .name::before { content: "▸"; color: var(--dim); font-size: 12px;
  display: inline-block; width: 16px; }
details.step[open] > summary .name::before { content: "▾"; }
summary .name em { display: block; font-style: normal; color: var(--dim); font-size: 13.5px;
  padding-left: 16px; overflow-wrap: anywhere; }
summary .name b { overflow-wrap: anywhere; }
summary .name span { color: var(--dim); font-size: 13px; margin-left: 8px; }
summary .num { color: var(--dim); font-size: 13px; font-variant-numeric: tabular-nums; }
.inside { padding: 0 16px 14px 32px; }
.try { border-left: 3px solid var(--line); padding: 2px 0 2px 12px; margin: 10px 0; }
.try.is-bad { border-left-color: var(--bad); }
.try.is-good { border-left-color: var(--good); }
.then { color: var(--dim); font-size: 14px; }
.bars { padding: 12px 16px; }
.bar { display: grid; grid-template-columns: minmax(90px, 22%) 1fr; gap: 12px;
  align-items: center; font-size: 13px; padding: 3px 0; }
.bar > span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.bar svg { width: 100%; height: 14px; display: block; background: var(--bg); border-radius: 4px; }
.axis { color: var(--dim); font-size: 12px; display: flex; justify-content: space-between;
  padding-left: calc(22% + 12px); }
rect.good { fill: var(--good); } rect.bad { fill: var(--bad); }
rect.warn { fill: var(--warn); } rect.idle { fill: var(--idle); }
.ledgers { display: grid; grid-template-columns: repeat(auto-fit, minmax(360px, 1fr)); gap: 12px; }
.ledgers h3 { font-size: 14px; margin: 10px 16px 6px; }
.ledger { max-height: 520px; overflow: auto; margin: 0; padding: 0 16px 8px; list-style: none;
  font-size: 13.5px; }
.ledger li { display: grid; grid-template-columns: 76px 1fr; gap: 8px; padding: 4px 0;
  border-top: 1px solid var(--line); overflow-wrap: anywhere; }
.ledger time { color: var(--dim); font-variant-numeric: tabular-nums; font-size: 12.5px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 6px 18px; margin: 0;
  padding: 12px 16px; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
footer { color: var(--dim); font-size: 13px; margin-top: 36px; }
@media (max-width: 620px) {
  main { padding: 18px 12px 48px; } h1 { font-size: 22px; }
  details.step > summary { grid-template-columns: auto auto 1fr; }
  summary .name { grid-column: 1 / -1; } summary .pill { justify-self: end; }
  .wide table { min-width: 620px; }
  .ledgers { grid-template-columns: 1fr; } dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: 8px; } th, td { padding: 8px 10px; }
}
@media print {
  body { background: #fff; } .card, .tile { box-shadow: none; break-inside: avoid; }
  pre, .ledger { max-height: none; }
}
"""
