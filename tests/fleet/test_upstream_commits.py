"""People go on working on their branch while the fleet works on main."""

import pytest

from leadhand.errors import UsageError
from leadhand.fleet.merge.conductor import Conductor, Following
from leadhand.fleet.repository.git import read_log
from leadhand.fleet.repository.hub import Hub
from tests.fleet.places import commit_all, files_of, run_git, write
from tests.fleet.test_conductor import Judge, change


@pytest.fixture
async def conductor(hub):
    async with Conductor(hub, Judge(hub), protected=("kept/**",)) as conductor:
        yield conductor


async def test_what_people_commit_is_joined_with_its_history(user, hub, slots, conductor):
    following = Following(hub, conductor)
    await conductor.land(await change(slots, "one", {"one": "1\n"}))
    write(user, {"mine": "m\n", "kept/by": "hand\n"})
    tip = commit_all(user, "By hand")
    await following.look()
    assert following.refused == ""
    files = files_of(hub.git.folder, hub.main())
    assert {"mine", "one", "kept/by"} <= set(files)
    assert tip in {commit.sha for commit in await read_log(hub.git, "refs/heads/main")}
    await hub.publish("leadhand")
    run_git(user, "merge", "-q", "--ff-only", "leadhand")
    await following.look()
    assert hub.main() == run_git(user, "rev-parse", "main")


async def test_nothing_new_is_nothing_to_do(hub, slots, conductor):
    following = Following(hub, conductor)
    await conductor.land(await change(slots, "one", {"one": "1\n"}))
    main = hub.main()
    for _ in range(3):
        await following.look()
    assert (hub.main(), following.refused) == (main, "")


@pytest.mark.parametrize(
    ("files", "why"), [({"a.txt": "theirs\n"}, "conflict"), ({"bad": "b\n"}, "red")]
)
async def test_what_cannot_be_taken_is_said_and_main_stays(user, hub, slots, conductor, files, why):
    following = Following(hub, conductor)
    await conductor.land(await change(slots, "one", {"a.txt": "ours\n"}))
    main = hub.main()
    write(user, files)
    tip = commit_all(user, "By hand")
    await following.look()
    assert f"{tip[:12]} was not merged ({why})" in following.refused
    assert hub.main() == main
    (name,) = files
    run_git(user, "rm", "-q", name) if why == "red" else write(user, {"a.txt": "a\n"})
    commit_all(user, "Mended")
    await following.look()
    assert following.refused == ""
    assert hub.main() != main
    assert files_of(hub.git.folder, hub.main())["a.txt"] == "ours"


async def test_another_history_is_not_joined(user, hub, conductor):
    following, main = Following(hub, conductor), hub.main()
    run_git(user, "checkout", "-q", "--orphan", "fresh")
    commit_all(user, "All anew")
    run_git(user, "branch", "-q", "-M", "main")
    await following.look()
    assert "no commit in common" in following.refused
    assert hub.main() == main


async def test_the_branch_that_is_followed_is_that_of_the_beginning(tmp_path, user):
    """A checkout goes from branch to branch; what is tried on one of them is nobody's yet."""
    hub = await Hub.open(tmp_path / "fleet", user)
    assert hub.user.aside == ""
    hub.close()
    begun = run_git(user, "rev-parse", "HEAD")
    run_git(user, "checkout", "-q", "-b", "experiment")
    write(user, {"tried": "x\n"})
    tried = commit_all(user, "Try something")
    for _ in range(2):
        async with await Hub.open(tmp_path / "fleet", user) as hub:
            assert (await hub.fetch_user()).tip == begun
            assert "main is followed" in hub.user.aside
            assert "experiment is checked out" in hub.user.aside
        run_git(user, "checkout", "-q", "--detach")
        async with await Hub.open(tmp_path / "fleet", user) as hub:
            assert (await hub.fetch_user()).tip == begun
            assert "names no branch" in hub.user.aside
        run_git(user, "checkout", "-q", "experiment")
    async with await Hub.open(tmp_path / "fleet", user, "experiment") as hub:
        assert ((await hub.fetch_user()).tip, hub.user.aside) == (tried, "")
    run_git(user, "branch", "-q", "-D", "main")
    with pytest.raises(
        UsageError, match=r"no branch 'main'.*Fix: name another in \[fleet\] branch"
    ):
        await Hub.open(tmp_path / "fleet", user)


async def test_a_head_that_names_no_branch_is_a_place_to_start_from(tmp_path, user):
    run_git(user, "checkout", "-q", "--detach")
    begun = run_git(user, "rev-parse", "HEAD")
    async with await Hub.open(tmp_path / "fleet", user) as hub:
        assert "no branch is followed" in hub.user.aside
        write(user, {"tried": "x\n"})
        commit_all(user, "Try something")
        assert await hub.user_tip() == (await hub.fetch_user()).tip == begun
    async with await Hub.open(tmp_path / "fleet", user) as hub:
        assert (await hub.fetch_user()).relation == "same"
    async with await Hub.open(tmp_path / "fleet", user, "HEAD") as hub:
        assert (await hub.fetch_user()).relation == "ahead", "asked for by name it is followed"


async def test_a_hub_from_before_branches_were_recorded_follows_what_it_finds(tmp_path, user):
    async with await Hub.open(tmp_path / "fleet", user) as hub:
        await hub.git("config", "--unset", "leadhand.followed")
    run_git(user, "checkout", "-q", "-b", "other")
    async with await Hub.open(tmp_path / "fleet", user) as hub:
        assert hub.user.ref == "refs/heads/other"
    run_git(user, "checkout", "-q", "main")
    async with await Hub.open(tmp_path / "fleet", user) as hub:
        assert hub.user.ref == "refs/heads/other"
