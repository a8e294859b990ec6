"""Fixtures of the stores' tests."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder in memory where there is one: hundreds of real syncs would prove nothing more."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="leadhand-", dir=memory if memory.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a log may be made."""
    return tmp_path / "log.db"


@pytest.fixture
def address(postgres, tmp_path: Path):
    """Return the address of a new database of PostgreSQL."""
    return postgres.new(tmp_path)
