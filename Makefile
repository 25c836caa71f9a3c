PYTHON ?= python3
PIP_VERSION := 26.3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST_ARGS ?= -n 2 --dist loadgroup
SEEDS ?= 0..1000

.DEFAULT_GOAL := help
.PHONY: help setup system-packages demo test simulate bench lint docs

help:
	@echo "make setup   install what is needed: Debian packages (as root) and .venv"
	@echo "make demo    a broker, a producer, a consumer, a kill -9, in about a minute"
	@echo "make test    all tests"
	@echo "make simulate SEEDS=0..5000   so many histories of simulated brokers"
	@echo "make bench   measure this machine and write docs/benchmarks.md"
	@echo "make lint    style, types, import rules, generated pages"
	@echo "make docs    write the generated pages of docs/, and build the site in site/"

setup: system-packages $(INSTALLED)

# command:package of what some tests speak with: kcat is librdkafka's command line, Java and Maven bring Apache Kafka
# and its tools, npm the clients for Node.js.
SYSTEM_PACKAGES := kcat:kcat javac:default-jdk-headless mvn:maven npm:npm

system-packages:
	@missing=; for entry in $(SYSTEM_PACKAGES); do \
	  command -v "$${entry%%:*}" >/dev/null || missing="$$missing $${entry#*:}"; \
	done; \
	[ -z "$$missing" ] \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && apt-get install -qy --no-install-recommends $$missing; } \
	  || { echo "missing; as root: apt-get install$$missing" >&2; exit 1; }

$(INSTALLED): pyproject.toml spark/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q pip==$(PIP_VERSION)
	$(BIN)/python -m pip install -q --build-constraint constraints.txt -c constraints.txt --group dev -e . -e './spark[examples]'
	@touch $@

demo: $(INSTALLED)
	$(BIN)/diskless demo

# Without the jars, as where the Maven registry cannot be reached, the tests that need them are skipped with the reason.
test: $(INSTALLED)
	@$(BIN)/python -m tests.support.maven || [ -z "$$DISKLESS_REQUIRE_KAFKA" ]
	$(BIN)/pytest $(PYTEST_ARGS)

# Histories of several simulated brokers, one for each seed; a seed that breaks a promise is told, and can be replayed.
simulate: $(INSTALLED)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

bench: $(INSTALLED)
	$(BIN)/python -m tests.benchmarks.bench

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m diskless_core.cli.docs --check
	$(BIN)/python -m tests.support.guarantees --check
	$(BIN)/mkdocs build --quiet --strict

docs: $(INSTALLED)
	$(BIN)/python -m diskless_core.cli.docs
	$(BIN)/python -m tests.support.guarantees
	$(BIN)/mkdocs build --quiet --strict
