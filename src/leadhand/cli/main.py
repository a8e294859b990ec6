"""The entry point, and the list of all commands.

`leadhand --help` is answered from the table below, before anything is imported: help must be
instant, since people ask for it when they are stuck. A command's module is imported only when
that command is used.
"""

from __future__ import annotations

import os
import sys

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Begin": {
        "demo": ("demo", "See a goal become a plan, and the plan survive what goes wrong"),
        "init": ("init", "Write leadhand.toml, a worker stub and an example plan"),
    },
    "Plans": {
        "plan": ("plan", "Plan how to reach a goal, and what that takes; run nothing"),
        "lint": ("lint", "Check a plan and report everything that is wrong with it"),
        "show": ("show", "Show a plan or a run; --graph draws it"),
        "diff": ("diff", "What differs between two plans, or two revisions of a run"),
        "library": ("library", "Plans kept under a name: save, list, show, export, import"),
        "schema": ("schema", "Print the JSON Schema of plan documents"),
    },
    "Runs": {
        "run": ("run", "Run a plan, or pursue a goal"),
        "apply": ("run", "Run exactly this plan; refuse it when it is stale"),
        "resume": ("resume", "Take a run up again where its log ends"),
        "watch": ("watch", "Follow a run live"),
        "ls": ("ls", "List runs, or workers"),
        "logs": ("logs", "What was meant and what was done; a step's own output"),
        "metrics": ("metrics", "What all runs amount to; how often each recovery won"),
        "verify": ("verify", "Check hash chains and every invariant over the log"),
    },
    "Control": {
        "inbox": ("inbox", "What waits for a person"),
        "answer": ("inbox", "Answer a question or a review"),
        "review": ("review", "See all that will run; approve, reject or amend it"),
        "hold": ("hold", "Stop before a step, until it is released"),
        "release": ("hold", "Let a step go on that is held"),
        "redo": ("hold", "Try a step again that failed"),
        "rollback": ("rollback", "Take back what a run did"),
        "pause": ("control", "Start nothing new in a run"),
        "cancel": ("control", "Stop a run"),
        "stop-all": ("control", "Start nothing new in any run, until lifted"),
        "export": ("export", "Write a run as one file that can be checked alone"),
        "audit-key": ("audit_key", "Make a key that signs anchors, exports or approvals"),
        "migrate": ("migrate", "Move a log to PostgreSQL or back; make its tables, give rights"),
        "mcp": ("mcp", "Which tools MCP servers have; pin them as they are"),
        "trust": ("trust", "Let what a folder's settings name be executed; take it back"),
        "doctor": ("doctor", "What is installed, configured, and wrong"),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
HIDDEN = {"host": "leadhand.cli.background"}

EXIT_CODES = """\
Exit codes: 0 succeeded, 1 failed, 2 usage, 3 plan invalid or rejected, 4 not allowed,
  5 waiting for a person, 6 limit reached, 7 stale or conflicting, 8 still running or
  paused, 9 cancelled, 70 a bug of ours, 130 and 143 signals."""


def help_text() -> str:
    """Return the text of `leadhand --help`."""
    lines = [
        "Usage: leadhand COMMAND [OPTIONS]",
        "",
        "  leadhand demo                        see it work: no key, no account",
        "  leadhand init && leadhand run plan.yaml",
        "",
        "A planner proposes steps, workers carry them out, and every outcome is checked,",
        "durable and explained. `leadhand COMMAND --help` says more.",
    ]
    brought = _brought()
    for title in dict.fromkeys((*SECTIONS, *brought)):
        lines += ["", f"{title}:"]
        rows = {name: text for name, (_, text) in SECTIONS.get(title, {}).items()}
        lines += [f"  {name:<10} {text}" for name, text in (rows | brought.get(title, {})).items()]
    lines += [
        "",
        "Options:",
        "  --help     This text",
        "  --version  The version",
        "",
        "Every command takes --json. Ids may be shortened as long as they are unique.",
        EXIT_CODES,
    ]
    return "\n".join(lines)


def _brought() -> dict[str, dict[str, str]]:
    """Return the commands of products and plugins, with their help lines, by section."""
    from leadhand import plugins
    from leadhand.errors import LeadhandError

    found: dict[str, dict[str, str]] = {}
    for name, part in plugins.parts("commands").items():
        if name in COMMANDS:
            continue
        line = plugins.CommandPart("", f"of {part.package}", "Plugins")
        if part.package == "leadhand":  # only ours is known to be quick to import
            try:
                line = part.load()
            except LeadhandError as error:
                line = line._replace(help=str(error))
        found.setdefault(line.section, {})[name] = line.help
    return found


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    args = sys.argv[1:] if argv is None else argv
    if args in (["--help"], ["-h"], ["help"]):
        try:
            print(help_text(), flush=True)  # noqa: T201 - the one place that needs nothing else
        except BrokenPipeError:
            os._exit(128 + 13)
        return
    if not args:
        print(help_text(), file=sys.stderr)  # noqa: T201 - as above
        sys.exit(2)
    try:
        from leadhand.cli.group import execute

        code = execute(args)
    except KeyboardInterrupt:  # before there was a handler, or after
        code = 130
    _end(code)


def _end(code: int) -> None:
    """Exit with this code, even if native threads of a hosting service still run.

    They may outlive the interpreter, which then aborts: a successful command would exit with 134.
    """
    if not _has_native_threads():
        sys.exit(code)
    import atexit
    from contextlib import suppress

    atexit._run_exitfuncs()  # noqa: SLF001 - what is due at the end, and nothing after it
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _has_native_threads() -> bool:
    """Return whether a module is imported whose threads outlive Python: see `HostPart`."""
    plugins = sys.modules.get("leadhand.plugins")
    if plugins is None:
        return False
    return any(part.load().threads in sys.modules for part in plugins.parts("hosts").values())
