"""What people say to the goal planner in words counts for more than a price."""

import asyncio

from leadhand import Goal, Lead, Permanent, worker


@worker(gives="told", cost=1)
def pager() -> str:
    raise Permanent("out of order")


@worker(gives="told", cost=2)
def phone() -> str:
    return "phone"


@worker(gives="told", cost=3)
def shout() -> str:
    return "shout"


def test_a_person_who_wants_another_way_says_which(tmp_path):
    """`replan` with words that name a worker; without them the cheapest is taken."""

    async def story(text, name):
        lead = Lead([pager, phone, shout], store=tmp_path / f"{name}.db")
        plan = await lead.plan(Goal(want="told"))
        doc = plan.to_doc()
        doc["steps"][0]["failure_action"] = "escalate"
        doc["steps"][0].pop("alternatives", None)
        waiting = await lead.run(doc)
        (question,) = waiting.waiting_for
        await lead.answer(waiting.run, question.id, "replan", text=text)
        return (await lead.resume(waiting.run)).result

    assert asyncio.run(story("", "plain")) == "phone"
    assert asyncio.run(story("use shout", "words")) == "shout"
