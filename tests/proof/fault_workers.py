"""F23 to F39: workers fail, die, hang, lie, flood, and leave things behind."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.proof.fault_stage import Stage, killed_at

MARK = "date +%s.%N >> faults"
"""A line of a shell script that writes down the moment of a fault."""
MEMORY_MB_MAX = 300


def script(stage: Stage, name: str, text: str, more: str = "", *, idempotent: bool = True) -> str:
    """Write a shell script, and return the table of a worker that runs it."""
    stage.write(f"{name}.sh", text)
    safe = "idempotent = true\n" if idempotent else ""
    return f'\n[workers.{name}]\ncommand = ["/bin/sh", "{name}.sh"]\n{safe}risk = "low"\n{more}\n'


def counted(times: int, bad: str, good: str) -> str:
    """Return a script that does something bad so often, and then something good."""
    return (
        'n=$(cat count 2>/dev/null || echo 0); n=$((n+1)); echo "$n" > count\n'
        f"if [ $n -le {times} ]; then {MARK}; {bad}; fi\n{good}\n"
    )


def then_act(stage: Stage, value: str, worker: str = "bad", **more: Any) -> None:
    """Run the faulty worker, then act once; judge that there is exactly that effect."""
    first = {"id": "first", "worker": worker, **more}
    act = {"id": "act", "worker": "act", "parameters": {"value": value}, "depends_on": ["first"]}
    stage.go(stage.plan(first, act))
    stage.effects(value)


def alive(marker: str) -> list[int]:
    """Return the processes that have a marker in their command line."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes()
        except OSError:
            continue
        if marker.encode() in words:
            found.append(int(each.parent.name))
    return found


def value_of(stage: Stage) -> str:
    """Return the value that this episode is to leave."""
    return f"v{stage.draw.randrange(10_000)}"


def f23(stage: Stage) -> None:
    """A command ends with a code, or a function raises: retried, or another worker takes over."""
    value, way = value_of(stage), stage.draw.choice(("75", "3", "raises"))
    stage.told = way
    times = stage.draw.randint(1, 2) if way == "75" else 99
    spare = script(stage, "spare", "echo fine")
    if way == "raises":
        text = "from leadhand import worker\n\n\n@worker(idempotent=True)\ndef bad() -> str:\n"
        text += "    import time\n    open('faults', 'a').write(f'{time.time()}\\n')\n"
        stage.settings(spare, text + "    raise RuntimeError('no')\n")
    else:
        stage.settings(spare + script(stage, "bad", counted(times, f"exit {way}", "echo fine")))
    then_act(stage, value, alternatives=["spare"])


def f24(stage: Stage) -> None:
    """A command is killed by a signal: SIGSEGV, SIGKILL or SIGABRT."""
    value, number = value_of(stage), stage.draw.choice(("SEGV", "KILL", "ABRT"))
    stage.told = number
    bad = counted(stage.draw.randint(1, 2), f"kill -{number} $$", "echo fine")
    stage.settings(script(stage, "bad", bad))
    then_act(stage, value)


def f25(stage: Stage) -> None:
    """A command hangs with a child: the group is ended, and the step is retried."""
    value, nap = value_of(stage), str(100_000 + stage.draw.randrange(10**6))
    bad = counted(1, f"sleep {nap} & exec sleep {nap}", "echo fine")
    stage.settings(script(stage, "bad", bad, 'timeout = "2 s"\ngrace = "1 s"\n'))
    then_act(stage, value)
    stage.expect(not alive(nap), f"orphans {alive(nap)}")


SPINS = """
import asyncio, time
from leadhand import Context, worker


@worker(idempotent=True, timeout="2 s")
async def bad(context: Context) -> str:
    if context.attempt <= {times}:
        open("faults", "a").write(f"{{time.time()}}\\n")
        while True:
            context.progress("still at it", 0.5)
            await asyncio.sleep(0.01)
    return "fine"


@worker(idempotent=True)
async def spare() -> str:
    return "fine"
"""


def f26(stage: Stage) -> None:
    """A worker that reports progress for ever and makes none: its deadline ends it."""
    times = stage.draw.choice((1, 99))
    stage.settings("", SPINS.format(times=times))
    stage.told = "once" if times == 1 else "always"
    then_act(stage, value_of(stage), alternatives=["spare"])


EATS = """
import time
from leadhand import worker


@worker(idempotent=True, isolate="process")
def bad() -> int:
    import resource
    open("faults", "a").write(f"{time.time()}\\n")
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    return len(bytearray(1 << 31))


@worker(idempotent=True)
def spare() -> str:
    return "fine"
"""


def f27(stage: Stage) -> None:
    """Out of memory, in a function or a command: a bigger worker, and not the same again."""
    value, way = value_of(stage), stage.draw.choice(("function", "command"))
    stage.told = way
    if way == "function":
        stage.settings("", EATS)
    else:
        eats = f"echo x >> tries; {MARK}; ulimit -v 500000\n"
        eats += 'python3 -c "print(len(bytearray(1 << 31)))"\n'
        stage.settings(script(stage, "bad", eats) + script(stage, "spare", "echo fine"))
    then_act(stage, value, alternatives=["spare"])
    _, attempts = stage.log()
    stage.expect(attempts <= 3, f"{attempts} attempts, so the small one was tried again")


ZOMBIE = """
import time
from leadhand import Context, worker


@worker(idempotent=True, timeout="1.5 s")
def bad(context: Context) -> str:
    if context.attempt == 1:
        open("faults", "a").write(f"{{time.time()}}\\n")
        time.sleep(3)
        open("late", "a").write("late\\n")
        return "late-{value}"
    return "{value}"


@worker(idempotent=True)
async def wait() -> str:
    import asyncio, pathlib
    while not pathlib.Path("late").exists():
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    return "it came back"
"""


def f28(stage: Stage) -> None:
    """An attempt that was given up returns while its run is alive: its result does not count."""
    value = value_of(stage)
    stage.settings("", ZOMBIE.format(value=value))
    steps: list[dict[str, Any]] = [{"id": "bad", "worker": "bad"}, {"id": "wait", "worker": "wait"}]
    act = {"id": "act", "worker": "act", "depends_on": ["bad", "wait"]}
    act["parameters"] = {"value": "${{ steps.bad.data }}"}
    stage.go(stage.plan(*steps, act))
    stage.effects(value)
    stage.expect((stage.path / "late").exists(), "the zombie did not return")


def caller(stage: Stage, *words: str) -> Any:
    """Run a command as the agent that drives the run; return its exit code and document."""
    done = stage.run("step", *words, "--caller", "bot", "--json")
    return done.code, done.doc if done.code in (0, 5) else {}


def handed(stage: Stage, value: str) -> str:
    """Start a run whose first step is handed out to an agent; return the run's id."""
    first = {"id": "first", "worker": "caller", "success_criteria": f'data.v == "{value}"'}
    first |= {"idempotent": True}
    act = {"id": "act", "worker": "act", "parameters": {"value": "${{ steps.first.data.v }}"}}
    plan = stage.plan(first, {**act, "depends_on": ["first"]})
    run = str(stage.run("run", plan, "--review", "--json").doc["run"])
    shown = stage.run("review", run, "--json").doc
    stage.run("review", run, "approve", "--digest", shown["digest"])
    return run


def finish_handed(stage: Stage, run: str, value: str) -> None:
    """Judge a run that an agent drove to its end."""
    stage.claimed = stage.run("show", run, "--json").doc["status"] == "succeeded"
    stage.ended = time.time()
    asked = stage.run("inbox", "--json")
    stage.people = len(asked.doc)
    stage.effects(value)


def f29(stage: Stage) -> None:
    """A report comes twice: the same is answered alike, another one is refused."""
    value = value_of(stage)
    run = handed(stage, value)
    caller(stage, "next", run)
    report = ("report", run, "first", "--attempt", "1", "--data")
    good, bad = json.dumps({"v": value}), json.dumps({"v": f"other-{value}"})
    stage.expect(caller(stage, *report, good)[0] == 0, "the first report was refused")
    stage.fault()
    orders = [(good, 0), (bad, 7)]
    stage.draw.shuffle(orders)
    for body, wanted in orders:
        code, _ = caller(stage, *report, body)
        stage.expect(code == wanted, f"exit {code} for a repeated report, wanted {wanted}")
    finish_handed(stage, run, value)


def f30(stage: Stage) -> None:
    """Messages of an attempt that was given up arrive after those of the next one, shuffled."""
    value = value_of(stage)
    run = handed(stage, value)
    caller(stage, "next", run, "--lease", "1s")
    stage.fault()
    time.sleep(1.2)
    step = stage.until(lambda: caller(stage, "next", run)[1].get("step"), "the second attempt", 60)
    stage.expect(step["attempt"] == 2, f"attempt {step['attempt']}")
    late = json.dumps({"v": f"late-{value}"})
    good = json.dumps({"v": value})
    messages: list[tuple[tuple[str, ...], bool]] = [
        (("report", run, "first", "--attempt", "1", "--data", late), False),
        (("extend", run, "first", "--attempt", "1", "--lease", "1h"), False),
        (("report", run, "first", "--attempt", "2", "--data", good), True),
    ]
    stage.draw.shuffle(messages)
    for words, accepted in messages:
        code, _ = caller(stage, *words)
        stage.expect((code == 0) == accepted, f"exit {code} for {words[0]} of attempt {words[4]}")
    finish_handed(stage, run, value)


def _effect_then_killed(stage: Stage, value: str, *, probed: bool) -> str:
    """Start a run, and kill its host once the effect is there and nothing was reported."""
    act = 'echo "$1" >> effects; date +%s.%N >> faults; sleep 30\n'
    stage.write("slow.sh", act)
    probe = 'probe = ["grep", "-qx", "{value}", "effects"]\n' if probed else ""
    more = '[workers.slow]\ncommand = ["/bin/sh", "slow.sh", "{value}"]\n'
    stage.settings(f'{more}effects = ["world"]\nrisk = "low"\n{probe}')
    plan = stage.plan({"id": "a", "worker": "slow", "parameters": {"value": value}})
    with killed_at(stage, (stage.path / "faults").exists, "the effect", "run", plan, "--quiet"):
        return str(stage.latest()["run"])


def f31(stage: Stage) -> None:
    """The effect is there, the host dies before the report, and no probe can tell: one question.

    With a probe it must come right by itself, in the same episode, in a folder of its own.
    """
    (stage.path / "probed").mkdir()
    other = Stage(stage.path / "probed", stage.draw)
    value = value_of(stage)
    run = _effect_then_killed(other, value, probed=True)
    other.settle(other.run("resume", run, "--quiet"))
    other.effects(value)
    other.expect(other.claimed and not other.people, "with a probe it needed a person")
    stage.problems += other.problems
    run = _effect_then_killed(stage, value, probed=False)
    stage.settle(stage.run("resume", run, "--quiet"))
    stage.effects(value)
    asked = stage.people
    answered = stage.run("answer", f"{run}/q1", "done")
    done = stage.run("resume", run, "--quiet")
    stage.expect(answered.code == 0 and done.code == 0, "the answer did not end the run")
    stage.told = f"with a probe: adopted; without: {asked} question, answered, ended"
    stage.effects(value)


def f32(stage: Stage) -> None:
    """An agent says that it is done, and the work is not: the check finds it, and it is retried."""
    value, times = value_of(stage), stage.draw.choice((1, 99))
    wrong = stage.draw.choice(("true", "echo half > work", "echo wrong > work"))
    text = counted(times, f"{wrong}; echo done", f"test $n -le {times} || echo {value} > work")
    stage.write("agent.sh", text)
    # The step is the agent's work and then the check of it, which looks at the world itself.
    checked = f"sh agent.sh; grep -qx {value} work 2>/dev/null\n"
    spare = script(stage, "spare", f"echo {value} > work; echo done")
    stage.settings(script(stage, "bad", checked) + spare)
    then_act(stage, value, success_criteria="data.exit_code == 0", alternatives=["spare"])
    stage.told = "wrong once" if times == 1 else "wrong each time"
    work = stage.path / "work"
    stage.right = stage.right and work.exists() and work.read_text().strip() == value


def f33(stage: Stage) -> None:
    """It claims that its tests passed and ran none: the criteria run them."""
    value = value_of(stage)
    claims = json.dumps({"tests": "passed", "ran": stage.draw.randint(1, 200)})
    bad = counted(1, f"echo '{claims}'; exit 0", f"echo {value} > work; echo '{claims}'")
    stage.write("claims.sh", bad)
    workers = f'''
import subprocess, time
from leadhand import InvalidOutput, worker


def tests_pass(data) -> bool:
    """Run the tests: what the report says of them is no evidence."""
    return subprocess.run(["grep", "-qx", "{value}", "work"], check=False).returncode == 0


@worker(idempotent=True, checks={{"tests_pass": tests_pass}})
def bad() -> dict:
    import json
    said = subprocess.run(["/bin/sh", "claims.sh"], capture_output=True, check=True).stdout
    return json.loads(said)
'''
    stage.settings("", workers)
    then_act(stage, value, success_criteria="tests_pass")


def f34(stage: Stage) -> None:
    """A check that fails at random one time in three: its step is tried again, within bounds."""
    value, first = value_of(stage), stage.draw.randint(1, 2)
    text = counted(first, "exit 1", "echo fine")
    stage.settings(script(stage, "bad", text, 'exit_codes = {1 = "transient"}\n'))
    then_act(stage, value, retry=3)
    tries = int((stage.path / "count").read_text())
    stage.told = f"red {first} of {tries}"
    stage.expect(tries <= 3, f"{tries} tries")


def f35(stage: Stage) -> None:
    """A command writes 1 GB to its standard output."""
    value = value_of(stage)
    stage.settings(script(stage, "bad", f"{MARK}; head -c 1000000000 /dev/zero | tr '\\0' 'x'\n"))
    first = {"id": "first", "worker": "bad"}
    act = {"id": "act", "worker": "act", "parameters": {"value": value}, "depends_on": ["first"]}
    peak = 0.0
    with stage.start("run", stage.plan(first, act), "--quiet") as child:
        while child.poll() is None:
            try:
                status = Path(f"/proc/{child.pid}/status").read_text()
            except OSError:
                break
            lines = [line for line in status.splitlines() if line.startswith("VmHWM")]
            peak = max([peak, *(int(line.split()[1]) / 1000 for line in lines)])
            time.sleep(0.05)
        code = child.wait(180)
    stage.claimed, stage.ended = code == 0, time.time()
    stage.people = len(stage.run("inbox", "--json").doc)
    stage.effects(value)
    size = sum(each.stat().st_size for each in stage.path.rglob("*") if each.is_file()) / 1e6
    stage.told = f"peak {peak:.0f} MB, {size:.0f} MB on disk"
    stage.expect(peak <= MEMORY_MB_MAX, f"{peak:.0f} MB of memory")
    stage.expect(size <= 50, f"{size:.0f} MB on disk")


NASTY = """
from leadhand import worker


@worker(idempotent=True)
def bad() -> dict:
    import time
    open("faults", "a").write(f"{{time.time()}}\\n")
    print({printed!r})
    return {{"text": {text!r}, {text!r}: 1}}


@worker(idempotent=True)
def half() -> str:
    return "half \\ud800"


@worker(idempotent=True)
def whole() -> str:
    return "whole"
"""


def f36(stage: Stage) -> None:
    """Invalid UTF-8, NUL, lone surrogates, terminal and bidi codes, in output and in results.

    A result with half a character is refused as malformed, and another worker gives one.
    """
    value = value_of(stage)
    nasty = ["\x00", "\x1b[31m", "\u202e", "\uffff", "\r\n", "\ufeff"]
    stage.draw.shuffle(nasty)
    raw = r"\377\376\000\033[2J\342\200\256\355\240\200"
    more = script(stage, "raw", f"{MARK}; printf '{raw}'\n")
    text = "".join(nasty)
    stage.settings(more, NASTY.format(text=text, printed=f"{text}\ud800\udfff\ud800"))
    steps: list[dict[str, Any]] = [{"id": "raw", "worker": "raw"}, {"id": "bad", "worker": "bad"}]
    steps.append({"id": "half", "worker": "half", "alternatives": ["whole"]})
    act = {"id": "act", "worker": "act", "parameters": {"value": value}}
    stage.go(stage.plan(*steps, {**act, "depends_on": ["raw", "bad", "half"]}))
    stage.effects(value)
    run = stage.latest()["run"]
    for words in (("show", run), ("logs", run), ("logs", run, "raw"), ("export", run, "-o", "x")):
        done = stage.run(*words)
        good = done.code == 0 and "Traceback" not in done.err
        stage.expect(good, f"{words[0]}: exit {done.code}: {done.err[-200:]}")
        codes = [c for c in done.out + done.err if c in "\x1b\x00\u202e"]
        stage.expect(not codes, f"{words[0]} shows control characters: {codes[:3]!r}")


def f37(stage: Stage) -> None:
    """A program that is not there, or may not be run: another worker takes over."""
    value, way = value_of(stage), stage.draw.choice(("missing", "not executable"))
    stage.told = way
    stage.write("tool", "#!/bin/sh\necho fine\n")
    name = "no-such-program-of-anyone" if way == "missing" else "./tool"
    table = f'[workers.bad]\ncommand = ["{name}"]\nidempotent = true\nrisk = "low"\n'
    stage.settings(table + script(stage, "spare", "echo fine"))
    stage.fault()
    then_act(stage, value, alternatives=["spare"])


def f38(stage: Stage) -> None:
    """A program that waits for input: it gets none, and another way is taken within a minute."""
    value, way = value_of(stage), stage.draw.choice(("stdin", "tty"))
    stage.told = way
    source = "" if way == "stdin" else "< /dev/tty"
    ask = f"{MARK}; echo 'Continue? [y/N]'; read answer {source} || exit 1; echo $answer"
    more = script(stage, "bad", ask, 'timeout = "20 s"\n') + script(stage, "spare", "echo fine")
    stage.settings(more)
    then_act(stage, value, alternatives=["spare"])
    first = stage.first_fault()
    if first is not None and stage.ended is not None:
        stage.expect(stage.ended - first <= 60, "more than a minute")


def f39(stage: Stage) -> None:
    """A command leaves a daemon of its own session behind: nothing of it is left."""
    value, nap = value_of(stage), str(200_000 + stage.draw.randrange(10**6))
    daemon = f"{MARK}; setsid sh -c 'setsid sleep {nap} &' ; setsid sleep {nap} & echo fine\n"
    stage.settings(script(stage, "bad", daemon))
    then_act(stage, value)
    end = time.monotonic() + 20
    while alive(nap) and time.monotonic() < end:
        time.sleep(0.1)
    stage.expect(not alive(nap), f"left behind: {alive(nap)}")
