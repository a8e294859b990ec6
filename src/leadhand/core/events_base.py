"""What all events have in common, and the versions of their form and of the decisions in them."""

from __future__ import annotations

from typing import Any

import msgspec

EVENT_VERSION = 1
DECIDE_VERSION = 6
"""2: parking, splitting, people, circuits, answers by default; wanted facts are checked.
3: whoever waits for a surprising success waits until the planner has looked; rollback.
4: an approval also covers the limits that the run was started with.
5: a run that failed may be reopened; a step done again takes those with it that nothing else
keeps from running, and only those.
6: what people allowed ends with the time of their approval and with the workers they allowed, for
later revisions too; whoever takes the place of a held step is held; a step's own word on its
effects adds to its worker's."""

Doc = dict[str, Any]


class Event(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """Base of all events."""
