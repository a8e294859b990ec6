"""The markers of the port: nobody else can forge one, and none is lost."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadhand.fleet.forge.port import (
    BODY_MAX,
    TEXT_MAX,
    Forge,
    GitAccess,
    check_key,
    clean_text,
    key_of,
    quoted,
    same_text,
    with_marker,
)
from tests.fleet.forge.memory_forge import MemoryForge

KEYS = st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9._/:]|-(?!-)){0,119}", fullmatch=True)


@given(st.text(), KEYS)
@example("<!-- leadhand:other -->", "mine")
@example("<!--leadhand:other-->\n<!--\tLEADHAND : x -->", "mine")
@example("x" * 70_000, "mine")
@example("<!-- " * 20_000, "mine")
def test_a_text_has_its_own_marker_and_no_other(body, key):
    """Whatever is quoted, the one key in a written text is the one it was written with."""
    written = with_marker(body, key)
    assert key_of(written) == key
    assert key_of(clean_text(written)) == key
    assert key_of(written.replace("\n", "\r\n") + "\r\n") == key
    assert written.lower().count("<!-- leadhand:") == 1
    assert len(written) < 65_536
    without = written.rpartition("<!-- leadhand:")[0]
    assert key_of(without) == ""


@given(st.text(), KEYS)
def test_a_marker_counts_at_the_end_only(after, key):
    """A marker that is followed by text is a quotation."""
    text = f"{with_marker('said', key)}\n{after}"
    assert key_of(text) == (key if not after.strip() else key_of(after))


@pytest.mark.parametrize("key", ["", "a--b", "-a", "a b", "a>", "x" * 121, "ä", "a\n"])
def test_what_cannot_stand_in_a_marker_is_no_key(key):
    """A key that would end its own marker is refused before anything is written."""
    with pytest.raises(ValueError, match="is no key"):
        check_key(key)


@given(st.text(alphabet=st.characters(codec=None)))
@example("a\x00\x1b[31m\ud800\r\nb\rc")
def test_text_of_a_host_can_be_stored_and_shown(text):
    """No control characters, no halves of characters, no end of a line but one."""
    found = clean_text(text)
    found.encode("utf-8")
    assert not [each for each in found if each not in "\n\t" and ord(each) < 32]


def test_long_text_is_cut():
    """A cut text says so."""
    assert len(clean_text("x" * (10 * TEXT_MAX))) < TEXT_MAX + 100
    assert clean_text("x" * (TEXT_MAX + 1)).endswith("(cut: the text was longer)")
    assert with_marker("y" * (BODY_MAX + 1), "k").count("(cut:") == 1


def test_access_does_not_show_its_token():
    """What is printed of an access has the names of variables only."""
    access = GitAccess(url="https://git.test/a.git", env={"GIT_CONFIG_VALUE_0": "secret-token"})
    assert "secret-token" not in repr(access)
    assert "secret-token" not in f"{access}"


async def test_the_host_in_memory_has_the_port():
    """The double of the tests stands for the port, and makes nothing twice."""
    memory = MemoryForge()
    forge: Forge = memory
    issue = memory.add_issue("A goal")
    memory.label_issue(issue.number, "leadhand")
    assert [each.number for each in await forge.issues(label="leadhand")] == [issue.number]
    for _ in range(2):
        await forge.comment(issue.number, "hello", "k1")
    memory.say(issue.number, with_marker("forged", "k2"))
    assert [each.key for each in await forge.comments(issue.number)] == ["k1", ""]
    memory.push("leadhand/1", "c1")
    first = await forge.open_pull("leadhand/1", "main", "T", "B", "p1")
    again = await forge.open_pull("leadhand/1", "main", "T2", "B", "p1")
    assert (first.number, again.title) == (again.number, "T2")
    assert memory.writes == ["comment issue 1 k1", "pull leadhand/1 p1"]


def test_a_line_of_ours_that_a_person_copies_is_what_it_says():
    """In our text it is no command of the host; in a comment of a person it is one of ours."""
    written = with_marker("Answer with:\n\n/answer q1 yes\n  /close\n> /merge", "k")
    assert not [line for line in written.splitlines() if line.lstrip("> ").startswith("/")]
    assert clean_text(written).splitlines()[2] == "/answer q1 yes"
    assert same_text(clean_text(written), written)


def test_a_quotation_mentions_nobody():
    """Every line is quoted, and no account is named to programs that listen for their name."""
    found = quoted("@bot merge\n\nmail a@b.c\r\n")
    assert found == "> @\u200bbot merge\n>\n> mail a@\u200bb.c"
    assert "@bot" not in with_marker(found, "k")
