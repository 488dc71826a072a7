# Everything that a fresh machine with Python 3.12 needs. `make help` lists the targets.
PYTHON ?= python3.12
UV := .tools/bin/uv
BIN := .venv/bin
INSTALL = $(UV) pip install --quiet --no-deps --no-build-isolation --editable .
SYNC = $(UV) pip sync --quiet --require-hashes --compile-bytecode

.PHONY: help setup bench validate test unit services lint requirements clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

validate: .venv/.train ## the whole job on this machine: slice, train, evaluate, verdict
	$(BIN)/nemotron-rl validate $(ARGS)

test: .venv/.dev services ## every check and test; starts and stops the services that it needs
	$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

unit: .venv/.dev ## the fast tests only
	$(BIN)/python -m pytest -m "not slow and not integration and not gpu" $(ARGS)

lint: .venv/.dev ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

setup: .venv/.dev ## the development environment
	$(BIN)/pre-commit install

bench: .venv/.bench ## the development environment and TRL, which benchmarks.train_step measures against

services: ## Debian packages of the integration tests (Slurm, Chromium), if they are missing
	tests/integration/install-services.sh

requirements: $(UV) ## compile requirements/*.txt again from pyproject.toml
	requirements/compile.sh $(ARGS)

clean: ## remove the environment; runs/ and the store stay
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache

$(UV):
	$(PYTHON) -m venv .tools
	.tools/bin/pip install --quiet --require-hashes --requirement requirements/uv.txt

.venv/bin/python: | $(UV)
	$(UV) venv --quiet --python $(PYTHON) .venv

.venv/.train: requirements/train.txt pyproject.toml | .venv/bin/python
	$(SYNC) requirements/train.txt
	$(INSTALL)
	@touch $@

# The development environment has all that the training one has. SGLang lies apart, for tests that read its config class:
# without what it needs it cannot be imported, and nobody shall take it for installed.
.venv/.dev: requirements/dev.txt requirements/sglang.txt pyproject.toml | .venv/bin/python
	$(SYNC) requirements/dev.txt
	$(UV) pip install --quiet --no-deps --require-hashes --target .tools/sglang --requirement requirements/sglang.txt
	$(INSTALL)
	@touch .venv/.train $@

# The development environment and what benchmarks compare with. `make .venv/.dev` alone does not take that away again.
.venv/.bench: requirements/bench.txt .venv/.dev
	$(UV) pip install --quiet --no-deps --require-hashes --compile-bytecode --requirement requirements/bench.txt
	@touch $@
