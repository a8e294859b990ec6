"""Tutorials and how-to guides do what they say: every line that a reader types is run.

The convention, for the pages of docs/tutorials and docs/how-to:

1. Each page has an empty folder of its own. Nothing in it is trusted. Blocks are taken in order.
2. A block whose first line is `# NAME.py` (or .yaml, .toml, .sh) becomes that file, and so does a
   block with `title="NAME"` behind its language. NAME may hold folders.
3. Any other ```python block is run as it stands. `print(...)  # text` must print that text.
4. In a ```console block each `$ ` line is run: it ends with 0, or with the N of `# exit N`. Lines
   below it are output; `…` stands for anything. Lines that are only `leadhand …`,
   with variables before it if need be, start warm; bash runs all others. `cd` and `export` hold
   for the rest of the page, ` &` leaves a program running, and `kill %1` ends it. A command may
   go on in the next line after ` \\`. With `title="Terminal"` the block is typed on a terminal, and
   what follows the question `Approve…?` in its line is the answer.
5. RUN is the run that the page started last. 8123 and 8787 are ports; a test takes free ones. The
   addresses POSTGRES and TEMPORAL below stand for servers; a test that types them starts one.
6. ```sh blocks are shown and not run; commands of Leadhand in them must exist.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.test_docs import (
    GUIDES,
    SAID,
    Block,
    appears,
    check_line,
    check_toml,
    check_yaml,
    name,
)
from tests.support import warm
from tests.support.cli import Done, Folder, environment
from tests.support.postgres import free_port
from tests.support.terminal import Screen

FENCE = re.compile(r"^(`{3,})(\w+)([^\n`]*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w./-]+\.(?:py|yaml|toml|sh))\n")
TITLE = re.compile(r'title="([^"]+)"')
EXIT = re.compile(r" +# exit (\d+)$")
QUESTION = re.compile(r"(Approve\? .*\[d\]iff|Approve exactly this\? \[y/N\]:) (\w+)")
PORTS = ("8123", "8787")
POSTGRES, TEMPORAL = "postgres://leadhand@db.example/leadhand", "temporal.example:7233"
READY_S = 60


class Reader:
    """A person who types what a page says, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = Folder(folder)
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.env = {
            "LEADHAND_TRUST": "",
            "PATH": programs,
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / ".config"),
            "XDG_STATE_HOME": str(folder / ".state"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        self.home = folder
        self.running: list[subprocess.Popen[bytes]] = []
        self.run, self.typed = "RUN", 0

    def write(self, file: str, text: str) -> None:
        path = self.folder.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def python(self, text: str, at: str) -> None:
        self.write("snippet.py", text)
        done = Done(*warm.run("snippet.py", [], cwd=self.folder.path, env=self._environment()))
        assert done.code == 0, f"{at}\n{done}"
        missing = set(SAID.findall(text)) - set(done.out.splitlines())
        assert not missing, f"{at}: {missing} was not printed, but\n{done.out}"
        self.typed += 1

    def console(self, text: str, at: str) -> None:
        """Type the lines of a block, and compare what they print with what stands below them."""
        for part in re.split(r"^\$ ", re.sub(r" \\\n +", " ", text), flags=re.MULTILINE)[1:]:
            line, *said = part.splitlines()
            done = self.line(line, f"{at}: {line}")
            wanted = [each.replace("RUN", self.run) for each in said]
            missing = "\n".join(each for each in wanted if not appears(each, done.out + done.err))
            assert not missing, f"{at}: {line}\nprinted\n{done}\nand not\n{missing}"

    def terminal(self, text: str, at: str) -> None:
        """Type one command on a terminal, and answer what it asks."""
        line, *said = text.removeprefix("$ ").replace("RUN", self.run).splitlines()
        check_commands(line, at)
        words = shlex.split(line)
        start = words.index("leadhand")
        given = self.env | dict(word.split("=", 1) for word in words[:start])
        with Screen(self.folder, *words[start + 1 :], **given) as screen:
            for question in filter(None, map(QUESTION.fullmatch, said)):
                screen.expect(question[1])
                screen.type(question[2] + "\n")
            code = screen.ends()
        missing = [each for each in said if not appears(QUESTION.sub(r"\1", each), screen.text)]
        assert (code, missing) == (0, []), f"{at}: {line}\nexit {code}, printed\n{screen.text}"
        self.typed += 1
        self.look()

    def line(self, line: str, at: str) -> Done:
        """Type one line, and see it end as it should."""
        codes = [int(code) for code in EXIT.findall(line)]
        text = re.sub(r" +#.*$", "", line).replace("RUN", self.run)
        self.typed += 1
        words = shlex.split(text)
        match words:
            case ["cd", place]:
                self.folder = Folder((self.folder.path / place).resolve())
                return Done(0, "", "")
            case ["export", *values]:
                self.env |= dict(value.split("=", 1) for value in values)
                return Done(0, "", "")
            case ["kill", job] if job.startswith("%"):
                end(self.running[int(job[1:]) - 1])
                return Done(0, "", "")
            case [*_, "&"]:
                return self.leave(text.removesuffix("&"), at)
        check_commands(text, at)
        done = self.type(text, words)
        assert done.code == (codes or [0])[0], f"{at}\n{done}"
        if re.search(r"leadhand (run|apply)\b", text):
            self.look()
        return done

    def type(self, text: str, words: list[str]) -> Done:
        head = [word for word in words if re.match(r"[A-Z_]+=", word)]
        if words[len(head)] == "leadhand" and not re.search(r"[$|<>;&*~`]", text):
            given = self.env | dict(word.split("=", 1) for word in head)
            return self.folder.run(*words[len(head) + 1 :], **given)
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=self.folder.path,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def leave(self, text: str, at: str) -> Done:
        """Start a program that goes on, and wait until it has printed something."""
        file = self.home / f".printed-{len(self.running)}"
        with file.open("wb") as out:
            child = subprocess.Popen(
                ["bash", "-c", f"exec {text}"],
                cwd=self.folder.path,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running.append(child)
        until = time.monotonic() + READY_S
        while not file.stat().st_size:
            assert child.poll() is None, f"{at}: it ended with {child.returncode}"
            assert time.monotonic() < until, f"{at}: it printed nothing"
            time.sleep(0.05)
        return Done(0, file.read_text(), "")

    def look(self) -> None:
        """RUN is the newest run that takes nothing back."""
        rows = self.folder.run("ls", "--json", **self.env).doc
        runs = [row["run"] for row in rows if not row["run"].endswith("-rollback")]
        self.run = runs[0] if runs else self.run

    def end(self) -> None:
        for child in self.running:
            end(child)
        self.folder.end_host()

    def _environment(self) -> dict[str, str]:
        return environment(self.home, **self.env)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a program that was left running, with all that it started."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait(READY_S)


def check_commands(text: str, at: str) -> None:
    """Commands of Leadhand in a line of shell exist, with their options."""
    tokens = shlex.shlex(text, posix=True, punctuation_chars=True)
    tokens.whitespace_split = True
    parts: list[list[str]] = [[]]
    for token in tokens:
        if set(token) <= set("();<>|&"):
            parts.append([])
        else:
            parts[-1].append(token)
    for words in parts:
        rest = [word for word in words if not re.match(r"[A-Z_]+=", word)]
        if rest[:1] == ["leadhand"]:
            check_line(shlex.join(rest), at)


ELSEWHERE = tuple(
    f"docs/how-to/{name}.md"
    for name in (
        *("code-hosts", "containers", "github-action", "mcp-tools"),
        *("several-machines", "several-repositories"),
    )
)
"""Guides to services and machines of others, and to more repositories than one folder holds: tests
of `deploy`, `fleet` and `workers/mcp` run what they show, against stand-ins."""


@pytest.mark.slow
@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_a_guide_does_what_it_says(page, tmp_path, request):
    text = page.read_text()
    for port in PORTS:
        text = text.replace(port, str(free_port()))
    if POSTGRES in text and "console" in text.partition(POSTGRES)[0]:
        text = text.replace(POSTGRES, request.getfixturevalue("postgres").new(tmp_path).secret)
    if f"export LEADHAND_TEMPORAL__ADDRESS={TEMPORAL}" in text:
        text = text.replace(TEMPORAL, request.getfixturevalue("temporal").address)
    reader = Reader(tmp_path)
    try:
        for found in FENCE.finditer(text):
            _, language, more, body = found.groups()
            at = f"{name(page)}:{text.count(chr(10), 0, found.start()) + 1}"
            follow(reader, language, more, body, at)
    finally:
        reader.end()
    assert reader.typed or name(page) in ELSEWHERE, "nothing was run"


def follow(reader: Reader, language: str, more: str, body: str, at: str) -> None:
    """Do what one block of a page says."""
    named = TITLE.search(more) or FILE.match(body)
    if named is not None and language != "console":
        reader.write(named[1], body)
    block = Block(reader.folder, language, body, at)
    match language:
        case "python" if named is None:
            reader.python(body, at)
        case "yaml" if re.search(r"^(steps:|- )", body, re.MULTILINE):
            check_yaml(block)
        case "toml":
            check_toml(block)
        case "console" if "Terminal" in more:
            reader.terminal(body, at)
        case "console":
            reader.console(body, at)
        case "sh" if named is None:
            for line in re.sub(r" \\\n +", " ", body).splitlines():
                check_commands(re.sub(r" +#.*$", "", line), f"{at}: {line}")


def test_a_guide_that_lies_is_found(tmp_path):
    """A wrong output, a wrong end, a command or an option that is not there."""
    reader = Reader(tmp_path)
    reader.console("$ echo one && echo two\none\nt…o\n$ false  # exit 1\n", "page")
    for lie in [
        "$ echo one\ntwo\n",
        "$ false\n",
        "$ leadhand fly  # exit 2\n",
        "$ leadhand ls --wings\n",
    ]:
        with pytest.raises(AssertionError):
            reader.console(lie, "page")
    with pytest.raises(AssertionError):
        follow(reader, "sh", "", "leadhand fly\n", "page")
