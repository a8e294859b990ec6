"""A protected change over HTTP: what is shown, who may decide, and bound to what."""

import pytest

from leadhand.core import events as ev
from tests.server.test_api import begin, log_of
from tests.support.protected import COMMIT, STEP, WORKER
from tests.support.serving import ended, project, served


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("protected")
    project(folder)
    with (folder / "workers.py").open("a") as file:
        file.write(WORKER)
    with served(folder) as up:
        yield up


def waiting(client, run):
    ended(client, run)
    (row,) = [row for row in client.get("/inbox").json()["items"] if row["run"] == run]
    return row


def test_only_an_approver_decides_and_only_about_the_commit_that_was_shown(server):
    with server.client("operator") as operator, server.client("approver") as approver:
        run = begin(operator, STEP)
        row = waiting(operator, run)
        assert (row["kind"], row["commit"], row["people"]) == ("protected_change", COMMIT, 1)
        assert "+replicas: 0" in row["diff"]
        place = f"/inbox/{run}/q1/answer"
        for body in (
            {"choice": "approve", "commit": COMMIT},
            {"choice": "send_back", "text": "no"},
            {"choice": "drop"},
        ):
            refused = operator.post(place, json=body)
            assert (refused.status_code, "approver" in refused.text) == (403, True)
        assert approver.post(place, json={"choice": "retry"}).status_code == 422
        assert approver.post(place, json={"choice": "approve"}).status_code == 422
        stale = approver.post(place, json={"choice": "approve", "commit": "e" * 40})
        assert stale.status_code == 409
        assert approver.post(place, json={"choice": "send_back"}).status_code == 422
        done = approver.post(place, json={"choice": "approve", "commit": COMMIT, "text": "fine"})
        assert done.status_code == 200
        assert ended(approver, run)["status"] == "succeeded"
        given = [each for each in log_of(server, run) if isinstance(each, ev.ChangeApproved)]
        assert [(each.actor, each.commit, each.reason) for each in given] == [
            ("approver", COMMIT, "fine")
        ]
