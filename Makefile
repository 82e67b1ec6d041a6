# Everything needs only Python 3.10 to 3.13 and make; the rest is installed into .venv, pinned by constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GARDEN := .venv-model-garden
WORKER := .venv-worker
LIGHT := .venv-light
AIRFLOW := .venv-airflow
ENGINES := .engines
BROWSER := .browser
# Each an environment on top of $(VENV): tests/consumers/environments has what it adds, and its tests.
CONSUMERS := datumaro jax keras_hub tfds tfrecord torchvision
LARGE_CONSUMERS := dali fiftyone
# Likewise of benchmarks/peers/environments; the others of the table are in $(VENV) and $(GARDEN).
PEERS := array_record datasets img2dataset litdata ray streaming tfrecord webdataset
DEMO := demo
JOBS ?= 2
LOCK_IMAGE := --generate-hashes -c constraints.txt --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
    --no-python-downloads --no-header --no-annotate --quiet
# What the wheel needs, with the extras that are named, and not the wheel.
NEEDS = $(BIN)/python -c "import sys; from importlib.metadata import requires; \
    extras = ['extra == \"%s\"' % extra for extra in sys.argv[1:]]; \
    print(*(need for line in requires('recordmill') for need, _, when in [line.partition('; ')] \
        if not when or when in extras), sep='\n')"

.PHONY: demo test test-airflow test-browser test-consumers test-consumers-all test-engines test-faults test-recorded lint format bench bench-engines bench-peers lock lock-image lock-consumers templates pictures clean

# One after the other in as many lanes as there are jobs, as each is a process of its own.
define test_environments
printf '%s\n' $(1) | xargs -P $(JOBS) -I NAME env .consumers/NAME/bin/python -m pytest -n0 \
	    tests/consumers/environments/NAME $(PYTEST_ARGS)
endef

demo: $(VENV)/installed  ## Write the sample data set, convert it, verify the result
	rm -rf $(DEMO)
	$(BIN)/recordmill sample $(DEMO)/sample
	$(BIN)/recordmill coco --images $(DEMO)/sample/images --instances $(DEMO)/sample/annotations/instances.json \
	    --output $(DEMO)/tfrecords --num-shards 4
	$(BIN)/recordmill verify $(DEMO)/tfrecords
	@ls -l $(DEMO)/tfrecords
	@echo
	@echo "The data set is in $(DEMO)/tfrecords. To look at next:"
	@echo "  $(DEMO)/tfrecords/report.html           a page to look at: what was read, written and left out, pictures"
	@echo "  $(BIN)/recordmill help coco             flags for your own data, and examples"
	@echo "  $(BIN)/recordmill folder --images $(DEMO)/sample/classes --output $(DEMO)/classes"
	@echo "                                         class folders, as of cats and dogs"
	@echo "  README.md, \"Train on it\"               the records in TensorFlow"

# Of two cores some would be idle otherwise: tests wait for processes that start, and for threads.
test: JOBS = 3
test: $(VENV)/installed-dev  ## Run the tests
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --ignore=tests/consumers --ignore=tests/faults \
	    --ignore=tests/engines --ignore=tests/airflow --ignore=tests/browser $(PYTEST_ARGS)

test-faults: $(VENV)/installed-dev  ## Kill jobs, fill disks, break requests: nothing may be lost or half-written
	$(BIN)/python -m pytest -n $(JOBS) tests/faults $(PYTEST_ARGS)

test-recorded: $(VENV)/installed-dev  ## Compare the outputs of recorded jobs with their SHA-256
	$(BIN)/python -m tests.recorded.check

test-consumers: $(VENV)/installed-dev $(GARDEN)/installed $(CONSUMERS:%=.consumers/%/installed)  ## Have Model Garden, TFDS, Keras, torchvision, Grain, Datumaro, … read it
	$(BIN)/python -m pytest -n $(JOBS) tests/consumers --ignore=tests/consumers/environments $(PYTEST_ARGS)
	$(call test_environments,$(CONSUMERS))

test-consumers-all: test-consumers $(LARGE_CONSUMERS:%=.consumers/%/installed)  ## Those, too, that are large: DALI, FiftyOne (2 GB more)
	$(call test_environments,$(LARGE_CONSUMERS))

test-airflow: $(VENV)/installed $(AIRFLOW)/installed  ## Have Airflow run the DAGs, in an environment that has only our wheel
	rm -rf build
	$(AIRFLOW)/bin/uv pip install --quiet --python $(AIRFLOW)/bin/python --no-deps --reinstall .
	cd tests/airflow && PROJECT_PYTHON=$(abspath $(BIN))/python ../../$(AIRFLOW)/bin/pytest -n $(JOBS) $(PYTEST_ARGS)

test-engines: $(VENV)/installed-dev $(WORKER)/installed $(LIGHT)/installed  ## Have Flink, Prism and several processes run the jobs
	$(BIN)/python tests/engines/fetch.py $(ENGINES)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile tests/engines $(PYTEST_ARGS)

test-browser: $(VENV)/installed-dev $(BROWSER)/installed  ## Have headless Chromium open report.html
	$(BIN)/python -m pytest -n0 tests/browser $(PYTEST_ARGS)

lint: $(VENV)/installed-dev  ## Check style and types
	mkdir -p .types/recordmill
	ln -sfn $(addprefix ../../,schemas transforms pipelines launch $(wildcard recordmill/*.*)) .types/recordmill
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/installed-dev  ## Rewrite the code in its style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/installed-dev  ## Measure speed and memory (minutes)
	cd benchmarks && ../$(BIN)/python masks.py
	cd benchmarks && ../$(BIN)/python pictures.py
	cd benchmarks && ../$(BIN)/python duplicates.py
	cd benchmarks && ../$(BIN)/python read_coco.py
	cd benchmarks && ../$(BIN)/python coco.py
	cd benchmarks && ../$(BIN)/python buckets.py
	cd benchmarks && ../$(BIN)/python table.py
	cd benchmarks && ../$(BIN)/python embed.py
	cd benchmarks && ../$(BIN)/python text.py
	$(BIN)/pip install --quiet --no-deps --target .readers array_record==0.8.6 tfrecord==1.14.6 crc32c==2.9.post0
	cd benchmarks && PYTHONPATH=../.readers ../$(BIN)/python read.py

bench-engines: $(VENV)/installed-dev $(WORKER)/installed  ## Measure one job on each engine
	$(BIN)/python tests/engines/fetch.py $(ENGINES)
	PYTHONPATH=. $(BIN)/python benchmarks/engines.py

bench-peers: $(VENV)/installed-dev $(GARDEN)/installed $(PEERS:%=.peers/%/installed)  ## Measure what others make of the same pictures (20 minutes, 2 GB)
	cd benchmarks && ../$(BIN)/python compare_peers.py

lock: $(VENV)/installed-dev  ## Pin the newest versions that setup.py allows
	$(BIN)/pip install --quiet uv
	(echo "# Pins for Python 3.10 to 3.13, made by \`make lock\` from the ranges in setup.py."; \
	 $(BIN)/uv pip compile setup.py --universal --python-version 3.10 --no-python-downloads --extra all \
	    --extra dev --no-header --no-annotate --quiet) > constraints.new
	mv constraints.new constraints.txt
	$(MAKE) lock-image

# The second has what the first has not. A platform is named, as the image has one, whatever machine this is run on.
lock-image: $(VENV)/installed-dev  ## Pin what Dataflow's image installs, as constraints.txt has it, by digest
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile setup.py --extra gcp $(LOCK_IMAGE) > requirements.new
	sed -n 's/^\([A-Za-z0-9._-]*\).*==.*/--no-emit-package \1/p' requirements.new \
	    | xargs $(BIN)/uv pip compile setup.py --extra all $(LOCK_IMAGE) > launch/dataflow/requirements-embed.txt
	mv requirements.new launch/dataflow/requirements.txt

lock-consumers: $(VENV)/installed-dev  ## Pin what consumers need, where it can be as in constraints.txt
	$(BIN)/pip install --quiet uv
	grep -v -E "^(numpy|protobuf|tensorflow|tensorflow-metadata)==" constraints.txt > constraints.new
	grep "^tensorflow==" tests/consumers/model_garden.in > overrides.new
	(echo "# Pins for Python 3.10 to 3.13, made by \`make lock-consumers\`: all there is to install, so with --no-deps."; \
	 $(BIN)/uv pip compile tests/consumers/model_garden.in --universal --python-version 3.10 --no-python-downloads \
	    -c constraints.new --override overrides.new --no-header --no-annotate --quiet && \
	 echo "tf-models-official==2.20.0") > model_garden.new
	mv model_garden.new tests/consumers/model_garden.txt
	rm overrides.new
	for folder in $(addprefix tests/consumers/environments/,$(CONSUMERS) $(LARGE_CONSUMERS)) \
	    $(addprefix benchmarks/peers/environments/,$(PEERS)); do \
	    sed -n 's/^\([A-Za-z0-9._-]*\).*/^\1==/p' $$folder/requirements.in > named.new; \
	    grep -v -f named.new constraints.txt > constraints.new; \
	    $(BIN)/uv pip compile $$folder/requirements.in --excludes tests/consumers/environments/left_out.txt --universal \
	        --python-version 3.10 --no-python-downloads -c constraints.new --no-header --no-annotate --quiet > pins.new || exit 1; \
	    (echo "# Made by \`make lock-consumers\`: what constraints.txt has not."; \
	     grep -v -x -F -f constraints.txt pins.new) > $$folder/requirements.txt; \
	done
	rm named.new constraints.new pins.new

templates: $(VENV)/installed-dev  ## Write what is made of the options anew: metadata of Dataflow templates, tables of docs/cli.md
	$(BIN)/python -m recordmill.launch.services.template_metadata
	$(BIN)/python -m recordmill.launch.command_line.documentation docs/cli.md
	$(BIN)/python -m recordmill.launch.preflight.costs docs/dataflow.md docs/scaling.md

pictures: $(VENV)/installed $(BROWSER)/installed  ## Draw the pictures of README.md anew
	$(BIN)/python docs/make_pictures.py

$(VENV)/installed: setup.py constraints.txt
	@echo "Installing Apache Beam, TensorFlow and what they need into $(VENV): 2.8 GB, some minutes, and only once"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all]"
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@echo "Installing what tests and checks need into $(VENV), once"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all,dev]"
	touch $@

# $(VENV) is on the path last, so that what an environment has of its own comes first. pip is not to see it.
define install_on_top
	$(BIN)/python -m venv --clear --without-pip $(@D)
	$(BIN)/python -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check --no-deps -r $<
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
	    > $$(echo $(@D)/lib/python3*/site-packages)/below.pth
	if [ -x $(<D)/install.sh ]; then $(<D)/install.sh $(@D); fi
	touch $@
endef

.consumers/%/installed: tests/consumers/environments/%/requirements.txt $(VENV)/installed-dev
	$(install_on_top)

.peers/%/installed: benchmarks/peers/environments/%/requirements.txt $(VENV)/installed-dev
	$(install_on_top)

$(GARDEN)/installed: tests/consumers/model_garden.txt
	$(PYTHON) -m venv --clear $(GARDEN)
	$(GARDEN)/bin/pip install --quiet --disable-pip-version-check --no-deps -r tests/consumers/model_garden.txt
	touch $@

# uv, as pip takes minutes for so many packages.
$(AIRFLOW)/installed: tests/airflow/airflow.txt
	$(PYTHON) -m venv --clear $(AIRFLOW)
	$(AIRFLOW)/bin/pip install --quiet --disable-pip-version-check uv
	$(AIRFLOW)/bin/uv pip install --quiet --python $(AIRFLOW)/bin/python --no-deps -r tests/airflow/airflow.txt
	touch $@

$(BROWSER)/installed: tests/browser/install.sh tests/browser/package-lock.json
	tests/browser/install.sh $(BROWSER)

# Without the wheel: workers are to see only what was shipped. setuptools builds what --setup_file stages.
$(WORKER)/installed: $(VENV)/installed
	$(PYTHON) -m venv --clear $(WORKER)
	$(NEEDS) gcp > $(WORKER)/requirements.txt
	$(WORKER)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -r $(WORKER)/requirements.txt setuptools
	touch $@

$(LIGHT)/installed: $(VENV)/installed
	$(PYTHON) -m venv --clear $(LIGHT)
	$(NEEDS) > $(LIGHT)/requirements.txt
	$(LIGHT)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -r $(LIGHT)/requirements.txt
	touch $@

clean:
	rm -rf .types $(VENV) $(GARDEN) .consumers .peers $(WORKER) $(LIGHT) $(ENGINES) $(BROWSER) $(DEMO) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
