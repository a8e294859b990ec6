"""A stand-in for GitHub: one repository, its people and its CI, over HTTP.

What it does as GitHub does: numbers that issues and pull requests share, 422 for a second pull
request of a branch, for a branch that is not there and for one without commits; a mergeability
that is unknown for a while after each push; 405 and 409 for merges; check runs whose logs are on
another host; reviews whose remarks are listed apart; a merge queue by GraphQL; webhooks.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import uuid
from collections.abc import Callable
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

OWNER, REPO = "acme", "shop"
US, TOKEN = "leadhand-bot", "ghp_standin0000000000000000000000000001"
PAT = "https://docs.github.test/rest"


class GitHubStandIn(StandIn):
    """The host; its first methods are what people and CI do."""

    def __init__(self, git: GitHost | None = None, clock: VirtualTime | None = None) -> None:
        super().__init__(clock)
        self.git: GitHost = git or MemoryGit()
        self._ids, self._numbers = itertools.count(1000), itertools.count(1)
        self.tokens[TOKEN] = US
        self.users = {US: 1}
        self.access: dict[str, str] = {US: "write"}
        self.denied: dict[str, str] = {}
        """Permissions that the token lacks, by the first part of a route, as in `issues: write`."""
        self.issues: dict[int, Json] = {}
        self.events: dict[int, list[Json]] = {}
        self.edited: dict[int, Json] = {}
        """The last change of an issue's text: when and by whom."""
        self.comments: dict[int, Json] = {}
        self.pulls: dict[int, Json] = {}
        self.reviews: dict[int, list[Json]] = {}
        self.remarks: dict[int, Json] = {}
        self.runs: dict[str, list[Json]] = {}
        self.statuses: dict[str, list[Json]] = {}
        self.logs: dict[int, str] = {}
        self.queue: list[int] = []
        self.late = 1
        """How many looks at a pull request after each push say that it is being computed."""
        self.blocked = ""
        """Why no pull request may be merged: a `mergeable_state`."""
        self.storage = ""
        """The host that has the logs; empty: this one, by another name."""
        self.ci: Callable[[GitHubStandIn, str, str], None] | None = None
        """Called with branch and commit when the head of a pull request is new."""
        self.app_key: Any = None
        self._routes()

    # --- people and CI ---

    def person(self, login: str) -> Json:
        number = self.users.setdefault(login, len(self.users) + 1)
        kind = "Bot" if login.endswith("[bot]") else "User"
        return {"login": login, "id": number, "type": kind}

    def add_issue(self, title: str, body: str | None = "", author: str = "ann") -> int:
        with self.lock:
            number = next(self._numbers)
            self.issues[number] = {
                "number": number, "title": title, "body": body, "user": self.person(author),
                "author_association": "CONTRIBUTOR", "labels": [], "assignees": [],
                "state": "open", "state_reason": None, "updated_at": self.time(),
                "created_at": self.time(),
                "html_url": f"{self.url}/{OWNER}/{REPO}/issues/{number}",
            }  # fmt: skip
            self._hook("issues", {"action": "opened", "issue": {"number": number}})
            return number

    def label_issue(self, number: int, label: str, by: str = "ann") -> None:
        with self.lock:
            self._event(number, "labeled", actor=self.person(by), label={"name": label})
            self.issues[number]["labels"].append({"name": label})
            self._touch(number)
            self._hook("issues", {"action": "labeled", "issue": {"number": number}})

    def unlabel_issue(self, number: int, label: str, by: str = "ann") -> None:
        with self.lock:
            self._event(number, "unlabeled", actor=self.person(by), label={"name": label})
            kept = [each for each in self.issues[number]["labels"] if each["name"] != label]
            self.issues[number]["labels"] = kept
            self._touch(number)

    def edit_issue(self, number: int, by: str, *, title: str = "", body: str = "") -> None:
        with self.lock:
            if title:
                self.issues[number]["title"] = title
                self._event(number, "renamed", actor=self.person(by))
            if body:
                self.issues[number]["body"] = body
                self.edited[number] = {"lastEditedAt": self.time(), "editor": {"login": by}}
            self._touch(number)

    def edit_comment(self, ident: int, body: str) -> None:
        with self.lock:
            self.comments[ident] |= {"body": body, "updated_at": self.time()}

    def assign_issue(self, number: int, to: str, by: str = "ann") -> None:
        with self.lock:
            who = self.person(to)
            self._event(number, "assigned", actor=who, assigner=self.person(by), assignee=who)
            self.issues[number]["assignees"].append(who)
            self._touch(number)

    def say(self, number: int, body: str, author: str = "ann") -> int:
        with self.lock:
            made = self._add_comment(number, body, author)
            self._hook("issue_comment", {"action": "created", "issue": {"number": number}})
            return int(made["id"])

    def set_check(
        self, commit: str, name: str, conclusion: str | None, log: str = "", app: str = ""
    ) -> int:
        """Report a check run: `conclusion` is None while it runs."""
        with self.lock:
            slug = app or "github-actions"
            rows = self.runs.get(commit, [])
            rows = [each for each in rows if (each["name"], each["app"]["slug"]) != (name, slug)]
            ident = next(self._ids)
            rows.append({
                "id": ident, "name": name, "head_sha": commit, "conclusion": conclusion,
                "status": "completed" if conclusion else "in_progress",
                "html_url": f"{self.url}/{OWNER}/{REPO}/runs/{ident}",
                "output": {"title": f"{name} {conclusion}", "summary": None, "text": None},
                "app": {"slug": slug}, "annotations": [],
            })  # fmt: skip
            self.runs[commit], self.logs[ident] = rows, log
            run = {"id": ident, "head_sha": commit, "conclusion": conclusion}
            action = "completed" if conclusion else "created"
            self._hook("check_run", {"action": action, "check_run": run})
            return ident

    def set_status(self, commit: str, context: str, state: str, text: str = "") -> None:
        with self.lock:
            rows = [each for each in self.statuses.get(commit, []) if each["context"] != context]
            rows.append({"context": context, "state": state, "description": text})
            self.statuses[commit] = rows
            self._hook("status", {"sha": commit, "state": state})

    def review(
        self,
        number: int,
        state: str,
        body: str = "",
        author: str = "rev",
        remarks: tuple[tuple[str, int, str], ...] = (),
    ) -> int:
        """Submit a review: APPROVED, CHANGES_REQUESTED or COMMENTED."""
        with self.lock:
            ident = next(self._ids)
            self.reviews.setdefault(number, []).append({
                "id": ident, "user": self.person(author), "state": state, "body": body,
                "commit_id": self._head(number), "submitted_at": self.time(),
                "author_association": "MEMBER",
            })  # fmt: skip
            for path, line, text in remarks:
                self._add_remark(number, path, line, text, author, review=ident)
            self._hook("pull_request_review", {"action": "submitted", "number": number})
            return ident

    def close_pull(self, number: int) -> None:
        with self.lock:
            self.pulls[number]["state"] = "closed"

    def merge_from_queue(self) -> None:
        """Let the merge queue do its first pull request."""
        with self.lock:
            number = self.queue.pop(0)
            self._merge(number, "squash", "by the queue")

    # --- routes ---

    def _routes(self) -> None:
        repo = f"/repos/{OWNER}/{REPO}"
        for method, path, handler in (
            ("GET", "/user", self._get_user),
            ("GET", "/users/{login}", self._get_user),
            ("GET", "/app", lambda _request: Response(200, {"slug": "leadhand-app"})),
            ("GET", f"{repo}/installation", lambda _request: Response(200, {"id": 77})),
            ("POST", "/app/installations/{ident}/access_tokens", self._app_token),
            ("GET", f"{repo}/collaborators/{{login}}/permission", self._permission),
            ("GET", f"{repo}/issues", self._list_issues),
            ("GET", f"{repo}/issues/{{number}}", self._get_issue),
            ("PATCH", f"{repo}/issues/{{number}}", self._patch_issue),
            ("GET", f"{repo}/issues/{{number}}/events", self._list_events),
            ("GET", f"{repo}/issues/{{number}}/comments", self._list_comments),
            ("POST", f"{repo}/issues/{{number}}/comments", self._post_comment),
            ("PATCH", f"{repo}/issues/comments/{{ident}}", self._patch_comment),
            ("DELETE", f"{repo}/issues/comments/{{ident}}", self._delete_comment),
            ("GET", f"{repo}/pulls", self._list_pulls),
            ("POST", f"{repo}/pulls", self._post_pull),
            ("GET", f"{repo}/pulls/{{number}}", self._get_pull),
            ("PATCH", f"{repo}/pulls/{{number}}", self._patch_pull),
            ("PUT", f"{repo}/pulls/{{number}}/merge", self._put_merge),
            ("GET", f"{repo}/pulls/{{number}}/reviews", self._list_reviews),
            ("GET", f"{repo}/pulls/{{number}}/comments", self._list_remarks),
            ("POST", f"{repo}/pulls/{{number}}/comments/{{ident}}/replies", self._post_reply),
            ("DELETE", f"{repo}/pulls/comments/{{ident}}", self._delete_remark),
            ("GET", f"{repo}/commits/{{sha}}/check-runs", self._list_runs),
            ("GET", f"{repo}/commits/{{sha}}/status", self._list_statuses),
            ("GET", f"{repo}/check-runs/{{ident}}", self._get_run),
            ("GET", f"{repo}/check-runs/{{ident}}/annotations", self._list_annotations),
            ("GET", f"{repo}/actions/jobs/{{ident}}/logs", self._get_log),
            ("GET", "/storage/{ident}", self._stored_log),
            ("POST", "/graphql", self._graphql),
            ("GET", f"/{OWNER}/{REPO}.git/info/refs", self._git),
            ("POST", f"/{OWNER}/{REPO}.git/{{service}}", self._git),
        ):
            self.route(method, path, handler)

    def _get_user(self, request: Request, login: str = "") -> Response:
        if login and login not in self.users:
            raise Stop(404, "Not Found")
        if not login and request.user.endswith("[bot]"):
            raise Stop(403, "Resource not accessible by integration")
        return Response(200, self.person(login or request.user))

    def user_of(self, token: str) -> str | None:
        if self.app_key is not None and token.count(".") == 2:
            return self._app_user(token)
        if token not in self.tokens and (name := basic_password(token)):
            return self.tokens.get(name)
        return super().user_of(token)

    def _app_user(self, token: str) -> str | None:
        import jwt

        try:
            given = {"algorithms": ["RS256"], "issuer": "4711"}
            untimed = {"verify_exp": False, "verify_iat": False}
            told = jwt.decode(token, self.app_key, options=untimed, **given)
        except jwt.PyJWTError:
            return None
        short = told["exp"] - told["iat"] <= 600
        return "app" if short and told["iat"] <= self.now() < told["exp"] else None

    def _app_token(self, request: Request, ident: str) -> Response:
        if request.user != "app" or ident != "77":
            raise Stop(404, "Not Found")
        token = f"ghs_{uuid.uuid4().hex}"
        self.person("leadhand-app[bot]")
        self.tokens[token] = "leadhand-app[bot]"
        until = self.now() + 3600
        from datetime import UTC, datetime

        text = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Response(201, {"token": token, "expires_at": text})

    def _permission(self, _request: Request, login: str) -> Response:
        if login not in self.access:
            raise Stop(404, f"{login} is not a user")
        role = self.access[login]
        plain = {"maintain": "write", "triage": "read"}.get(role, role)
        return Response(200, {"permission": plain, "role_name": role})

    def _need(self, kind: str, right: str = "write") -> None:
        """Refuse what the token may not do, as GitHub does for fine-grained tokens."""
        if kind in self.denied:
            stop = Stop(403, "Resource not accessible by personal access token")
            stop.response.headers["x-accepted-github-permissions"] = f"{kind}={right}"
            raise stop

    # --- issues ---

    def _list_issues(self, request: Request) -> Response:
        asked, rows = request.query, [*self.issues.values(), *map(self._as_issue, self.pulls)]
        state, since = asked.get("state", "open"), asked.get("since", "")
        label, who = asked.get("labels", ""), asked.get("assignee", "")
        found = [
            each
            for each in rows
            if (state in ("all", each["state"]))
            and each["updated_at"] >= since
            and (not label or label in [one["name"] for one in each["labels"]])
            and (not who or who in [one["login"] for one in each["assignees"]])
        ]
        found.sort(key=lambda each: each["updated_at"], reverse=asked.get("direction") != "asc")
        return Response(rows=found)

    def _as_issue(self, number: int) -> Json:
        pull = self.pulls[number]
        return {
            "number": number, "title": pull["title"], "body": pull["body"], "user": pull["user"],
            "labels": [], "assignees": [], "state": pull["state"], "pull_request": {},
            "updated_at": pull["updated_at"],
        }  # fmt: skip

    def _one(self, kept: dict[int, Json], number: str) -> Json:
        if not number.isdecimal() or int(number) not in kept:
            raise Stop(404, "Not Found")
        return kept[int(number)]

    def _get_issue(self, _request: Request, number: str) -> Response:
        if number.isdecimal() and int(number) in self.pulls:
            return Response(200, self._as_issue(int(number)))
        return Response(200, self._one(self.issues, number))

    def _patch_issue(self, request: Request, number: str) -> Response:
        self._need("issues")
        issue = self._one(self.issues, number)
        if issue["state"] == "open" and request.body.get("state") == "closed":
            self.made.append(f"close {number}")
        issue |= {
            key: request.body[key] for key in ("state", "state_reason") if key in request.body
        }
        self._touch(int(number))
        return Response(200, issue)

    def _list_events(self, _request: Request, number: str) -> Response:
        return Response(rows=self.events.get(int(number), []))

    def _event(self, number: int, event: str, **more: Json) -> None:
        about = {"id": next(self._ids), "event": event, "created_at": self.time()}
        self.events.setdefault(number, []).append({**about, **more})

    def _touch(self, number: int) -> None:
        for kept in (self.issues, self.pulls):
            if number in kept:
                kept[number]["updated_at"] = self.time()

    def _list_comments(self, request: Request, number: str) -> Response:
        since = request.query.get("since", "")
        rows = [each for each in self.comments.values() if each["number"] == int(number)]
        return Response(rows=[each for each in rows if each["updated_at"] >= since])

    def _post_comment(self, request: Request, number: str) -> Response:
        self._need("issues")
        if int(number) not in {**self.issues, **self.pulls}:
            raise Stop(404, "Not Found")
        body = request.body.get("body")
        if not body or len(body) > 65_536:
            raise Stop(422, "Validation Failed", errors=[{"code": "invalid", "field": "body"}])
        self.made.append(f"comment {number} {body.splitlines()[-1]}")
        return Response(201, self._add_comment(int(number), body, request.user))

    def _add_comment(self, number: int, body: str, author: str) -> Json:
        ident = next(self._ids)
        self.comments[ident] = {
            "id": ident, "number": number, "body": body, "user": self.person(author),
            "author_association": "NONE", "created_at": self.time(), "updated_at": self.time(),
            "html_url": f"{self.url}/{OWNER}/{REPO}/issues/{number}#issuecomment-{ident}",
        }  # fmt: skip
        self._touch(number)
        return self.comments[ident]

    def _patch_comment(self, request: Request, ident: str) -> Response:
        comment = self._one(self.comments, ident)
        comment |= {"body": request.body["body"], "updated_at": self.time()}
        return Response(200, comment)

    def _delete_comment(self, _request: Request, ident: str) -> Response:
        self._one(self.comments, ident)
        del self.comments[int(ident)]
        return Response(204)

    # --- pull requests ---

    def _head(self, number: int) -> str:
        pull = self.pulls[number]
        if pull["state"] == "open":
            head = self.git.head(pull["head"]["ref"]) or pull["head"]["sha"]
            base = self.git.head(pull["base"]["ref"])
            if (head, base) != (pull["head"]["sha"], pull["base"]["sha"]):
                if head != pull["head"]["sha"] and self.ci is not None:
                    self.ci(self, pull["head"]["ref"], head)
                pull["head"]["sha"], pull["base"]["sha"], pull["looks"] = head, base, self.late
        return str(pull["head"]["sha"])

    def _shown_pull(self, number: int, *, whole: bool = True) -> Json:
        pull = self.pulls[number]
        head = self._head(number)
        shown = {key: value for key, value in pull.items() if key != "looks"}
        if not whole:
            return shown
        if pull["state"] != "open":
            return {**shown, "mergeable": None, "mergeable_state": "unknown"}
        if pull["looks"] > 0:
            pull["looks"] -= 1
            return {**shown, "mergeable": None, "mergeable_state": "unknown"}
        bad = self.git.conflicts(head, pull["base"]["ref"])
        state = "dirty" if bad else self.blocked or "clean"
        return {**shown, "mergeable": not bad, "mergeable_state": state}

    def _list_pulls(self, request: Request) -> Response:
        asked = request.query
        state, owner_branch = asked.get("state", "open"), asked.get("head", "")
        found = [
            self._shown_pull(number, whole=False)
            for number, pull in self.pulls.items()
            if state in ("all", pull["state"])
            and (not owner_branch or owner_branch == f"{OWNER}:{pull['head']['ref']}")
            and asked.get("base", pull["base"]["ref"]) == pull["base"]["ref"]
        ]
        return Response(rows=found[:: -1 if asked.get("direction", "desc") == "desc" else 1])

    def _post_pull(self, request: Request) -> Response:
        self._need("pull_requests")
        branch, base = request.body["head"], request.body["base"]
        head, old = self.git.head(branch), self.git.head(base)
        problem: Json = None
        for field, there in (("head", head), ("base", old)):
            if not there:
                problem = {"resource": "PullRequest", "field": field, "code": "invalid"}
        if problem is None and self.git.is_merged(head, base):
            text = f"No commits between {base} and {branch}"
            problem = {"resource": "PullRequest", "code": "custom", "message": text}
        same = [
            each
            for each in self.pulls.values()
            if (each["head"]["ref"], each["base"]["ref"], each["state"]) == (branch, base, "open")
        ]
        if same:
            text = f"A pull request already exists for {OWNER}:{branch}."
            problem = {"resource": "PullRequest", "code": "custom", "message": text}
        if problem is not None:
            raise Stop(422, "Validation Failed", errors=[problem], documentation_url=PAT)
        return Response(201, self._open(request, branch, base, head, old))

    def _open(self, request: Request, branch: str, base: str, head: str, old: str) -> Json:
        number = next(self._numbers)
        self.pulls[number] = {
            "number": number, "title": request.body["title"], "body": request.body.get("body"),
            "user": self.person(request.user), "state": "open", "draft": False,
            "head": {"ref": branch, "sha": head}, "base": {"ref": base, "sha": old},
            "merged_at": None, "merge_commit_sha": "d" * 40, "looks": self.late,
            "node_id": f"PR_{number}", "updated_at": self.time(),
            "html_url": f"{self.url}/{OWNER}/{REPO}/pull/{number}",
        }  # fmt: skip
        self.made.append(f"pull {branch}")
        if self.ci is not None:
            self.ci(self, branch, head)
        return self._shown_pull(number)

    def _get_pull(self, _request: Request, number: str) -> Response:
        self._one(self.pulls, number)
        return Response(200, self._shown_pull(int(number)))

    def _patch_pull(self, request: Request, number: str) -> Response:
        pull = self._one(self.pulls, number)
        pull |= {key: request.body[key] for key in ("title", "body") if key in request.body}
        return Response(200, self._shown_pull(int(number)))

    def _put_merge(self, request: Request, number: str) -> Response:
        self._need("contents")
        pull = self._one(self.pulls, number)
        head = self._head(int(number))
        if pull["state"] != "open" or pull["looks"] > 0 or self.blocked:
            raise Stop(405, "Pull Request is not mergeable")
        if request.body.get("sha", head) != head:
            raise Stop(409, "Head branch was modified. Review and try the merge again.")
        if self.git.conflicts(head, pull["base"]["ref"]):
            raise Stop(405, "Pull Request is not mergeable")
        text = request.body.get("commit_message", "")
        made = self._merge(int(number), request.body.get("merge_method", "merge"), text)
        return Response(200, {"sha": made, "merged": True, "message": "merged"})

    def _merge(self, number: int, method: str, text: str) -> str:
        pull = self.pulls[number]
        message = f"{pull['title']} (#{number})\n\n{text}"
        made = self.git.merge(pull["head"]["sha"], pull["base"]["ref"], method, message)
        pull |= {"state": "closed", "merged_at": self.time(), "merge_commit_sha": made}
        self.made.append(f"merge {number}")
        if self.ci is not None:
            self.ci(self, pull["base"]["ref"], made)
        self._hook("pull_request", {"action": "closed", "number": number})
        return made

    # --- checks ---

    def _list_runs(self, _request: Request, sha: str) -> Response:
        self._need("checks", "read")
        return Response(rows=self.runs.get(sha, []), inside="check_runs")

    def _list_statuses(self, _request: Request, sha: str) -> Response:
        return Response(rows=self.statuses.get(sha, []), inside="statuses")

    def _run(self, ident: str) -> Json:
        runs = itertools.chain.from_iterable(self.runs.values())
        return self._one({each["id"]: each for each in runs}, ident)

    def _get_run(self, _request: Request, ident: str) -> Response:
        return Response(200, self._run(ident))

    def _list_annotations(self, _request: Request, ident: str) -> Response:
        return Response(rows=self._run(ident)["annotations"])

    def _get_log(self, _request: Request, ident: str) -> Response:
        """Send the reader to another host, with a signed address."""
        if not self.logs.get(int(ident)):
            raise Stop(404, "Not Found")
        away = self.storage or self.url.replace("127.0.0.1", "localhost")
        return Response(302, None, {"location": f"{away}/storage/{ident}?sig=signed"})

    def _stored_log(self, _request: Request, ident: str) -> Response:
        return Response(200, self.logs[int(ident)].encode())

    # --- reviews ---

    def _list_reviews(self, _request: Request, number: str) -> Response:
        return Response(rows=self.reviews.get(int(number), []))

    def _list_remarks(self, _request: Request, number: str) -> Response:
        rows = [each for each in self.remarks.values() if each["number"] == int(number)]
        return Response(rows=rows)

    def _add_remark(
        self, number: int, path: str, line: int, body: str, author: str, **more: int
    ) -> Json:
        ident = next(self._ids)
        self.remarks[ident] = {
            "id": ident, "number": number, "path": path, "line": line, "body": body,
            "user": self.person(author), "pull_request_review_id": more.get("review"),
            "in_reply_to_id": more.get("root"),
        }  # fmt: skip
        return self.remarks[ident]

    def _post_reply(self, request: Request, number: str, ident: str) -> Response:
        root, body = self._one(self.remarks, ident), request.body["body"]
        if root["in_reply_to_id"]:
            raise Stop(422, "Validation Failed")
        self.made.append(f"reply {ident} {body.splitlines()[-1]}")
        review = next(self._ids)  # a reply is a review too
        self.reviews.setdefault(int(number), []).append({
            "id": review, "user": self.person(request.user), "state": "COMMENTED", "body": "",
            "commit_id": self._head(int(number)), "submitted_at": self.time(),
        })  # fmt: skip
        made = self._add_remark(
            int(number), root["path"], root["line"], body, request.user, review=review,
            root=int(ident),
        )  # fmt: skip
        return Response(201, made)

    def _delete_remark(self, _request: Request, ident: str) -> Response:
        self._one(self.remarks, ident)
        del self.remarks[int(ident)]
        return Response(204)

    # --- the merge queue ---

    def _graphql(self, request: Request) -> Response:
        given = request.body["variables"]
        if "enqueuePullRequest" in request.body["query"]:
            number = int(given["id"].removeprefix("PR_"))
            if number in self.queue or self._head(number) != given["head"]:
                error = {"type": "UNPROCESSABLE", "message": "It cannot be enqueued"}
                return Response(200, {"data": None, "errors": [error]})
            self.queue.append(number)
            self.made.append(f"enqueue {number}")
            entry = {"mergeQueueEntry": self._entry(number)}
            return Response(200, {"data": {"enqueuePullRequest": entry}})
        number = given["number"]
        if "lastEditedAt" in request.body["query"]:
            never = {"lastEditedAt": None, "editor": None}
            found = self.edited.get(number, never) if number in self.issues else None
            return Response(200, {"data": {"repository": {"issue": found}}})
        if number not in self.pulls:
            error = {"type": "NOT_FOUND", "message": "Could not resolve to a PullRequest"}
            return Response(200, {"data": {"repository": None}, "errors": [error]})
        found = {
            "id": f"PR_{number}", "headRefOid": self._head(number),
            "mergeQueueEntry": self._entry(number),
        }  # fmt: skip
        return Response(200, {"data": {"repository": {"pullRequest": found}}})

    def _entry(self, number: int) -> Json:
        if number not in self.queue:
            return None
        return {"position": self.queue.index(number) + 1, "state": "QUEUED"}

    # --- git, and webhooks ---

    def _git(self, request: Request, service: str = "info/refs") -> Response:
        return git_over_http(self.git, request, service)

    def _hook(self, event: str, doc: Json) -> None:
        body = json.dumps({**doc, "repository": {"full_name": f"{OWNER}/{REPO}"}}).encode()
        given = {"content-type": "application/json", "x-github-event": event}
        self.deliver({**given, "x-github-delivery": str(uuid.uuid4())}, body)

    def signature(self, secret: str, body: bytes) -> dict[str, str]:
        digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        return {"x-hub-signature-256": f"sha256={digest}"}
