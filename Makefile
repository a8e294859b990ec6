# Leadhand's commands. Each does its own set-up: all it needs is Python 3.11 or newer, git and make.
#
#   PYTHON=python3.12   the Python that .venv is made from
#   TESTERS=5           tests at once: five for two cores, since most of a test is waiting
#   ARGS="..."          further arguments for pytest, the benchmark or the mutation run

PYTHON ?= python3
ARGS   ?=
JOBS   ?= 2
CORES  := $(shell nproc 2>/dev/null || echo 2)
TESTERS ?= $(shell expr 5 \* $(CORES) / 2)
SEEDS  ?= 10000
SEED   ?=

BIN := .venv/bin

# Bytecode is kept, so that every start after the first is quick; and no module from
# elsewhere may stand in for one of ours.
unexport PYTHONDONTWRITEBYTECODE PYTHONHOME PYTHONPATH

.DEFAULT_GOAL := help
.PHONY: help demo test fast check docs pictures image image-rootfs bench bench-temporal calibrate evals proof hostile sim audit mutants reference lock clean python run-env dev-env docs-env

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: run-env ## see Leadhand work: a goal, a plan, four failures recovered; no key
	@$(BIN)/leadhand demo

test: dev-env ## run every test; the ten slowest are named
	@$(BIN)/python -m pytest -n $(TESTERS) --dist worksteal --durations=10 $(ARGS)

fast: dev-env ## run the quick tests: the inner loop
	@HYPOTHESIS_PROFILE=fast $(BIN)/python -m pytest -n $(CORES) --dist worksteal -m "not slow" --durations=10 $(ARGS)

check: dev-env ## lint, format, types, layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict src
	@$(BIN)/lint-imports --no-logo

docs: dev-env docs-env ## build the documentation site: build/site/index.html
	@$(BIN)/python scripts/pictures.py --new
	@.venv-docs/bin/python scripts/docs_site.py $(ARGS)

pictures: dev-env ## make the pictures of the documentation from real runs
	@$(BIN)/python scripts/pictures.py $(ARGS)

image: python ## build the image of deploy/Dockerfile, with docker, podman or buildah
	@$(PYTHON) scripts/image.py build

image-rootfs: python ## build it on Debian's packages (mmdebstrap), run it by podman and check it; minutes
	@$(PYTHON) scripts/image.py rootfs

bench: dev-env ## measure, beside the peers, in one run
	@$(BIN)/python -m bench $(ARGS)

bench-temporal: dev-env ## what Leadhand adds to a bare Temporal workflow, in one run
	@$(BIN)/python -m bench.temporal $(ARGS)

calibrate: dev-env ## how often each lint rule fires on good and on bad plans
	@$(BIN)/python -m bench.calibration $(ARGS)

evals: dev-env ## plan and schedule what others have set: figures beside the wanted ones
	@$(BIN)/python -m tests.external.evals --jobs $(JOBS) $(ARGS)

proof: dev-env ## run the tests of others and the long campaigns; the table is written to docs/proof.md
	@$(BIN)/python -m tests.proof $(ARGS)

sim: dev-env ## simulate faults: SEEDS=10000, or SEED=42 to repeat one
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

audit: dev-env ## 10,000 tamperings and 1,000 secrets: all found, none leaked
	@$(BIN)/python -m tests.audit.tamper $(ARGS)
	@$(BIN)/python -m tests.audit.canaries

hostile: dev-env ## play hostile agents and tests against the fleet's gate and sandbox
	@$(BIN)/python -m tests.fleet.campaign $(ARGS)

mutants: dev-env ## break the core on purpose; count what the tests notice
	@$(BIN)/python tests/support/mutants.py $(ARGS)

reference: dev-env ## write the generated pages of docs/reference
	@$(BIN)/python scripts/reference.py

# One resolution per file, on the oldest Python we support; UPGRADE=--upgrade takes newer versions.
# No option may write where a package came from: hashes say what it is.
COMPILE = CUSTOM_COMPILE_COMMAND="make lock" .venv-lock/bin/pip-compile --quiet --generate-hashes \
	--allow-unsafe --strip-extras --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host --no-emit-options $(UPGRADE)

lock: python ## resolve the requirements again, with hashes
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
	  echo "leadhand: locks are made on the oldest Python we support: make lock PYTHON=python3.11" >&2; \
	  exit 1; }
	@$(PYTHON) scripts/environment.py lock
	$(COMPILE) --output-file requirements/base.txt pyproject.toml
	$(COMPILE) --output-file requirements/build.txt requirements/build.in
	$(COMPILE) --extra archive --extra fleet --extra map --extra models --extra mcp --extra postgres --extra server --extra slack --extra sign --extra telemetry --extra temporal --output-file requirements/dev.txt pyproject.toml requirements/dev.in
	$(COMPILE) --constraint requirements/dev.txt --extra archive --extra mcp --extra models --extra postgres --extra server --extra slack --extra sign --extra telemetry --extra temporal --output-file requirements/image.txt pyproject.toml
	$(COMPILE) --output-file requirements/model.txt requirements/model.in
	@$(PYTHON) scripts/keep_named.py requirements/model.txt requirements/model.in
	$(COMPILE) --output-file requirements/coders.txt requirements/coders.in
	@$(PYTHON) scripts/keep_named.py requirements/coders.txt requirements/coders.in
	$(COMPILE) --output-file requirements/postgres.txt requirements/postgres.in
	@$(PYTHON) scripts/keep_named.py requirements/postgres.txt requirements/postgres.in
	$(COMPILE) --output-file requirements/temporal.txt requirements/temporal.in
	@$(PYTHON) scripts/keep_named.py requirements/temporal.txt requirements/temporal.in
	$(COMPILE) --output-file requirements/suite.txt requirements/suite.in
	@$(PYTHON) scripts/keep_named.py requirements/suite.txt requirements/suite.in
	$(COMPILE) --output-file requirements/agentdojo.txt requirements/agentdojo.in
	@$(PYTHON) scripts/keep_named.py requirements/agentdojo.txt requirements/agentdojo.in
	$(COMPILE) --output-file requirements/bench.txt requirements/bench.in
	$(COMPILE) --output-file requirements/deploy.txt requirements/deploy.in
	$(COMPILE) --output-file requirements/docs.txt requirements/docs.in
	$(COMPILE) --output-file requirements/node.txt requirements/node.in
	$(COMPILE) --output-file requirements/lock.txt requirements/lock.in

clean: ## remove environments, caches and builds
	@test ! -d build/image || $(PYTHON) scripts/image.py clean
	@rm -rf .venv .venv-agentdojo .venv-bench .venv-coders .venv-deploy .venv-docs .venv-lock .venv-model .venv-node .venv-postgres .venv-suite .venv-temporal .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Environments are built once, and again only when a lock file, the project or Python changes.
run-env dev-env docs-env: python
	@$(PYTHON) scripts/environment.py $(@:-env=)

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "leadhand: Python 3.11 or newer is needed, and $(PYTHON) is $$(command -v $(PYTHON) >/dev/null && $(PYTHON) --version 2>&1 || echo missing)." >&2; \
	  echo "          Name another one, for example: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
	  exit 1; }
