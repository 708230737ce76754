# Each target sets up .venv by itself when it is missing or older than the pins.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: train test check test-slow test-thorough test-adapters chaos audit bench results docs setup clean

train: ARGS ?= --preset demo
train: $(VENV)/ready        ## train a team; ARGS="--scenario simple_tag …" instead of the demo
	$(BIN)/counterpoint train $(ARGS)

# Tests compile much and run little, so the compiler need not try hard.
QUICKLY = XLA_FLAGS="$$XLA_FLAGS --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"

test: $(VENV)/ready         ## the fast tests
	$(QUICKLY) $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

test-thorough: $(VENV)/ready  ## the tests of tests/thorough.txt, which take more than a few seconds each
	$(QUICKLY) $(BIN)/python -m pytest -m 'thorough and not slow' -n 2 --dist worksteal $(ARGS)

check: $(VENV)/ready        ## format, lint, types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache

test-slow: $(VENV)/ready    ## learning tests that take minutes
	$(BIN)/python -m pytest -m slow $(ARGS)

test-adapters: $(VENV)-adapters/ready  ## the tests that need JaxMARL and gymnax
	XLA_FLAGS="$$XLA_FLAGS --xla_backend_optimization_level=0" $(VENV)-adapters/bin/python -m pytest tests/envs/test_jax_adapters.py $(ARGS)

chaos: $(VENV)/ready        ## attack runs, files, environments and arguments (about an hour; ARGS=--short: under two minutes)
	PYTHONPATH=src $(BIN)/python tests/chaos/harness.py $(ARGS)

audit: $(VENV)/ready        ## licences, software bill of materials (build/sbom.json) and known vulnerabilities of what is installed
	$(BIN)/python benchmarks/audit.py $(ARGS)

results: $(VENV)/ready      ## train the published settings again (hours; stop and start at will)
	$(BIN)/python benchmarks/success.py
	$(BIN)/python benchmarks/results.py $(ARGS)
	$(BIN)/python benchmarks/head_to_head.py
# The last one trains environments of others; its multiwalker needs two more packages: .venv/bin/pip install box2d pymunk
	$(BIN)/python benchmarks/external_learning.py

bench: $(VENV)/ready $(VENV)-bench/ready $(VENV)-agile/ready  ## measured speed (docs/performance.md); wants an otherwise idle machine
	$(BIN)/python benchmarks/worlds.py
	$(BIN)/python benchmarks/training.py $(ARGS)
	$(BIN)/python benchmarks/many_agents.py speed
	$(BIN)/python benchmarks/ensemble.py
	$(BIN)/python benchmarks/distributed.py
	$(BIN)/python benchmarks/coma.py
	$(BIN)/python benchmarks/mappo.py
	$(BIN)/python benchmarks/hosted.py
	$(BIN)/python benchmarks/quality.py

docs: $(VENV)/ready         ## these pages as a site in site/
	$(BIN)/python docs/make_gallery.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

setup: $(VENV)/ready        ## only the environment

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "counterpoint needs Python 3.11 or newer; set PYTHON=…")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)-adapters/ready: pyproject.toml constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,jaxmarl,gymnax]'
	touch $@

$(VENV)-%/ready: benchmarks/requirements-%.txt  # environments of the programs that we compare with
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-adapters $(VENV)-bench $(VENV)-agile $(VENV)-authors build dist site
