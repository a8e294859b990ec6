"""Authorization: one rule for each route and method, and nothing else.

`people` is the least role that may pass; PUBLIC is for everyone, and is matched by the exact path
(assets: by their folder), never by a suffix. A route without a rule is not served.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from leadhand.server.settings import ROLES

PUBLIC = "public"
VIEWER, OPERATOR, APPROVER = ROLES
OWNER = "owner"
"""The holder of the owner's token, the only one who may change who else has access. It is no role:
an approver who could create approvers would be the second of two people, too."""
API = "/api/v1"


class RouteRule(NamedTuple):
    """The requirements of one method of one route."""

    method: str
    path: str
    people: str
    stream: bool = False
    """Stays open, and is counted separately."""
    starts: bool = False
    """Starts new work, so there must be room for it."""
    signs_in: bool = False
    links: bool = False
    """The page of a signed link: opened from anywhere, answered by its own form only."""
    form: bool = False
    """Takes a body of form fields, not JSON."""

    @property
    def decides(self) -> bool:
        """Whether it answers or allows something, or changes who may: for people only."""
        if self.method == "GET" or self.signs_in:
            return False
        return self.people in (APPROVER, OWNER, PUBLIC) or self.path.endswith("/answer")

    @property
    def changes(self) -> bool:
        """Whether it changes anything but who is signed in."""
        return self.method != "GET" and not self.path.endswith(("/session", "/export", "/verify"))

    @property
    def has_body(self) -> bool:
        """Whether it takes a body: JSON, or form fields."""
        return self.method in ("POST", "PUT")


def _rules(people: str, *routes: str, at: str = API, **more: bool) -> tuple[RouteRule, ...]:
    pairs = (each.split(" ") for each in routes)
    return tuple(RouteRule(method, at + path, people, **more) for method, path in pairs)


RULES: tuple[RouteRule, ...] = (
    *_rules(PUBLIC, "GET /", "GET /assets/{version}/{file:path}", at=""),
    *_rules(PUBLIC, "GET /livez", "GET /readyz", at=""),
    *_rules(PUBLIC, "GET /answer/{link}", at="", links=True),
    *_rules(PUBLIC, "POST /answer/{link}", at="", links=True, form=True),
    *_rules(PUBLIC, "POST /slack", form=True),
    *_rules(VIEWER, "GET /metrics", at=""),
    *_rules(PUBLIC, "POST /session", signs_in=True),
    *_rules(VIEWER, "GET /openapi.json", "GET /session", "DELETE /session"),
    *_rules(VIEWER, "GET /runs", "GET /runs/{run}", "GET /runs/{run}/graph"),
    *_rules(VIEWER, "GET /runs/{run}/rows"),
    *_rules(VIEWER, "GET /runs/{run}/steps/{step}", "GET /runs/{run}/steps/{step}/output"),
    *_rules(VIEWER, "GET /runs/{run}/steps/{step}/inputs/{name}"),
    *_rules(VIEWER, "GET /runs/{run}/model-calls", "GET /runs/{run}/model-calls/{number}"),
    *_rules(VIEWER, "GET /runs/{run}/revisions", "GET /runs/{run}/revisions/{number}"),
    *_rules(VIEWER, "GET /runs/{run}/compare/{other}"),
    *_rules(VIEWER, "GET /runs/{run}/diff", "GET /runs/{run}/review"),
    *_rules(VIEWER, "GET /runs/{run}/ledger", "GET /runs/{run}/ledger/{seq}"),
    *_rules(VIEWER, "GET /runs/{run}/review/steps/{step}"),
    *_rules(VIEWER, "GET /overview"),
    *_rules(VIEWER, "GET /inbox", "GET /library", "GET /library/{name}", "GET /workers"),
    *_rules(VIEWER, "GET /library/{name}/diff"),
    *_rules(VIEWER, "GET /workers/use"),
    *_rules(VIEWER, "GET /fleet", "GET /fleet/{run}/{task}", "GET /fleet/{run}/{task}/words"),
    *_rules(OPERATOR, "POST /fleet/epics", starts=True),
    *_rules(OPERATOR, "POST /fleet/pause", "POST /fleet/resume", "POST /fleet/drain"),
    *_rules(VIEWER, "GET /metrics", "GET /usage", "GET /settings", "GET /artifacts/{ref}"),
    *_rules(OPERATOR, "POST /fleet/{run}/{task}/stop", "POST /fleet/{run}/{task}/message"),
    *_rules(VIEWER, "GET /events", "GET /runs/{run}/steps/{step}/live", stream=True),
    *_rules(OPERATOR, "POST /runs", "POST /runs/{run}/rollback", starts=True),
    *_rules(OPERATOR, "POST /runs/{run}/rerun", starts=True),
    *_rules(OPERATOR, "POST /runs/{run}/export", "POST /runs/{run}/verify"),
    *_rules(OPERATOR, "POST /plans/draft", "POST /plans/lint"),
    *_rules(OPERATOR, "POST /runs/{run}/pause", "POST /runs/{run}/resume"),
    *_rules(OPERATOR, "POST /runs/{run}/cancel", "POST /runs/{run}/steps/{step}/redo"),
    *_rules(OPERATOR, "POST /runs/{run}/steps/{step}/hold"),
    *_rules(OPERATOR, "POST /runs/{run}/next-step", "POST /runs/{run}/steps/{step}/report"),
    *_rules(OPERATOR, "POST /runs/{run}/steps/{step}/extend"),
    *_rules(OPERATOR, "POST /inbox/{run}/{question}/answer"),
    *_rules(OPERATOR, "PUT /library/{name}", "DELETE /library/{name}"),
    *_rules(APPROVER, "POST /runs/{run}/review/approve", "POST /runs/{run}/review/reject"),
    *_rules(APPROVER, "POST /runs/{run}/review/request_changes"),
    *_rules(APPROVER, "POST /runs/{run}/review/preview"),
    *_rules(APPROVER, "POST /runs/{run}/review/amend", "POST /runs/{run}/steps/{step}/reassign"),
    *_rules(APPROVER, "POST /runs/{run}/steps/{step}/release"),
    *_rules(APPROVER, "POST /stop-all", "DELETE /stop-all"),
    *_rules(VIEWER, "GET /people"),
    *_rules(OWNER, "POST /people", "PUT /people/{name}", "DELETE /people/{name}"),
)


class RouteRules:
    """Finds the rules of a path."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[str, RouteRule]] = {}
        self._patterns: dict[str, tuple[re.Pattern[str], dict[str, RouteRule]]] = {}
        for rule in RULES:
            if "{" not in rule.path:
                self._exact.setdefault(rule.path, {})[rule.method] = rule
                continue
            pattern = re.compile(_pattern(rule.path))
            self._patterns.setdefault(rule.path, (pattern, {}))[1][rule.method] = rule

    def find(self, path: str) -> dict[str, RouteRule]:
        """Return the rules of a path by method; empty if there are none."""
        found = self._exact.get(path)
        if found is not None:
            return found
        for pattern, rules in self._patterns.values():
            if pattern.fullmatch(path):
                return rules
        return {}


def _pattern(path: str) -> str:
    parts = re.split(r"(\{[a-z]+(?::path)?\})", path)
    return "".join(
        ".+" if part.endswith(":path}") else "[^/]+" if part.startswith("{") else re.escape(part)
        for part in parts
    )


_RANKS = (*ROLES, OWNER)


def may(rank: str, people: str) -> bool:
    """Return whether a role, or being the owner, is sufficient."""
    return people == PUBLIC or _RANKS.index(rank) >= _RANKS.index(people)
