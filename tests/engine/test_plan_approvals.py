"""An approval is of exactly what runs: any change voids it, and no mere spelling does.

`APPROVALS=1000 pytest tests/engine/test_plan_approvals.py` draws all 1,000 mutations and 1,000
spellings; without it a slice is drawn. `SEED` draws others.
"""

import asyncio
import copy
import json
import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from leadhand import Approval, Lead, LeadhandError, PlanInvalid, Policy, Rule, worker
from leadhand.app.approvals import approval_of
from leadhand.audit.keys import PrivateKey
from leadhand.codec.documents import read_document, write_yaml
from leadhand.core.lint.plan import lint
from leadhand.errors import Conflict, NotAllowed, UsageError
from leadhand.stores.memory import MemoryStore
from leadhand.workers.declared import declared_workers
from leadhand.workers.registry import Registry

COUNT = int(os.environ.get("APPROVALS", "150"))
SEED = int(os.environ.get("SEED", "1"))
RAN: list[str] = []

PLAN = {
    "plan_id": "deploy-auth",
    "goal": "Deploy the café's service",
    "params": {"version": {"type": "string"}, "replicas": {"default": 3}},
    "risk_level": "high",
    "budget": 10,
    "steps": [
        {
            "id": "deploy",
            "worker": "ship",
            "alternatives": ["tool"],
            "parameters": {
                "argv": ["deploy", "--env=staging", "${{ params.version }}"],
                "env": {"REGION": "eu-west", "naïve": "é"},
                "count": 3,
                "share": 0.5,
            },
            "timeout": "5m",
        },
        {
            "id": "notify",
            "worker": "ship",
            "parameters": {
                "argv": ["mail", "ops@example.com"],
                "env": {},
                "count": 1,
                "share": 1.5,
            },
        },
        {
            "id": "check",
            "worker": "ship",
            "depends_on": ["deploy"],
            "parameters": {"argv": ["probe"], "env": {"A": "b"}, "count": 0, "share": 0.25},
            "success_criteria": "data == 'done'",
        },
    ],
}
PARAMS = {"version": "v2.1.4"}


def ships(version: str = "1") -> object:
    @worker(name="ship", version=version)
    async def ship(argv: list[str], env: dict[str, str], count: int, share: float) -> str:
        """Do it, and be seen."""
        RAN.append(argv[0])
        return "done"

    return ship


def registry(version: str = "1", **more: object) -> Registry:
    table = {"command": ["true", "{argv}"], "env": ["HOME"], **more}
    return Registry([ships(version), *declared_workers({"tool": table}, Path.cwd())])


def lead_of(**more: object) -> Lead:
    return Lead(registry(), store=MemoryStore(), actor="ann", **more)


@pytest.fixture(autouse=True)
def nothing_ran():
    RAN.clear()


# --- mutations -----------------------------------------------------------------------------

ALIKE = dict(
    zip("aeopcxi-s", "\u0430\u0435\u043e\u0440\u0441\u0445\u0456\u2010\u0455", strict=True)
)
SPACES = (" ", "\t", "\u00a0", "\u200b", "\n", "\u202e")


def texts(doc):
    """Every place in the steps that holds a text: its holder and key."""
    found, rest = [], [step["parameters"] for step in doc["steps"]]
    while rest:
        each = rest.pop()
        for key, value in each.items() if isinstance(each, dict) else enumerate(each):
            if isinstance(value, str):
                found.append((each, key))
            elif isinstance(value, dict | list):
                rest.append(value)
    return found


class Case:
    """What is about to be run, and with which approval."""

    def __init__(self, lead: Lead, rng: random.Random) -> None:
        self.rng, self.lead = rng, lead
        self.plan, self.params = copy.deepcopy(PLAN), dict(PARAMS)
        self.context, self.registry, self.policy = "staging", lead.registry, lead.policy
        self.approval = lead.approve(PLAN, params=PARAMS, context="staging", expires="8 hours")

    async def run(self) -> None:
        before = self.lead.registry, self.lead.policy
        self.lead.registry, self.lead.policy = self.registry, self.policy
        try:
            await self.lead.run(
                self.plan, params=self.params, approval=self.approval, context=self.context
            )
        finally:
            self.lead.registry, self.lead.policy = before

    def text(self) -> tuple[object, object, str]:
        holder, key = self.rng.choice(texts(self.plan))
        return holder, key, holder[key]

    # Each of these changes one thing.

    def argument(self) -> None:
        holder, key, old = self.text()
        place = self.rng.randrange(len(old) + 1)
        new = old[:place] + self.rng.choice("abz0-/;$") + old[place + self.rng.randrange(2) :]
        holder[key] = new if new != old else f"{old}!"

    def number(self) -> None:
        step = self.rng.choice(self.plan["steps"])["parameters"]
        name = self.rng.choice(["count", "share"])
        step[name] += self.rng.choice([1, -1, 1_000_000])

    def spaces(self) -> None:
        holder, key, old = self.text()
        space = self.rng.choice(SPACES) * self.rng.randint(1, 3)
        place = self.rng.choice([0, len(old), self.rng.randint(0, len(old))])
        holder[key] = old[:place] + space + old[place:]

    def look_alike(self) -> None:
        holder, key, old = self.text()
        places = [i for i, char in enumerate(old) if char in ALIKE]
        if not places:
            self.plan["steps"][0]["parameters"]["env"]["naïve"] = "e\u0301"  # é in two
            return
        i = self.rng.choice(places)
        holder[key] = old[:i] + ALIKE[old[i]] + old[i + 1 :]

    def environment(self) -> None:
        env = self.rng.choice(self.plan["steps"])["parameters"]["env"]
        env[self.rng.choice(["LD_PRELOAD", "PATH", "region"])] = "x"

    def place(self) -> None:
        self.context = self.rng.choice(["", "production", "Staging", "staging "])

    def worker_version(self) -> None:
        choices = [
            lambda: registry(str(self.rng.randint(2, 99))),
            lambda: registry(env=["HOME", "TOKEN"]),
            lambda: registry(command=["true", "-x", "{argv}"]),
        ]
        self.registry = self.rng.choice(choices)()

    def order(self) -> None:
        steps = self.plan["steps"]
        i, j = self.rng.sample(range(len(steps)), 2)
        steps[i], steps[j] = steps[j], steps[i]

    def structure(self) -> None:
        steps = self.plan["steps"]
        match self.rng.randrange(6):
            case 0:
                steps[1]["depends_on"] = ["deploy"]
            case 1:
                del steps[2]["depends_on"]
            case 2:
                steps.append({**steps[1], "id": "more"})
            case 3:
                del steps[1]
            case 4:
                steps[0].pop("alternatives")
            case _:
                steps[self.rng.randrange(3)]["timeout"] = f"{self.rng.randint(6, 99)}m"

    def head(self) -> None:
        changes = [
            ("budget", 11),
            ("risk_level", "low"),
            ("plan_id", "deploy-auth "),
            ("final", False),
        ]
        name, value = self.rng.choice([*changes, ("goal", "Deploy"), ("rollback_plan", "other")])
        self.plan[name] = value

    def parameter(self) -> None:
        self.params = self.rng.choice(
            [{"version": "v2.1.5"}, {"version": "v2.1.4 "}, {**PARAMS, "replicas": 4}]
        )

    def expiry(self) -> None:
        given = self.approval
        if self.rng.randrange(2):
            later = self.rng.choice([0, given.expires + 3_600_000_000])
            self.approval = msgspec.structs.replace(given, expires=later)
            return
        catalog = self.lead.registry.catalog()
        values = {**PARAMS, "replicas": 3}
        ended = self.rng.randint(2, 10**15)
        self.approval = approval_of(
            PLAN, values, catalog, Policy(), actor="ann", now=1, expires=ended, context="staging"
        )

    def limits(self) -> None:
        looser = [
            {"max_concurrency": 101},
            {"attempts_max": 4},
            {"timeout_s": 1e9},
            {"auto_risk": "critical"},
            {"rules": (Rule(workers=("ship",), then="allow"),)},
        ]
        self.policy = msgspec.structs.replace(self.policy, **self.rng.choice(looser))

    def tampered(self) -> None:
        name = self.rng.choice(["id", "actor", "binding", "reason", "given", "seal"])
        value = 7 if name == "given" else os.urandom(32).hex()
        self.approval = msgspec.structs.replace(self.approval, **{name: value})


MUTATIONS = [
    name
    for name, each in vars(Case).items()
    if callable(each) and name not in ("__init__", "run", "text")
]


async def test_no_changed_plan_runs():
    """Of the mutations of an approved plan, none runs; each is refused, and nothing is used up."""
    rng, kinds = random.Random(SEED), Counter()
    lead = lead_of()
    async with lead.hosting() as host:
        for number in range(COUNT):
            name = [*MUTATIONS, "replay"][number % (len(MUTATIONS) + 1)]
            case = Case(lead, rng)
            if name == "replay":
                await case.run()
                assert RAN, "the first time it runs"
                RAN.clear()
            else:
                getattr(case, name)()
            with pytest.raises((Conflict, PlanInvalid)):
                await case.run()
            assert not RAN, (name, case.plan)
            kinds[name] += 1
        assert len(host.shared.used) == kinds["replay"]
    assert sum(kinds.values()) == COUNT
    assert len(kinds) == len(MUTATIONS) + 1


# --- spellings -----------------------------------------------------------------------------


def shuffled(value, rng):
    """The same value with its keys in another order."""
    if isinstance(value, dict):
        keys = rng.sample(list(value), len(value))
        return {key: shuffled(value[key], rng) for key in keys}
    return [shuffled(each, rng) for each in value] if isinstance(value, list) else value


def spelt(doc, rng, folder, number):
    """The same plan in a file, written in another way."""
    doc = shuffled(doc, rng)
    if rng.randrange(2):
        text = write_yaml(doc)
        text = "".join(f"# {rng.randrange(9)}\n" for _ in range(rng.randrange(3))) + text + "\n"
        path = folder / f"{number}.yaml"
    else:
        text = json.dumps(
            doc,
            indent=rng.choice([None, 0, 1, 2, "\t"]),
            ensure_ascii=bool(rng.randrange(2)),
            separators=rng.choice([(",", ":"), (" , ", " : "), (",\n", ": ")]),
        )
        text = rng.choice(["", "\n\n", "  "]) + text + rng.choice(["", "\n", " \r\n"])
        path = folder / f"{number}.json"
    if rng.randrange(4) == 0:
        text = text.replace("\n", "\r\n") if path.suffix == ".json" else text
    path.write_text(text, encoding="utf-8", newline="")
    return path


async def test_every_spelling_of_an_approved_plan_runs(tmp_path):
    """Key order, white space, escapes, YAML for JSON: the plan is the same, and runs."""
    rng, lead = random.Random(SEED), lead_of()
    async with lead.hosting():
        for number in range(COUNT):
            approval = lead.approve(PLAN, params=PARAMS, expires="8 hours")
            path = spelt(PLAN, rng, tmp_path, number)
            assert read_document(path) == PLAN
            again = Approval.from_doc(json.loads(json.dumps(approval.to_doc())))
            outcome = await lead.run(path, params=PARAMS, approval=again)
            assert outcome.status == "succeeded", (path.read_text(), outcome.reason)
    assert len(RAN) == 3 * COUNT


def test_the_plan_of_these_tests_is_a_good_one():
    """Otherwise nothing would run for another reason."""
    assert not [each for each in lint(PLAN, registry().catalog()) if each.level == "error"]


# --- the rest ------------------------------------------------------------------------------


def test_an_approval_that_was_used_stays_so_after_a_restart(tmp_path):
    """It is written down before the run starts, in the host's own stream."""
    lead = Lead(registry(), store=tmp_path / "a.db", actor="ann")
    approval = lead.approve(PLAN, params=PARAMS)
    outcome = lead.run_sync(PLAN, params=PARAMS, approval=approval)
    assert outcome.ok
    RAN.clear()
    later = Lead(registry(), store=tmp_path / "a.db", actor="bob")
    with pytest.raises(Conflict, match=f"was used by run {outcome.run}"):
        later.run_sync(PLAN, params=PARAMS, approval=approval)
    assert not RAN


async def test_two_starts_at_once_use_one_approval_once():
    """However close they come."""
    lead = lead_of()
    approval = lead.approve(PLAN, params=PARAMS)
    async with lead.hosting():
        both = await asyncio.gather(
            *(lead.run(PLAN, params=PARAMS, approval=approval) for _ in range(5)),
            return_exceptions=True,
        )
    assert Counter(type(each).__name__ for each in both) == {"Outcome": 1, "Conflict": 4}
    assert len(RAN) == 3


async def test_a_run_may_be_tighter_than_what_was_approved_and_never_looser():
    """A budget of 5 was allowed: 3 will do, 500 will not, and neither will none."""
    plan = {key: value for key, value in PLAN.items() if key != "budget"}
    lead = lead_of(policy=Policy(budget=5.0))
    async with lead.hosting():
        given = lead.approve(plan, params=PARAMS)
        for looser, said in ((500.0, "budget 500 instead of 5"), (None, "budget without limit")):
            lead.policy = Policy(budget=looser)
            with pytest.raises(Conflict, match=said):
                await lead.run(plan, params=PARAMS, approval=given)
        assert not RAN
        lead.policy = Policy(budget=3.0, attempts_max=1)
        assert (await lead.run(plan, params=PARAMS, approval=given)).ok
        lead.policy = Policy()
        given = lead.approve(PLAN, params=PARAMS)  # which says itself that 10 is the most
        lead.policy = Policy(budget=500.0)
        assert (await lead.run(PLAN, params=PARAMS, approval=given)).ok


async def test_one_of_two_people_is_not_enough_beforehand():
    """The run waits for the other; two approvals let it go."""
    policy = Policy(rules=(Rule(risk="high", then="two"),))
    ann = lead_of(policy=policy)
    bob = Lead(registry(), store=MemoryStore(), actor="bob")
    async with ann.hosting():
        outcome = await ann.run(PLAN, params=PARAMS, approval=ann.approve(PLAN, params=PARAMS))
        assert (outcome.status, RAN) == ("waiting", [])
        shown = await ann.review(outcome.run)
        assert [each.by for each in shown.approvals] == ["ann"]
        both = [ann.approve(PLAN, params=PARAMS), bob.approve(PLAN, params=PARAMS)]
        assert (await ann.run(PLAN, params=PARAMS, approval=both)).ok
        twice = [ann.approve(PLAN, params=PARAMS) for _ in range(2)]
        with pytest.raises(UsageError, match="two of the approvals are by ann"):
            await ann.run(PLAN, params=PARAMS, approval=twice)


async def test_what_a_reviewer_finds_was_not_approved():
    """It waits, though a person approved the plan: they did not see the finding."""
    lead = lead_of(reviewers=[lambda revision: ["looks odd"]])
    async with lead.hosting():
        outcome = await lead.run(PLAN, params=PARAMS, approval=lead.approve(PLAN, params=PARAMS))
    assert (outcome.status, RAN) == ("waiting", [])


def test_when_an_approval_ends():
    """A length of time, or an instant with its zone; not one that is over."""
    lead = lead_of(policy=Policy(approval_s=60.0))
    soon = datetime.now(UTC) + timedelta(hours=1)
    given = lead.approve(PLAN, params=PARAMS, expires=soon)
    assert given.expires == int(soon.timestamp() * 1e6)
    plain = lead.approve(PLAN, params=PARAMS)
    assert 59e6 < plain.expires - plain.given <= 60e6
    for wrong in ("soon", datetime(2030, 1, 1), timedelta(seconds=-1)):  # noqa: DTZ001 - on purpose
        with pytest.raises(UsageError):
            lead.approve(PLAN, params=PARAMS, expires=wrong)


@pytest.mark.parametrize("doc", [{}, [], "x", {"form": "leadhand approval 2"}, {"id": 3}])
def test_what_is_no_approval(doc):
    """A usage error, whatever it is."""
    with pytest.raises(UsageError, match="this is not an approval"):
        Approval.from_doc(doc)


async def test_only_signed_words_of_approvers_count():
    """In the engine: for approvals of plans, for answers, for `approve=True`."""
    pytest.importorskip("cryptography")
    ann, eve = PrivateKey.new(), PrivateKey.new()
    policy = Policy(approvers={"ann": f"ed25519:{ann.public.text}"})
    lead = lead_of(policy=policy)
    async with lead.hosting():
        for key in (None, eve):
            lead.key = key
            approval = lead.approve(PLAN, params=PARAMS)
            with pytest.raises(NotAllowed):
                await lead.run(PLAN, params=PARAMS, approval=approval)
            with pytest.raises(NotAllowed):
                await lead.run(PLAN, params=PARAMS, approve=True)
        waits = await lead.run(PLAN, params=PARAMS)
        with pytest.raises(NotAllowed):
            await lead.answer(waits.run, "review-1", "approve")
        assert not RAN
        lead.key = ann
        other = lead.approve(PLAN, params=PARAMS)
        stolen = msgspec.structs.replace(approval, signature=other.signature)
        with pytest.raises(NotAllowed):
            await lead.run(PLAN, params=PARAMS, approval=stolen)
        assert (await lead.run(PLAN, params=PARAMS, approve=True)).ok
        good = lead.approve(PLAN, params=PARAMS, expires="1h")
        assert (await lead.run(PLAN, params=PARAMS, approval=good)).ok
        await lead.answer(waits.run, "review-1", "approve", expires="1h")
        assert (await lead.resume(waits.run)).ok


async def test_amending_by_path_from_python():
    """A new revision, by whoever said so; what is shown is complete."""
    lead = lead_of()
    async with lead.hosting():
        waits = await lead.run(PLAN, params=PARAMS)
        await lead.amend(waits.run, {"steps.check.timeout": "9s"}, ["steps.deploy.timeout"])
        shown = await lead.review(waits.run)
        assert shown.steps[2]["timeout"] == "9s"
        assert "timeout" not in shown.steps[0]
        with pytest.raises(LeadhandError, match="cannot change"):
            await lead.amend(waits.run, {"budget": 3})
        await lead.answer(waits.run, "review-2", "approve")
        assert (await lead.resume(waits.run)).ok
