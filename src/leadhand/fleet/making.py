"""Making a hub from the user's repository: whole, or not at all."""

import shutil
from collections.abc import Iterable

from leadhand.fleet.git import Git
from leadhand.fleet.user import User

REPOSITORY = (
    ("gc.auto", "0"),
    ("gc.pruneExpire", "never"),
    ("receive.autogc", "false"),
    ("core.logAllRefUpdates", "true"),
    ("receive.denyNonFastForwards", "true"),
    ("uploadpack.allowAnySHA1InWant", "true"),
)


async def make(hub: Git, user: User, main: str, refs: Iterable[str]) -> None:
    """In a folder beside, which then gets its name: half a hub is none.

    `refs` begin where the user's branch is.
    """
    half = hub.folder.with_suffix(".new")
    shutil.rmtree(half, ignore_errors=True)
    git = Git(half, hub.configuration, hub.held)
    form = await user.object_format()
    await git("init", "--quiet", "--bare", "--template=", f"--object-format={form}", str(half))
    for name, value in REPOSITORY:
        await git("config", name, value)
    await user.record(git)
    fetched = await user.fetch(git)
    for ref in refs:
        await git("update-ref", ref, fetched)
    await git("symbolic-ref", "HEAD", main)
    half.rename(hub.folder)
