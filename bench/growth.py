"""Whether an event costs more in a large plan: CPU time per event at 100 and at 100,000 steps.

The small figure is the mean over many runs of 100 steps in one process, so both sides do
comparable work; both plans are ten chains side by side, so the frontier is the same and only
the size of plan and log differs. CPU time, not the clock: waiting for the disk is no cost of
growth. The small side runs before and after the large one, and the mean of the two counts, so
that a machine that slows down meanwhile favours neither.
"""

from __future__ import annotations

import shutil

from frame import arguments, emit, run_case


def main() -> None:
    """Measure small, large, small, each in a fresh process."""
    given = arguments(
        ["growth"],
        small={"type": int, "default": 100},
        module={"default": "leadhand_cases"},
    )
    costs: list[float] = []
    took = 0.0
    for name, size, repeat in (
        ("before", given.small, 50),
        ("large", given.size, 1),
        ("after", given.small, 50),
    ):
        folder = given.dir / name
        args = ["lanes", "--size", str(size), "--repeat", str(repeat), "--dir", str(folder)]
        result = run_case(given.module, args)
        shutil.rmtree(folder, ignore_errors=True)
        if "error" in result:
            raise SystemExit(f"{size} steps: {result['error']}")
        costs.append(result["cpu_us_per_event"])
        took = max(took, result["seconds"])
    small, large = (costs[0] + costs[2]) / 2, costs[1]
    figures = {"small_us_per_event": round(small, 2), "large_us_per_event": round(large, 2)}
    emit(given.size, took, ratio=round(large / small, 3), **figures)


if __name__ == "__main__":
    main()
