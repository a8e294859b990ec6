"""Edits of the past: how often changes of a file met, hunk by hunk, and which files only grow."""

import subprocess

from hypothesis import given
from hypothesis import strategies as st

from leadhand.fleet.boundaries import Sharing
from leadhand.fleet.edit_history import (
    APART,
    EDITS_LEAST,
    REWRITING,
    TOUCHING,
    CommitEdits,
    EditHistory,
    Hunk,
    Merges,
    edits_of,
    meeting,
    moved,
    written_by,
)
from leadhand.fleet.repository.git import Git


def repository(folder, *versions):
    """A repository whose commits hold these files, each version as a mapping of names to text."""
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run([*git, "init", "-q", "-b", "main", str(folder)], check=True)
    for number, files in enumerate(versions):
        for name, text in files.items():
            (folder / name).unlink(missing_ok=True)
            if text is not None:
                (folder / name).write_text(text)
        for argv in (["add", "-A"], ["commit", "-q", "--allow-empty", "-m", f"change {number}"]):
            subprocess.run([*git, *argv], cwd=folder, check=True)
    (folder / ".git" / "fleet-config").write_text("")
    return Git(folder / ".git", folder / ".git" / "fleet-config")


def lines(*changed, count=40):
    """A file of lines, of which some are changed: (number, text)."""
    text = [f"line {number}\n" for number in range(1, count + 1)]
    for number, more in changed:
        text[number - 1] = more
    return "".join(text)


async def history_of(git):
    return EditHistory(await edits_of(git, "main"))


async def test_edits_apart_touching_and_rewriting_are_told_apart(tmp_path):
    git = repository(
        tmp_path / "repo",
        {"a.py": lines()},
        {"a.py": lines((5, "five\nand more\n"))},
        {"a.py": lines((5, "five\nand more\n"), (30, "thirty\n"))},
        {"a.py": lines((5, "five\nand more\n"), (6, "six\n"), (30, "thirty\n"))},
        {"a.py": lines((5, "five\nand more\n"), (6, "six\n"), (30, "again\n"))},
    )
    commits = await edits_of(git, "main")
    history = EditHistory(commits)
    first, five, thirty, six, again = [each.name for each in commits]
    assert first not in {name for pair in history.pairs for name in pair}
    assert history.pairs[five, six] == TOUCHING
    assert history.pairs[thirty, again] == REWRITING
    assert (five, thirty) not in history.pairs
    assert (thirty, six) not in history.pairs
    met, conflicts = history.of("a.py")
    assert (met, conflicts) == (5, 1), "five-thirty, five-six, thirty-six, five-again, six-again"
    assert 0.05 < history.usual < 0.2


async def test_a_renamed_file_keeps_its_past_and_strange_lines_are_no_headers(tmp_path):
    strange = "+++ b/other.py\n@@ -1,2 +3,4 @@\ndiff --git a/x b/x\n\x01\nno end"
    git = repository(
        tmp_path / "repo",
        {"a.py": lines(), "x": "x\n"},
        {"a.py": lines((5, "five\n"))},
        {"a.py": lines((5, "five\n"), (30, "thirty\n"))},
        {"a.py": None, "b.py": lines((5, "five\n"), (30, "thirty\n"))},
        {"b.py": lines((5, "five\n"), (20, "twenty\n"), (30, "thirty\n")), "x": strange},
        {"x": strange + "d\n"},
    )
    commits = await edits_of(git, "main")
    assert commits[3].renamed == {"b.py": "a.py"}
    assert all(set(each.files) <= {"a.py", "b.py", "x"} for each in commits)
    assert [len(each.files.get("b.py", ())) for each in commits[3:]] == [0, 1, 0]
    history = EditHistory(commits)
    assert history.of("a.py") == Merges()
    assert history.of("b.py").conflicts == 0 < history.of("b.py").met


async def test_text_that_only_grows_is_learnt_and_code_is_not(tmp_path):
    versions = [{"seeds.txt": "0\n", "register.py": "a = 0\n", "notes.md": "0\n"}]
    for number in range(1, EDITS_LEAST + 2):
        grown = "".join(f"{each}\n" for each in range(number + 1))
        versions.append({"seeds.txt": grown, "register.py": grown, "notes.md": f"{number}\n"})
    history = await history_of(repository(tmp_path / "repo", *versions))
    assert history.append_files() == ["seeds.txt"]
    learnt = Sharing(("CHANGELOG.md",)).learning(["seeds.txt", "CHANGELOG.md", "odd[1].txt"])
    assert learnt.append == ("CHANGELOG.md", "seeds.txt")
    assert learnt.reserved(["seeds.txt", "a.py"]) == ["a.py"]
    assert Sharing(exclusive=("**/*.txt",)).learning(["data/seeds.txt"]).append == ()


async def test_trouble_of_git_leaves_no_history(tmp_path):
    git = repository(tmp_path / "repo", {"a.py": "a\n"})
    assert await edits_of(git, "no-such-branch") == []
    assert EditHistory().of("a.py") == Merges()


HUNKS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(0, 4)), max_size=5
).map(lambda gaps: list(_hunks(gaps)))


def _hunks(gaps):
    """Hunks in order, with at least one line between two."""
    line = 0
    for gap, gone, added in gaps:
        line += gap + 1
        if gone or added:
            yield Hunk(line, line + gone, added)
            line += gone


@given(HUNKS, HUNKS)
def test_lines_move_as_the_text_does(earlier, later):
    """Compared with the text itself: the lines that the first edit wrote, after the second."""
    text = [f"{number}" for number in range(1, 80)]
    after = _edited(text, earlier, "first")
    written = written_by(earlier)
    marked = {number for first, end in written for number in range(first, end)}
    assert {n for n, line in enumerate(after, 1) if line.startswith("first")} == marked
    if all(meeting([each], later) == APART for each in written):
        last = _edited(after, later, "second")
        now = {number for first, end in moved(written, later) for number in range(first, end)}
        assert {n for n, line in enumerate(last, 1) if line.startswith("first")} == now


def _edited(text, hunks, word):
    result, at = [], 1
    for hunk in hunks:
        result += text[at - 1 : hunk.first - 1] + [f"{word} {n}" for n in range(hunk.added)]
        at = hunk.end
    return result + text[at - 1 :]


def test_lines_written_in_between_count_as_nothing():
    """Three edits at one place: had the first and the last been made at once, they conflict."""
    commits = [CommitEdits(name, {"a": [Hunk(10, 10, 1)]}, {}) for name in "abc"]
    commits.append(CommitEdits("d", {"a": [Hunk(14, 14, 1)]}, {}))
    history = EditHistory(commits)
    assert history.pairs == dict.fromkeys([("a", "b"), ("a", "c"), ("b", "c")], TOUCHING)
    assert history.of("a") == Merges(6, 3)


def test_commits_of_many_files_only_move_lines():
    many = CommitEdits("many", {f"f{n}": [Hunk(1, 1, 3)] for n in range(50)}, {})
    history = EditHistory([CommitEdits("one", {"f1": [Hunk(10, 11, 1)]}, {}), many])
    assert history.of("f1") == Merges()
    history.add(CommitEdits("two", {"f1": [Hunk(13, 14, 1)]}, {}))
    assert history.pairs == {("one", "two"): REWRITING}
