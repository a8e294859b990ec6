"""Long lists come in pages: the inbox, and the steps of a run."""

import time

from tests.support.serving import plan_of, project, served

STEPS = 620


def pages(client, path, limit):
    """All pages of something."""
    found, cursor = [], None
    while True:
        query = {"limit": limit, **({"cursor": cursor} if cursor else {})}
        told = client.get(path, params=query)
        assert told.status_code == 200, told.text
        found.append(told.json())
        cursor = found[-1]["next"]
        if cursor is None:
            return found


def test_the_inbox_and_the_steps_of_a_run_are_paged(tmp_path):
    """Each question and each step once, in order, and no page is longer than was asked for."""
    project(tmp_path)
    with served(tmp_path) as server, server.client() as client:
        steps = [{"id": f"s{n}", "worker": "human", "action": "decide"} for n in range(STEPS)]
        run = client.post("/runs", json={"plan": plan_of(*steps)}).json()["run"]
        limit = time.monotonic() + 60
        while client.get("/inbox", params={"limit": 1}).json()["total"] < STEPS:
            assert time.monotonic() < limit
            time.sleep(0.1)
        found = pages(client, "/inbox", 250)
        assert [len(page["items"]) for page in found] == [250, 250, 120]
        assert {page["total"] for page in found} == {STEPS}
        rows = [row for page in found for row in page["items"]]
        assert len({row["id"] for row in rows}) == STEPS
        assert [row["since"] for row in rows] == sorted(row["since"] for row in rows)
        assert len(client.get("/inbox").json()["items"]) == 100
        found = pages(client, f"/runs/{run}", 250)
        assert [len(page["steps"]) for page in found] == [250, 250, 120]
        assert [row["id"] for page in found for row in page["steps"]] == [s["id"] for s in steps]
        assert {page["steps_total"] for page in found} == {STEPS}
        assert {len(page["waiting_for"]) for page in found} == {100}
        assert len(client.get(f"/runs/{run}").json()["steps"]) == 500
        for path in ("/inbox", f"/runs/{run}"):
            assert client.get(path, params={"cursor": "no such"}).status_code == 400
            assert client.get(path, params={"limit": 501}).status_code == 422
