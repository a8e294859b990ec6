"""The review story in Python: plan, amend, diff, approve, run; then change one byte.

python story.py                            # step-3 is put off by two seconds
python story.py "02:00 America/New_York"   # until the night
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import workers

from leadhand import Lead, Policy
from leadhand.codec.documents import read_document
from leadhand.errors import Conflict

HERE = Path(__file__).parent


async def main(when: str) -> None:
    """Play it."""
    lead = Lead([workers], store=HERE / "story.db", actor="ann", policy=Policy(review=True))
    waits = await lead.run(HERE / "plan.json")
    print(waits.status, "for", waits.waiting_for[0].id)

    await lead.amend(waits.run, {"steps.step-3.not_before": when})
    shown = await lead.review(waits.run)
    print("revision", shown.revision, "by", shown.author)
    print("step-3 starts at", shown.instants["step-3"])
    await lead.answer(waits.run, "review-2", "approve", expires="1 day")
    done = await lead.resume(waits.run)
    print(done.status, "-", done.result)

    plan = read_document(HERE / "plan.json")
    approval = lead.approve(plan, expires="1 day")
    plan["steps"][2]["parameters"]["version"] += " "
    try:
        await lead.run(plan, approval=approval)
    except Conflict as error:
        print(error)


if __name__ == "__main__":
    soon = datetime.now(UTC) + timedelta(seconds=2)
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else soon.isoformat()))
