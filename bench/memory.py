"""The memory of a process that has finished so many steps: the highest it ever had.

A fan-out in a fresh process, imports and interpreter included. The highest is what a machine
must have, and never less than what is held at the end, which is shown as well.
"""

from __future__ import annotations

from frame import arguments, emit, run_case


def main() -> None:
    """Run the fan-out once and pass on what it says of its memory."""
    given = arguments(["memory"], module={"default": "leadhand_cases"})
    args = ["fanout", "--size", str(given.size), "--dir", str(given.dir)]
    result = run_case(given.module, args)
    if "error" in result:
        raise SystemExit(result["error"])
    held = {name: result[name] for name in ("rss_mb", "peak_mb") if name in result}
    emit(given.size, result["seconds"], **held)


if __name__ == "__main__":
    main()
