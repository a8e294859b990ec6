"""Edits of files that others write too: our entry comes and goes, and no other byte changes."""

import json
import os
import stat
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.connect import json_text
from leadhand.connect.edits import Entry, OwnFile, Record, add, take_back
from leadhand.errors import Conflict, UsageError

SERVER = {"command": "leadhand", "args": ["mcp", "serve"]}
HOOK = {"matcher": "*", "hooks": [{"type": "command", "command": "leadhand plan-gate codex"}]}

JSON_TEXTS = {
    "empty object": "{}",
    "empty with a line": "{\n}\n",
    "other members": '{\n  "theme": "dark"\n}\n',
    "four spaces": '{\n    "mcpServers": {\n        "a": {"command": "x"}\n    }\n}\n',
    "tabs": '{\n\t"mcpServers": {\n\t\t"a": {}\n\t}\n}',
    "one line": '{"mcpServers": {"a": {"command": "x"}}, "z": [1, 2]}',
    "empty servers": '{\n  "mcpServers": {}\n}\n',
    "comments": '// mine\n{\n  "mcpServers": { // all\n    "a": {}, /* one */\n  },\n}\n',
    "comment inside": '{\n  "mcpServers": {\n    // none yet\n  }\n}\n',
    "windows": '{\r\n  "mcpServers": {\r\n    "a": {}\r\n  }\r\n}\r\n',
    "escapes": '{"a\\"b": "\\u00e9 // no comment", "mcpServers": {"x": {}}}',
}
TOML_TEXTS = {
    "empty": "",
    "settings": 'model = "o3"  # fast\n',
    "no newline at the end": "[features]\nhooks = true",
    "other servers": '[mcp_servers.docs]\ncommand = "docs"\n\n[mcp_servers.docs.env]\nA = "1"\n',
    "windows": 'model = "o3"\r\n[a]\r\nb = 1\r\n',
    "blank lines": "\n\n# only a comment\n\n",
}


def member(file):
    return Entry(file, "member", ("mcpServers", "leadhand"), SERVER)


def item(file):
    return Entry(file, "item", ("hooks", "PreToolUse"), HOOK)


def table(file):
    return Entry(file, "table", ("mcp_servers", "leadhand"), SERVER)


def written(*parts, record=None):
    """Add parts and write them; gives back the record."""
    changes, after = add(list(parts), record or Record())
    after.folders += changes.write()
    return after


@pytest.mark.parametrize("make", [member, item], ids=["member", "item"])
@pytest.mark.parametrize("text", JSON_TEXTS.values(), ids=JSON_TEXTS)
def test_a_json_entry_comes_and_goes_and_leaves_every_byte(tmp_path, text, make):
    file = tmp_path / "x.json"
    file.write_bytes(text.encode())
    before = json_text.parse(text).plain()
    record = written(make(file))
    after = json_text.parse(file.read_bytes().decode()).plain()
    name, *_ = make(file).path
    assert {k: v for k, v in after.items() if k != name} == {
        k: v for k, v in before.items() if k != name
    }
    if make is member:
        assert after["mcpServers"] == {**before.get("mcpServers", {}), "leadhand": SERVER}
    else:
        assert after["hooks"]["PreToolUse"] == [HOOK]
    changes, gone = take_back(record)
    changes.write()
    assert not gone
    assert file.read_bytes().decode() == text


@pytest.mark.parametrize("text", TOML_TEXTS.values(), ids=TOML_TEXTS)
def test_a_toml_table_comes_and_goes_and_leaves_every_byte(tmp_path, text):
    file = tmp_path / "config.toml"
    file.write_bytes(text.encode())
    record = written(table(file))
    after = tomllib.loads(file.read_bytes().decode())
    assert after["mcp_servers"].pop("leadhand") == SERVER
    assert after["mcp_servers"] == tomllib.loads(text).get("mcp_servers", {})
    changes, _ = take_back(record)
    changes.write()
    assert file.read_bytes().decode() == text


def test_a_new_file_and_its_folders_go_again(tmp_path):
    file = tmp_path / "a" / "b" / "x.json"
    record = written(member(file), OwnFile(tmp_path / "a" / "c.md", "ours\n"))
    assert record.folders == [str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    changes, _ = take_back(record)
    changes.write()
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


def test_entries_that_came_after_ours_stay(tmp_path):
    """The file was made by us, and a person added to it: it is theirs now."""
    file, config = tmp_path / "x.json", tmp_path / "config.toml"
    record = written(member(file), table(config))
    doc = json.loads(file.read_text())
    doc["mcpServers"]["own"] = {"command": "own"}
    file.write_text(json.dumps(doc, indent=4))
    config.write_text(config.read_text().replace("\n\n", "\n") + "# mine\n[own]\na = 1\n")
    take_back(record)[0].write()
    assert json.loads(file.read_text()) == {"mcpServers": {"own": {"command": "own"}}}
    assert config.read_text() == "# mine\n[own]\na = 1\n"


OURS = '"leadhand": {"command": "leadhand", "args": ["mcp", "serve"]}'


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('{"a": {}, // about a\n%s}', '{"a": {} // about a\n}'),
        ('{"a": {}, // about a\n  %s\n}', '{"a": {} // about a\n}'),
        ('{"a": {} /* a */, %s, // ours\n}', '{"a": {} /* a */, // ours\n}'),
        ('{%s, // mine\n "b": {}}', '{// mine\n "b": {}}'),
        ('{%s // ours\n , /* b */ "b": {}}', '{ // ours\n /* b */ "b": {}}'),
        ('{"a": {}, %s, "b": {}}', '{"a": {}, "b": {}}'),
    ],
)
def test_comments_of_others_stay_when_our_entry_goes(text, rest):
    whole = text.replace("%s", OURS)
    assert json_text.without(whole, ("leadhand",)) == rest
    left = json_text.parse(whole).plain()
    del left["leadhand"]
    assert json_text.parse(rest).plain() == left


def test_what_is_no_file_is_refused_at_once(tmp_path):
    pipe = tmp_path / "mcp.json"
    os.mkfifo(pipe)
    for each in (pipe, tmp_path):
        with pytest.raises(UsageError, match="is no file"):
            add([member(each)], Record())


def test_a_file_that_only_its_owner_may_read_is_never_open_to_others(tmp_path, monkeypatch):
    file, seen = tmp_path / "mcp.json", []
    file.write_text('{"token": "secret"}')
    file.chmod(0o600)
    fsync = os.fsync

    def watched(number):
        seen.append(stat.S_IMODE(os.fstat(number).st_mode))
        fsync(number)

    monkeypatch.setattr(os, "fsync", watched)
    written(member(file))
    assert seen == [0o600]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_second_time_changes_nothing(tmp_path):
    file, config = tmp_path / "x.json", tmp_path / "config.toml"
    parts = (member(file), table(config), OwnFile(tmp_path / "s.md", "ours\n"))
    record = written(*parts)
    changes, again = add(list(parts), record)
    assert not changes.changed
    assert (again.files, again.entries) == (record.files, record.entries)


def test_what_an_earlier_version_wrote_is_updated(tmp_path):
    """An old entry and an old file of ours, unchanged since, become the new ones."""
    file, own = tmp_path / "x.json", tmp_path / "s.md"
    file.write_text('{\n  "a": 1\n}\n')
    old = Entry(file, "member", ("mcpServers", "leadhand"), {"command": "old"})
    record = written(old, OwnFile(own, "old\n"))
    record = written(member(file), OwnFile(own, "new\n"), record=record)
    assert json.loads(file.read_text()) == {"a": 1, "mcpServers": {"leadhand": SERVER}}
    assert own.read_text() == "new\n"
    take_back(record)[0].write()
    assert file.read_text() == '{\n  "a": 1\n}\n'


@pytest.mark.parametrize("known", [True, False], ids=["since changed", "never ours"])
def test_what_a_person_wrote_is_not_overwritten_and_not_removed(tmp_path, known):
    file, config, own = tmp_path / "x.json", tmp_path / "config.toml", tmp_path / "s.md"
    parts = [member(file), table(config), OwnFile(own, "ours\n")]
    record = written(*parts) if known else Record()
    file.write_text('{"mcpServers": {"leadhand": {"command": "theirs"}}}')
    config.write_text('[mcp_servers.leadhand]\ncommand = "theirs"\n')
    own.write_text("theirs\n")
    before = [each.read_text() for each in (file, config, own)]
    with pytest.raises(Conflict, match="nothing was written") as refused:
        add(parts, record)
    assert all(name in str(refused.value) for name in ("x.json", "config.toml", "s.md"))
    if known:
        with pytest.raises(Conflict, match="nothing was removed") as refused:
            take_back(record)
        assert all(name in str(refused.value) for name in ("x.json", "config.toml", "s.md"))
    assert [each.read_text() for each in (file, config, own)] == before


@pytest.mark.parametrize(
    "text",
    ["{", '{"a": 1} x', "[]", '{"mcpServers": []}', '{"a": 1, "a": 2}', '{"a" 1}', "{'a': 1}"],
)
def test_json_that_cannot_be_edited_is_refused_and_stays(tmp_path, text):
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(Conflict, match=r"x\.json"):
        add([member(file)], Record())
    assert file.read_text() == text


@pytest.mark.parametrize(
    "text", ["mcp_servers = {}\n", "a = [\n", 'mcp_servers = { docs = { command = "x" } }\n']
)
def test_toml_that_cannot_be_edited_is_refused_and_stays(tmp_path, text):
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(Conflict, match=r"config\.toml"):
        add([table(file)], Record())
    assert file.read_text() == text


def test_a_write_that_fails_takes_the_others_back(tmp_path):
    """All is written, or nothing: a folder stands where a file must go."""
    own, file = tmp_path / "s.md", tmp_path / "x.json"
    changes, _ = add([OwnFile(own, "ours\n"), member(file)], Record())
    file.mkdir()
    with pytest.raises(Exception, match=r"x\.json"):
        changes.write()
    assert not own.exists()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=4), PLAIN, max_size=4),
    st.dictionaries(st.sampled_from("abc"), PLAIN, max_size=2) | st.none(),
    st.sampled_from([None, 2, "\t"]),
)
def test_any_json_is_read_as_the_library_reads_it_and_restored(others, servers, indent):
    doc = others if servers is None else {**others, "mcpServers": servers}
    text = json.dumps(doc, indent=indent)
    assert json_text.parse(text).plain() == doc
    new = json_text.with_member(text, ("mcpServers", "leadhand"), SERVER)
    assert json.loads(new)["mcpServers"] == {**(servers or {}), "leadhand": SERVER}
    back = json_text.without(new, ("mcpServers", "leadhand"))
    assert json.loads(back).get("mcpServers") == (servers or {})
