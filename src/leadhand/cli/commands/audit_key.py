"""`leadhand audit-key`: a key pair that signs anchors and exports."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.errors import NotAllowed, UsageError

FILE = "audit.key"


@command("audit-key", "leadhand audit-key")
@click.argument("path", required=False)
def audit_key(console: Console, path: str | None) -> int:
    """Create a key that signs exports, anchors and approvals.

    The private key is written to PATH, readable only by you, and the public key to PATH.pub.
    Everybody who checks your logs needs the public key. The default path is in your
    configuration folder, outside of every project, because an account that can change the
    database must not have the private key. Existing files are not overwritten.
    """
    from leadhand.audit.keys import PrivateKey

    file = Path(path).expanduser() if path else default_path()
    key = PrivateKey.new()
    public = Path(f"{file}.pub")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(file, key.pem(), 0o600)
        try:
            _write(public, key.public.pem(), 0o644)
        except OSError:
            with suppress(OSError):
                file.unlink()
            raise
    except FileExistsError as error:
        raise UsageError(
            f"{error.filename}: is there already, and a key is never replaced"
        ) from None
    except OSError as error:
        raise NotAllowed(f"{error.filename}: cannot be written: {error.strerror}") from None
    if console.json:
        told = {"key": str(file), "public": str(public), "name": key.name}
        console.document({**told, "approver": f"ed25519:{key.public.text}"})
        return 0
    console.out(key.name)
    console.say(f"private: {file}\npublic:  {public}")
    console.say(f'Use it in leadhand.toml:\n\n[audit]\nkey = "{file}"')
    console.say(f'\nAs one who approves:\n\n[review]\nkey = "{file}"')
    console.say(f'\n[approvers]\nNAME = "ed25519:{key.public.text}"')
    return 0


def default_path() -> Path:
    """Return the default path, in the user's configuration folder."""
    config = os.environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(config) / "leadhand" / FILE


def _write(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
