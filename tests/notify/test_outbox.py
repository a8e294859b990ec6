"""The outbox: repeated until it arrives, sent once, not lost by a restart, no harm to anybody."""

import asyncio
import signal
import subprocess
import sys

import pytest

from leadhand.notify.channels import NotDelivered
from leadhand.notify.message import Message
from leadhand.notify.outbox import Delivery, Outbox
from tests.support.services import until

QUICK = (0.0, 0.0, 0.0)


class Flaky:
    """A channel that fails as it is told."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.tried = 0
        self.sent = []

    async def send(self, to, message):
        self.tried += 1
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        self.sent.append((to, message.id))

    async def check(self):
        return ""


class Desk:
    """Makes messages; says what it was told."""

    def __init__(self, channel, file=None, pauses=QUICK, **more):
        self.said = []
        self.gone = set()
        self.outbox = Outbox({"email": channel}, self.make, self.said.append, file, pauses, **more)

    async def make(self, delivery):
        if delivery.id in self.gone:
            return None
        return Message(id=delivery.id, kind=delivery.kind, run=delivery.run, title="t")


def delivery(ident="d1", **more):
    given = {"channel": "email", "to": "ann@example.com", "kind": "waiting", "run": "r"}
    return Delivery(id=ident, person="ann", **(given | more))


async def test_a_message_is_repeated_until_it_arrives_and_sent_once(tmp_path):
    channel = Flaky(NotDelivered("busy"), NotDelivered("busy"))
    desk = Desk(channel, tmp_path / "outbox")
    for _ in range(3):
        desk.outbox.put(delivery())
    await until(lambda: channel.sent)
    await desk.outbox.finish()
    assert (channel.sent, channel.tried) == ([("ann@example.com", "d1")], 3)
    assert desk.said == ["notify: email to ann: busy; it is tried again"]
    assert not desk.outbox.failures
    desk.outbox.put(delivery())
    await desk.outbox.finish()
    assert channel.tried == 3
    assert (tmp_path / "outbox").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("failures", [[NotDelivered("no", final=True)], [NotDelivered("down")] * 9])
async def test_a_message_that_cannot_arrive_is_given_up_and_said(failures):
    channel = Flaky(*failures)
    desk = Desk(channel)
    desk.outbox.put(delivery())
    await until(lambda: any("given up" in each for each in desk.said))
    await desk.outbox.finish()
    assert (channel.sent, channel.tried) == ([], min(len(failures), len(QUICK) + 1))
    assert desk.outbox.failures["email"].text == str(failures[0])


async def test_a_restart_loses_nothing_and_repeats_nothing(tmp_path):
    file = tmp_path / "outbox"
    down = Flaky(*[NotDelivered("down")] * 50)
    first = Desk(down, file, (3600.0,))
    first.outbox.put(delivery("d1"))
    first.outbox.put(delivery("d2"))
    await until(lambda: down.tried == 2)
    await first.outbox.close()
    with file.open("ab") as torn:
        torn.write(b'{"put":{"id":"d3","chan')
    up = Flaky()
    second = Desk(up, file)
    second.outbox.load()
    await until(lambda: len(up.sent) == 2)
    await second.outbox.finish()
    third = Desk(up, file)
    third.outbox.load()
    third.outbox.put(delivery("d1"))
    await third.outbox.finish()
    assert sorted(up.sent) == [("ann@example.com", "d1"), ("ann@example.com", "d2")]


async def test_what_is_no_longer_asked_is_not_sent(tmp_path):
    channel = Flaky()
    desk = Desk(channel, tmp_path / "outbox")
    desk.gone = {"d1"}
    desk.outbox.put(delivery())
    await desk.outbox.finish()
    assert channel.tried == 0


async def test_a_broken_channel_harms_nobody():
    channel = Flaky(RuntimeError("a bug"))
    desk = Desk(channel)
    desk.outbox.put(delivery())
    desk.outbox.put(delivery("d2"))
    desk.outbox.put(delivery("d3", channel="slack"))
    await desk.outbox.finish()
    assert (channel.sent, desk.said) == (
        [("ann@example.com", "d2")],
        ["notify: RuntimeError: a bug"],
    )


class Slow(Flaky):
    """A channel that others can overtake."""

    async def send(self, to, message):
        await asyncio.sleep(0.01)
        await super().send(to, message)


async def test_servers_that_share_a_file_send_each_message_once(tmp_path):
    """Whoever notices it, also at the same moment, and however often a try fails."""
    file, idents = tmp_path / "outbox", [f"d{n}" for n in range(30)]
    channels = [Slow(*[NotDelivered("busy")] * 3) for _ in range(3)]
    desks = [Desk(channel, file, (0.0,) * 9) for channel in channels]
    for desk in desks:
        desk.outbox.load()
    for ident in idents:
        for desk in desks:
            desk.outbox.put(delivery(ident))
    late = Desk(Slow(), file)
    late.outbox.load()
    for desk in (*desks, late):
        await until(lambda desk=desk: not desk.outbox._tasks)
    sent = [ident for channel in channels for _, ident in channel.sent]
    assert sorted(sent + [ident for _, ident in late.outbox.channels["email"].sent]) == sorted(
        idents
    )


DYING = """
import asyncio, sys
from pathlib import Path
from leadhand.notify.message import Message
from leadhand.notify.outbox import Delivery, Outbox

class Stuck:
    async def send(self, to, message):
        print("trying", message.id, flush=True)
        await asyncio.sleep(600)

async def make(each):
    return Message(id=each.id, kind=each.kind, run=each.run, title="t")

async def main():
    outbox = Outbox({"email": Stuck()}, make, print, Path(sys.argv[1]), (), claim_s=1.5)
    outbox.put(Delivery("d1", "email", "ann@example.com", "waiting", "r", person="ann"))
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_message_of_a_process_that_died_is_sent_again_under_its_id(tmp_path):
    """Not while the other may still be sending it; then again, for it may not have arrived."""
    file = tmp_path / "outbox"
    command = [sys.executable, "-c", DYING, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "trying d1\n"
        channel = Flaky()
        desk = Desk(channel, file)
        desk.outbox.load()
        desk.outbox.put(delivery())
        await asyncio.sleep(0)
        assert channel.tried == 0, "the other has claimed it"
        other.send_signal(signal.SIGKILL)
    await until(lambda: channel.sent)
    assert channel.sent == [("ann@example.com", "d1")]
    await desk.outbox.finish()
    again = Desk(Flaky(), file)
    again.outbox.load()
    again.outbox.put(delivery())
    await again.outbox.finish()
    assert again.outbox.channels["email"].sent == []
