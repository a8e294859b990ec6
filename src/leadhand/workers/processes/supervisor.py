"""The supervisor: a small program that starts every command; no command outlives it.

Run as ``python -I -S supervisor.py SOCKET_FD HOST_PID`` by ``processes.py``, one per host;
it imports nothing of Leadhand. The law behind it: a retry must never run beside an orphan.

Laws
    1. What is started here is known here before it runs: the fork happens in this process, so
       there is no moment between "spawned" and "registered".
    2. When the host is gone (it died, or hung up) everything is killed at once and seen dead, and
       the supervisor leaves (SystemExit). No request is served after that.
    3. A command is over, and ``exit`` reported, when its processes are gone, not when the main
       one is. What cannot be killed within ``GIVE_UP_S`` (uninterruptible, or another user's by
       setuid) is named in ``survivors``, never passed over in silence.
    4. Signals go only to what cannot have been replaced: our own unreaped children, and process
       groups that such a child is in. Nothing here blocks, apart from the poll.

Theory of operation
    A command is a session of its own, dies with us (PR_SET_PDEATHSIG), and carries
    ``LEADHAND_SPAWN=<marker>`` in its environment. We are a *child subreaper*: a process whose
    parent dies becomes our child, however often it forked or called setsid. All rests on this:
    once a main process is dead, what is left of its command hangs below direct children of ours
    that are no main process ("strays"). Kill those, and their children surface as strays in turn;
    no strays, nothing left. One small file lists our children, so a command that leaves nothing
    costs no scan of /proc. A dead main process is first seen with WNOWAIT: until it is reaped its
    group number is not used again, so the group can be killed.

    Whose is a stray when several commands run? Its session says so, else its marker. A daemon that
    hides both (own session and ``env -i``, or memory we may not read) belongs to one of the
    commands that were there when it was first seen, and is killed with the last of them, the one
    case in which a step can end before its processes do; or with the first that is ``strict``.

    During an ``end`` with grace the members of the command's group keep that grace even if the
    main process left first (``sh -c 'terraform ...'``); whoever left the group has none.

The wire is described in ``processes.py``. Without Linux (macOS) there is no subreaper, no death
signal and no /proc: groups are killed, a daemon that left its group is not found.
"""

# ruff: noqa: PTH110, PTH112, PTH123, PTH208  (pathlib is slow to import)
import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

PRCTL: Any = None
with contextlib.suppress(ImportError, OSError, AttributeError):
    PRCTL = __import__("ctypes").CDLL(None).prctl
ME, MARKER = os.getpid(), b"\0LEADHAND_SPAWN="
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GIVE_UP_S = 10.0
SHUTDOWN_S_MAX = 30.0
UNSURE_S = 0.05  # how long an empty environment may mean a process in the middle of exec


class SupervisedCommand:
    """One command, from its fork until nothing of it is left."""

    def __init__(self, request: dict[str, Any], pid: int, gate: int) -> None:
        self.number, self.pid, self.strict = request["id"], pid, request["strict"]
        self.marker = request["marker"].encode("latin-1")
        self.gate = gate  # closes at exec, or brings the error; -1 once read
        self.status: int | None = None
        self.kill_at: float | None = None  # set while a grace runs
        self.give_up_at = 0.0


class Stray:
    """A child of the supervisor that is no main process: left behind by some command."""

    def __init__(self, born: int) -> None:
        self.owner: SupervisedCommand | None = None
        self.born = born  # the youngest command there was when this was first seen
        self.unsure_until = time.monotonic() + UNSURE_S

    def goes_with(self, command: SupervisedCommand) -> bool:
        if self.owner is not None or not command.strict:
            return self.owner is command
        return command.number <= self.born and time.monotonic() >= self.unsure_until


class Supervisor:
    """The commands, the strays, and the loop that keeps both in order."""

    def __init__(self, link: socket.socket, host_pid: int) -> None:
        self.link = link
        link.settimeout(0)
        link.set_inheritable(False)
        self.inbox, self.outbox = bytearray(), bytearray()
        self.descriptors: list[int] = []
        self.commands: dict[int, SupervisedCommand] = {}  # by number, until over
        self.owners: dict[int | bytes, SupervisedCommand] = {}  # the same, by session and by marker
        self.mains: dict[int, SupervisedCommand] = {}  # by pid, until reaped
        self.gates: dict[int, SupervisedCommand] = {}  # by descriptor, until exec
        self.closing: dict[int, SupervisedCommand] = {}  # being killed, or main process dead
        self.graced: dict[int, SupervisedCommand] = {}  # with a kill_at
        self.strays: dict[int, Stray] = {}
        self.unsure, self.youngest = False, 0
        self.boot_id = slurp("/proc/sys/kernel/random/boot_id").decode().strip()
        self.wake, far_wake = os.pipe()
        os.set_blocking(far_wake, False)
        signal.set_wakeup_fd(far_wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: None)  # commands would inherit SIG_IGN
        self.poller, self.hangup = select.poll(), select.poll()
        self.poller.register(link, select.POLLIN)
        self.poller.register(self.wake, select.POLLIN)
        self.hangup.register(link, 0)
        # The host's process is watched too: a fork of it may hold the socket open after its death.
        with contextlib.suppress(OSError, AttributeError):  # AttributeError: not Linux
            host = os.pidfd_open(host_pid)
            self.hangup.register(host, select.POLLIN)
            self.poller.register(host, select.POLLIN)
        if os.getppid() != host_pid:
            raise SystemExit

    def run(self) -> NoReturn:
        while True:
            events = dict(self.poller.poll(self.timeout_ms()))
            if self.hangup.poll(0):
                raise SystemExit
            if self.wake in events:
                os.read(self.wake, 4096)
            for fd in events.keys() & self.gates.keys():
                self.started(self.gates[fd])
            if events.get(self.link.fileno(), 0) & select.POLLIN:
                self.receive()
            self.reap()
            self.expire()
            self.settle()
            self.flush()

    def timeout_ms(self) -> float | None:
        """Return the time until the next grace ends, or until the next look at a slow kill."""
        times = [command.kill_at or 0.0 for command in self.graced.values()]
        now = time.monotonic()
        if self.unsure or any(command.kill_at is None for command in self.closing.values()):
            times.append(now + 0.01)
        return max(0.0, (min(times) - now) * 1000 + 1) if times else None

    def receive(self) -> None:
        flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        try:
            data, descriptors, got, _ = socket.recv_fds(self.link, 65536, 16, flags)
        except OSError:
            return  # nothing there after all; or broken, as the next turn sees
        if got & socket.MSG_CTRUNC:
            raise RuntimeError("descriptors were lost on the way: too many open files")
        if not data:
            raise SystemExit
        for fd in descriptors:
            os.set_inheritable(fd, False)
        self.descriptors.extend(descriptors)
        self.inbox += data
        while len(self.inbox) >= (end := 4 + int.from_bytes(self.inbox[:4], "big")):
            request = json.loads(self.inbox[4:end])
            del self.inbox[:end]
            if request["op"] == "spawn":
                self.spawn(request)
            elif command := self.commands.get(request["id"]):
                if request["op"] == "end":
                    self.end(command, request["grace_s"])
                elif command.pid in self.mains:
                    signal_main(command.pid, request["sig"])

    def send(self, **message: Any) -> None:
        body = json.dumps(message).encode()
        self.outbox += len(body).to_bytes(4, "big") + body

    def flush(self) -> None:
        with contextlib.suppress(OSError):  # full: later; broken: the next turn sees the hang-up
            del self.outbox[: self.link.send(self.outbox)]
        self.poller.modify(self.link, select.POLLIN | (select.POLLOUT if self.outbox else 0))

    def spawn(self, request: dict[str, Any]) -> None:
        if self.hangup.poll(0):
            raise SystemExit
        descriptors, self.descriptors = self.descriptors[:3], self.descriptors[3:]
        gate = -1
        try:
            gate, far_gate = os.pipe()
            descriptors.append(far_gate)
            pid = os.fork()
            if pid == 0:
                become(request, descriptors)
        except OSError as error:
            self.send(id=request["id"], error="fork", errno=error.errno)
            descriptors += [gate] if gate >= 0 else []
            return
        finally:
            for fd in descriptors:
                os.close(fd)
        command = SupervisedCommand(request, pid, gate)
        self.youngest = command.number
        self.commands[command.number] = self.mains[pid] = self.gates[gate] = command
        self.owners[pid] = self.owners[command.marker] = command
        self.poller.register(gate, select.POLLIN)

    def started(self, command: SupervisedCommand) -> None:
        """Handle the closed gate: the program runs, or the reason why not has arrived."""
        problem = os.read(command.gate, 64).decode()
        self.poller.unregister(command.gate)
        del self.gates[command.gate]
        os.close(command.gate)
        command.gate = -1
        if problem:
            self.send(id=command.number, error=problem.split()[0], errno=int(problem.split()[1]))
            self.forget(command)
        else:
            start = int((stat_of(command.pid)[19:20] or [b"0"])[0])
            self.send(id=command.number, pid=command.pid, start_time=start, boot_id=self.boot_id)

    def end(self, command: SupervisedCommand, grace_s: float) -> None:
        if command.number in self.closing and command.kill_at is None:
            return
        command.kill_at = min(time.monotonic() + grace_s, command.kill_at or float("inf"))
        self.graced[command.number] = command
        if command.pid in self.mains and grace_s > 0:
            signal_main(command.pid, signal.SIGTERM)
            signal_main(command.pid, signal.SIGCONT)

    def expire(self) -> None:
        """Graces that are over: from here on the command is killed at every turn of the loop."""
        for command in [c for c in self.graced.values() if (c.kill_at or 0.0) <= time.monotonic()]:
            command.kill_at = None
            self.close(self.graced.pop(command.number))

    def close(self, command: SupervisedCommand) -> None:
        command.give_up_at = (command.kill_at or time.monotonic()) + GIVE_UP_S
        self.closing[command.number] = command

    def reap(self) -> None:
        for pid, status in self.dead():
            self.strays.pop(pid, None)
            command = self.mains.pop(pid, None)
            if command is not None and command.gate >= 0:
                self.started(command)
            if command is not None and command.number in self.commands:
                command.status = status
                self.close(command)

    def dead(self) -> Iterator[tuple[int, int]]:
        """Our dead children; the group of a main process is killed before it is reaped (law 4)."""
        with contextlib.suppress(ChildProcessError):
            while True:
                if hasattr(os, "waitid"):
                    info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                    pid, status = info.si_pid if info else 0, None
                else:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid in self.mains and self.mains[pid].kill_at is None:
                    signal_main(pid, signal.SIGKILL)
                status = os.waitpid(pid, 0)[1] if status is None else status
                yield pid, os.waitstatus_to_exitcode(status)

    def settle(self) -> None:
        """Kill what outlived its command; report the commands of which nothing is left."""
        self.unsure = False
        if not self.closing:
            return
        self.adopt()
        for command in list(self.closing.values()):
            left = [pid for pid, stray in self.strays.items() if stray.goes_with(command)]
            for pid in left:
                if command.kill_at is None or ask(os.getpgid, pid) != command.pid:
                    kill_stray(pid)
            if command.status is None:
                signal_main(command.pid, signal.SIGKILL)
                left.append(command.pid)
            if not (left or self.unsure) or (left and time.monotonic() > command.give_up_at):
                self.send(id=command.number, exit=command.status, survivors=left)
                self.forget(command)

    def adopt(self) -> None:
        """Find each stray's owner; unsure while one may yet be a process in the middle of exec."""
        for pid in children():
            if pid not in self.mains and pid not in self.strays:
                self.strays[pid] = Stray(self.youngest)
        for pid, stray in self.strays.items():
            if stray.owner is not None:
                continue
            environ = slurp(f"/proc/{pid}/environ")
            marker = (b"\0" + environ).partition(MARKER)[2].partition(b"\0")[0]
            stray.owner = self.owners.get(ask(os.getsid, pid)) or self.owners.get(marker)
            possible = [c for c in self.commands.values() if c.number <= stray.born]
            if stray.owner is None and len(possible) == 1:
                stray.owner = possible[0]
            elif stray.owner is None and not possible:
                kill_stray(pid)
            elif stray.owner is None and time.monotonic() < stray.unsure_until:
                self.unsure = self.unsure or not environ or any(c.strict for c in possible)

    def forget(self, command: SupervisedCommand) -> None:
        del self.commands[command.number]
        for key in (command.pid, command.marker):
            self.owners.pop(key, None)
        for table in (self.graced, self.closing):
            table.pop(command.number, None)

    def shut_down(self) -> None:
        """Kill everything, again and again, until there is no child left to wait for."""
        deadline = time.monotonic() + SHUTDOWN_S_MAX
        while (self.mains or children()) and time.monotonic() < deadline:
            for pid in self.mains:
                signal_main(pid, signal.SIGKILL)
            for pid in children():
                kill_stray(pid)
            for pid, _ in self.dead():
                self.mains.pop(pid, None)
            time.sleep(0.001)


def become(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Turn the forked child into the command, or report through the gate why that is impossible."""
    stage = "setup"
    try:
        os.setsid()
        if PRCTL is not None:
            PRCTL(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != ME:
                os._exit(127)
        for target, fd in enumerate(descriptors[:3]):
            os.dup2(fd, target)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        argv = [word.encode("latin-1") for word in request["argv"]]
        env = {k.encode("latin-1"): v.encode("latin-1") for k, v in request["env"].items()}
        stage = "cwd"
        os.chdir(request["cwd"].encode("latin-1"))
        stage = "program"
        os.execvpe(argv[0], argv, env)  # noqa: S606
    except BaseException as error:  # noqa: BLE001 — said through the gate
        os.write(descriptors[3], f"{stage} {getattr(error, 'errno', None) or 22}".encode())
    finally:
        os._exit(127)


def signal_main(pid: int, number: int) -> None:
    """Signal the group of an unreaped main process; only itself if it has not reached setsid."""
    if ask(os.killpg, pid, number) == -1:
        ask(os.kill, pid, number)


def kill_stray(pid: int) -> None:
    """With its group, which its own command founded, every command being a session."""
    group = ask(os.getpgid, pid)
    if group > 1 and group != os.getpgrp():
        ask(os.killpg, group, signal.SIGKILL)
    ask(os.kill, pid, signal.SIGKILL)


def ask(call: Callable[..., int | None], *arguments: int) -> int:
    """Return the answer of a system call about a process; 0 for none, -1 if it does not exist."""
    try:
        return call(*arguments) or 0
    except OSError:
        return -1


def children() -> list[int]:
    """Return our direct children, dead ones included; exact, since only we reap them."""
    if os.path.exists(path := f"/proc/{ME}/task/{ME}/children"):
        return [int(word) for word in slurp(path).split()]
    pids = filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc/self") else [])
    return [int(pid) for pid in pids if stat_of(pid)[1:2] == [str(ME).encode()]]


def stat_of(pid: int | str) -> list[bytes]:
    """Fields of /proc/PID/stat from the third on (state, ppid); none if it is not there."""
    return slurp(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def slurp(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def main() -> None:
    if PRCTL is not None:
        PRCTL(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    supervisor = Supervisor(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    try:
        supervisor.run()
    finally:
        supervisor.shut_down()


if __name__ == "__main__":
    main()
