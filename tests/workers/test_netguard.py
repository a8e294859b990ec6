"""The corpus of places an HTTP worker must not reach, and of those it may."""

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.workers.http.netguard import AddressRefused, Guard, canonical, judge

# Each is refused by a guard without an allow list. Grouped by trick.
REFUSED = {
    "loopback, plain and disguised": [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "127.0.1",
        "127.255.255.254",
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0x7F.0.0.1",
        "0x7f.1",
        "0177.0.0.1",
        "0177.0x0.0.1",
        "00000177.00.00.0001",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[0000:0000:0000:0000:0000:0000:0000:0001]",
    ],
    "loopback inside IPv6": [
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[2002:7f00:0001:0:0:0:0:1]",
        "[2001:0:7f00:1::]",
        "[2001::80ff:fffe]",
        "[2a00:1450::5efe:127.0.0.1]",
        "[2a00:1450::200:5efe:10.0.0.1]",
    ],
    "unspecified": ["0.0.0.0", "0", "0x0", "00", "0.1.2.3", "[::]", "[::ffff:0.0.0.0]", "[2002::]"],
    "private": [
        "10.0.0.1",
        "10.255.255.255",
        "167772161",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "192.168.257",
        "0xc0a80001",
        "100.64.0.1",
        "[fc00::1]",
        "[fd12:3456:789a::1]",
        "[::ffff:10.0.0.1]",
        "[64:ff9b::a00:1]",
        "[2002:a00:1::1]",
        "[2002:c0a8:101::1]",
    ],
    "link-local and cloud metadata": [
        "169.254.169.254",
        "169.254.169.254.",
        "2852039166",
        "0xA9FEA9FE",
        "0251.0376.0251.0376",
        "0xa9.0xfe.0xa9.0xfe",
        "169.254.43518",
        "169.254.170.2",
        "169.254.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "[fe80::1]",
        "[fec0::1]",
        "[fd00:ec2::254]",
        "[fd20:ce::254]",
        "[::ffff:169.254.169.254]",
        "[::ffff:a9fe:a9fe]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:a9fe:a9fe::]",
    ],
    "multicast, broadcast, reserved, documentation": [
        "224.0.0.1",
        "239.255.255.250",
        "255.255.255.255",
        "4294967295",
        "240.0.0.1",
        "198.18.0.1",
        "192.0.2.1",
        "198.51.100.1",
        "203.0.113.1",
        "192.88.99.1",
        "[ff02::1]",
        "[2001:db8::1]",
        "[3fff::1]",
        "[4000::1]",
        "[2001:10::1]",
    ],
    "not addresses, not names": [
        "",
        ".",
        "..",
        "127.0.0.256",
        "127.0.0.0.1",
        "4294967296",
        "1.2.3.4.5",
        "0x",
        "0x7f.0x0.0x0.0x1ff",
        "09.0.0.1",
        "1..2",
        "256.1",
        "[fe80::1%eth0]",
        "[::1%25lo]",
        "[::g]",
        "a b",
        "a\nb",
        "a\0b",
        "exa%6dple.com",
        "127。0。0。1",
        "①②⑦.⓪.⓪.①",
        "user@host",
        "host/path",
        "-leading.example",
        "x" * 254,
    ],
}
CASES = [(group, host) for group, hosts in REFUSED.items() for host in hosts]


def test_the_corpus_is_large_enough():
    assert len(CASES) >= 100


@pytest.mark.parametrize(("group", "host"), CASES, ids=[ascii(host)[:40] for _, host in CASES])
async def test_refused(group, host):
    async def never(_host, _port):
        raise AssertionError("a refused host is not resolved")

    with pytest.raises(AddressRefused):
        await Guard().place("http", host, None, never)


PUBLIC = [
    ("8.8.8.8", "8.8.8.8"),
    ("134744072", "8.8.8.8"),
    ("0x08080808", "8.8.8.8"),
    ("010.010.010.010", "8.8.8.8"),
    ("[2a00:1450:4001:80b::200e]", "2a00:1450:4001:80b::200e"),
    ("[::ffff:8.8.8.8]", "8.8.8.8"),
    ("[64:ff9b::808:808]", "64:ff9b::808:808"),
    ("[2002:808:808::1]", "2002:808:808::1"),
    ("172.32.0.1", "172.32.0.1"),
    ("100.128.0.1", "100.128.0.1"),
]


@pytest.mark.parametrize(("host", "address"), PUBLIC)
async def test_public_addresses_pass_in_canonical_form(host, address):
    place = await Guard().place("https", host, None)
    assert place.addresses == (address,)


NAMES = [
    ("localtest.me", ["127.0.0.1"]),
    ("metadata.google.internal", ["169.254.169.254"]),
    ("mixed.example", ["8.8.8.8", "10.0.0.1"]),
    ("mixed6.example", ["2a00:1450::1", "::1"]),
    ("mapped.example", ["::ffff:192.168.1.1"]),
    ("nat64.example", ["64:ff9b::a00:1"]),
    ("zone.example", ["fe80::1%2"]),
    ("zero.example", ["0.0.0.0"]),
    ("nothing.example", []),
    ("flood.example", [f"8.8.{n // 256}.{n % 256}" for n in range(100)]),
    ("odd.example", ["not-an-address"]),
]


@pytest.mark.parametrize(("host", "answer"), NAMES, ids=[name for name, _ in NAMES])
async def test_names_that_lead_to_bad_places_are_refused(host, answer):
    async def resolve(_host, _port):
        return answer

    with pytest.raises(AddressRefused):
        await Guard().place("https", host, None, resolve)


async def test_a_name_is_resolved_once_and_its_addresses_are_what_is_used():
    asked = []

    async def resolve(host, port):
        asked.append((host, port))
        return ["8.8.8.8", "8.8.4.4"] if len(asked) == 1 else ["127.0.0.1"]

    place = await Guard().place("https", "Rebind.Example.", None, resolve)
    assert place.addresses == ("8.8.8.8", "8.8.4.4")
    assert asked == [("rebind.example", 443)]


@pytest.mark.parametrize("scheme", ["file", "gopher", "ftp", "unix", "", "HTTP", "javascript"])
def test_only_http_and_https(scheme):
    with pytest.raises(AddressRefused, match="not http or https"):
        Guard().check(scheme, "example.com", None)


@pytest.mark.parametrize("port", [22, 25, 6379, 8080, 11211, 1])
@pytest.mark.parametrize("host", ["example.com", "8.8.8.8", "[2a00:1450::1]"])
def test_only_usual_ports(host, port):
    with pytest.raises(AddressRefused, match=f"port {port} is not allowed"):
        Guard().check("http", host, port)


ALLOWED = [
    (["127.0.0.1:8000"], "http", "127.0.0.1", 8000),
    (["127.0.0.1:8000"], "http", "0x7f.1", 8000),
    (["127.0.0.1:8000"], "http", "[::ffff:127.0.0.1]", 8000),
    (["127.0.0.1"], "http", "127.0.0.1", None),
    (["127.0.0.1:*"], "http", "127.0.0.1", 1234),
    (["[::1]:9000"], "http", "[::1]", 9000),
    (["::1"], "https", "[::1]", None),
    (["10.0.0.0/8"], "http", "10.9.8.7", None),
    (["169.254.169.254"], "http", "169.254.169.254", None),
    (["api.example.com"], "https", "API.example.com.", None),
    (["api.example.com:8443"], "https", "api.example.com", 8443),
]


@pytest.mark.parametrize(("allow", "scheme", "host", "port"), ALLOWED)
def test_what_is_listed_is_allowed(allow, scheme, host, port):
    Guard.of(allow).check(scheme, host, port)


NOT_OPENED = [
    (["127.0.0.1:8000"], "127.0.0.1", 8001),
    (["127.0.0.1:8000"], "127.0.0.1", None),
    (["127.0.0.1"], "127.0.0.2", None),
    (["127.0.0.1"], "[::1]", None),
    (["10.0.0.0/8"], "10.0.0.1", 8080),
    (["api.example.com"], "evil.example.com", None),
    (["api.example.com"], "api.example.com.evil.com", None),
    (["api.example.com"], "8.8.8.8", None),
    (["api.example.com"], "api.example.com", 8080),
]


@pytest.mark.parametrize(("allow", "host", "port"), NOT_OPENED)
def test_an_entry_opens_no_more_than_it_names(allow, host, port):
    with pytest.raises(AddressRefused, match="to `allow`"):
        Guard.of(allow).check("http", host, port)


@pytest.mark.parametrize(
    ("address", "opened"),
    [
        ("127.0.0.1", True),
        ("10.1.2.3", True),
        ("fd00::1", True),
        ("169.254.169.254", False),
        ("fe80::1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
    ],
)
async def test_a_listed_name_opens_private_places_but_never_metadata(address, opened):
    async def resolve(_host, _port):
        return [address]

    guard = Guard.of(["intranet.example"])
    if opened:
        assert (await guard.place("http", "intranet.example", None, resolve)).addresses
    else:
        with pytest.raises(AddressRefused):
            await guard.place("http", "intranet.example", None, resolve)


async def test_the_host_of_the_declaration_is_reached_beside_an_allow_list_if_public():
    async def resolve(_host, _port):
        return ["10.0.0.1"]

    guard = Guard.of(["other.example"], home=["home.example"])
    guard.check("https", "home.example", None)
    with pytest.raises(AddressRefused, match="a private address"):
        await guard.place("https", "home.example", None, resolve)


@pytest.mark.parametrize(
    "entry",
    ["", "exa mple", "host:", "host:0", "host:70000", "host:http", "10.0.0.1/8", "[::1", "a/b"],
)
def test_entries_that_make_no_sense_are_named(entry):
    with pytest.raises(ValueError, match=r"^'"):
        Guard.of([entry])


def test_messages_say_what_to_do():
    with pytest.raises(AddressRefused) as caught:
        Guard().check("http", "127.0.0.1", 8080)
    assert str(caught.value) == (
        "'127.0.0.1' is a loopback address; to allow it, add '127.0.0.1:8080' to `allow`"
    )


@given(st.ip_addresses(v=4))
def test_canonical_agrees_with_the_c_library(address):
    number = int(address)
    a, b, c, d = address.packed
    for text in (str(address), str(number), hex(number), f"0{number:o}", f"{a}.{b}.{c * 256 + d}"):
        assert canonical(text) == address
        assert socket.inet_aton(text) == address.packed


@given(st.ip_addresses(v=4))
def test_however_it_is_wrapped_an_address_is_judged_the_same(address):
    bare = judge(address)
    packed = int(address)
    for wrapped in (
        ipaddress.IPv6Address(0xFFFF << 32 | packed),
        ipaddress.IPv6Address(0x0064FF9B << 96 | packed),
        ipaddress.IPv6Address(0x2002 << 112 | packed << 80),
    ):
        assert (judge(wrapped) is None) == (bare is None)


@given(st.ip_addresses(v=6))
def test_nothing_python_calls_unreachable_is_let_through(address):
    if judge(address) is None and not address.sixtofour:
        assert not address.is_loopback
        assert not address.is_link_local
        assert not address.is_multicast
        assert not address.is_unspecified
        assert not address.is_site_local
