# Every target sets up what it needs first; on a machine that is ready this takes no time.
# ARGS goes to pytest: make test ARGS="-k labels"

BIN := .venv/bin

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup postgres java kafka demo test test-long check clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

setup: ## make .venv, once, with the pinned requirements
	@bash scripts/setup.sh

postgres: ## make sure that the PostgreSQL server binaries are there
	@bash scripts/ensure-postgres.sh

java: setup ## make sure that there is a Java runtime for Spark, and an archive of Spark's classes
	@bash scripts/ensure-java.sh
	@$(BIN)/python -m headgate.ingress.class_archive

kafka: java ## make sure that Spark's connector to Kafka and a broker for tests are there
	@bash scripts/ensure-kafka.sh broker

demo: setup java ## show Headgate at work
	@$(BIN)/headgate demo

test: setup postgres java ## run the tests, those on PostgreSQL included
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-long: setup postgres java kafka ## run the long suites
	@$(BIN)/python -m pytest -m long $(ARGS)

check: setup ## lint, formatting, types, import directions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

clean: ## remove .venv, caches and build results; data in .headgate stays
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
