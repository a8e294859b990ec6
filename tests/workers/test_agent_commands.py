"""CommandTool: argument lists that begin as allowed, under the host's supervisor."""

import asyncio
import sys
from pathlib import Path

import pytest

from leadhand import Agent, CommandTool, Lead, Policy
from leadhand.core import commands
from leadhand.errors import UsageError
from leadhand.models.messages import Result
from leadhand.stores.memory import MemoryStore
from tests.support.scripts import calls
from tests.support.scripts import model as scripted

PYTHON = [sys.executable, "-c"]


async def said(tool, *argvs):
    """What the model was told of these commands."""
    model = scripted([*[calls("command", argv=list(argv)) for argv in argvs], "done"])
    agent = Agent("hand", model, tools=[tool])
    lead = Lead(workers=[agent], store=MemoryStore(), policy=Policy(attempts_max=1))
    outcome = await lead.run({"goal": "g", "steps": [{"id": "one", "worker": "hand"}]})
    assert outcome.status == "succeeded"
    return [each.text for each in model.requests[-1].turns if isinstance(each, Result)]


async def test_an_allowed_command_runs_and_another_does_not(tmp_path):
    tool = CommandTool(allow=[[*PYTHON, "print(6*7)"]], cwd=tmp_path)
    made = tmp_path / "made"
    ran, other, shell = await said(
        tool,
        [*PYTHON, "print(6*7)"],
        [*PYTHON, f"open({str(made)!r}, 'w')"],
        [*PYTHON, "print(6*7); print(1)"],
    )
    assert '"stdout":"42\\n"' in ran
    assert "is not allowed" in other
    assert "is not allowed" in shell
    assert not made.exists()


async def test_there_is_no_shell(tmp_path):
    tool = CommandTool(allow=[["echo", "a"]], cwd=tmp_path)
    (ran,) = await said(tool, ["echo", "a", ";", "touch", "x", "$(id)"])
    assert "a ; touch x $(id)" in ran
    assert list(tmp_path.iterdir()) == []


async def test_secrets_of_the_host_are_not_inherited(monkeypatch):
    monkeypatch.setenv("THE_TOKEN", "word")
    monkeypatch.setenv("THE_NAME", "ada")
    code = "import os; print(os.environ.get('THE_TOKEN'), os.environ.get('THE_NAME'))"
    (ran,) = await said(CommandTool(allow=[[*PYTHON, code]], env=["THE_NAME"]), [*PYTHON, code])
    assert "None ada" in ran


async def test_output_and_time_are_bounded():
    tool = CommandTool(allow=[PYTHON], timeout=0.5, output_bytes=1000)
    long, late = await said(
        tool, [*PYTHON, "print('x' * 100_000)"], [*PYTHON, "import time; time.sleep(60)"]
    )
    assert len(long) < 5000
    assert "bytes left out" in long
    assert "did not end within 0.5 s" in late


async def test_a_cancelled_attempt_leaves_no_command_behind(tmp_path):
    mark = tmp_path / "pid"
    code = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    model = scripted([calls("command", argv=[*PYTHON, code])])
    agent = Agent("hand", model, tools=[CommandTool(allow=[PYTHON], timeout=600)])
    lead = Lead(workers=[agent], store=MemoryStore())
    async with lead.hosting() as host:
        run = await lead.begin(host, {"goal": "g", "steps": [{"id": "one", "worker": "hand"}]})
        async with asyncio.timeout(30):
            while not (mark.exists() and mark.read_text()):
                await asyncio.sleep(0.02)
            await run.submit_and_wait(lambda s, now: commands.cancel(s, "ada", "enough", now))
            assert await run.wait_idle() == "cancelled"
    assert not _runs(int(mark.read_text()))


def _runs(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("allow", [[], [[]], ["git status"], [["git", ""]]])
def test_an_allow_list_names_commands(allow):
    with pytest.raises(UsageError, match="allow"):
        CommandTool(allow=allow)


HARMFUL = [
    "--output=made",
    "--output",
    "--outp=made",
    "-omade",
    "-o",
    "--exec=touch made",
    "-exec",
    "-c",
    "-ccore.pager=touch",
    "--upload-pack=touch made",
    "--ext-diff",
    "--config=made",
    "--to-command=touch",
    "-O/tmp/made",
    "--oneline --output=made",
    "@made",
    "+!touch made",
    "SHELL=./made",
    "of=made",
    "--max-count",
]


async def test_the_documented_git_log_writes_no_file(tmp_path):
    """A model that looks at a log chooses `--output`: any text into any file of the host."""
    await _git(tmp_path, "init", "-q")
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    await _git(tmp_path, *author, "commit", "-q", "--allow-empty", "-m", "first")
    options = ["--oneline", "--max-count=*"]
    tool = CommandTool(allow=[["git", "log"]], options=options, cwd=tmp_path, effects=())
    made = tmp_path / "made"
    log = ["git", "log"]
    asked = [[*log, f"--output={made}", "--format=evil"], [*log, "--outp", str(made)]]
    asked += [[*log, "--oneline", "--max-count=1", "HEAD"], [*log, "--", "-x"]]
    first, second, fine, after = await said(tool, *asked)
    for text in (first, second, after):
        assert "is not allowed" in text
        assert "--oneline, --max-count=*" in text, "the model is told which options there are"
    assert "first" in fine
    assert not made.exists()


@pytest.mark.parametrize("word", HARMFUL)
async def test_options_pass_only_when_they_are_listed(tmp_path, word):
    tool = CommandTool(allow=[["echo"]], options=["--oneline", "--max-count=*"], cwd=tmp_path)
    refused, ran = await said(tool, ["echo", word], ["echo", "plain", "-", "--", "--max-count=2"])
    assert "is not allowed" in refused
    assert "plain - -- --max-count=2" in ran
    free = CommandTool(allow=[["echo"]], options=["-*", "@*", "+*", "SHELL=*", "of=*"])
    (ran,) = await said(free, ["echo", word])
    assert "is not allowed" not in ran, "an author may list anything"


@pytest.mark.parametrize("options", ["--all", ["all"], [""], [7]])
def test_options_are_written_as_they_are_given(options):
    with pytest.raises(UsageError, match="options"):
        CommandTool(allow=[["git", "log"]], options=options)


async def _git(folder, *args):
    process = await asyncio.create_subprocess_exec("git", *args, cwd=folder)
    assert await process.wait() == 0


def test_what_it_may_run_is_part_of_its_version():
    one, other = CommandTool(allow=[["git"]]), CommandTool(allow=[["git"], ["rm"]])
    assert one.version != other.version
    assert one.version != CommandTool(allow=[["git"]], options=["--all"]).version
    assert one.effects is None
    assert CommandTool(allow=[["git", "log"]], effects=()).effects == ()
