"""What the documents say is what happens. The convention, for README.md and the pages of docs/:

1. Each page has a folder of its own, with a copy of examples/. Its blocks are taken in order.
2. A block whose first line is `# NAME.py`, `# NAME.yaml` or `# NAME.toml` becomes that file.
3. Any other ```python block is run as it stands. `print(...)  # text` must print that text.
4. A ```yaml block with `steps:` is a plan that lint accepts; another one is a list of steps.
   A ```toml block holds settings, and all workers declared in it can be made.
5. In a ```console block each `$ leadhand` line is run; it ends with 0, or with the N of a
   `# exit N`. Lines below it are output: `…` stands for anything. `$ cd FOLDER` goes there for
   the rest of the block. RUN is the run that the block itself started; in blocks that start
   none, lines with words in capitals are patterns, of which only the command and its options
   are checked.
"""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import leadhand
from leadhand import errors, plugins
from leadhand.cli.group import group
from leadhand.cli.main import COMMANDS
from leadhand.codec.documents import read_document
from leadhand.codec.tables import keys
from leadhand.core.decide.recovery import LADDER
from leadhand.core.jsonschema import problems
from leadhand.core.lint.plan import lint
from leadhand.core.lint.rules import RULES
from leadhand.core.plan.model import FAILURE_CLASSES
from leadhand.core.plan.schema import STEP_SCHEMA
from leadhand.models.names import ModelName
from leadhand.ports import Context
from leadhand.settings import load_settings
from leadhand.settings.schema import SCHEMAS
from leadhand.settings.sections import section_of
from leadhand.workers.agent.declared import AgentTable
from leadhand.workers.commands.declared import CommandTable
from leadhand.workers.declaration import ActionTable, WorkerTable
from leadhand.workers.declared import declared_workers
from leadhand.workers.functions.decorator import WorkerOptions
from leadhand.workers.http.declared import HttpTable
from leadhand.workers.mcp.declared import ServerTable, ToolTable
from tests.support import warm
from tests.support.cli import Folder, environment

ALL_COMMANDS = {*COMMANDS, *plugins.parts("commands")}
ROOT = Path(__file__).resolve().parents[2]
SECTIONS = ("tutorials", "how-to", "reference", "explanation", "team")
DOCS = sorted(p for section in SECTIONS for p in (ROOT / "docs" / section).glob("*.md"))
PAGES = [ROOT / "README.md", *DOCS]
PROSE = {"performance"}
"""Pages whose blocks are no matter for a test: figures of `make bench`."""
RUNNABLE = [
    page
    for page in PAGES
    if page.stem not in PROSE
    and re.search(r"^```(console|python|yaml|toml)", page.read_text(), re.MULTILINE)
]
RECIPES = sorted((ROOT / "docs" / "contributing").glob("*.md"))
LINKED = [
    *PAGES,
    *RECIPES,
    ROOT / "ARCHITECTURE.md",
    ROOT / "GLOSSARY.md",
    ROOT / "CONTRIBUTING.md",
]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w-]+\.(?:py|yaml|toml))\n")
SAID = re.compile(r"^ *print\(.*\) +# (.+)$", re.MULTILINE)
EXIT = re.compile(r" +# exit (\d+)$")
PATTERN = re.compile(r"\b[A-Z]{3,}\b")
LINK = re.compile(r"\]\(([^)\s]+)\)")

EXITS = {"TESTS_FAIL=1 leadhand run examples/deploy/plan.json": 1}
"""How lines end of which the text around them says so."""


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def table_rows(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the first table below a heading, by the words in code of their first cell."""
    below = (ROOT / "docs" / "reference" / page).read_text().partition(f"\n## {heading}\n")[2]
    table = below[below.index("\n|") :].partition("\n\n")[0].strip().splitlines()[2:]
    found: dict[str, list[str]] = {}
    for row in table:
        first, *rest = [cell.strip() for cell in row.strip("|").split(" |")]
        for key in re.findall(r"`([^`]+)`", first) or [first]:
            assert key not in found, f"{page}: {key} stands twice"
            found[key] = rest
    return found


# --- examples ------------------------------------------------------------------------------


class Block(NamedTuple):
    folder: Folder
    language: str
    text: str
    where: str


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_examples_do_what_they_say(page, tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    folder, text, ran = Folder(tmp_path), page.read_text(), 0
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        block = Block(folder, found[1], found[2], f"{name(page)}:{line}")
        if (named := FILE.match(block.text)) is not None:
            folder.write(named[1], block.text)
        match block.language:
            case "python" if named is None:
                ran += run_python(block)
            case "yaml":
                check_yaml(block)
            case "toml":
                check_toml(block)
            case "console":
                ran += run_console(block)
    assert ran, "nothing was run"


def run_python(block: Block) -> int:
    file = block.folder.write("block.py", block.text)
    place = block.folder.path
    code, out, err = warm.run(str(file), [], cwd=place, env=environment(place), timeout_s=60)
    assert code == 0, f"{block.where}\n{out}\n{err}"
    missing = set(SAID.findall(block.text)) - set(out.splitlines())
    assert not missing, f"{block.where}: {missing} was not printed, but\n{out}"
    return 1


def check_yaml(block: Block) -> None:
    text, is_list = block.text, block.text.startswith("- ")
    if is_list:
        text = "steps:\n" + text
    doc = read_document(text.encode(), name=f"{block.where}.yaml")
    if is_list:
        wrong = [problem for step in doc["steps"] for problem in problems(step, STEP_SCHEMA)]
    else:
        wrong = [each for each in lint(doc, None) if each.level == "error"]
    assert not wrong, block.where


def check_toml(block: Block) -> None:
    place = block.folder.path / "settings"
    place.mkdir(exist_ok=True)
    (place / "leadhand.toml").write_text(block.text)
    settings = load_settings(environ={"HOME": str(place)}, folder=place)
    made = declared_workers(settings.declared, place)
    assert {worker.spec.name for worker in made} == set(settings.declared), block.where


def run_console(block: Block) -> int:
    run, output, ran, folder = "RUN", "", 0, block.folder
    for line in block.text.splitlines():
        at = f"{block.where}: {line}"
        if not line.startswith("$ "):
            assert appears(line.replace("RUN", run), output), f"{at}\nis not in\n{output}"
            continue
        text = re.sub(r" +#(?! exit).*$", "", line[2:])
        exits = [int(code) for code in EXIT.findall(text)]
        exits += [code for start, code in EXITS.items() if text.startswith(start)]
        text = EXIT.sub("", text).replace("RUN", run)
        check_line(text, at)
        words = shlex.split(text)
        if words[0] == "cd":
            folder = Folder(folder.path / words[1])
            continue
        if "leadhand" not in words or PATTERN.search(text):
            continue
        values = dict(word.split("=", 1) for word in words[: words.index("leadhand")])
        values.setdefault("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        done = folder.run(*words[words.index("leadhand") + 1 :], **values)
        output = done.out + done.err
        assert done.code == (exits or [0])[0], f"{at}\n{done}"
        ran += 1
        if " run " in text and (rows := folder.run("ls", "--json").doc):
            run = rows[0]["run"]
    return ran


def appears(line: str, output: str) -> bool:
    """Whether a line of output was printed, spaces aside; `…` stands for anything in it."""
    pieces = [re.escape(" ".join(piece.split())) for piece in line.split("…")]
    flat = "\n".join(" ".join(each.split()) for each in output.splitlines())
    return re.search(".*".join(pieces), flat) is not None


# --- commands, options, links --------------------------------------------------------------


def check_line(text: str, at: str) -> None:
    """A line names commands, options and targets that exist."""
    words = shlex.split(text)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:.*##", (ROOT / "Makefile").read_text(), re.MULTILINE), at
    if "leadhand" not in words:
        return
    verb, *rest = words[words.index("leadhand") + 1 :]
    assert verb in ALL_COMMANDS, f"{at}: there is no such command"
    command = group.get_command(click.Context(group), verb)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"{at}: there is no {verb} {rest[0]}"
        command = command.commands[rest.pop(0)]
    if isinstance(command, click.Group) and rest:
        command = command.commands.get("start", command)  # as `leadhand serve` does
    known = {option for each in command.params for option in each.opts} | {"--help"}
    used = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    assert used <= known, f"{at}: {sorted(used - known)} are no options of {verb}"


@pytest.mark.parametrize("page", [page for page in LINKED if page not in RECIPES], ids=name)
def test_commands_in_the_text_exist(page):
    """Recipes name the command that they add; `tests/test_recipes.py` follows them."""
    for spoken in re.findall(r"`([^`\n]*\bleadhand [a-z-]+[^`\n]*)`", page.read_text()):
        check_line(spoken, f"{name(page)}: {spoken}")


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert "://" in target or file.exists(), f"{name(page)}: {target}"
        if anchor and file.suffix == ".md":
            titles = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in titles}
            assert anchor in slugs, f"{name(page)}: {target}"


# --- nothing is left out -------------------------------------------------------------------

CODES = {*range(10), 130, 143}
CODES |= {kind.exit_code for kind in vars(errors).values() if hasattr(kind, "exit_code")}

TABLES = {
    ("plans.md", "Plan fields"): STEP_SCHEMA["$defs"]["plan"]["properties"],
    ("plans.md", "Step fields"): STEP_SCHEMA["$defs"]["step"]["properties"],
    ("workers.md", "Options of @worker"): WorkerOptions.__annotations__,
    ("workers.md", "Context"): {each for each in vars(Context) if each[0] != "_"} - {"spawned"},
    ("workers.md", "Failures"): FAILURE_CLASSES,
    ("workers.md", "Workers without Python"): {*keys(WorkerTable), *keys(ActionTable)},
    ("workers.md", "Commands"): keys(CommandTable).keys() - keys(ActionTable),
    ("workers.md", "HTTP calls"): keys(HttpTable).keys() - keys(ActionTable),
    ("agents.md", "Settings"): keys(AgentTable),
    ("agents.md", "Models"): ModelName._fields,
    ("mcp.md", "Settings"): {*keys(ServerTable), *keys(ToolTable)},
    ("recovery.md", "The ladder"): FAILURE_CLASSES,
    ("hosting.md", "Settings"): [
        *(f"{table}.{key}" for table, schema in SCHEMAS.items() for key in keys(schema)),
        *(
            f"{table}.{key}"
            for table in ("server", "temporal")
            for key in keys(section_of(table).tables[table])
        ),
    ],
    ("fleet.md", "Settings"): keys(section_of("fleet").tables["fleet"]),
    ("hosting.md", "Exit codes"): [str(code) for code in CODES],
}


@pytest.mark.parametrize(("page", "heading"), TABLES, ids="-".join)
def test_tables_are_complete(page, heading):
    assert table_rows(page, heading).keys() == set(TABLES[page, heading])


def test_the_rules_of_lint_are_documented_as_they_are():
    rows = table_rows("lint.md", "Rules")
    told = {rule.code: [f"`{name}`", rule.level, rule.meaning] for name, rule in RULES.items()}
    assert rows == told
    assert list(rows) == sorted(rows)


def test_the_ladder_is_documented_as_it_is():
    rows = table_rows("recovery.md", "The ladder")
    rungs = {key: [c.replace(" ", "_") for c in cells if c != "–"] for key, cells in rows.items()}
    assert {key: tuple(each) for key, each in rungs.items()} == LADDER


def test_every_exception_stands_beside_its_class():
    rows = table_rows("workers.md", "Failures")
    public = [
        each for each in errors.WorkerFailure.__subclasses__() if hasattr(leadhand, each.__name__)
    ]
    for kind in public:
        assert re.search(rf"\b{kind.__name__}\b", rows[kind.failure_class][0]), kind


def test_every_command_and_public_name_is_documented():
    everything = "\n".join(page.read_text() for page in PAGES)
    missing = [each for each in ALL_COMMANDS if f"leadhand {each}" not in everything]
    missing += [each for each in leadhand.__all__ if not re.search(rf"\b{each}\b", everything)]
    assert not missing


def test_every_place_that_the_architecture_names_exists():
    """The tree's folders and files, and the places of its table."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    source = ROOT / "src" / "leadhand"
    table = re.search(r"## Where to look\n(.*?)\n## ", text, re.DOTALL)
    assert table
    named = re.findall(r"`([\w/.]+[/.][\w/.]+)`", table[1])
    for name, function in re.findall(r"`([\w/.]+)` \(`(\w+)`\)", table[1]):
        assert f"def {function}(" in (source / name).read_text(), name
    tree = re.search(r"```\nsrc/leadhand/\n(.*?)```", text, re.DOTALL)
    assert tree
    named += re.findall(r"(?m)^  ([a-z_]+(?:/|\.py)) ", tree[1])
    named += [f"core/{name}" for name in re.findall(r"(?m)^    ([a-z_]+(?:/|\.py)) ", tree[1])]
    assert len(named) > 30
    missing = [name for name in named if not ((source / name).exists() or (ROOT / name).exists())]
    assert not missing
