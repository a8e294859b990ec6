"""The secrets of a run: read at their source, given to workers, kept out of everything else.

The core knows a secret by its name (`core/plan/references.py`). Its value is read once, when a run
is started or resumed, from the environment or a keyring; workers get it with their parameters.
Everything that enters a run's log passes `clean` first; reports pass `report` before they are
verified, so that the verified report is the stored one. Variables that workers declare as secret
(headers, `secrets`) are kept out too, and so are all others that a worker is given (`env`,
`set_env`), unless the value is a plain word or the plan itself contains it
(`audit/redaction.is_kept_out`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.audit.redaction import GIVEN_MIN, LENGTH_MIN, SECRET_NAME, Redactor, is_kept_out
from leadhand.codec.events import encode
from leadhand.codec.values import plain
from leadhand.core import events as ev
from leadhand.core.decide.effects import Move, Notify
from leadhand.core.plan.parameters import with_secrets
from leadhand.core.plan.references import Ref, Secret, Unresolved
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from leadhand.core.plan.model import Doc
    from leadhand.core.report import Report
    from leadhand.ports import Workers

_FIXED = frozenset(
    {"type", "step", "id", "run", "worker", "hash", "base", "spec", "exec", "actor", "author"}
    | {"add", "cancel", "outlook", "strategy", "failure_class", "status", "outcome", "kind"}
    | {"choice", "choices", "default", "data_ref", "output_ref", "result_ref", "boot_id", "limit"}
    | {"steps", "specs", "binding", "key", "signature", "question", "envelope", "instants"}
)
"""Fields the engine depends on. A plan with a secret is refused as a whole: its hash covers it."""


class Secrets:
    """The secrets of one run."""

    def __init__(self, values: Mapping[str, str], redactor: Redactor) -> None:
        self._values = values
        self._redactor = redactor
        self.text = redactor.text
        self.value = redactor.value
        self.unfinished = redactor.unfinished
        self.finds = redactor.finds

    def reveal(self, secret: Secret) -> str:
        """Return the value of a secret, for a worker. Raise if it is unknown."""
        if secret.name not in self._values:
            raise _missing(
                secret, f"{secret.source} is not there, in the process that hosts the run"
            )
        return self._values[secret.name]

    def refuse(self, events: Iterable[ev.Event], proposal: Doc | None = None) -> None:
        """Raise `UsageError` if a plan contains a secret: it must be neither stored nor changed."""
        plans = [each for each in events if isinstance(each, (ev.RunStarted, ev.RevisionProposed))]
        for data in (*map(encode, plans), msgspec.json.encode(proposal)):
            if mark := self._redactor.finds(data):
                raise UsageError(
                    f"the plan, or what was given for it, holds the value of {mark}, and "
                    "would be stored with it. Fix: write ${{ params.NAME }} instead."
                )

    def clean(self, move: Move) -> Move:
        """Return a move with the secrets removed."""
        events = [self._event(event) for event in move.events]
        effects = [
            Notify(effect.kind, self.text(effect.text)) if type(effect) is Notify else effect
            for effect in move.effects
        ]
        return Move(events, effects)

    def report(self, report: Report) -> Report:
        """Return a worker's report with the secrets removed."""
        clean: Callable[[Any], Any] = self.value
        error = report.error
        if error is not None:
            details, change = _plain(error.details), _plain(error.change)
            message = clean(error.message)
            error = replace(error, message=message, details=clean(details), change=clean(change))
        return replace(
            report,
            data=clean(_plain(report.data)),
            error=error,
            recommendations=tuple(clean(str(each)) for each in report.recommendations),
            artifacts=tuple(clean(str(each)) for each in report.artifacts),
            output=clean(report.output),
        )

    def _event(self, event: ev.Event) -> ev.Event:
        if not self._redactor.finds(encode(event)):
            return event
        doc: Doc = msgspec.to_builtins(event)
        for key, value in doc.items():
            if key not in _FIXED:
                doc[key] = self.value(value)
        return msgspec.convert(doc, type(event))


def _plain(value: Any) -> Any:
    try:
        return plain(value)
    except ValueError:
        return value  # the verdict reports it


def secrets_of(started: ev.RunStarted | None, workers: Workers) -> Secrets | None:
    """Return the secrets of a run; None if it has none, which then costs nothing."""
    if started is None:
        return None
    values: dict[str, str] = {}
    params = with_secrets(started.plan, started.params)
    for name, secret in params.items():
        if type(secret) is Secret and (value := read_source(secret.source)) is not None:
            values[name] = value
    hidden = dict(values)
    told = msgspec.json.encode([started.plan, started.params]).decode()
    for spec in started.catalog:
        worker = workers.get(spec.name)
        for variable in getattr(worker, "secret_names", ()):
            value = os.environ.get(variable, "")
            if len(value) >= GIVEN_MIN:
                hidden.setdefault(variable, value)
        for variable, value in getattr(worker, "given_values", {}).items():
            # A value the plan states openly is no secret, and a plan that holds one is refused.
            open_word = not SECRET_NAME.search(variable) and value in told
            if is_kept_out(variable, value) and not open_word:
                hidden.setdefault(variable, value)
    redactor = Redactor(hidden)
    known = any(type(value) is Secret for value in params.values())
    return Secrets(values, redactor) if redactor or known else None


def read_source(source: str) -> str | None:
    """Return the value of a secret from its source; None if there is none."""
    kind, _, name = source.partition(":")
    if kind == "env":
        return os.environ.get(name)
    try:
        import keyring  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise UsageError(
            f"{source}: reading a keyring needs the package `keyring`. Fix: pip install keyring"
        ) from None
    service, _, user = name.partition("/")
    found = keyring.get_password(service, user)
    return None if found is None else str(found)


def check_secrets(plan: Doc, values: Doc) -> None:
    """Raise `UsageError` before a start if a secret is missing or cannot be kept out of the log."""
    for name, secret in with_secrets(plan, values).items():
        if type(secret) is not Secret:
            continue
        value = read_source(secret.source)
        if value is None:
            raise UsageError(
                f'parameter "{name}" is a secret, and {secret.source} is not there. '
                f"Fix: set it before the run, or name another place: --set {name}=env:NAME"
            )
        if len(value.strip()) < LENGTH_MIN:
            raise UsageError(
                f'parameter "{name}" is a secret of fewer than {LENGTH_MIN} characters, which '
                "cannot be kept out of a log"
            )


def reveal_of(secrets: Secrets | None) -> Callable[[Secret], str]:
    """Return the function that reveals the secrets of a run."""
    if secrets is not None:
        return secrets.reveal

    def unknown(secret: Secret) -> str:
        raise _missing(secret, "this run has no secrets")

    return unknown


def _missing(secret: Secret, why: str) -> Unresolved:
    text = f"${{{{ params.{secret.name} }}}}"
    ref = Ref("", "params", secret.name, (), text, whole=True)
    return Unresolved("", ref, f"{text} has no value: {why}")
