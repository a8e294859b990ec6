"""What a model may be handed to work with: a tool, whoever provides it.

A Python function, a command with an allow list, a tool of an MCP server: an agent sees one form.
Name and description may come from a stranger. They are text to show and to send on, never
instructions to us, and a result is data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from leadhand.ports import Context


class Tool(Protocol):
    """One thing that can be called with a JSON object and answers with JSON-like data."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments object."""

    @property
    def effects(self) -> tuple[str, ...] | None:
        """What it changes outside; None: nobody said."""

    @property
    def risk(self) -> str | None: ...
    @property
    def version(self) -> str:
        """A digest of what was approved: another definition has another version."""

    async def call(self, arguments: dict[str, Any], context: Context) -> Any:
        """The result: text or JSON-like data. Raises a WorkerFailure; cancelling it stops it."""
