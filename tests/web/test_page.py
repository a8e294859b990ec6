"""What the page is made of: all in the repository is ours, small, and strict about scripts."""

import hashlib
import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import expect

from leadhand.server import npm_assets
from leadhand.server.routes.pages import packed_of, served_bytes
from leadhand.server.script_text import script_text
from tests.support.need import need
from tests.test_house import ROOT, tracked

WEB = ROOT / "src" / "leadhand" / "server" / "web"
OURS = sorted(path for path in WEB.rglob("*") if path.is_file() and "_npm" not in path.parts)
SCRIPT_BYTES_MAX = 120_000
FUNCTION_LINES_MAX = 70


def test_nothing_of_others_is_in_the_repository():
    """No fetched file, no copy of one, no minified text, no folder of packages."""
    need(npm_assets.ready(), "the fetched files, to look for copies of them")
    theirs = {
        _digest(path) for path in npm_assets.FOLDER.iterdir() if path.name != npm_assets.RECORD
    }
    theirs |= {_digest(path) for path in (ROOT / "build" / "npm").glob("*.js")}
    for path in tracked():
        assert "_npm" not in path.parts, path
        assert "node_modules" not in path.parts, path
        assert _digest(path) not in theirs, f"{path} is a copy of somebody else's file"
        if path.suffix in {".js", ".mjs", ".css", ".html"}:
            longest = max(map(len, path.read_text().splitlines()), default=0)
            assert longest < 1000, f"{path} has a line of {longest} characters"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _name(path: Path) -> str:
    return path.relative_to(WEB).as_posix()


@pytest.mark.parametrize("path", OURS, ids=_name)
def test_our_files_are_small_and_name_no_other_host(path):
    """The same caps as for Python; and no address but the namespace of SVG."""
    text = path.read_text()
    hosts = re.findall(r"\bhttps?://[^\s\"'`<>)]+", text)
    assert [url for url in hosts if not url.startswith(("http://www.w3.org/", "http://127."))] == []
    if path.suffix == ".js":
        for name, length in _functions(text):
            assert length <= FUNCTION_LINES_MAX, f"{name}: {length} lines"


def _functions(text: str):
    """Functions and classes at the top level, with their lengths."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        begins = re.match(r"(?:export )?(?:default )?(?:async )?function (\w+)", line)
        if begins:
            end = next((at for at in range(start, len(lines)) if lines[at] == "}"), start)
            yield begins[1], end - start + 1


@pytest.mark.parametrize("path", OURS, ids=_name)
def test_texts_never_become_markup_or_code(path):
    """What agents write is shown as text; nothing is evaluated; nothing stands inline."""
    text = path.read_text()
    markup = r"(?:inner|outer)HTML|insertAdjacentHTML|dangerouslySet|document\.write"
    assert not re.findall(rf"{markup}|\beval\(|new Function", text)
    if path.suffix == ".html":
        assert not re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text)


def test_the_scripts_are_small():
    """All of it, ours and theirs, as it goes over the wire."""
    need(npm_assets.ready(), "the fetched files")
    files = [path for path in WEB.rglob("*") if path.suffix in {".js", ".mjs"}]
    sent = [packed_of(str(path), lambda path=path: served_bytes(path)) for path in files]
    total = sum(len(each.gzip or each.plain) for each in sent)
    assert total <= SCRIPT_BYTES_MAX, f"{total:,} bytes"


def test_scripts_are_sent_shorter_and_mean_the_same():
    """The same syntax trees, by node's parser; line for line, so that a browser names the line."""
    pairs = [
        (_name(path), path.read_text(), served_bytes(path).decode())
        for path in OURS
        if path.suffix == ".js"
    ]
    for name, source, sent in pairs:
        assert source.count("\n") == sent.count("\n"), name
    node = shutil.which("node") or shutil.which("node", path=str(ROOT / ".venv-node" / "bin"))
    need(node, "node, to compare scripts with what is sent of them")
    compare = [node, "--expose-internals", str(ROOT / "tests/web/pure/same_syntax.mjs")]
    done = subprocess.run(
        compare, input=json.dumps(pairs), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize(
    ("source", "sent"),
    [
        ("const a = { b: 1, c }; // why\n", "const a={b:1,c};\n"),
        (
            "/** What\n * for */\nexport const x = (y) => y / 2;\n",
            "\n\nexport const x=(y)=>y / 2;\n",
        ),
        ("a = b + +c - -d;", "a=b+ +c- -d;"),
        ("say(\"a  //  b\", '/* c */');", "say(\"a  //  b\",'/* c */');"),
        ("return /a  [/]  b/.test(x) ? y : z;", "return /a  [/]  b/.test(x)?y:z;"),
        ("f((x) => /a  b/g.exec(x));", "f((x)=>/a  b/g.exec(x));"),
        ("html`<b  c=${ { d: `e  ${ f }` } }>  g`;", "html`<b  c=${{d:`e  ${f}`}}>  g`;"),
        ("html`<p>\n    <b />`", "html`<p>\n<b />`"),
    ],
)
def test_what_is_left_of_a_script(source, sent):
    """Spaces and comments outside texts, templates and regular expressions go."""
    assert script_text(source) == sent


def test_the_lock_says_what_and_never_where():
    """Name, version, hash and files of each package; no address."""
    for lock in (npm_assets.LOCK, ROOT / "tests" / "web" / "npm-lock.json"):
        text = lock.read_text()
        assert "://" not in text
        for package in json.loads(text)["packages"]:
            assert re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", package["integrity"])
            assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
            assert package["files"]


# --- fetching -------------------------------------------------------------------------------


def pretend_npm(folder: Path, archive: Path | None) -> list[str]:
    """An npm that brings this archive, or nothing."""
    script = folder / "npm"
    copy = f'cp "{archive}" "$4/"' if archive else "echo no network >&2; exit 1"
    script.write_text(f"#!/bin/sh\necho run >> {folder}/log\n{copy}\n")
    script.chmod(0o755)
    return [str(script)]


@pytest.fixture
def package(tmp_path):
    """A package of one module, packed as npm packs it, and a lock that pins it."""
    import base64
    import io
    import tarfile

    body = b'import{a}from"other";import "other";export const b=a;//# sourceMappingURL=b.map\n'
    archive = tmp_path / "thing-1.0.0.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("package/dist/thing.mjs")
        info.size = len(body)
        tar.addfile(info, io.BytesIO(body))
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    thing = {"name": "thing", "version": "1.0.0", "integrity": f"sha512-{digest}"}
    doc = {
        "imports": {"other": "./other.mjs"},
        "packages": [thing | {"files": {"dist/thing.mjs": "thing.mjs"}}],
    }
    lock = tmp_path / "lock.json"
    lock.write_text(json.dumps(doc))
    return archive, lock


def test_files_are_fetched_once_and_again_when_they_were_touched(tmp_path, package):
    """Hashes decide, never times; imports become paths; no map is named that is not there."""
    archive, lock = package
    npm, into = pretend_npm(tmp_path, archive), tmp_path / "into"
    assert npm_assets.fetch(lock, into, npm)
    text = (into / "thing.mjs").read_text()
    assert text == 'import{a}from"./other.mjs";import"./other.mjs";export const b=a;\n'
    assert not npm_assets.fetch(lock, into, npm)
    (into / "thing.mjs").write_text("something else")
    assert not npm_assets.ready(lock, into)
    assert npm_assets.fetch(lock, into, npm)
    assert (into / "thing.mjs").read_text() == text


def test_what_was_not_pinned_is_not_taken(tmp_path, package):
    """Another archive under the same name and version leaves nothing behind."""
    archive, lock = package
    npm, into = pretend_npm(tmp_path, archive), tmp_path / "into"
    archive.write_bytes(archive.read_bytes() + b"\0")
    with pytest.raises(npm_assets.FetchFailed, match="does not match its pinned hash"):
        npm_assets.fetch(lock, into, npm)
    assert not into.exists()


def test_without_a_network_a_build_goes_on(tmp_path, package, monkeypatch):
    """It is tried three times, and then said what is missing and how to have it."""
    _archive, lock = package
    pretend_npm(tmp_path, None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    said = []
    assert not npm_assets.fetch_if_possible(said.append, lock, tmp_path / "into")
    assert "doctor --fix" in said[0]
    assert "no network" in said[0]
    assert len((tmp_path / "log").read_text().splitlines()) == npm_assets.TRIES_MAX


def test_the_packages_carry_what_was_fetched(tmp_path):
    """A wheel and an sdist need no npm where they are installed."""
    import sys
    import tarfile

    need(npm_assets.ready(), "the fetched files")
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-t",
        "sdist",
        "-d",
        tmp_path,
    ]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    held = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as tar:
        packed = {name.partition("/")[2] for name in tar.getnames()}
    wanted = [
        path.relative_to(ROOT / "src").as_posix() for path in WEB.rglob("*") if path.is_file()
    ]
    assert set(wanted) <= held
    assert {f"src/{name}" for name in wanted} | {"hatch_build.py"} <= packed


# --- pure modules ---------------------------------------------------------------------------


def test_the_pure_modules():
    """Layout, bundles, differences, patches, the stream's reader: by node's own runner."""
    node = shutil.which("node") or shutil.which("node", path=str(ROOT / ".venv-node" / "bin"))
    need(node, "node, to test the page's pure modules")
    tests = sorted(map(str, (ROOT / "tests" / "web" / "pure").glob("*.test.mjs")))
    done = subprocess.run([node, "--test", *tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


# --- a page that arrives in part ------------------------------------------------------------


def test_a_file_that_did_not_arrive_is_asked_for_again(pages, deploy):
    """The first time a module is cut off, as while a server restarts; then the page is there."""
    page = pages()
    cut = []

    def first(route):
        if cut:
            route.continue_()
        else:
            cut.append(route.request.url)
            route.abort("connectionreset")

    page.route("**/js/router.js", first)
    page.goto(deploy.entry)
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    assert cut
