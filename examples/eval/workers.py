"""What a planner may use: clerks who read records, and code that puts together what they read."""

from __future__ import annotations

import os
from typing import Any

import archive
import tools

from leadhand import Agent, Permanent, worker

CHECKED = os.environ.get("CHECKS") == "on"
ENTRIES = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {
            "amount": {"type": "integer"},
            "digit": {"type": "integer"},
            "next": {"type": "string"},
        },
        "required": ["amount", "digit"],
    },
}
"""What a clerk hands in: the entry of each record, by its name."""


def plausible(entries: dict[str, Any]) -> bool:
    """Return whether something was read, and each amount fits its check digit."""
    return bool(entries) and all(
        archive.digit(each["amount"]) == each["digit"] for each in entries.values()
    )


def whole(entries: dict[str, Any]) -> bool:
    """Return whether nothing is left out besides."""
    return plausible(entries) and not archive.missing([*entries])


def _clerk(name: str, able: list[Any], about: str) -> Agent:
    return Agent(
        name,
        "hand",
        tools=able,
        returns=ENTRIES,
        instructions="Read the records that `records` names, and hand in the entry of each. With "
        "`follow`, read the record that each one names as the next, to the end.",
        parameters={
            "type": "object",
            "properties": {
                "records": {"type": "array", "items": {"type": "string"}},
                "follow": {"type": "boolean"},
            },
            "required": ["records"],
            "additionalProperties": False,
        },
        description=about,
        needs=(),
        risk="low",
        idempotent=True,
        **({"check": plausible} if CHECKED else {}),
    )


clerk = _clerk("clerk", [tools.read_record], "reads records of the archive, not of the annex")
archivist = _clerk(
    "archivist", [tools.read_record, tools.read_annex], "reads records, of the annex too; slow"
)


@worker(gives="report", effects=(), needs=())
def compile_report(parts: list[dict[str, Any]]) -> dict[str, int]:
    """Put together what clerks read: `parts` is a list of their results."""
    entries = {name: entry for part in parts for name, entry in part.items()}
    if CHECKED and (missing := archive.missing([*entries])):
        raise Permanent(f"records are missing: {', '.join(missing)}")
    return {name: entry["amount"] for name, entry in entries.items()}


@worker(gives="receipt", effects=("mail",), risk="high")
def send_bill(report: dict[str, int]) -> dict[str, int]:
    """Send the bill for all that the report holds. It cannot be taken back."""
    return tools.mail(sum(report.values()))
