# `make` sets up what is needed, and runs the workflow for the first screen; `make full` runs it for everything. `make
# test` does the tests. `make test-all` also runs those that take ten seconds of snakemake and more, a browser or Slurm.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CORES  ?= all
STAMP  := $(VENV)/ready

# Each step is a process of its own, and would parse the package anew.
unexport PYTHONDONTWRITEBYTECODE

# Where the home folder cannot be written, the caches of snakemake and others lie here.
ifeq ($(shell home="$${XDG_CACHE_HOME:-$$HOME/.cache}"; mkdir -p "$$home" 2>/dev/null && test -w "$$home" && echo yes),)
export XDG_CACHE_HOME := $(CURDIR)/.cache
endif

.PHONY: all full test test-all check-published lint format reference lock clean
.DEFAULT_GOAL := all

SNAKEMAKE := $(BIN)/python -m snakemake --cores $(CORES)

all: $(STAMP)
	$(SNAKEMAKE) --configfile config/quick.yaml
	@echo 'That was the first screen. The rest: `make full`, which is `snakemake --cores all`:'
	@$(BIN)/ladder check | tail -n 1

full: $(STAMP)
	$(SNAKEMAKE)

test: $(STAMP)
	$(BIN)/python -m pytest -n auto -m "not slow and not published"

test-all: $(STAMP)
	$(BIN)/python -m pytest -n auto -m "not published"

# After a publication: what texts, bounds and the choice of repeated cells say of the numbers.
check-published: $(STAMP)
	$(BIN)/python -m pytest -m published

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/python -m snakemake --lint

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/snakefmt Snakefile workflow

reference: $(STAMP)
	$(BIN)/ladder reference --write

clean:
	rm -rf $(VENV) .snakemake .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache report.html
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -qq: errors only, since pip repeats a warning for each package.
# --no-compile: half of the set-up's time would go into modules that nothing imports; Python compiles the others.
# Stamped, so that set-up runs again only when the lock changed. A virtual environment that failed half way
# carries no stamp and is made anew.
$(STAMP): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' || { \
	  echo 'Python 3.11 to 3.14 is needed; found' "$$($(PYTHON) -V 2>&1)" '(choose one: make PYTHON=python3.12)' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo 'Python cannot make virtual environments here; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# The pins hold for Linux and every Python that pyproject.toml accepts, hence one file without markers.
lock:
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet uv
	{ echo '# Made by `make lock` from pyproject.toml: exact versions with the hashes of their files, for Linux.'; \
	  $(VENV)-lock/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	    --fork-strategy fewest --generate-hashes --no-annotate --no-header --no-emit-index-url --quiet \
	    $(LOCK_OPTIONS) | sed 's/ ;[^\\]*\\$$/ \\/'; } > requirements.lock.new
	mv requirements.lock.new requirements.lock
	rm -rf $(VENV)-lock
