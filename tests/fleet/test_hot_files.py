"""Files that many tasks write: changelogs keep all lines, and nobody is sent back for them."""

import json
import sys
import textwrap

import msgspec
import pytest

from leadhand import Lead, Policy
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.boundaries import Sharing
from leadhand.fleet.context import AttemptLimits
from leadhand.fleet.epics import parse_epic, plan_of
from leadhand.fleet.settings import APPEND
from leadhand.fleet.worker import coder_workers
from leadhand.stores.memory import MemoryStore
from tests.fleet.places import commit_all, write

AGENT = textwrap.dedent(
    """
    import json, pathlib, sys
    task = sys.argv[1]
    log = pathlib.Path("CHANGELOG.md")
    log.write_text(log.read_text() + f"- {task}\\n")
    pathlib.Path(f"{task}.py").write_text(f"name = {task!r}\\n")
    print(json.dumps({"type": "result", "text": "done"}), flush=True)
    """
)


def plan(names):
    tasks = "\n".join(
        f"  - {{id: {n}, goal: write the module {n}, writes: [{n}.py, CHANGELOG.md],"
        f" acceptance: [[{sys.executable}, {n}.py]]}}"
        for n in names
    )
    epic = parse_epic(f"# Modules\n```yaml\ntasks:\n{tasks}\n```\n", "e", "e.md")
    return plan_of(epic, sharing=Sharing(APPEND))


@pytest.fixture
def user(user):
    """A repository with a changelog."""
    write(user, {"CHANGELOG.md": "# Changes\n\n- begun\n"})
    commit_all(user, "a changelog")
    return user


async def test_eight_tasks_that_write_the_changelog_work_at_once_and_all_land(fleet, tmp_path):
    shop, processes = fleet
    shop.sharing = Sharing(APPEND)
    shop.hub.keep_all_lines(APPEND)
    (tmp_path / "agent.py").write_text(AGENT)
    command = [sys.executable, str(tmp_path / "agent.py"), "{task}"]
    coder = TemplateCoder("scripted", command, processes=processes, homes=tmp_path / "homes")
    crew = coder_workers(shop, [("coder", coder, "")], AttemptLimits(time_s=60, silence_s=50))
    names, store = [f"t{n}" for n in range(8)], MemoryStore()
    outcome = await Lead(crew, store=store, policy=Policy()).run(plan(names))
    assert outcome.status == "succeeded", outcome
    assert {step.attempts for step in outcome.steps} == {1}
    bodies = [msgspec.json.decode(entry.body) for entry in store.read(outcome.run)]
    assert all(body["met"] for body in bodies if body["type"] == "AttemptReported")
    main = shop.hub.main()
    text = (await shop.hub.git("show", f"{main}:CHANGELOG.md")).text
    assert sorted(line for line in text.splitlines() if line.startswith("- t")) == [
        f"- {name}" for name in names
    ]
    assert shop.governor.peak > 1, "they did not wait for each other"


async def test_other_files_still_conflict(hub, slots):
    hub.keep_all_lines(["CHANGELOG*", "docs/my log.md"])
    base = hub.main()
    heads = []
    for words in ("one", "two"):
        async with slots.lease(base) as slot:
            for name in ("CHANGELOG.md", "docs/my log.md", "src.py"):
                (slot.path / name).parent.mkdir(exist_ok=True)
                (slot.path / name).write_text(f"{words}\n")
            taken = await slot.take("change\n", "a <a@localhost>")
            heads.append(taken.head)
    merged = await hub.merge(heads[0], heads[1], base)
    assert merged.tree is None
    assert list(merged.conflicts) == ["src.py"]


def test_the_names_of_changelogs_are_the_default():
    text = json.dumps(APPEND)
    for name in ("CHANGELOG", "CHANGES", "HISTORY", "NEWS"):
        assert f'"{name}*"' in text
        assert f'"**/{name}*"' in text
