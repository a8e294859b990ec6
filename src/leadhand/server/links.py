"""Signed links: one decision, for one person, once, until an expiry.

    ADDRESS/answer/PAYLOAD.MAC

The payload names the run, the question, the digest of the item (`core/review/answer_link.py`), the
person with their account, the channel with the person's address on it, and the expiry. The MAC is
HMAC-SHA256 over the payload as it is written, by a key in a file beside the database. So a link is
void as soon as any of these changes: the item, the token or the address of the person in the
settings, or the key (`leadhand notify revoke`).

A link is no session: it opens a page for its own decision and nothing else. Its holder acts as its
person, so it is sent through that person's own channel only, and its use is recorded in the log of
the run in the same commit as the answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from leadhand.core.hashing import digest
from leadhand.errors import NotAllowed, UsageError
from leadhand.stores.location import home

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leadhand.core.plan.model import Doc
    from leadhand.server.accounts import Accounts, Person
    from leadhand.stores.location import StoreLocation

FORM = "leadhand link 1"
KEY_BYTES = 32
CHANNELS = ("email", "slack", "ntfy")
"""The channels that belong to one person."""
_TOKEN = re.compile(r"([A-Za-z0-9_-]{1,900})\.([A-Za-z0-9_-]{43})", re.ASCII)


class Link(NamedTuple):
    """What a signed link says."""

    run: str
    question: str
    item: str
    """The digest of the item that is to be decided."""
    person: str
    account: str
    """The beginning of the hash of the person's token: a new token voids the link."""
    channel: str
    to: str
    """A digest of the person's address on the channel: another address voids the link."""
    expires: int
    """UTC seconds."""

    @property
    def id(self) -> str:
        """The name under which its use is recorded: one for each item and person.

        Links to the same item by another channel, or from a repeated message, have the same id.
        """
        return digest(FORM, "use", self.run, self.question, self.item, self.person)[:32]

    @property
    def words(self) -> Doc:
        """The details of an answer through this link."""
        return {"id": self.id, "item": self.item, "channel": self.channel}


class LinkRefused(Exception):
    """A link that opens nothing, and why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def unknown_link() -> LinkRefused:
    """Return the refusal of everything that we did not sign, or no longer stand by."""
    return LinkRefused(404, "This link is not valid.")


def key_file(store: StoreLocation) -> Path:
    """Return the file of the key that signs links."""
    path = home(store)
    return path.with_name(f"{path.name}.link-key")


def replace_key(store: StoreLocation, *, first: bool = False) -> Path:
    """Write a new key: every link that was signed before is void. Return its file.

    `first`: only if there is none yet; of two processes at once both take the key of one.
    """
    path = key_file(store)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        made = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(made, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        if first:
            with contextlib.suppress(FileExistsError):
                os.link(beside, path)
            beside.unlink()
        else:
            os.replace(beside, path)  # noqa: PTH105 - the one that replaces on every system
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise NotAllowed(f"{path}: cannot be written: {error.strerror}") from None
    return path


class Links:
    """Signs links and opens them."""

    def __init__(
        self,
        store: StoreLocation,
        accounts: Accounts,
        *,
        address: str = "",
        valid_s: float = 86_400.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Create a signer; without an `address` that people can open, it signs nothing."""
        self._store = store
        self._accounts = accounts
        self._address = address
        self._valid_s = valid_s
        self._now = now

    @property
    def address(self) -> str:
        """The address of the server as people reach it; empty: no link can be made."""
        return self._address

    def made_for(
        self, run: str, question: str, item: str, person: Person, channel: str, address: str
    ) -> Link:
        """Return a link for a person, through their own `address` on a channel."""
        ends = int(self._now() + self._valid_s)
        return Link(
            run, question, item, person.name, person.account, channel, _hashed(address), ends
        )

    def token(self, link: Link) -> str:
        """Return the signed text of a link."""
        if not self._address:
            raise UsageError(
                'there is no address for signed links. Fix: set [server] address = "https://…"'
            )
        payload = urlsafe_b64encode(msgspec.json.encode(link)).rstrip(b"=").decode()
        return f"{payload}.{_mac(self._key(), 'link', payload)}"

    def url(self, link: Link) -> str:
        """Return the address that a person opens."""
        return f"{self._address}/answer/{self.token(link)}"

    def seal(self, token: str) -> str:
        """Return what the form of a link's page carries: proof that the page was opened."""
        return _mac(self._key(), "form", token)

    def is_sealed(self, token: str, seal: str) -> bool:
        """Return whether a seal belongs to the page of this link."""
        return hmac.compare_digest(self.seal(token).encode(), seal.encode())

    def open(self, token: str) -> tuple[Link, Person]:
        """Return a link and its person as the settings have them now. Raise `LinkRefused`."""
        link = self._signed(token)
        person = self._accounts.named(link.person, link.account)
        if person is None or link.channel not in CHANNELS:
            raise unknown_link()
        if _hashed(person.addresses.get(link.channel, "")) != link.to:
            raise unknown_link()
        if link.expires <= self._now():
            raise LinkRefused(410, "This link has expired.")
        return link, person

    def _signed(self, token: str) -> Link:
        parts = _TOKEN.fullmatch(token)
        if parts is None or not self._address or not key_file(self._store).exists():
            raise unknown_link()
        payload, mac = parts.groups()
        # Compared as written: another spelling of the same bytes is another link.
        if not hmac.compare_digest(_mac(self._key(), "link", payload), mac):
            raise unknown_link()
        body = urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        return msgspec.json.decode(body, type=Link)

    def _key(self) -> bytes:
        """Return the key of now; the first use creates it."""
        path = key_file(self._store)
        if not path.exists():
            replace_key(self._store, first=True)
        try:
            if path.stat().st_mode & 0o077:
                raise NotAllowed(f"{path}: others may read this key. Fix: leadhand notify revoke")
            key = path.read_bytes()
        except OSError as error:
            raise NotAllowed(f"{path}: cannot be read: {error.strerror}") from None
        if len(key) != KEY_BYTES:
            raise NotAllowed(f"{path}: holds no key. Fix: leadhand notify revoke")
        return key


def _mac(key: bytes, use: str, text: str) -> str:
    made = hmac.digest(key, f"{FORM} {use}\n{text}".encode(), "sha256")
    return urlsafe_b64encode(made).rstrip(b"=").decode()


def _hashed(address: str) -> str:
    return hashlib.sha256(address.encode()).hexdigest()[:16] if address else "none"
