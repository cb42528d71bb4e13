# Each target builds the environment it needs in .venv; nothing else has to be installed beside Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# compat: Python started beside a checkout called limner would take its folder for the package otherwise
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat \
  --constraint .ci/constraints.txt $(PIP_OPTIONS)

# What an environment begins with
BASE := server

# Tools with dependencies of their own, apart from those of limner that they look at
TOOLS := $(VENV)/tools
# What a user can install, without the weights of minilm, the measures of ranx and the development tools
EXTRAS := approximate,cluster,figures,heif,hgan,hub,lance,lora,mcp,mteb,onnx,openvino,parquet,s3,sentence-transformers,sentencepiece,server,tensorboard,transformers,vectors,watch

.PHONY: demo test check audit sbom docs site wheel wheel-test release bench torture clean

$(VENV)/.limner: pyproject.toml .ci/constraints.txt
	$(PYTHON) -c "import sys; sys.exit(None if sys.version_info >= (3, 11) else 'limner needs Python 3.11 or later')"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[$(BASE)]'
	echo $(BASE) > $@

# CI takes BASE=dev,cluster,mteb: one call of pip in place of two.
$(VENV)/.limner-dev: $(VENV)/.limner
	grep -q '^dev' $< || $(INSTALL) -e '.[dev]'
	touch $@

demo: $(VENV)/.limner  ## people drawn, trained on, evaluated, indexed and searched: about ten minutes on two cores
	$(BIN)/limner demo

# One thread a process, also of the commands that tests start: threads of OpenMP that wait for each other's cores spin
# Commands that tests start would compile limner anew each time where the environment forbids to keep what is compiled.
# A third of the tests for each worker, in their order, and who is done takes of another's: dealt out in small parts, each
# worker made what a file's tests share (exports, servers, browsers, trained toys), and imported what few of them need.
test: $(VENV)/.limner-dev  ## the whole test suite
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

# Without conftest.py, which imports torch and limner: the licences need neither. Hypothesis' own profile has no deadline
# either.
check: $(VENV)/.limner-dev  ## format, lint, types, licences of the dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --noconftest --hypothesis-profile=ci tests/test_licences.py

$(TOOLS)/.done: Makefile
	test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=23' 'pip-audit>=2.9' 'cyclonedx-bom>=7' \
	  'build>=1.2' 'mkdocs-material>=9.6'
	touch $@

audit: $(VENV)/.limner-dev $(TOOLS)/.done  ## known vulnerabilities of what .venv holds; asks the package index (AUDIT: more options of pip-audit)
	PIPAPI_PYTHON_LOCATION=$(CURDIR)/$(BIN)/python $(TOOLS)/bin/pip-audit --local --skip-editable $(AUDIT)

# An environment of its own, since .venv holds development tools, which no release brings. limner itself is taken out
# again: it is the SBOM's subject, and the entry of an installation from a folder would name that folder.
sbom: $(TOOLS)/.done  ## dist/limner.cdx.json, the CycloneDX list of what a release installs with its extras; needs the index
	$(PYTHON) -m venv --clear --without-pip build/sbom
	$(TOOLS)/bin/python -m pip --quiet --disable-pip-version-check --python build/sbom/bin/python install '.[$(EXTRAS)]'
	$(TOOLS)/bin/python -m pip --quiet --disable-pip-version-check --python build/sbom/bin/python uninstall --yes limner
	mkdir -p dist
	$(TOOLS)/bin/cyclonedx-py environment build/sbom/bin/python --pyproject pyproject.toml --mc-type library \
	  --output-format JSON --output-reproducible --output-file dist/limner.cdx.json

docs: $(VENV)/.limner-dev  ## write the generated pages anew
	$(BIN)/python -m docs.generate

site: $(TOOLS)/.done  ## build/site/site: the documentation as a website, links checked
	$(PYTHON) -m docs.site build/site
	NO_MKDOCS_2_WARNING=1 $(TOOLS)/bin/mkdocs build --quiet --strict --clean -f build/site/mkdocs.yml

# build/lib and the list of files of an earlier build would bring files along that are no longer there
wheel: $(TOOLS)/.done  ## dist/: what `pip install limner` gets, and the source distribution that it is built from
	rm -rf build/lib build/bdist.* limner.egg-info
	$(TOOLS)/bin/python -m build --outdir dist

wheel-test: wheel  ## the wheel in a bare environment outside of the checkout; needs the index, and two minutes
	$(PYTHON) -m benchmarks.wheel_test dist

release: check test wheel-test sbom site  ## all that is looked at before a tag; CONTRIBUTING.md has the steps

bench: $(VENV)/.limner-dev  ## a short form of the benchmarks that need no data: it shows that they run
	$(BIN)/python -m benchmarks --short

torture: $(VENV)/.limner-dev  ## kills, full disks, a clock that goes back, writers at once, bad files, a soak: about an hour and a half
	$(BIN)/python -m benchmarks.torture

clean:
	rm -rf $(VENV) build demo-output
