# Everything a contributor or a first-time user types. Needs make and a Python of 3.11 or newer; uses uv where it is.

VENV ?= .venv
ARGS ?=
# Worker processes of the tests, each with one BLAS thread; JOBS=0 runs them in this process (for a debugger).
JOBS ?= 2
# How many times longer than the CI's the random tests of `make fuzz` run.
FUZZ ?= 20
BIN := $(VENV)/bin
STAMP := $(VENV)/.dspark-ready
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile
# The first that is new enough; `make PYTHON=/path/to/python` overrides.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

.PHONY: chat test test-slow test-all fuzz check fix bench snapshots venv

chat: venv  ## talk to the embedded model (ARGS="--model ..." for another)
	@$(BIN)/dspark-chat $(ARGS)

test: venv  ## the tests of a local loop: every part of the code, in minutes
	$(PYTEST) -m 'not slow' $(ARGS)

test-slow: venv  ## what `make test` leaves out: the dear tests, and the properties with their full number of examples
	$(PYTEST) -m 'slow or fuzz or hypothesis' --hypothesis-profile=ci $(ARGS)

test-all: venv  ## the whole suite at once
	$(PYTEST) --hypothesis-profile=ci $(ARGS)

fuzz: venv  ## the properties with random inputs, long; a failure prints what reproduces it
	DSPARK_FUZZ=$(FUZZ) $(PYTEST) -m 'fuzz or hypothesis' --hypothesis-profile=fuzz $(ARGS)

check: venv  ## all that must pass before a commit
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/pyright --pythonpath $(BIN)/python -p pyright-engine.json
	$(BIN)/lint-imports
	$(PYTEST) -m 'not slow' $(ARGS)

fix: venv  ## let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: venv  ## speed of plain, lookup and mlx_lm.generate in one run
	$(BIN)/python benchmarks/speed.py $(ARGS)

snapshots: venv  ## accept the screens as they are now; look at the report before you commit
	$(BIN)/python -m pytest tests/tui -k snapshots --snapshot-update $(ARGS)

venv: $(STAMP)  ## make the environment (again, when pyproject.toml changed)

$(STAMP): pyproject.toml
	@if command -v uv >/dev/null 2>&1; then \
		test -x $(BIN)/python || uv venv --python '>=3.11' $(VENV); \
		uv pip install --python $(BIN)/python -e '.[dev]'; \
	elif [ -n "$(PYTHON)" ]; then \
		echo 'Making the environment in $(VENV); the first time this downloads a few hundred MB.'; \
		test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
			echo 'This Python cannot make environments: install its venv package (Debian: python3-venv).'; exit 1; }; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'; \
	else \
		echo 'dspark-chat needs Python 3.11 or newer (python.org, your package manager, or uv).'; exit 1; \
	fi
	@touch $(STAMP)
