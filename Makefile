# Everything needs only Python 3.10 to 3.13 and make; the rest is installed into .venv, pinned by constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GARDEN := .venv-model-garden
DEMO := demo
JOBS ?= 2

.PHONY: demo test test-consumers test-faults lint format bench lock lock-consumers clean

demo: $(VENV)/installed  ## Write the sample data set, convert it, verify the result
	rm -rf $(DEMO)
	$(BIN)/recordmill sample $(DEMO)/sample
	$(BIN)/recordmill coco --images $(DEMO)/sample/images --instances $(DEMO)/sample/annotations/instances.json \
	    --output $(DEMO)/tfrecords --num-shards 4
	$(BIN)/recordmill verify $(DEMO)/tfrecords
	@ls -l $(DEMO)/tfrecords

test: $(VENV)/installed-dev  ## Run the tests
	$(BIN)/python -m pytest -n $(JOBS) --ignore=tests/consumers --ignore=tests/faults $(PYTEST_ARGS)

test-faults: $(VENV)/installed-dev  ## Kill jobs, fill disks, break requests: nothing may be lost or half-written
	$(BIN)/python -m pytest -n $(JOBS) tests/faults $(PYTEST_ARGS)

test-consumers: $(VENV)/installed-dev $(GARDEN)/installed  ## Have Model Garden, TFDS, Keras, pycocotools read it
	$(BIN)/python -m pytest -n $(JOBS) tests/consumers $(PYTEST_ARGS)

lint: $(VENV)/installed-dev  ## Check style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/installed-dev  ## Rewrite the code in its style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/installed-dev  ## Measure speed and memory (minutes)
	cd benchmarks && ../$(BIN)/python masks.py
	cd benchmarks && ../$(BIN)/python pictures.py
	cd benchmarks && ../$(BIN)/python read_coco.py
	cd benchmarks && ../$(BIN)/python coco.py
	cd benchmarks && ../$(BIN)/python buckets.py

lock: $(VENV)/installed-dev  ## Pin the newest versions that setup.py allows
	$(BIN)/pip install --quiet uv
	(echo "# Pins for Python 3.10 to 3.13, made by \`make lock\` from the ranges in setup.py."; \
	 $(BIN)/uv pip compile setup.py --universal --python-version 3.10 --no-python-downloads --extra tensorflow \
	    --extra dev --no-header --no-annotate --quiet) > constraints.new
	mv constraints.new constraints.txt

lock-consumers: $(VENV)/installed-dev  ## Pin what Model Garden's decoder needs, where it can be as in constraints.txt
	$(BIN)/pip install --quiet uv
	grep -v -E "^(protobuf|tensorflow|tensorflow-metadata)==" constraints.txt > constraints.new
	grep "^tensorflow==" tests/consumers/model_garden.in > overrides.new
	(echo "# Pins for Python 3.10 to 3.13, made by \`make lock-consumers\`: all there is to install, so with --no-deps."; \
	 $(BIN)/uv pip compile tests/consumers/model_garden.in --universal --python-version 3.10 --no-python-downloads \
	    -c constraints.new --override overrides.new --no-header --no-annotate --quiet && \
	 echo "tf-models-official==2.20.0") > model_garden.new
	mv model_garden.new tests/consumers/model_garden.txt
	rm constraints.new overrides.new

$(VENV)/installed: setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[tensorflow]"
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[tensorflow,dev]"
	touch $@

$(GARDEN)/installed: tests/consumers/model_garden.txt
	$(PYTHON) -m venv --clear $(GARDEN)
	$(GARDEN)/bin/pip install --quiet --disable-pip-version-check --no-deps -r tests/consumers/model_garden.txt
	touch $@

clean:
	rm -rf $(VENV) $(GARDEN) $(DEMO) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
