"""`leadhand review PLAN`: a plan that does not run yet is shown, amended, and approved."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.app.loading import known_catalog
from leadhand.cli.options import say_not_loaded
from leadhand.cli.reviewed import print_parts
from leadhand.cli.text import clean, count
from leadhand.core.calendar import iso, utc
from leadhand.errors import Conflict, NotAllowed, PlanInvalid, UsageError

if TYPE_CHECKING:
    from leadhand.cli.console import Console
    from leadhand.cli.run import Prepared
    from leadhand.core.plan.model import Doc
    from leadhand.core.review.approval import Approval
    from leadhand.settings import Settings


def review_plan(
    console: Console, settings: Settings, plan: str, action: str | None, options: Doc
) -> int:
    """Show a plan, or do with it what was asked."""
    if action == "amend":
        return _amend(console, settings, plan, options)
    if action in ("reject", "request_changes"):
        raise UsageError(f"{plan} is a plan: nobody waits for an answer to it. Fix: name a run")
    prepared = prepared_plan(console, plan, {**options, "approves": action == "approve"})
    doc = _document(prepared)
    if action == "approve":
        return _approve(console, prepared, doc, plan, options)
    if console.json:
        console.document(doc)
        return 0
    _print(console, doc, plan)
    if prepared.settings.not_loaded:
        say_not_loaded(console, prepared.settings)
        return 0
    words = f"review {plan} approve --hash {doc['binding'][:12]} -o approval.json{given(options)}"
    console.say(f"Allow exactly this: {console.command(words)}")
    return 0


def given(options: Doc) -> str:
    """The options that belong to what was shown, for a command that means the same."""
    pairs = [("--set", each) for each in options["sets"]]
    pairs += [("--workers", each) for each in options["workers"]]
    pairs += [(f"--{name}", str(options[name])) for name in ("context", "budget") if options[name]]
    return "".join(f" {name} {shlex.quote(value)}" for name, value in pairs)


def prepared_plan(console: Console, plan: str, options: Doc) -> Prepared:
    """A plan as `leadhand apply` would run it, checked."""
    from leadhand.cli.run import prepare_plan

    rest = {"concurrency": None, "review": False, "no_input": False}
    return prepare_plan(console, plan, {**options, **rest}, running=False)


def _context(prepared: Prepared) -> str:
    return str((prepared.origin or {}).get("context", ""))


def _document(prepared: Prepared) -> Doc:
    from leadhand.core.review.approval import plan_binding
    from leadhand.core.review.limits import limits_of
    from leadhand.core.review.view import plan_doc
    from leadhand.core.state.model import Now

    assert prepared.doc is not None
    wall = time.time_ns() // 1000
    settings, values = prepared.settings, prepared.values or {}
    catalog = known_catalog(settings, prepared.registry)
    doc = plan_doc(prepared.doc, values, catalog, Now(wall, wall))
    doc["instants"] = {step: iso(at) for step, at in doc["instants"].items()}
    doc["context"] = _context(prepared)
    doc["limits"] = limits_of(settings.policy)
    doc["not_loaded"] = [str(each) for each in settings.not_loaded]
    if settings.not_loaded:  # an approval is of the workers too
        return {**doc, "binding": None, "policy_risk": None}
    doc["binding"] = plan_binding(prepared.doc, values, catalog, 0, doc["context"], doc["limits"])
    return doc


def _print(console: Console, doc: Doc, plan: str) -> None:
    console.out(f"{plan}: {count(len(doc['steps']), 'step')}")
    if doc["context"]:
        console.out(f"context    {doc['context']}")
    print_parts(console, doc)
    console.out(f"digest     {doc['binding'] or 'none, since workers are not loaded'}")


def _approve(console: Console, prepared: Prepared, doc: Doc, plan: str, options: Doc) -> int:
    from leadhand.core.review.approval import refuse_short

    wanted = (options["hash"] or "").lower()
    refuse_short(wanted)
    if not doc["binding"].startswith(wanted):
        raise Conflict(
            f"{plan} is not what was shown: its hash does not begin with {wanted[:64]}. "
            f"Fix: look at it again with `leadhand review {plan}`"
        )
    shown = bool(wanted)
    if not wanted and console.can_prompt and not options["yes"]:
        _print(console, doc, plan)
        if not click.confirm("Allow exactly this?", err=True):
            console.say("nothing was approved")
            return 5
        shown = True
    for line in [] if shown else doc["widens"]:
        console.say(f"{clean(line)}; not shown, so it does not count. Fix: approve with --hash")
    approval = _made(prepared, options, widens=shown and bool(doc["widens"]))
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
    words = f"apply {plan} --approval {shlex.quote(options['output'])}{given(options)}"
    console.next(console.command(words))
    return 0


def _made(prepared: Prepared, options: Doc, *, widens: bool) -> Approval:
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
    """An approval from its file; UsageError when it is none."""
    from leadhand.codec.documents import Form, read_document
    from leadhand.core.review.approval import Approval

    fix = "`leadhand review PLAN approve -o FILE` writes one."
    doc = read_document(Path(path), form=Form("an approval is an object", fix))
    try:
        return Approval.from_doc(doc).to_doc()
    except UsageError as error:
        raise UsageError(f"{path}: {error}. Fix: {fix}") from None


def _amend(console: Console, settings: Settings, plan: str, options: Doc) -> int:
    from leadhand.app.loading import registry_of
    from leadhand.cli.diff import print_changes
    from leadhand.cli.plans import find_plan
    from leadhand.codec.documents import write_yaml
    from leadhand.codec.edits import amended
    from leadhand.core.plan.diff import differences

    before = find_plan(console, settings, plan).doc
    catalog = registry_of(settings).catalog()
    after = amended(before, options["sets"], options["unset"], catalog=catalog)
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
    """PlanInvalid when an edit puts errors into a plan; those it had are for `lint` to tell."""
    from leadhand.core.lint.plan import lint

    known = {str(each) for each in lint(before, None, advice=False)}
    found = [each for each in lint(after, None, advice=False) if each.level == "error"]
    errors = [each for each in found if str(each) not in known]
    if errors:
        wrong = PlanInvalid(errors)
        wrong.done = "nothing was changed"
        raise wrong


def print_warnings(console: Console, before: Doc, after: Doc) -> None:
    """What lint warns of since a plan was edited."""
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
