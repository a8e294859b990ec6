"""Two simulated models behind the protocol of a real one: what the tapes of this suite recorded.

    python simulated_models.py          # answers on http://127.0.0.1:8791 until Ctrl-C

No language model is here. A simulated model understands the goals of this suite, plans and reads
records as it should, and slips by chance. What is assumed about the slips:

    a decision goes wrong with the model's SLIP, whoever asks and whatever for;
    within one conversation that grows by a quarter with each record that was read before;
    a record that is read wrongly is left out, has a wrong digit, or two digits changed places;
    a plan names a worker that does not exist, or leaves a record out;
    whoever follows a chain may stop too early.

So the planner, the clerks of a plan and the flat loop are equally able. What differs between the
arms is what becomes of a slip.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from random import Random
from typing import Any

from leadhand.testing.endpoint import Data, Endpoint, Say, Use, Uses

PORT = 8791
SLIP = {"steady": 0.01, "shaky": 0.05}
GROWTH = 0.25
AT_ONCE = 4
"""Records that are asked for in one answer."""
UNITS = {"two": 2, "six": 6}

Entries = dict[str, dict[str, Any]]


class Model:
    """One of the models, answering one request."""

    def __init__(self, name: str, chance: Random) -> None:
        self._slip, self._chance = SLIP[name], chance

    def slips(self, before: int = 0) -> bool:
        """Return whether a decision goes wrong that `before` records precede."""
        return self._chance.random() < self._slip * (1 + GROWTH * before)

    # As the one who reads: a clerk, or the flat loop.

    def read(self, request: Any) -> Any:
        """Read the records that are asked for; then hand them in."""
        task = request.messages[0].text
        tools = {tool.name for tool in request.tools}
        calls = {call.id: call for message in request.messages for call in message.calls}
        results = [each for message in request.messages for each in message.results]
        known: Entries = {}
        moved: list[str] = []
        sent = False
        for result in results:
            call = calls[result.id]
            found = re.search(r"\{.*\}", result.text)
            if call.tool == "send":
                sent = True
            elif found:
                known[_given(call)["name"]] = json.loads(found[0])
            elif "annex" in result.text and call.tool == "read_record":
                moved.append(_given(call)["name"])
        lost = [name for name in moved if name not in known]
        if lost and "read_annex" not in tools:
            reason = f"{', '.join(lost)}: moved to the annex, where I cannot read"
            return Use("too_complex", {"reason": reason})
        if lost:
            return Uses(tuple(Use("read_annex", {"name": name}) for name in lost))
        wanted = self._wanted(task, known)
        if wanted:
            return Uses(tuple(Use("read_record", {"name": name}) for name in wanted[:AT_ONCE]))
        entries = self._entries(known)
        if "send" in tools and not sent:
            total = sum(each["amount"] for each in entries.values())
            return Use("send", {"total": total})
        return Use("finish", {"result": entries})

    def _wanted(self, task: str, known: Entries) -> list[str]:
        """Return the records that are still to be read."""
        names = _named(task)
        if "follow: true" in task or ("chain" in task and "records: [" not in task):
            last = [*known.values()][-1] if known else None
            then = last["next"] if last else names[0]
            return [] if last and self.slips(len(known)) else [then] if then else []
        return [name for name in names if name not in known]

    def _entries(self, known: Entries) -> Entries:
        """Return the entries as they are handed in, with the slips of the pen."""
        found: Entries = {}
        for before, (name, entry) in enumerate(known.items()):
            if not self.slips(before):
                found[name] = entry
                continue
            kind = self._chance.choice(("left out", "wrong digit", "changed places"))
            if kind != "left out":
                found[name] = {**entry, "amount": self._garbled(str(entry["amount"]), kind)}
        return found

    def _garbled(self, digits: str, kind: str) -> int:
        at = self._chance.randrange(3)
        if kind == "wrong digit":
            other = self._chance.choice([each for each in "123456789" if each != digits[at]])
            return int(digits[:at] + other + digits[at + 1 :])
        return int("1" + digits[at] + digits[:at] + digits[at + 1 :]) % 10**4 or 1

    # As the one who plans.

    def plan(self, request: Any) -> Any:
        """Propose the next steps, or say that all is done."""
        state = "\n".join(each.text for each in request.messages if each.role == "user")
        goal = state.partition("# Goal\n")[2].partition("\n")[0]
        most = UNITS[re.search(r"at most (\w+) records", request.system)[1]]  # type: ignore[index]
        so_far = state.partition("# So far\n")[2].partition("# Now")[0]
        steps = dict(re.findall(r"^- ([\w-]+): (?:\w+): ([a-z ]+)", so_far, re.MULTILINE))
        read = re.findall(r"^([\w-]+):\n<data \w+>\n(\{.*\})$", so_far, re.MULTILINE)
        done: dict[str, Entries] = {name: json.loads(text) for name, text in read}
        open_ = [name for name, status in steps.items() if status == "failed"]
        if open_:
            return self._mended(open_, steps, so_far)
        if not steps:
            return self._first(goal, most)
        if "chain" in goal and not any(name.startswith("total") for name in steps):
            last = [*done.values()][-1]
            then = [*last.values()][-1].get("next", "") if last else ""
            if then and not self.slips():
                return _proposal([_reading([then])])
            return _proposal([_total(_reads(steps), "total")], final=True)
        return Data({"kind": "finish", "because": "all is there"})

    def _first(self, goal: str, most: int) -> Any:
        names = [name for name in _named(goal) if not self.slips()]
        worker = "reader" if self.slips() else "clerk"
        if "chain" in goal:
            reading = _reading(names[:1], worker)
            if most < UNITS["six"]:
                return _proposal([reading])
            reading["parameters"]["follow"] = True
            return _proposal([reading, _total([reading["id"]], "total")], final=True)
        groups = [names[at : at + most] for at in range(0, len(names), most)]
        made = [_reading(each, worker) for each in groups]
        made.append(_total([each["id"] for each in made], "total"))
        if "bill" in goal:
            bill = {"report": "${{ steps.total.data }}"}
            made.append(
                {"id": "bill", "worker": "send_bill", "parameters": bill, "depends_on": ["total"]}
            )
        return _proposal(made, final=True)

    def _mended(self, failed: list[str], steps: dict[str, str], told: str) -> Any:
        """Plan around steps that failed: somebody else reads, or what is missing is read."""
        made = []
        for number, name in enumerate(failed, len(steps)):
            said = told.rpartition(f"- {name}, attempt")[2].partition("\n- ")[0]
            if lost := re.search(r"records are missing: ([\w, ]+)", said):
                again = _reading(lost[1].split(", "), word="again")
                total = _total([*_reads(steps), again["id"]], f"total-{number}")
                made += [again, {**total, "supersedes": name}]
            elif name.startswith("read-"):  # somebody else may read it
                step = _reading(name.split("-")[1:], "archivist", "other")
                made.append({**step, "supersedes": name})
            else:
                return Data({"kind": "give_up", "because": "", "reason": f"{name} cannot be done"})
        return _proposal(made, final=True)


def _reads(steps: dict[str, str]) -> list[str]:
    """Return the steps that read something."""
    kinds = ("read-", "again-", "other-")
    return [name for name, how in steps.items() if name.startswith(kinds) and how == "succeeded"]


def _given(call: Any) -> dict[str, Any]:
    found = call.arguments
    return json.loads(found) if isinstance(found, str) else dict(found)


def _named(text: str) -> list[str]:
    """Return the records that a text names: a list, a range, one."""
    if listed := re.search(r"records: (\[.*?\])", text):
        return [*json.loads(listed[1])]
    if found := re.search(r"records? (\w)(\d\d) to \w(\d\d)", text):
        first, last = int(found[2]), int(found[3])
        return [f"{found[1]}{number:02}" for number in range(first, last + 1)]
    return re.findall(r"\b[a-l]\d\d\b", text)[:1]


def _reading(names: list[str], worker: str = "clerk", word: str = "read") -> dict[str, Any]:
    """Return a step that reads records; its id names them, so that it can be done again."""
    given = {"records": names}
    return {"id": "-".join([word, *names]), "worker": worker, "parameters": given}


def _total(parts: list[str], ident: str) -> dict[str, Any]:
    given = {"parts": [f"${{{{ steps.{part}.data }}}}" for part in parts]}
    return {"id": ident, "worker": "compile_report", "parameters": given, "depends_on": parts}


def _proposal(steps: list[dict[str, Any]], *, final: bool = False) -> Any:
    return Data({"kind": "propose", "because": "as asked", "steps": steps, "final": final})


def answering() -> Any:
    """Return the script of an endpoint: both models, whoever is named."""
    seen: Counter[str] = Counter()

    def script(request: Any) -> Any:
        asked = json.dumps(request.body, sort_keys=True)
        seen[asked] += 1
        chance = Random(f"{request.model}/{seen[asked]}/{asked}")  # noqa: S311 - to be repeated
        if request.model not in SLIP:
            return Say(f"there is no model {request.model}")
        model = Model(request.model, chance)
        return model.read(request) if request.tools else model.plan(request)

    return script


async def main() -> None:
    """Answer until interrupted."""
    async with Endpoint(answering(), port=PORT) as endpoint:
        sys.stdout.write(f"{endpoint.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
