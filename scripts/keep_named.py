"""Keep of a lock file only what its `.in` file names: `keep_named.py LOCK IN`.

For packages that are installed without what they depend on.
"""

import re
import sys
from pathlib import Path

lock, wanted = map(Path, sys.argv[1:])
lines = [line for line in wanted.read_text().splitlines() if line and line[0] != "#"]
names = {line.strip().split("==")[0] for line in lines}
text = lock.read_text()
head, *entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
kept = [entry for entry in entries if entry.split("==")[0] in names]
if len(kept) != len(names):
    sys.exit(f"{lock}: {len(kept)} of {len(names)} packages found")
comments = re.compile(r"^( +)?# (The following|Warning:).*\n?", flags=re.MULTILINE)
lock.write_text(head + comments.sub("", "".join(kept)))
