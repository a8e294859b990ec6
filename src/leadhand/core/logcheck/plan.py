"""Rules about the planner, its revisions, and questions to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.core.catalog import Catalog, able_workers
from leadhand.core.hashing import canonical, digest
from leadhand.core.logcheck import permissions as permits
from leadhand.core.logcheck.book import Book, Pending, StepRecord, as_tuple, task_key
from leadhand.core.logcheck.people import pass_hold
from leadhand.core.plan import graph
from leadhand.core.plan.model import RISKS, worst
from leadhand.core.review.approval import bind, versions
from leadhand.core.review.ruling import PlanReach, outside_envelope, reach, widened_envelope

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.catalog import Offer
    from leadhand.core.events import ApprovalGiven, RevisionApproved, RevisionProposed
    from leadhand.core.logcheck.book import Book, Pending
    from leadhand.core.plan.model import Doc


# The claims of a step that count, as the log checker sees it: no more than its worker declares.
#
# The worker was described when the run started. A step counts for more than that only if a person
# wrote it, people allowed the revision, and each of them was shown the claim. Nothing here is
# shared with `core/promises.py`.


ADDED = ("needs", "drops", "reads", "writes")
"""Fields of a worker that a step can only add to."""


def written_by_person(book: Book, event: RevisionProposed) -> bool:
    """Return whether a person wrote a revision: an amendment, or the document of the start."""
    start = book.start
    if event.author and event.author not in (start.planner, "document", "goal"):
        return True
    by_planner = start.plan.get("planner")
    if by_planner not in (None, "", "goal") or event.number > 1 or "caller" in start.plan:
        return False
    given = start.planner == "document" or by_planner
    return bool(given) and digest(canonical(event.add)) == start.linted


def claims_beyond(book: Book, add: list[Doc]) -> dict[str, dict[str, list[str]]]:
    """Return the claims of steps beyond any worker that may do them: step, field, names."""
    found: dict[str, dict[str, list[str]]] = {}
    for doc in add:
        more: dict[str, set[str]] = {}
        for worker in _able(book, doc):
            offer = book.offer(worker, doc.get("action", ""))
            for field, names in _more(doc, offer) if offer is not None else ():
                more.setdefault(field, set()).update(names)
        if more:
            found[str(doc["id"])] = {field: sorted(names) for field, names in more.items()}
    return found


def _able(book: Book, doc: Doc) -> list[str]:
    """Return the workers that may do a step: those it names, and the stronger ones behind each."""
    found: list[str] = []
    for named in (doc["worker"], *doc.get("alternatives", ())):
        name: str = named
        while name and name not in found:
            found.append(name)
            spec = book.catalog.get(name)
            name = spec.stronger if spec else ""
    return found


def _more(doc: Doc, offer: Offer) -> list[tuple[str, set[str]]]:
    found: list[tuple[str, set[str]]] = []
    if doc.get("idempotent") is True and not offer.idempotent:
        found.append(("idempotent", set()))
    claimed = set(as_tuple(doc.get("gives"))) - set(offer.gives)
    if claimed:
        found.append(("gives", claimed))
    for field in ADDED:
        if doc.get(field) is None:
            continue
        left_out = set(getattr(offer, field)) - set(as_tuple(doc[field]))
        if field == "needs":
            left_out -= set(doc.get("parameters") or ())
        if field == "drops":
            left_out -= set(as_tuple(doc["gives"]) if "gives" in doc else offer.gives)
        if left_out:
            found.append((field, left_out))
    return found


def covered_claims(
    book: Book, pending: Pending, event: ApprovalGiven
) -> dict[str, dict[str, list[str]]]:
    """Return the claims that an approval covers; report L13 if it cannot cover them."""
    claimed = claims_beyond(book, pending.add) if pending.by_person else {}
    if event.widens and sorted(event.widens) != sorted(claimed):
        who = f"{event.actor} allowed claims of {', '.join(event.widens)}"
        book.wrong("L13", f"{who}, and revision {event.number} has others, or no person's")
    return claimed if event.widens else {}


def check_widened(book: Book, pending: Pending, event: RevisionApproved) -> None:
    """Report L13 if a step's claims count without all approvers having been shown them."""
    for ident in event.widens:
        if not pending.by_person:
            book.wrong("L13", f"{ident} counts for more than its worker, and no person wrote it")
        unseen = [actor for actor, each in pending.allowed.items() if ident not in each.widens]
        if unseen or not pending.allowed:
            who = ", ".join(unseen) or "nobody"
            book.wrong("L13", f"{ident} counts for more than its worker, allowed unseen by {who}")


# Rules about causes: the origin of an end, and the model calls.
#
# A small record of its own: the causes so far, and the last decision. It takes no part in folding a
# run, and shares nothing with the deciders.


ORIGINS = frozenset({"planning", "execution", "limits", "person"})
DIGEST_CHARS = 64
GAVE_UP = "a planner that gave up"
BY_PLANNER = frozenset({"replans", "planner calls"})
"""Limits on the planner: reached by planning, not by lack of time or budget."""
QUESTIONS = frozenset({"planner", "planning"})
"""Kinds of questions asked by planners."""


class Causes:
    """The causes that a log has named so far."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.last = ""
        """The last decision: that the planner gives up, or the step that aborts."""
        self.unready: set[str] = set()
        """Steps that could not start as planned."""
        self.begun: set[str] = set()
        self.unpaid: set[str] = set()
        """Steps whose last failure was an exhausted budget."""
        self.stop: ev.StopDecided | None = None

    def look(self, book: Book, event: ev.Event) -> None:
        """Check one event, before the other rules change the book."""
        if isinstance(event, ev.ModelCalled):  # may come at any time
            _check_digests(book, event)
            return
        last, self.last = self.last, ""
        match event:
            case ev.StopDecided():
                self._stopped(book, event, last)
            case ev.RunEnded():
                self._ended(book, event)
            case ev.RunReopened():
                self.stop = None
            case _:
                self._cause(event)

    def _cause(self, event: ev.Event) -> None:
        match event:
            case ev.PlannerAnswered() if event.decision.get("kind") == "give_up":
                self.last = GAVE_UP
                self.seen.add("planning")
            case ev.PlannerFailed() if not event.lost:
                self.seen.add("planning")
            case ev.ProposalRefused() | ev.DraftRefused() | ev.RevisionRejected():
                self.seen.add("planning")
            case ev.GoalChecked() if not event.met:
                self.seen.add("planning")
            case ev.QuestionAsked() if event.kind in QUESTIONS:
                self.seen.add("planning")
            case ev.AttemptStarted():
                self.begun.add(event.step)
                self.unready.discard(event.step)
                self.unpaid.discard(event.step)
            case ev.StepRefused():
                self.seen.add("execution")
                if event.failure_class == "permanent" and event.step not in self.begun:
                    self.unready.add(event.step)
                    self.seen.add("planning")
            case ev.AttemptReported() if not event.met:
                self.seen.add("execution")
                if (event.failure or {}).get("class") == "budget":
                    self.unpaid.add(event.step)
            case ev.AttemptLost() | ev.StepSkipped() | ev.ProbeReported():
                self.seen.add("execution")
            case ev.RecoveryDecided() if event.strategy == "abort":
                self.last = f"step {event.step}"
            case ev.QuestionAnswered():
                self.seen |= {"person", "execution"} if event.choice == "cannot" else {"person"}
            case ev.CancelRequested():
                self.seen.add("person")
            case _:
                pass  # causes no end

    def _stopped(self, book: Book, event: ev.StopDecided, last: str) -> None:
        self.stop = event
        if not last:
            return
        step = last.removeprefix("step ")
        right = "limits" if step in self.unpaid else "execution"
        right = "planning" if last == GAVE_UP or step in self.unready else right
        if event.limit and event.limit not in BY_PLANNER:
            right = "limits"  # The wall time ran out before the other cause was acted on.
        if event.origin != right:
            book.wrong("I50", f"{last} ended the run, and {event.origin or 'nothing'} is blamed")

    def _ended(self, book: Book, event: ev.RunEnded) -> None:
        origin = event.origin
        if event.status == "succeeded":
            if origin:
                book.wrong("I50", f"it succeeded, and {origin} is blamed for something")
            return
        if origin not in ORIGINS:
            book.wrong("I50", f"it ended as {event.status}, and nothing is named as the origin")
            return
        if self.stop is not None and self.stop.origin != origin and event.status != "cancelled":
            book.wrong("I50", f"it was stopped for {self.stop.origin} and ended for {origin}")
        if origin == "limits" and not event.limit and not self.unpaid:
            book.wrong("I50", "limits are blamed, and none was reached")
        waiting = any(not step.settled for step in book.steps.values())
        stuck = book.idle > book.policy.replans_idle_max
        planned = event.limit in BY_PLANNER or waiting or stuck
        if origin == "planning" and "planning" not in self.seen and not planned:
            book.wrong("I50", "planning is blamed, and no planner failed")
        if origin in ("execution", "person") and origin not in self.seen:
            what = "no step failed" if origin == "execution" else "no person said anything"
            book.wrong("I50", f"{origin} is blamed, and {what}")


def _check_digests(book: Book, event: ev.ModelCalled) -> None:
    """Report I51 unless a model call has digests of its request and its response."""
    missing = len(event.asked) != DIGEST_CHARS
    if missing or (not event.failure and len(event.answer) != DIGEST_CHARS):
        which = "what it was asked" if missing else "its answer"
        book.wrong("I51", f"{event.model} was asked, and no digest of {which} is kept")


DOCUMENT = "document"
"""The author of a plan given as a document that names no planner."""
NOBODY = "nobody"
"""The actor of an answer by default."""
PROTECTED = "protected_change"
"""The kind of a question about a protected change."""


# The planner.


def _planner_asked(book: Book, event: ev.PlannerAsked) -> None:
    book.next_epoch(event.epoch, f"planner call {event.call}")
    if book.planner is not None:
        book.wrong("I11", f"planner call {event.call} while another is in flight")
    if event.call != book.calls + 1:
        book.wrong("I11", f"planner call {event.call} follows call {book.calls}")
    if event.deadline < book.at:
        book.wrong("L3", f"planner call {event.call} has no time: its deadline is before it")
    if event.call > book.policy.planner_calls_max:
        book.wrong("I31", f"planner call {event.call} of at most {book.policy.planner_calls_max}")
    if book.paused or book.stopping:
        book.wrong("I18", f"planner call {event.call} while {book.stopping or 'paused'}")
    if any(question.kind == "planning" for question in book.questions.values()):
        book.wrong("L15", f"planner call {event.call}, and a person is asked what it should do")
    if book.waits and not book.changed:
        book.wrong("I52", f"planner call {event.call}, and nothing has changed since it waits")
    book.waits = book.changed = False
    book.calls = max(book.calls, event.call)
    book.planner = (event.epoch, event.deadline, book.owner)
    book.goal_met = None


def _planner_answered(book: Book, event: ev.PlannerAnswered) -> None:
    _planner_ended(book, event.epoch, lost=False)
    book.spent += event.cost
    book.answer = "" if "revision" in event.decision else str(event.decision.get("kind"))
    book.said_last = event.decision


def _planner_failed(book: Book, event: ev.PlannerFailed) -> None:
    _planner_ended(book, event.epoch, lost=event.lost)


def _planner_ended(book: Book, epoch: int, *, lost: bool) -> None:
    if book.planner is None or book.planner[0] != epoch:
        book.wrong("I12", f"an answer of planner epoch {epoch}, which is not in flight")
        return
    moved = book.planner[2] != book.owner
    if lost and not moved:
        book.wrong("I12", f"planner epoch {epoch} was lost though its host is still there")
    if moved and not lost:
        book.wrong("I12", f"planner epoch {epoch} answered after its host was gone")
    book.planner = None


def _proposal_refused(book: Book, event: ev.ProposalRefused) -> None:
    if not event.findings:
        book.wrong("form", "a proposal was refused without a finding")
    book.answer = ""


def _planner_waits(book: Book, event: ev.PlannerWaits) -> None:
    if book.answer not in ("wait", "propose", "give_up"):
        book.wrong("I6", f"the planner waits after call {event.call}, and it did not say so")
    book.answer = ""
    book.waits = True
    if not (book.changed or book.questions or any(not s.settled for s in book.steps.values())):
        book.wrong("I52", f"the planner waits after call {event.call}, and nothing is open")


def _finish_accepted(book: Book, event: ev.FinishAccepted) -> None:
    if book.answer != "finish":
        book.wrong("I6", f"a finish was accepted after call {event.call}, and none was given")
    book.answer = ""
    if event.drop != (book.said_last.get("drop") or {}):
        book.wrong("L14", "a finish gives up other steps, or for other reasons, than was said")
    _give_up(book, event.drop)
    left = [step.id for step in book.steps.values() if not step.settled or step.blocking]
    if left:
        book.wrong("L14", f"a finish was accepted, and {', '.join(left[:5])} is not settled")
    asked = [name for name, question in book.questions.items() if question.kind != "hold"]
    if asked:
        book.wrong("L14", f"a finish was accepted, and {', '.join(asked)} is open")
    book.finish = True


def _give_up(book: Book, drop: dict[str, str]) -> None:
    """Drop steps, with the steps that wait for them and mind."""
    stack = []
    for ident, reason in drop.items():
        step = book.step(ident, "giving up")
        if step is None:
            continue
        if not reason.strip():
            book.wrong("L14", f"{ident} was given up without a reason")
        if ident in book.live or step.status in ("succeeded", "superseded", "open"):
            book.wrong("L14", f"{ident} was given up though it is {step.status}")
            continue
        if step.blocking:
            step.tolerated = True
        elif not step.settled:
            step.status = "cancelled"
            drop_questions(book, ident)
        book.awaiting_planner = [each for each in book.awaiting_planner if each is not step]
        stack.append(step)
    while stack:
        names = _names_of(book, stack.pop().id)
        for ident, tolerant in [pair for name in names for pair in book.named.get(name, ())]:
            step = book.steps[ident]
            if step.status == "planned" and not tolerant:
                step.status = "cancelled"
                drop_questions(book, ident)
                stack.append(step)


def _draft_refused(book: Book, event: ev.DraftRefused) -> None:
    if not event.findings:
        book.wrong("form", "a draft was refused without a finding")
    if not 0 < event.call <= book.calls:
        book.wrong("I6", f"a draft of planner call {event.call}, which was not made")


# Revisions.


def _revision_proposed(book: Book, event: ev.RevisionProposed) -> None:
    what = f"revision {event.number}"
    following = event.number in (book.revision + 1, book.proposed + 1)
    if not following or book.pending is not None:
        book.wrong("I6", f"{what} follows revision {book.revision}, or another one waits")
    book.proposed = event.number
    if event.base != book.head:
        book.wrong("I24", f"{what} stands on {event.base[:12]}, not on {book.head[:12]}")
    said = [event.add, event.cancel, event.final, *([event.drop] if event.drop else [])]
    if event.hash != digest(event.base, canonical(said)):
        book.wrong("I24", f"{what} is not what its hash {event.hash[:12]} says")
    risk = worst(*(_risk(book, doc) for doc in event.add))
    if RISKS.index(risk) > RISKS.index(worst(event.risk)):
        book.wrong("I24", f"{what} calls its risk {event.risk}, and it is {risk}")
    high = RISKS.index(risk) > RISKS.index(worst(book.policy.auto_risk))
    lenient = any(rule.then == "allow" for rule in book.policy.rules)
    person = bool(event.add) and (high or book.policy.review) and not lenient
    by_hand = written_by_person(book, event)
    # An envelope is for planners: an amendment by a person to an approved plan needs new approval.
    person = person and ((by_hand and event.number > 1) or _beyond(book, event.add))
    person = person or _is_strange(book, event)
    if event.author == DOCUMENT and event.number > 1:
        book.wrong("I24", f"{what} is by a document, which names no planner and is never revised")
    if event.author in (book.start.planner, "goal"):
        _check_unseen(book, event)
    _check_answers(book, event)
    book.pending = Pending(
        event.number,
        event.hash,
        event.add,
        event.cancel,
        event.final,
        person,
        [],
        {},
        by_hand,
        event.drop,
    )
    book.answer = ""


def _check_answers(book: Book, event: ev.RevisionProposed) -> None:
    for each in event.answers:
        if book.comments.get(each.comment, True):
            what = f"revision {event.number} answers comment {each.comment}"
            book.wrong("I55", f"{what}, which is not open")
        book.comments[each.comment] = True
    book.comments = dict.fromkeys(book.comments, True)


def _check_unseen(book: Book, event: ev.RevisionProposed) -> None:
    """Report I17 if a planner repeats a possible effect before a person has looked."""
    unseen = {task_key(step.doc): step.id for step in book.unseen_steps()}
    for doc in event.add if unseen else ():
        old = unseen.get(task_key(doc))
        if old is not None and not book.idempotent(StepRecord(doc), doc["worker"]):
            book.wrong("I17", f"{doc['id']} repeats what {old} may have done, without an approval")


def _is_strange(book: Book, event: ev.RevisionProposed) -> bool:
    """Return whether the planner of a document exceeds what a person allowed of it."""
    by_planner = event.author == book.start.planner and bool(book.start.plan.get("planner"))
    return by_planner and bool(event.add) and book.envelope is not None and _beyond(book, event.add)


def _beyond(book: Book, add: list[Doc]) -> bool:
    """Return whether the steps exceed the envelope, or there is none."""
    if book.envelope is None:
        return True
    return bool(outside_envelope(book.envelope, _reached(book, add), book.spent))


def _reached(book: Book, add: list[Doc]) -> PlanReach:
    start, catalog = book.start, Catalog(book.catalog.values())
    return reach(add, catalog, start.plan.get("risk_level"))


def _risk(book: Book, doc: Doc) -> str:
    """Return the highest risk declared by plan, step and every worker that may do it."""
    found = [book.start.plan.get("risk_level"), doc.get("risk_level")]
    for name in able_workers(doc, book.catalog):
        offer, spec = book.offer(name, doc.get("action", "")), book.catalog.get(name)
        declared = offer.risk if offer else None
        found.append(declared or (spec.default_risk() if spec else None))
    return worst(*found)


def _waits(book: Book, number: int, hash_: str, what: str) -> Pending | None:
    pending = book.pending
    if pending is None or (pending.number, pending.hash) != (number, hash_):
        book.wrong("I24", f"{what} of revision {number} {hash_[:12]}, which does not wait")
        return None
    return pending


def _review_requested(book: Book, event: ev.ReviewRequested) -> None:
    pending = _waits(book, event.number, event.hash, "a review")
    if pending is not None:
        pending.people[:] = [event.people]
        pending.allowed.clear()


def _approval_given(book: Book, event: ev.ApprovalGiven) -> None:
    pending = _waits(book, event.number, event.hash, "an approval")
    if pending is None:
        return
    permits.check_giver(book, event, f"revision {event.number}", "allowed")
    permits.check_agent(book, event, pending)
    if permits.fold_name(event.actor) in map(permits.fold_name, pending.allowed):
        book.wrong("I26", f"revision {event.number} was allowed by {event.actor} twice")
    workers = versions(pending.add, Catalog(book.catalog.values()))
    claimed = covered_claims(book, pending, event)
    if event.binding != bind(book.start, event.hash, workers, event.expires, claimed):
        book.wrong("I24", f"{event.actor} allowed something else than revision {event.number}")
    shown = bind(book.start, event.hash, workers, 0, claimed)
    if event.digest and not event.approval and event.digest != shown:
        book.wrong("I24", f"{event.actor} was shown something else than revision {event.number}")
    if event.approval and workers != versions(pending.add, Catalog(book.start.catalog)):
        book.wrong("I24", f"{event.actor} allowed other workers than do revision {event.number}")
    pending.allowed[event.actor] = event


def _changes_requested(book: Book, event: ev.ChangesRequested) -> None:
    if book.start.deaf or not book.start.replans:
        book.wrong("I26", f"revision {event.number} was sent back to a planner that reads no words")
    pending = _waits(book, event.number, event.hash, "a wish for changes")
    known = {str(doc.get("id")) for doc in pending.add} if pending is not None else set()
    for each in event.comments:
        if each.id in book.comments:
            book.wrong("I55", f"two comments have the id {each.id}")
        if each.step and each.step not in known and each.step not in book.steps:
            book.wrong("I55", f"comment {each.id} is about step {each.step}, which is not there")
        book.comments[each.id] = False
    if pending is not None:
        book.pending = None


def _revision_examined(book: Book, event: ev.RevisionExamined) -> None:
    _waits(book, event.number, event.hash, "a look at it")


def _revision_rejected(book: Book, event: ev.RevisionRejected) -> None:
    if _waits(book, event.number, event.hash, "a rejection") is not None:
        book.pending = None


def _revision_approved(book: Book, event: ev.RevisionApproved) -> None:
    pending = _waits(book, event.number, event.hash, "an approval")
    if pending is None:
        return
    if pending.person and event.actor in ("", "policy"):
        book.wrong(
            "I24",
            f"revision {event.number} requires the approval of a person, and the policy "
            "approved it",
        )
    needed = pending.people[0] if pending.people else 0
    if event.actor != "policy":
        needed = max(needed, 1)
    if len(pending.allowed) < needed:
        who = f"{len(pending.allowed)} of {needed} people"
        book.wrong("I24", f"revision {event.number} goes on, allowed by {who}")
    _check_permit(book, pending, event)
    check_widened(book, pending, event)
    if event.envelope:
        book.envelope = event.envelope
    book.pending = None
    book.revision, book.head, book.final = pending.number, pending.hash, pending.final
    _count_idle(book, pending)
    for ident in pending.cancel:
        _cancel(book, ident)
    if pending.add:
        book.finish, book.goal_asked = False, False
    _accept(book, pending, event.widens)
    permits.allow(book, pending, event)
    _give_up(book, pending.drop)
    if len(book.steps) > book.policy.steps_max:
        book.wrong("I31", f"{len(book.steps)} steps of at most {book.policy.steps_max}")
    if pending.add or pending.final:
        book.unanswered = []
    for name in [name for name, asked in book.questions.items() if asked.kind == "planning"]:
        del book.questions[name]


def _count_idle(book: Book, pending: Pending) -> None:
    """Count revisions in a row that only repeat earlier work, which are limited."""
    if not (pending.add or pending.cancel):
        return
    if any(task_key(doc) not in book.done_before for doc in pending.add):
        book.idle = 0
        return
    waits = any(step.status == "again" for step in book.steps.values())
    if book.live or waits or book.questions:
        return
    book.idle += 1
    if book.idle > book.policy.replans_idle_max + 1:
        book.wrong("I22", f"{book.idle} revisions in a row tried nothing new")


def _check_permit(book: Book, pending: Pending, event: ev.RevisionApproved) -> None:
    """Report an approval that exceeds what people allowed: in its author, expiry or envelope."""
    if event.actor == "policy":
        ends = (book.envelope or {}).get("expires", 0)
        if event.envelope or event.expires not in (0, ends):
            book.wrong("I24", f"the policy drew an envelope around revision {event.number}")
        return
    if not pending.allowed:
        return  # without any approval, which is a violation of its own
    if event.actor != ", ".join(pending.allowed):
        book.wrong("I24", f"revision {event.number} goes on by the word of {event.actor}")
    if event.expires != min((e.expires for e in pending.allowed.values() if e.expires), default=0):
        book.wrong("I24", f"revision {event.number} may run for another time than was allowed")
    reached, asked = _reached(book, pending.add), book.start.plan.get("envelope")
    before = [book.envelope, {}] if "expires" in (book.envelope or {}) else [book.envelope]
    if event.envelope not in [
        widened_envelope(each, reached, asked, event.expires) for each in before
    ]:
        book.wrong("I24", f"the envelope around revision {event.number} is not what was allowed")


def _cancel(book: Book, ident: str) -> None:
    step = book.step(ident, "a cancellation")
    if step is None:
        return
    if step.settled or ident in book.live:
        book.wrong("I15", f"step {ident} was taken out though it is {step.status}")
        return
    step.status = "cancelled"
    drop_questions(book, ident)


def _accept(book: Book, pending: Pending, widens: list[str]) -> None:
    depth = max((step.depth for step in book.unanswered), default=0)
    for doc in pending.add:
        ident = doc["id"]
        if ident in book.steps:
            book.wrong("I15", f"step {ident} is in the plan twice")
            continue
        book.steps[ident] = StepRecord(doc)
        book.steps[ident].depth = depth
        book.steps[ident].widened = ident in widens
        for name in (doc["worker"], *doc.get("alternatives", ())):
            if book.offer(name, doc.get("action", "")) is None:
                what = f"{doc.get('action') or 'this'}, which {name} does not offer"
                book.wrong("I15", f"step {ident} wants {what}")
    for doc in pending.add:
        _replace(book, doc, allowed=bool(pending.allowed))
    for doc in pending.add:
        for name, tolerant in graph.dependencies(doc).items():
            if name not in book.steps:
                book.wrong("I15", f"step {doc['id']} depends on {name}, which is not in the plan")
            book.named.setdefault(name, []).append((doc["id"], tolerant))
    if pending.add:
        _check_acyclic(book, pending)


def _replace(book: Book, doc: Doc, *, allowed: bool) -> None:
    old = doc.get("supersedes")
    if old is None:
        return
    step = book.step(old, "a replacement")
    if step is None:
        return
    if step.status in ("succeeded", "superseded") or old in book.live:
        book.wrong("I15", f"step {old} was replaced though it is {step.status}")
    if step.settled:
        book.ended_before.add(old)
    step.status = "superseded"
    pass_hold(book, old, doc["id"], allowed=allowed)
    drop_questions(book, old)
    book.heir[old] = doc["id"]
    book.replaced[doc["id"]] = old


def _check_acyclic(book: Book, pending: Pending) -> None:
    """Report cycles. Only new steps can close one; the run's own are followed until settled."""
    found: dict[str, list[str]] = {}
    stack = [doc["id"] for doc in pending.add]
    while stack:
        ident = stack.pop()
        step = book.follow(ident)
        if step is None or step.id in found or step.settled:
            continue
        names = graph.dependencies(step.doc)
        targets = [target for name in names if (target := book.follow(name)) is not None]
        found[step.id] = [target.id for target in targets if not target.settled]
        stack += found[step.id]
    if len(graph.order(found)) != len(found):
        book.wrong("I15", f"revision {pending.number} makes steps wait for each other")


def _names_of(book: Book, ident: str) -> list[str]:
    """Return a step's own name, and the names of the steps it superseded."""
    names = [ident]
    while names[-1] in book.replaced and len(names) <= len(book.replaced):
        names.append(book.replaced[names[-1]])
    return names


# Questions.


def drop_questions(book: Book, ident: str) -> None:
    """Close the questions and holds of a settled step."""
    book.barred.pop(ident, None)
    for name in [name for name, asked in book.questions.items() if asked.step == ident]:
        del book.questions[name]


def _question_asked(book: Book, event: ev.QuestionAsked) -> None:
    if event.id in book.asked:
        book.wrong("I6", f"question {event.id} was asked twice")
    book.asked.add(event.id)
    book.questions[event.id] = event
    if event.until and event.choices and event.default not in event.choices:
        book.wrong("I6", f"question {event.id} has {event.default!r} as its default, no choice")
    if event.kind == "planning":
        book.answer = ""
    if not event.step:
        return
    step = book.step(event.step, f"question {event.id}")
    if step is None:
        return
    if event.kind == "task":
        if not book.is_for_people(step.worker) or step.status not in ("planned", "again"):
            book.wrong("I21", f"a person was asked to do {event.step}, which is not theirs now")
    elif step.status != "asking":
        book.wrong("I21", f"a person was asked about {event.step} without a decision to ask")
    if (event.kind == PROTECTED) != bool(step.failure.get("change")) and event.kind != "task":
        book.wrong("I53", f"question {event.id} about a protected change of {event.step}, or not")
    step.status = "asked"


def _change_approved(book: Book, event: ev.ChangeApproved) -> None:
    """Check one approval of a change: an open question, the same commit, once per person."""
    question = book.questions.get(event.question)
    step = book.steps.get(event.step)
    if question is None or step is None or question.kind != PROTECTED or question.step != step.id:
        book.wrong("I53", f"a change of {event.step} was approved without a question about it")
        return
    change = step.failure.get("change") or {}
    if (event.commit, event.digest) != (change.get("commit"), change.get("digest")):
        book.wrong("I53", f"{event.actor} approved another change of {event.step} than was shown")
    permits.check_giver(book, event, f"the change of {event.step}", "approved")
    given, name = book.allowed.setdefault(event.question, set()), permits.fold_name(event.actor)
    if name in given:
        book.wrong("I53", f"{event.actor} approved the change of {event.step} twice")
    given.add(name)


def _question_answered(book: Book, event: ev.QuestionAnswered) -> None:
    question = book.questions.pop(event.id, None)
    if question is None:
        book.wrong("I6", f"an answer to question {event.id}, which is not open")
        return
    kind, ident = question.kind, question.step
    if question.choices and event.choice not in question.choices:
        book.wrong("I6", f"{event.choice!r} is not one of the choices of question {event.id}")
    if event.actor == NOBODY:
        _check_default(book, question, event)
    if not event.actor:
        book.wrong("I6", f"question {event.id} was answered without an actor")
    if event.choice == "give":
        book.add_facts(question.facts, event)
    if kind == "planning" and event.choice in ("abort", "rollback") and not book.stopping:
        book.expect, book.back_wanted = ("StopDecided", ""), event.choice == "rollback"
    if event.choice == "hand_over" and book.start.planner == DOCUMENT:
        book.wrong("I24", "a document that names no planner was handed over to one")
    if kind == "planning":
        book.idle = 0
    step = book.steps.get(ident)
    if step is None:
        return
    if kind == PROTECTED:
        _change_answered(book, question, event, step)
        return
    match event.choice:
        case "done" if kind == "task":
            step.status, step.done_by = "again", event.actor
        case "cannot" if kind == "task":
            step.status, step.failure = "open", {"class": "permanent", "effect": "none"}
        case "replan":
            if not book.start.replans:
                book.wrong("I21", f"{ident} was left to a planner that cannot do that")
            step.status = "failed"
            step.unseen = step.happened = False  # A person has looked.
            book.break_promise(step)
            book.barred.pop(ident, None)  # A step that has ended is no longer held.
            book.left_to_planner(step)
        case "retry":
            step.status, step.tries, step.until, step.restarts = "again", {}, 0, 0
            step.unseen = step.happened = False
        case "done":
            book.succeed(step, event.data)
        case "skip":
            step.unseen = step.happened = False
            book.said[ident] = "skip"
            book.expect = ("StepSkipped", ident)
        case "abort" | "rollback" if not book.stopping:
            book.expect, book.back_wanted = ("StopDecided", ""), event.choice == "rollback"


def _change_answered(
    book: Book, question: ev.QuestionAsked, event: ev.QuestionAnswered, step: StepRecord
) -> None:
    given = book.allowed.pop(question.id, set())
    if event.choice == "approve" and len(given) < max(1, question.people):
        book.wrong(
            "I53", f"{len(given)} of {question.people} people approved the change of {step.id}"
        )
    if event.choice == "send_back" and not event.text.strip():
        book.wrong("I53", f"the change of {step.id} was sent back without a word")
    if event.choice == "drop":
        book.said[step.id] = "skip"
        book.expect = ("StepSkipped", step.id)
        return
    step.status, step.tries, step.until, step.restarts = "again", {}, 0, 0


def _check_default(book: Book, question: ev.QuestionAsked, event: ev.QuestionAnswered) -> None:
    """Check an answer by default: the declared default, and only when the time is up."""
    if not question.until or book.at < question.until:
        early = (question.until - book.at) / 1e6
        book.wrong("I40", f"question {event.id} was answered by default {early:.6f} s too early")
    if event.choice != question.default:
        book.wrong(
            "I6",
            f"question {event.id} was answered with {event.choice!r} by default, which is not "
            "its default",
        )


PLAN_CHECKS: dict[type[ev.Event], Callable[[Book, Any], None]] = {
    ev.PlannerAsked: _planner_asked,
    ev.PlannerAnswered: _planner_answered,
    ev.PlannerFailed: _planner_failed,
    ev.ProposalRefused: _proposal_refused,
    ev.DraftRefused: _draft_refused,
    ev.PlannerWaits: _planner_waits,
    ev.FinishAccepted: _finish_accepted,
    ev.RevisionProposed: _revision_proposed,
    ev.ReviewRequested: _review_requested,
    ev.RevisionExamined: _revision_examined,
    ev.ApprovalGiven: _approval_given,
    ev.ChangesRequested: _changes_requested,
    ev.RevisionRejected: _revision_rejected,
    ev.RevisionApproved: _revision_approved,
    ev.QuestionAsked: _question_asked,
    ev.ChangeApproved: _change_approved,
    ev.QuestionAnswered: _question_answered,
}
