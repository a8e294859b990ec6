"""Make the pictures of the documentation from real runs: `make pictures`.

Terminal pictures: a command runs in a pseudo-terminal, in a copy of an example; what the terminal
shows at the end is written as SVG. Screenshots: a real server, seen by a real Chromium. All of
them go to build/pictures, in a light and a dark look, for the site.

One picture is committed, because README.md shows it on code hosts: docs/img/run.svg, with both
looks in one file. `tests/docs/test_pictures.py` makes it again and fails if the commands now show
something else. Run ids, times, durations and hashes differ from run to run and are not compared.

    python scripts/pictures.py            all of them
    python scripts/pictures.py run review some of them
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import hashlib
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "pictures"
COMMITTED = ROOT / "docs" / "img"
LOOKS = ("light", "dark")
COLUMNS = 100
LIMIT_S = 120

# --- a terminal --------------------------------------------------------------


@dataclass(frozen=True)
class Style:
    colour: str = ""
    """`red` and the like; none for the usual one."""
    bold: bool = False
    dim: bool = False

    @property
    def classes(self) -> str:
        return " ".join(filter(None, [self.colour, "b" * self.bold, "d" * self.dim]))


PLAIN = Style()
NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
Row = list[tuple[str, Style]]
"""Pieces of text of one line, each in one style."""

SEQUENCE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b[()][A-B0]|\x1b[=>78]")


class Terminal:
    """A screen of unlimited height: what a terminal shows after reading some output."""

    def __init__(self, columns: int = COLUMNS) -> None:
        self.columns = columns
        self.rows: list[list[tuple[str, Style]]] = [[]]
        self.row = self.column = 0
        self.style = PLAIN

    def feed(self, text: str) -> None:
        place = 0
        for found in SEQUENCE.finditer(text):
            self._write(text[place : found.start()])
            if found[2]:
                self._obey(found[1], found[2])
            place = found.end()
        self._write(text[place:])

    def _write(self, text: str) -> None:
        for char in text:
            if char == "\r":
                self.column = 0
            elif char == "\n":
                self._down()
            elif char == "\b":
                self.column = max(0, self.column - 1)
            elif char >= " ":
                self._put(char)

    def _down(self, count: int = 1) -> None:
        self.row += count
        while len(self.rows) <= self.row:
            self.rows.append([])

    def _put(self, char: str) -> None:
        width = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if self.column + width > self.columns:
            self.column = 0
            self._down()
        row = self.rows[self.row]
        row.extend([(" ", PLAIN)] * (self.column - len(row)))
        row[self.column : self.column + 1] = [(char, self.style)]
        self.column += width

    def _obey(self, words: str, verb: str) -> None:
        numbers = [int(word) for word in words.split(";") if word.isdigit()]
        count = numbers[0] if numbers else 1
        match verb:
            case "m":
                self._dress(numbers or [0])
            case "A":
                self.row = max(0, self.row - count)
            case "B":
                self._down(count)
            case "C":
                self.column += count
            case "D":
                self.column = max(0, self.column - count)
            case "G":
                self.column = count - 1
            case "K" if count == 2 and numbers:
                self.rows[self.row] = []
            case "K":
                del self.rows[self.row][self.column :]
            case "J":
                del self.rows[self.row][self.column :]
                del self.rows[self.row + 1 :]

    def _dress(self, numbers: list[int]) -> None:
        colour, bold, dim = self.style.colour, self.style.bold, self.style.dim
        for number in numbers:
            match number:
                case 0:
                    colour, bold, dim = "", False, False
                case 1:
                    bold = True
                case 2:
                    dim = True
                case 22:
                    bold = dim = False
                case 39:
                    colour = ""
                case _ if 30 <= number <= 37:
                    colour = NAMES[number - 30]
                case _ if 90 <= number <= 97:
                    colour = NAMES[number - 90]
        self.style = Style(colour, bold, dim)

    def shown(self) -> list[Row]:
        """Return the lines, empty ones at the end left out."""
        rows = [joined(row) for row in self.rows]
        while rows and not rows[-1]:
            rows.pop()
        return rows


def joined(cells: Sequence[tuple[str, Style]]) -> Row:
    """Return neighbours of one style as one piece, without spaces at the end."""
    row: Row = []
    for text, style in cells:
        if row and (row[-1][1] == style or text == " "):
            row[-1] = (row[-1][0] + text, row[-1][1])
        else:
            row.append((text, style))
    while row and not row[-1][0].strip():
        row.pop()
    if row:
        row[-1] = (row[-1][0].rstrip(), row[-1][1])
    return row


# --- SVG ---------------------------------------------------------------------

LIGHT = {
    "paper": "#ffffff",
    "edge": "#d0d7de",
    "ink": "#1f2328",
    "faint": "#59636e",
    "red": "#c1121f",
    "green": "#1a7f37",
    "yellow": "#8a5a00",
    "blue": "#0757ba",
    "magenta": "#8250df",
    "cyan": "#11627a",
}
DARK = {
    "paper": "#0d1117",
    "edge": "#30363d",
    "ink": "#e6edf3",
    "faint": "#9198a1",
    "red": "#ff7b72",
    "green": "#56d364",
    "yellow": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#76e3ea",
}
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
XML = "http://www.w3.org/2000/svg"
WIDTH, HEIGHT, SIZE = 8.4, 20, 14
LEFT, TOP = 20, 34


def css(colours: dict[str, str]) -> str:
    rules = [
        f"rect {{ fill: {colours['paper']}; stroke: {colours['edge']} }}",
        f"text {{ fill: {colours['ink']} }}",
        f".d {{ fill: {colours['faint']} }}",
    ]
    rules += [f".{name} {{ fill: {colours[name]} }}" for name in NAMES[1:7]]
    return " ".join(rules)


def svg(rows: Sequence[Row], about: str, look: str = "both") -> str:
    """Return lines of a terminal as a picture; `look` is light, dark or both.

    With both, the picture follows the system of the reader.
    """
    width = round(COLUMNS * WIDTH + 2 * LEFT)
    height = TOP + HEIGHT * len(rows) + 8
    styles = css(DARK if look == "dark" else LIGHT)
    if look == "both":
        styles += f" @media (prefers-color-scheme: dark) {{ {css(DARK)} }}"
    size = f'width="{width}" height="{height}"'
    fonts = f"text {{ font: {SIZE}px {FONT}; white-space: pre }} .b {{ font-weight: bold }}"
    edge = f'x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"'
    lines = [
        f'<svg xmlns="{XML}" viewBox="0 0 {width} {height}" {size} role="img">',
        f"<title>{escape(about)}</title>",
        f"<style>{fonts} {styles}</style>",
        f"<rect {edge}/>",
    ]
    for number, row in enumerate(rows):
        lines += pieces(row, TOP + HEIGHT * number)
    return "\n".join([*lines, "</svg>", ""])


def pieces(row: Row, y: int) -> Iterator[str]:
    column = 0
    for text, style in row:
        x = f"{LEFT + column * WIDTH:g}"
        column += len(text)
        if not text.strip():
            continue
        kind = f' class="{style.classes}"' if style.classes else ""
        # The length keeps columns aligned in whatever font the reader has.
        length = f'textLength="{len(text) * WIDTH:g}" lengthAdjust="spacingAndGlyphs"'
        yield f'<text x="{x}" y="{y}"{kind} {length} xml:space="preserve">{escape(text)}</text>'


def read_svg(text: str) -> list[Row]:
    """Return the lines of a picture that `svg` made."""
    rows: dict[int, Row] = {}
    for element in ET.fromstring(text).iter(f"{{{XML}}}text"):  # noqa: S314 - our own files
        number = (int(element.attrib["y"]) - TOP) // HEIGHT
        column = round((float(element.attrib["x"]) - LEFT) / WIDTH)
        words = element.attrib.get("class", "").split()
        colour = next((word for word in words if word in NAMES), "")
        row = rows.setdefault(number, [])
        filled = sum(len(piece) for piece, _ in row)
        if filled < column:
            row.append((" " * (column - filled), PLAIN))
        row.append((element.text or "", Style(colour, "b" in words, "d" in words)))
    return [rows.get(number, []) for number in range(max(rows, default=-1) + 1)]


VOLATILE = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?([+-]\d\d:\d\d|Z)?", "TIME"),
    (r"\b\d\d:\d\d:\d\d\b", "TIME"),
    (r"\b[0-9a-f]{4}( [0-9a-f]{4})+\b|\b[0-9a-f]{12,64}\b", "HASH"),
    (r"127\.0\.0\.1:\d+", "HOST"),
    (r"\b\d+(\.\d+)?(ms|s|m|h)\b|\bat once\b", "DURATION"),
    (r"DURATION( DURATION)+", "DURATION"),
    (r"[━·?◦─]{2,}", "BAR"),
    (r"\s+", " "),
)
RUN = re.compile(r"\brun ([a-z0-9]{12})\b")


def lasting(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """Return what is the same from run to run: the text of each line, and its styles."""
    whole = "\n".join("".join(text for text, _ in row) for row in rows)
    runs = dict.fromkeys(RUN.findall(whole))
    found = []
    for row in rows:
        text = "".join(piece for piece, _ in row)
        for run in runs:
            text = text.replace(run, "RUN")
        for pattern, name in VOLATILE:
            text = re.sub(pattern, name, text)
        styles = [style.classes for piece, style in row if piece.strip()]
        found.append((text.strip(), styles))
    return found


# --- what is shown -----------------------------------------------------------


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    """Arguments of `leadhand`. RUN: the run of the command before; API: the address of the data."""
    picture: str = ""
    """The name of its picture, if it has one."""
    about: str = ""
    """What the picture shows, in words, for a reader who does not see it."""
    answers: tuple[tuple[str, str], ...] = ()
    """What is typed, each after a text that the command has printed."""
    cut: tuple[str, str] | None = None
    """How two lines begin between which all is left out; an ellipsis says so."""
    exits: int = 0


@dataclass(frozen=True)
class Story:
    """Commands that run one after another in a copy of an example."""

    example: str
    commands: tuple[Command, ...]
    source: bool = False
    """Whether the example's server.py runs beside them."""


GOAL = "'Where do the bicycles run out?'"
STORIES = (
    Story(
        "research",
        (
            Command(
                ("run", GOAL, "--have", "api=API", "--want", "summary"),
                "run",
                "A terminal: leadhand run works towards a goal. A rate limit, a missing page and a "
                "step that is too large each get their own recovery, and the run succeeds.",
            ),
            Command(
                ("show", "RUN", "--timeline"),
                "timeline",
                "A terminal: leadhand show draws when each step of a run worked, waited and "
                "failed, and lists each recovery.",
            ),
            Command(
                ("verify", "RUN"),
                "verify",
                "A terminal: leadhand verify checks every hash and every rule of a run's log.",
            ),
        ),
        source=True,
    ),
    Story(
        "reviewed",
        (
            Command(
                ("review", "plan.yaml"),
                "review",
                "A terminal: leadhand review shows a plan with its risk, side effects and steps.",
                cut=("Plan\n", "Plan digest"),
            ),
            Command(
                ("run", "plan.yaml", "--review"),
                "approval",
                "A terminal: leadhand run shows the plan and asks for approval. One page is "
                "missing; the planner revises the plan within what was approved, and the run "
                "succeeds.",
                answers=(("Approve?", "y\n"),),
                cut=("Steps", "Plan digest"),
            ),
        ),
    ),
)
TERMINAL = {each.picture: story for story in STORIES for each in story.commands if each.picture}


@contextmanager
def project(story: Story) -> Iterator[tuple[Path, str]]:
    """A copy of an example in a folder of its own; and the address of its data, if it has any."""
    with tempfile.TemporaryDirectory(prefix="leadhand-pictures-") as made:
        folder = Path(made) / story.example
        skip = shutil.ignore_patterns(".leadhand", "__pycache__", "*.db*")
        shutil.copytree(ROOT / "examples" / story.example, folder, ignore=skip)
        if not story.source:
            yield folder, ""
            return
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        source = subprocess.Popen(
            [sys.executable, "server.py", str(port)], cwd=folder, stdout=subprocess.DEVNULL
        )
        try:
            wait_for(port)
            yield folder, f"http://127.0.0.1:{port}"
        finally:
            source.kill()
            source.wait()


def wait_for(port: int) -> None:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port}")


def play(story: Story, until: str = "") -> Iterator[tuple[Command, list[Row]]]:
    """Run the commands of a story; give what the terminal shows of each that has a picture.

    The story ends with the picture `until`.
    """
    run = ""
    with project(story) as (folder, api):
        for command in story.commands:
            typed = [word.replace("RUN", run).replace("API", api) for word in command.words]
            said = spoken([word.strip("'") for word in typed], command, folder)
            said = said.replace(str(folder.resolve()), f"~/{story.example}")
            found = RUN.search(SEQUENCE.sub("", said))
            run = found[1] if found else run
            terminal = Terminal()
            terminal.feed(f"\x1b[2m$\x1b[0m \x1b[1mleadhand {' '.join(typed)}\x1b[0m\r\n")
            terminal.feed(said)
            if command.picture:
                yield command, shortened(terminal.shown(), command.cut)
            if until and command.picture == until:
                return


def shortened(rows: list[Row], cut: tuple[str, str] | None) -> list[Row]:
    """Return the lines with those between two others left out."""
    if cut is None:
        return rows
    texts = ["".join(piece for piece, _ in row) for row in rows]
    first = next(number for number, text in enumerate(texts) if f"{text}\n".startswith(cut[0]))
    last = next(number for number, text in enumerate(texts) if f"{text}\n".startswith(cut[1]))
    return [*rows[: first + 1], [("  …", Style(dim=True))], *rows[last:]]


def spoken(words: Sequence[str], command: Command, folder: Path) -> str:
    """Run `leadhand WORDS` in a pseudo-terminal, type the answers, return all output."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    env = kept | {"HOME": str(folder.parent), "TERM": "xterm-256color", "PYTHONUTF8": "1"}
    env |= {"LEADHAND_ACTOR": "ada", "LEADHAND_TRUST": str(folder.resolve())}
    env |= {"PYTHONPATH": str(ROOT / "src"), "TZ": "UTC"}
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "leadhand.cli", *words],
        cwd=folder,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        # The terminal becomes the one that controls the command, as in a shell.
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )
    os.close(theirs)
    try:
        said = conversation(ours, list(command.answers))
        code = process.wait(timeout=LIMIT_S)
    finally:
        process.kill()
        os.close(ours)
    if code != command.exits:
        raise RuntimeError(f"leadhand {' '.join(words)}: exit {code}\n{said}")
    return said


def conversation(terminal: int, answers: list[tuple[str, str]]) -> str:
    said, place = b"", 0
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            part = os.read(terminal, 65536)
        except OSError as trouble:  # Linux says so when the other side is closed
            if trouble.errno != errno.EIO:
                raise
            part = b""
        if not part:
            break
        said += part
        while answers and answers[0][0].encode() in said[place:]:
            place = len(said)
            os.write(terminal, answers.pop(0)[1].encode())
    else:
        raise RuntimeError(f"no end after {LIMIT_S} s:\n{said.decode(errors='replace')}")
    if answers:
        raise RuntimeError(f"{answers[0][0]!r} was not printed:\n{said.decode(errors='replace')}")
    return said.decode()


# --- the dashboard -----------------------------------------------------------


class Camera:
    """A browser that takes a picture of a page in both looks."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser

    def take(self, name: str, entry: str, place: str, wanted: str) -> None:
        """Enter a dashboard, go to `#/PLACE`, wait for the selector `wanted`, and take it."""
        for look in LOOKS:
            context = self.browser.new_context(
                viewport=SCREEN, color_scheme=look, device_scale_factor=1.5
            )
            context.set_default_timeout(LIMIT_S * 1000)
            page = context.new_page()
            page.goto(entry)
            page.locator("h1").first.wait_for()
            page.goto(f"{entry.partition('#')[0]}#/{place}")
            page.locator(wanted).first.wait_for()
            page.locator(".loading").first.wait_for(state="detached")
            page.wait_for_timeout(400)  # what moves has come to rest
            page.screenshot(path=str(OUT / f"{name}-{look}.png"))
            context.close()


def take_run(camera: Camera, folder: Path) -> None:
    """The research example at its end: steps that failed, were split, and succeeded."""
    from tests.web.conftest import example

    with example(folder / "research", "research") as (served, source):
        goal = {"text": GOAL.strip("'"), "have": {"api": source}, "want": ["summary"]}
        run = served.call("POST", "/runs", {"goal": goal})["run"]
        served.until(run, "succeeded", seconds=LIMIT_S)
        camera.take("dashboard-run", served.entry, f"runs/{run}", "[data-step=summarise]")


def take_review(camera: Camera, folder: Path) -> None:
    """The deployment example, whose plan waits for an approval."""
    from tests.web.conftest import Served

    shutil.copytree(ROOT / "examples" / "deploy", folder / "deploy")
    with Served(folder / "deploy") as served:
        plan = json.loads((folder / "deploy" / "plan.json").read_text())
        run = served.call("POST", "/runs", {"plan": plan, "review": True})["run"]
        served.until(run, "waiting")
        camera.take("dashboard-review", served.entry, f"runs/{run}/plan", ".review-bar")
        camera.take("dashboard-overview", served.entry, "overview", ".ask")


def take_fleet(camera: Camera, folder: Path) -> None:
    """The fleet example with three changes on main."""
    from tests.support.cli import Folder, environment

    shutil.copytree(ROOT / "examples" / "fleet", folder / "fleet")
    here = Folder(folder / "fleet")
    command = [sys.executable, "make_repo.py"]
    subprocess.run(command, cwd=here.path, env=environment(here.path), check=True)
    done = here.run("fleet", "submit", "search.md")
    if done.code:
        raise RuntimeError(str(done))
    with here.start("fleet", "start", "--port", "0", "--json", LEADHAND_ACTOR="ada") as child:
        assert child.stdout is not None
        url = json.loads(child.stdout.readline())["url"] + "/"
        token = (here.path / ".leadhand/fleet/fleet.db.token").read_text().strip()
        end = time.monotonic() + LIMIT_S
        while here.run("fleet", "status", "--json").doc["landed"]["last_hour"] < 3:
            if time.monotonic() > end:
                raise RuntimeError("the fleet example brings nothing to main")
            time.sleep(0.3)
        camera.take("dashboard-fleet", f"{url}#token={token}", "fleet", ".columns")
        child.send_signal(signal.SIGTERM)
        child.wait(timeout=LIMIT_S)


DASHBOARD = {
    "dashboard-run": take_run,
    "dashboard-review": take_review,
    "dashboard-overview": take_review,
    "dashboard-fleet": take_fleet,
}
SCREEN = {"width": 1280, "height": 800}
NAMES_ALL = (*TERMINAL, *DASHBOARD)


def photograph(names: Collection[str]) -> None:
    """Take the named pictures of the dashboard."""
    from playwright.sync_api import sync_playwright

    from tests.web.conftest import FLAGS, chromium_path

    path = chromium_path()
    if path is None:
        sys.exit("leadhand: Chromium is needed: python3 scripts/browser.py")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        for take in dict.fromkeys(DASHBOARD[name] for name in names):
            with tempfile.TemporaryDirectory(prefix="leadhand-pictures-") as made:
                take(Camera(browser), Path(made))
        browser.close()


# --- all of them -------------------------------------------------------------


def make(story: Story, names: Collection[str]) -> None:
    """Write the pictures of a story; of those, only the named ones."""
    for command, rows in play(story):
        name, about = command.picture, command.about
        if name not in names:
            continue
        for look in LOOKS:
            (OUT / f"{name}-{look}.svg").write_text(svg(rows, about, look))
        kept = COMMITTED / f"{name}.svg"
        # Where only times and ids differ, the committed one stays as it is.
        if kept.exists() and not current(kept.read_text(), rows, about):
            kept.write_text(svg(rows, about))
            print(f"docs/img/{name}.svg has changed: commit it")
        print(f"build/pictures/{name}")


def current(known: str, rows: Sequence[Row], about: str) -> bool:
    """Return whether a picture is what is made now, but for times, ids and hashes."""
    held = read_svg(known)
    return svg(held, about) == known and lasting(held) == lasting(rows)


def fingerprint() -> str:
    """Return a digest of all that the pictures are made from."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for folder in ("src", "examples"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and ".leadhand" not in path.parts:
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def main(names: Sequence[str], *, new: bool) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    record, now = OUT / "made-from.txt", fingerprint()
    if new and record.exists() and record.read_text() == now:
        return
    wanted = names or NAMES_ALL
    for story in STORIES:
        if any(TERMINAL.get(name) is story for name in wanted):
            make(story, wanted)
    photograph([name for name in wanted if name in DASHBOARD])
    if not names:
        record.write_text(now)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    parser = argparse.ArgumentParser(description="Make the pictures of the documentation.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(NAMES_ALL)}")
    parser.add_argument(
        "--new", action="store_true", help="only if something they show has changed"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES_ALL):
        parser.error(f"no such picture: {', '.join(sorted(unknown))}")
    main(options.names, new=options.new)
