# Everything needs only Python 3.10 to 3.13 and make; the rest is installed into .venv, pinned by constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo
JOBS ?= 2

.PHONY: demo test lint format bench lock clean

demo: $(VENV)/installed  ## Write the sample data set, convert it, verify the result
	rm -rf $(DEMO)
	$(BIN)/recordmill sample $(DEMO)/sample
	$(BIN)/recordmill coco --images $(DEMO)/sample/images --instances $(DEMO)/sample/annotations/instances.json \
	    --output $(DEMO)/tfrecords --num-shards 4
	$(BIN)/recordmill verify $(DEMO)/tfrecords
	@ls -l $(DEMO)/tfrecords

test: $(VENV)/installed-dev  ## Run the tests
	$(BIN)/python -m pytest -n $(JOBS) $(PYTEST_ARGS)

lint: $(VENV)/installed-dev  ## Check style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/installed-dev  ## Rewrite the code in its style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/installed-dev  ## Measure speed and memory (minutes)
	cd benchmarks && ../$(BIN)/python read_coco.py
	cd benchmarks && ../$(BIN)/python coco.py

lock: $(VENV)/installed-dev  ## Pin the newest versions that setup.py allows
	$(BIN)/pip install --quiet uv
	(echo "# Pins for Python 3.10 to 3.13, made by \`make lock\` from the ranges in setup.py."; \
	 $(BIN)/uv pip compile setup.py --universal --python-version 3.10 --extra tensorflow --extra dev \
	    --no-header --no-annotate --quiet) > constraints.new
	mv constraints.new constraints.txt

$(VENV)/installed: setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[tensorflow]"
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[tensorflow,dev]"
	touch $@

clean:
	rm -rf $(VENV) $(DEMO) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
