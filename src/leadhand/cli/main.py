"""The entry point, and the list of all commands.

`leadhand --help` is answered from the table below, before anything is imported: help must be
instant, since people ask for it when they are stuck. A command's module is imported only when
that command is used.
"""

from __future__ import annotations

import os
import sys

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Get started": {
        "demo": ("demo", "Run a short demonstration; no API key and no network are needed"),
        "init": ("init", "Start a project from a template that runs at once"),
        "doctor": ("doctor", "Check the installation, the settings and everything a plan needs"),
    },
    "Plans": {
        "plan": ("plan", "Plan how to reach a goal, without running anything"),
        "lint": ("lint", "Check a plan and report every error and warning"),
        "show": ("show", "Show a plan or a run: as a list, a graph or a timeline"),
        "diff": ("diff", "Compare two plans, or two revisions of a run"),
        "eval": ("eval", "Compare planners, models and policies on a suite of goals"),
        "library": ("library", "Save plans under a name; list, show, export and import them"),
    },
    "Runs": {
        "run": ("run", "Run a plan, or plan and run a goal"),
        "resume": ("resume", "Resume a run, or continue one that is paused"),
        "rerun": ("rerun", "Run a run again, as a new run"),
        "watch": ("watch", "Follow a run live until it ends, or until no process runs it"),
        "step": ("step", "Hand steps out to an agent, and take its reports"),
        "ls": ("ls", "List runs, newest first, or the configured workers"),
        "compare": ("compare", "Compare two runs: outcome, inputs, plan and steps"),
        "logs": ("logs", "Show the event log of a run, or the output of a step"),
        "metrics": ("metrics", "Show totals over all runs, and how often each recovery worked"),
    },
    "Approvals and control": {
        "inbox": ("inbox", "List open approvals, questions and tasks"),
        "answer": ("inbox", "Answer a question or a review"),
        "review": ("review", "Show what will run; approve, reject or amend it"),
        "hold": ("hold", "Hold steps that have not started, until you release them"),
        "release": ("hold", "Release held steps"),
        "redo": ("hold", "Retry a failed step; a failed run is reopened"),
        "rollback": ("rollback", "Roll back a run that has ended"),
        "pause": ("control", "Pause a run: running steps finish, and no new ones start"),
        "cancel": ("control", "Cancel a run: no step starts, and running steps are ended"),
        "stop-all": ("control", "Emergency stop for all runs"),
    },
    "Audit": {
        "verify": ("verify", "Verify the log of a run, or an exported file"),
        "export": ("export", "Export a run as one file that can be verified on its own"),
    },
    "More": {
        "apply": ("run", "Run an approved plan; fail if anything changed"),
        "trust": ("trust", "Trust the code and addresses that the settings of a folder name"),
        "schema": ("schema", "Print the JSON Schema of plan documents"),
        "audit-key": ("audit_key", "Create a key that signs exports, anchors and approvals"),
        "archive": ("archive", "Move runs that have ended into signed, compressed files"),
        "backup": ("backup", "Copy the log into a file while its host works"),
        "restore": ("backup", "Put a backup back where there is no log"),
        "migrate": ("migrate", "Copy the log to another database; create tables and grant access"),
    },
}
"""Commands by section: the module, and the first sentence of the command's own help."""
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
HIDDEN = {"host": "leadhand.cli.background"}

EXIT_CODES = """\
Exit codes: 0 success, 1 failed, 2 usage error, 3 plan invalid or rejected,
  4 not allowed, 5 waiting for approval or input, 6 limit reached, 7 stale or in
  conflict, 8 still running or paused, 9 cancelled, 70 internal error,
  130 and 143 ended by a signal."""


def help_text() -> str:
    """Return the text of `leadhand --help`."""
    lines = [
        "Usage: leadhand COMMAND [OPTIONS]",
        "",
        "  leadhand demo                        see it work, without an API key",
        "  leadhand init && leadhand run plan.yaml",
        "",
        "Leadhand runs multi-step work from a plan that you can review first. A planner",
        "proposes steps, workers run them, every result is checked, and everything is",
        "logged. `leadhand COMMAND --help` describes a command.",
    ]
    brought = _brought()
    for title in sorted({**SECTIONS, **brought}, key=lambda each: each == "More"):
        lines += ["", f"{title}:"]
        rows = {name: text for name, (_, text) in SECTIONS.get(title, {}).items()}
        lines += [f"  {name:<10} {text}" for name, text in (rows | brought.get(title, {})).items()]
    lines += [
        "",
        "Options:",
        "  --help     Show this text.",
        "  --version  Show the version.",
        "",
        "Every command takes --json. The id of a run may be shortened if it stays unique.",
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
