"""What a standing fleet keeps: journal, transcripts, purse, the leave for what is protected."""

import asyncio
import json
import sys
import time
from dataclasses import replace

import pytest

from leadhand.core import commands
from leadhand.core.policy import Policy, Rule
from leadhand.core.views.inbox import inbox_row
from leadhand.errors import Conflict, NotAllowed, UsageError
from leadhand.fleet.agents import transcripts
from leadhand.fleet.agents.base import CoderEvent, CoderResult
from leadhand.fleet.budget import DAY_S, MICRO, Spending
from leadhand.fleet.gate.gate import GateRules
from leadhand.fleet.merge.conductor import Landed, QueuedChange
from leadhand.fleet.review import DiffTooLarge, opinion, patch_of
from leadhand.fleet.status import journal
from leadhand.fleet.status.evidence import Evidence
from tests.fleet.places import commit_all, run_git, write
from tests.fleet.standing import GATE, epic, noted, settled, standing


async def answer(fleet, ident, choice, text="", *, actor="ann", shown=None):
    run = fleet._runs[ident]
    (question,) = run.state.questions.values()
    said = {"text": text} if text else {}
    if choice == "approve":
        said["approval"] = {"shown": row(fleet, ident).commit if shown is None else shown}
    await run.submit_and_wait(
        lambda state, now: commands.answer(state, question.id, choice, actor, now, **said)
    )


def row(fleet, ident):
    """The one thing that waits, as page, terminal and API show it."""
    state = fleet._runs[ident].state
    (question,) = state.questions
    return inbox_row(state, question)


# --- the journal and the transcripts ---


async def test_agents_and_the_train_are_in_the_journal_and_words_in_transcripts(tmp_path, user):
    async with standing(tmp_path, user, '{"b": ["red"]}')() as fleet:
        ident = fleet.submit(epic(tmp_path, "first", "a", "b"))
        await settled(fleet)
    began = [(note["task"], note["attempt"]) for note in noted(tmp_path, "agent")]
    ended = [(note["task"], note["attempt"]) for note in noted(tmp_path, "agent ended")]
    assert sorted(began) == sorted(ended) == [("a", 1), ("b", 1), ("b", 2)]
    assert {note["task"] for note in noted(tmp_path, "landed")} == {"a", "b"}
    assert sum(note["size"] for note in noted(tmp_path, "moved")) == 2
    assert noted(tmp_path, "tested")
    folder = tmp_path / "fleet" / "transcripts"
    first, second = transcripts.attempts(folder, ident, "b")
    said = [line.get("text", "") for line in transcripts.all_lines(second)]
    assert "I begin with b" in said
    assert "abc123secret456" not in second.read_text(), "what looks like a secret is not kept"
    assert transcripts.all_lines(first)[-1]["kind"] == "ended"


async def test_nobody_is_sent_while_main_itself_is_red(tmp_path, user):
    """Every change would fail, and every agent be paid for it; people's own fix lets them start."""
    write(user, {"broken.py": "raise SystemExit(1)\n"})
    commit_all(user, "Break it")
    async with standing(tmp_path, user)() as fleet:
        fleet.submit(epic(tmp_path, "first", "a"))
        while not fleet.sound.log:
            await asyncio.sleep(0.05)
        assert "main itself does not pass" in fleet.sound.against
        await asyncio.sleep(0.3)
        assert noted(tmp_path, "agent") == []
        write(user, {"broken.py": "fine = True\n"})
        commit_all(user, "Mend it")
        await settled(fleet)
        assert fleet.sound.against == ""
    assert len(noted(tmp_path, "agent")) == 1
    looks = len(noted(tmp_path, "looked"))
    async with standing(tmp_path, user)() as fleet:
        fleet.submit(epic(tmp_path, "second", "b"))
        await settled(fleet)
    assert len(noted(tmp_path, "looked")) == looks, "what was seen green is not looked at again"


SPOILT = [
    "null",
    "[" * 100_000,
    '{"at": 1, "what": [1]}',
    '{"at": 1e30, "what": "agent"}',
    '{"at": 99999999999999999999999, "what": "agent"}',
    '{"at": NOW, "what": "agent ended", "cost": "much"}',
    '{"at": NOW, "what": "agent ended", "cost": NaN}',
    '{"at": NOW, "what": "moved", "size": "x"}',
    '{"at": NOW, "what": "tested"}',
    '{"at": NOW, "what": "pull request"}',
    '{"at": NOW, "what": "landed", "waited_s": null}',
]


async def test_what_is_spoilt_in_a_fleets_files_is_passed_over(tmp_path, user):
    """Neither the figures nor the next start end for it, and no later one either."""
    folder, opened = tmp_path / "fleet", standing(tmp_path, user)
    async with opened():
        pass
    lines = "\n".join(SPOILT).replace("NOW", str(time.time_ns() // 1000))
    with (folder / journal.NAME).open("a") as file:
        file.write(lines + "\n")
    flaky = '{"name": "x", "at": 1e30}\n[]\n' + "[" * 100_000
    (folder / "hub" / "flakes.jsonl").write_text(flaky)
    agent = {"run": "r", "task": "t", "attempt": 1, "coder": "c", "cost": "much"}
    (folder / "live.json").write_text(json.dumps({"agents": [agent]}))
    for _ in range(2):
        async with opened():
            document = await Evidence(folder).document()
        assert document["train"]["tests"] == 0
        assert document["spend"]["total"] == 0


def test_a_journal_that_was_cut_off_or_is_full_goes_on(tmp_path):
    with journal.Journal(tmp_path) as notes:
        notes.note("agent", task="a")
    with (tmp_path / journal.NAME).open("a") as file:
        file.write('{"at": 1, "wha')
    with journal.Journal(tmp_path, bytes_max=400) as notes:
        for number in range(12):
            notes.note("agent", task=f"t{number}")
    kept = journal.read(tmp_path)
    assert kept[-1]["what"] == "closed"
    assert [note["task"] for note in kept if note["what"] == "agent"][-1] == "t11"
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert size < 1200, "what is older than the older file is gone"


def test_a_transcript_is_bounded_and_keeps_the_newest_words(tmp_path):
    path = transcripts.place(tmp_path, "run", "task", 1)
    kept = transcripts.Transcript(path, bytes_max=2_000)
    for number in range(200):
        kept.heard(CoderEvent("text", text=f"word {number}"))
    kept.close()
    texts = [line["text"] for line in transcripts.all_lines(path)]
    assert texts[-1] == "word 199"
    assert len(texts) < 100
    transcripts.Transcript(transcripts.place(tmp_path, "run", "task", 2)).close()
    assert transcripts.prune(tmp_path, most=1) == 1
    assert len(transcripts.attempts(tmp_path, "run", "task")) == 1


# --- the purse ---


async def test_a_day_that_is_paid_for_starts_nobody_also_after_a_restart(tmp_path, user):
    opened = standing(tmp_path, user, '{"cost": 3.0}', daily=5.0, agents=1)
    async with opened() as fleet:
        fleet.submit(epic(tmp_path, "first", "a", "b", "c"))
        async with asyncio.timeout(30):
            while not fleet.shop.governor.held_back.endswith("midnight UTC"):
                await asyncio.sleep(0.05)
        assert len(noted(tmp_path, "agent")) == 2, "two cost six dollars; a third would be too much"
        assert (await fleet.status())["held_back"].startswith("6.00 of 5.00 dollars")
    async with opened() as again:
        async with asyncio.timeout(30):
            while not again.shop.governor.held_back.endswith("midnight UTC"):
                await asyncio.sleep(0.05)
        assert len(noted(tmp_path, "agent")) == 2


async def test_restarts_cost_a_task_that_waits_in_line_nothing(tmp_path, user):
    """However often a fleet is started and ended: it goes to the first agent, when there is one."""
    (tmp_path / "fleet").mkdir()
    spent = {"at": time.time_ns() // 1000, "what": "agent ended", "cost": 5.0}
    (tmp_path / "fleet" / journal.NAME).write_text(json.dumps(spent) + "\n")
    for _ in range(5):
        async with standing(tmp_path, user, daily=1.0)() as fleet:
            ident = fleet.submit(epic(tmp_path, "first", "a"))
            async with asyncio.timeout(30):
                while not fleet.shop.governor.waiting:
                    await asyncio.sleep(0.02)
    async with standing(tmp_path, user)() as fleet:
        await settled(fleet)
        (done,) = fleet._runs[ident].state.steps.values()
        assert (done.status, done.worker) == ("succeeded", "coder")
    assert len(noted(tmp_path, "agent")) == 1


def test_a_new_day_has_a_full_purse():
    now = [20_000 * DAY_S + 10.0]
    notes = [
        {"what": "agent ended", "at": int(now[0] - 20) * MICRO, "cost": 7.0},
        {"what": "agent ended", "at": int(now[0]) * MICRO, "cost": 2.0},
    ]
    purse = Spending(notes, clock=lambda: now[0])
    assert purse.today() == 2.0, "what was spent yesterday does not count"
    purse.add(1.0)
    assert purse.over(3.0)
    assert not purse.over(3.5)
    assert purse.over(3.5, running=0.6), "what agents at work have cost counts too"
    now[0] += DAY_S
    assert not purse.over(3.0)
    assert purse.today() == 0.0


# --- what is protected ---


async def commit_on_main(fleet, files):
    """Somebody else's change lands, as a person's own commits do."""
    hub = fleet.shop.hub
    index = hub.path / "index-of-the-test"
    await hub.git("read-tree", hub.main(), index=index)
    for name, text in files.items():
        blob = (await hub.git("hash-object", "-w", "--stdin", stdin=text.encode())).text
        await hub.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", index=index)
    tree = (await hub.git("write-tree", index=index)).text
    head = await hub.commit(tree, (hub.main(),), "other", {})
    change = QueuedChange(
        run="r", task=head[:9], attempt=1, base=hub.main(), head=head, goal="other"
    )
    landed = await fleet.shop.conductor.land(replace(change, joins=True))
    assert isinstance(landed, Landed)


GUARDED = {"protected": ("guarded/**",)}


async def test_a_protected_change_is_a_question_of_its_own_with_its_diff(tmp_path, user):
    async with standing(tmp_path, user, '{"a": ["guarded"]}', **GUARDED)() as fleet:
        ident = fleet.submit(epic(tmp_path, "first", "a"))
        await settled(fleet)
        asked = row(fleet, ident)
        assert (asked.kind, asked.answers) == (
            "protected_change",
            ["approve", "send_back", "drop"],
        )
        assert "+attempt = 1" in asked.diff
        assert asked.paths == ["guarded/a.py"]
        assert asked.commit[:12] in asked.text
        assert "retry" not in asked.text.lower()
        for choice, text, wrong in (
            ("retry", "", UsageError),
            ("skip", "", UsageError),
            ("send_back", " ", UsageError),
        ):
            with pytest.raises(wrong):
                await answer(fleet, ident, choice, text)
        with pytest.raises(UsageError, match="names the commit that was read"):
            await answer(fleet, ident, "approve", shown="")
        with pytest.raises(Conflict, match="not what was approved"):
            await answer(fleet, ident, "approve", shown="0" * 40)
        for nobody in ("policy", "nobody", ""):
            with pytest.raises(NotAllowed):
                await answer(fleet, ident, "approve", actor=nobody)
        assert not fleet.shop.hub.landed(ident, "a")


async def test_a_person_approves_exactly_the_change_that_they_saw(tmp_path, user):
    tricks = '{"a": ["guarded", "guarded"]}'
    async with standing(tmp_path, user, tricks, **GUARDED)() as fleet:
        ident = fleet.submit(epic(tmp_path, "first", "a"))
        await settled(fleet)
        await answer(fleet, ident, "approve", "looks right")
        await settled(fleet)
        sha = fleet.shop.hub.landed(ident, "a")
        assert sha
        git, log = fleet.shop.hub.git.folder, fleet._runs[ident].state
        assert [each["by"] for each in log.answers] == [["ann"]]
    assert len(noted(tmp_path, "agent")) == 1, "the agent is not sent again"
    assert run_git(git, "show", f"{sha}:guarded/a.py") == "attempt = 1"
    assert "Leadhand-Approved-by: ann" in run_git(git, "show", "-s", "--format=%B", sha)


async def test_a_change_that_is_sent_back_is_done_again_and_must_be_seen_again(tmp_path, user):
    tricks = '{"a": ["guarded", "guarded"]}'
    async with standing(tmp_path, user, tricks, **GUARDED)() as fleet:
        ident = fleet.submit(epic(tmp_path, "first", "a"))
        await settled(fleet)
        first = row(fleet, ident).commit
        await answer(fleet, ident, "send_back", "not like this")
        await settled(fleet)
        assert len(noted(tmp_path, "agent")) == 2
        assert row(fleet, ident).commit != first
        with pytest.raises(Conflict, match="not what was approved"):
            await answer(fleet, ident, "approve", shown=first)
        assert not fleet.shop.hub.landed(ident, "a")
        context = fleet._runs[ident].state.answers[-1]
        assert (context["choice"], context["text"]) == ("send_back", "not like this")


async def test_a_change_that_is_dropped_does_not_land_and_the_others_do(tmp_path, user):
    async with standing(tmp_path, user, '{"a": ["guarded"]}', **GUARDED)() as fleet:
        ident = fleet.submit(epic(tmp_path, "first", "a", "b"))
        await settled(fleet)
        await answer(fleet, ident, "drop", "we do not want it")
        await settled(fleet)
        assert not fleet.shop.hub.landed(ident, "a")
        assert fleet.shop.hub.landed(ident, "b")
        assert fleet._runs[ident].state.steps["a"].status == "skipped"


async def test_two_people_where_the_rule_says_two(tmp_path, user):
    two = Policy(
        backoff_s=0.01, jitter=0.0, rules=(Rule(effects=("protected_change",), then="two"),)
    )
    opened = standing(tmp_path, user, '{"a": ["guarded"]}', policy=two, **GUARDED)
    async with opened() as fleet:
        ident = fleet.submit(epic(tmp_path, "first", "a"))
        await settled(fleet)
        assert row(fleet, ident).people == 2
        await answer(fleet, ident, "approve")
        await settled(fleet)
        assert row(fleet, ident).approved_by == ["ann"]
        for same in ("ann", "Ann"):
            with pytest.raises(Conflict, match="different people"):
                await answer(fleet, ident, "approve", actor=same)
        assert not fleet.shop.hub.landed(ident, "a")
        await answer(fleet, ident, "approve", actor="ben")
        await settled(fleet)
        assert fleet.shop.hub.landed(ident, "a")


async def test_an_approval_does_not_carry_over_to_another_difference(tmp_path, user):
    """Main moves between the look and the answer: what would land now is not what was seen."""
    async with standing(tmp_path, user, '{"a": ["guarded"]}', **GUARDED)() as fleet:
        hub = fleet.shop.hub
        ident = fleet.submit(epic(tmp_path, "first", "a"))
        await settled(fleet)
        seen = row(fleet, ident)
        await commit_on_main(fleet, {"guarded/a.py": "attempt = 1\n", "guarded/x": "x\n"})
        await commit_on_main(fleet, {"guarded/a.py": "somebody = 'else'\nattempt = 0\n"})
        await answer(fleet, ident, "approve", shown=seen.commit)
        await settled(fleet)
        kept = run_git(hub.git.folder, "show", f"{hub.main()}:guarded/a.py")
        assert kept.startswith("somebody = 'else'"), "in conflict: back to the agent"


async def test_main_that_moves_elsewhere_leaves_an_approval_as_it_is(tmp_path, user):
    async with standing(tmp_path, user, '{"a": ["guarded"]}', **GUARDED)() as fleet:
        hub = fleet.shop.hub
        ident = fleet.submit(epic(tmp_path, "first", "a"))
        await settled(fleet)
        await commit_on_main(fleet, {"elsewhere": "x\n"})
        await answer(fleet, ident, "approve")
        await settled(fleet)
        assert hub.landed(ident, "a")


async def test_the_same_lines_on_another_file_are_shown_again(tmp_path, user):
    tricks = json.dumps({"a": ["append"] * 3})
    (user / "guarded").mkdir()
    (user / "guarded" / "a.py").write_text("".join(f"line{n} = {n}\n" for n in range(40)))
    commit_all(user, "more")
    async with standing(tmp_path, user, tricks, **GUARDED)() as fleet:
        hub = fleet.shop.hub
        ident = fleet.submit(epic(tmp_path, "first", "a"))
        await settled(fleet)
        seen = row(fleet, ident)
        changed = "first = 1\n" + (user / "guarded" / "a.py").read_text()
        await commit_on_main(fleet, {"guarded/a.py": changed})
        await answer(fleet, ident, "approve")
        await settled(fleet)
        again = row(fleet, ident)
        assert again.commit != seen.commit
        assert "not what would land now" in again.text
        assert not hub.landed(ident, "a")
        await answer(fleet, ident, "approve")
        await settled(fleet)
        sha = hub.landed(ident, "a")
        assert run_git(hub.git.folder, "show", f"{sha}:guarded/a.py").startswith("first = 1")
    assert len(noted(tmp_path, "agent")) == 1


@pytest.mark.parametrize(
    ("said", "lands"),
    [
        ("Looks right.\nAPPROVE: small", True),
        ("REJECT: it weakens the gate", False),
        ("Hm.", False),
    ],
)
async def test_the_coder_that_is_named_reviews_what_is_protected(tmp_path, user, said, lands):
    tricks = json.dumps({"a": ["guarded"] * 9, "review": said})
    opened = standing(tmp_path, user, tricks, protected=("guarded/**",), reviewer="big")
    async with opened() as fleet:
        ident = fleet.submit(epic(tmp_path, "first", "a", "b"))
        await settled(fleet)
        assert bool(fleet.shop.hub.landed(ident, "a")) is lands
        assert fleet.shop.hub.landed(ident, "b"), "what is not protected needs no review"


async def test_nobody_reviews_what_it_wrote_itself(tmp_path, user):
    more = {"protected": ("guarded/**",), "reviewer": "big"}
    opened = standing(tmp_path, user, '{"a": ["guarded"]}', **more)
    path = epic(tmp_path, "first", "a")
    path.write_text(path.read_text().replace("{id: a,", "{id: a, tier: big,"))
    async with opened() as fleet:
        ident = fleet.submit(path)
        await settled(fleet)
        assert fleet.questions(ident) == ["a"], "a person is asked"
        assert not fleet.shop.hub.landed(ident, "a")
    assert [note["coder"] for note in noted(tmp_path, "agent")] == ["big"]
    assert noted(tmp_path, "reviewed") == []


async def test_a_reviewer_sees_every_line_whatever_bytes_a_file_has(hub, slots):
    async with slots.lease(hub.main()) as slot:
        (slot.path / "gate.sh").write_bytes(b"exit 0\n\0\x1b\xff\n")
        (slot.path / ".gitattributes").write_text("*.txt -diff\n")
        (slot.path / "a.txt").write_text("hidden?\n")
        taken = await slot.take("x")
        patch = await patch_of(hub, slot.base, taken.head, ["gate.sh"])
        assert "+exit 0\n+\\x00\\x1b\\xff\n" in patch
        assert "+hidden?" in patch
        (slot.path / "gate.sh").write_bytes(b"\0" * 70_000)
        taken = await slot.take("x")
        with pytest.raises(DiffTooLarge):
            await patch_of(hub, slot.base, taken.head, ["gate.sh"])


def test_only_a_plain_approval_is_one():
    def said(text, **more):
        return opinion(CoderResult(ended="result", said=text, **more)).approved

    assert said("APPROVE")
    assert said("REJECT at first\n**APPROVE** now")
    assert not said("I would APPROVE it")
    assert not said("APPROVE\nREJECT: no")
    assert not said("APPROVED")
    assert not said("APPROVE", failure="timeout")


async def test_slots_are_prepared_by_the_setup_and_that_is_not_the_agents_work(tmp_path, user):
    setup = (sys.executable, "-c", "open('made.txt', 'w').write('by the set-up')")
    check = f"{GATE}; assert pathlib.Path('made.txt').exists()"
    gate = GateRules(commands=((sys.executable, "-c", check),), setup=(setup,))
    async with standing(tmp_path, user, gate=gate)() as fleet:
        ident = fleet.submit(epic(tmp_path, "first", "a"))
        await settled(fleet)
        sha = fleet.shop.hub.landed(ident, "a")
        git = fleet.shop.hub.git.folder
    assert "made.txt" not in run_git(git, "ls-tree", "-r", "--name-only", sha)
