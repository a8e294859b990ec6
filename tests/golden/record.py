"""Records the golden histories: `python tests/golden/record.py`.

A history is a log as a store keeps it, one entry a line: seq, at, version, the batch it was
committed in, the body's exact bytes and the hash that chains it to the entry before. Beside
them, `snapshots.json` holds the digest of what each amounts to.

Recorded once, replayed for ever: a history that exists is left alone. A change that breaks one
is a change that breaks somebody's log. Add a new history for new behaviour; `--again NAME`
records one anew, and is for histories that no release has seen.
"""

import argparse
import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parents[1])]

from leadhand.audit.chain import GENESIS, link  # noqa: E402 - found by the line above
from leadhand.codec.events import encode  # noqa: E402
from leadhand.core import commands  # noqa: E402
from leadhand.core import events as ev  # noqa: E402
from leadhand.core.decide.effects import Move  # noqa: E402
from leadhand.core.policy import Policy, Rule  # noqa: E402
from leadhand.core.review import holds  # noqa: E402
from leadhand.core.review.answer_link import item_digest  # noqa: E402
from leadhand.workers.caller import Caller  # noqa: E402
from tests.core.driver import Drive, finished, propose, spec, step  # noqa: E402
from tests.golden.meaning import digest_of  # noqa: E402


def chain():
    """Three steps, one after the other, with data handed on."""
    run = Drive(
        step("fetch", action="get", parameters={"url": "${{ params.url }}"}),
        step("parse", parameters={"text": "${{ steps.fetch.data.body }}"}),
        step("store", "parse", parameters={"rows": "${{ steps.parse.data }}"}),
        params={"url": "https://example.org"},
        actor="ann",
        plan={"plan_id": "chain", "estimated_duration": "15 minutes"},
    )
    run.later(1).done("fetch", data={"body": "a,b"}, cost=0.5)
    run.later(1).done("parse", data=[["a", "b"]], recommendations=("index it",))
    return run.later(1).done("store", data_ref="sha256:" + "0" * 64, output="stored")


def fan_out():
    """The critical path first, under limits overall, per worker and per resource."""
    run = Drive(
        step("a", est=5),
        step("b", est="1m", uses="db"),
        step("c", est=30, uses={"db": 1}),
        step("d", "b", est=90),
        step("e", worker="other"),
        policy=Policy(max_concurrency=3, worker_concurrency={"w": 2}, resources={"db": 1}),
    )
    while run.running:
        run.later(1).done(run.running[0])
    return run


def retry():
    """Backoff with jitter, twice, then success."""
    run = Drive(step("a"), policy=Policy(backoff_s=4.0))
    run.fail("a").later(10).fail("a", "rate_limited", retry_after=60).later(59)
    return run.later(30).done("a")


def reroute():
    """The tool is not there; the alternative is tried, fails for good, and the plan aborts."""
    run = Drive(
        step("a", alternatives=["other"], failure_action="abort_deployment"),
        step("b", "a"),
        step("c"),
    )
    run.fail("a", "unavailable").fail("a", "permanent")
    return run.done("c")


def probe():
    """Nobody saw the outcome: the probe says not done, then done, then is unsure."""
    catalog = [spec("probed", probe=True)]
    steps = [step(name, worker="probed", timeout=5) for name in ("a", "b", "c")]
    run = Drive(*steps, catalog=catalog).later(5)
    run.probed("a", "done", met=True, data={"seen": 1})
    run.probed("b", "not_done").probed("c", "unknown", reason="cannot tell").later(2).done("b")
    return run.reply("done", data={"told": 2}, text="I looked")


def unseen():
    """A person is asked, and says retry; it fails again, and is skipped."""
    run = Drive(step("a", timeout=5), step("b", finished("a")), step("c", "a")).later(5)
    run.reply("retry").fail("a", "permanent").reply("skip", text="never mind")
    return run.done("b")


def review():
    """High risk waits for a person; calendar times are fixed at the approval."""
    run = Drive(
        step("a", worker="risky", not_before="00:10 UTC"), step("b", window="00:20-00:30 UTC")
    )
    run.later(60).reply("approve", text="fine").later(540).done("a").later(600)
    return run.done("b")


def rejection():
    """A person says no."""
    return Drive(step("a", risk_level="critical")).later(5).reply("reject", text="not today")


def iterative():
    """A planner that goes step by step: it asks, is refused, plans around a failure, finishes."""
    run = Drive(bare=True, replans=True, consult="every_report", planner="script").go()
    run.answer({"kind": "ask", "question": "Which one?", "choices": ["x", "y"], "notes": {"n": 1}})
    run.later(1).reply("y").answer(propose(step("a", worker="nobody"), final=False))
    run.answer(propose(step("a"), step("b", "a"), step("c", "b"), final=False, because="first"))
    run.later(1).fail("a", "permanent", cost=0.25)
    run.answer(propose(step("a2", supersedes="a"), final=False, outlook=[step("later")]))
    run.done("a2", data=1, surprise="expected data > 1")
    run.answer(propose(step("n"), cancel=["c"], final=False)).later(1)
    run.done("b").answer(propose(steps=[], final=False)).done("n")
    return run.answer({"kind": "finish", "result": {"n": 2}, "because": "enough"})


def forsaken():
    """The failed step is given up by name: steps that waited for it are cancelled."""
    run = Drive(bare=True, replans=True).go()
    run.answer(propose(step("a"), step("b", "a"), step("c", finished("b")), final=False))
    run.fail("a", "permanent").say(ev.PlannerFailed(2, run.state.planner.epoch, "it raised"))
    run.answer(propose(step("d"), final=True, drop={"a": "d does it another way"}))
    return run.done("c").done("d")


def out_of_ideas():
    """A planner that repeats itself: a person is asked, hands over, and gives a fact."""
    goal = {"text": "g", "want": ["x"]}
    policy = Policy(jitter=0.0, replans_idle_max=0)
    run = Drive(bare=True, replans=True, planner="script", goal=goal, policy=policy).go()
    run.answer(propose(step("a"), final=False)).fail("a", "permanent")
    run.answer(propose(step("b"), final=False)).fail("b", "permanent")
    run.answer(propose(step("c"), final=False)).later(1).reply("hand_over", text="try yourself")
    run.answer({"kind": "ask", "question": "x?", "choices": ["give"], "facts": ["x"]})
    run.later(1).reply("give", data=7).answer({"kind": "finish", "result": 7})
    drop = {"a": "a person gave x", "b": "a person gave x"}
    return run.answer({"kind": "finish", "result": 7, "drop": drop})


def cancel():
    """Paused, resumed, cancelled; one stops in time, one does not."""
    run = Drive(step("a"), step("b"), step("c", "a"))
    run.say(ev.RunPaused("ann", "lunch")).later(5).say(ev.RunResumed("ann"))
    run.later(1).cancel("enough").later(1).fail("a", "lost", "unknown")
    return run.later(9)


def takeover():
    """The host dies with attempts and a planner call in flight; a late report comes after."""
    run = Drive(bare=True, replans=True).go()
    steps = (step("a", worker="safe"), step("b"), step("c", worker="probed"), step("z"))
    run.answer(propose(*steps, final=False)).say(ev.AttemptSpawned("b", 3, 4711, 99, "boot"))
    run.done("z", surprise="odd").later(3).host_again().report("a", met=True, epoch=2, cost=0.5)
    run.probed("c", "not_done").reply("retry").later(5).done("a", "b", "c")
    return run.answer({"kind": "give_up", "reason": "nothing more to do"})


def goal():
    """The goal is not met at first; the planner goes on, and it is."""
    aim = {"text": "a number", "acceptance": ["result > 1"]}
    run = Drive(step("a"), goal=aim, replans=True).done("a", data=1)
    run.say(ev.GoalChecked(met=False, findings=["result > 1 does not hold"]))
    run.answer(propose(step("b", "a"))).done("b", data=2)
    return run.say(ev.GoalChecked(met=True))


def budget():
    """What the next step would cost is more than is left."""
    steps = [step(f"s{i}", worker="paid") for i in range(4)]
    run = Drive(*steps, catalog=[spec("paid", cost=2.0)], policy=Policy(budget=5.0, wall_s=60.0))
    return run.done("s0", cost=2.5).later(1).done("s1", cost=1.5)


def skipped():
    """The plan says to continue; dependents are skipped, those that do not mind go on."""
    run = Drive(
        step("a", failure_action="continue"),
        step("b", "a"),
        step("c", "b"),
        step("d", finished("c")),
        step("e", parameters={"x": "${{ steps.f.data.gone }}"}),
        step("f"),
    )
    run.fail("a", "permanent").done("f", data={}).reply("abort", text="no use")
    return run.done("d")


def control_story():
    """Two people, changes asked for, a hold, another version of a worker, a step done again."""
    policy = Policy(
        rules=(Rule(name="deploys", workers=("risky",), then="two"),),
        reviewers=("style",),
        approval_s=600.0,
        jitter=0.0,
    )
    run = Drive(bare=True, replans=True, policy=policy).go()
    run.answer(propose(step("a", worker="risky")))
    run.hear(commands.record_examination(run.state, 1, ["too large"], "", run.now))
    run.reply("request_changes", text="smaller, please")
    plan = (step("a", worker="risky"), step("b", "a", failure_action="continue"))
    run.answer(propose(*plan, step("c", worker="safe")))
    run.hear(commands.record_examination(run.state, 2, [], "", run.now))
    run.reply("approve", text="fine").reply("approve", actor="bob")
    run.hear(commands.hold(run.state, ["b"], "ann", "not yet")).later(5).done("a").host_again()
    run.hear(Move(*holds.workers_changed(run.state, [spec("w", version="2")])))
    run.reply("release").reply("release", actor="bob").later(5).fail("b", "permanent")
    why = "the disk is there now"
    run.hear(commands.redo(run.state, "b", "ann", why, run.now)).done("b", "c")
    return run


def reopened():
    """A person ends a run, and takes that end back once the cause is gone."""
    steps = (step("a"), step("b", "a"), step("c"), step("d", "c", failure_action="abort"))
    run = Drive(*steps).fail("a", "permanent").done("c").later(5).fail("d", "permanent")
    run.later(60)
    run.hear(commands.redo(run.state, "d", "ann", "the disk was full", run.now))
    return run.done("d").reply("retry").done("a", "b")


def models():
    """A step asks models, the first of which is busy; what that costs counts against the budget."""
    run = Drive(step("a"), step("b", "a"), policy=Policy(budget=1.0))
    known = {"asked": "a" * 64, "answer": "b" * 64}
    busy = {"model": "chat:m", "step": "a", "attempt": 1, "tier": "hand"}
    run.tell(ev.ModelCalled(**busy, asked="a" * 64, failure="rate_limited", seconds=0.2))
    used = {"input": 900, "output": 80, "cached": 500, "written": 40, "cost": 0.25}
    run.tell(ev.ModelCalled(**busy, **used, **known, prompt="ab12"))
    run.later(1).done("a", data=1)
    strong = {"model": "chat:big", "step": "b", "attempt": 1, "tier": "strong", "cost": 0.5}
    run.tell(ev.ModelCalled(**strong, **known, contents={"asked": "do b", "answer": "done"}))
    refused = {"findings": ["nothing gives x"], "draft": {"kind": "propose"}, "answer": "b" * 64}
    run.tell(ev.DraftRefused(call=1, **refused))
    return run.later(1).done("b", data=2)


def ended_permits():
    """What people allowed ends: with its time, and with the workers that they allowed."""
    plan = {"envelope": {"workers": ["other"]}}
    run = Drive(bare=True, replans=True, plan=plan, wall=10**15).go()
    run.answer(propose(step("a", worker="risky"), step("b", "a", worker="risky"), final=False))
    until = run.now.wall + 60_000_000
    run.reply("approve", approval={"expires": until})
    run.hear(commands.hold(run.state, ["b"], "ann", "not yet"))
    ours = step("b.2", "a", worker="risky", timeout=5, supersedes="b")
    amended = {"steps": [ours], "cancel": [], "final": False}
    run.hear(commands.amend(run.state, amended, "ann", run.now))
    said = {"approval": {"expires": until}}
    run.hear(commands.answer(run.state, "review-2", "approve", "ann", run.now, **said)).done("a")
    run.hear(commands.release(run.state, ["b"], "ann", run.now)).done("b.2")
    run.later(61).answer(propose(step("c", worker="risky"), final=False))
    newer = [spec("risky", risk="high", version="2")]
    run.hear(Move(*holds.workers_changed(run.state, newer, run.now.wall)))
    run.reply("approve").done("c")
    return run.answer(propose(step("d", worker="other"))).done("d")


def distrusted():
    """An approval in the log does not hold when the run is taken up; two people allow it anew."""
    rules = (Rule(risk="high", then="two"),)
    run = Drive(bare=True, policy=Policy(rules=rules)).go()
    run.answer(propose(step("a", worker="risky"), step("b", "a", worker="risky")))
    run.reply("approve").reply("approve", actor="bob")
    voided = ev.ApprovalVoided(6, "ann's approval of revision 1 is not signed", [1])
    run.hear(Move(*holds.void_approval(run.state, voided)))
    return run.done("a").reply("release").reply("release", actor="bob").done("b")


CHANGE = {
    "commit": "c" * 40,
    "base": "b" * 40,
    "digest": "d" * 64,
    "paths": ["deploy/prod.yaml"],
    "diff": "-replicas: 3\n+replicas: 0\n",
}


def protected():
    """A change of something protected is approved by two people, by its commit."""
    rules = (Rule(effects=("protected_change",), then="two"),)
    run = Drive(step("a"), policy=Policy(jitter=0.0, rules=rules))
    run.fail("a", "policy", change=CHANGE, message="It passes.")
    seen = {"approval": {"shown": "c" * 40}}
    return run.reply("approve", **seen).reply("approve", actor="bob", **seen).done("a")


def distrusted_change():
    """An approval of a protected change does not hold; the change is asked about again."""
    run = Drive(step("a"), policy=Policy(jitter=0.0))
    run.fail("a", "policy", change=CHANGE, message="It passes.")
    seen = {"approval": {"shown": "c" * 40}}
    run.reply("approve", **seen)
    entry = [type(event) for _, event in run.log].index(ev.ChangeApproved) + 1
    voided = ev.ApprovalVoided(entry, "ann's approval of change cccccccccccc is not signed", [1])
    run.hear(Move(*holds.void_approval(run.state, voided)))
    run.fail("a", "policy", change=CHANGE, message="It passes.")
    return run.reply("approve", actor="bob", **seen).done("a")


def handed_out():
    """Steps of a caller: extended over the end of a host, lost with its lease, asked for again."""
    run = Drive(
        step("a", worker="caller"),
        step("b", "a", worker="caller", idempotent=True, retry=2),
        catalog=[Caller().spec],
        actor="ann",
    )
    run.claim("agent:bot", 60).later(40).extend("a", "agent:bot", 60).say(ev.RunHosted(2))
    run.later(50).done("a", data={"text": "x"}, said="1" * 64, recommendations=("check it",))
    run.claim("agent:bot", 30).later(30).reply("retry").later(5)
    run.claim("agent:other", 600).later(5)
    return run.done("b", said="2" * 64)


def answered_by_link():
    """Two people approve a plan through signed links, and one retries a step through another."""
    policy = Policy(rules=(Rule(then="two"),))
    run = Drive(step("a"), policy=policy)
    for person in ("ann", "bob"):
        run.later(1).reply("approve", actor=person, link=link_words(run.state, "review-1", person))
    run.fail("a", "permanent").later(1)
    return run.reply("retry", link=link_words(run.state, "q1", "ann")).done("a")


def link_words(state, ident, person):
    """The details of an answer through a signed link."""
    item = item_digest(state, state.questions[ident])
    return {"id": f"{ident}-{person}", "item": item, "channel": "email"}


STORIES = (
    handed_out,
    models,
    control_story,
    reopened,
    chain,
    fan_out,
    retry,
    reroute,
    probe,
    unseen,
    review,
    rejection,
    iterative,
    forsaken,
    out_of_ideas,
    cancel,
    takeover,
    goal,
    budget,
    skipped,
    ended_permits,
    distrusted,
    protected,
    distrusted_change,
    answered_by_link,
)


def lines_of(run):
    """The log as it is stored."""
    batch, head = 0, GENESIS
    for seq, (at, event) in enumerate(run.log, 1):
        while seq > run.cuts[batch]:
            batch += 1
        body = encode(event)
        head = link(head, run.state.run, seq, at, ev.EVENT_VERSION, body)
        header = {"seq": seq, "at": at, "version": ev.EVENT_VERSION, "batch": batch + 1}
        start = json.dumps({**header, "hash": head.hex()}, separators=(",", ":"))
        yield f'{start[:-1]},"body":{body.decode()}}}\n'


def main():
    parser = argparse.ArgumentParser(description="Record golden histories that do not exist yet.")
    parser.add_argument("--again", action="append", default=[], metavar="NAME", help="or `all`")
    again = parser.parse_args().again
    index = FOLDER / "snapshots.json"
    known = json.loads(index.read_text()) if index.exists() else {}
    for story in STORIES:
        name = story.__name__
        path = FOLDER / f"{name}.jsonl"
        if path.exists() and name not in again and "all" not in again:
            continue
        run = story()
        path.write_text("".join(lines_of(run)))
        known[name] = digest_of(run.state)
        print(f"{name}: {len(run.log)} events, {run.ended or 'open'}")
    index.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n")


if __name__ == "__main__":
    main()
