"""An issue in, a pull request out, verdicts back: a whole fleet on a stand-in of GitHub."""

import asyncio
import contextlib

from tests.fleet.forge.flow_world import LABEL, Team, agents, flow_fleet, until


@contextlib.asynccontextmanager
async def team_at_work(tmp_path, **more):
    team = Team(tmp_path, **more)
    with team.host.serving():
        acting = asyncio.create_task(team.acting())
        yield team
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)


def labelled(team, title="Add a colour", body="The shop needs a colour.", by="ann"):
    number = team.host.add_issue(title, body, "ann")
    team.host.label_issue(number, LABEL, by)
    return number


def closed(team, number=1):
    said = team.host.comments
    words = "Done: main is green"
    return lambda: any(words in each["body"] for each in list(said.values()))


async def test_an_issue_becomes_a_merged_pull_request(tmp_path):
    """Red once, a change asked for once: both come back to one conversation; then it is closed."""
    async with team_at_work(tmp_path) as team:
        number = labelled(team)
        async with flow_fleet(tmp_path, team.host.url) as fleet:
            await until(closed(team), fleet)
            await until(lambda: fleet.open_epics == 0, fleet)
    team.judge(number)
    rows = agents(tmp_path)
    assert [row["colour"] for row in rows] == ["red", "blue", "navy"]
    assert len({row["session"] for row in rows}) == 1, "the same conversation"
    assert [row["before"] for row in rows] == ["", "COLOUR = 'red'\n", "COLOUR = 'blue'\n"]
    assert "expected blue, got red" in rows[1]["brief"]
    assert "rev on src/colour.py:1:\n> Make it navy, please." in rows[2]["brief"]
    (pull,) = team.host.pulls.values()
    assert f"Part of #{number}" in pull["body"]
    assert "Leadhand-Run: epic-issue-1-" in pull["body"]
    replies = [each["body"] for each in team.host.remarks.values() if "Reworked" in each["body"]]
    assert len(replies) == 1
