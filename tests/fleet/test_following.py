"""People go on working on their branch while the fleet works on main."""

import pytest

from leadhand.fleet.conductor import Conductor
from leadhand.fleet.following import Following
from leadhand.fleet.history import read_log
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
    assert f"{tip[:12]} is not taken up ({why})" in following.refused
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
