"""What the documents say is what happens. The convention, for README.md and docs/*.md:

1. Each page has a folder of its own, with a copy of examples/. Its blocks are taken in order.
2. A block whose first line is `# NAME.py`, `# NAME.yaml` or `# NAME.toml` becomes that file.
3. Any other ```python block is run as it stands. `print(...)  # text` must print that text.
4. A ```yaml block with `steps:` is a plan that lint accepts; another one is a piece of one.
   A ```toml block holds settings, and all workers declared in it can be made.
5. In a ```console block each `$ leadhand` line is run; it ends with 0, or with the N of a
   `# exit N`. Lines below it are output: `…` stands for anything. RUN is the run that the
   block itself started; in blocks that start none, lines with words in capitals are patterns,
   of which only the command and its options are checked.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import leadhand
from leadhand import errors
from leadhand.cli.group import group
from leadhand.cli.main import COMMANDS
from leadhand.codec.documents import read_document
from leadhand.core.check import lint
from leadhand.core.findings import RULES
from leadhand.core.plan import FAILURE_CLASSES
from leadhand.core.recovery import LADDER
from leadhand.core.schema import PLAN_SCHEMA, STEP_SCHEMA
from leadhand.core.shape import problems
from leadhand.ports import Context
from leadhand.settings import KEYS, load_settings
from leadhand.workers.declared import COMMAND_KEYS, OFFER_KEYS, WORKER_KEYS, declared_workers
from leadhand.workers.declared_http import HTTP_KEYS
from leadhand.workers.decorator import Options
from tests.support.cli import Folder, environment

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", *DOCS]
LINKED = [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "GLOSSARY.md", ROOT / "CONTRIBUTING.md"]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w-]+\.(?:py|yaml|toml))\n")
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b(?!=)")
SAID = re.compile(r"^print\(.*\) +# (.+)$", re.MULTILINE)
EXIT = re.compile(r" +# exit (\d+)$")

# What the text below such a line says about it.
EXITS = {"TESTS_FAIL=1 leadhand run examples/deploy/plan.json": 1}


class Block(NamedTuple):
    language: str
    text: str
    line: int


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in FENCE.finditer(text)]


def text_of(*names: str) -> str:
    return "\n".join((ROOT / "docs" / each).read_text() for each in names)


def table_rows(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the first table below a heading, by the words in code of their first cell."""
    below = text_of(page).partition(f"\n## {heading}\n")[2]
    table = below[below.index("\n|") :].partition("\n\n")[0].strip().splitlines()[2:]
    found: dict[str, list[str]] = {}
    for row in table:
        first, *rest = [cell.strip() for cell in row.strip("|").split(" |")]
        for key in re.findall(r"`([^`]+)`", first) or [first]:
            assert key not in found, f"{page}: {key} stands twice"
            found[key] = rest
    return found


# --- examples ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_examples_do_what_they_say(page, tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    folder = Folder(tmp_path)
    for block in blocks(page):
        where = f"{name(page)}:{block.line}"
        named = FILE.match(block.text)
        if named is not None:
            folder.write(named[1], block.text)
        match block.language:
            case "python" if named is None:
                run_python(folder, block, where)
            case "yaml":
                check_yaml(block, where)
            case "toml":
                check_toml(folder, block, where)
            case "console":
                run_console(folder, block, where)


def run_python(folder: Folder, block: Block, where: str) -> None:
    file = folder.write(f"block_{block.line}.py", block.text)
    done = subprocess.run(
        [sys.executable, file],
        cwd=folder.path,
        env=environment(folder.path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{where}\n{done.stdout}\n{done.stderr}"
    printed = done.stdout.splitlines()
    for said in SAID.findall(block.text):
        assert said in printed, f"{where}: {said!r} was not printed, but\n{done.stdout}"


def check_yaml(block: Block, where: str) -> None:
    if not block.text.lstrip().startswith("- "):
        doc = read_document(block.text.encode(), name=f"{where}.yaml")
        whole = doc if "steps" in doc else {"steps": [{"id": "a", "worker": "w"}], **doc}
        found = lint(whole, None)
        assert not [str(each) for each in found if each.level == "error"], where
        return
    inside = "".join(f"  {line}\n" for line in block.text.splitlines())
    for step in read_document(f"steps:\n{inside}".encode(), name=f"{where}.yaml")["steps"]:
        assert not problems(step, STEP_SCHEMA), f"{where}: {problems(step, STEP_SCHEMA)}"


def check_toml(folder: Folder, block: Block, where: str) -> None:
    place = folder.path / f"block-{block.line}"
    place.mkdir()
    (place / "leadhand.toml").write_text(block.text)
    settings = load_settings(environ={"HOME": str(place)}, folder=place)
    made = declared_workers(settings.declared, place)
    assert {worker.spec.name for worker in made} == set(settings.declared), where


def run_console(folder: Folder, block: Block, where: str) -> None:
    starts_run = re.search(r"^\$ .*leadhand run ", block.text, re.MULTILINE) is not None
    run = output = ""
    for line in block.text.splitlines():
        at = f"{where}: {line}"
        if not line.startswith("$ "):
            assert appears(line.replace("RUN", run or "RUN"), output), f"{at}\nis not in\n{output}"
            continue
        text = re.sub(r" +#(?! exit).*$", "", line[2:])
        wanted = int(found[1]) if (found := EXIT.search(text)) else None
        text = EXIT.sub("", text)
        check_line(text, at)
        if not re.search(r"\bleadhand ", text) or (
            PLACEHOLDER.search(text.replace("RUN", run or "RUN")) and not (starts_run and run)
        ):
            continue
        code, output = run_line(folder, text.replace("RUN", run))
        if wanted is None:
            wanted = next((n for start, n in EXITS.items() if text.startswith(start)), 0)
        assert code == wanted, f"{at}\nended with {code}\n{output}"
        if starts_run and " run " in text:
            rows = folder.run("ls", "--json").doc
            run = rows[0]["run"] if rows else ""


def appears(line: str, output: str) -> bool:
    """Whether a line of output was printed, spaces aside; `…` stands for anything in it."""
    pieces = [re.escape(" ".join(piece.split())) for piece in line.split("…")]
    flat = "\n".join(" ".join(each.split()) for each in output.splitlines())
    return re.search(".*".join(pieces), flat) is not None


def run_line(folder: Folder, text: str) -> tuple[int, str]:
    words = shlex.split(text)
    values = dict(word.split("=", 1) for word in words[: words.index("leadhand")])
    done = folder.run(*words[words.index("leadhand") + 1 :], **values)
    return done.code, done.out + done.err


# --- commands, options, links --------------------------------------------------------------


def check_line(text: str, at: str) -> None:
    """A line of a console block names commands, options and targets that exist."""
    words = shlex.split(text)
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets, at
    if "leadhand" not in words:
        return
    rest = words[words.index("leadhand") + 1 :]
    command = group.get_command(click.Context(group), rest[0])
    assert rest[0] in COMMANDS, f"{at}: there is no such command"
    assert command is not None
    known = {option for each in command.params for option in each.opts} | {"--help"}
    used = {word.partition("=")[0] for word in rest[1:] if re.match(r"--?[a-z]", word)}
    assert used <= known, f"{at}: {sorted(used - known)} are no options of {rest[0]}"


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_commands_named_in_the_text_exist(page):
    for spoken in re.findall(r"`([^`\n]*\bleadhand [a-z-]+[^`\n]*)`", page.read_text()):
        check_line(spoken, f"{name(page)}: {spoken}")


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), f"{name(page)}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in titles}
            assert anchor in slugs, f"{name(page)}: {target}"


def test_every_page_can_be_reached_from_the_readme():
    seen, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target:
                left.append(Path(os.path.normpath(page.parent / target)))
    assert set(DOCS) <= seen


# --- nothing is left out -------------------------------------------------------------------


def test_every_rule_of_lint_is_documented():
    rows = {key: cells[0] for key, cells in table_rows("plans.md", "What lint reports").items()}
    assert rows == RULES


def test_every_field_of_a_plan_is_documented():
    plan, step = PLAN_SCHEMA["$defs"]["plan"], STEP_SCHEMA["$defs"]["step"]
    assert table_rows("plans.md", "Plan fields").keys() >= plan["properties"].keys()
    assert table_rows("plans.md", "Step fields").keys() >= step["properties"].keys()


def test_the_ladder_is_documented_as_it_is():
    rows = table_rows("recovery.md", "The ladder")
    words = {key: tuple(c.strip("– ") for c in cells if c.strip("– ")) for key, cells in rows.items()}
    written = {key: tuple(each.replace(" ", "_") for each in rungs) for key, rungs in words.items()}
    assert written == LADDER
    assert written.keys() == set(FAILURE_CLASSES)


def test_every_failure_class_and_exception_is_documented():
    rows = table_rows("workers.md", "Failures")
    assert rows.keys() == set(FAILURE_CLASSES)
    raised = {
        kind.failure_class: kind.__name__ for kind in errors.WorkerFailure.__subclasses__()
    }
    for failure_class, exception in raised.items():
        assert f"`{exception}`" in rows[failure_class][0]


def test_every_exit_code_is_documented():
    kinds = [errors.LeadhandError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    codes = {kind.exit_code for kind in kinds} | set(range(10)) | {130, 143}
    assert table_rows("hosting.md", "Exit codes").keys() == {str(code) for code in codes}


def test_every_setting_is_documented():
    rows = table_rows("hosting.md", "Settings")
    assert rows.keys() == {f"{table}.{key}" for table, keys in KEYS.items() for key in keys}


def test_every_option_and_key_of_workers_is_documented():
    assert table_rows("workers.md", "Options of @worker").keys() == Options.__annotations__.keys()
    keys = WORKER_KEYS | OFFER_KEYS
    assert table_rows("workers.md", "Workers without Python").keys() == keys
    assert table_rows("workers.md", "Commands").keys() == COMMAND_KEYS
    assert table_rows("workers.md", "HTTP calls").keys() == HTTP_KEYS
    told = {each for each in vars(Context) if not each.startswith("_")} - {"spawned"}
    assert table_rows("workers.md", "Context").keys() == told


def test_every_command_and_public_name_is_documented():
    everything = text_of(*(page.name for page in DOCS)) + (ROOT / "README.md").read_text()
    missing = [each for each in COMMANDS if f"leadhand {each}" not in everything]
    missing += [each for each in leadhand.__all__ if not re.search(rf"\b{each}\b", everything)]
    assert not missing
