"""The new files of a command: all are written, or none. No link inside their folder is followed."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Self

from leadhand.core.wording import escaped
from leadhand.errors import NotAllowed, UsageError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class NewFiles:
    """Files that a command adds to a folder; an exception in its `with` block removes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[str] = []
        self.kept: list[str] = []
        """Files that existed before and are unchanged."""
        self._made: list[Path] = []
        """Files and folders that were made, in this order."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        for path in reversed(self._made):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        for known in (UsageError, NotAllowed):
            if isinstance(error, known):
                raise known(f"nothing was written: {error}") from None

    def add(self, relative: str, content: bytes) -> None:
        """Write a file, or keep the one that exists. Raise `NotAllowed` if neither is possible."""
        target = self.folder / relative
        self._refuse_links(target)
        try:
            for folder in reversed((target.parent, *target.parent.parents)):
                if not folder.is_dir():
                    folder.mkdir()
                    self._made.append(folder)
            if os.path.lexists(target):
                self.kept.append(relative)
                return
            with target.open("xb") as file:
                self._made.append(target)
                file.write(content)
            self.written.append(relative)
        except OSError as error:
            where = escaped(str(error.filename or target))
            raise NotAllowed(f"{where}: cannot be written to ({error.strerror})") from None

    def _refuse_links(self, target: Path) -> None:
        """Raise `NotAllowed` for a folder that is a link: it may lead elsewhere."""
        inside = [each for each in target.parents if self.folder in each.parents]
        for each in inside:
            if each.is_symlink():
                raise NotAllowed(
                    f"{escaped(str(each))}: is a link, and only files inside "
                    f"{escaped(str(self.folder))} are written. Fix: choose another folder"
                )
