"""The table of `make proof`: rows with figures, kept between runs, and the page that shows them.

A run replaces the rows that it measured in `results.json` and writes `docs/proof.md` from all of
them. Nothing on that page is written by hand: a test makes it again and compares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "proof" / "results.json"
PAGE = ROOT / "docs" / "proof.md"

NAMES = (
    "agentdojo",
    "conformance",
    "faults",
    "long_agent",
    "power_cuts",
    "seeds",
    "soak",
    "workflow",
)
"""Every row that is built."""

HEAD = """# Proof: tests that others wrote, and long campaigns

`make proof` runs what stands here and writes this page from what it measured; the line
*Repeat* of a row runs it alone, and `make test` runs a slice of it. A figure without a wanted
value is stated as it is. What was not tried is named as not tried.
"""


class Figure(msgspec.Struct, frozen=True):
    """One measured figure."""

    what: str
    seen: str
    wanted: str = ""
    met: bool = True


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One test of others, or one campaign, with all that was measured."""

    name: str
    source: str
    version: str
    left_out: str
    figures: list[Figure]
    repeat: str
    notes: str = ""
    date: str = ""
    seconds: int = 0
    machine: str = ""


def of(part: int, whole: int) -> str:
    """Return a share as both numbers and per cent."""
    return f"{part} of {whole} ({part / whole:.1%})" if whole else "0 of 0"


def load() -> dict[str, Row]:
    """Return the rows that were measured, by key."""
    return msgspec.json.decode(RESULTS.read_bytes(), type=dict[str, Row])


def save(rows: dict[str, Row]) -> None:
    """Write the rows, and the page from them."""
    plain: Any = msgspec.to_builtins(rows)
    RESULTS.write_text(json.dumps(plain, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    PAGE.write_text(page(rows))


def page(rows: dict[str, Row]) -> str:
    """Return the page, in Markdown."""
    parts = [HEAD]
    parts += ["| row | figures met | date |\n|---|---|---|"]
    for _, row in sorted(rows.items()):
        judged = [each for each in row.figures if each.wanted]
        met = sum(each.met for each in judged)
        anchor = "-".join("".join(c if c.isalnum() else " " for c in row.name.lower()).split())
        parts[-1] += f"\n| [{row.name}](#{anchor}) | {met} of {len(judged)} | {row.date} |"
    if missing := [name for name in NAMES if name not in rows]:
        parts += [f"\nBuilt and not measured yet: {', '.join(missing)}."]
    parts += [_section(row) for _, row in sorted(rows.items())]
    return "\n".join(parts) + "\n"


def _section(row: Row) -> str:
    lines = [f"\n## {row.name}\n"]
    lines += [f"- **Source**: {row.source}"]
    lines += [f"- **Version**: {row.version}"]
    lines += [f"- **Left out**: {row.left_out}"]
    lines += [f"- **Measured**: {row.date}, {row.seconds} s, {row.machine}"]
    lines += [f"- **Repeat**: `{row.repeat}`"]
    lines += ["", "| figure | seen | wanted | met |", "|---|---|---|---|"]
    for each in row.figures:
        met = "" if not each.wanted else ("yes" if each.met else "**no**")
        lines.append(f"| {_cell(each.what)} | {_cell(each.seen)} | {_cell(each.wanted)} | {met} |")
    if row.notes:
        lines += ["", row.notes]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def text_table(row: Row) -> str:
    """Return a row for a terminal."""
    lines = [f"{row.name} · {row.version} · {row.seconds} s"]
    for each in row.figures:
        mark = " " if not each.wanted else ("+" if each.met else "MISSED")
        wanted = f" (wanted {each.wanted})" if each.wanted else ""
        lines.append(f"  {mark:1} {each.what}: {each.seen}{wanted}")
    return "\n".join(lines)
