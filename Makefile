# Every target works on a fresh machine: what is missing is set up first. `make` alone lists them.
PYTHON ?= python3

BIN := .venv/bin
INSTALLED := .venv/.installed
SDK := .venv-cogment/.installed
PEERS := .venv-peers/.installed
LEARNERS := .venv-learners/.installed
ENVPOOL := .venv-learners/.envpool
RLLIB := .venv-rllib/.installed
LEARN := .venv-learners/bin/python
FAMILIES ?= maze catch cartpole
TEST_WORKERS ?= 2
LINKS := build/typing/worldloom
GOALS := $(filter check test learners,$(MAKECMDGOALS))
PACKAGES := $(filter-out front,$(patsubst %/py.typed,%,$(wildcard */py.typed)))

# Tests start hundreds of processes, and each would compile the modules that it imports.
unexport PYTHONDONTWRITEBYTECODE

# `make check test learners` does two things at a time: checks and what sets up environments take one core each.
# Tests take both cores: those of one target run after those of the other, and after the checks have passed. Kernels are
# compiled before them, or each worker would compile the same. And there can be one apt at a time.
ifneq ($(word 2,$(GOALS)),)
MAKEFLAGS += --jobs=2
test: | $(filter check,$(GOALS)) kernel-cache
learners: | $(filter check test,$(GOALS))
gl: | browser
endif

.PHONY: help setup demo test test-quick learners learners-long learning-curves check bench ablation bench-peers
.PHONY: bench-learners peers figures docs protos cogment-sdk clean gl browser kernel-cache links

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) gl browser ## create .venv and install OpenGL, Chromium and Prometheus, where missing

demo: $(INSTALLED) ## run a server and clients, and save images of them
	@$(BIN)/worldloom demo

test: setup $(SDK) ## run the tests (WORLDLOOM_SKIP_GL=1: without those that need OpenGL)
	@$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder

test-quick: $(INSTALLED) ## run the tests that take less than a minute together, for the inner loop
	@$(BIN)/python -m pytest -q -n $(TEST_WORKERS) --dist loadfile -m "not slow and not gl"

learners: $(LEARNERS) ## run the tests of the adaptors with the learning libraries, and of the oldest Gymnasium
	@$(LEARN) -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder -m "not long" tests/learners
	@PYTHONPATH=.venv-learners/oldest-gymnasium $(LEARN) -m pytest -q tests/learners/test_gymnasium.py

learners-long: learners $(RLLIB) ## the same, with RLlib and long runs
	@$(LEARN) -m pytest -q -m long tests/learners
	@.venv-rllib/bin/python -m pytest -q tests/learners

learning-curves: $(LEARNERS) ## train the examples with three seeds each, which takes an hour; writes docs/learning
	@$(LEARN) examples/learning_curves.py --pictures docs/learning

check: $(INSTALLED) links ## formatting, lint, types, and which package imports which
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy --no-error-summary
	@PYTHONPATH=$(dir $(LINKS)) $(BIN)/lint-imports --no-logo

# A missed target is marked in the table; STRICT=1 makes it an error. A part of the benchmarks leaves the page as it is.
bench: setup ## run the benchmarks; writes bench/RESULTS.md (ONLY=maze: those named so; STRICT=1: missed targets fail)
	@$(BIN)/python -m worldloom.bench $(if $(ONLY),--only "$(ONLY)",--json out/bench.json --page bench/RESULTS.md) $(if $(STRICT),--strict-targets)

ablation: setup ## the gain of each technique, from a naive server to this one; writes docs/ablation.md
	@GRPC_VERBOSITY=NONE $(BIN)/python -m worldloom.bench.ablation --family $(FAMILIES) --json out/ablation.json --page docs/ablation.md

peers: $(PEERS) ## create .venv-peers with other environments that render, where missing; `make bench` then measures them

bench-peers: setup $(PEERS) ## other sources of pixels, compared with worldloom; writes docs/peers.md
	@$(BIN)/python -m worldloom.bench.peers --json out/peers --page docs/peers.md

figures: $(INSTALLED) ## write figures of the last bench, ablation and bench-peers into README.md and docs/mujoco.md
	@$(BIN)/python -m worldloom.bench.figures

bench-learners: $(LEARNERS) $(ENVPOOL) ## cost of a step through the adaptors of the learning libraries
	@$(LEARN) -m worldloom.bench.learners --json out/learners.json

docs: $(INSTALLED) ## generate docs/worlds.md and images of worlds and variations
	@$(BIN)/python -m scripts.worlds_page
	@$(BIN)/python -m scripts.randomisation_images
	@$(BIN)/python -m scripts.distraction_images

protos: $(INSTALLED) ## generate the Python code of protos/**/*.proto
	@$(BIN)/python -m scripts.generate_protos

cogment-sdk: $(SDK) ## create .venv-cogment with the Cogment SDK that tests use, where missing

clean: ## remove all generated files, environments included
	rm -rf .venv .venv-cogment .venv-peers .venv-learners .venv-rllib build dist out *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .benchmarks
	find . -name __pycache__ -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml scripts/setup-venv.sh
	@scripts/setup-venv.sh $(PYTHON)
	@touch $@

$(SDK): scripts/setup-cogment-sdk.sh protos/worldloom/trials.proto | $(INSTALLED)
	@scripts/setup-cogment-sdk.sh
	@touch $@

$(PEERS): scripts/setup-peers.sh | $(INSTALLED)
	@scripts/setup-peers.sh
	@touch $@

$(LEARNERS): scripts/setup-learners.sh pyproject.toml | $(INSTALLED)
	@scripts/setup-learners.sh
	@touch $@

$(ENVPOOL): scripts/setup-learners.sh $(LEARNERS)
	@scripts/setup-learners.sh envpool
	@touch $@

$(RLLIB): scripts/setup-learners.sh pyproject.toml | $(INSTALLED)
	@scripts/setup-learners.sh rllib
	@touch $@

gl: $(INSTALLED)
	@scripts/setup-gl.sh

browser:
	@scripts/setup-browser.sh

kernel-cache: $(INSTALLED)
	@$(BIN)/python -c 'from worldloom.render.cpu import CPURenderer; CPURenderer().close()'

# setuptools maps each folder to worldloom.<folder>; mypy and import-linter read the same mapping as links.
links:
	@mkdir -p $(LINKS)
	@for package in $(PACKAGES); do ln -sfn ../../../$$package $(LINKS)/$$package; done
	@for file in __init__.py extras.py py.typed terminal.py; do ln -sfn ../../../front/$$file $(LINKS)/$$file; done
