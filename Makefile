# Two commands are all a newcomer needs: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test tiers lint types floors docs slow

demo: $(VENV)/.installed
	$(BIN)/lmassay demo

test: $(VENV)/.installed-dev tiers

# Each tier has a budget in minutes; one that overruns it fails.
tiers:
	timeout 8m $(BIN)/python -m pytest -q -m "not tiny and not real and not slow"
	timeout 15m $(BIN)/python -m pytest -q -m "tiny and not slow"
	timeout 15m $(BIN)/python -m pytest -q -m "real and not slow"

slow: $(VENV)/.installed-dev
	timeout 20m $(BIN)/python -m pytest -q -m slow

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

floors: $(VENV)/.installed-dev
	$(BIN)/lint-imports

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dev]"
	touch $@
