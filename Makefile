# Two to begin with: `make demo` shows it working, `make test` proves it.
.PHONY: help demo demo-full test check full bench soak schemas docs clean setup
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

demo:  ## in four screens: a live run in sandboxes, the leaderboard, a verified receipt, the season as a service
	@bash tools/demo

demo-full:  ## all of it at length: a bounty with sealed solutions, three validators, every proof
	@bash tools/demo-full

test:  ## what CI runs: lint, types, contracts, coverage, every room's tests in short
	@bash tools/test

check:  ## the quick part of it, while working
	@bash tools/check

full:  ## every test at full depth and the mutation run: before a release
	@bash tools/full

bench:  ## measure
	@bash tools/setup && .venv/bin/python -m bench

soak:  ## ten minutes of load on the service while its workers are killed (ARGUMENTS="--seconds 60 --database URL")
	@bash tools/soak $(ARGUMENTS)

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
