PYTHON ?= python3
PIP_VERSION := 26.3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
CONTRIB := $(sort $(wildcard contrib/*/pyproject.toml))
INSTALLED := $(VENV)/.installed
PYTEST_ARGS ?= -n 4 --dist loadgroup
SEEDS ?= 0..2048
SEED ?= 1
MINUTES ?= 15
LOG ?= bucket

# Bytecode that is written once is read by the hundreds of processes that tests start.
unexport PYTHONDONTWRITEBYTECODE
# The theme's notice about MkDocs 2, which is not used here.
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help setup system-packages demo cluster-demo test simulate chaos bench lint docs

help:
	@echo "make demo    a broker, a producer, a consumer, a kill -9; installs what that needs into .venv"
	@echo "make cluster-demo   a cluster of three racks that loses brokers and gains one; installs the same"
	@echo "make test    all tests; installs what they need: Debian packages (as root), the rest into .venv"
	@echo "make setup   only install what the tests need"
	@echo "make simulate SEEDS=0..5000   so many histories of simulated brokers"
	@echo "make chaos SEED=1 MINUTES=15  a cluster of real brokers that is broken all the time and must keep its word"
	@echo "make bench   measure this machine and write docs/benchmarks.md; ONLY=cluster measures one section,"
	@echo "             ONLY=backends all backends that ship, and writes docs/backends.md"
	@echo "make lint    style, types, import rules, generated pages"
	@echo "make docs    write the generated pages of docs/, and build the site in site/"

setup: system-packages $(INSTALLED)

# command:package of what some tests use: kcat is librdkafka's command line, Chromium opens the site, Java and Maven
# bring Apache Kafka and its tools, npm the clients for Node.js, PostgreSQL and a pooler before it are for the log in it.
SYSTEM_PACKAGES := kcat:kcat chromium:chromium javac:default-jdk-headless mvn:maven npm:npm \
  pg_ctlcluster:postgresql /usr/sbin/pgbouncer:pgbouncer

system-packages:
	@missing=; for entry in $(SYSTEM_PACKAGES); do \
	  command -v "$${entry%%:*}" >/dev/null || missing="$$missing $${entry#*:}"; \
	done; \
	[ -z "$$missing" ] \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && apt-get install -qy --no-install-recommends $$missing; } \
	  || { echo "missing; as root: apt-get install$$missing" >&2; exit 1; }

PIP_INSTALL := $(BIN)/python -m pip install -q --build-constraint constraints.txt -c constraints.txt

# What a broker needs, compiled, so that its first start is as quick as all others.
$(RUNTIME): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q pip==$(PIP_VERSION)
	$(PIP_INSTALL) -e .
	$(BIN)/python -m compileall -q diskless_core plugins
	@touch $@

# And what tests, Spark and the documentation need.
$(INSTALLED): $(RUNTIME) spark/pyproject.toml $(CONTRIB)
	$(PIP_INSTALL) --group dev -e . -e './spark[examples]' $(patsubst %/pyproject.toml,-e ./%,$(CONTRIB))
	$(BIN)/python -m tests.support.promtool
	@touch $@

demo: $(RUNTIME)
	$(BIN)/diskless demo

cluster-demo: $(RUNTIME)
	$(BIN)/diskless cluster demo

# Clusters that are broken all the time come last and have the machine for themselves. Beside other tests, each recovery that
# they wait for takes many times as long, they work all that time, and everything becomes slower still.
CHAOS_TESTS := tests/chaos/test_short_runs.py

# Without the jars, as where the Maven registry cannot be reached, the tests that need them are skipped with the reason.
test: system-packages $(INSTALLED)
	@$(BIN)/python -m tests.support.maven || [ -z "$$DISKLESS_REQUIRE_KAFKA" ]
	$(BIN)/pytest $(PYTEST_ARGS) --ignore=$(CHAOS_TESTS)
	$(BIN)/pytest $(CHAOS_TESTS)

# Histories of several simulated brokers, one for each seed; a seed that breaks a promise is told, and can be replayed.
# REPORT=FILE has a page written about it.
simulate: $(INSTALLED)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(if $(REPORT),--report $(REPORT))

# Needs Go, for a real S3 server that is built once; as root it fills disks too.
chaos: system-packages $(INSTALLED)
	$(BIN)/python -m tests.chaos --seed $(SEED) --minutes $(MINUTES) --log $(LOG)

bench: $(INSTALLED)
	$(BIN)/python -m tests.benchmarks.bench $(if $(ONLY),--only $(ONLY))

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m diskless_core.cli.docs --check
	$(BIN)/python -m tests.support.guarantees --check
	$(BIN)/python -m tests.kit.page --check
	$(BIN)/python -m docs_site --check
	$(BIN)/python -m mkdocs build --quiet --strict

docs: $(INSTALLED)
	$(BIN)/python -m diskless_core.cli.docs
	$(BIN)/python -m tests.support.guarantees
	$(BIN)/python -m tests.kit.page
	$(BIN)/python -m docs_site
	$(BIN)/python -m mkdocs build --quiet --strict
