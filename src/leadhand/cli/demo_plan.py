"""What `leadhand demo` runs: the deployment plan, and three workers that act it out.

The workers only write small files into the demo's own folder and take their time. The second
one is the point: it does its work, and is killed before it can report. It has a probe, so the
engine does not repeat it blindly: it looks.
"""

from __future__ import annotations

PLAN = """\
{
  "plan_id": "deploy-auth-service-v2.1.4",
  "goal": "Deploy authentication service update to production",
  "steps": [
    {
      "id": "step-1",
      "action": "run_tests",
      "worker": "test-runner",
      "parameters": {
        "test_suite": "full",
        "environment": "staging"
      },
      "success_criteria": "all_tests_pass",
      "failure_action": "abort_deployment"
    },
    {
      "id": "step-2",
      "action": "backup_database",
      "worker": "db-manager",
      "parameters": {
        "database": "auth_prod",
        "backup_type": "full"
      },
      "depends_on": ["step-1"]
    },
    {
      "id": "step-3",
      "action": "deploy_service",
      "worker": "k8s-deployer",
      "parameters": {
        "service": "auth-service",
        "version": "v2.1.4",
        "strategy": "blue_green"
      },
      "depends_on": ["step-2"]
    }
  ],
  "rollback_plan": "rollback-auth-service-v2.1.3",
  "estimated_duration": "15 minutes",
  "risk_level": "medium"
}
"""

WORKERS = '''\
"""Three workers that act out a deployment. They only write files into this folder."""

import asyncio
from pathlib import Path

from leadhand import Context, worker

HERE = Path(__file__).parent


@worker(
    name="test-runner",
    action="run_tests",
    checks={"all_tests_pass": lambda data: data["failed"] == 0},
    idempotent=True,
    est="1.5s",
)
async def run_tests(test_suite: str, environment: str, context: Context) -> dict[str, int]:
    """Run a test suite."""
    for done in range(1, 6):
        await asyncio.sleep(0.3)
        context.progress(f"{done * 40} of 200 tests", done / 5)
    return {"passed": 200, "failed": 0}


def backup_exists(database: str, backup_type: str) -> dict[str, str] | None:
    """The probe: whether an attempt that nobody saw end did make the backup."""
    file = HERE / f"{database}.{backup_type}.backup"
    return {"file": file.name} if file.exists() else None


@worker(
    name="db-manager",
    action="backup_database",
    effects="writes a backup",
    probe=backup_exists,
    est="3s",
)
async def backup_database(database: str, backup_type: str, context: Context) -> dict[str, str]:
    """Back up a database. Doing it twice is not the same as doing it once."""
    file = HERE / f"{database}.{backup_type}.backup"
    with (HERE / "backups-made.txt").open("a") as count:
        count.write(f"attempt {context.attempt}\\n")
    await asyncio.sleep(0.5)
    file.write_text("all the rows")
    for done in range(1, 6):
        context.progress("checking what was written", done / 5)
        await asyncio.sleep(0.5)
    return {"file": file.name}


@worker(name="k8s-deployer", action="deploy_service", effects="deploys", est="1.5s")
async def deploy_service(
    service: str, version: str, strategy: str, context: Context
) -> dict[str, str]:
    """Deploy a service."""
    for colour in ("green is up", "traffic is moving", "blue is gone"):
        context.progress(colour)
        await asyncio.sleep(0.5)
    return {"deployed": f"{service} {version}", "strategy": strategy}
'''

SETTINGS = """\
[project]
workers = ["workers.py"]
"""

FILES = {"plan.json": PLAN, "workers.py": WORKERS, "leadhand.toml": SETTINGS}
BACKUP = "auth_prod.full.backup"
"""The file that shows that step-2 has done its work."""
COUNT = "backups-made.txt"
KILL_AT = "step-2"
