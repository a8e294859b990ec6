"""Accounts: tokens, people and their roles, and sessions.

A token is 256 random bits. The owner's token is created at the first start and kept beside the
database, in a file that only its owner may read; all others are in leadhand.toml as hashes. A
session is a cookie with the person and the expiry, authenticated by a key derived from the owner's
token and the person's own: it survives a restart of the server, and ends when either token changes.
A session that was signed out is recorded in a file (`SignedOut`), so that it stays invalid.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from leadhand.errors import NotAllowed, StoreError, UsageError
from leadhand.server.rules import OWNER
from leadhand.stores.location import home

if TYPE_CHECKING:
    from pathlib import Path

    from leadhand.server.settings import Member
    from leadhand.stores.location import StoreLocation


# Sessions signed out before their expiry, kept across restarts.
#
# A session needs no memory of ours: its cookie holds the person and the expiry. So a signed-out
# session must be remembered until its expiry, or a copy of its cookie would be valid again after a
# restart. Each is a line in a file beside the database: a hash of the cookie, and its expiry. If
# the line cannot be written, the sign-out fails and the caller is told.


SIGNED_OUT_MAX = 10_000


class SignedOut:
    """The sessions signed out before their expiry; without a path, in memory only."""

    def __init__(self, path: Path | None = None, now: float = 0.0) -> None:
        self._path = path
        self._ends: dict[str, int] = {}
        if path is not None:
            self._load(path, now)

    def __contains__(self, cookie: str) -> bool:
        return _name(cookie) in self._ends

    def add(self, cookie: str, ends: int, now: float) -> None:
        """Invalidate a session; durable on return."""
        if cookie in self:
            return
        if self._path is not None:
            self._write(self._path, f"{_name(cookie)} {ends}\n", os.O_APPEND)
        kept = {name: until for name, until in self._ends.items() if until > now}
        while len(kept) >= SIGNED_OUT_MAX:
            kept.pop(next(iter(kept)))
        self._ends = kept | {_name(cookie): ends}

    def _load(self, path: Path, now: float) -> None:
        try:
            lines = path.read_text(encoding="ascii", errors="replace").splitlines()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror})") from None
        pairs = (line.split(" ") for line in lines)
        found = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
        self._ends = {name: ends for name, ends in found.items() if ends > now}
        if len(self._ends) < len(lines):
            spare = path.with_name(f"{path.name}.new")
            text = "".join(f"{name} {ends}\n" for name, ends in self._ends.items())
            self._write(spare, text, os.O_TRUNC)
            spare.replace(path)

    def _write(self, path: Path, text: str, how: int) -> None:
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600)
            try:
                os.write(file, text.encode("ascii"))
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written ({error.strerror})") from None


def _name(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()


COOKIE = "leadhand_session"
"""The name of the session cookie, for clients that name it themselves; see `Accounts.cookie`."""
SESSION_S = 7 * 24 * 3600
LOOK_S = 1.0
"""The interval of looks at the settings for added or removed people."""
TRIES_MAX = 10
"""Wrong tokens from one address, or of one spelling, before a delay is imposed."""
TRIES_S = 60.0
TRIED_MAX = 8192
_COOKIE = re.compile(r"[0-9a-f]{20}\.[0-9]{1,12}\.[0-9a-f]{16}\.[0-9a-f]{64}", re.ASCII)


class Person(NamedTuple):
    """An authenticated person."""

    name: str
    role: str
    digest: str
    """The hash of their token."""
    key: str = ""
    """The file of the key that signs for them."""
    owner: bool = False
    """Whether the owner's token is theirs."""
    addresses: Mapping[str, str] = MappingProxyType({})
    """The person's own address on each channel of notifications that they have."""

    @property
    def account(self) -> str:
        """The beginning of the hash of the token, enough to find the person again."""
        return _short(self.digest)

    @property
    def rank(self) -> str:
        """The role, or `owner`: what routes ask for."""
        return OWNER if self.owner else self.role


def new_token() -> str:
    """Return a new random token."""
    return f"lh_{secrets.token_urlsafe(32)}"


def digest_of(token: str) -> str:
    """Return the hash of a token, as kept in settings."""
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def token_file(store: StoreLocation) -> Path:
    """Return the file of the owner's token."""
    path = home(store)
    return path.with_name(f"{path.name}.token")


def signed_out_file(store: StoreLocation) -> Path:
    """Return the file of signed-out sessions."""
    path = home(store)
    return path.with_name(f"{path.name}.signed-out")


def owner_token(store: StoreLocation) -> tuple[str, bool]:
    """Return the owner's token, and whether it was created now."""
    path = token_file(store)
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _read(path), False
    token = new_token()
    with os.fdopen(made, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(file.fileno())
    return token, True


def _read(path: Path) -> str:
    try:
        if path.stat().st_mode & 0o077:
            raise NotAllowed(f"{path}: others may read this token. Fix: chmod 600 {path}")
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise NotAllowed(f"{path}: cannot be read: {error.strerror}") from None
    if len(token) < 32:
        raise UsageError(
            f"{path}: holds no token. Fix: remove the file, and the server writes a new one"
        )
    return token


class Accounts:
    """All people who may sign in."""

    def __init__(
        self,
        owner: str,
        token: str,
        configured: Callable[[], Mapping[str, Member]],
        *,
        owner_key: str = "",
        signed_out: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._owner = Person(owner, "approver", digest_of(token), owner_key, owner=True)
        self._secret = hashlib.sha256(b"leadhand session " + token.encode()).digest()
        self._configured = configured
        self._now = now
        self._looked = 0.0
        self._people: dict[str, Person] = {}
        self._signed_out = SignedOut(signed_out, now())
        self._look()

    @property
    def cookie(self) -> str:
        """The name that the cookie of a browser has.

        A browser sends the cookies of a machine to all of its ports: with one name, a sign-in to
        one server of a machine would end that to another.
        """
        return f"{COOKIE}_{hashlib.sha256(self._secret).hexdigest()[:8]}"

    def by_token(self, token: str) -> Person | None:
        """Return the person with a token, or None; all are compared, each in constant time."""
        self._refresh()
        found = self._holder_of(token)
        if found is None:
            self._look()  # it may have been added a moment ago
            found = self._holder_of(token)
        return found

    def has(self, person: Person) -> bool:
        """Return whether a person still has an account, in the same role."""
        self._refresh()
        return self._people.get(_short(person.digest)) == person

    def named(self, name: str, account: str) -> Person | None:
        """Return the person of this name and account as the settings have them now, or None."""
        self._look()
        found = self._people.get(account)
        return found if found is not None and found.name == name else None

    def everyone(self) -> list[Person]:
        """Return all people as the settings have them now, the owner first."""
        self._look()
        return list(self._people.values())

    def sign_in(self, person: Person) -> tuple[str, int]:
        """Return a new session cookie, and its expiry in seconds."""
        ends = int(self._now()) + SESSION_S
        words = f"{_short(person.digest)}.{ends}.{secrets.token_hex(8)}"
        return f"{words}.{self._mac(words, person)}", ends

    def by_session(self, cookie: str) -> tuple[Person, int] | None:
        """Return the person and the expiry of a session; None for one that is over or forged."""
        words, _, mac = cookie.rpartition(".")
        parts = words.split(".")
        if not _COOKIE.fullmatch(cookie):
            return None
        self._refresh()
        person, ends = self._people.get(parts[0]), int(parts[1])
        if person is None or not hmac.compare_digest(self._mac(words, person), mac):
            return None
        if ends <= self._now() or cookie in self._signed_out:
            return None
        return person, ends

    def sign_out(self, cookie: str) -> None:
        """Invalidate a session before its expiry."""
        found = self.by_session(cookie)
        if found is not None:
            self._signed_out.add(cookie, found[1], self._now())

    def _holder_of(self, token: str) -> Person | None:
        given, found = digest_of(token), None
        for person in self._people.values():
            if hmac.compare_digest(person.digest, given):
                found = person
        return found

    def _mac(self, words: str, person: Person) -> str:
        key = hmac.digest(self._secret, person.digest.encode(), "sha256")
        return hmac.new(key, words.encode(), "sha256").hexdigest()

    def _refresh(self) -> None:
        if time.monotonic() - self._looked > LOOK_S:
            self._look()

    def _look(self) -> None:
        self._looked = time.monotonic()
        found = [self._owner]
        for name, member in self._configured().items():
            own = MappingProxyType(member.addresses)
            found.append(Person(name, member.role, member.token, member.key, addresses=own))
        self._people = {_short(person.digest): person for person in found}


def _short(digest: str) -> str:
    """Return a prefix of a token's hash, enough to find it again."""
    return digest.removeprefix("sha256:")[:20]


class Tries:
    """Wrong tokens, counted by address and by token: after a few, the next wrong one must wait.

    A correct token is never counted and never waits, since attackers may share an address with
    users: behind a proxy all requests have the proxy's.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._wrong: dict[str, tuple[int, float]] = {}

    def wrong(self, address: str, token: str) -> int:
        """Count a wrong token; return how many seconds the next one must wait, 0 at first."""
        return max(self._counted(f"from {address}"), self._counted(digest_of(token)))

    def _counted(self, what: str) -> int:
        now = self._now()
        count, since = self._wrong.pop(what, (0, now))
        if now - since > TRIES_S:
            count, since = 0, now
        if len(self._wrong) >= TRIED_MAX:
            self._wrong.pop(next(iter(self._wrong)))
        self._wrong[what] = (count + 1, since)
        return int(since + TRIES_S - now) + 1 if count >= TRIES_MAX else 0
