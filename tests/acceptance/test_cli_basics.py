"""The command line as such: help, versions, mistakes, and what a start costs."""

import json
import os
import re
import resource
import subprocess
import sys

import click
import pytest

from leadhand import plugins
from leadhand.cli.group import group, summary
from leadhand.cli.main import COMMANDS as KERNEL
from leadhand.cli.main import help_text
from tests.support.cli import PROGRAM, environment

COMMANDS = [*KERNEL, *plugins.parts("commands")]


def test_help_names_every_command(folder):
    """`leadhand --help` is the map."""
    done = folder.run("--help")
    assert done.code == 0
    assert all(f"\n  {name} " in done.out for name in COMMANDS)
    assert "host" not in [
        line.split()[0] for line in done.out.splitlines() if line.startswith("  ")
    ]
    assert not done.err


def test_no_command_is_a_mistake_with_help(folder):
    """A script that lost its argument must not succeed."""
    done = folder.run()
    assert done.code == 2
    assert "Usage: leadhand" in done.err
    assert not done.out


def test_help_imports_nothing_heavy(folder):
    """Not even click: the table in main.py is all it needs."""
    code = (
        "import sys; from leadhand.cli.main import main; main(['--help']);"
        "heavy = {'click', 'msgspec', 'rich', 'asyncio', 'sqlite3', 'yaml', 'httpx2', 'json'};"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(folder.path),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == "[]\n"


def cpu_s(argv, env):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, env=env, stdout=subprocess.DEVNULL, check=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_costs_at_most_six_times_an_empty_python(folder):
    """The smallest of several runs each: other load on the machine only ever adds."""
    env = environment(folder.path)
    help_argv = [sys.executable, "-m", "leadhand.cli", "--help"]
    empty_argv = [sys.executable, "-c", "pass"]
    cpu_s(help_argv, env)
    helped = min(cpu_s(help_argv, env) for _ in range(7))
    empty = min(cpu_s(empty_argv, env) for _ in range(7))
    assert helped <= 6 * empty, f"{helped:.4f}s against {empty:.4f}s"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example_first(folder, name):
    """The example is the first thing below the usage line."""
    done = folder.run(name, "--help")
    assert done.code == 0, done
    lines = [line for line in done.out.splitlines() if line.strip()]
    assert lines[0].startswith(f"Usage: leadhand {name}")
    assert lines[1].startswith(f"  leadhand {name}")
    assert "--json" in done.out


def all_commands():
    """Every command and group, by the words that call it, with its context."""
    todo = [click.Context(group, info_name="leadhand", terminal_width=80)]
    while todo:
        ctx = todo.pop()
        yield ctx
        if isinstance(ctx.command, click.Group):
            for name in ctx.command.list_commands(ctx):
                found = ctx.command.get_command(ctx, name)
                todo.append(click.Context(found, parent=ctx, info_name=name, terminal_width=80))


def test_no_help_is_cut_at_80_columns():
    """Help is wrapped: no line is longer than the terminal, and none ends in an ellipsis."""
    for ctx in all_commands():
        words = ctx.command_path
        for line in ctx.command.get_help(ctx).splitlines():
            assert len(line) <= 80, (words, line)
            if line.startswith("Usage: "):  # where dots mean that an argument may be repeated
                continue
            assert "..." not in line, (words, line)
            assert "…" not in line, (words, line)


def test_help_texts_are_sentences():
    """The first sentence of a command fits into the list of its group; options end in a period."""
    for ctx in all_commands():
        if ctx.parent is None:
            continue
        words, made = ctx.command_path, ctx.command
        assert (made.help or "").split("\n\n")[0].endswith("."), words
        assert len(summary(made)) <= 67, (words, summary(made))
        for option in made.params:
            if isinstance(option, click.Option) and not option.hidden:
                said = option.help or ""
                assert re.fullmatch(r"[A-Z].*\.", said), (words, option.opts, said)


def test_usage_lines_show_what_may_be_left_out_and_repeated():
    """Brackets for an optional argument, dots for a repeated one; help names no other argument."""
    for ctx in all_commands():
        names = set()
        for each in ctx.command.params:
            if not isinstance(each, click.Argument):
                names.add((each.metavar or "").strip("[]"))
                continue
            shown = each.make_metavar(ctx)
            place = (ctx.command_path, shown)
            single = shown.removesuffix("...")
            assert shown.endswith("...") == (each.nargs == -1), place
            assert "…" not in shown, place
            choice = isinstance(each.type, click.Choice) and not each.metavar
            bracketed = single.startswith("[") and single.endswith("]")
            assert (bracketed or choice) if not each.required else not bracketed, place
            names |= set(re.findall("[A-Z]+", shown))
        for word in re.findall(r"Without ([A-Z]+)\b", ctx.command.help or ""):
            assert word in names, (ctx.command_path, word)


def test_leadhand_help_repeats_the_first_sentence_of_each_command():
    """The table that answers `leadhand --help` without imports agrees with the commands."""
    ctx = click.Context(group, info_name="leadhand")
    shown = {
        words[0]: words[1]
        for words in (line.split(None, 1) for line in help_text().splitlines())
        if len(words) == 2
    }
    for name in COMMANDS:
        made = group.get_command(ctx, name)
        assert shown[name] == summary(made), name


def test_version(folder):
    done = folder.run("--version")
    assert done.code == 0
    assert done.out.startswith("leadhand")


MISTAKES = {
    "unknown command": (["rnu"], 2, "Did you mean `leadhand run`?"),
    "unknown option": (["lint", "--bogus", "plan.json"], 2, "--bogus"),
    "missing argument": (["run"], 2, "PLAN|GOAL"),
    "missing plan": (["lint", "nothing.yaml"], 2, "nothing.yaml: there is no such file"),
    "missing plan to run": (["run", "nothing.yaml"], 2, "nothing.yaml: there is no such file"),
    "folder as plan": (["lint", "."], 2, "is a folder"),
    "missing workers file": (["lint", "p.json", "--workers", "no.py"], 2, "no.py"),
    "missing module": (["ls", "workers", "--workers", "no_such_module"], 2, "no_such_module"),
    "goal without planner": (["run", "make it so"], 2, "--planner"),
    "bad planner": (["run", "make it so", "--planner", "nothing"], 2, "MODULE:FUNCTION"),
    "no database": (["logs", "abc"], 2, "there is no database"),
    "no database to verify": (["verify", "--all"], 2, "there is no database"),
    "verify what": (["verify"], 2, "--all"),
    "set without value": (["run", "p.json", "--set", "x"], 2, "NAME=VALUE"),
    "set twice": (["run", "p.json", "--set", "x=1", "--set", "x=2"], 2, "twice"),
    "planner with a plan": (["run", "p.json", "--planner", "a:b"], 2, "the planner that it names"),
    "wrong number": (["run", "p.json", "--concurrency", "none"], 2, "concurrency"),
    "impossible number": (["run", "p.json", "--concurrency", "0"], 2, "whole number from 1"),
    "both ledgers": (["logs", "x", "--intent", "--execution"], 2, "exclude each other"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_have_a_message_and_a_code(folder, case):
    """One clear message on stderr, nothing on stdout, no traceback; with --json a document."""
    args, code, words = MISTAKES[case]
    folder.plan({"id": "a", "worker": "say"}, name="p.json")
    done = folder.run(*args)
    assert done.code == code, done
    assert "leadhand: error: " in done.err
    assert words in done.err
    assert "Traceback" not in done.err
    assert not done.out
    told = folder.run(*args, "--json")
    assert told.code == code, told
    error = told.doc["error"]
    assert error["exit"] == code
    assert error["message"]
    assert error["code"] in {"usage-error", "document-error"}


def test_a_bug_says_so_and_shows_its_place_only_when_asked(folder):
    """Nobody but us is helped by a traceback."""
    folder.write("leadhand.toml", "[project]\nworkers = ['evil.py']\n")
    broken = (
        "import sys; sys.argv = ['leadhand', 'schema']\n"
        "import leadhand.core.plan.schema as schema; schema.PLAN_SCHEMA = {1: {2: object}}\n"
        "schema.PLAN_SCHEMA[1][(3,)] = 4\n"
        "from leadhand.cli.main import main; main()\n"
    )
    for debug in ("", "1"):
        done = subprocess.run(
            [sys.executable, "-c", broken],
            env=environment(folder.path, LEADHAND_DEBUG=debug),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 70, done
        assert "this is a bug in Leadhand" in done.stderr
        assert ("Traceback" in done.stderr) == bool(debug)


def test_a_reader_that_leaves_early_is_no_error(folder):
    """`leadhand schema | head -1` ends quietly."""
    line = f"{subprocess.list2cmdline(PROGRAM)} schema | head -c 5"
    done = subprocess.run(
        ["sh", "-c", line],
        env=environment(folder.path),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == '{\n  "'
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_closed_streams_do_no_harm(folder):
    """Whoever closes stdout or stderr does not want them; that is all."""
    for redirect in (">&-", "2>&-", ">&- 2>&-"):
        line = f"{subprocess.list2cmdline(PROGRAM)} schema {redirect}"
        done = subprocess.run(
            ["sh", "-c", line],
            env=environment(folder.path),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, (redirect, done)
        assert (not done.stdout) == (redirect.startswith(">")), redirect


def test_schema_is_a_schema(folder):
    """For editors: JSON Schema 2020-12, the same with and without --json."""
    done = folder.run("schema")
    assert done.doc["$schema"].endswith("2020-12/schema")
    assert folder.run("schema", "--json").out == done.out
    assert json.loads(done.out)["$defs"]["plan"]["required"] == ["steps"]


def test_environment_is_what_the_tests_think(folder):
    """The helpers really keep the caller's settings out."""
    env = environment(folder.path)
    assert [name for name in env if name.startswith("LEADHAND_")] == ["LEADHAND_TRUST"]
    assert env["LEADHAND_TRUST"] == str(folder.path.resolve()), "and nothing outside of it"
    assert env["HOME"] == str(folder.path)
    assert os.environ.get("HOME") != env["HOME"]
