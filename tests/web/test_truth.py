"""The page says what is so: of times to come, ends, revised plans, texts and possible acts."""

import json
import os
import re
import subprocess
import sys
import urllib.request

import pytest
from playwright.sync_api import expect

from tests.web.conftest import WIDE, example, shot
from tests.web.steering import patient, publishing
from tests.web.test_steering import act
from tests.web.test_stories import enter, state_of

pytestmark = [pytest.mark.slow, pytest.mark.real]

WORKERS = """

@worker(idempotent=True)
def tested(what: str) -> str:
    raise ValueError("2 tests failed\\nTraceback (most recent call last):\\n"
                     "  File \\"a.py\\", line 3\\n    assert     x == 1\\nAssertionError")


@worker(idempotent=True)
def chatty(key: str, context: Context) -> str:
    while not Path("speak").exists():
        time.sleep(0.05)
    for part in range(3):
        print(f"part {part + 1} of 40")
    print("the key is", key[:7], end="", flush=True)
    context.progress("part 3 of 40", 0.15)
    while not Path("whole").exists():
        time.sleep(0.05)
    print(key[7:])
    while not Path("go").exists():
        time.sleep(0.05)
    return "said"
"""


@pytest.fixture
def rivals(tmp_path):
    """The example whose plan is revised at a surprise, with the pages that it reads."""
    with example(tmp_path / "competitors", "competitors") as found:
        yield found


def test_a_time_to_come_is_said_to_come(pages, served):
    """The card of a review says when its steps start, exactly."""
    plan = publishing("abort")
    plan["steps"][1]["not_before"] = "2099-01-02T03:04:05+00:00"
    run = served.call("POST", "/runs", {"plan": plan, "review": True})["run"]
    page = enter(pages, served, timezone_id="UTC")
    page.goto(f"{served.url}#/runs/{run}/plan")
    starts = page.locator(".starts")
    expect(starts).to_contain_text("Starts on Jan 2, 2099 (Jan 2, 2099, 03:04:05 UTC) or later")
    expect(page.locator(".consequences")).to_contain_text(
        "Then, at 2099-01-02 03:04:05 UTC, or at once if that has passed"
    )
    expect(starts.locator("time").first).to_have_attribute(
        "title", re.compile(r"\(2099-01-02T03:04:05\.000Z\)")
    )
    shot(page, "truth-starts")


@pytest.mark.parametrize("way", ["Abort", "Cancel"])
def test_after_an_end_nothing_is_offered_and_every_step_is_told(pages, served, way):
    """Without a reload, counts, steps, drawer and buttons are those of a run that has ended."""
    plan = publishing("escalate")
    plan["steps"].append({"id": "after", "worker": "prepare", "depends_on": ["publish"]})
    run = served.call("POST", "/runs", {"plan": plan})["run"]
    served.until(run, "waiting")
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}/graph?step=publish")
    drawer = page.get_by_role("complementary", name="Step publish")
    expect(drawer.get_by_role("button", name="Abort")).to_be_visible()
    page.evaluate("window.stillThere = 1")
    if way == "Abort":
        drawer.get_by_role("button", name="Abort").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("The run ends as failed")
        dialog.get_by_role("button", name="Abort run").click()
        expect(state_of(page)).to_contain_text("Failed")
    else:
        act(page, "Cancel run")
        expect(state_of(page)).to_contain_text("Cancelled")
    expect(page.locator(".counts")).to_have_text(re.compile("1 failed.*1 succeeded.*1 cancelled"))
    expect(page.locator("[data-step=after]")).to_contain_text("Cancelled")
    expect(page.locator("[data-step=publish]")).to_have_class(re.compile("tone-bad"))
    for name in ("Abort", "Skip", "Hold"):
        expect(drawer.get_by_role("button", name=name)).to_have_count(0)
    expect(page.get_by_role("button", name="Roll back")).to_have_count(0)  # nothing says how
    shot(page, f"truth-{way.lower()}")
    assert page.evaluate("window.stillThere") == 1
    counted = page.locator(".counts").inner_text()
    page.reload()
    expect(page.locator(".counts")).to_have_text(counted, use_inner_text=True)


def test_an_emergency_stop_and_a_plan_that_aborts_show_too(pages, served):
    """Nothing new starts until the stop is lifted; a plan that aborts leaves cancelled steps."""
    page = enter(pages, served)
    plan = publishing("abort")
    plan["steps"][0] |= {"depends_on": ["wait-0"]}
    waits = patient(1)["steps"][:1]
    last = {"id": "after", "worker": "prepare", "depends_on": ["publish"]}
    run = served.call("POST", "/runs", {"plan": plan | {"steps": [*waits, *plan["steps"], last]}})
    page.goto(f"{served.url}#/runs/{run['run']}")
    expect(page.locator("[data-step=wait-0]")).to_contain_text("Running")
    served.call("POST", "/stop-all", {"reason": "fire"})
    stopped = page.get_by_role("status").filter(has_text="Emergency stop")
    expect(stopped).to_be_visible()
    (served.folder / "go").touch()
    expect(page.locator("[data-step=wait-0]")).to_contain_text("Succeeded")
    expect(page.locator("[data-step=prepare]")).to_contain_text("Ready")
    served.call("DELETE", "/stop-all")
    expect(stopped).to_have_count(0)
    expect(page.locator("[data-step=after]")).to_contain_text("Cancelled")
    expect(page.locator(".counts")).to_have_text(re.compile("1 failed.*2 succeeded.*1 cancelled"))


def test_a_revised_run_has_the_edges_that_were(pages, rivals):
    """API, terminal and page agree, and say which step took the place of which."""
    served, site = rivals
    goal = {"text": "Compare two firms", "have": {"site": site, "a": "Nordwind", "b": "Kestrel"}}
    run = served.call("POST", "/runs", {"goal": goal})["run"]
    served.until(run, "succeeded")
    graph = served.call("GET", f"/runs/{run}/graph")
    edges = {tuple(edge) for edge in graph["edges"]}
    assert {("read_a", "read_b"), ("read_b", "write")} <= edges
    assert not {("brochure_a", "read_b"), ("brochure_a", "write"), ("brochure_b", "write")} & edges
    replaced = {tuple(pair) for pair in graph["replaces"]}
    assert replaced == {
        ("read_a", "brochure_a"),
        ("read_b", "brochure_b"),
        ("write", "write_brochures"),
    }
    drawn = served.terminal("show", run, "--graph", "dot")
    lines = re.findall(r'"(\w+)" -> "(\w+)"( \[style=dashed)?', drawn)
    assert {(one, other) for one, other, dashed in lines if not dashed} == edges
    assert {(one, other) for one, other, dashed in lines if dashed} == replaced
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}")
    # What was not planned, and why, is answered by the first screen.
    old = page.locator("[data-step=read_a]")
    expect(old).to_contain_text("→ replaced by brochure_a: page not found")
    expect(old.get_by_role("button")).to_have_css("text-decoration-line", "line-through")
    order = page.locator(".plan-row[data-step]").evaluate_all(
        "all => all.map((a) => a.dataset.step)"
    )
    assert order.index("brochure_a") == order.index("read_a") + 1
    new = page.locator("[data-step=brochure_a]")
    expect(new).to_contain_text("added by revision 2")
    expect(new).to_contain_text("replaces read_a, by planner whole_plan: A's pricing page is gone")
    expect(page.locator("[data-step=read_a] .seg-attempt.tone-bad")).to_have_count(1)
    told = page.locator(".otherwise")
    expect(page.locator(".run-head .outcome")).to_contain_text(
        "all 5 steps succeeded; 3 earlier steps were replaced after step read_a failed."
    )
    expect(page.locator(".tools")).to_contain_text("5 steps, 3 replaced")
    expect(told).to_contain_text("approved plan: 1 failed step, 1 later revision")
    expect(told.get_by_text("failed: page not found")).to_be_visible()
    said = told.get_by_text("Revision 2 by planner whole_plan: brochure_a replaces read_a, ")
    expect(said).to_be_visible()
    expect(said).to_contain_text("because: read_a failed (permanent: page not found")
    expect(said).to_contain_text("; A's pricing page is gone")
    expect(said).to_contain_text("(approved by the policy, ")
    told.get_by_role("button", name="Show only these steps").click()
    expect(page.locator(".plan-row")).to_have_count(6)
    shot(page, "truth-revised")
    # Beside an open panel, too, a row holds the name of its step and why it is there.
    page.goto(f"{served.url}#/runs/{run}?step=brochure_a")
    expect(page.get_by_role("complementary", name="Step brochure_a")).to_be_visible()
    row = page.locator(".plan-row[data-step=brochure_a]")
    whole, name, tag = (
        of.bounding_box() for of in (row, row.locator("[data-item]"), row.locator(".tag"))
    )
    assert whole["y"] <= name["y"] < tag["y"]
    assert tag["y"] + tag["height"] <= whole["y"] + whole["height"]
    page.goto(f"{served.url}#/runs/{run}/graph")
    expect(page.locator(".edge.replaced")).to_have_count(1)
    expect(page.locator("[data-step=read_a]")).to_contain_text("→ brochure_a")
    expect(page.locator("[data-step=search_a]")).to_contain_text(re.compile(r"ms · search"))
    expect(page.locator(".edge.critical")).to_have_count(1)
    _graph_stays_in_view(page)
    page.locator("[data-step=brochure_a]").click()
    expect(page.locator(".instead")).to_contain_text("Replaces read_a")
    # Replaced steps are no part of the work: the bar of a run that succeeded is full.
    rest = page.locator(".run-head .meter .rest")
    expect(rest).to_have_css("flex-grow", "0")
    page.goto(f"{served.url}#/runs")
    expect(page.locator(".runs .progress .figure")).to_have_text("5 of 5 3 replaced")


def _graph_stays_in_view(page):
    """The wheel scrolls the page, with Ctrl it zooms; a drag ends at the edge of what is drawn."""
    page.set_viewport_size({"width": 1280, "height": 560})
    graph = page.locator(".graph")
    moved = "document.querySelector('.graph svg g').getAttribute('transform')"
    frames = "let n = 4; const next = () => n-- ? requestAnimationFrame(next) : done(); next()"
    page.evaluate(f"() => new Promise((done) => {{ {frames} }})")  # it fits into its new size
    before, box = page.evaluate(moved), graph.bounding_box()
    page.mouse.move(700, box["y"] + 60)
    page.mouse.wheel(0, 60)
    top = "top => document.querySelector('.graph').getBoundingClientRect().top < top"
    page.wait_for_function(top, arg=box["y"])
    assert page.evaluate(moved) == before
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_function(f"before => {moved} !== before", arg=before)
    for _ in range(3):
        page.mouse.move(1200, 540)
        page.mouse.down()
        page.mouse.move(300, 360, steps=4)
        page.mouse.up()
    expect(page.locator("[data-step=write_brochures]")).to_be_in_viewport()
    page.get_by_role("button", name="Fit").click()
    page.set_viewport_size(WIDE)


def test_the_printed_address_signs_in_where_the_page_is_open(pages, served):
    """Pasted into an open tab; the token is nowhere in the address or behind the back button."""
    page = pages(served.url)
    expect(page.get_by_role("heading", name="Sign in to Leadhand")).to_be_visible()
    page.evaluate("location.hash = '#token=wrong'")
    expect(page.get_by_role("alert")).to_contain_text("Not signed in")
    assert "token" not in page.url
    page.evaluate("token => (location.hash = `#token=${token}`)", served.token)
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    assert page.evaluate("location.href") == served.url
    page.evaluate("location.hash = '#token=wrong'")  # who is signed in stays so
    expect(page.locator(".notice")).to_contain_text("Sign-in link rejected")
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    page.go_back()
    assert "token" not in page.evaluate("location.href")


def test_what_a_program_printed_keeps_its_lines_and_stands_once(pages, served):
    """In the inbox and in a step: type of one width, lines as printed, no text twice."""
    step = {"id": "check", "worker": "tested", "parameters": {"what": "all"}, "retry": 1}
    run = served.call("POST", "/runs", {"plan": {"goal": "Test it", "steps": [step]}})["run"]
    served.until(run, "waiting")
    page = enter(pages, served)
    printed = page.locator(".ask .printed")
    assert "    assert     x == 1\nAssertionError" in printed.text_content()
    expect(printed).to_have_css("white-space", "pre-wrap")
    expect(printed).to_have_css("font-family", re.compile("mono"))
    shot(page, "truth-printed-inbox")
    page.goto(f"{served.url}#/runs/{run}/graph?step=check")
    expect(page.locator(".attempt")).to_contain_text("2 tests failed")
    shot(page, "truth-printed-step")
    drawer = page.get_by_role("complementary", name="Step check")
    assert drawer.text_content().count("AssertionError") == 1


def test_the_head_names_the_revision_that_waits(pages, served):
    run = served.call("POST", "/runs", {"plan": publishing("abort"), "review": True})["run"]
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}")
    figures = page.locator(".run-head .figures")
    expect(figures).to_contain_text("1 waiting for approval")
    expect(figures).not_to_contain_text("0 from")


def test_a_row_of_the_inbox_says_what_it_is_about(pages, served):
    """Goal, risk, effects, who asks, and where each answer leads: page, API and terminal."""
    run = served.call("POST", "/runs", {"plan": publishing("escalate")})["run"]
    served.until(run, "waiting")
    (row,) = served.call("GET", "/inbox")["items"]
    assert (row["goal"], row["plan"], row["asked_by"]) == (
        "Publish the pages",
        "publish",
        "publish",
    )
    leads = {choice["answer"]: choice["leads_to"] for choice in row["choices"]}
    assert leads["retry"] == "attempt 2 of step publish starts, by worker publish"
    page = enter(pages, served)
    asked = page.locator(".ask")
    for text in ("Publish the pages", "asked by publish", "risk not declared", *leads.values()):
        expect(asked).to_contain_text(text)
    expect(asked.locator(".tone-good")).to_have_count(0)
    shot(page, "truth-inbox")
    said = served.terminal("inbox")
    for line in ("Goal: Publish the pages", "Plan: publish", f"({leads['retry']})"):
        assert line in said
    assert "Risk not declared, effects undeclared:publish" in said


def test_units_are_no_money_and_undeclared_is_no_low_risk(pages, served):
    """What workers declare as cost has no dollar sign anywhere; a silent worker no green tag."""
    with (served.folder / "workers.py").open("a") as file:
        file.write("\n\n@worker(cost=7.6, idempotent=True)\ndef dear() -> int:\n    return 1\n")
    served.stop()
    served.start()
    plan = {"goal": "Do it", "steps": [{"id": "dear", "worker": "dear"}]}
    run = served.call("POST", "/runs", {"plan": plan, "review": True})["run"]
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}/plan")
    reach = page.locator(".reach")
    expect(reach).to_contain_text("risk not declared")
    expect(reach).to_contain_text("policies treat the risk as low")
    expect(reach).to_contain_text("the steps declare 7.6")
    expect(page.locator(".plan-step .tag.tone-good")).to_have_count(0)
    shot(page, "truth-review")
    binding = served.call("GET", f"/runs/{run}/review")["binding"]
    served.call("POST", f"/runs/{run}/review/approve", {"digest": binding})
    served.until(run, "succeeded")
    expect(page.locator(".run-head .figures")).to_contain_text("7.6 units")
    page.goto(f"{served.url}#/runs")
    expect(page.locator(".runs")).to_contain_text("7.6 units")
    for path in ("runs", f"runs/{run}/graph?step=dear", "fleet", "overview", "inbox"):
        page.goto(f"{served.url}#/{path}")
        expect(page.locator("main h1, .drawer h2").first).to_be_visible()
        assert "$" not in page.locator("body").inner_text()
    row = served.call("GET", "/runs")["items"][0]
    assert (row["cost"], row["money"]) == (7.6, 0.0)


def test_output_and_progress_come_while_a_step_runs(pages, served, monkeypatch):
    """In the browser and over the API; a secret never shows, not even the first half of it."""
    key = "hunter2-correct-horse"
    served.stop()
    monkeypatch.setenv("THE_KEY", key)
    served.start()
    plan = {
        "goal": "Talk",
        "params": {"key": {"type": "secret", "env": "THE_KEY"}},
        "steps": [{"id": "talk", "worker": "chatty", "parameters": {"key": "${{ params.key }}"}}],
    }
    run = served.call("POST", "/runs", {"plan": plan})["run"]
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}/graph?step=talk")
    drawer = page.get_by_role("complementary", name="Step talk")
    expect(drawer).to_contain_text("No output yet")
    expect(drawer.get_by_text("No output", exact=True)).to_have_count(0)
    page.route("**/live", lambda route: route.fulfill(status=503))
    page.reload()
    expect(drawer).to_contain_text("The log cannot be read: the server answered 503")
    page.unroute("**/live")
    expect(drawer).to_contain_text("No output yet")
    (served.folder / "speak").touch()
    output = drawer.locator(".output")
    expect(output).to_contain_text("part 3 of 40")
    expect(drawer.locator(".progress-note")).to_contain_text("15% part 3 of 40")
    assert "hunter2" not in output.text_content()
    shot(page, "truth-live")
    (served.folder / "whole").touch()
    expect(output).to_contain_text("the key is [secret:key]")
    url = f"{served.url}api/v1/runs/{run}/steps/talk/live"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {served.token}"})
    with urllib.request.urlopen(request, timeout=120) as stream:
        frame = next(line for line in stream if line.startswith(b"data: "))
        found = json.loads(frame[6:])
        assert (found["attempt"], found["fraction"]) == (1, 0.15)
        assert found["output"].endswith("the key is [secret:key]\n")
        (served.folder / "go").touch()
        assert b"event: end\n" in list(stream)
    served.until(run, "succeeded")
    expect(drawer.locator(".output")).to_contain_text("the key is [secret:key]")
    assert key not in page.content()


@pytest.mark.parametrize("words", [("run",), ("apply",), ("run", "--detach")], ids=" ".join)
def test_a_run_from_another_terminal_is_shown_live_with_its_output(pages, served, words):
    """Beside `leadhand serve`: listed, its steps change, and what they print is shown."""
    verb, *flags = words
    plan = {"goal": "Talk beside", "params": {"key": {"type": "string"}}}
    plan["steps"] = [
        {"id": "talk", "worker": "chatty", "parameters": {"key": "${{ params.key }}"}},
        {"id": "after", "worker": "prepare", "parameters": {"what": "x"}, "depends_on": ["talk"]},
    ]
    (served.folder / "beside.json").write_text(json.dumps(plan))
    (served.folder / "fixed").touch()
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs")
    env = os.environ | {"LEADHAND_TRUST": str(served.folder), "LEADHAND_ACTOR": "bob"}
    command = [sys.executable, "-m", "leadhand.cli", verb, "beside.json", "--set", "key=12345678"]
    caller = subprocess.Popen([*command, *flags], cwd=served.folder, env=env)
    try:
        expect(page.get_by_text("Talk beside")).to_be_visible()
        (row,) = served.call("GET", "/runs")["items"]
        page.goto(f"{served.url}#/runs/{row['run']}/graph?step=talk")
        drawer = page.get_by_role("complementary", name="Step talk")
        expect(drawer).to_contain_text("No output yet")
        (served.folder / "speak").touch()
        expect(drawer.locator(".output")).to_contain_text("part 3 of 40")
        expect(drawer.locator(".progress-note")).to_contain_text("15% part 3 of 40")
        (served.folder / "whole").touch()
        (served.folder / "go").touch()
        served.until(row["run"], "succeeded")
        assert caller.wait(120) == 0
    finally:
        for name in ("speak", "whole", "go"):  # so that its own process ends, whatever failed
            (served.folder / name).touch()
        caller.kill()
        caller.wait()
    expect(page.locator("[data-step=after]")).to_contain_text("Succeeded")


def test_inputs_are_shown_as_the_worker_got_them(pages, served, monkeypatch):
    """Beside the template, on page, API and terminal; a secret by its name."""
    served.stop()
    monkeypatch.setenv("THE_KEY", "hunter2-correct-horse")
    served.start()
    (served.folder / "fixed").touch()
    first = {"id": "prepare", "worker": "prepare", "parameters": {"what": "pages"}}
    to = "${{ steps.prepare.data }} with ${{ params.key }}"
    second = {"id": "publish", "worker": "publish", "parameters": {"to": to}}
    params = {"key": {"type": "secret", "env": "THE_KEY"}}
    plan = {"goal": "Publish", "params": params, "steps": [first, second]}
    run = served.call("POST", "/runs", {"plan": plan})["run"]
    served.until(run, "succeeded")
    found = served.call("GET", f"/runs/{run}/steps/publish")
    (given,) = found["inputs"]
    assert (given["value"], given["expression"]) == ("pages with [secret:key]", to)
    assert found["planned"]["parameters"] == {"to": to}
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}/graph?step=publish")
    inputs = page.locator(".inputs")
    expect(inputs).to_contain_text("pages with [secret:key]")
    expect(inputs.locator(".template")).to_contain_text("${{ steps.prepare.data }}")
    shot(page, "truth-inputs")
    said = served.terminal("show", run, "publish")
    assert "input      to = pages with [secret:key]" in said
    assert "from ${{ steps.prepare.data }} with ${{ params.key }}" in said


def test_waiting_is_no_work(pages, served):
    """Waits are segments of their own; the duration tells work and waiting apart."""
    plan = publishing("escalate")
    run = served.call("POST", "/runs", {"plan": plan, "review": True})["run"]
    page = enter(pages, served)
    page.goto(f"{served.url}#/runs/{run}")
    figures = page.locator(".run-head .figures")
    expect(figures).to_contain_text("waiting for approval since")
    expect(page.locator(".of-plan .seg-approval")).to_have_count(1)
    binding = served.call("GET", f"/runs/{run}/review")["binding"]
    served.call("POST", f"/runs/{run}/review/approve", {"digest": binding})
    served.until(run, "waiting")
    waits = page.locator("[data-step=publish] .seg-question")
    expect(waits).to_have_count(1)
    expect(waits).to_have_attribute("title", re.compile("^Waiting for a person, "))
    approved = page.locator(".of-plan .seg-approval")
    expect(approved).to_have_attribute(
        "title", re.compile("^Waiting for approval: approved by ada")
    )
    expect(figures).not_to_contain_text("waiting for approval")
    expect(figures).not_to_contain_text("Waiting for approval")
    expect(figures).to_contain_text(re.compile("working, .* waiting"))
    shot(page, "truth-rows")
    found = served.call("GET", f"/runs/{run}/rows")
    assert [each["kind"] for each in found["plan"]] == ["approval"]
    assert found["rows"][-1]["segments"][-1]["kind"] == "question"
    (served.folder / "fixed").touch()
    (asked,) = served.call("GET", "/inbox")["items"]
    served.call("POST", f"/inbox/{asked['id']}/answer", {"choice": "retry"})
    served.until(run, "succeeded")
    head = served.call("GET", f"/runs/{run}")
    assert head["begun"]
    assert head["worked"] < head["duration"]
    drawn = served.terminal("show", run, "--timeline")
    assert re.search(r"\(approval\) +\?+", drawn), drawn
    assert re.search(r"publish .*waited", drawn), drawn


def test_the_library_says_how_many_runs_of_a_plan_succeeded(pages, served):
    """As `leadhand library list` does."""
    (served.folder / "go").touch()
    served.call("PUT", "/library/patient", {"plan": patient(1)})
    run = served.call("POST", "/runs", {"library": "patient"})["run"]
    served.until(run, "succeeded")
    page = enter(pages, served)
    page.goto(f"{served.url}#/library")
    row = page.get_by_role("row").filter(has_text="patient")
    any_text = re.compile(".*")
    expect(row.get_by_role("cell")).to_have_text(
        [re.compile("patient"), any_text, "1", "100%", re.compile("s$"), "0", any_text]
    )
