# Two commands do everything on a fresh machine with Python 3.11+: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test check lint types pythons wheel counterparts bench bench-memory clean

$(STAMP): pyproject.toml
	@echo "setting up .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[http,rich,telegram,web,ws]" --group test --group dev
	@touch $@

demo: $(STAMP)  ## forty messages, a platform that loses answers, three kills; and what became of it all
	$(BIN)/msgledger demo

test: $(STAMP)  ## every test that this machine can run; what it lacks is skipped with the reason
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/basedpyright

check: test lint types pythons  ## the tests, lint, types, and the boundary to eventsourcing on every Python

pythons: $(STAMP)  ## the conformance tests on each of 3.11, 3.12 and 3.13 that is here, in a venv of its own
	bash tests/conformance/pythons.sh

wheel: $(STAMP)  ## build, install beside a stranger's cli.py and adapters/, run
	PYTHON=$(BIN)/python sh tests/wheel/check.sh

counterparts: $(STAMP)  ## the real servers that some tests talk to, each in a venv of its own
	$(BIN)/python tests/counterparts/synapse.py install
	$(BIN)/python tests/counterparts/crabline.py install

bench: $(STAMP)  ## messages a second beside the floor and a peer of the same run
	$(BIN)/python -m bench

bench-memory: $(STAMP)  ## one million sends, and the memory on the way: some minutes
	$(BIN)/python -m bench --memory 1000000

clean:
	rm -rf .venv .venv-* build dist *.egg-info bench.json
