"""Pictures are current: what the commands show now is what the committed picture shows."""

from pathlib import Path

import pytest

from scripts import pictures
from scripts.pictures import Style, Terminal, lasting, read_svg, svg

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = sorted((ROOT / "docs" / "img").iterdir())


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_a_committed_picture_shows_what_the_command_shows(path):
    """The run is made again; run ids, times, durations and hashes may differ, nothing else."""
    story = pictures.TERMINAL[path.stem]
    for command, rows in pictures.play(story, until=path.stem):
        if command.picture == path.stem:
            assert lasting(read_svg(path.read_text())) == lasting(rows), "make pictures"
            assert pictures.current(path.read_text(), rows, command.about), "make pictures"


def text(rows):
    return ["".join(piece for piece, _ in row) for row in rows]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("one\r\ntwo", ["one", "two"]),
        ("one\rtwo", ["two"]),
        ("old\r\x1b[2Knew", ["new"]),
        ("a\r\nb\r\nc\x1b[2A\r\x1b[Jd", ["d"]),
        ("a\r\nb\x1b[1A\rc", ["c", "b"]),
        ("\x1b[?25lab\x1b[?25h", ["ab"]),
        ("abcdefgh", ["abcde", "fgh"]),
        ("ab\b\bc", ["cb"]),
        ("a\x1b[3Gb\x1b[2Dc", ["acb"]),
        ("end   \r\n\r\n", ["end"]),
    ],
)
def test_a_terminal_shows_what_was_written(written, shown):
    terminal = Terminal(columns=5)
    terminal.feed(written)
    assert text(terminal.shown()) == shown


def rows_of(written):
    terminal = Terminal()
    terminal.feed(written)
    return terminal.shown()


def test_a_picture_keeps_text_and_styles():
    """What is read from a picture is what was drawn."""
    rows = rows_of("  \x1b[1;31m✗ failed\x1b[0m <a & b>\r\n\r\n\x1b[2mdim\x1b[22m x \x1b[92mgreen")
    assert rows[0][1] == ("✗ failed ", Style("red", bold=True))
    for look in ("light", "dark", "both"):
        assert read_svg(svg(rows, "about <it>", look)) == rows
    assert svg(rows, "it", "light") != svg(rows, "it", "dark")
    assert "prefers-color-scheme: dark" in svg(rows, "it")


def test_a_picture_loads_nothing():
    drawn = svg(rows_of("hello"), "it").replace(pictures.XML, "")
    assert "http" not in drawn
    assert "url(" not in drawn


RUN = (
    "run k3x9w2m7q4pz  Goal\r\n"
    "\x1b[32m✓ succeeded\x1b[0m  a  1.5s\r\n"
    "━━━✗──✓  hash 0123456789abcdef\r\n"
)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (("k3x9w2m7q4pz", "aaaabbbbcccc"), True),
        (("1.5s", "812ms"), True),
        (("━━━✗", "━━✗"), True),
        (("0123456789abcdef", "fedcba9876543210"), True),
        (("succeeded", "done"), False),
        (("32m", "31m"), False),
        (("Goal", "goal"), False),
        (("  a  ", "  b  "), False),
        (("✗", "✓"), False),
    ],
)
def test_what_may_differ_from_run_to_run(change, same):
    assert (lasting(rows_of(RUN)) == lasting(rows_of(RUN.replace(*change)))) is same


def test_a_stale_picture_is_noticed():
    """Another text, another style of drawing, and other words about it."""
    rows = rows_of(RUN)
    known = svg(rows, "it")
    assert pictures.current(known, rows_of(RUN.replace("1.5s", "2s")), "it")
    assert not pictures.current(known, rows_of(RUN.replace("Goal", "Aim")), "it")
    assert not pictures.current(known.replace("bold", "bolder"), rows, "it")
    assert not pictures.current(known, rows, "that")
