"""Secrets sent through every door of a run, and a look at every byte it leaves behind.

    python -m tests.audit.canaries [--count 1000]

Each canary is a secret parameter (or a variable that a worker declares). Workers return it, print
it, raise it, write it to standard error, report it as progress, as recommendation, in artifacts,
in pieces, and encoded in several ways; people answer with it. Then the database, its log, the
artifacts, the anchors, the notices, the outcome and the exported bundle are searched.
"""

import argparse
import asyncio
import base64
import contextlib
import io
import json
import os
import random
import string
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from leadhand import Context, Human, Lead, Permanent, Report, Transient, worker
from leadhand.app.export import export_run
from leadhand.app.lead import finish
from leadhand.audit.anchors import Anchoring
from leadhand.audit.redaction import forms
from leadhand.core import commands
from leadhand.workers.declared import declared_workers

PER_RUN = 20
ODD = "\"\\'<&+/=%é€ "


@worker(name="give")
async def give(token: str, header: str) -> dict:
    return {"token": token, token: [header, {"deep": token}], "as json": json.dumps(token)}


@worker(name="encode")
async def encode(token: str) -> list:
    raw = token.encode()
    basic = base64.b64encode(b"user:" + raw + b":x").decode()
    return [basic, base64.urlsafe_b64encode(raw).decode(), raw.hex(), quote(token), repr(token)]


@worker(name="shout")
def shout(token: str) -> None:
    for letter in token:  # in pieces
        sys.stdout.write(letter)
    print("\n", token, file=sys.stderr)
    print("x" * 3000, token)


@worker(name="large")
async def large(token: str) -> dict:
    return {"rows": [f"{number} {token}" for number in range(3000)]}


@worker(name="fail")
async def fail(token: str) -> None:
    try:
        raise ValueError(f"inner {token}")
    except ValueError as error:
        raise Permanent(f"{'y' * 1990}{token}{'z' * 3000}", data={"t": token}) from error


@worker(name="flaky")
async def flaky(token: str, context: Context) -> str:
    if context.attempt == 1:
        raise Transient(f"again, {token}")
    return "fine"


@worker(name="crash")
def crash(token: str) -> None:
    secret = token
    raise RuntimeError(secret, {"args": [secret]})


@worker(name="report")
async def report(token: str, context: Context) -> Report:
    context.progress(f"at {token}", 0.5)
    return Report(data="ok", recommendations=(f"use {token}",), artifacts=(f"f/{token}",))


@worker(name="hidden", secrets=["CANARY_OF_WORKER"])
def hidden() -> str:
    print(os.environ["CANARY_OF_WORKER"])
    return "it is " + os.environ["CANARY_OF_WORKER"]


COMMANDS = {
    "echo": {"command": ["sh", "-c", 'echo "$1"; echo "$1" >&2; exit 3', "sh", "{token}"]},
    "stdin": {
        "command": ["cat"],
        "stdin": "json",
        "output": "json",
        "parameters": {"token": "string"},
    },
    "passed": {"command": ["sh", "-c", 'echo "$CANARY_TOKEN"'], "env": ["CANARY_TOKEN"]},
}


def canary(rng):
    """A value that is in nothing else."""
    letters = string.ascii_letters + string.digits + (ODD if rng.random() < 0.5 else "-_")
    body = "".join(rng.choice(letters) for _ in range(rng.randint(12, 60)))
    return f"c{body}y"


def plan(count):
    tokens = [f"t{number}" for number in range(count)]
    steps = []
    kinds = ("give", "encode", "shout", "large", "fail", "flaky", "crash", "report")
    for number, name in enumerate(tokens):
        ref = f"${{{{ params.{name} }}}}"
        kind = (*kinds, "echo", "stdin")[number % 10]
        parameters = {"token": ref}
        if kind == "give":
            parameters["header"] = f"Bearer {ref}"
        steps.append(
            {
                "id": f"s{number}",
                "worker": kind,
                "parameters": parameters,
                "failure_action": "continue",
                "retry": {"attempts": 2, "backoff": "0 seconds"},
            }
        )
    # A dash at the beginning of a value would be refused, and the message must not show it.
    steps += [{"id": "w", "worker": "hidden"}, {"id": "p", "worker": "passed"}]
    steps.append({"id": "person", "worker": "person", "depends_on": ["w"]})
    declared = {name: {"type": "secret"} for name in tokens}
    return {"goal": "carry secrets", "params": declared, "steps": steps}


async def one_run(store, values, heard):
    registry = [give, encode, shout, large, fail, flaky, crash, report, hidden, Human("person")]
    registry += declared_workers(COMMANDS)
    lead = Lead(registry, store=store, on_notice=lambda *words: heard.append(" ".join(words)))
    names = {}
    for number, value in enumerate(values):
        os.environ[f"CANARY_{number}"] = value
        names[f"t{number}"] = f"env:CANARY_{number}"
    async with lead.hosting() as host:
        run = await lead.begin(host, plan(len(values)), params=names)
        watched = asyncio.create_task(_watch(run, heard))
        outcome = await finish(run)
        answers = iter(values)
        while run.state.ended is None:
            for question in list(run.state.questions.values()):
                choice = "done" if "done" in question.choices else question.choices[-1]
                said = next(answers, values[0])
                await run.submit_and_wait(
                    lambda state, now, q=question, c=choice, s=said: commands.answer(
                        state, q.id, c, "a person", now, text=f"it is {s}"
                    )
                )
            outcome = await finish(run)
        watched.cancel()
        heard.append(repr(outcome))
    return run.id


async def _watch(run, heard):
    while True:
        heard.extend(str(note) for note in run.progress.values())
        await asyncio.sleep(0.001)


def export(store, run, file):
    """The bundle of a run."""
    file.write_bytes(export_run(store, run, Anchoring()))


def search(folder, said, values):
    """Every file a run left, and what was said: the names of what holds a canary."""
    places = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    places["said"] = said.encode()
    found = []
    for value in values:
        needles = {form.encode() for form in forms(value)} | {value.encode()}
        found += [(name, value) for name, data in places.items() if any(n in data for n in needles)]
    return found, len(places), sum(map(len, places.values()))


def carry(count, seed=0):
    """Send canaries through; gives what leaked, how many files, how many bytes."""
    rng = random.Random(seed)
    values = [canary(rng) for _ in range(count)]
    leaked, files, size = [], 0, 0
    for start in range(0, count, PER_RUN):
        part = values[start : start + PER_RUN]
        of_workers = [canary(rng), canary(rng)]
        os.environ["CANARY_OF_WORKER"], os.environ["CANARY_TOKEN"] = of_workers
        with tempfile.TemporaryDirectory() as name:
            folder, heard, terminal = Path(name), [], io.StringIO()
            store = folder / "runs.db"
            with contextlib.redirect_stdout(terminal), contextlib.redirect_stderr(terminal):
                run = asyncio.run(one_run(store, part, heard))
                export(store, run, folder / "bundle.zip")
            said = "\n".join((*heard, terminal.getvalue()))
            found, looked, read = search(folder, said, (*part, *of_workers))
        leaked, files, size = leaked + found, files + looked, size + read
    for name in [name for name in os.environ if name.startswith("CANARY_")]:
        del os.environ[name]
    return leaked, files, size


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    leaked, files, size = carry(args.count, args.seed)
    for name, value in leaked[:20]:
        print(f"LEAKED: {value!r} in {name}")
    print(f"{args.count} canaries, {files} files, {size:,} bytes searched: {len(leaked)} found")
    return 1 if leaked else 0


if __name__ == "__main__":
    sys.exit(main())
