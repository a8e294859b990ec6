"""The network guard of HTTP workers, against server-side request forgery.

A plan may come from a model and a parameter from a web page, so a URL is a wish of somebody
we do not trust, made with the rights of the machine we run on. The laws:

1. A name is resolved once. Every address of the answer is judged, and one bad address
   refuses them all: a mixed answer is how rebinding looks.
2. What is judged is what is connected to. The caller gets addresses, never the name again.
3. Addresses are judged in canonical form. 2130706433, 0x7f.1, 0177.0.0.1, ::ffff:127.0.0.1,
   64:ff9b::7f00:1 and 2002:7f00:1:: are all 127.0.0.1. Addresses that carry another inside
   are judged by both.
4. The tables are our own. `ipaddress.is_private` changed its mind between patch releases of
   Python; a guard must not.
5. Ports 80 and 443, schemes http and https, unless the allow list says otherwise (for ports).

The allow list: `host`, `host:port`, `address`, `address:port`, `[v6]:port`, `network/bits`;
`:*` stands for any port. An entry opens what it names and no more: a name opens private and
loopback addresses behind that name, but link-local, metadata, multicast and reserved
addresses are opened only by naming the address itself, since no name should ever lead there.
Where an allow list is given, hosts outside it are not reached at all.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    Resolve = Callable[[str, int], Awaitable[list[str]]]

_V4Address = ipaddress.IPv4Address
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

PORTS = {"http": 80, "https": 443}
ANY_PORT = 0
MAX_ADDRESSES = 32
"""A longer DNS answer is refused rather than judged in part."""


class AddressRefused(Exception):
    """An address that must not be reached; the message names the rule and the fix."""


# What each network is, first match wins. Opened by a name (True) or only by address (False).
_V4: tuple[tuple[ipaddress.IPv4Network, str, bool], ...] = tuple(
    (ipaddress.IPv4Network(network), why, by_name)
    for network, why, by_name in (
        ("169.254.169.254/32", "a cloud metadata", False),
        ("169.254.170.2/32", "a cloud metadata", False),
        ("168.63.129.16/32", "a cloud metadata", False),
        ("100.100.100.200/32", "a cloud metadata", False),
        ("192.0.0.192/32", "a cloud metadata", False),
        ("0.0.0.0/8", "an unspecified", False),
        ("10.0.0.0/8", "a private", True),
        ("100.64.0.0/10", "a shared carrier", True),
        ("127.0.0.0/8", "a loopback", True),
        ("169.254.0.0/16", "a link-local", False),
        ("172.16.0.0/12", "a private", True),
        ("192.0.0.0/24", "a reserved", False),
        ("192.0.2.0/24", "a documentation", False),
        ("192.88.99.0/24", "a reserved", False),
        ("192.168.0.0/16", "a private", True),
        ("198.18.0.0/15", "a benchmarking", False),
        ("198.51.100.0/24", "a documentation", False),
        ("203.0.113.0/24", "a documentation", False),
        ("224.0.0.0/4", "a multicast", False),
        ("255.255.255.255/32", "a broadcast", False),
        ("240.0.0.0/4", "a reserved", False),
    )
)
_V6: tuple[tuple[ipaddress.IPv6Network, str, bool], ...] = tuple(
    (ipaddress.IPv6Network(network), why, by_name)
    for network, why, by_name in (
        ("fd00:ec2::254/128", "a cloud metadata", False),
        ("fd20:ce::254/128", "a cloud metadata", False),
        ("::1/128", "a loopback", True),
        ("::/128", "an unspecified", False),
        ("64:ff9b:1::/48", "a local translation (NAT64)", False),
        ("fc00::/7", "a private", True),
        ("fe80::/10", "a link-local", False),
        ("fec0::/10", "a site-local", False),
        ("ff00::/8", "a multicast", False),
        ("2001:db8::/32", "a documentation", False),
        ("3fff::/20", "a documentation", False),
    )
)
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_PROTOCOL = ipaddress.IPv6Network("2001::/23")
_ISATAP = (0x00005EFE, 0x02005EFE)

_NUMBER = re.compile(r"(?:0[xX][0-9a-fA-F]*|[0-9]+)\Z")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]{0,62})(?:\.[a-z0-9_][a-z0-9_-]{0,62})*\Z")


def canonical(host: str) -> Address | None:
    """Return the address that a host text means, in any spelling; None for a name.

    Follows the WHATWG rule: a host whose last label is a number is an IPv4 address or invalid.
    Raise `AddressRefused` for texts that are neither an address nor a possible name.
    """
    text = host.strip("[]") if host.startswith("[") and host.endswith("]") else host
    if ":" in text:
        return _canonical_v6(text)
    text = text.removesuffix(".").lower()
    labels = text.split(".")
    if _NUMBER.match(labels[-1]):
        return _canonical_v4(host, labels)
    if not _NAME.match(text):
        raise AddressRefused(f"{_shown(host)} is not a host name")
    return None


def _canonical_v6(text: str) -> Address:
    if "%" in text:
        raise AddressRefused(f"{_shown(text)} has a zone; addresses of one link cannot be used")
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise AddressRefused(f"{_shown(text)} is not an address") from None
    return address.ipv4_mapped or address


def _canonical_v4(host: str, labels: list[str]) -> ipaddress.IPv4Address:
    """Apply the rules of inet_aton: one to four numbers, decimal, octal or hexadecimal."""
    if len(labels) > 4 or not all(_NUMBER.match(label) for label in labels):
        raise AddressRefused(f"{_shown(host)} is not an address")
    try:
        numbers = [_number(label) for label in labels]
    except ValueError:
        raise AddressRefused(f"{_shown(host)} is not an address") from None
    *high, low = numbers
    if any(number > 255 for number in high) or low >= 256 ** (5 - len(numbers)):
        raise AddressRefused(f"{_shown(host)} is not an address")
    value = low
    for place, number in enumerate(high):
        value += number << (8 * (3 - place))
    return ipaddress.IPv4Address(value)


def _number(label: str) -> int:
    if label[:2] in ("0x", "0X"):
        return int(label[2:] or "0", 16)
    return int(label, 8) if len(label) > 1 and label[0] == "0" else int(label)


def judge(address: Address) -> tuple[str, bool] | None:
    """Return why an address is not public, and whether a name may open it; None if it is public."""
    if isinstance(address, ipaddress.IPv4Address):
        return next(((why, by_name) for network, why, by_name in _V4 if address in network), None)
    if address.ipv4_mapped:
        return judge(address.ipv4_mapped)
    for network, why, by_name in _V6:
        if address in network:
            return why, by_name
    for inner in _carried(address):
        found = judge(inner)
        if found:
            # Never by name: an address hidden inside another is always an attack.
            return f"{found[0]} (inside {address})", False
    if address in _NAT64 or address.sixtofour:
        return None
    if address not in _GLOBAL_V6 or address in _PROTOCOL:
        return "a reserved", False
    return None


def _carried(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """IPv4 addresses inside an IPv6 one, where routers or hosts would unpack them."""
    number = int(address)
    low = ipaddress.IPv4Address(number & 0xFFFFFFFF)
    if address.sixtofour:
        return [address.sixtofour]
    if address.teredo:
        return list(address.teredo)
    if address in _NAT64 or address in _COMPATIBLE or (number >> 32) & 0xFFFFFFFF in _ISATAP:
        return [low]
    return []


@dataclass(frozen=True, slots=True)
class ResolvedAddress:
    """Where to connect: addresses that were judged, and the name they were found under."""

    host: str
    port: int
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """An allow list and the judgement of places against it. See the laws above."""

    names: frozenset[tuple[str, int]] = frozenset()
    addresses: frozenset[tuple[Address, int]] = frozenset()
    networks: tuple[Network, ...] = ()
    home: frozenset[str] = field(default_factory=frozenset)
    """Hosts written in the declaration itself: reached if public, without being listed."""

    @classmethod
    def of(cls, allow: Iterable[str] = (), home: Iterable[str] = ()) -> Guard:
        """Return a guard from allow-list entries.

        Raise `ValueError`, which names a malformed one.
        """
        names: set[tuple[str, int]] = set()
        addresses: set[tuple[Address, int]] = set()
        networks: list[Network] = []
        for entry in allow:
            try:
                if "/" in entry:
                    networks.append(ipaddress.ip_network(entry))
                    continue
                host, port = _split(entry)
                address = canonical(host)
            except (AddressRefused, ValueError) as problem:
                raise ValueError(f"{_shown(entry)}: {problem}") from None
            ports = PORTS.values() if port is None else (port,)
            if address is None:
                names.update((_plain(host), each) for each in ports)
            else:
                addresses.update((address, each) for each in ports)
        return cls(
            frozenset(names), frozenset(addresses), tuple(networks), frozenset(map(_plain, home))
        )

    def __bool__(self) -> bool:
        return bool(self.names or self.addresses or self.networks)

    def check(self, scheme: str, host: str, port: int | None) -> tuple[Address | None, int]:
        """Check what needs no resolver; return the address, if the host is one, and the port."""
        if scheme not in PORTS:
            raise AddressRefused(f"{_shown(scheme)} is not http or https")
        port = PORTS[scheme] if port is None else port
        address = canonical(host)
        if address is not None:
            self.check_address(address, port, host)
        elif not self._named(_plain(host), port):
            self._check_unlisted(host, port, f"{_plain(host)}:{port}")
        return address, port

    def check_address(self, address: Address, port: int, host: str) -> None:
        """Judge one address; `host` is the text or the name that led to it."""
        if self._listed(address, port):
            return
        is_name = canonical(host) is None
        entry = f"{address}:{port}" if isinstance(address, _V4Address) else f"[{address}]:{port}"
        why = judge(address)
        if why and not (is_name and why[1] and self._named(_plain(host), port)):
            verb = "leads to" if is_name else "is"
            what = f"{_shown(host)} {verb} {why[0]} address"
            raise AddressRefused(f"{what}; to allow it, add {_shown(entry)} to `allow`")
        if not is_name:
            self._check_unlisted(host, port, entry)

    def _check_unlisted(self, host: str, port: int, entry: str) -> None:
        """Refuse a host that no entry names, unless there is no list and the port is usual."""
        if self and _plain(host) not in self.home:
            raise AddressRefused(
                f"{_shown(host)} is not in the allow list; add {_shown(entry)} to `allow`"
            )
        if port not in PORTS.values():
            raise AddressRefused(f"port {port} is not allowed; add {_shown(entry)} to `allow`")

    async def place(
        self, scheme: str, host: str, port: int | None, resolve: Resolve | None = None
    ) -> ResolvedAddress:
        """Resolve a host once and judge every address of the answer."""
        literal, number = self.check(scheme, host, port)
        if literal is not None:
            return ResolvedAddress(host, number, (str(literal),))
        answer = await (resolve or resolve_host)(_plain(host), number)
        if not 0 < len(answer) <= MAX_ADDRESSES:
            raise AddressRefused(f"{_shown(host)} resolves to {len(answer)} addresses")
        found: dict[str, None] = {}
        for text in answer:
            address = canonical(text)
            if address is None:
                raise AddressRefused(
                    f"{_shown(host)} resolves to {_shown(text)}, which is no address"
                )
            self.check_address(address, number, host)
            found[str(address)] = None
        return ResolvedAddress(host, number, tuple(found))

    def _named(self, name: str, port: int) -> bool:
        return (name, port) in self.names or (name, ANY_PORT) in self.names

    def _listed(self, address: Address, port: int) -> bool:
        if (address, port) in self.addresses or (address, ANY_PORT) in self.addresses:
            return True
        return port in PORTS.values() and any(address in network for network in self.networks)


async def resolve_host(host: str, port: int) -> list[str]:
    """Return all addresses the operating system knows for a name, most preferred first."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _split(entry: str) -> tuple[str, int | None]:
    """Host and port of an allow-list entry; None when it names no port."""
    host, port = entry, ""
    if entry.startswith("["):
        host, bracket, port = entry[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise ValueError("write [address]:port")
        port = port.removeprefix(":")
    elif entry.count(":") == 1:
        host, _, port = entry.partition(":")
        if not port:
            raise ValueError("the port is missing")
    if port == "*":
        return host, ANY_PORT
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{port} is not a port")
    return host, int(port) if port else None


def _plain(host: str) -> str:
    return host.lower().removesuffix(".").strip("[]")


def _shown(text: str) -> str:
    """Return a text of unknown origin, quoted, on one line and short."""
    return ascii(text[:100])
