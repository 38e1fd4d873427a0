# make check   set up a virtual environment and run the main job
# make test    set up what tests need and run all of them
# make lint    formatting, lint, types and the direction of imports

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := $(shell find pipeproof -name '*.py' 2>/dev/null)

.PHONY: check test lint clean

check: $(VENV)/.installed
	@echo "The schedules of specs/ hold:"
	@$(BIN)/pipeproof check --quiet specs
	@echo
	@echo "And a plan that torch 2.13 makes and runs, silently, on wrong gradients"
	@echo "(a violation is expected here):"
	@echo
	@$(BIN)/pipeproof check --transport gloo counterexamples/matching/deferred-receives-zbv/schedule.csv; \
	status=$$?; if [ $$status -eq 1 ]; then echo "As expected: violated."; else \
	echo "Expected a violation (status 1), got status $$status."; exit 1; fi

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n auto

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Byte code is compiled here, so that even where Python may not write it later
# no start has to compile the package again.
$(VENV)/.installed: pyproject.toml $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	$(BIN)/python -m compileall -q pipeproof
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
