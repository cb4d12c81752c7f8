# Two commands are all a newcomer needs: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -q --durations=15
# Two workers, a file of tests each at a time: most tests keep one core busy.
BOTH := -n 2 --dist loadfile
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

# Minutes each tier may take on two cores; one that overruns fails (where there is a `timeout` to stop it).
UNIT_MINUTES := 25
TINY_MINUTES := 30
REAL_MINUTES := 15
SLOW_MINUTES := 40
BROWSER_MINUTES := 10
TIMEOUT := $(shell command -v timeout || command -v gtimeout)
within = @echo "== tier $(1): $(2) minutes at most"; $(if $(TIMEOUT),$(TIMEOUT) $(2)m) $(PYTEST)

.PHONY: demo test unit tiny real slow browser lint types floors docs site clean

demo: $(VENV)/.installed
	$(BIN)/lmassay demo

test: unit tiny real

unit: $(VENV)/.installed-dev
	$(call within,unit,$(UNIT_MINUTES)) $(BOTH) -m "not tiny and not real and not slow and not browser"

tiny: $(VENV)/.installed-dev
	$(call within,tiny,$(TINY_MINUTES)) $(BOTH) -m "tiny and not real and not slow"

real: $(VENV)/.installed-dev
	$(call within,real,$(REAL_MINUTES)) -m "real and not slow"

slow: $(VENV)/.installed-dev
	$(call within,slow,$(SLOW_MINUTES)) -m "slow and not browser"

# Needs Debian's chromium and chromium-driver; skipped, saying so, where they are missing.
browser: $(VENV)/.installed-dev
	$(call within,browser,$(BROWSER_MINUTES)) -m browser

docs: $(VENV)/.installed-dev
	$(PYTEST) tests/test_docs.py

site: $(VENV)/.installed-dev
	$(BIN)/mkdocs build --strict -q

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

floors: $(VENV)/.installed-dev
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("lmassay needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; name another with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# The stamps make a second run fast; a change of either file installs again.
$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing into $(VENV) (some minutes; torch alone is large)"
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing into $(VENV) (some minutes; torch alone is large)"
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dev]"
	@touch $(VENV)/.installed $@
