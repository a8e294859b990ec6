"""The page of a signed link: one decision, without scripts and without the dashboard.

Opening a link changes nothing, however often and by whatever program: programs that scan mail open
every address. The decision is a POST of the page's own form.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from leadhand.codec.html import render
from leadhand.core.calendar import iso
from leadhand.core.review.consequences import TOPICS, consequence_line
from leadhand.core.review.subject import effects_text
from leadhand.errors import LeadhandError
from leadhand.server.app_state import app_state_of
from leadhand.server.bodies import form_fields
from leadhand.server.link_answers import (
    ENDS,
    STEPS_MAX,
    LinkAnswer,
    give_answer,
    label_of,
    look,
    needs_text,
)
from leadhand.server.links import LinkRefused, unknown_link
from leadhand.server.problems import refusal_of
from leadhand.server.routes.pages import TYPES, asset_version

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc
    from leadhand.server.accounts import Person
    from leadhand.server.app_state import AppState
    from leadhand.server.link_answers import LinkItem
    from leadhand.server.links import Link

router = APIRouter(include_in_schema=False)
TEXT_MAX = 20_000


@router.get("/answer/{link}")
async def show(request: Request, link: str) -> Response:
    """Show what one decision is about, with a form; nothing changes."""
    app_state = app_state_of(request)
    try:
        found, person = app_state.links.open(link)
        item = await app_state.cached_readers.read(lambda desk: look(desk, found, person))
    except LinkRefused as refused:
        return _over(app_state, refused.status, "No decision to make", str(refused))
    return _asked(app_state, link, found, person, item)


@router.post("/answer/{link}")
async def decide(request: Request, link: str) -> Response:
    """Record the decision of the person whom the link was made for."""
    app_state = app_state_of(request)
    fields = form_fields(await request.body())
    given = LinkAnswer(fields.get("choice", ""), fields.get("text", ""))
    try:
        found, person = app_state.links.open(link)
        if not app_state.links.is_sealed(link, fields.get("seal", "")):
            raise unknown_link()
        item = await app_state.cached_readers.read(lambda desk: look(desk, found, person))
        if len(given.text) > TEXT_MAX:
            note = f"A text has at most {TEXT_MAX:,} characters."
            return _asked(app_state, link, found, person, item, 422, note=note, given=given)
        if given.choice in ENDS and fields.get("sure") != given.choice:
            return _asked(app_state, link, found, person, item, given=given)
        status = await give_answer(app_state, found, person, given)
    except LinkRefused as refused:
        return _over(app_state, refused.status, "No decision to make", str(refused))
    except LeadhandError as error:
        refusal = refusal_of(error)
        if refusal.status >= 500:
            raise
        note = f"{str(error)[:1].upper()}{str(error)[1:]}"
        return _asked(app_state, link, found, person, item, refusal.status, note=note, given=given)
    said = label_of(given.choice) if given.choice else "your answer"
    text = f"Recorded in the log of run {found.run} for {person.name}: {said}. The run is {status}."
    return _over(app_state, 200, "Answer recorded", text, tone="good")


def _asked(
    app_state: AppState,
    token: str,
    link: Link,
    person: Person,
    item: LinkItem,
    status: int = 200,
    *,
    note: str = "",
    given: LinkAnswer | None = None,
) -> Response:
    row = item.row
    # Without a note, an answer that was given must be confirmed.
    confirm = given.choice if given is not None and not note else ""
    values: Doc = {
        "row": row,
        "review": item.review,
        "digest": item.digest,
        "person": person,
        "run": link.run,
        "run_page": f"/#/runs/{link.run}",
        "until": iso(link.expires * 1_000_000),
        "action": f"/answer/{token}",
        "seal": app_state.links.seal(token),
        "note": note,
        "text": given.text if given is not None else "",
        "confirm": confirm,
        "confirm_label": label_of(confirm),
        "buttons": [_button(row, each) for each in row.choices],
        "label": _label(row),
        "too_large": row.kind == "review" and row.steps > STEPS_MAX,
        "steps": _steps(item) if row.steps <= STEPS_MAX else [],
        "consequences": _consequences(item),
        "params": _params(item),
        "steps_max": STEPS_MAX,
        "effects": effects_text(row.effects).removeprefix("effects "),
    }
    return _page(app_state, status, row.title, values)


def _button(row: Any, choice: Any) -> Doc:
    tone = "good" if choice.answer in ("approve", "release") else ""
    return {
        "answer": choice.answer,
        "label": label_of(choice.answer),
        "leads_to": choice.leads_to,
        "tone": "bad" if choice.answer in ENDS else tone,
        "needs_text": needs_text(row, choice.answer),
    }


def _label(row: Any) -> str:
    """Return what the text field of the form is for."""
    if not row.choices:
        return "Answer"
    if "give" in row.answers or row.kind == "task":
        return "Result or reason (text or JSON)"
    needy = [label_of(each) for each in row.answers if needs_text(row, each)]
    return f"Comment (required for: {', '.join(needy)})" if needy else "Comment (optional)"


def _steps(item: LinkItem) -> list[Doc]:
    if item.review is None:
        return []
    facts, risks = item.review.step_facts, item.review.risks
    return [
        {
            "id": step["id"],
            "about": step.get("description", ""),
            "worker": step.get("worker", ""),
            "risk": risks.get(step["id"], ""),
            "effects": ", ".join(facts[step["id"]].effects) if step["id"] in facts else "",
            "document": json.dumps(step, ensure_ascii=False, indent=2),
        }
        for step in item.review.steps
    ]


def _params(item: LinkItem) -> str:
    """Return the values of the plan's parameters: the steps only refer to them."""
    if item.review is None or not item.review.params:
        return ""
    return json.dumps(item.review.params, ensure_ascii=False, indent=2)


def _consequences(item: LinkItem) -> list[str]:
    """Return what an approval leads to, in short and by topic, as the dashboard tells it."""
    if item.review is None:
        return []
    found = item.review.consequences
    lines = (f"{TOPICS[each.topic]}: {consequence_line(each)}" for each in found)
    return [item.review.in_short, *lines]


def _over(
    app_state: AppState, status: int, title: str, text: str, *, tone: str = "quiet"
) -> Response:
    return _page(app_state, status, title, {"row": None, "text": text, "tone": tone})


@cache
def _assets(version: str) -> str:
    """Return the folder of the page's files: looked for once, since anybody may ask for a page."""
    return f"/assets/{asset_version(version)}"


def _page(app_state: AppState, status: int, title: str, values: Doc) -> Response:
    known = {"title": title, "assets": _assets(app_state.version)}
    body = render("leadhand.server", "answer.html", {**known, **values})
    # With `no-referrer` browsers would send the form with the origin `null`. The page has no
    # address of another site, so the link goes nowhere.
    headers = {"Referrer-Policy": "same-origin", "X-Robots-Tag": "noindex, nofollow"}
    return Response(body, status, headers, TYPES[".html"])
