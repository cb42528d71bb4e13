# Each target builds the environment it needs in .venv; nothing else has to be installed beside Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# compat: Python started beside a checkout called limner would take its folder for the package otherwise
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat

.PHONY: demo test check docs bench torture clean

$(VENV)/.limner: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(None if sys.version_info >= (3, 11) else 'limner needs Python 3.11 or later')"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[server]'
	touch $@

$(VENV)/.limner-dev: $(VENV)/.limner
	$(INSTALL) -e '.[dev]'
	touch $@

demo: $(VENV)/.limner  ## people drawn, trained on, evaluated, indexed and searched: about ten minutes on two cores
	$(BIN)/limner demo

test: $(VENV)/.limner-dev  ## the whole test suite
	$(BIN)/python -m pytest -n auto

check: $(VENV)/.limner-dev  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.limner-dev  ## write the generated pages anew
	$(BIN)/python -m docs.generate

bench: $(VENV)/.limner-dev  ## the benchmarks that need no data
	$(BIN)/python -m benchmarks.text_path
	$(BIN)/python -m benchmarks.ranking

torture: $(VENV)/.limner-dev  ## kills, full disks, a clock that goes back, writers at once, bad files, a soak: about an hour and a half
	$(BIN)/python -m benchmarks.torture

clean:
	rm -rf $(VENV) demo-output
