"""The last program before an agent: it drops all other access, and becomes the agent.

Run as ``python -I -S inside.py SPEC ARGV...`` by what `sandbox.py` puts together; it imports
nothing of Leadhand. SPEC is a JSON object:

    limits    memory, files, processes and file size, 0 for none
    forward   the port on loopback that leads to a Unix socket, and that socket; or null
    landlock  {read: [...], write: [...], hide: [...]} where the kernel's rules are the sandbox;
              null inside bubblewrap, which has made the namespaces already. What is hidden lies
              in what is read or written, and takes a namespace of mounts to be covered

In order: namespaces, the forwarder (which stays outside the rules, and out of the agent's reach),
limits, Landlock, seccomp, exec. Whatever fails ends the program with 126 and one line that says
why: an agent that is half locked up is not run.

A namespace of processes begins with the next process, whose end is the end of all in it, however
often they forked and whatever session they are in. So three remain: a shell outside, which waits
and ends as the agent did; a shell that is the first one inside, which dies with the one outside;
and the agent, for whom this program is run once more, with plain words for SPEC. Shells, since a
thousand agents may be at work, and a Python that does nothing but wait is large.

The seccomp filter is a short list. Sockets: only loopback's own families, since others (vsock)
know no namespaces; none but those of a namespace of their own, and none of Unix, where paths alone
are the sandbox, since Landlock lets a process connect to any socket it can name. io_uring can do
what the filter forbids, so it is not there. Key rings, perf and bpf are for nobody here, nor is a
user namespace, in which one is root again and a good part of the kernel can be played with.
"""

# ruff: noqa: PTH123  (pathlib is slow to import; so are json and signal: what only the first run
# needs is imported where it is needed, for this is run twice for every command)
import ctypes
import errno
import os
import resource
import struct
import sys

MACHINE = os.uname().machine
LIBC = ctypes.CDLL(None, use_errno=True)
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
CLONE_NEWIPC = 0x8000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
PR_CAP_AMBIENT = 47
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_ABI_MIN = 6  # the first that keeps signals in
FILE_RIGHTS = 0b1100_0000_0000_0111  # execute, write, read, truncate, ioctl
READ_RIGHTS = 0b1101
ALL_RIGHTS = 0xFFFF
WRITE_RIGHTS = ALL_RIGHTS & ~0b1000_0100_0000  # no device files
# A grace is the agent's, so TERM passes both by; what was not said in time is a death by KILL.
OUTSIDE = 'trap "" TERM; read -r code <&3 || code=137; exit "$code"'
FIRST = 'trap "" TERM; "$@" 3>&-; code=$?; echo "$code" >&3; exit "$code"'
AGAIN = "again"
SIGKILL, SIGPIPE, SIGTERM, SIGXFSZ = 9, 13, 15, 25
SCOPES = 0b11  # abstract sockets, signals
SHARED = "/dev/shm"  # noqa: S108 - an empty one of its own, for semaphores
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
PROC = (
    "cpuinfo",
    "filesystems",
    "loadavg",
    "meminfo",
    "stat",
    "sys",
    "uptime",
    "version",
    "vmstat",
)
"""Of /proc only what is nobody's; a process also sees itself as it was when it began."""

# How system calls are numbered: the architecture for seccomp, socket, those that make namespaces
# by a flag (clone, unshare), the forbidden (key rings, perf, bpf, userfaultfd).
CALLS = {
    "x86_64": (0xC000003E, 41, (56, 272), (248, 249, 250, 298, 321, 323)),
    "aarch64": (0xC00000B7, 198, (220, 97), (217, 218, 219, 241, 280, 282)),
}
ABSENT = (425, 435)  # io_uring_setup, and clone3, whose flags no filter can see; libc has others


def main() -> None:
    stage = "arguments"
    if sys.argv[1] == AGAIN:
        run_again(sys.argv[2:])
    import json

    spec, argv = json.loads(sys.argv[1]), sys.argv[2:]
    try:
        rules = spec["landlock"]
        families = [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK]
        if rules:
            stage = "landlock"
            check_abi()
            stage = "namespaces"
            hide = rules.get("hide", [])
            families = families[1:] if separate(rules["write"], hide) else []
            if hide and not families:
                raise OSError(errno.EPERM, "no mount namespace for this user, so nothing is hidden")
            if spec["forward"] and not families:
                raise OSError(errno.EPERM, "no network namespace for this user, so no proxy either")
        if spec["forward"]:
            stage = "forwarder"
            forward(*spec["forward"])
        if rules and families:
            stage = "processes"
            begin_anew(spec["limits"], families, rules, argv)
    except Exception as error:  # noqa: BLE001 - said, and nothing is run
        refuse(stage, error)
    become_agent(spec["limits"], families, rules, argv)


def run_again(words: list[str]) -> None:
    """Run the second stage, as `begin_anew` starts it."""
    limits, families, reads, writes = ([int(n) for n in w.split(",")] for w in words[:4])
    end = 4 + reads[0]
    rules = {"read": words[4:end], "write": words[end : end + writes[0]]}
    become_agent(limits, families, rules, words[end + writes[0] :])


def become_agent(
    limits: list[int], families: list[int], rules: dict[str, list[str]] | None, argv: list[str]
) -> None:
    stage = "limits"
    try:
        limit(*limits)
        stage = "landlock" if rules else "seccomp"
        lock(rules, families)
        for number in (SIGTERM, SIGPIPE, SIGXFSZ):
            LIBC.signal(number, None)
        stage = argv[0]
        os.execvp(argv[0], argv)  # noqa: S606
    except Exception as error:  # noqa: BLE001 - said, and nothing is run
        refuse(stage, error)


def refuse(stage: str, error: Exception) -> None:
    sys.stderr.write(f"sandbox: {stage}: {error}\n")
    sys.stderr.flush()
    os._exit(126)


def check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def separate(writable: list[str], hidden: list[str]) -> bool:
    """Enter an own network and read-only mounts; return False if this user may not.

    Paths in `hidden` become empty. Shared memory and message queues of System V become our own too:
    rules for files do not reach them.
    """
    uid, gid = os.geteuid(), os.getegid()
    own = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC
    if LIBC.unshare(own):
        if LIBC.unshare(CLONE_NEWUSER | own):
            return False
        try:
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{uid} {uid} 1"),
                ("gid_map", f"{gid} {gid} 1"),
            ):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
        except OSError:
            return False
    check(LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    for name in writable:
        path = os.fsencode(name)
        check(LIBC.mount(path, path, None, MS_BIND, None), f"mount {name}")
    for name in hidden:
        path = os.fsencode(name)
        if os.path.isdir(path):  # noqa: PTH112
            check(LIBC.mount(b"none", path, b"tmpfs", 0, b"size=4k,mode=0500"), f"hide {name}")
        else:
            check(LIBC.mount(b"/dev/null", path, None, MS_BIND, None), f"hide {name}")
    shared = os.path.isdir(SHARED) and not LIBC.mount(  # noqa: PTH112
        b"none", SHARED.encode(), b"tmpfs", 0, b"size=1g,mode=0700"
    )
    if shared:
        writable.append(SHARED)
    attribute(b"/", MOUNT_ATTR_RDONLY, 0, AT_RECURSIVE)
    for name in writable:
        attribute(os.fsencode(name), 0, MOUNT_ATTR_RDONLY, 0)
    import fcntl

    sock = check(LIBC.socket(AF_INET, 2, 0), "socket")
    fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))  # up, running
    os.close(sock)
    os.chdir(os.getcwd())  # noqa: PTH109 - into the mount that lies over the folder now
    return True


def attribute(path: bytes, add: int, remove: int, flags: int) -> None:
    given = struct.pack("QQQQ", add, remove, 0, 0)
    check(
        LIBC.syscall(MOUNT_SETATTR, AT_FDCWD, path, flags, given, ctypes.c_size_t(len(given))),
        f"mount_setattr {os.fsdecode(path)}",
    )


def forward(port: int, path: str) -> None:
    """Listen on loopback before any program runs; a process of its own does the rest."""
    import socket

    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    served = os.pidfd_open(os.getpid())  # the process it ends with; the pid stays the agent's
    if os.fork():
        os.wait()
        os.close(served)
        listener.close()
        return
    if os.fork():
        os._exit(0)
    try:
        null = os.open("/dev/null", os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        serve(listener.detach(), path, served)
    finally:
        os._exit(1)


def serve(listener: int, path: str, served: int) -> None:
    import asyncio
    import contextlib
    import socket

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async def connected(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            far, out = await asyncio.open_unix_connection(path)
        except OSError:
            back.close()
            return
        await asyncio.gather(pump(near, out), pump(far, back))
        for writer in (out, back):
            writer.close()

    async def run() -> None:
        over = asyncio.Event()
        asyncio.get_running_loop().add_reader(served, over.set)
        async with await asyncio.start_server(connected, sock=socket.socket(fileno=listener)):
            await over.wait()
        os._exit(0)

    asyncio.run(run())


def begin_anew(
    limits: list[int], families: list[int], rules: dict[str, list[str]], argv: list[str]
) -> None:
    """Go on as the first process of a namespace; return where this user may have none."""
    if LIBC.unshare(CLONE_NEWPID):
        return
    near, far = os.pipe()
    if os.fork():
        become_shell(near, OUTSIDE)
    os.close(near)
    drop()
    check(LIBC.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "death signal")
    import select

    watch = select.poll()
    watch.register(far, 0)
    if watch.poll(0):  # the one outside was gone before that
        os._exit(126)
    numbers = [",".join(map(str, each)) for each in (limits, families)]
    paths = [*rules["read"], *rules["write"]]
    numbers += [str(len(rules["read"])), str(len(rules["write"]))]
    again = [sys.executable, "-I", "-S", __file__, AGAIN, *numbers, *paths, *argv]
    become_shell(far, FIRST, *again)


def become_shell(end: int, script: str, *words: str) -> None:
    os.dup2(end, 3)
    os.set_inheritable(3, True)
    os.execv("/bin/sh", ["sh", "-c", script, "sh", *words])  # noqa: S606


def limit(memory: int, files: int, processes: int, file_bytes: int) -> None:
    wanted = (
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_FSIZE, file_bytes),
    )
    for which, value in wanted:
        if value:
            most = resource.getrlimit(which)[1]
            value = value if most == resource.RLIM_INFINITY else min(value, most)  # noqa: PLW2901
            resource.setrlimit(which, (value, value))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def check_abi() -> None:
    abi = LIBC.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if abi < LANDLOCK_ABI_MIN:
        needed = f"and {LANDLOCK_ABI_MIN} is needed"
        raise OSError(errno.ENOSYS, f"the kernel has version {max(abi, 0)} of it, {needed}")
    if MACHINE not in CALLS:
        raise OSError(errno.ENOSYS, f"no seccomp filter for {MACHINE}")


def lock(rules: dict[str, list[str]] | None, families: list[int]) -> None:
    if rules:
        drop()
    check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    if rules:
        restrict(rules)
    if MACHINE in CALLS:
        program = filtered(families)
        buffer = ctypes.create_string_buffer(program)
        handle = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
        check(LIBC.prctl(PR_SET_SECCOMP, 2, handle, 0, 0), "seccomp")


def drop() -> None:
    """Drop every privilege and the means to regain one, also those that root would inherit."""
    for number in range(64):
        LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    LIBC.prctl(PR_CAP_AMBIENT, 4, 0, 0, 0)
    header, nothing = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[0] * 6)
    check(LIBC.capset(header, nothing), "capset")


def restrict(rules: dict[str, list[str]]) -> None:
    attributes = struct.pack("QQQ", ALL_RIGHTS, 0, SCOPES)
    ruleset = check(
        LIBC.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0), "ruleset"
    )
    allowed = [(path, READ_RIGHTS) for path in rules["read"]]
    own = os.readlink("/proc/self")  # noqa: PTH115 - its number outside, where /proc is from
    allowed += [(f"/proc/{name}", READ_RIGHTS) for name in (*PROC, own)]
    allowed += [(f"/dev/{name}", FILE_RIGHTS) for name in DEVICES]
    allowed += [(path, WRITE_RIGHTS) for path in rules["write"]]
    for path, rights in allowed:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        kept = rights if os.path.isdir(path) else rights & FILE_RIGHTS  # noqa: PTH112
        rule = struct.pack("=Qi", kept, fd)
        check(LIBC.syscall(LANDLOCK_ADD, ruleset, 1, rule, 0), f"rule for {path}")
        os.close(fd)
    check(LIBC.syscall(LANDLOCK_RESTRICT, ruleset, 0), "restrict")
    os.close(ruleset)


def filtered(families: list[int]) -> bytes:
    """Return the program of the seccomp filter: (code, if true, if false, value) for each step."""
    machine, socket_call, flagged, forbidden = CALLS[MACHINE]
    load, equal, at_least, has, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000
    steps: list[tuple[int, int, int, int]] = [
        (load, 0, 0, 4),
        (equal, 1, 0, machine),
        (give, 0, 0, refuse | errno.ENOSYS),
        (load, 0, 0, 0),
        (at_least, 0, 1, 0x40000000),
        (give, 0, 0, refuse | errno.ENOSYS),
    ]
    for number in ABSENT:
        steps += [(equal, 0, 1, number), (give, 0, 0, refuse | errno.ENOSYS)]
    for number in flagged:
        steps += [(equal, 0, 4, number), (load, 0, 0, 16), (has, 0, 1, CLONE_NEWUSER)]
        steps += [(give, 0, 0, refuse | errno.EPERM), (give, 0, 0, allow)]
    for number in forbidden:
        steps += [(equal, 0, 1, number), (give, 0, 0, refuse | errno.EPERM)]
    steps += [(equal, 1, 0, socket_call), (give, 0, 0, allow), (load, 0, 0, 16)]
    for family in families:
        steps += [(equal, 0, 1, family), (give, 0, 0, allow)]
    steps.append((give, 0, 0, refuse | errno.EACCES))
    return b"".join(struct.pack("HBBI", *step) for step in steps)


if __name__ == "__main__":
    main()
