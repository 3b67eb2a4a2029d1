# Two to begin with: `make demo` shows it working, `make test` proves it.
.PHONY: help demo test check full bench schemas docs clean setup
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

demo:  ## run an example competition live in sandboxes, settle it, explain one score
	@bash tools/demo

test:  ## everything: lint, types, contracts, coverage, the whole suite
	@bash tools/test

check:  ## the quick part of it, while working
	@bash tools/check

full:  ## the long runs: 100,000 records by eight writers, kills at random moments, 1,500 competitions on two Pythons
	@bash tools/full

bench:  ## measure
	@bash tools/setup && .venv/bin/python -m bench

schemas:  ## write the published JSON schemas again
	@bash tools/setup && .venv/bin/python tools/schemas.py

docs:  ## build the documentation into site/
	@bash tools/setup && .venv/bin/mkdocs build --strict

setup:  ## make .venv from uv.lock
	@bash tools/setup

clean:  ## remove what the targets made (.venv too)
	@bash tools/containers clean
	@rm -rf .venv site dist build contracts/node_modules .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
