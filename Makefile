# One set of commands for people and for CI. `make help` lists them.

VENV ?= .venv
PYTHON := $(VENV)/bin/python
# Further options of pip, such as the index of PyTorch's CPU build: see README.md.
PIP_FLAGS ?=
# What the environment is made with: the first of these that is a Python 3.11.
BOOTSTRAP ?= python3.11 python3 python
STAMP := $(VENV)/.installed-from-lock
# Wheels alone: an installation runs no code of a package. Every file but torch's, whose build
# depends on the machine, must have a hash of requirements.lock: see docs/security.md.
PIP_INSTALL := $(PYTHON) -m pip install -qq --disable-pip-version-check --only-binary :all:

# The main job, and the timings.
RUN := $(PYTHON) -m pipelines.bc_then_ppo
BENCHMARKS := world teacher demos learning evaluation

# Two processes share the tests file by file, so that what a file prepares is prepared once. Each
# keeps to one thread: the networks are small, and threads would only wait for one another. They
# share numba's cache, which replaces files whole: at worst both compile the same function once.
PYTEST_FLAGS ?= -n 2 --dist loadfile
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run test lint format bench lock clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## make the environment in .venv; the others do so themselves

run: $(STAMP) ## run the main job
	$(RUN)

test: $(STAMP) ## run the tests
	$(ONE_THREAD) $(PYTHON) -m pytest $(PYTEST_FLAGS)

lint: $(STAMP) ## check style and types, change nothing
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

format: $(STAMP) ## mend what ruff can mend
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

bench: $(STAMP) ## run the timings
	set -e; for name in $(BENCHMARKS); do $(PYTHON) -m benchmarks.$$name; done

# `make lock LOCK_FLAGS=--upgrade` takes the newest that the ranges allow.
LOCK_FLAGS ?=
# A build tag such as +cpu names one machine's torch; without it each machine takes its own. The
# lock must stay free of index addresses and file paths for the same reason.
lock: $(STAMP) ## resolve pyproject.toml into requirements.lock, keeping versions that still fit
	CUSTOM_COMPILE_COMMAND="make lock" $(PYTHON) -m piptools compile --quiet --all-extras \
		--strip-extras --annotation-style line --no-emit-options --no-emit-index-url \
		--no-emit-find-links --no-emit-trusted-host --allow-unsafe $(LOCK_FLAGS) \
		--output-file requirements.lock pyproject.toml
	sed -i.bak -E 's/^(torch==[0-9.]+)\+[a-z0-9.]+/\1/' requirements.lock
	rm requirements.lock.bak
	$(PYTHON) .ci/lock_hashes.py requirements.lock

clean: ## remove the environment and what tools left behind; keeps runs and data
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -type d -name __pycache__ -prune -exec rm -rf {} +

# The stamp comes last, so an interrupted set-up starts over. A .venv that cannot run pip is what
# such an interruption left; it is emptied first.
$(STAMP): requirements.lock
	@for candidate in $(BOOTSTRAP); do \
		if $$candidate -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; \
		then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "Python 3.11 is needed and none of '$(BOOTSTRAP)' is one: install it, or give its" \
			"path as in: make setup BOOTSTRAP=path/to/python3.11" >&2; exit 1; \
	fi; \
	if ! $(PYTHON) -c 'import pip, sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; \
	then echo "Making $(VENV)"; "$$python" -m venv --clear $(VENV) || exit 1; fi
	@echo "Installing requirements.lock into $(VENV): the first time takes a few minutes"
	@rm -f $@
	@$(PIP_INSTALL) --require-hashes --no-deps $(PIP_FLAGS) -r requirements.lock
	@$(PIP_INSTALL) $(PIP_FLAGS) "$$(sed -n -E 's/^# (torch==[0-9.]+).*/\1/p' requirements.lock)"
	@touch $@
