"""`leadhand review`: show everything that will run, and approve, reject, send back or amend it."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.app.composition import known_catalog
from leadhand.app.reader import LogAccess
from leadhand.cli.commands.control import send_command
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import (
    actor_of,
    context_option,
    say_not_loaded,
    settings_of,
    store_option,
    workers_option,
)
from leadhand.cli.plan_source import in_library, is_plan
from leadhand.cli.rendering.outcome import still_needs, way_on
from leadhand.cli.rendering.review import print_review
from leadhand.cli.rendering.text import clean
from leadhand.cli.terminal import confirm, edit_text
from leadhand.core.calendar import utc
from leadhand.core.views.run import is_for_caller
from leadhand.errors import Conflict, LeadhandError, NotAllowed, PlanInvalid, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.cli.commands.run import CheckedPlan
    from leadhand.core.plan.model import Doc
    from leadhand.core.review.approval import Approval
    from leadhand.core.review.view import PlanReview, ReviewDocument
    from leadhand.core.state.model import State
    from leadhand.core.state.records import Revision
    from leadhand.settings import Settings


# `leadhand review PLAN`: show, amend and approve a plan that does not run yet.


def review_plan(
    console: Console, settings: Settings, plan: str, action: str | None, options: Doc
) -> int:
    """Show a plan, or carry out `action` on it."""
    if action == "amend":
        return _amend_plan(console, settings, plan, options)
    if action in ("reject", "request_changes"):
        raise UsageError(
            f"{plan} is a plan file, and only the plan of a run can be rejected or changed. "
            "Fix: name a run"
        )
    prepared = prepared_plan(console, plan, {**options, "approves": action == "approve"})
    doc = _plan_document(prepared)
    if action == "approve":
        return _approve(console, prepared, doc, plan, options)
    if console.json:
        console.document(doc)
        return 0
    print_review(console, doc)
    if prepared.settings.not_loaded:
        say_not_loaded(console, prepared.settings)
        return 0
    shown, more = doc.binding or "", shown_options(options)
    words = f"review {plan} approve --digest {shown} -o approval.json{more}"
    console.say(f"Approve exactly this: {console.command(words)}")
    return 0


def shown_options(options: Doc) -> str:
    """Return the options of what was shown, for a command that means the same."""
    pairs = [("--set", each) for each in options["sets"]]
    pairs += [("--workers", each) for each in options["workers"]]
    pairs += [(f"--{name}", str(options[name])) for name in ("context", "budget") if options[name]]
    return "".join(f" {name} {shlex.quote(value)}" for name, value in pairs)


def prepared_plan(console: Console, plan: str, options: Doc) -> CheckedPlan:
    """Return a plan as `leadhand apply` would run it, checked."""
    from leadhand.cli.commands.run import prepare_plan

    rest = {"concurrency": None, "review": False, "no_input": False}
    return prepare_plan(console, plan, {**options, **rest}, running=False)


def _context(prepared: CheckedPlan) -> str:
    return str((prepared.origin or {}).get("context", ""))


def _plan_document(prepared: CheckedPlan) -> PlanReview:
    from leadhand.core.review.limits import limits_of
    from leadhand.core.review.view import plan_review
    from leadhand.core.state.model import Now

    assert prepared.doc is not None
    wall = time.time_ns() // 1000
    settings = prepared.settings
    return plan_review(
        prepared.doc,
        prepared.values or {},
        known_catalog(settings, prepared.registry),
        Now(wall, wall),
        context=_context(prepared),
        limits=limits_of(settings.policy),
        not_loaded=[str(each) for each in settings.not_loaded],
    )


def _approve(
    console: Console, prepared: CheckedPlan, doc: PlanReview, plan: str, options: Doc
) -> int:
    from leadhand.core.review.approval import refuse_partial
    from leadhand.engine.agent_session import refuse_agent_session

    refuse_agent_session("an approval")
    wanted = (options["digest"] or "").lower()
    refuse_partial(wanted)
    if wanted and doc.binding != wanted:
        raise Conflict(
            f"{plan} is not what was shown: its plan digest is not {wanted}. "
            f"Fix: look at it again with `leadhand review {plan}`"
        )
    shown = bool(wanted)
    if not wanted and console.can_prompt and not options["yes"]:
        print_review(console, doc)
        if not confirm("Approve exactly this?"):
            console.say("nothing was approved")
            return 5
        shown = True
    for line in [] if shown else doc.widens:
        console.say(f"{clean(line)}; not shown, so it does not count. Fix: approve with --digest")
    approval = _made(prepared, options, widens=shown and bool(doc.widens))
    text = json.dumps(approval.to_doc(), indent=2, ensure_ascii=False)
    if not options["output"]:
        console.text(text)
        return 0
    file = Path(options["output"])
    if file.exists() and Path(plan).exists() and file.samefile(plan):
        raise UsageError(f"{file}: is the plan itself; give the approval a file of its own")
    _write(file, f"{text}\n")
    if console.json:
        console.document(approval.to_doc())
        return 0
    until = f", until {utc(approval.expires)}" if approval.expires else ""
    signed = f", signed by {approval.key}" if approval.signature else ", not signed"
    console.say(f"{approval.actor} approved {plan} for one run{until}{signed}")
    words = f"apply {plan} --approval {shlex.quote(options['output'])}{shown_options(options)}"
    console.next(console.command(words))
    return 0


def _made(prepared: CheckedPlan, options: Doc, *, widens: bool) -> Approval:
    from leadhand.app.approvals import approval_of, approver_key, ends

    settings = prepared.settings
    assert prepared.doc is not None
    now = time.time_ns() // 1000
    return approval_of(
        prepared.doc,
        prepared.values or {},
        prepared.registry.catalog(),
        settings.policy,
        actor=prepared.actor,
        now=now,
        expires=ends(options["expires"] or settings.policy.approval_s, now),
        reason=options["reason"] or "",
        key=approver_key(options["key"] or settings.approver_key),
        context=_context(prepared),
        widens=widens,
    )


def read_approval(path: str) -> Any:
    """Read an approval from its file. Raise `UsageError` if it is none."""
    from leadhand.codec.documents import DocumentForm, read_document
    from leadhand.core.review.approval import Approval

    fix = "`leadhand review PLAN approve -o FILE` writes one."
    doc = read_document(Path(path), form=DocumentForm("an approval is an object", fix))
    try:
        return Approval.from_doc(doc).to_doc()
    except UsageError as error:
        raise UsageError(f"{path}: {error}. Fix: {fix}") from None


def _amend_plan(console: Console, settings: Settings, plan: str, options: Doc) -> int:
    from leadhand.app.composition import registry_of
    from leadhand.cli.commands.diff import print_changes
    from leadhand.cli.plan_source import find_plan
    from leadhand.codec.documents import write_yaml
    from leadhand.codec.edits import apply_edits
    from leadhand.core.plan.diff import differences

    before = find_plan(console, settings, plan).doc
    catalog = registry_of(settings).catalog()
    after = apply_edits(before, options["sets"], options["unset"], catalog=catalog)
    refuse_broken(before, after)
    print_warnings(console, before, after)
    output = options["output"]
    as_json = console.json or (output or plan).lower().endswith(".json")
    text = json.dumps(after, indent=2, ensure_ascii=False) if as_json else write_yaml(after)
    if not output:
        console.text(text.rstrip("\n"))
        return 0
    _write(Path(output), text.rstrip("\n") + "\n")
    changes = differences(before, after)
    if console.json:
        console.document({"output": output, "changes": [each.document() for each in changes]})
    else:
        print_changes(console, changes)
        console.say(f"the amended plan was written to {output}")
        console.next(console.command(f"review {shlex.quote(output)}"))
    return 0


def refuse_broken(before: Doc, after: Doc) -> None:
    """Raise `PlanInvalid` if an edit adds errors to a plan; earlier ones are left to `lint`."""
    from leadhand.core.lint.plan import lint

    known = {str(each) for each in lint(before, None, advice=False)}
    found = [each for each in lint(after, None, advice=False) if each.level == "error"]
    errors = [each for each in found if str(each) not in known]
    if errors:
        wrong = PlanInvalid(errors)
        wrong.done = "nothing was changed"
        raise wrong


def print_warnings(console: Console, before: Doc, after: Doc) -> None:
    """Print the lint warnings that an edit of a plan added."""
    from leadhand.core.lint.plan import lint

    known = {str(each) for each in lint(before, None, advice=False)}
    for each in lint(after, None, advice=False):
        if each.level == "warning" and str(each) not in known:
            console.say(clean(each, 500))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NotAllowed(f"{path}: cannot be written: {error.strerror}") from None


ACTIONS = ("approve", "reject", "request_changes", "amend")
OF_PLAN = ("workers", "context", "budget")
TAKES = {
    "show": {"sets", *OF_PLAN},
    "approve": {"digest", "expires", "reason", "key", "sets", "output", "yes", *OF_PLAN},
    "reject": {"reason"},
    "request_changes": {"text", "comment"},
    "amend": {"sets", "unset", "reason", "output"},
}
SET = "For amend: a change, as PATH=VALUE. For a PLAN: the value of a parameter."
COMMENT = "For request_changes: a comment on one step; the planner answers each."
OUTPUT = (
    "For a PLAN: the file for the approval or the amended plan; the default is standard output."
)
EXAMPLE = """leadhand review 7kq3
leadhand review 7kq3 amend --set steps.step-3.not_before="02:00 UTC"
leadhand review 7kq3 approve --expires "8 hours"
leadhand review plan.yaml approve -o approval.json"""


@command("review", EXAMPLE)
@click.argument("what", metavar="RUN|PLAN")
@click.argument("action", type=click.Choice(ACTIONS), required=False, metavar="[ACTION]")
@click.option(
    "--digest",
    metavar="DIGEST",
    help="Approve only if this is the plan digest, as it was shown; all 64 digits.",
)
@click.option(
    "--expires", metavar="TIME", help='How long the approval is valid, for example "8 hours".'
)
@click.option("--reason", help="The reason; it is recorded in the log.")
@click.option("--text", help="For request_changes: the changes that the planner should make.")
@click.option("--comment", multiple=True, metavar="STEP=TEXT", help=COMMENT)
@click.option("--set", "sets", multiple=True, metavar="K=V", help=SET)
@click.option("--unset", multiple=True, metavar="PATH", help="For amend: a field to remove.")
@click.option("--key", metavar="PATH", help="The private key that signs the approval.")
@click.option("--output", "-o", metavar="FILE", help=OUTPUT)
@click.option(
    "--budget", type=float, metavar="N", help="For a PLAN: the most that its run may cost."
)
@click.option("--yes", is_flag=True, help="On a terminal, approve without a confirmation.")
@workers_option
@context_option
@store_option
def review(console: Console, what: str, action: str | None, **options: Any) -> int:
    """Show what will run; approve, reject or amend it.

    ACTION is approve, reject, request_changes or amend. Without an action the command shows the
    revision that waits in RUN: every field of every step, the reason for the review, the
    approvals so far, the changes since the last approved revision, and the hash that an
    approval is bound to. `amend` changes steps that have not started, with --set PATH=VALUE and
    --unset PATH or in $EDITOR, and makes a new revision. For a PLAN, `approve` writes an
    approval that `leadhand apply PLAN --approval FILE` uses once.
    """
    _refuse_strangers(action, options)
    settings = settings_of(options["store"], options["workers"], context=options["context"])
    with LogAccess(settings.store) as access:
        if is_plan(what) or in_library(settings, what, access):
            access.close()
            return review_plan(console, settings, what, action, options)
        for name in ("output", *OF_PLAN):
            if options[name]:
                raise UsageError(f"--{name} goes with a plan, and {what} is a run")
        state = access.reader.state(access.reader.resolve(what))
        if console.can_prompt or action == "amend":  # a person or an editor takes long
            access.close()
        match action:
            case None:
                return _show(console, state)
            case "amend":
                return _amend(console, settings, access, state, options)
            case _:
                return _decide(console, settings, access, state, action, options)


def _refuse_strangers(action: str | None, options: Doc) -> None:
    """Raise `UsageError` for an option of another action."""
    word = action or "show"
    for name in sorted({each for takes in TAKES.values() for each in takes}):
        if options[name] and name not in TAKES[word]:
            raise UsageError(f"--{name} does not go with {action or 'showing it'}")


def _now(state: State) -> Any:
    from leadhand.app.approvals import moment

    return moment(state)


def _document(state: State) -> ReviewDocument:
    from leadhand.core.review.view import review_document

    return review_document(state, _now(state))


def _show(console: Console, state: State) -> int:

    doc = _document(state)
    if console.json:
        console.document(doc)
        return 0
    print_review(console, doc)
    if doc.waiting:
        way = console.command(f"review {state.run} approve --digest {doc.binding}")
        console.say(f"Approve exactly this: {way}")
        others = [each for each in [choice.answer for choice in doc.choices] if each != "approve"]
        others.append("amend")
        console.say(f"or: {', '.join(others)}")
    return 0


# Deciding.


def _decide(
    console: Console,
    settings: Settings,
    access: LogAccess,
    state: State,
    action: str,
    options: Doc,
) -> int:
    from leadhand.core.review.approval import binding

    revision = state.pending
    question = f"review-{revision.number}" if revision else ""
    if revision is None or question not in state.questions:
        raise Conflict(f"nothing waits for a review in run {state.run}")
    choice = action
    text = options["text"] if choice == "request_changes" else options["reason"]
    comments = step_comments(options["comment"])
    if choice != "approve" and not text and not comments:
        option = "--text" if choice == "request_changes" else "--reason"
        raise UsageError(f"say why: {action} {option} TEXT")
    if choice == "request_changes" and state.feedback_refusal:
        for said in filter(None, [text, *options["comment"]]):
            console.say(f"you wrote: {clean(said)}")
        raise UsageError(
            f"nothing can act on it: {state.feedback_refusal}. Fix: amend it, or reject it"
        )
    details: Doc = {"id": question, "choice": choice, "text": text or ""}
    if comments:
        details["data"] = {"comments": comments}
    shown = binding(state, revision, 0)
    if choice == "approve":
        seen = options["digest"] or _confirmed(console, state, options)
        if seen is None:
            console.say("nothing was approved")
            return 5
        details["approval"] = approval_words(
            settings, state, options["expires"], options["key"], shown=seen.lower()
        )
        shown = _bound(console, state, revision, seen.lower())
        _say_too_early(console, state, revision, options["expires"])
    try:
        _run, answer = send_command(settings, state.run, "answer", access=access, **details)
    except LeadhandError:
        for said in filter(None, [text, *options["comment"]]):
            console.say(f"you wrote: {clean(said)}")
        raise
    waits = still_needs(access.state(state.run))
    _print_decided(console, state, choice, {**answer, "binding": shown}, waits)
    return 0


def step_comments(given: Sequence[str]) -> list[Doc]:
    """Return the comments of `--comment STEP=TEXT`. Raise `UsageError` for another form."""
    found: list[Doc] = []
    for each in given:
        step, mark, text = each.partition("=")
        if not mark or not step.strip() or not text.strip():
            raise UsageError(f"--comment is STEP=TEXT, not {clean(each, 80)!r}")
        found.append({"step": step.strip(), "text": text.strip()})
    return found


def _say_too_early(console: Console, state: State, revision: Revision, expires: str | None) -> None:
    """Name the steps whose start time is after the expiry of an approval given now."""
    from leadhand.app.approvals import ends
    from leadhand.core.calendar import utc
    from leadhand.core.review.decisions import calendar_instants, expiry_of

    now = _now(state)
    until = expiry_of(state, ends(expires, now.latest), now)
    late = [
        clean(step) for step, at in calendar_instants(revision.add, now).items() if 0 < until <= at
    ]
    if late:
        console.say(
            f"warning: this approval ends at {utc(until)}, before the time of {', '.join(late)}, "
            'which is then held. Fix: a longer --expires, as in "1 day"'
        )


def approval_words(
    settings: Settings,
    state: State,
    expires: str | None = None,
    key: str | None = None,
    *,
    question: str = "",
    choice: str = "approve",
    shown: str = "",
) -> Doc | None:
    """Return the details of an answer that gives a permission: expiry, digest and signature."""
    from leadhand.app.approvals import approver_key, ends
    from leadhand.engine.approvals import words_with

    now = _now(state)
    until, signer = ends(expires, now.latest), approver_key(key or settings.approver_key)
    actor = actor_of(settings)
    return words_with(state, question, choice, actor, now, expires=until, key=signer, shown=shown)


def _confirmed(console: Console, state: State, options: Doc) -> str | None:
    """Show it and ask, on a terminal; return the digest of what was shown, None if refused.

    If nothing is shown (`--yes`, or no terminal), the digest leaves out the claims of the plan
    beyond its workers: those count only for a person who was shown them.
    """
    from leadhand.core.review.approval import binding

    revision = state.pending
    assert revision is not None
    if not console.can_prompt or options["yes"]:
        return binding(state, revision, 0, widens=False)
    shown = show_pending(console, state)
    return shown if confirm("Approve exactly this?") else None


def show_pending(console: Console, state: State) -> str:
    """Print the revision that waits; return the digest of what was shown, "" if none waits."""
    from leadhand.core.review.approval import binding

    print_review(console, _document(state))
    return binding(state, state.pending, 0) if state.pending is not None else ""


def _bound(console: Console, state: State, revision: Revision, seen: str) -> str:
    """Return the digest that is approved; say what it does not cover because it was not shown."""
    from leadhand.core.review.approval import binding, was_shown

    if was_shown(state, revision, seen):
        return binding(state, revision, 0)
    say_not_shown(console, state)
    return binding(state, revision, 0, widens=False)


def say_not_shown(console: Console, state: State) -> None:
    """Say which claims beyond workers are not approved without the digest that covers them."""
    from leadhand.core.promises import claim_lines
    from leadhand.core.review.approval import claims_of_revision

    way = console.command(f"review {state.run} approve --digest …")
    for line in claim_lines(claims_of_revision(state, state.pending)) if state.pending else ():
        console.say(f"{clean(line)}; not shown, so it does not count. Fix: approve with {way}")


def _print_decided(console: Console, state: State, choice: str, answer: Doc, waits: str) -> None:
    if console.json:
        number = state.pending.number if state.pending else 0
        console.document({"run": state.run, "revision": number, "choice": choice, **answer})
        return
    words = {"approve": "approved", "reject": "rejected", "request_changes": "sent back"}
    number = state.pending.number if state.pending else 0
    more = f", digest {answer['binding']}" if choice == "approve" else ""
    console.say(f"{words[choice]}: revision {number} of run {state.run}{more}")
    if waits:
        console.say(f"It still waits: {waits}")
        return
    _say_way_on(console, state, answer, "End it with" if choice == "reject" else "Continue with")


def _say_way_on(console: Console, state: State, answer: Doc, what: str = "Continue with") -> None:
    if what == "Continue with" and is_for_caller(state):
        way = way_on(console, state)
        console.say(f"Tell the agent that drives it to go on; it asks for its step: {way}")
        return
    if answer["hosted"]:
        return
    console.say(f"No process is running it. {what}: {console.command(f'resume {state.run}')}")


# Amending.


def _amend(
    console: Console, settings: Settings, access: LogAccess, state: State, options: Doc
) -> int:
    from leadhand.app.approvals import revision_of
    from leadhand.codec.edits import apply_edits
    from leadhand.core.plan.diff import differences
    from leadhand.core.plan.revisions import held_by, plan_of

    before, heirs = plan_of(state)
    sets, unset = options["sets"], options["unset"]
    if sets or unset:
        after = apply_edits(before, sets, unset, heirs=heirs, catalog=state.catalog)
    else:
        after = _edited(console, before)
    changes = differences(before, after, heirs, held_by(state))
    if not changes:
        raise UsageError("the plan is the same as before, so there is nothing to amend")
    revision = {**revision_of(state, after), "because": options["reason"] or ""}
    try:
        _run, answer = send_command(settings, state.run, "amend", access=access, revision=revision)
    except PlanInvalid as error:
        error.done = "nothing was changed"
        raise
    print_warnings(console, before, after)
    if console.json:
        told = [change.document() for change in changes]
        console.document({"run": state.run, **answer, "changes": told})
        return 0
    from leadhand.cli.commands.diff import print_changes

    print_changes(console, changes)
    console.say(f"run {state.run} has a new revision, and is {clean(answer.get('status'))}")
    after_it = access.state(state.run)
    pending = after_it.pending
    if pending is not None and f"review-{pending.number}" in after_it.questions:
        more = "1 person" if pending.people == 1 else f"{pending.people} people"
        look = console.command(f"review {state.run}")
        console.say(f"Revision {pending.number} starts nothing before {more} approved it: {look}")
    elif answer.get("status") == "waiting":
        console.next(console.command(f"review {state.run}"))
    else:
        _say_way_on(console, state, answer)
    return 0


def _edited(console: Console, before: Doc) -> Doc:
    """Return the plan as a person leaves it in their editor."""
    from leadhand.codec.documents import read_document, write_yaml

    if not console.can_prompt:
        raise UsageError("say what to change: --set PATH=VALUE or --unset PATH")
    text = edit_text(write_yaml(before), ".yaml")
    if text is None:
        raise UsageError("the editor ended without saving, so nothing was amended")
    return read_document(text.encode(), name="the amended plan")
