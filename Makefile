# Everything a checkout needs, on a machine with Python 3.11 or newer, git and make. `make help` lists it.

VENV   := .venv
PYTHON ?=
BIN    := $(VENV)/bin
ARGS   ?=
JOBS   ?= 4
# One stamp per place: a checkout that was moved or copied sets itself up again.
STAMP  := $(VENV)/ready-$(shell printf '%s' "$(CURDIR)" | cksum | cut -d' ' -f1)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without .pyc files each of the hundreds of processes that the tests start would compile perdure again.
unexport PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench soak docs

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Make .venv and install perdure with everything for its development
	@:

demo: $(STAMP) ## Watch jobs crash, wait for a person and resume
	@$(BIN)/perdure demo

# What fails is run once more, by itself: hundreds of tests start processes and wait for them, and the load of a machine must
# not decide about a change. Both results are printed; a test that passes only by itself is a fault to be fixed.
define run_tests
$(BIN)/python -m pytest --cache-clear $(1) || { test $$? -eq 1 && echo 'FAILED beside other tests. Once more, by itself:' && \
	$(BIN)/python -m pytest -v -n 0 --maxfail 1 --last-failed --last-failed-no-failures none tests; }
endef

test: lint ## Lint, then run the tests (make test ARGS="tests/model -k backoff" runs some)
	@$(BIN)/python -m compileall -q src tests bench examples
ifeq ($(ARGS),)
	@$(call run_tests,-n $(JOBS) --ignore tests/crash)
	@$(call run_tests,-n 3 --dist worksteal tests/crash)
else
	@$(BIN)/python -m pytest -n $(JOBS) $(ARGS)
endif

lint: $(STAMP) ## Check style, types and the direction of imports
	@$(BIN)/python -m ruff check --quiet
	@$(BIN)/python -m ruff format --quiet --check || { echo 'to repair: $(BIN)/python -m ruff format'; exit 1; }
	@$(BIN)/python -m mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo >.import-linter.log 2>&1 || { cat .import-linter.log; exit 1; }

bench: $(STAMP) ## Measure, beside the bare database and Graphile Worker (with Node)
	@$(BIN)/python -m bench $(ARGS)

soak: $(STAMP) ## Kill 2,000 workers on SQLite and 2,000 on PostgreSQL (ARGS=tasks: 200 while coding CLIs run)
	@$(BIN)/python -m tests.crash.soak $(ARGS)

docs: $(STAMP) ## Regenerate the reference pages (Python, commands, settings, states)
	@$(BIN)/python docs/generate.py

# The first interpreter that really runs and is new enough; a name on PATH alone proves nothing.
define MAKE_VENV
set -e; \
if grep -qsF "$(CURDIR)/$(VENV)/bin/python" $(BIN)/pip && $(BIN)/python -m pip --version >/dev/null 2>&1; then exit 0; fi; \
bare=; \
for python in $(if $(PYTHON),"$(PYTHON)",python3.14 python3.13 python3.12 python3.11 python3 python); do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
	if ! "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then bare=$$python; continue; fi; \
	echo "setting up $(VENV) with $$("$$python" --version) ..."; \
	"$$python" -m venv --clear $(VENV); \
	exit 0; \
done; \
if [ -n "$$bare" ]; then \
	echo "$$bare cannot make virtual environments: install its venv module (Debian, Ubuntu: apt install python3-venv)" >&2; \
else \
	echo 'perdure needs Python 3.11 or newer and found none; name one with: make setup PYTHON=/path/to/python3' >&2; \
fi; \
exit 1
endef

$(STAMP): pyproject.toml
	@$(MAKE_VENV)
	@$(BIN)/python -m pip install -qq -e '.[dev]'
	@touch $@
