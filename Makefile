# One set of commands for people and for CI. `make help` lists them.

VENV ?= .venv
PYTHON := $(VENV)/bin/python
# Further options of pip, such as the index of PyTorch's CPU build: see README.md.
PIP_FLAGS ?=
# What the environment is made with: the first of these that is a supported Python. requirements.lock
# has wheels for 3.11, 3.12 and 3.13.
BOOTSTRAP ?= python3.11 python3.12 python3.13 python3 python
IS_SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
STAMP := $(VENV)/.installed-from-lock
# Wheels alone: an installation runs no code of a package. Every file but torch's, whose build
# depends on the machine, must have a hash of requirements.lock: see docs/security.md.
PIP_INSTALL := $(PYTHON) -m pip install -qq --disable-pip-version-check --only-binary :all:

# The main job, and the timings.
RUN := $(PYTHON) -m pipelines.bc_then_ppo
BENCHMARKS := world teacher demos learning evaluation start_up

# Two processes share the tests file by file, so that what a file prepares is prepared once. Each
# keeps to one thread: the networks are small, and threads would only wait for one another. They
# share numba's cache, which replaces files whole: at worst both compile the same function once.
PYTEST_FLAGS ?= -n 2 --dist loadfile
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run test test-gymnasium1 lint format bench lock clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## make the environment in .venv; the others do so themselves

run: $(STAMP) ## run the main job
	$(RUN)

test: $(STAMP) ## run the tests
	$(ONE_THREAD) $(PYTHON) -m pytest $(PYTEST_FLAGS)

# What needs no torch, in a small environment of its own with the core of pyproject.toml: the lock has
# Gymnasium 0.29, which imitation requires. Any Python from 3.11 on will do.
GYMNASIUM1 ?= .venv-gymnasium1
GYMNASIUM1_PACKAGES := "gymnasium>=1.1,<2" pytest hypothesis
CORE := import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*project["dependencies"], sep="\n")
GYMNASIUM1_TESTS := tests/abacus tests/oracle/demos tests/oracle/test_expert.py \
	--ignore tests/abacus/test_sb3.py --ignore tests/oracle/demos/test_dataset.py
test-gymnasium1: ## run the tests of environments and demonstrations with Gymnasium 1.x and no torch
	@for candidate in $(BOOTSTRAP); do \
		if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
		then python=$$candidate; break; fi; \
	done; \
	"$${python:?none of '$(BOOTSTRAP)' is Python 3.11 or later}" -m venv $(GYMNASIUM1)
	@$(GYMNASIUM1)/bin/python -c '$(CORE)' >$(GYMNASIUM1)/core.txt
	@$(GYMNASIUM1)/bin/python -m pip install -qq --disable-pip-version-check --only-binary :all: \
		--upgrade $(PIP_FLAGS) -r $(GYMNASIUM1)/core.txt $(GYMNASIUM1_PACKAGES)
	$(ONE_THREAD) $(GYMNASIUM1)/bin/python -m pytest $(GYMNASIUM1_TESTS)

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
	rm -rf $(VENV) $(GYMNASIUM1) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -type d -name __pycache__ -prune -exec rm -rf {} +

# The stamp comes last, so an interrupted set-up starts over. A .venv that cannot run pip is what
# such an interruption left; it is emptied first.
$(STAMP): requirements.lock
	@for candidate in $(BOOTSTRAP); do \
		if $$candidate -c '$(IS_SUPPORTED)' 2>/dev/null; \
		then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "Python 3.11, 3.12 or 3.13 is needed and none of '$(BOOTSTRAP)' is one: install" \
			"it, or give its path as in: make setup BOOTSTRAP=path/to/python3.11" >&2; exit 1; \
	fi; \
	if ! $(PYTHON) -c 'import pip; $(IS_SUPPORTED)' 2>/dev/null; \
	then echo "Making $(VENV)"; "$$python" -m venv --clear $(VENV) || exit 1; fi
	@echo "Installing requirements.lock into $(VENV): the first time takes a few minutes"
	@rm -f $@
	@$(PIP_INSTALL) --require-hashes --no-deps $(PIP_FLAGS) -r requirements.lock
	@$(PIP_INSTALL) $(PIP_FLAGS) "$$(sed -n -E 's/^# (torch==[0-9.]+).*/\1/p' requirements.lock)"
	@touch $@
