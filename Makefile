# On a fresh machine with Python 3.11 or newer, `make demo` and `make test` each set up all they need.

PYTHON ?= python3
# Where PyTorch alone is installed from. On Linux the default index serves the CUDA build, several gigabytes;
# set this to the index of PyTorch's CPU wheels (pytorch.org, "Get started") for a small one:
#   make TORCH_INDEX=<url of that index> test
TORCH_INDEX ?=
# Tests run in this many processes.
JOBS ?= 2
# How long `make fuzz` takes.
SECONDS ?= 60
# How many models `make differential` reads.
CASES ?= 100000
# More options for pytest, or for the benchmark: make test ARGS="-k bert"
ARGS ?=

# Official wheels of onnxruntime report sessions to their maker, unless told not to.
export ORT_DISABLE_TELEMETRY := 1

# A run starts hundreds of processes. Where the environment forbids to keep what Python compiles, each compiles it anew.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq --no-compile -c constraints.txt
PYTEST := $(BIN)/python -m pytest --all -n $(JOBS) --durations=10

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test whole check format golden net screenshots bench matrix matrix-wide memory-matrix cost-matrix tamper faults rewrites subgraphs formulas hostile packages fuzz differential coverage mutants sizes files map dev clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.installed  ## export BERT and ALBERT, then inspect, reconcile and compare them
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash demo/demo.sh

test: check  ## the checks, then every test (ARGS="..." goes to pytest)
	$(PYTEST) $(ARGS)

whole: .venv/.installed  ## every test, and of each cross product all that `make test` has a sample of (an hour)
	ONNXLEDGER_WHOLE=1 $(PYTEST) $(ARGS)

check: .venv/.installed  ## format, lint, types, arrows, dead code, dependencies, spelling, metadata
	@! git grep -nE '^(<<<<<<<|>>>>>>>) ' || { echo 'a merge is not done'; exit 1; }
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	MYPY_NUM_WORKERS=$(JOBS) $(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/vulture
	$(BIN)/deptry .
	$(BIN)/codespell
	VALIDATE_PYPROJECT_NO_NETWORK=1 $(BIN)/validate-pyproject pyproject.toml

format: .venv/.installed  ## rewrite the sources in the house format
	$(BIN)/ruff check --fix-only --show-fixes .
	$(BIN)/ruff format .

golden: .venv/.installed  ## rewrite tests/golden from what the code prints now; read the diff
	$(PYTEST) --update-golden $(ARGS)

net: .venv/.installed  ## digests of every report in every format; rewrites tests/golden/net.json, ARGS=--show=NAME prints
	PYTHONPATH=tests $(BIN)/python -m tools.net $(or $(ARGS),--write)

screenshots: .venv/.installed  ## rewrite docs/images/html-*.png, the HTML reports of `make demo` in Chromium
	PYTHONPATH=tests/browser $(BIN)/python -m screenshots $(ARGS)

bench: .venv/.installed .venv-bench/.installed  ## measure inspect beside other tools (ARGS="..." goes to the script); without ARGS also grouping and pages
	$(BIN)/python benchmarks/bench_inspect.py $(ARGS)
	$(if $(ARGS),,$(BIN)/python benchmarks/bench_groups.py)
	$(if $(ARGS),,$(BIN)/python benchmarks/bench_html.py)

matrix: .venv/.installed  ## make and reconcile architectures x exports x transforms; without ARGS rewrites docs/evidence/matrix.md
	PYTHONPATH=tests $(BIN)/python -m tools.matrix $(or $(ARGS),--markdown docs/evidence/matrix.md)

matrix-wide: .venv/.installed  ## the same of other architectures, exporters and tools, as far as [matrix-wide] is installed; without ARGS rewrites docs/evidence/matrix-wide.md (an hour)
	PYTHONPATH="tests:$$PYTHONPATH" $(BIN)/python -m tools.matrix.wide --processes $(JOBS) $(or $(ARGS),--markdown docs/evidence/matrix-wide.md)

memory-matrix: .venv/.installed  ## compare planned memory with runs, node by node, for the files of `make matrix`; without ARGS rewrites docs/memory.md (an hour)
	PYTHONPATH=tests $(BIN)/python -m tools.memory_matrix $(or $(ARGS),build/matrix --markdown docs/memory.md)

cost-matrix: .venv/.installed .venv-cost/.installed  ## compare shapes and work with runs, for the files of `make matrix`, and with other tools; without ARGS rewrites docs/cost.md (an hour)
	PYTHONPATH=tests $(BIN)/python -m tools.cost_matrix $(or $(ARGS),build/matrix --peers .venv-cost/bin/python --processes $(JOBS) --markdown docs/cost.md)
	$(if $(ARGS),,$(BIN)/python -m tools.cost_matrix.shaped)

tamper: .venv/.installed  ## tamper with small models in every known way, and count the detected cases; without ARGS rewrites docs/evidence/tamper.md (an hour)
	PYTHONPATH=tests $(BIN)/python -m tools.tamper --processes $(JOBS) $(or $(ARGS),--markdown docs/evidence/tamper.md)

faults: .venv/.installed  ## put faults into small models, and count those that verify detects; without ARGS a sample of each file, which rewrites docs/evidence/faults.md (two hours)
	PYTHONPATH=tests $(BIN)/python -m tools.faults --processes $(JOBS) $(or $(ARGS),--each 8 --minutes 120 --markdown docs/evidence/faults.md)

rewrites: .venv/.installed  ## rewrite small models in every known honest way, and count the files that fail; without ARGS rewrites docs/evidence/rewrites.md (half an hour)
	PYTHONPATH=tests $(BIN)/python -m tools.rewrites --processes $(JOBS) $(or $(ARGS),--markdown docs/evidence/rewrites.md)

subgraphs: .venv/.installed  ## blocks found in 8 models against their layers; without ARGS rewrites docs/evidence/blocks.md (19 GB, half an hour)
	PYTHONPATH=tests $(BIN)/python -m tools.subgraphs $(or $(ARGS),--markdown docs/evidence/blocks.md)

formulas: .venv/.installed  ## closed forms of published models beside PyTorch's census; without ARGS rewrites the tables of docs/evidence/formulas.md
	PYTHONPATH=tests $(BIN)/python -m tools.published $(or $(ARGS),--markdown docs/evidence/formulas.md)

hostile: .venv/.installed  ## answers to hostile files, with their time and memory; rewrites docs/evidence/hostile.md
	$(BIN)/python benchmarks/bench_hostile.py --markdown docs/evidence/hostile.md $(ARGS)

packages: .venv/.installed  ## install the wheel as users do: each extra alone, pipx, the oldest versions (ARGS="pipx" is one step)
	PYTHONPATH=tests JOBS=$(JOBS) TORCH_INDEX=$(TORCH_INDEX) $(BIN)/python -m tools.installs $(ARGS)

fuzz: .venv/.installed  ## fuzz the reader for SECONDS (60); finds go to build/fuzz
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(PIP) -e ".[fuzz]"
	PYTHONPATH=tests $(BIN)/python -m tools.fuzz --seconds $(SECONDS) $(ARGS)

differential: .venv/.installed  ## read CASES (100,000) changed models beside protobuf's own reader; finds go to build/fuzz
	PYTHONPATH=tests $(BIN)/python -m tools.fuzz.differential --cases $(CASES) --processes $(JOBS) $(ARGS)

coverage: .venv/.installed  ## lines and branches of analyzer/ that no test reaches, except those of the browser (ARGS="..." goes to pytest; half an hour)
	$(BIN)/coverage erase
	$(BIN)/python -m pytest -n $(JOBS) -m "not browser" --cov=analyzer --cov-branch --cov-report= $(ARGS)
	$(BIN)/coverage report

mutants: .venv/.installed  ## change one place of the rules at a time, and see whether a test fails (ARGS="reconciliation.split": that module)
	PYTHONPATH=tests $(BIN)/python -m tools.mutants --processes $(JOBS) $(ARGS)

sizes: .venv/.installed  ## files, lines and functions: how many, the median, the longest (ARGS="analyzer/timing": of these)
	@$(BIN)/python -m tools.sizes $(ARGS)

files: .venv/.installed  ## rewrite the schemas, and the tables of the pages on JSON
	$(BIN)/python -m tools.schemas

map: .venv/.installed  ## rewrite docs/images/house.svg, the rooms as the import contracts have them
	$(BIN)/python -m tools.map

dev: .venv/.installed  ## make the virtual environment in .venv
	@echo "ready: source $(BIN)/activate"

clean:  ## remove build outputs and caches, not .venv
	rm -rf build dist .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache *.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

# PyTorch goes first and without its dependencies: its own index need not have them at the pinned versions. The
# second step sees that it is there, and brings them. What is imported is compiled then, and the rest, most of it, never.
.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "onnxledger needs Python 3.11 or newer: make PYTHON=...")'
	@echo "setting up .venv: this downloads PyTorch and takes minutes" >&2
	@$(PYTHON) -m venv .venv
	@$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) --no-deps torch
	@$(PIP) -e ".[export,time,report,remote,fleet,dev]"
	@touch $@

# What counts multiply-accumulates as well lives apart too.
.venv-cost/.installed:
	@$(PYTHON) -m venv .venv-cost
	@.venv-cost/bin/python -m pip --disable-pip-version-check install -qq onnxsim onnx-tool sympy onnx-shape-inference && touch $@

# The other tools live apart, so that none of their dependencies reaches .venv. Without them the benchmark still runs,
# and their rows say that they are not installed; the next `make bench` tries again.
.venv-bench/.installed: benchmarks/requirements.txt constraints.txt
	@$(PYTHON) -m venv .venv-bench
	@if .venv-bench/bin/python -m pip --disable-pip-version-check install -qq -r $<; then touch $@; \
	else echo "the other tools could not be installed: see above" >&2; fi
