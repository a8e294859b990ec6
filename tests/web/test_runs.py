"""The list of runs, the comparison of two, usage, and running a run again, in a real browser."""

import csv
import io
import re

import pytest
from playwright.sync_api import expect

from tests.support.cli import Folder
from tests.web.conftest import PHONE, Served, shot
from tests.web.steering import project

pytestmark = [pytest.mark.slow, pytest.mark.real]
WORKERS = """

@worker(effects=["cluster"], risk="high")
async def release(image: str) -> str:
    if not Path("fixed").exists():
        raise PermissionError("the cluster refuses the key")
    return f"released {image}"
"""


def plan(number):
    build = {"id": "build", "worker": "prepare", "parameters": {"what": f"shop:{number}"}}
    release = {
        "id": "release",
        "worker": "release",
        "parameters": {"image": "${{ steps.build.data }}"},
        "failure_action": "abort",
        "retry": 1,
    }
    return {
        "plan_id": "release-shop",
        "goal": f"Release the shop {number}",
        "steps": [build, release],
    }


def approve(served, run):
    served.until(run, "waiting")
    digest = served.call("GET", f"/runs/{run}/review")["binding"]
    served.call("POST", f"/runs/{run}/review/approve", {"digest": digest})
    return served.until(run, "succeeded", "failed")


@pytest.fixture(scope="module")
def stocked(tmp_path_factory):
    """A server with a release that failed, one that succeeded, and notes with a label."""
    folder = tmp_path_factory.mktemp("runs") / "project"
    with Served(project(folder, WORKERS)) as served:
        failed = served.call("POST", "/runs", {"plan": plan(1)})["run"]
        assert approve(served, failed) == "failed"
        (folder / "fixed").touch()
        good = served.call("POST", "/runs", {"plan": plan(2)})["run"]
        assert approve(served, good) == "succeeded"
        steps = [{"id": "a", "worker": "prepare"}]
        body = {
            "plan": {"plan_id": "note", "goal": "A note", "steps": steps},
            "labels": ["team=web"],
        }
        note = served.call("POST", "/runs", body)["run"]
        served.until(note, "succeeded")
        served.runs = {"failed": failed, "good": good, "note": note}
        yield served


def at(pages, served, place, **options):
    page = pages(served.entry, **options)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.goto(f"{served.url}#/{place}")
    return page


def rows(page):
    return page.locator(".runs tbody tr")


def test_filters_and_order_stand_in_the_address(pages, stocked):
    """Each can be sent to another person; what matches nothing says so; the CSV has the same."""
    page = at(pages, stocked, "runs?status=failed&actor=ada")
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("the cluster refuses the key")
    expect(rows(page)).to_contain_text("1 of 2")
    expect(page.get_by_label("Started by")).to_have_value("ada")
    page.get_by_role("button", name="Clear filters").click()
    expect(rows(page)).to_have_count(3)
    assert page.url.endswith("#/runs")
    page.get_by_label("Sort").select_option("Oldest first")
    expect(rows(page).first).to_contain_text("Release the shop 1")
    page.get_by_role("link", name="team=web").click()
    expect(rows(page)).to_have_count(1)
    assert "sort=created&label=team%3Dweb" in page.url
    page.reload()
    expect(rows(page)).to_contain_text("A note")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download CSV").click()
    table = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert [row["run"] for row in table] == [stocked.runs["note"]]
    page.get_by_role("combobox", name=re.compile("^Started")).select_option("Last 24 hours")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("button", name="Clear filters").click()
    page.get_by_label("Plan", exact=True).fill("release*")
    expect(rows(page)).to_have_count(2)
    page.get_by_label("Plan", exact=True).fill("")  # erased, and the next field typed at once
    page.get_by_label("Started by").fill("ada")
    expect(rows(page)).to_have_count(3)
    expect(page.get_by_label("Plan", exact=True)).to_have_value("")
    page.get_by_role("combobox", name=re.compile("^Started")).select_option("Between dates")
    page.get_by_label("First day").fill("2020-01-01")
    page.get_by_label("Last day").fill("2020-12-31")
    expect(page.get_by_role("heading", name="No runs match these filters")).to_be_visible()
    assert "from=2020-01-01&to=2020-12-31" in page.url
    page.get_by_label("Last day").fill("2099-12-31")
    expect(rows(page)).to_have_count(3)
    page.get_by_label("Environment").fill("nowhere")
    expect(page.get_by_role("heading", name="No runs match these filters")).to_be_visible()
    page.goto(f"{stocked.url}#/runs?from=someday")
    expect(page.get_by_role("alert")).to_contain_text("neither a date")


def seconds(text):
    """A duration as the page writes it, up to minutes."""
    units = {"ms": 0.001, "s": 1, "m": 60}
    return sum(float(n) * units[unit] for n, unit in re.findall(r"([0-9.]+)(ms|s|m)\b", text))


def test_runs_are_chosen_by_keys_and_compared(pages, stocked):
    """j and k go through the list; two selected runs are shown side by side."""
    page = at(pages, stocked, "runs?plan=release-shop")
    expect(rows(page)).to_have_count(2)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(rows(page).first.locator("[data-item]")).to_be_focused()
    shot(page, "runs")
    failed, good = stocked.runs["failed"], stocked.runs["good"]
    took = rows(page).filter(has_text=good).locator("td.figure").inner_text()
    page.get_by_label(f"Select run {failed} to compare").check()
    page.get_by_label(f"Select run {good} to compare").click()
    expect(page.get_by_role("heading", name="Compare runs", level=1)).to_be_visible()
    assert page.url.endswith(f"#/compare/{failed}/{good}")
    steps = page.get_by_role("region", name="Steps")
    expect(steps).to_contain_text("the cluster refuses the key")
    expect(steps.get_by_role("row")).to_have_count(3)
    expect(steps.get_by_role("row").nth(1)).to_contain_text("release")
    expect(page.locator(".changes")).to_contain_text("shop:2")
    both = page.get_by_role("region", name="Both runs")
    expect(both.get_by_role("row", name="Result")).to_contain_text("none")  # the one that failed
    told = both.get_by_role("row", name="Duration").get_by_role("cell").nth(1).inner_text()
    # The list has the times of the entries, the comparison those of the events in them.
    assert abs(seconds(took) - seconds(told.partition(" (working ")[0])) <= 0.002, (took, told)
    shot(page, "compare")
    page.get_by_role("link", name="Swap").click()
    expect(
        page.get_by_role("region", name="Both runs").get_by_role("columnheader").nth(1)
    ).to_have_text(good)


def test_a_click_anywhere_in_a_row_opens_its_run(pages, stocked):
    """Beside the title too; a name in the row filters the list, and a box selects."""
    page = at(pages, stocked, "runs?plan=release-shop")
    expect(rows(page)).to_have_count(2)
    row = rows(page).first
    row.locator("a.by").first.click()
    expect(rows(page)).to_have_count(2)
    page.get_by_label(f"Select run {stocked.runs['good']} to compare").check()
    assert "#/runs?" in page.url
    box = row.locator("td.progress").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 2, box["y"] + box["height"] - 2)
    page.wait_for_url(re.compile(r"#/runs/[a-z0-9-]+$"))


def test_a_run_is_run_again_from_the_list_and_asks_for_approval_again(pages, stocked):
    """The new run is opened; it waits, though the first one was approved."""
    failed = stocked.runs["failed"]
    page = at(pages, stocked, "runs?status=failed")
    rows(page).get_by_role("button", name="Re-run").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Approvals are not taken over")
    dialog.get_by_role("button", name="Re-run").click()
    expect(page).to_have_url(re.compile(r"#/runs/\w+"))
    run = re.search(r"#/runs/(\w+)", page.url).group(1)
    stocked.until(run, "waiting")
    assert stocked.call("GET", f"/runs/{run}")["plan"]["rerun_of"] == failed
    assert approve(stocked, run) == "succeeded"
    page.goto(f"{stocked.url}#/runs?label=rerun_of%3D{failed}")
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text(run)


def test_usage_tells_cost_outcomes_and_the_part_of_people(pages, stocked):
    """By plan, worker, model and day; for a range; as CSV."""
    page = at(pages, stocked, "usage")
    total = page.locator("dl.figures")
    expect(total).to_contain_text("Without a person")
    expect(total).to_contain_text("Approvals per run")
    expect(page.get_by_role("img", name=re.compile("^Runs by day"))).to_be_visible()
    table = page.get_by_role("region", name=re.compile("^Usage by"))
    expect(table.get_by_role("rowheader", name="release-shop")).to_be_visible()
    page.get_by_role("button", name="Worker", exact=True).click()
    expect(table.get_by_role("rowheader", name="prepare")).to_be_visible()
    assert "by=worker" in page.url
    shot(page, "usage")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download CSV").click()
    found = {
        row["name"]: row for row in csv.DictReader(io.StringIO(download.value.path().read_text()))
    }
    assert int(found["prepare"]["attempts"]) >= 3
    page.goto(f"{stocked.url}#/usage?from=2020-01-01&to=2020-01-02")
    expect(page.get_by_role("heading", name="No runs in these days")).to_be_visible()


@pytest.mark.parametrize("place", ["runs", "usage", "compare"])
def test_it_fits_a_phone(pages, stocked, place):
    """Nothing is wider than the screen; what is wide scrolls by itself."""
    where = (
        f"compare/{stocked.runs['failed']}/{stocked.runs['good']}" if place == "compare" else place
    )
    page = at(pages, stocked, where, viewport=PHONE, color_scheme="dark")
    expect(page.locator(".table, .figures").first).to_be_visible()
    shot(page, f"{place}-phone")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_run_is_run_again_from_its_failed_step(pages, stocked):
    """On its page: it asks for approval again, ends well, and leads back to the first."""
    failed = stocked.runs["failed"]
    page = at(pages, stocked, f"runs/{failed}")
    page.get_by_role("button", name="Re-run", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("No approval is carried over")
    dialog.get_by_role("combobox").select_option("release")
    dialog.get_by_role("button", name="Start new run").click()
    expect(page).not_to_have_url(re.compile(failed))
    run = re.search(r"#/runs/(\w+)", page.url).group(1)
    expect(page.get_by_role("link", name="Review plan").first).to_be_visible()
    told = f"Re-run of {failed} from its step release, with the results of build"
    expect(page.get_by_text(told)).to_be_visible()
    page.locator(".about summary").click()
    expect(page.locator(".about")).to_contain_text("Results taken over")
    expect(page.locator(".about dt").get_by_text("build", exact=True)).to_be_visible()
    expect(page.locator(".about summary")).not_to_contain_text("result_build")
    assert approve(stocked, run) == "succeeded"
    expect(page.locator(".run-head .figures .status").first).to_contain_text("Succeeded")
    done = stocked.call("GET", f"/runs/{run}")
    assert [step["id"] for step in done["steps"]] == ["release"]
    assert done["plan"]["carried"]["build"]["run"] == failed


def test_an_export_is_downloaded_and_verifies_offline(pages, stocked, tmp_path):
    """The file alone, in an empty folder; and the page verifies the log itself."""
    run = stocked.runs["good"]
    page = at(pages, stocked, f"runs/{run}")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    download.value.save_as(tmp_path / "run.zip")
    told = Folder(tmp_path).run("verify", "run.zip", "--json")
    assert (told.code, told.doc["run"]) == (0, run), str(told)
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_text(re.compile("^Verified: .* 0 violations"))).to_be_visible()


def test_nothing_is_cut_or_blank_on_a_laptop(pages, stocked):
    """Usage has its last column, a log beside a step one entry a row; boxes end with their rows."""
    page = at(pages, stocked, "usage")
    table = page.get_by_role("region", name="Usage by plan")
    expect(table.get_by_role("columnheader", name="Mean duration")).to_be_visible()
    assert table.evaluate("(each) => each.scrollWidth <= each.clientWidth")
    run = stocked.runs["good"]
    page.goto(f"{stocked.url}#/runs/{run}/log?step=release")
    rows_of = page.locator(".ledger .ledger-row:not(.ledger-head)")
    expect(rows_of.first).to_be_visible()
    assert rows_of.evaluate_all(
        "(all) => all.every((row) => [...row.children].filter((e) => e.offsetWidth).length === 2)"
    )
    page.goto(f"{stocked.url}#/runs/{run}")
    box = page.locator(".plan-rows")
    expect(box).to_be_visible()
    assert box.evaluate("(each) => each.offsetHeight") < 250  # three rows and their head


def test_links_and_commands_are_copied_or_the_page_says_that_it_cannot(pages, stocked):
    """A page without TLS, of another machine, has no clipboard at all."""
    run = stocked.runs["good"]
    page = at(pages, stocked, f"runs/{run}", permissions=["clipboard-read", "clipboard-write"])
    for name, copied in (("Copy command", f"leadhand show {run}"), ("Copy link", page.url)):
        page.get_by_role("button", name=name).click()
        expect(page.locator(".notice").last).to_contain_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == copied
        page.get_by_role("button", name="Dismiss").last.click()
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.get_by_role("button", name="Copy command").click()
    expect(page.locator(".notice.tone-bad")).to_contain_text("The browser blocks copying")
