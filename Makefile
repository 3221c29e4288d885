# Two commands do all the set-up: `make demo` and `make test`. `make help` lists the others.
PYTHON ?= python3
UV_VERSION := 0.13.9
BOOT := build/bootstrap
UV := $(BOOT)/bin/uv
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Nothing from the caller's environment may decide what is installed or tested.
export UV_PYTHON_DOWNLOADS := never
export UV_SYSTEM_CERTS := true
export UV_PROJECT_ENVIRONMENT := .venv
export PYTHONDONTWRITEBYTECODE := 1
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast lint format editors bubblewrap bench build clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "frog-lsp needs Python 3.11 or newer: set PYTHON=/path/to/python3"; exit 1; }
	@echo "setting up: the installer (a few seconds)"
	@$(PYTHON) -m venv $(BOOT) || { echo "python3 -m venv failed: on Debian, apt-get install python3-venv"; exit 1; }
	@$(BOOT)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

build/.ready: uv.lock pyproject.toml | $(UV)
	@echo "setting up: the locked dependencies (half a minute)"
	@$(UV) sync --quiet --frozen --inexact --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" --no-install-package llama-cpp-python
	@$(BOOT)/bin/python agent/model/build.py --lock uv.lock --into $(BIN)/python --uv $(UV)
	@touch $@

setup: build/.ready ## create .venv with locked dependencies and compile llama-cpp-python once (5 minutes, later 0)

demo: setup ## fix a bundled project with the bundled demonstration model, and ask before applying
	@$(BIN)/frog-lsp demo $(ARGS)

lint: setup ## ruff, mypy --strict, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup ## rewrite the code in the project's style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

editors: | $(UV) ## install the real editors that the tests drive, in build/editors
	@$(BOOT)/bin/python tests/editors/install.py build/editors --uv $(UV)

bubblewrap: | $(UV) ## install bubblewrap, for the tests of the jail's second backend (as root)
	@$(BOOT)/bin/python tests/jail/install.py

test-fast: setup ## the inner loop: no editors, no long runs (under 3 minutes)
	@$(PYTEST) -q -m "not slow and not editor"

test: lint editors bubblewrap ## everything: linters, unit, property, jail, model, end-to-end and editor tests
	@$(PYTEST) -q

bench: setup ## one table of ratios against named baselines; writes build/bench.json
	@$(UV) sync --quiet --frozen --inexact --group bench --no-install-package llama-cpp-python
	@$(BIN)/python -m tests.bench build/bench.json

build: setup ## one wheel of the three packages, in dist/
	@$(UV) build --quiet --wheel

clean: ## remove everything that make created here (the wheel cache stays)
	@rm -rf .venv build dist
