# make demo   restore an example (sets up .venv first)
# make test   run the tests   (sets up .venv first)
# make check  what .ci/run runs after the tests: ruff, mypy, import-linter
# make faults kills, full disks, damaged files: the long form (7 to 12 minutes); writes the table of docs/reliability.md

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp
DEMO := demo_output

.PHONY: setup demo test check faults clean

setup: $(STAMP)

# Debian's python3 can lack ensurepip; pip itself then fills the environment.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || $(PYTHON) -m venv --without-pip $(VENV)
	test -x $(BIN)/pip || $(PYTHON) -m pip --python $(BIN)/python install --quiet pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,heif,serve]'
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps 'basicsr==1.4.2' || echo "no basicsr on this Python: the tests of gpen train's data are skipped"
	touch $(STAMP)

demo: setup
	@$(BIN)/gpen enhance examples/astronaut.jpg --output-dir $(DEMO) --compare
	@echo "The restored picture is $(CURDIR)/$(DEMO)/astronaut_enhanced.png"
	@echo "Before and after, side by side: $(CURDIR)/$(DEMO)/astronaut_enhanced_compare.png"

test: setup
	$(BIN)/python -m pytest

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

faults: setup
	GPEN_FAULTS=long $(BIN)/python -m pytest tests/faults

clean:
	rm -rf $(VENV) $(DEMO)
