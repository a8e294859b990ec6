"""Anchors: what a line holds, and what the lines show of a log and of each other."""

import asyncio

import pytest

from leadhand.app.anchors import append
from leadhand.audit.anchors import FIRST, Anchor, line_of, lines_in, read_line, verify_anchors
from leadhand.audit.chain import GENESIS, Batch, link_batch
from leadhand.audit.keys import PrivateKey, PublicKey
from leadhand.errors import UsageError

KEY = PrivateKey.new()


def batches(count, salt=b""):
    found, prev = {}, GENESIS
    for number in range(1, count + 1):
        prev = link_batch(prev, number, number, [salt.rjust(32, b"x")])
        found[number] = Batch(number, number, number, prev)
    return found


def lines(log, *numbers, signer=None):
    found = []
    for number in numbers:
        before = found[-1] if found else b""
        found.append(line_of(log[number], "db", 1000 + number, before, signer))
    return found


def test_a_line_says_where_the_log_stood():
    log = batches(3)
    anchor = read_line(lines(log, 3)[0])
    assert anchor == Anchor(1, "db", 3, 3, log[3].hash.hex(), 1003, FIRST)


def test_an_honest_log_agrees_with_its_anchors():
    log = batches(9)
    for signer, check in ((None, None), (KEY, KEY.public.check)):
        found = verify_anchors(lines(log, 2, 5, 8, signer=signer), log, "db", check)
        assert (found.problems, found.held.number) == ([], 8)
        assert found.signed == (3 if signer else 0)


def test_a_cut_end_shows():
    log = batches(9)
    anchored = lines(log, 2, 8)
    cut = {number: batch for number, batch in log.items() if number < 7}
    (problem,) = verify_anchors(anchored, cut, "db").problems
    assert "commit 7 to 8 is gone" in problem.message
    assert problem.rule == "anchor"
    (problem,) = verify_anchors(anchored, {}, "db").problems
    assert "commit 1 to 2 is gone" in problem.message


def test_a_log_that_was_written_anew_shows_and_says_where():
    log = batches(9)
    anchored = lines(log, 2, 5, 8)
    anew = {**log, **{n: b for n, b in batches(9, b"y").items() if n > 3}}
    found = verify_anchors(anchored, anew, "db")
    (problem,) = found.problems
    assert "entry 3 to 5" in problem.message
    assert found.held.number == 2


def test_another_database_shows():
    log = batches(2)
    (problem,) = verify_anchors(lines(log, 2), log, "other").problems
    assert "another database" in problem.message


@pytest.mark.parametrize("signer", [None, KEY])
def test_every_bit_of_a_line_counts(signer):
    log = batches(4)
    honest = lines(log, 1, 3, 4, signer=signer)
    check = signer.public.check if signer else None
    for bit in range(len(honest[1]) * 8):
        changed = bytearray(honest[1])
        changed[bit // 8] ^= 1 << bit % 8
        found = verify_anchors([honest[0], bytes(changed), honest[2]], log, "db", check)
        assert found.problems, bytes(changed)


def test_lines_cannot_be_taken_out_put_in_or_swapped():
    log = batches(4)
    a, b, c = lines(log, 1, 3, 4)
    for other in ([a, c], [b, c], [a, c, b], [a, b, b, c], [a, a, b, c]):
        assert verify_anchors(other, log, "db").problems


def test_what_is_not_signed_by_the_key_does_not_count():
    log = batches(4)
    check = KEY.public.check
    assert verify_anchors(lines(log, 4), log, "db", check).problems
    assert verify_anchors(lines(log, 4, signer=PrivateKey.new()), log, "db", check).problems
    assert verify_anchors([], log, "db", check).problems
    signed = lines(log, 2, signer=KEY)
    unsigned = line_of(log[4], "db", 1, signed[0], None)
    assert verify_anchors([*signed, unsigned], log, "db", check).problems


def test_anchors_from_before_the_key_are_held_by_the_first_signed_one():
    log = batches(4)
    old = lines(log, 1)
    new = line_of(log[4], "db", 1, old[0], KEY)
    assert not verify_anchors([*old, new], log, "db", KEY.public.check).problems


def test_a_file_grows_by_lines_that_say_something_new(tmp_path):
    log, file = batches(4), tmp_path / "a"
    assert append(file, log[2], "db", None)
    assert not append(file, log[2], "db", None)
    assert append(file, log[4], "db", None)
    assert not append(file, log[3], "db", None)
    found = lines_in(file.read_bytes())
    assert [read_line(line).number for line in found] == [2, 4]
    assert not verify_anchors(found, log, "db").problems
    assert file.stat().st_mode & 0o777 == 0o600


def test_half_a_line_is_no_anchor_and_in_nobodys_way(tmp_path):
    log, file = batches(4), tmp_path / "a"
    append(file, log[2], "db", None)
    with file.open("ab") as opened:
        opened.write(b'{"anchor":1,"data')
    assert len(lines_in(file.read_bytes())) == 1
    append(file, log[4], "db", None)
    assert not verify_anchors(lines_in(file.read_bytes()), log, "db").problems


def test_keys_are_read_back_and_strangers_refused():
    again = PrivateKey.of(KEY.pem())
    assert again.name == KEY.name == PublicKey.of(KEY.public.pem()).name
    assert PublicKey.of(KEY.public.raw).check(b"m", again.sign(b"m"))
    assert not KEY.public.check(b"m", PrivateKey.new().sign(b"m"))
    for wrong in (b"", b"nothing", KEY.public.pem()):
        with pytest.raises(UsageError):
            PrivateKey.of(wrong)
    with pytest.raises(UsageError):
        PublicKey.of(KEY.pem())


def test_ends_of_runs_close_together_share_an_anchor(tmp_path):
    """A thousand runs that end at once cost one line, not a thousand."""
    from leadhand import Lead, worker

    @worker
    async def say() -> str:
        return "hello"

    lead = Lead([say], store=tmp_path / "a.db")
    plan = {"goal": "g", "steps": [{"id": "a", "worker": "say"}]}

    async def many():
        async with lead.hosting():
            await asyncio.gather(*(lead.run(plan) for _ in range(50)))

    asyncio.run(many())
    assert len(lines_in((tmp_path / "a.db.anchors").read_bytes())) <= 3
