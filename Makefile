# Millstream's tasks. Everything runs in .venv, which is made on first use from the pinned versions in requirements/.
PYTHON ?= python3
ARGS ?=
VENV := .venv
C_PAGES := consumers/source/fetched.c consumers/sink/bulk.c consumers/rollout/hashes.c schemas/columns.h schemas/avro/avro_columns.c schemas/interleave.c schemas/json/json_columns.c schemas/json/json_text.h schemas/texts.c
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo wheel test test-unit test-mock faults fuzz journeys check format bench bench-gpu llama broker lock docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# A spike, a shadow and a rollout need a real broker: one is started for it where none is named.
BROKER_FOR_DEMO = $(if $(findstring spike,$(ARGS))$(findstring shadow,$(ARGS))$(findstring rollout,$(ARGS)),$(if $(KAFKA_BOOTSTRAP)$(findstring --bootstrap,$(ARGS)),,$(BIN)/millstream broker --cache .cache --run))
demo: $(VENV)/.demo $(if $(findstring shadow,$(ARGS))$(findstring rollout,$(ARGS)),$(VENV)/.comparison) $(if $(findstring kserve,$(ARGS)),$(VENV)/.kserve) ## Real flights through the whole service; ARGS="--events 20000 --plain", ARGS="--load spike", ARGS=--shadow, ARGS=--rollout, ARGS=--reload, ARGS="--executor kserve"
	@$(BROKER_FOR_DEMO) $(BIN)/millstream demo --cache .cache $(ARGS)

# Two processes, each with a broker of its own: tests mostly wait, for brokers, workers and clocks. So does test-mock.
test: $(VENV)/.dev ## All tests, on the best broker there is, in two processes; ARGS="-k name"
	@$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

# These folders have no unit tests (tests/conftest.py): to import them takes some seconds.
NO_UNITS = cli comparison deploy examples faults fuzz harness producers
test-unit: $(VENV)/.dev ## The tests that need no broker and start no process, with fewer random examples; about a minute
	@$(BIN)/python -m pytest -m unit --hypothesis-profile=quick $(addprefix --ignore=tests/,$(NO_UNITS)) $(ARGS)

test-mock: $(VENV)/.dev ## The tests that need Kafka, on the embedded broker alone
	@MILLSTREAM_TEST_BROKER=mock $(BIN)/python -m pytest -n 2 --dist loadfile -m broker $(ARGS)

faults: $(VENV)/.dev ## Kill workers, brokers and servers, then account for every event: what takes too long for `make test`
	@MILLSTREAM_FAULTS=full $(BIN)/python -m pytest -m "faults or full" $(ARGS)

fuzz: $(VENV)/.dev ## Over a million generated and damaged records through every decoder, a quarter of an hour; ARGS="--only json --seed 7 --records 5000"
	@$(BIN)/python -m tests.fuzz $(ARGS)

journeys: $(VENV)/.dev ## What an installed user does, from a fresh environment with the wheel; ARGS="scikit_learn outage"
	@$(BIN)/python -m tests.journeys $(ARGS)

check: $(VENV)/.dev ## Format, lint and types
	@$(BIN)/ruff format --check --quiet . || { echo "Run 'make format'."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy

format: $(VENV)/.dev ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix --quiet .

bench: $(VENV)/.dev ## Millstream beside what else there is, in one run, on a real broker; ARGS="--workload vector", "--profile"
	@$(BIN)/python -m benchmarks.run $(ARGS)

bench-gpu: $(VENV)/.dev ## Decode, batch, executor and encode without Kafka, against the executor alone; ARGS="--executor onnx"
	@$(BIN)/python -m benchmarks.gpu.run $(ARGS)

llama: $(VENV)/.dev ## Build the server of llama-cpp-python with a tiny model, for the tests of language models: 20 minutes, once
	@nice $(BIN)/python -m benchmarks.servers.llama_server

broker: $(VENV)/.demo ## A Kafka broker on this machine, until Ctrl-C: a real one with Java 17 and Maven; ARGS="--port 9092"
	@$(BIN)/millstream broker --cache .cache $(ARGS)

wheel: $(VENV)/.build ## Build a wheel in dist/, for machines without a checkout
	@rm -f dist/*.whl
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

docs: $(VENV)/.dev ## Write the reference pages anew from the code
	@$(BIN)/python -m millstream.pipeline.reference
	@{ sed '/^| metric |/,$$d' docs/metrics.md; $(BIN)/millstream metrics; } > docs/metrics.new && mv docs/metrics.new docs/metrics.md

lock: $(VENV)/.dev ## Pin the newest versions that pyproject.toml allows
	@for extras in "demo" "comparison" "kserve" "demo --extra comparison --extra dev"; do \
	  file=requirements/$${extras##* }.txt; \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --upgrade \
	    --extra $$extras pyproject.toml requirements/build.in --output-file $$file || exit 1; \
	done
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --upgrade \
	  requirements/build.in --output-file requirements/build.txt

clean: ## Remove what was made here: the environment, caches, the fetched broker
	rm -rf $(VENV) consumers/*/lib*.so schemas/lib*.so schemas/*/lib*.so .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || { \
	  echo "Millstream needs Python 3.11, 3.12 or 3.13; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "Python's venv module is missing (Debian: apt-get install python3-venv)." >&2; exit 1; }

$(VENV)/.build: requirements/build.txt | $(BIN)/python
	@echo "Installing into $(VENV) (once) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt
	@touch $@

$(VENV)/.demo: requirements/demo.txt pyproject.toml hatch_build.py $(C_PAGES) $(VENV)/.build
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --require-hashes -r requirements/demo.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@test -e schemas/json/libjson_columns.so || echo "No C compiler that works (Debian: apt-get install gcc libc6-dev): workers read records one by one, which takes more CPU. Then again: touch consumers/source/fetched.c"
	@touch $@

$(VENV)/.comparison: requirements/comparison.txt $(VENV)/.demo
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --require-hashes -r requirements/comparison.txt
	@touch $@

$(VENV)/.kserve: requirements/kserve.txt $(VENV)/.demo
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --require-hashes -r requirements/kserve.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.demo
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --require-hashes -r requirements/dev.txt
	@touch $@
