"""`leadhand schema`."""

from __future__ import annotations

from leadhand.cli.console import Console
from leadhand.cli.group import command


@command("schema", "leadhand schema > plan.schema.json")
def schema(console: Console) -> None:
    """Print the JSON Schema of plan documents.

    The schema (draft 2020-12) is meant for editors and other tools.
    """
    from leadhand.core.plan.schema import PLAN_SCHEMA

    console.document(PLAN_SCHEMA)
