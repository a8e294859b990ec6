"""GitHub, against a stand-in that is a real server: every method, limits, faults and kills."""

import asyncio
import base64
import logging
import os
import random
import re
import subprocess
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from leadhand.errors import UsageError
from leadhand.fleet.forge.errors import (
    ForgeConflict,
    ForgeError,
    ForgeInvalid,
    ForgeNotFound,
    ForgeRateLimited,
    ForgeRefused,
    ForgeTransient,
)
from leadhand.fleet.forge.github import AppCredential, GitHub
from leadhand.fleet.forge.http import Pace, TokenCredential, checked_api, checked_token
from leadhand.fleet.forge.port import LOG_MAX, TEXT_MAX, Act, Forge, with_marker
from tests.fleet.forge.standin.git_host import BareGit, MemoryGit
from tests.fleet.forge.standin.github import OWNER, REPO, TOKEN, US, GitHubStandIn
from tests.fleet.forge.standin.server import Faults, Stop, VirtualTime

REPOSITORY = f"{OWNER}/{REPO}"


@pytest.fixture
def clock():
    return VirtualTime()


@pytest.fixture
def host(clock):
    with GitHubStandIn(clock=clock).serving() as served:
        yield served


def client(host, clock, token=TOKEN, **more):
    """Return a client as a fresh process has it."""
    pace = Pace(now=clock.now, sleep=clock.sleep, chance=random.Random(1).random)
    credential = TokenCredential(lambda: token, "authorization", "Bearer {}")
    given = {"api": host.url, "pace": pace, "log_hosts": ("localhost",), **more}
    return GitHub(REPOSITORY, credential, **given)


@pytest.fixture
async def forge(host, clock):
    made = client(host, clock)
    yield made
    await made.aclose()


# --- what it reads -------------------------------------------------------------------------


async def test_issues_come_by_label_assignee_and_time(host, forge, clock):
    """A pull request is no issue; a change is seen by `since`, a close too."""
    plain, wanted = host.add_issue("plain"), host.add_issue("wanted", None)
    host.label_issue(wanted, "leadhand", by="mia")
    host.assign_issue(wanted, US, by="bo")
    host.git.push("leadhand/x")
    await forge.open_pull("leadhand/x", "main", "T", "B", "p")
    assert {each.number for each in await forge.issues()} == {plain, wanted}
    (found,) = await forge.issues(label="leadhand", assignee=US)
    assert (found.number, found.body, found.author) == (wanted, "", "ann")
    assert found.labels == ("leadhand",)
    assert found.assignees == (US,)
    assert (await forge.given(wanted, label="leadhand")).by == "mia"
    assert (await forge.given(wanted, assignee=US)).by == "bo"
    assert (await forge.given(wanted, label="Leadhand")).by == "mia"  # one label to GitHub
    assert await forge.given(plain, label="leadhand") == Act()
    assert await forge.edits(plain) == ()
    host.edit_issue(plain, "eve", title="Other")
    await clock.sleep(5)
    host.edit_issue(plain, "mia", body="Other")
    host.edited[plain]["editor"] = None
    assert [each.by for each in await forge.edits(plain)] == ["eve", ""]
    await clock.sleep(100)
    seen, before = found.updated_at, host.time()
    await forge.close_issue(wanted, "done", "c1")
    later = await forge.issues(since=before)
    assert [(each.number, each.state) for each in later] == [(wanted, "closed")]
    assert later[0].updated_at > seen


async def test_all_pages_are_read(host, forge):
    """More than one page of issues and comments, by Link headers."""
    for at in range(230):
        host.add_issue(f"issue {at}")
    assert len(await forge.issues()) == 230
    for at in range(150):
        host.say(1, f"comment {at}")
    assert [each.body for each in await forge.comments(1)][149] == "comment 149"
    assert len([path for _, path, _ in host.log if path.endswith("/issues")]) == 3


async def test_what_did_not_change_costs_nothing(host, forge):
    """A second look is answered by 304 and does not count."""
    host.add_issue("one")
    first = await forge.issues()
    left = host.remaining
    assert await forge.issues() == first
    assert host.remaining == left
    assert host.log[-1][2] == 304
    host.add_issue("two")
    assert len(await forge.issues()) == 2


async def test_a_page_that_is_unchanged_may_have_got_a_next_one(host, forge):
    host.add_issue("talked about")
    for at in range(100):
        host.say(1, f"comment {at}")
    assert len(await forge.comments(1)) == 100
    host.say(1, "one more")
    assert (await forge.comments(1))[-1].body == "one more"


async def test_permission_is_asked_of_the_host(host, forge):
    """Roles by name; an unknown account has none."""
    host.access |= {"mia": "maintain", "tom": "triage", "eve": "custom-role"}
    found = [await forge.permission(user) for user in (US, "mia", "tom", "eve", "no/body")]
    assert found == ["write", "maintain", "triage", "none", "none"]


async def test_checks_are_runs_and_statuses(host, forge):
    """Of two results with one name the worse counts, and a log is the end of the job's log."""
    sha = "c" * 40
    host.set_check(sha, "build", "success")
    ident = host.set_check(sha, "test", "failure", "\x1b[31m" + "x" * 300_000 + "\nAssertionError")
    host.set_check(sha, "lint", None)
    host.set_check(sha, "odd", "a-new-word")
    host.set_status(sha, "ci/legacy", "error", "it broke")
    host.runs[sha][1]["annotations"].append(
        {"path": "a.py", "start_line": 3, "annotation_level": "failure", "message": "wrong"}
    )
    found = {each.name: each for each in await forge.checks(sha)}
    assert {name: each.status for name, each in found.items()} == {
        "build": "passed", "test": "failed", "lint": "running", "odd": "failed",
        "ci/legacy": "failed",
    }  # fmt: skip
    assert [found["lint"].is_over, found["test"].is_over] == [False, True]
    assert found["test"].id == f"job:{ident}"
    log = await forge.check_log(found["test"])
    assert log.endswith("\nAssertionError")
    assert len(log) == LOG_MAX
    assert await forge.check_log(found["ci/legacy"]) == "it broke"
    short = host.set_check(sha, "short", "failure", "only this")
    host.runs[sha][-1]["annotations"] = host.runs[sha][1]["annotations"]
    (check,) = [each for each in await forge.checks(sha) if each.id == f"job:{short}"]
    assert await forge.check_log(check) == "a.py:3: failure: wrong\nonly this"
    host.set_check(sha, "app", "failure", app="other-ci")
    (check,) = [each for each in await forge.checks(sha) if each.name == "app"]
    assert await forge.check_log(check) == "app failure"


async def test_reviews_come_with_their_remarks(host, forge):
    """A review of another account, with its remarks; our own replies are no reviews."""
    host.git.push("leadhand/x")
    pull = await forge.open_pull("leadhand/x", "main", "T", "B", "p")
    remarks = (("a.py", 7, "why?"), ("b.py", 9, "rename"))
    host.review(pull.number, "CHANGES_REQUESTED", "please", remarks=remarks)
    host.review(pull.number, "PENDING", "not yet")
    (review,) = await forge.reviews(pull.number)
    assert (review.verdict, review.commit, review.author) == (
        "changes_requested",
        pull.head,
        "rev",
    )
    assert [(each.path, each.line, each.body) for each in review.comments] == list(remarks)
    for _ in range(2):
        await forge.reply(review.comments[1], "renamed", "r1")
    assert [each for each in host.made if each.startswith("reply")] == [
        f"reply {review.comments[1].id} <!-- leadhand:r1 -->"
    ]
    assert len(await forge.reviews(pull.number)) == 1


async def test_more_reviews_or_checks_than_are_read_decide_nothing(host, forge, monkeypatch):
    """Anybody can write so many that an objection is on a page that is not read."""
    monkeypatch.setattr("leadhand.fleet.forge.http.PAGES_MAX", 1)
    host.git.push("leadhand/x")
    pull = await forge.open_pull("leadhand/x", "main", "T", "B", "p")
    for at in range(100):
        host.review(pull.number, "COMMENTED", f"{at}")
        host.set_status(pull.head, f"check {at}", "success")
    assert len(await forge.reviews(pull.number)) == len(await forge.checks(pull.head)) == 100
    host.review(pull.number, "CHANGES_REQUESTED", "no")
    host.set_status(pull.head, "the last", "failure")
    with pytest.raises(ForgeInvalid, match="there are more than 100"):
        await forge.reviews(pull.number)
    with pytest.raises(ForgeInvalid, match="there are more than 100"):
        await forge.checks(pull.head)


# --- what it writes ------------------------------------------------------------------------


async def test_a_pull_request_is_opened_once_and_brought_up_to_date(host, forge):
    """The same key or branch leads to the same pull request, whatever became of it."""
    host.git.push("leadhand/x")
    first = await forge.open_pull("leadhand/x", "main", "One\nline", "Body", "p1")
    again = await forge.open_pull("leadhand/x", "main", "Two", "Body 2", "p1")
    assert (first.number, first.title) == (again.number, "One line")
    assert (again.title, again.body) == ("Two", with_marker("Body 2", "p1"))
    assert (await forge.pull_of("leadhand/x")).number == first.number
    host.close_pull(first.number)
    closed = await forge.open_pull("leadhand/x", "main", "Three", "Body 3", "p1")
    assert (closed.number, closed.state, closed.title) == (first.number, "closed", "Two")
    second = await forge.open_pull("leadhand/x", "main", "Next", "B", "p2")
    assert second.number != first.number
    assert [each for each in host.made if each.startswith("pull")] == ["pull leadhand/x"] * 2


async def test_a_pull_request_of_another_account_is_taken_as_it_is(host, forge, clock):
    """An open one for the branch exists already: it is not changed, and there is no second."""
    host.git.push("leadhand/x")
    host.tokens["other"] = "ann"
    other = client(host, clock, "other")
    theirs = await other.open_pull("leadhand/x", "main", "Mine", "Hands off", "p1")
    found = await forge.open_pull("leadhand/x", "main", "T", "B", "p1")
    assert (found.number, found.title, found.key, found.author) == (
        theirs.number,
        "Mine",
        "",
        "ann",
    )
    await other.aclose()


@pytest.mark.parametrize(
    ("branch", "base", "text"),
    [
        ("none", "main", "there is no branch none. Fix: push it"),
        ("leadhand/x", "nowhere", "no branch nowhere to merge into"),
        ("same", "main", "same has no commit that main lacks"),
    ],
)
async def test_a_pull_request_that_cannot_be_opened(host, forge, branch, base, text):
    """Each kind of 422 is said in words."""
    host.git.push("leadhand/x")
    host.git.branches["same"] = host.git.head("main")
    with pytest.raises(ForgeInvalid, match=text):
        await forge.open_pull(branch, base, "T", "B", "p")


async def test_a_merge_waits_until_it_is_computed(host, forge):
    """`mergeable: null` is asked again; the key is in the commit; a repeat merges nothing."""
    host.late = 3
    messages = []
    merge = host.git.merge
    host.git.merge = lambda *given: (messages.append(given[3]), merge(*given))[1]
    host.git.push("leadhand/x")
    pull = await forge.open_pull("leadhand/x", "main", "T", "B", "p")
    for _ in range(2):
        done = await forge.merge(pull.number, pull.head, "squash", "m1", message="Why.")
        assert (done.state, done.merge_commit) == ("merged", host.git.head("main"))
    assert host.made.count(f"merge {pull.number}") == 1
    assert [each.endswith("Why.\n\nLeadhand-Key: m1") for each in messages] == [True]


async def test_a_merge_that_is_refused_says_why(host, forge):
    """A moved head, conflicts, missing reviews and a closed pull request are told apart."""
    reasons = []

    async def refused(head):
        with pytest.raises(ForgeConflict) as caught:
            await forge.merge(pull.number, head, "merge", "m")
        reasons.append(caught.value.reason)

    host.git.push("leadhand/x")
    pull = await forge.open_pull("leadhand/x", "main", "T", "B", "p")
    new = host.git.push("leadhand/x")
    await refused(pull.head)
    host.blocked = "blocked"
    await refused(new)
    host.blocked = "behind"
    await refused(new)
    host.blocked = ""
    host.git.conflicting.add(new)
    await refused(new)
    host.close_pull(pull.number)
    await refused(new)
    assert reasons == ["head_moved", "blocked", "behind", "conflicts", "closed"]
    assert not [each for each in host.made if each.startswith("merge")]


async def test_a_head_that_moves_while_it_is_merged_is_not_merged(host, forge):
    """The push comes between the look and the merge: 409, and nothing is merged."""
    host.late = 0
    host.git.push("leadhand/x")
    pull = await forge.open_pull("leadhand/x", "main", "T", "B", "p")

    def push_before_merge(request, _response):
        if request.method == "GET" and request.path.endswith(f"/pulls/{pull.number}"):
            host.on_handled = lambda _request, _response: None
            host.git.push("leadhand/x")

    host.on_handled = push_before_merge
    with pytest.raises(ForgeConflict) as caught:
        await forge.merge(pull.number, pull.head, "merge", "m")
    assert caught.value.reason == "head_moved"
    assert ("PUT", f"/repos/{REPOSITORY}/pulls/{pull.number}/merge", 409) in host.log


async def test_the_merge_queue_takes_a_pull_request_once(host, forge):
    """By GraphQL; the expected head is checked, and the end is seen on the pull request."""
    host.git.push("leadhand/x")
    pull = await forge.open_pull("leadhand/x", "main", "T", "B", "p")
    assert await forge.queued(pull.number) is None
    with pytest.raises(ForgeConflict) as caught:
        await forge.enqueue(pull.number, "f" * 40)
    assert caught.value.reason == "head_moved"
    for _ in range(2):
        assert (await forge.enqueue(pull.number, pull.head)).position == 1
    assert (await forge.queued(pull.number)).state == "queued"
    host.merge_from_queue()
    assert (await forge.pull(pull.number)).state == "merged"
    assert host.made.count(f"enqueue {pull.number}") == 1
    with pytest.raises(ForgeNotFound):
        await forge.queued(999)


async def test_an_issue_is_closed_and_then_explained(host, forge):
    """A repeat changes nothing; an issue that a person opened again stays open."""
    number = host.add_issue("T")
    for _ in range(2):
        assert (await forge.close_issue(number, "evidence", "c1")).state == "closed"
    assert host.made == [f"close {number}", f"comment {number} <!-- leadhand:c1 -->"]
    host.issues[number]["state"] = "open"
    with pytest.raises(ForgeConflict) as caught:
        await forge.close_issue(number, "evidence", "c1")
    assert caught.value.reason == "reopened"
    assert host.issues[number]["state"] == "open"


async def test_a_comment_of_a_request_that_was_given_up_is_removed(host, forge):
    """The host finished two of our requests: the first one is kept."""
    number = host.add_issue("T")
    first = host.say(number, with_marker("late", "k"), author=US)
    host.say(number, with_marker("later", "k"), author=US)
    assert (await forge.comment(number, "text", "k")).id == first
    assert [each.body for each in await forge.comments(number)] == [with_marker("text", "k")]


# --- hostile text --------------------------------------------------------------------------


async def test_a_marker_of_another_author_does_not_count(host, forge):
    """Neither in a comment, nor with a name that looks like ours, nor in a quotation of ours."""
    number = host.add_issue("T", "<!-- leadhand:k1 -->")
    for author in ("eve", US.upper(), f"{US}[bot]"):
        host.say(number, with_marker("forged", "k1"), author=author)
    quoted = (await forge.issue(number)).body
    await forge.comment(number, f"You said:\n{quoted}", "k0")
    made = await forge.comment(number, "real", "k1")
    assert [each.key for each in await forge.comments(number)] == ["", "", "", "k0", "k1"]
    assert made.author == US


async def test_hostile_text_is_bounded_and_plain(host, forge):
    """Huge, with control characters, halves of characters and markup: it can be stored."""
    host.add_issue("\x00\x1b]0;t\x07" * 1000, "\x00\ud800<script>\r\n" + "x" * (3 * TEXT_MAX))
    host.say(1, "\ud83d" * 10 + "ok", author="\u202eeve")
    issue = await forge.issue(1)
    assert len(issue.body) < TEXT_MAX + 100
    assert issue.body.startswith("<script>\n")
    for text in (issue.title, issue.body):
        assert text.encode().decode() == text
        assert not re.search("[\x00-\x08\x0b-\x1f]", text)
    assert (await forge.comments(1))[0].body == "ok"


async def test_an_answer_that_is_no_answer_is_said(host, forge):
    """Not JSON, another form, too deep, too long: one message each, no traceback."""
    host.add_issue("T")
    long = b'{"number": 1}' + b" " * (9 << 20)
    wrong = dict.fromkeys(
        (b"<html>", b"[]", b'{"number": "x"}', b"[" * 100_000), "its answer is not"
    )
    for data, said in {**wrong, long: "more than 8 MiB"}.items():
        host.routes.insert(0, _constant(f"/repos/{REPOSITORY}/issues/1", data))
        with pytest.raises(ForgeInvalid, match=f"cannot read issue 1: .*{said}"):
            await forge.issue(1)


def _constant(path, data):
    from tests.fleet.forge.standin.server import Response

    return "GET", re.compile(re.escape(path)), lambda _request: Response(200, data)


# --- limits --------------------------------------------------------------------------------


async def test_a_long_limit_is_raised_with_its_end_and_nothing_is_sent(host, forge, clock):
    """Until the reset no request leaves; then work goes on."""
    host.add_issue("T")
    host.limit, host.window_s = 2, 1000.0
    await forge.issues()
    with pytest.raises(ForgeRateLimited) as caught:
        await asyncio.gather(*(forge.comments(number) for number in range(1, 9)))
    assert 900 < caught.value.retry_at - clock.now() <= 1001
    sent = len(host.log)
    with pytest.raises(ForgeRateLimited, match=f"{forge.name}: cannot read issues: its limit"):
        await forge.issues()
    assert len(host.log) == sent
    assert forge.limit.remaining == 0
    await clock.sleep(caught.value.retry_at - clock.now())
    assert len(await forge.issues()) == 1


@pytest.mark.parametrize("kind", ["secondary", "limited"])
async def test_a_short_limit_is_waited_out(host, forge, clock, kind):
    """Retry-After of a secondary limit is obeyed before the next request."""
    host.add_issue("T")
    host.faults = Faults(1.0, kinds=(kind,), most=1)
    assert len(await forge.issues()) == 1
    assert sum(clock.slept) >= 2


async def test_a_secondary_limit_without_a_time_waits_longer_each_time(host, forge, clock):
    """A minute, then two, as GitHub asks for."""
    waits = []
    text = "You have exceeded a secondary rate limit"
    host.routes.insert(0, ("GET", re.compile(f"/repos/{REPOSITORY}/issues"), _stop(403, text)))
    for _ in range(3):
        with pytest.raises(ForgeRateLimited) as caught:
            await forge.issues()
        waits.append(round(caught.value.retry_at - clock.now()))
        await clock.sleep(waits[-1] + 1)
    assert waits == [60, 120, 240]


def _stop(status, text, **headers):
    def handler(_request, **_given):
        stop = Stop(status, text)
        stop.response.headers.update({name.replace("_", "-"): v for name, v in headers.items()})
        raise stop

    return handler


async def test_a_clock_that_is_wrong_does_not_change_the_wait(host, clock):
    """The reset is read against the host's own clock."""
    host.add_issue("T")
    host.limit, host.window_s = 1, 1000.0

    pace = Pace(now=lambda: clock.now() - 86_400, sleep=clock.sleep)
    forge = client(host, clock, pace=pace)
    with pytest.raises(ForgeRateLimited) as caught:
        await asyncio.gather(*(forge.comments(number) for number in range(1, 4)))
    assert 990 < caught.value.retry_at - pace.now() <= 1010
    await forge.aclose()


# --- refusals ------------------------------------------------------------------------------


async def test_a_missing_right_is_named(host, forge):
    """By the header of fine-grained tokens, by scopes, by single sign-on."""
    host.add_issue("T")
    host.denied["issues"] = ""
    with pytest.raises(ForgeRefused, match="give the token the permission issues=write"):
        await forge.comment(1, "x", "k")
    path = re.compile(f"/repos/{REPOSITORY}/issues")
    scopes = {"x_accepted_oauth_scopes": "repo", "x_oauth_scopes": "gist"}
    host.routes.insert(0, ("GET", path, _stop(403, "Forbidden", **scopes)))
    with pytest.raises(ForgeRefused, match="one of the scopes repo; it has gist"):
        await forge.issues()
    host.routes[0] = ("GET", path, _stop(403, "no", x_github_sso="required; url=https://x"))
    with pytest.raises(ForgeRefused, match="single sign-on"):
        await forge.issues()


async def test_a_wrong_token_is_said_without_it(host, clock, caplog):
    """Neither errors nor logs hold the token, although the host repeats it."""
    caplog.set_level(logging.DEBUG)
    secret = "ghp_thisisthewrongtoken0000000000000000"
    host.routes.clear()
    forge = client(host, clock, secret)
    with pytest.raises(ForgeRefused, match="it does not accept how we sign in") as refused:
        await forge.issues()
    host.tokens[secret] = US
    host.route("GET", ".*", _stop(400, f"what is {secret}?"))
    with pytest.raises(ForgeInvalid) as invalid:
        await forge.issues()
    host.faults = Faults(1.0)
    with pytest.raises(ForgeTransient) as transient:
        await forge.issues()
    shown = f"{refused.value} {invalid.value} {transient.value} {caplog.text} {forge.limit!r}"
    assert secret not in shown
    await forge.aclose()


async def test_the_token_stays_with_its_host(host, clock):
    """A redirect or a next page on another host is refused; its log is read without the token."""
    seen = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(dict(self.headers))
            self.send_response(200)
            self.send_header("content-length", "5")
            self.end_headers()
            self.wfile.write(b"[1,2]")

        def log_message(self, *_args):
            return

    forge = client(host, clock)
    host.add_issue("T")
    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, args=(0.02,), daemon=True).start()
        away = f"http://localhost:{other.server_address[1]}"
        path = re.compile(f"/repos/{REPOSITORY}/issues")
        for headers in ({"location": f"{away}/x"}, {"link": f'<{away}/y>; rel="next"'}):
            status = 302 if "location" in headers else 200
            host.routes.insert(0, ("GET", path, _answer(status, [], headers)))
            with pytest.raises(ForgeInvalid, match="another host"):
                await forge.issues()
        assert seen == []
        host.storage, sha = away, "c" * 40
        host.set_check(sha, "test", "failure", "log")
        (check,) = await forge.checks(sha)
        assert await forge.check_log(check) == "[1,2]"
        assert [{"authorization", "Authorization"} & {*each} for each in seen] == [set()]
        strict = client(host, clock, log_hosts=("elsewhere.test",))
        with pytest.raises(ForgeRefused, match=r"add that host to \[fleet.forge\] log_hosts"):
            await strict.check_log(check)
        other.shutdown()
    assert len(seen) == 1
    await forge.aclose()
    await strict.aclose()


def _answer(status, data, headers):
    from tests.fleet.forge.standin.server import Response

    return lambda _request: Response(status, data, dict(headers))


async def test_a_renamed_repository_is_followed_on_its_host(host, forge):
    """GitHub answers 301 with an address of the same API, for reads and for writes."""
    number = host.add_issue("T")
    moved = "/repos/acme/old"
    for method in ("GET", "POST"):
        to = f"{host.url}/repos/{REPOSITORY}/issues/{number}/comments"
        form = re.compile(f"{moved}/issues/{number}/comments")
        host.routes.insert(0, (method, form, _answer(307, None, {"location": to})))
    forge._repo = moved
    await forge.comment(number, "text", "k")
    assert host.made == [f"comment {number} <!-- leadhand:k -->"]


@pytest.mark.parametrize(
    "api", ["http://example.org", "ftp://a", "https://a@b", "https://a/?x=1", ""]
)
def test_an_api_that_must_not_get_the_token(api):
    """Without encryption only on this machine."""
    with pytest.raises(UsageError, match=r"\[fleet.forge\] api"):
        checked_api(api)


@pytest.mark.parametrize("token", ["", "a b", "a\nb", "ä"])
def test_a_token_that_no_header_holds_is_not_shown(token):
    """The message has no part of it."""
    with pytest.raises(UsageError, match="has a character that a header cannot have") as caught:
        checked_token(token)
    assert not token or token not in str(caught.value)


# --- an app --------------------------------------------------------------------------------


async def test_an_app_signs_in_and_renews_its_token(host, clock):
    """A JSON Web Token leads to a token of the installation; a refused one is replaced."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()
    host.app_key = key.public_key()
    host.person("leadhand-app[bot]")
    pace = Pace(now=clock.now, sleep=clock.sleep)
    app = AppCredential("4711", lambda: pem, REPOSITORY, host.url, pace=pace)
    forge = GitHub(REPOSITORY, app, api=host.url, pace=pace)
    number = host.add_issue("T")
    assert await forge.account() == "leadhand-app[bot]"
    await forge.comment(number, "text", "k")
    assert (await forge.comment(number, "text", "k")).key == "k"
    first = app.secrets()
    host.tokens = {}
    await forge.issues()
    assert app.secrets() != first
    await clock.sleep(3500)
    second = app.secrets()
    await forge.comments(number)
    assert app.secrets() != second
    assert len(host.made) == 1
    wrong = AppCredential("4711", lambda: "no key", REPOSITORY, host.url, pace=pace)
    with pytest.raises(UsageError, match="it holds no private RSA key"):
        await wrong.headers()
    await forge.aclose()


async def test_a_token_of_a_workflow_names_its_account(host, clock):
    """It may not ask for itself; the message names the setting."""
    host.tokens["ghs_x"] = "github-actions[bot]"
    host.person("github-actions[bot]")
    forge = client(host, clock, "ghs_x")
    with pytest.raises(ForgeRefused, match=r"\[fleet.forge\] account"):
        await forge.account()
    named = client(host, clock, "ghs_x", account="github-actions[bot]")
    assert await named.account() == "github-actions[bot]"
    await forge.aclose()
    await named.aclose()


# --- git -----------------------------------------------------------------------------------


async def test_git_pushes_with_what_the_forge_gives(clock, tmp_path):
    """A branch is pushed over HTTP with the token in the environment, and its merge is real."""
    bare = BareGit(tmp_path / "host.git")
    work = tmp_path / "work"

    def git(*words, env=None):
        ours = {
            f"GIT_{who}_{what}": f"{who}@x.test".lower()
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        command = ["git", "-C", str(work), *words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True,
            env={**os.environ, **ours, **(env or {})},
        ).stdout.strip()  # fmt: skip

    work.mkdir()
    with GitHubStandIn(bare, clock).serving() as host:
        forge: Forge = client(host, clock)
        access = await forge.git_access()
        git("init", "-q", "-b", "main")
        git("commit", "-q", "--allow-empty", "-m", "one")
        git("push", "-q", access.url, "main", env=dict(access.env))
        (work / "a").write_text("a")
        git("add", "a")
        git("commit", "-q", "-m", "two")
        git("push", "-q", access.url, "HEAD:refs/heads/leadhand/x", env=dict(access.env))
        with pytest.raises(subprocess.CalledProcessError):
            git("push", "-q", access.url, "main", env={"GIT_TERMINAL_PROMPT": "0"})
        pull = await forge.open_pull("leadhand/x", "main", "T", "B", "p")
        assert pull.head == git("rev-parse", "HEAD")
        done = await forge.merge(pull.number, pull.head, "squash", "m")
        assert bare.git("show", f"{done.merge_commit}:a") == "a"
        assert bare.git("log", "-1", "--format=%(trailers:key=Leadhand-Key)", "main") == (
            "Leadhand-Key: m"
        )
        assert base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode() not in repr(access)
        await forge.aclose()


# --- faults and kills ----------------------------------------------------------------------


async def everything(forge, number, branch):
    """Do each kind of write once; a repeat finds what was done."""
    await forge.comment(number, "question", f"q-{number}")
    pull = await forge.open_pull(branch, "main", "T", "B", f"p-{number}")
    for review in await forge.reviews(pull.number):
        for remark in review.comments:
            await forge.reply(remark, "done", f"r-{remark.id}")
    await forge.comment(pull.number, "updated", f"u-{number}", on="pull")
    await forge.merge(pull.number, pull.head, "squash", f"m-{number}")
    await forge.close_issue(number, "evidence", f"c-{number}")
    return pull.number


async def until_done(host, clock, number, branch, kill_at=()):
    """Repeat until it is done; at some requests the process dies before it has the answer."""
    kills, loop = sorted(kill_at), asyncio.get_running_loop()
    count = 0
    for _ in range(200):
        forge = client(host, clock)
        task, done = asyncio.ensure_future(everything(forge, number, branch)), threading.Event()

        def die(_request, _response, task=task, done=done):
            nonlocal count
            count += 1
            if kills and count >= kills[0]:
                kills.pop(0)
                loop.call_soon_threadsafe(task.cancel)
                # The answer is not sent before the client is gone.
                done.wait(5)

        task.add_done_callback(lambda _task, done=done: done.set())
        host.on_handled = die
        try:
            return await task
        except asyncio.CancelledError:
            continue
        except ForgeTransient as error:
            await clock.sleep(max(0.0, error.retry_at - clock.now()))
        finally:
            await forge.aclose()
    raise AssertionError("it never ends")


def no_duplicate(host, number, pull):
    """Check that each thing was made exactly once."""
    counted = Counter(host.made)
    assert [each for each, times in counted.items() if times > 1] == []
    bodies = [each["body"].splitlines()[-1] for each in host.comments.values()]
    ours = [f"<!-- leadhand:{letter}-{number} -->" for letter in ("q", "u", "c")]
    assert sorted(bodies) == sorted(ours)
    assert counted[f"merge {pull}"] == counted[f"close {number}"] == 1
    replies = [each for each in host.remarks.values() if each["in_reply_to_id"]]
    assert len(replies) == 2


def prepared(host):
    """Return an issue and a branch whose pull request has a review at once."""
    number = host.add_issue("T")
    host.git.push(f"leadhand/{number}")
    remarks = (("a.py", 1, "why?"), ("b.py", 2, "no"))
    host.ci = lambda host, branch, _commit: (
        host.review(max(host.pulls), "COMMENTED", remarks=remarks) if branch != "main" else None
    )
    return number, f"leadhand/{number}"


@pytest.mark.parametrize("seed", range(1, 6))
async def test_a_fifth_of_all_requests_fail_and_nothing_is_made_twice(host, clock, seed):
    """Lost answers, cut connections, 5xx after the work was done, limits: each thing once."""
    number, branch = prepared(host)
    host.faults = Faults(0.2, seed)
    pull = await until_done(host, clock, number, branch)
    no_duplicate(host, number, pull)
    assert host.faults.drawn


@pytest.mark.parametrize("seed", range(5))
async def test_kills_between_request_and_answer_make_nothing_twice(host, clock, seed):
    """The client dies at random requests, with faults besides, and a new one goes on."""
    number, branch = prepared(host)
    host.faults = Faults(0.2, 100 + seed)
    kills = random.Random(seed).sample(range(1, 60), 8)
    pull = await until_done(host, clock, number, branch, kills)
    no_duplicate(host, number, pull)


async def test_a_kill_at_every_request_makes_nothing_twice(clock):
    """One kill at each single request of the whole way."""
    for at in range(1, 40):
        with GitHubStandIn(MemoryGit(), clock).serving() as host:
            number, branch = prepared(host)
            pull = await until_done(host, clock, number, branch, [at])
            no_duplicate(host, number, pull)


async def test_a_host_that_never_answers_ends_in_one_error(host, forge):
    """A read and a write give up after some tries, and say that a repeat is safe."""
    number = host.add_issue("T")
    await forge.account()
    host.faults = Faults(1.0, kinds=("drop_before",))
    with pytest.raises(ForgeTransient):
        await forge.issues()
    with pytest.raises(ForgeTransient):
        await forge.comment(number, "x", "k")
    host.faults = Faults(0.0)
    host.routes.insert(
        0, ("POST", re.compile(f"/repos/{REPOSITORY}/issues/{number}/comments"), _stop(500, "no"))
    )
    with pytest.raises(ForgeTransient, match="nothing is made twice"):
        await forge.comment(number, "x", "k")
    assert all(issubclass(kind, ForgeError) for kind in (ForgeTransient, ForgeConflict))
