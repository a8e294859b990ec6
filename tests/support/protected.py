"""A worker that changes something protected, for tests of every surface that shows it."""

COMMIT = "c0ffee" + "0" * 34
WORKER = f"""

from leadhand import Failure, Report


@worker(name="scale", idempotent=True)
async def scale(context: Context) -> object:
    answers = [each for each in context.answers if each["choice"] == "approve"]
    if answers:
        return {{"landed": answers[-1]["commit"]}}
    change = {{
        "commit": "{COMMIT}",
        "base": "b" * 40,
        "digest": "d" * 64,
        "paths": ["deploy/prod.yaml"],
        "diff": "diff --git a/deploy/prod.yaml b/deploy/prod.yaml\\n@@ -1 +1 @@\\n"
        "-replicas: 3\\n+replicas: 0\\n",
    }}
    return Report("failed", error=Failure("policy", "It passes.", change=change))
"""
STEP = {"id": "scale", "worker": "scale"}
