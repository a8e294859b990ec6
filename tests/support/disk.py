"""A recording and faulty disk under the standard library's sqlite3.

Killing a process does not show whether a commit survives a power cut: the kernel keeps what was
written, synced or not.  One must know which bytes were written, in what order, and which had been
synced.  SQLite does its file work through a "VFS", a C struct of function pointers, so this module
sits there, by ctypes alone: ``_sqlite3`` is linked to libsqlite3, so symbols resolve in the very
copy Python uses (checked).  We copy the default VFS, put our xOpen and xDelete in the copy, and
register it as the default while a `Disk` is active.  Our xOpen lets the original open the file,
then points it at a copy of its io_methods with our xWrite, xTruncate, xSync and xClose: one copy
for each original table, as they differ by file type and version.  All else goes straight to the
original.  C may call us as long as a connection lives, even after the `Disk` has ended or while
Python shuts down, so structs and callbacks are never freed.  An exception cannot travel through C:
it is printed, the operation fails with SQLITE_IOERR, and leaving the `Disk` raises it.

Operations that succeed go to `Disk.journal`, under a lock held across the real call, so the list's
order is the disk's.  What a file held when first opened appears as a synced Write.  Seen are only
connections opened in this process while the `Disk` is active, and no temporary files, no -shm.

The power cut (`rebuild`), plain: a file holds what it held at its last Sync, a Delete is final.
Torn: each unsynced write may be lost, survive whole, or in some of its 512-byte sectors, in any
order; a Delete may be lost until its directory is synced (SQLite does that at the first Sync of a
new journal or WAL, and for some Deletes), a creation until that or its own Sync.  Bytes outside a
written range never change.  Not modelled: lying disks, kernels that drop pages after failed fsync.

Faults: `fail_write` and `fail_sync` refuse an operation before it reaches the file.  `Disk.hook`,
called before each operation with a running number and the record, may block, raise, or kill.  Do
not use one connection from two threads at once: a callback needs the GIL, SQLite holds a mutex.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import itertools
import json
import os
import signal
import sqlite3
import threading
import traceback
from collections.abc import Callable
from ctypes import CFUNCTYPE, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, Self

ENV, SECTOR = "LEADHAND_TEST_DISK", 512
_OK, _IOERR, _FULL, _IOERR_WRITE, _IOERR_FSYNC = 0, 10, 13, 10 | 3 << 8, 10 | 4 << 8


class DiskUnavailable(RuntimeError):
    """The libsqlite3 behind the sqlite3 module cannot be reached; the message says why."""


@dataclass(frozen=True)
class Write:
    path: str
    offset: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    path: str
    size: int


@dataclass(frozen=True)
class Sync:
    path: str


@dataclass(frozen=True)
class Delete:
    path: str
    directory: bool = False  # its directory was synced as well


@dataclass(frozen=True)
class Mark:
    label: str


Change = Write | Truncate
Operation = Change | Sync | Delete
Entry = Operation | Mark


class Disk:
    """Records, and on request breaks, the disk under connections opened while it is active."""

    def __init__(self) -> None:
        self.journal: list[Entry] = []
        self.failed: list[Operation] = []  # those that failed, injected or not
        self.hook: Callable[[int, Operation], object] | None = None
        self._numbers, self._lock = itertools.count(1), threading.Lock()
        self._faults: list[Callable[[Operation], int]] = []
        self._known: set[str] = set()

    def __enter__(self) -> Self:
        _shim().attach(self)
        return self

    def __exit__(self, *_: object) -> None:
        _shim().detach()
        if _shim().errors:
            raise RuntimeError("a disk callback failed") from _shim().errors[0]

    def mark(self, label: str) -> None:
        self.journal.append(Mark(label))

    def fail_write(
        self, after_n: int = 1, code: str = "full", *, sticky: bool = True, match: str = "*"
    ) -> None:
        """The `after_n`-th write from now (1: the next) to a path like `match`, a glob, gets code
        "full" or "ioerr"; if sticky, all later ones too, until heal()."""
        self._fail(Write, after_n, {"full": _FULL, "ioerr": _IOERR_WRITE}[code], sticky, match)

    def fail_sync(self, after_n: int = 1, *, sticky: bool = True, match: str = "*") -> None:
        self._fail(Sync, after_n, _IOERR_FSYNC, sticky, match)

    def heal(self) -> None:
        self._faults = []

    def _fail(self, kind: type, after_n: int, code: int, sticky: bool, match: str) -> None:
        seen = itertools.count(1)

        def fault(operation: Operation) -> int:
            fits = isinstance(operation, kind) and fnmatchcase(operation.path, match)
            number = next(seen) if fits else 0
            return code if number == after_n or (sticky and number > after_n) else _OK

        self._faults.append(fault)

    def _perform(self, operation: Operation, real: Callable[..., int], *arguments: int) -> int:
        if _shim().disk is not self:
            return real(*arguments)
        if self.hook is not None:  # outside the lock: it may block, or call mark()
            self.hook(next(self._numbers), operation)
        with self._lock:
            code = max([fault(operation) for fault in self._faults] or [_OK]) or real(*arguments)
            (self.failed if code else self.journal).append(operation)
            return code

    def _opened(self, path: str, read: Callable[[], bytes]) -> None:
        with self._lock:
            if path not in self._known and (data := read()):
                self.journal += [Write(path, 0, data), Sync(path)]
            self._known.add(path)


_RECORDED: dict[str, Callable[..., Operation]] = {  # from a method's arguments, path for file
    "xWrite": lambda path, data, n, at: Write(path, at, ctypes.string_at(data, n)),
    "xTruncate": Truncate,
    "xSync": lambda path, _flags: Sync(path),
}
_function = partial(CFUNCTYPE, c_int, c_void_p)  # C: int function(void *self, ...)


class _Vfs(ctypes.Structure):  # sqlite3_vfs; `rest` is 10 pointers of version 1, 1 of 2, 3 of 3
    _fields_ = [("iVersion", c_int), ("szOsFile", c_int), ("mxPathname", c_int),
                ("pNext", c_void_p), ("zName", c_char_p), ("pAppData", c_void_p),
                ("xOpen", _function(c_void_p, c_void_p, c_int, c_void_p)),
                ("xDelete", _function(c_void_p, c_int)), ("rest", c_void_p * 14)]  # fmt: skip
    absent = (4, 3, 0)  # how many trailing pointers a struct of version 1, 2, 3 lacks


class _Methods(ctypes.Structure):  # sqlite3_io_methods; `rest` is 6 of version 1, 4 of 2, 2 of 3
    _fields_ = [("iVersion", c_int), ("xClose", _function()),
                ("xRead", _function(c_void_p, c_int, c_int64)),
                ("xWrite", _function(c_void_p, c_int, c_int64)),
                ("xTruncate", _function(c_int64)), ("xSync", _function(c_int)),
                ("xFileSize", _function(c_void_p)), ("rest", c_void_p * 12)]  # fmt: skip
    absent = (6, 2, 0)


class _Shim:
    """The VFS of our own.  One for each process, made at first use, never freed."""

    def __init__(self) -> None:
        try:
            library: Any = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
            find, self.register = library.sqlite3_vfs_find, library.sqlite3_vfs_register
            self.unregister = library.sqlite3_vfs_unregister
        except (OSError, AttributeError) as error:
            raise DiskUnavailable(f"no libsqlite3 symbols by way of _sqlite3: {error}") from error
        find.restype, find.argtypes = c_void_p, [c_char_p]
        self.disk: Disk | None = None
        self.errors: list[BaseException] = []  # raised inside callbacks
        self.files: dict[int, tuple[Disk, str]] = {}
        self.tables: dict[int, Any] = {}
        self.base = _Vfs.from_address(find(None))
        self.vfs = self.copy(_Vfs, find(None), xOpen=self.open, xDelete=self.delete)
        self.vfs.zName, self.vfs.pNext = b"leadhand-test", None
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def copy(self, kind: Any, address: int, **ours: Callable[..., int]) -> Any:
        copy, version = kind(), min(c_int.from_address(address).value, 3)
        absent = kind.absent[version - 1] * ctypes.sizeof(c_void_p)
        ctypes.memmove(ctypes.byref(copy), address, ctypes.sizeof(kind) - absent)
        copy.iVersion = version
        for name, function in ours.items():
            setattr(copy, name, type(getattr(copy, name))(partial(self.guarded, function)))
        return copy

    def guarded(self, function: Callable[..., int], *arguments: int) -> int:
        try:
            return function(*arguments)
        except BaseException as error:
            traceback.print_exception(error)
            self.errors.append(error)
            return _IOERR

    def attach(self, disk: Disk) -> None:
        if self.disk is not None:
            raise RuntimeError("another Disk is active in this process")
        self.register(ctypes.byref(self.vfs), 1)
        try:
            sqlite3.connect("file::memory:?vfs=leadhand-test", uri=True).close()
        except sqlite3.Error as error:
            self.detach()
            raise DiskUnavailable(f"sqlite3 uses another libsqlite3 than ours: {error}") from error
        self.disk, self.errors = disk, []

    def detach(self) -> None:
        self.disk = None
        self.unregister(ctypes.byref(self.vfs))

    def open(self, _vfs: int, name: int, file: int, flags: int, out: int) -> int:
        # `name` stays a raw pointer: SQLite keeps URI parameters behind the string's end.
        code: int = self.base.xOpen(ctypes.addressof(self.base), name, file, flags, out)
        if code != _OK or self.disk is None or not name:
            return code
        path = os.fsdecode(ctypes.string_at(name))
        slot: Any = c_void_p.from_address(file)  # sqlite3_file is: a pointer to io_methods, ...
        original = _Methods.from_address(slot.value)
        self.disk._opened(path, partial(_read, original, file))
        if slot.value not in self.tables:
            ours = {name: partial(self.method, original, name) for name in _RECORDED}
            ours["xClose"] = partial(self.close, original)
            self.tables[slot.value] = self.copy(_Methods, slot.value, **ours)
        self.files[file] = (self.disk, path)
        slot.value = ctypes.addressof(self.tables[slot.value])
        return code

    def delete(self, _vfs: int, name: int, sync: int) -> int:
        operation = Delete(os.fsdecode(ctypes.string_at(name)), bool(sync))
        real = partial(self.base.xDelete, ctypes.addressof(self.base))
        return self.disk._perform(operation, real, name, sync) if self.disk else real(name, sync)

    def close(self, original: Any, file: int) -> int:
        del self.files[file]
        return int(original.xClose(file))

    def method(self, original: Any, name: str, file: int, *rest: int) -> int:
        disk, path = self.files[file]
        return disk._perform(_RECORDED[name](path, *rest), getattr(original, name), file, *rest)


_shim = cache(_Shim)


def _read(methods: Any, file: int) -> bytes:
    # By SQLite's own handle: closing a second one would drop this process's POSIX locks.
    size = c_int64()
    code = methods.xFileSize(file, ctypes.addressof(size))
    data = ctypes.create_string_buffer(size.value)
    if code or (size.value and methods.xRead(file, ctypes.addressof(data), size.value, 0)):
        raise OSError("the file cannot be read")
    return data.raw


@dataclass
class _Inode:
    content: bytearray = field(default_factory=bytearray)
    unsynced: list[Change] = field(default_factory=list)

    def settle(self, changes: list[Change]) -> None:
        for change in changes:
            if isinstance(change, Truncate):
                self.content = self.content[: change.size].ljust(change.size, b"\0")
            else:
                end = change.offset + len(change.data)
                self.content.extend(bytes(max(0, end - len(self.content))))
                self.content[change.offset : end] = change.data
        self.unsynced = []


def rebuild(journal: list[Entry], upto: int, folder: Path, *, torn: Random | None = None) -> None:
    """Write into `folder` (new or empty) the files as after a power cut following journal[:upto],
    by their base names.  `torn` chooses the harsher model; see the module's docstring."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty")
    names: dict[str, list[_Inode | None]] = {}  # by path: [on the disk, ..., as programs see it]
    for entry in (entry for entry in journal[:upto] if not isinstance(entry, Mark)):
        versions = names.setdefault(entry.path, [None])
        if isinstance(entry, Delete):
            versions[:] = [*versions, None] if torn else [None]
            directory_synced = entry.directory
        else:
            if (inode := versions[-1]) is None:
                versions.append(inode := _Inode())
            if isinstance(entry, Change):
                inode.unsynced.append(entry)
                continue
            inode.settle(inode.unsynced)
            directory_synced = len(versions) > 1 and entry.path.endswith(("-wal", "-journal"))
            del versions[:-1]
        if directory_synced:
            for path, versions in names.items():
                if Path(path).parent == Path(entry.path).parent:
                    del versions[:-1]
    for path, versions in names.items():
        found = torn.choice(versions) if torn else versions[0]
        if found is not None:
            found.settle(_survivors(found.unsynced, torn) if torn else [])
            with (folder / Path(path).name).open("xb") as file:  # x: two files of one base name
                file.write(found.content)


def _survivors(unsynced: list[Change], torn: Random) -> list[Change]:
    kept: list[Change] = []
    for change in unsynced:
        pieces = [change]
        if isinstance(change, Write) and torn.random() < 0.5:
            path, start, data = change.path, change.offset, change.data
            cuts = [0, *range(SECTOR - start % SECTOR, len(data), SECTOR), len(data)]
            pieces = [Write(path, start + a, data[a:b]) for a, b in itertools.pairwise(cuts)]
        kept += [piece for piece in pieces if torn.random() < 0.5]
    if torn.random() < 0.5:
        torn.shuffle(kept)
    return kept


def install_from_env() -> Disk | None:
    """Switch a disk on for good if LEADHAND_TEST_DISK is set, to JSON such as {"fail_write":
    {"after_n": 3}, "fail_sync": {}} or {"kill_at": n}: SIGKILL just before the n-th operation."""
    if not os.environ.get(ENV):
        return None
    disk, spec = Disk(), json.loads(os.environ[ENV])
    kill_at = spec.pop("kill_at", None)
    disk.hook = lambda n, _: os.kill(os.getpid(), signal.SIGKILL) if n == kill_at else None
    for name, arguments in spec.items():
        {"fail_write": disk.fail_write, "fail_sync": disk.fail_sync}[name](**arguments)
    return disk.__enter__()
