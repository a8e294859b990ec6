"""Writes the tape of examples/competitors/with_models: `python -m tests.support.competitors_tape`.

The answers come from the script below, through the scripted endpoint, so that what is on the tape
is what a provider would have sent. A prompt or a tool that changes makes the tape stale: its test
says so, and this writes it anew.
"""

import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path

from leadhand import Goal, Lead
from leadhand.models.recordings import recording
from leadhand.models.registry import ModelRegistry
from leadhand.testing.endpoint import Data, Endpoint, Reply, Request, Use
from leadhand.workers.registry import load_workers

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "competitors" / "with_models"
GOAL = "Compare the prices of Nordwind and Kestrel"


def research(ident: str, firm: str) -> dict:
    return {"id": ident, "worker": "researcher", "parameters": {"firm": firm}}


PLAN = {
    "kind": "propose",
    "because": "two prices can be found at the same time; the comparison needs both",
    "steps": [
        research("research-a", "Nordwind"),
        research("research-b", "Kestrel"),
        {
            "id": "compare",
            "worker": "writer",
            "parameters": {
                "findings": ["${{ steps.research-a.data }}", "${{ steps.research-b.data }}"]
            },
            "depends_on": ["research-a", "research-b"],
        },
    ],
}
WORDS = (
    "Nordwind asks 12.50 for a parcel of 5 kg, by its spring brochure, since its pricing page is "
    "gone. Kestrel asks 9.90, by its pricing page. Kestrel is cheaper by 2.60."
)
PRICES = {"Nordwind": (12.5, "/nordwind/brochure"), "Kestrel": (9.9, "/kestrel/pricing")}


def reply(request: Request) -> Reply:
    """What a capable planner and two careful agents would say."""
    text = "\n".join(message.text for message in request.messages)
    if "planner of a team" in request.system:
        done = "compare: writer: succeeded" in text
        finish = {"kind": "finish", "because": "the comparison is there", "result": WORDS}
        return Data(finish if done else PLAN)
    if "findings" in text:
        return Use("finish", {"result": WORDS})
    firm = "Nordwind" if "firm: Nordwind" in text else "Kestrel"
    price, page = PRICES[firm]
    match sum(len(message.results) for message in request.messages):
        case 0:
            return Use("search", {"firm": firm})
        case 1:
            return Use("read_page", {"path": f"/{firm.lower()}/pricing"})
        case 2 if firm == "Nordwind":
            return Use("read_page", {"path": "/nordwind/brochure"})
        case _:
            return Use("finish", {"result": {"firm": firm, "price": price, "source": page}})


async def record(path: Path) -> None:
    async with Endpoint(reply) as endpoint:
        name = f"anthropic:scripted@{endpoint.url}"
        book = ModelRegistry({"lead": (name,), "hand": (name,)})
        sys.path.insert(0, str(FOLDER))
        with tempfile.TemporaryDirectory() as folder, recording(path):
            lead = Lead(
                load_workers(str(FOLDER / "agents.py")),
                "lead",
                Path(folder) / "runs.db",
                models=book,
            )
            outcome = await lead.run(Goal(text=GOAL))
    assert outcome.status == "succeeded", outcome
    assert outcome.result == WORDS
    tape = json.loads(path.read_text())
    for exchange in tape["exchanges"]:
        exchange["model"] = re.sub(r"@.*", "", exchange["model"])
        if "answer" in exchange:
            exchange["answer"].pop("model", None)
    path.write_text(json.dumps(tape, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(record(FOLDER / "tape.json"))
