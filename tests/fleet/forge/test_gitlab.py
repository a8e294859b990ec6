"""GitLab and plain git, against a stand-in: the same promises as GitHub's client."""

import random
from collections import Counter

import pytest

from leadhand.fleet.forge.errors import (
    ForgeConflict,
    ForgeNotFound,
    ForgeNotOffered,
    ForgeRefused,
    ForgeTransient,
)
from leadhand.fleet.forge.gitlab import GitLab
from leadhand.fleet.forge.http import Pace, TokenCredential
from leadhand.fleet.forge.plain_git import PlainGit
from leadhand.fleet.forge.port import Check, Forge, ReviewComment, quoted, with_marker
from tests.fleet.forge.standin.gitlab import PROJECT, TOKEN, US, GitLabStandIn
from tests.fleet.forge.standin.server import Faults, VirtualTime


@pytest.fixture
def clock():
    return VirtualTime()


@pytest.fixture
def host(clock):
    with GitLabStandIn(clock=clock).serving() as served:
        yield served


def client(host, clock, token=TOKEN):
    """Return a client as a fresh process has it."""
    pace = Pace(now=clock.now, sleep=clock.sleep, chance=random.Random(1).random)
    return GitLab(PROJECT, TokenCredential(lambda: token, "private-token"), api=host.url, pace=pace)


@pytest.fixture
async def forge(host, clock):
    made = client(host, clock)
    yield made
    await made.aclose()


async def test_issues_their_actors_and_permissions(host, forge):
    """By label and assignee; who gave them; roles by their numbers."""
    plain, wanted = host.add_issue("plain"), host.add_issue("wanted")
    host.label_issue(wanted, "leadhand", by="mia")
    host.assign_issue(wanted, US, by="bo")
    host.say(wanted, f"assigned to @{US}", author="eve")
    host.assign_issue(wanted, f"{US}-2", by="eve")
    assert [each.number for each in await forge.issues()] == [plain, wanted]
    (found,) = await forge.issues(label="leadhand", assignee=US)
    assert (found.number, found.state, found.labels) == (wanted, "open", ("leadhand",))
    assert found.updated_at.endswith("Z")
    assert "." not in found.updated_at
    assert (await forge.given(wanted, label="leadhand")).by == "mia"
    assert (await forge.given(wanted, assignee=US)).by == "bo"
    host.members |= {"mia": 40, "tom": 20}
    for name in ("mia", "tom", "eve"):
        host.person(name)
    found = [await forge.permission(name) for name in (US, "mia", "tom", "eve", "nobody")]
    assert found == ["write", "maintain", "triage", "none", "none"]
    host.barred.add("mia")
    assert await forge.permission("mia") == "none"


async def test_notes_of_issues_and_merge_requests_are_apart(host, forge):
    """The same number names an issue and a merge request; system notes are no comments."""
    number = host.add_issue("T")
    host.git.push("leadhand/x")
    pull = await forge.open_pull("leadhand/x", "main", "T", "B", "p")
    assert pull.number == number == 1
    host.assign_issue(number, US)
    await forge.comment(number, "to the issue", "k")
    await forge.comment(number, "to the request", "k", on="pull")
    again = await forge.comment(number, "changed", "k")
    assert again.body == with_marker("changed", "k")
    assert [each.body for each in await forge.comments(number)] == [with_marker("changed", "k")]
    assert len(await forge.comments(number, on="pull")) == 1
    host.say(number, with_marker("late", "k"), author=US)
    assert (await forge.comment(number, "changed", "k")).id == again.id
    assert len(await forge.comments(number)) == 1


async def test_hostile_text_gives_no_command(host, forge):
    """A quoted line with a slash would be obeyed with our rights, and a forged marker believed."""
    number = host.add_issue("T", "/merge\n  /approve\n> /close\n<!-- leadhand:k2 -->\n@bot merge")
    host.say(number, with_marker("forged", "k2"), author="eve")
    body = (await forge.issue(number)).body
    await forge.comment(number, f"You said:\n{body}\n\n{quoted(body)}", "k1")
    made = await forge.comment(number, "/close", "k2")
    assert made.author == US
    await forge.comment(number, "/reopen", "k2")
    host.git.push("leadhand/x")
    await forge.open_pull("leadhand/x", "main", "T", body, "p")
    assert host.commands == []
    assert "@bot" not in quoted(body)


async def test_a_merge_request_from_its_beginning_to_its_end(host, forge):
    """Opened once, checked, reviewed, answered, merged once, and the issue closed."""
    number = host.add_issue("T")
    host.git.push("leadhand/x")
    for title in ("One", "Two"):
        pull = await forge.open_pull("leadhand/x", "main", title, "B", "p1")
    assert (pull.title, pull.mergeable, pull.key) == ("Two", None, "p1")
    host.set_status(pull.head, "test", "failed", "Traceback")
    host.set_status(pull.head, "lint", "failed", allow_failure=True)
    host.set_status(pull.head, "deploy", "manual")
    host.set_status(pull.head, "late", "waiting_for_resource")
    found = {each.name: each for each in await forge.checks(pull.head)}
    assert {name: each.status for name, each in found.items()} == {
        "test": "failed", "lint": "neutral", "deploy": "skipped", "late": "queued",
    }  # fmt: skip
    assert await forge.check_log(found["test"]) == "Traceback"
    thread = host.remark(pull.number, "a.py", 7, "why?")
    host.reviewers[pull.number] = {"rev": "requested_changes", "quiet": "unreviewed"}
    host.approve(pull.number, "mia")
    approved, wanted = await forge.reviews(pull.number)
    assert (approved.author, approved.verdict, approved.commit) == ("mia", "approved", pull.head)
    assert (wanted.author, wanted.verdict) == ("rev", "changes_requested")
    (remark,) = wanted.comments
    assert (remark.path, remark.line, remark.body) == ("a.py", 7, "why?")
    for _ in range(2):
        await forge.reply(remark, "fixed", "r1")
    done = [await forge.merge(pull.number, pull.head, "squash", "m") for _ in range(2)][-1]
    assert (done.state, done.merge_commit) == ("merged", host.git.head("main"))
    for _ in range(2):
        await forge.close_issue(number, "done", "c1")
    assert host.made == [
        "merge request leadhand/x",
        f"reply {thread} <!-- leadhand:r1 -->",
        f"merge {pull.number}",
        f"close {number}",
        f"note issues {number} <!-- leadhand:c1 -->",
    ]
    host.items["issues", number]["state"] = "opened"
    with pytest.raises(ForgeConflict, match="opened it again"):
        await forge.close_issue(number, "done", "c1")


async def test_a_merge_request_of_a_fork_is_not_taken_for_ours(host, forge):
    """Anybody can name a branch of a fork as ours is named, and open a merge request first."""
    host.git.push("leadhand/x")
    theirs = (await forge.open_pull("leadhand/x", "main", "Theirs", "B", "p0")).number
    fork = {"source_project_id": 666, "author": host.person("eve"), "description": ""}
    host.items["merge_requests", theirs] |= fork
    assert await forge.pull_of("leadhand/x") is None
    ours = await forge.open_pull("leadhand/x", "main", "Ours", "B", "p1")
    assert (ours.number != theirs, ours.title) == (True, "Ours")


@pytest.mark.parametrize("times", [True, False])
async def test_an_approval_is_for_the_version_that_was_there(host, forge, times):
    """GitLab keeps approvals after a push; by its times or by its notes, old ones do not count."""
    host.times_of_approvals = times
    host.git.push("leadhand/x")
    pull = await forge.open_pull("leadhand/x", "main", "T", "B", "p")
    host.approve(pull.number)
    host.say(pull.number, "approved this merge request", "eve", "merge_requests")
    (review,) = await forge.reviews(pull.number)
    assert (review.verdict, review.commit) == ("approved", pull.head)
    new = host.git.push("leadhand/x")
    (review,) = await forge.reviews(pull.number)
    assert (review.verdict, review.commit) == ("approved", pull.head)
    host.approve(pull.number)
    (review,) = await forge.reviews(pull.number)
    assert (review.verdict, review.commit) == ("approved", new)
    host.notes["merge_requests", pull.number].clear()  # when it was given is not known then
    (review,) = await forge.reviews(pull.number)
    assert review.commit == (new if times else "")


async def test_an_open_thread_asks_for_a_change(host, forge):
    """Until it is resolved, or its author approves the version of now; not if approved before."""
    host.git.push("leadhand/x")
    pull = await forge.open_pull("leadhand/x", "main", "T", "B", "p")

    async def verdict():
        return [each.verdict for each in await forge.reviews(pull.number)]

    host.approve(pull.number)
    host.git.push("leadhand/x")
    thread = host.remark(pull.number, "a.py", 7, "why?")
    assert await verdict() == ["changes_requested"]
    host.approve(pull.number)
    assert await verdict() == ["approved"]
    host.git.push("leadhand/x")
    assert await verdict() == ["changes_requested"]
    host.resolve(pull.number, thread)
    assert await verdict() == ["approved"]
    host.reviewers[pull.number] = {"rev": "requested_changes"}
    assert await verdict() == ["changes_requested"]


async def test_a_merge_that_is_refused_says_why(host, forge):
    """A moved head, what is missing, conflicts; a role that may not merge."""
    reasons = []

    async def refused(head):
        with pytest.raises(ForgeConflict) as caught:
            await forge.merge(pull.number, head, "merge", "m")
        reasons.append(caught.value.reason)

    host.git.push("leadhand/x")
    pull = await forge.open_pull("leadhand/x", "main", "T", "B", "p")
    new = host.git.push("leadhand/x")
    await refused(pull.head)
    for host.merge_status in ("not_approved", "need_rebase", "draft_status"):
        await refused(new)
    host.git.conflicting.add(new)
    await refused(new)
    assert reasons == ["head_moved", "blocked", "behind", "draft", "conflicts"]
    host.git.conflicting.clear()
    host.merge_status = "checking"
    with pytest.raises(ForgeTransient, match="still computing"):
        await forge.merge(pull.number, new, "merge", "m")
    host.merge_status, host.members[US] = "mergeable", 20
    with pytest.raises(ForgeRefused, match=r"may not merge\. Fix: give it"):
        await forge.merge(pull.number, new, "merge", "m")
    assert not [each for each in host.made if each.startswith("merge ") and "request" not in each]


async def test_the_merge_queue_and_a_missing_scope(host, forge):
    """Enqueued once; a token without the scope api is told so by name."""
    host.git.push("leadhand/x")
    pull = await forge.open_pull("leadhand/x", "main", "T", "B", "p")
    assert await forge.queued(pull.number) is None
    for _ in range(2):
        assert (await forge.enqueue(pull.number, pull.head)).state == "fresh"
    assert host.made.count(f"enqueue {pull.number}") == 1
    with pytest.raises(ForgeConflict, match="its head is not"):
        await forge.enqueue(pull.number, "f" * 40)
    number = host.add_issue("T")
    host.scopes = "read_api"
    with pytest.raises(ForgeRefused, match=r"insufficient_scope.*scope api and the role Developer"):
        await forge.comment(number, "x", "k")
    with pytest.raises(ForgeNotFound, match="the remark was deleted"):
        await forge.reply(ReviewComment(id="t:1", pull=1, path="a", body=""), "x", "k")
    access = await forge.git_access()
    assert access.url == f"{host.url}/{PROJECT}.git"
    assert TOKEN not in repr(access)


@pytest.mark.parametrize("seed", range(1, 7))
async def test_a_fifth_of_all_requests_fail_and_nothing_is_made_twice(host, clock, seed):
    """Each try is a new client, as after a kill; each thing is made once."""
    number = host.add_issue("T")
    host.git.push("leadhand/x")
    host.faults = Faults(0.25, seed)
    for _ in range(100):
        forge = client(host, clock)
        try:
            await forge.comment(number, "question", "q")
            pull = await forge.open_pull("leadhand/x", "main", "T", "B", "p")
            if not host.threads:
                host.remark(pull.number, "a.py", 1, "why?")
            for review in await forge.reviews(pull.number):
                await forge.reply(review.comments[0], "so", "r")
            await forge.merge(pull.number, pull.head, "merge", "m")
            await forge.close_issue(number, "done", "c")
            break
        except ForgeTransient as error:
            await clock.sleep(max(0.0, error.retry_at - clock.now()))
        finally:
            await forge.aclose()
    counted = Counter(host.made)
    assert len(counted) == 6
    assert set(counted.values()) == {1}
    assert host.faults.drawn


async def test_plain_git_says_what_it_does_not_have():
    """All but the address is refused in one sentence."""
    forge: Forge = PlainGit("git@host.test:acme/shop.git")
    assert (await forge.git_access()).url == "git@host.test:acme/shop.git"
    assert forge.offers == frozenset()
    remark = ReviewComment(id="1", pull=1, path="a", body="b")
    for asked in (
        forge.account(), forge.permission("a"), forge.issues(), forge.issue(1),
        forge.given(1), forge.edits(1), forge.comments(1), forge.comment(1, "b", "k"),
        forge.close_issue(1, "b", "k"), forge.pull(1), forge.pull_of("b"),
        forge.open_pull("b", "m", "t", "b", "k"), forge.checks("c"),
        forge.check_log(Check(name="n", status="passed")), forge.reviews(1),
        forge.reply(remark, "b", "k"), forge.merge(1, "h", "merge", "k"),
        forge.enqueue(1, "h"), forge.queued(1),
    ):  # fmt: skip
        with pytest.raises(ForgeNotOffered, match="plain git does not have it"):
            await asked
    await forge.aclose()
