"""Whether a merged change is still the change: tables of small cases."""

import pytest

from leadhand.fleet.merge.same_change import TreeEntry, same_lines, strangers

F = "100644"


def entry(path, old, new, mode=F, old_mode=F):
    zero = "0" * 4
    status = "A" if not old else "D" if not new else "M"
    return TreeEntry(path, status, old_mode, mode, old or zero, new or zero)


@pytest.mark.parametrize(
    ("change", "merged", "target", "odd", "both"),
    [
        ([entry("a", "1", "2")], [entry("a", "1", "2")], [], [], 0),
        ([entry("a", "1", "2")], [entry("a", "1", "3")], [], ["a"], 0),
        ([entry("a", "1", "2")], [entry("a", "1", "2"), entry("b", "5", "")], [], ["b"], 0),
        ([entry("a", "1", "2")], [], [entry("a", "1", "2")], [], 0),
        ([entry("a", "1", "2")], [], [entry("a", "1", "7")], ["a"], 0),
        ([entry("a", "1", "2")], [], [], ["a"], 0),
        ([entry("a", "1", "2")], [entry("a", "4", "6")], [entry("a", "1", "4")], [], 1),
        ([entry("a", "1", "2", "100755")], [entry("a", "4", "6")], [], ["a"], 0),
        ([entry("a", "1", "2")], [entry("a", "4", "6", "100755")], [], ["a"], 0),
    ],
    ids=["same", "other result", "more", "already there", "lost", "vanished", "both", "mode", "+x"],
)
def test_paths_are_compared(change, merged, target, odd, both):
    """Path by path, with modes."""
    found, pairs = strangers(change, merged, target)
    assert (found, len(pairs)) == (odd, both)


@pytest.mark.parametrize(
    ("base", "head", "target", "result", "same"),
    [
        ("a b c", "A b c", "a b C", "A b C", True),
        ("a b c", "A b c", "a b C", "A b c", False),  # takes back what main did
        ("a b c", "A b c", "a b C x", "A b C", False),  # drops a line main added
        ("a b c", "A b c", "a b C", "A b C y", False),  # adds one nobody asked for
        ("a b c", "a b c n", "a b c n", "a b c n", True),  # both did the same
        ("a b c", "b c", "a b c d", "b c d", True),
        ("a b c", "b c", "a b c a", "b c", False),  # removes one more
    ],
)
def test_lines_are_counted(base, head, target, result, same):
    """What the merge does to each line is at most what the change did."""
    texts = {name: "\n".join(text.split()).encode() for name, text in (
        ("1", base), ("2", head), ("3", target), ("4", result))}  # fmt: skip
    assert same_lines(entry("x", "1", "2"), entry("x", "3", "4"), texts) is same
