"""Three workers for the deployment plan beside this file. They act on a pretend cluster.

    leadhand run examples/deploy/plan.json --workers examples/deploy/workers.py

Set TESTS_FAIL=1 to see a failing test suite stop the deployment before it begins.
"""

from __future__ import annotations

import asyncio
import os

from leadhand import Context, worker


@worker(
    name="test-runner",
    action="run_tests",
    checks={"all_tests_pass": lambda data: data["failed"] == 0 and data["passed"] > 0},
    idempotent=True,
    est="1s",
)
async def run_tests(test_suite: str, environment: str, context: Context) -> dict[str, int]:
    """Run a suite; whether it is good enough is for the step's success criteria to say."""
    for done in range(1, 6):
        context.progress(f"{test_suite} suite on {environment}", done / 5)
        await asyncio.sleep(0.1)
    failed = 3 if os.environ.get("TESTS_FAIL") else 0
    return {"passed": 120 - failed, "failed": failed}


@worker(name="db-manager", action="backup_database", effects=["database"], est="1s")
async def backup_database(database: str, backup_type: str) -> dict[str, str]:
    """Make a backup; a run that dies here must not simply make a second one."""
    await asyncio.sleep(0.3)
    return {"backup": f"{database}-{backup_type}.dump"}


@worker(name="k8s-deployer", action="deploy_service", effects=["cluster"], est="1s")
async def deploy_service(service: str, version: str, strategy: str) -> str:
    """Roll a new version out."""
    await asyncio.sleep(0.3)
    return f"{service} {version} is live ({strategy})"
