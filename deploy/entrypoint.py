"""The entry point of the image: `leadhand ARGUMENTS`, with secrets read from files.

A variable `NAME_FILE` whose value is a path under /run/secrets becomes the variable `NAME` with the
content of that file, without the line end. Files elsewhere are not read: other programs use such
names for paths (`SSL_CERT_FILE`). Standard library only.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

SECRETS = Path("/run/secrets")
SUFFIX = "_FILE"
PROGRAM = Path(sys.executable).with_name("leadhand")


class WrongSecret(ValueError):
    """A secret that cannot be passed on, and why."""


def environment(given: Mapping[str, str], folder: Path = SECRETS) -> dict[str, str]:
    """Return the variables with the secrets of files. Raise `WrongSecret` for an unusable one."""
    found = dict(given)
    for variable, text in given.items():
        name = variable.removesuffix(SUFFIX)
        if name in ("", variable) or not Path(os.path.normpath(text)).is_relative_to(folder):
            continue
        if name in given:
            raise WrongSecret(f"{name} and {variable} are both set. Fix: set one of them.")
        found[name] = _content(variable, Path(text))
        del found[variable]
    return found


def _content(variable: str, path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise WrongSecret(f"{variable}: {path} cannot be read ({why}).") from None
    if not text or "\0" in text:
        raise WrongSecret(f"{variable}: {path} is empty or holds a zero byte.")
    return text


def main() -> None:
    """Replace this process by `leadhand`."""
    try:
        variables = environment(os.environ)
    except WrongSecret as error:
        sys.stderr.write(f"leadhand: error: {error}\n")
        sys.exit(2)
    os.execve(PROGRAM, [str(PROGRAM), *sys.argv[1:]], variables)  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
