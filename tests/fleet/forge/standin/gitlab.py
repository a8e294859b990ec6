"""A stand-in for GitLab: one project.

Issues and merge requests have numbers of their own, notes belong to one of them, a second merge
request of a branch is 409, whether one can be merged is `checking` for a while, and notes whose
lines begin with a slash are obeyed as commands. An approval survives a push; when it was given
stands in the approvals of newer servers, and in a system note of all.
"""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime
from typing import Any

from tests.fleet.forge.standin.git_host import GitHost, MemoryGit
from tests.fleet.forge.standin.server import (
    Json,
    Request,
    Response,
    StandIn,
    Stop,
    VirtualTime,
    basic_password,
    git_over_http,
)

US, TOKEN = "leadhand-bot", "glpat-standin00000000000001"
PROJECT = "acme/tools/shop"
OWN = 7
"""The number of the project."""
PREFIX = "/projects/acme%2Ftools%2Fshop"


class GitLabStandIn(StandIn):
    """The host; its first methods are what people and CI do."""

    def __init__(self, git: GitHost | None = None, clock: VirtualTime | None = None) -> None:
        super().__init__(clock)
        self.git: GitHost = git or MemoryGit()
        self._ids = itertools.count(1000)
        self._numbers = {"issues": itertools.count(1), "merge_requests": itertools.count(1)}
        self.tokens[TOKEN] = US
        self.users = {US: 1}
        self.members: dict[str, int] = {US: 30}
        self.barred: set[str] = set()
        self.items: dict[tuple[str, int], Json] = {}
        self.notes: dict[tuple[str, int], list[Json]] = {}
        self.threads: dict[int, list[Json]] = {}
        self.label_events: dict[int, list[Json]] = {}
        self.reviewers: dict[int, dict[str, str]] = {}
        self.approved: dict[int, dict[str, str]] = {}
        """When which account approved."""
        self.versions: dict[int, list[Json]] = {}
        self.times_of_approvals = True
        """Whether approvals say when they were given."""
        self.statuses: dict[str, list[Json]] = {}
        self.traces: dict[int, str] = {}
        self.train: list[int] = []
        self.late = 1
        self.merge_status = "mergeable"
        self.only_resolved = False
        """Whether merge requests with open threads cannot be merged."""
        self.scopes = "api"
        self.commands: list[str] = []
        """Quick actions that were obeyed."""
        self._routes()

    # --- people and CI ---

    def person(self, name: str) -> Json:
        return {"username": name, "id": self.users.setdefault(name, len(self.users) + 1)}

    def add_issue(self, title: str, body: str = "", author: str = "ann") -> int:
        with self.lock:
            number = next(self._numbers["issues"])
            self.items["issues", number] = {
                "iid": number, "title": title, "description": body, "author": self.person(author),
                "labels": [], "assignees": [], "state": "opened",
                "created_at": self.time(), "updated_at": self.time().replace("Z", ".123Z"),
                "web_url": f"{self.url}/{PROJECT}/-/issues/{number}",
            }  # fmt: skip
            return number

    def edit_issue(self, number: int, by: str, *, title: str = "", body: str = "") -> None:
        with self.lock:
            given = {"title": title, "description": body}
            self.items["issues", number] |= {key: text for key, text in given.items() if text}
            words = [f"changed title from **{{-a-}}** to **{title}**"] if title else []
            words += ["changed the description"] if body else []
            for each in words:
                self._add_note("issues", number, each, by)["system"] = True

    def approve(self, number: int, by: str = "rev") -> None:
        """Approve what is there now."""
        with self.lock:
            self._shown("merge_requests", number)
            self.approved.setdefault(number, {})[by] = self.exact_time()
            note = self._add_note("merge_requests", number, "approved this merge request", by)
            note |= {"system": True, "created_at": self.exact_time()}

    def exact_time(self) -> str:
        """Return the time to the microsecond, as GitLab writes it to the millisecond."""
        return datetime.fromtimestamp(self.now(), UTC).isoformat()

    def label_issue(self, number: int, label: str, by: str = "ann") -> None:
        with self.lock:
            self.items["issues", number]["labels"].append(label)
            event = {"user": self.person(by), "label": {"name": label}, "action": "add"}
            event["created_at"] = self.time()
            self.label_events.setdefault(number, []).append(event)

    def assign_issue(self, number: int, to: str, by: str = "ann") -> None:
        with self.lock:
            self.items["issues", number]["assignees"].append(self.person(to))
            self._add_note("issues", number, f"assigned to @{to}", by)["system"] = True

    def say(self, number: int, body: str, author: str = "ann", kind: str = "issues") -> int:
        with self.lock:
            return int(self._add_note(kind, number, body, author)["id"])

    def remark(self, number: int, path: str, line: int, body: str, author: str = "rev") -> str:
        """Begin a thread on a line."""
        with self.lock:
            place = {"new_path": path, "new_line": line}
            note = {**self._note(body, author), "type": "DiffNote", "position": place}
            note["resolvable"] = True
            thread = {"id": f"t{next(self._ids)}", "notes": [note]}
            self.threads.setdefault(number, []).append(thread)
            return thread["id"]

    def resolve(self, number: int, thread: str) -> None:
        with self.lock:
            for each in self.threads[number]:
                if each["id"] == thread:
                    each["notes"][0]["resolved"] = True

    def set_status(self, commit: str, name: str, status: str, log: str = "", **more: Any) -> None:
        with self.lock:
            ident = next(self._ids)
            row = {"id": ident, "name": name, "status": status, "description": None, **more}
            self.statuses.setdefault(commit, []).append(row)
            self.traces[ident] = log

    # --- routes ---

    def _routes(self) -> None:
        kind = "{kind}"
        for method, path, handler in (
            ("GET", "/user", lambda request: Response(200, self.person(request.user))),
            ("GET", "/users", self._list_users),
            ("GET", f"{PREFIX}/members/all/{{ident}}", self._member),
            ("GET", f"{PREFIX}/issues/{{number}}/resource_label_events", self._list_labels),
            ("GET", f"{PREFIX}/merge_requests/{{number}}/discussions", self._list_threads),
            ("GET", f"{PREFIX}/merge_requests/{{number}}/discussions/{{ident}}", self._thread),
            (
                "POST",
                f"{PREFIX}/merge_requests/{{number}}/discussions/{{ident}}/notes",
                self._answer,
            ),
            ("GET", f"{PREFIX}/merge_requests/{{number}}/reviewers", self._list_reviewers),
            ("GET", f"{PREFIX}/merge_requests/{{number}}/approvals", self._approvals),
            ("GET", f"{PREFIX}/merge_requests/{{number}}/versions", self._list_versions),
            ("GET", f"/{PROJECT}.git/info/refs", self._git),
            ("POST", f"/{PROJECT}.git/{{service}}", self._git),
            ("PUT", f"{PREFIX}/merge_requests/{{number}}/merge", self._put_merge),
            ("POST", f"{PREFIX}/merge_requests", self._post_merge_request),
            ("GET", f"{PREFIX}/merge_trains/merge_requests/{{number}}", self._in_train),
            ("POST", f"{PREFIX}/merge_trains/merge_requests/{{number}}", self._to_train),
            ("GET", f"{PREFIX}/repository/commits/{{sha}}/statuses", self._list_statuses),
            ("GET", f"{PREFIX}/jobs/{{ident}}/trace", self._trace),
            ("GET", f"{PREFIX}/{kind}", self._list),
            ("GET", f"{PREFIX}/{kind}/{{number}}", self._get),
            ("PUT", f"{PREFIX}/{kind}/{{number}}", self._put),
            ("GET", f"{PREFIX}/{kind}/{{number}}/notes", self._list_notes),
            ("POST", f"{PREFIX}/{kind}/{{number}}/notes", self._post_note),
            ("PUT", f"{PREFIX}/{kind}/{{number}}/notes/{{ident}}", self._put_note),
            ("DELETE", f"{PREFIX}/{kind}/{{number}}/notes/{{ident}}", self._delete_note),
        ):
            self.route(method, path, handler)

    def token_of(self, request: Request) -> str:
        signed = request.headers.get("authorization", "").partition(" ")[2]
        return request.headers.get("private-token", "") or basic_password(signed)

    def _git(self, request: Request, service: str = "info/refs") -> Response:
        said = git_over_http(self.git, request, service)
        for kind, number in self.items:
            if kind == "merge_requests":
                self._shown(kind, number)
        return said

    def limit_headers(self) -> dict[str, str]:
        return {
            "ratelimit-limit": str(self.limit),
            "ratelimit-remaining": str(max(0, self.remaining)),
            "ratelimit-reset": str(int(self.reset_at)),
        }

    def _need_api(self) -> None:
        if self.scopes != "api":
            text = "The request requires higher privileges than provided by the access token."
            stop = Stop(403, "")
            stop.response.data = {
                "error": "insufficient_scope", "error_description": text, "scope": "api",
            }  # fmt: skip
            raise stop

    def _list_users(self, request: Request) -> Response:
        name = request.query["username"]
        return Response(200, [self.person(name)] if name in self.users else [])

    def _member(self, _request: Request, ident: str) -> Response:
        for name, level in self.members.items():
            if self.users.get(name) == int(ident):
                state = "blocked" if name in self.barred else "active"
                return Response(200, {"access_level": level, "state": state})
        raise Stop(404, "404 Not found")

    def _item(self, kind: str, number: str) -> Json:
        if not number.isdecimal() or (kind, int(number)) not in self.items:
            raise Stop(404, "404 Not found")
        return self.items[kind, int(number)]

    def _list(self, request: Request, kind: str) -> Response:
        asked = request.query
        state, since = asked.get("state", "all"), asked.get("updated_after", "")
        who = asked.get("assignee_username", "")
        found = [
            self._shown(kind, number)
            for (each_kind, number), each in self.items.items()
            if each_kind == kind
            and state in ("all", each["state"])
            and asked.get("source_branch", each.get("source_branch")) == each.get("source_branch")
            and each["updated_at"] >= since
            and asked.get("labels", "") in ["", *each["labels"]]
            and (not who or who in [one["username"] for one in each["assignees"]])
        ]
        found.sort(key=lambda each: each["updated_at"])
        return Response(rows=found[:: -1 if asked.get("sort") == "desc" else 1])

    def _get(self, _request: Request, kind: str, number: str) -> Response:
        self._item(kind, number)
        return Response(200, self._shown(kind, int(number), whole=True))

    def _put(self, request: Request, kind: str, number: str) -> Response:
        self._need_api()
        item, body = self._item(kind, number), request.body
        if body.get("state_event") == "close" and item["state"] == "opened":
            item["state"] = "closed"
            self.made.append(f"close {number}")
        item |= {key: body[key] for key in ("title", "description") if key in body}
        item["updated_at"] = self.time()
        return Response(200, self._shown(kind, int(number)))

    def _shown(self, kind: str, number: int, *, whole: bool = False) -> Json:
        item = self.items[kind, number]
        if kind == "merge_requests" and item["state"] == "opened":
            head = self.git.head(item["source_branch"])
            if head != item["sha"]:
                item |= {"sha": head, "looks": self.late}
            if head not in [each["head_commit_sha"] for each in self.versions.get(number, ())]:
                version = {"head_commit_sha": head, "created_at": self.exact_time()}
                self.versions.setdefault(number, []).insert(0, version)
            item["detailed_merge_status"] = "checking" if item["looks"] > 0 else self.merge_status
            threads = [each["notes"][0] for each in self.threads.get(number, ())]
            if self.only_resolved and not all(each["resolved"] for each in threads):
                item["detailed_merge_status"] = "discussions_not_resolved"
            if self.git.conflicts(head, item["target_branch"]) and item["looks"] <= 0:
                item["detailed_merge_status"] = "conflict"
            item["looks"] -= int(whole)
        return dict(item)

    # --- notes ---

    def _note(self, body: str, author: str) -> Json:
        return {
            "id": next(self._ids), "type": None, "body": body, "author": self.person(author),
            "system": False, "created_at": self.time(), "updated_at": self.time(),
            "resolved": False,
        }  # fmt: skip

    def _add_note(self, kind: str, number: int, body: str, author: str) -> Json:
        note = self._note(body, author)
        self.notes.setdefault((kind, number), []).append(note)
        return note

    def _obey(self, body: str) -> None:
        self.commands += re.findall(r"(?m)^/[a-z_]+", body)

    def _list_notes(self, _request: Request, kind: str, number: str) -> Response:
        return Response(rows=self.notes.get((kind, int(number)), []))

    def _post_note(self, request: Request, kind: str, number: str) -> Response:
        self._need_api()
        self._item(kind, number)
        body = request.body["body"]
        self._obey(body)
        self.made.append(f"note {kind} {number} {body.splitlines()[-1]}")
        return Response(201, self._add_note(kind, int(number), body, request.user))

    def _own_note(self, kind: str, number: str, ident: str) -> Json:
        for note in self.notes.get((kind, int(number)), []):
            if note["id"] == int(ident):
                return note
        raise Stop(404, "404 Not found")

    def _put_note(self, request: Request, kind: str, number: str, ident: str) -> Response:
        note = self._own_note(kind, number, ident)
        self._obey(request.body["body"])
        note["body"] = request.body["body"]
        return Response(200, note)

    def _delete_note(self, _request: Request, kind: str, number: str, ident: str) -> Response:
        self.notes[kind, int(number)].remove(self._own_note(kind, number, ident))
        return Response(204)

    def _list_labels(self, _request: Request, number: str) -> Response:
        return Response(rows=self.label_events.get(int(number), []))

    # --- merge requests ---

    def _post_merge_request(self, request: Request) -> Response:
        self._need_api()
        body = request.body
        for each in self.items.values():
            same = each.get("source_branch") == body["source_branch"]
            same = same and each["source_project_id"] == OWN
            if same and (each["target_branch"], each["state"]) == (body["target_branch"], "opened"):
                text = f"Another open merge request already exists: !{each['iid']}"
                raise Stop(409, text)
        if not self.git.head(body["source_branch"]):
            raise Stop(400, "source_branch does not exist")
        number = next(self._numbers["merge_requests"])
        self._obey(body["description"])
        self.items["merge_requests", number] = {
            **{key: body[key] for key in ("source_branch", "target_branch", "title")},
            "iid": number, "description": body["description"], "labels": [], "assignees": [],
            "source_project_id": OWN, "target_project_id": OWN,
            "author": self.person(request.user), "state": "opened", "draft": False,
            "sha": self.git.head(body["source_branch"]), "looks": self.late,
            "merge_commit_sha": None, "squash_commit_sha": None, "updated_at": self.time(),
            "web_url": f"{self.url}/{PROJECT}/-/merge_requests/{number}",
        }  # fmt: skip
        self.made.append(f"merge request {body['source_branch']}")
        return Response(201, self._shown("merge_requests", number))

    def _put_merge(self, request: Request, number: str) -> Response:
        self._need_api()
        item = self._item("merge_requests", number)
        shown = self._shown("merge_requests", int(number))
        if self.members[request.user] < 30:
            raise Stop(401, "401 Unauthorized")
        if item["state"] != "opened" or shown["detailed_merge_status"] != "mergeable":
            raise Stop(405, "405 Method Not Allowed")
        if request.body.get("sha") != item["sha"]:
            raise Stop(409, "SHA does not match HEAD of source branch")
        squash = request.body.get("squash")
        text = request.body["squash_commit_message" if squash else "merge_commit_message"]
        self.merge(int(number), text, "squash" if squash else "merge")
        return Response(200, dict(item))

    def merge(self, number: int, text: str, method: str = "merge") -> None:
        """Merge, whatever is missing; a squash has no merge commit where the project says so."""
        item = self.items["merge_requests", number]
        made = self.git.merge(item["sha"], item["target_branch"], method, text)
        squashed = method == "squash"
        item |= {"state": "merged", "squash_commit_sha": made if squashed else None}
        item["merge_commit_sha"] = None if squashed else made
        self.made.append(f"merge {number}")

    def _in_train(self, _request: Request, number: str) -> Response:
        if int(number) not in self.train:
            raise Stop(404, "404 Not found")
        return Response(200, {"status": "fresh"})

    def _to_train(self, _request: Request, number: str) -> Response:
        self.train.append(int(number))
        self.made.append(f"enqueue {number}")
        return Response(201, [])

    # --- checks and reviews ---

    def _list_statuses(self, _request: Request, sha: str) -> Response:
        return Response(rows=self.statuses.get(sha, []))

    def _trace(self, _request: Request, ident: str) -> Response:
        if not self.traces.get(int(ident)):
            raise Stop(404, "404 Not found")
        return Response(200, self.traces[int(ident)].encode())

    def _list_reviewers(self, _request: Request, number: str) -> Response:
        found = self.reviewers.get(int(number), {})
        rows = [{"user": self.person(name), "state": state} for name, state in found.items()]
        return Response(rows=rows)

    def _approvals(self, _request: Request, number: str) -> Response:
        rows = [
            {"user": self.person(name), **({"approved_at": at} if self.times_of_approvals else {})}
            for name, at in self.approved.get(int(number), {}).items()
        ]
        return Response(200, {"approved_by": rows})

    def _list_versions(self, _request: Request, number: str) -> Response:
        self._shown("merge_requests", int(number))
        return Response(rows=self.versions.get(int(number), []))

    def _list_threads(self, _request: Request, number: str) -> Response:
        return Response(rows=self.threads.get(int(number), []))

    def _thread(self, _request: Request, number: str, ident: str) -> Response:
        for each in self.threads.get(int(number), []):
            if each["id"] == ident:
                return Response(200, each)
        raise Stop(404, "404 Not found")

    def _answer(self, request: Request, number: str, ident: str) -> Response:
        thread = self._thread(request, number, ident).data
        body = request.body["body"]
        self._obey(body)
        self.made.append(f"reply {ident} {body.splitlines()[-1]}")
        thread["notes"].append(self._note(body, request.user))
        return Response(201, thread["notes"][-1])

    def signature(self, secret: str, body: bytes) -> dict[str, str]:
        return {"x-gitlab-token": secret}
