"""`leadhand fleet init`: settings for a fleet, from a look at the repository.

The commit at the tip of the branch is read by git, in the way the fleet reads it: no file of the
checkout is opened, nothing of the repository is executed, and nothing is written into it unless it
is the working folder.
"""

from __future__ import annotations

import asyncio
import glob
import json
import os
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from leadhand.cli.group import command
from leadhand.cli.new_files import NewFiles
from leadhand.cli.options import FolderPath
from leadhand.cli.rendering.text import clean
from leadhand.errors import Conflict, UsageError
from leadhand.fleet.repository.git import Git, name_of, printable_name
from leadhand.settings.trust import trust_written
from leadhand.workers.sandbox.sandbox import PATH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from leadhand.cli.console import Console
    from leadhand.fleet.repository.toolchain import CommitFiles, Toolchain

FILE = "leadhand.toml"
NEXT = ("leadhand fleet check", "leadhand fleet submit EPIC.md", "leadhand fleet start")
WIDTH = 100


class ToolPlaces(NamedTuple):
    """Folders of programs that are installed outside of the system, as in somebody's home.

    `folders` go to `PATH`, `readable` is what the programs need besides; `names` says which
    programs these are for, `missing` which ones are installed nowhere.
    """

    folders: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class SurveyedRepository(NamedTuple):
    """What is known of a repository: where it is, its branch and why, its toolchain."""

    path: str
    """From the folder of the settings."""
    branch: str
    branch_why: str
    tools: Toolchain
    inside: bool
    """Whether the settings are written into the repository."""
    places: ToolPlaces = ToolPlaces()
    """Where this machine keeps programs that the sandbox does not show by itself."""


@command("init", "leadhand fleet init --repo ../shop\nleadhand fleet init --print")
@click.option(
    "--repo",
    type=FolderPath(file_okay=False, path_type=Path),
    help="The repository; by default the one that the working folder is in.",
)
@click.option("--print", "only_print", is_flag=True, help="Print the settings; write no file.")
def init(console: Console, repo: Path | None, *, only_print: bool) -> int:
    """Write leadhand.toml for a fleet from a look at the repository.

    The file is written into the working folder. It names the gate (tests, lint), set-up commands,
    protected paths and agents, each with the file that it was read from. Nothing of the repository
    is executed, and no file that exists is changed.
    """
    here = Path.cwd()
    target = here / FILE
    if os.path.lexists(target) and not only_print:
        raise Conflict(
            f"{target} exists already, and nothing was written. "
            "Fix: leadhand fleet init --print prints the settings, to be copied"
        )
    found = asyncio.run(survey_repository((repo or here).resolve(), here))
    text = "".join(f"{line}".rstrip() + "\n" for line in settings_lines(found))
    if not only_print:
        with NewFiles(here) as files:
            files.add(FILE, text.encode())
            trust_written(here)
    if console.json:
        console.document(
            {
                "written": None if only_print else str(target),
                "settings": text,
                "languages": found.tools.languages,
                "gate": [list(each.argv) for each in found.tools.gate],
                "setup": [list(each.argv) for each in found.tools.setup],
                "protected": [each.pattern for each in found.tools.protected],
                "todo": [
                    *found.tools.todo,
                    *map(_host_todo, found.tools.downloads),
                    *map(_missing_todo, found.places.missing),
                    *found.tools.unreadable,
                ],
                "next": list(NEXT),
            }
        )
        return 0
    if only_print:
        console.text(text.rstrip("\n"))
        return 0
    _report(console, found)
    return 0


def _host_todo(download: str) -> str:
    """Return what a person must add for a set-up that downloads."""
    return f"{download}: name the hosts of its package index in setup_hosts"


def _missing_todo(program: str) -> str:
    """Return what a person must do for a program that is installed nowhere on this machine."""
    return f"{program} is not installed on this machine: install it, or change the commands"


def _report(console: Console, found: SurveyedRepository) -> None:
    console.say(f"wrote {FILE} ({', '.join(found.tools.languages) or 'no known language'})")
    for each in found.tools.gate:
        console.say(f"  gate   {shlex.join(each.argv)} ({_inline(each.why)})")
    for each in found.tools.setup:
        console.say(f"  setup  {shlex.join(each.argv)} ({_inline(each.why)})")
    if found.places.names:
        console.say(f"  env    PATH with the folders of {', '.join(found.places.names)}")
    for line in (
        *found.tools.todo,
        *map(_host_todo, found.tools.downloads),
        *map(_missing_todo, found.places.missing),
    ):
        console.say(f"  TODO   {clean(line)}")
    for line in found.tools.unreadable:
        console.say(f"  TODO   could not be read: {clean(line)}")
    console.say("Next:")
    for line in NEXT:
        console.say(f"  {line}")


# A look at the repository.


async def survey_repository(repo: Path, here: Path) -> SurveyedRepository:
    """Read the repository that a path lies in. Raise `UsageError` if there is none to read."""
    from leadhand.fleet.repository.toolchain import detect
    from leadhand.fleet.repository.user_repository import User

    none = Git(Path(os.devnull), Path(os.devnull))
    try:
        user = await User.find(repo, "HEAD", none)
    except UsageError as error:
        if "with a commit" not in str(error):
            raise
        raise UsageError(f"{repo} has no commit yet. Fix: git add, git commit") from None
    branch, why = await _branch(user.git)
    tools = detect(await _files(user.git, f"refs/heads/{branch}" if branch else "HEAD"))
    top = _top(repo, user.git.folder)
    inside = here == top or top in here.parents
    programs = dict.fromkeys(each.argv[0] for each in (*tools.setup, *tools.gate))
    places = tool_places(programs, os.environ)
    return SurveyedRepository(_relative(top, here), branch, why, tools, inside, places)


def tool_places(programs: Iterable[str], environ: Mapping[str, str]) -> ToolPlaces:
    """Find the programs of the commands that are not where the sandbox looks for them.

    A program of a version manager is a link into the folder of a version (`X/bin/node`), which is
    shown as a whole; for Rust it is the toolchain that rustup would choose.
    """
    folders: dict[str, None] = {}
    readable: dict[str, None] = {}
    names, missing = [], []
    for program in programs:
        if "/" in program or shutil.which(program, path=PATH):
            continue
        found = shutil.which(program, path=environ.get("PATH"))
        if found is None:
            missing.append(program)
            continue
        real = _rust_toolchain(environ) if program == "cargo" else None
        real = real or Path(found).resolve().parent
        top = real.parent if real.name == "bin" else real
        folders[str(real)] = None
        readable[str(top)] = None
        names.append(program)
    return ToolPlaces(tuple(folders), tuple(readable), tuple(names), tuple(missing))


def _rust_toolchain(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of programs of rustup's default toolchain; None without rustup."""
    home = Path(environ.get("RUSTUP_HOME") or Path(environ.get("HOME", "/")) / ".rustup")
    try:
        told = tomllib.loads((home / "settings.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    name = environ.get("RUSTUP_TOOLCHAIN") or str(told.get("default_toolchain", ""))
    found = [home / "toolchains" / name / "bin"]
    found += sorted((home / "toolchains").glob(f"{glob.escape(name)}-*/bin"))
    return next((each for each in found if name and (each / "cargo").exists()), None)


def _relative(path: Path, here: Path) -> str:
    return os.path.relpath(path, here)


def _top(repo: Path, git_folder: Path) -> Path:
    """Return the folder of the checkout, or of the bare repository."""
    for place in (repo, *repo.parents):
        if (place / ".git").exists() or place == git_folder:
            return place
    return repo


async def _branch(git: Git) -> tuple[str, str]:
    """Return the branch to start from, and why; none where there is no branch to name."""
    listed = (await git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads")).text
    local = {name for name in listed.splitlines() if name.isprintable()}
    said = await git("symbolic-ref", "--quiet", "refs/remotes/origin/HEAD", codes=(0, 1, 128))
    if (name := said.text.removeprefix("refs/remotes/origin/")) in local:
        return name, "the default branch of origin"
    said = await git("symbolic-ref", "--quiet", "HEAD", codes=(0, 1, 128))
    if (name := said.text.removeprefix("refs/heads/")) in local:
        return name, "the branch that is checked out"
    for name in ("main", "master"):
        if name in local:
            return name, "the usual name; no branch is checked out"
    return "", ""


async def _files(git: Git, ref: str) -> CommitFiles:
    """Return the regular files of a commit, with the texts that say something about tools."""
    from leadhand.fleet.repository.hub import read_blobs
    from leadhand.fleet.repository.toolchain import CommitFiles, wanted_texts

    listed = await git("ls-tree", "-rlz", "--full-tree", ref)
    sizes: dict[str, int] = {}
    blobs: dict[str, str] = {}
    for entry in listed.out.split(b"\0"):
        about, _, raw_name = entry.partition(b"\t")
        words = about.decode("ascii", "replace").split()
        if len(words) == 4 and words[0] in ("100644", "100755") and words[3].isdigit():
            path = name_of(raw_name)
            sizes[path], blobs[path] = int(words[3]), words[2]
    wanted = wanted_texts(sizes)
    read = await read_blobs(git, (blobs[name] for name in wanted)) if wanted else {}
    texts = {}
    for name in wanted:
        raw = read.get(blobs[name], b"")
        if b"\0" not in raw:
            texts[name] = raw.decode("utf-8", "replace")
    return CommitFiles(sizes, texts)


# The settings as text.


def settings_lines(found: SurveyedRepository) -> Iterator[str]:
    """Yield the lines of leadhand.toml."""
    tools = found.tools
    yield "# A coding fleet: settings by `leadhand fleet init`, from a look at the repository."
    yield "# Check each line. `leadhand fleet check` tries it all once; then: leadhand fleet start"
    if tools.languages:
        yield f"# Languages: {', '.join(tools.languages)}"
    for line in tools.unreadable:
        yield _comment(f"TODO: could not be read: {line}")
    yield ""
    yield "[fleet]"
    yield f"repo = {_text(found.path)}"
    if found.branch:
        yield f"branch = {_text(found.branch)}  # {found.branch_why}"
    else:
        yield '# branch = "main"                   # TODO: name the branch to start from'
    yield 'publish = "leadhand/main"           # the branch that gets what was merged'
    yield ""
    yield from _gate_lines(tools)
    yield from _setup_lines(tools)
    yield from _place_lines(found.places)
    yield from _protected_lines(found)
    yield "# Limits."
    yield "agents = 2                          # at once; `leadhand doctor` says how many fit"
    yield "daily_spend = 20.0                  # US dollars a day; then no agent is started"
    yield "cost = 2.0                          # US dollars for one attempt of one task"
    yield ""
    yield "# Epics that name no tasks are planned by a model: pip install 'leadhand[models]'"
    yield '# planner = "anthropic:claude-opus-4-5"'
    yield ""
    yield from _coder_lines(found.places)


def _gate_lines(tools: Toolchain) -> Iterator[str]:
    yield "# The gate: commands that every change must pass, in a sandbox without a network."
    yield "# Each is a list of arguments; no shell reads it."
    if tools.gate:
        yield "gate = ["
        for each in tools.gate:
            yield f"    {_list(each.argv)},  # {_inline(each.why)}"
        yield "]"
    else:
        for line in tools.todo:
            yield _comment(f"TODO: {line}")
        yield "# TODO: name the command that tests it. A fleet does not start without a gate."
        yield '# gate = ["make check"]'
        for each in tools.checks:
            yield _comment(f"found, and no test: {_list(each.argv)} ({each.why})")
    for name, line in tools.ci:
        yield _comment(f"{name} runs: {line}")
    if tools.gate and tools.reports:
        yield "reports = ["
        for path in tools.reports:
            yield f"    {_text(path.pattern)},  # {_inline(path.why)}"
        yield "]"
    yield ""


def _setup_lines(tools: Toolchain) -> Iterator[str]:
    if not tools.setup:
        return
    yield "# Commands that prepare each checkout, for agents and gates. They run in the sandbox and"
    yield "# reach only the hosts of setup_hosts."
    for line in tools.notes:
        yield _comment(line)
    yield "setup = ["
    for each in tools.setup:
        yield f"    {_list(each.argv)},  # {_inline(each.why)}"
    yield "]"
    for line in tools.downloads:
        yield _comment(f"TODO: {_host_todo(line)}")
    yield '# setup_hosts = ["index.example.com"]   # without hosts they have no network'
    yield ""


def _place_lines(places: ToolPlaces) -> Iterator[str]:
    for program in places.missing:
        yield _comment(f"TODO: {_missing_todo(program)}")
    if places.names:
        yield _comment(f"Programs outside of the system's folders: {', '.join(places.names)}.")
        yield f"env = {{PATH = {_text(_tool_path(places))}}}"
        yield f"readable = {_list(places.readable)}"
    if places != ToolPlaces():
        yield ""


def _tool_path(places: ToolPlaces) -> str:
    """Return the `PATH` of set-up, gates and agents."""
    return ":".join((*places.folders, PATH))


def _protected_lines(found: SurveyedRepository) -> Iterator[str]:
    yield "# A change of these paths waits for a person, also if it passes the gate."
    rows = [(each.pattern, each.why) for each in found.tools.protected]
    if found.inside:
        rows.append((FILE, "these settings"))
    if not rows:
        yield '# protected = ["deploy/**"]         # nothing was found that should be protected'
    else:
        yield "protected = ["
        for pattern, why in rows:
            yield f"    {_text(pattern)},  # {_inline(why)}"
        yield "]"
    yield ""


CODERS = {
    "claude": ("Claude Code", "ANTHROPIC_API_KEY", "npm install -g @anthropic-ai/claude-code"),
    "codex": ("Codex", "OPENAI_API_KEY", "npm install -g @openai/codex"),
}


def _coder_lines(places: ToolPlaces) -> Iterator[str]:
    """Yield a block for each coding program; active for those that are installed.

    Where the settings have a `PATH` of their own, a program that is not on it is named in full.
    """
    there = {kind: path for kind in CODERS if (path := shutil.which(kind))}
    yield "# Agents: a task goes to the lowest tier first. `key` names the variable with the key."
    if not there:
        yield "# TODO: neither claude nor codex is installed here. Install one, or name a command:"
        yield '# kind = "command", command = ["my-agent", "{brief_file}"]'
    active = list(there) or ["claude"]
    for tier, kind in enumerate([*active, *(k for k in CODERS if k not in active)], 1):
        name, key, how = CODERS[kind]
        off = "" if kind in active else "# "
        yield ""
        yield f"# {name}: {'installed' if kind in there else 'not installed: ' + how}"
        yield f"{off}[coders.{kind}]"
        yield f'{off}kind = "{kind}"'
        if kind in there and places.folders and not shutil.which(kind, path=_tool_path(places)):
            yield f"program = {_text(there[kind])}"
        yield f"{off}tier = {tier}"
        yield f'{off}key = "{key}"'


def _text(value: str) -> str:
    """Return a text of TOML."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _list(words: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, words))}]"


def _inline(text: str) -> str:
    return clean(printable_name(text), WIDTH)


def _comment(text: str) -> str:
    return f"# {clean(printable_name(text), 2 * WIDTH)}"
