# make demo    the standard study on the model in the box; leaves demo/report.html
# make test    format, lint, types and tests
# make check   the same without the tests
# make bench   the benchmarks that need nothing but loopback
# Everything is set up in .venv; a second call finds it there and needs no network.

PYTHON ?= python3.11
BIN := .venv/bin
SOURCES := pyproject.toml

.PHONY: demo test check bench clean

demo: .venv/demo.done
	$(BIN)/beacon run standard --model smollm2 --repeats 3 --into demo
	@echo "Open demo/report.html in a browser."

test: check
	$(BIN)/python -m pytest

check: .venv/test.done
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/test.done
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/collect.py --set-up
	$(BIN)/python benchmarks/collect.py

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/demo.done: .venv/bin/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable '.[local]'
	@touch $@

.venv/test.done: .venv/bin/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --group dev --editable '.[all]'
	@touch $@ .venv/demo.done

clean:
	rm -rf .venv demo
