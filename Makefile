# Everything needs only Python 3.10 to 3.13 and make. uv installs the rest into .venv, pinned by constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PINS := -c constraints.txt
# Folders below tests/consumers/environments, each an environment on top of $(VENV). `dali fiftyone rfdetr` are 6 GB more.
CONSUMERS := datumaro jax keras_hub litdata parquet pyright tfds tfrecord torchvision webdataset
# Folders below benchmarks/peers/environments.
PEERS := array_record datasets img2dataset litdata ray streaming tfrecord webdataset
READERS := array_record datasets webdataset
ALONE := model-garden worker light
PYTHONS := python3.10 python3.13
DEMO := demo
ACTIONLINT := v1.7.12
JOBS ?= 2
FUZZ_SECONDS ?= 150
FUZZ_SEED ?= 1
LOCK := $(BIN)/uv pip compile --universal --python-version 3.10 --no-python-downloads --no-header --no-annotate --quiet
# Without bytecode, Beam's import takes 1.45 s in place of 0.67 s.
INSTALL = $(BIN)/uv pip install --compile-bytecode --python

.PHONY: demo test test-airflow test-browser test-consumers test-dist test-engines test-faults test-fuzz test-matrix \
    test-newest test-pythons lint lint-workflows dist format site bench bench-engines bench-first-batch bench-peers bench-readers lock lock-consumers templates pictures clean \
    .engines/fetched

demo: $(VENV)/installed-beam  ## Write the sample data set, convert it, verify the result
	rm -rf $(DEMO)
	@echo "3/5 Draw a COCO data set of 240 images"
	$(BIN)/recordmill sample $(DEMO)/sample
	@echo "4/5 Convert it"
	$(BIN)/recordmill convert $(DEMO)/sample/images --instances $(DEMO)/sample/annotations/instances.json \
	    -o $(DEMO)/tfrecords --num-shards 4
	@echo "5/5 Read every record back"
	$(BIN)/recordmill verify $(DEMO)/tfrecords --check decode
	@ls -l $(DEMO)/tfrecords
	@echo "Look at $(DEMO)/tfrecords/report.html, then convert your own data: $(BIN)/recordmill help convert"

# Bytecode of our modules and of pytest's assertions: collecting all tests takes half the time, and so do child processes.
test test-dist test-faults test-engines test-matrix test-browser: export PYTHONDONTWRITEBYTECODE :=
# Three, or some of two cores would be idle: tests wait for processes that start, and for threads.
test: $(VENV)/installed  ## Run the tests
	$(BIN)/python -m pytest -n 3 --dist worksteal --ignore=tests/consumers --ignore=tests/faults \
	    --ignore=tests/engines --ignore=tests/airflow --ignore=tests/browser --ignore=tests/matrix --ignore=tests/dist $(PYTEST_ARGS)

test-consumers: $(VENV)/installed .venv-model-garden/installed $(CONSUMERS:%=.consumers/%/installed)  ## Have Model Garden, TFDS, Keras, torchvision, Grain, Datumaro, … read it
	$(BIN)/python -m pytest -n $(patsubst 1,0,$(JOBS)) tests/consumers --ignore=tests/consumers/environments $(PYTEST_ARGS)
	printf '%s\n' $(CONSUMERS) | xargs -P $(JOBS) -I NAME env .consumers/NAME/bin/python -m pytest -n0 \
	    tests/consumers/environments/NAME $(PYTEST_ARGS)

test-airflow: $(VENV)/installed .venv-airflow/installed .venv-airflow-dataflow/installed  ## Have Airflow run the DAGs, in environments that docs/airflow.md installs
	rm -rf build/lib build/bdist.*
	$(INSTALL) .venv-airflow/bin/python --quiet --no-deps --reinstall .
	$(INSTALL) .venv-airflow-dataflow/bin/python --quiet --no-deps --reinstall .
	cd tests/airflow && export PROJECT_PYTHON=$(abspath $(BIN))/python && \
	    ../../.venv-airflow/bin/pytest test_dags.py $(PYTEST_ARGS) && \
	    ../../.venv-airflow-dataflow/bin/pytest test_dataflow_dags.py $(PYTEST_ARGS)

test-faults:  ## Kill jobs, fill disks, break requests: nothing may be lost or half-written
test-engines: .venv-worker/installed .venv-light/installed .engines/fetched  ## Have Flink, Spark, Prism and several processes run the jobs
test-matrix:  ## Run slow matrices: 28 conversions write the bytes that they always wrote, cures work as printed
test-browser: .browser/installed build/site/index.html  ## Have headless Chromium open report.html, and the site where it is built
# One process needs no other that hands it the tests.
test-faults test-engines test-matrix test-browser: $(VENV)/installed
	$(BIN)/python -m pytest -n $(patsubst 1,0,$(JOBS)) --dist loadfile $(@:test-%=tests/%) $(PYTEST_ARGS)

test-fuzz: $(VENV)/installed  ## Read seeded mutants of small files by every parser: FUZZ_SECONDS, FUZZ_SEED
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)

test-newest:  ## Run `make test` with the newest versions that pyproject.toml allows, in .venv-newest (2.8 GB)
	$(MAKE) test VENV=.venv-newest PINS=

# Of the jobs only those that start processes, threads and event loops, and those whose bytes are released.
test-pythons:  ## Run most of `make test` with the lowest and the highest Python of the pins, in .venv-python3.10 and .venv-python3.13: PYTHONS
	for python in $(PYTHONS); do \
	    $$python -c "" || { echo "no $$python on this machine: not run"; continue; }; \
	    $(MAKE) test PYTHON=$$python VENV=.venv-$$python PYTEST_ARGS="tests/schemas tests/transforms tests/pipelines \
	        tests/launch tests/recordmill tests/jobs/test_convert.py tests/jobs/test_forked_writers.py \
	        tests/jobs/test_released_bytes.py" || exit 1; \
	done

lint: $(VENV)/installed  ## Check style, types and words: the hooks of .pre-commit-config.yaml
	$(BIN)/pre-commit run --all-files

lint-workflows:  ## Check .github/workflows with actionlint; wants Go
	if command -v go > /dev/null; then \
	    go run github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT); \
	else echo "no go on this machine: not run"; fi

# Not isolated: setuptools of the pins builds. The commit's time makes two builds of a commit the same bytes.
dist: $(VENV)/installed  ## Build the source distribution and its wheel in dist/, and check them as PyPI does
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --no-isolation --outdir dist . > /dev/null
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

test-dist: dist  ## Install dist/*.whl in empty environments of each Python, and convert there
	$(BIN)/python -m pytest -n0 tests/dist $(PYTEST_ARGS)

format: $(VENV)/installed  ## Rewrite the code in its style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Links between pages are those of the repository, so its folders are copied as they stand. README.md is the first page.
SITE_SOURCE := build/site-source
site: $(VENV)/installed .site/installed  ## Build the pages of docs as a site, build/site/index.html
	rm -rf build/site build/doctrees $(SITE_SOURCE)
	mkdir -p $(SITE_SOURCE)/benchmarks
	cp -r CHANGELOG.md CONTRIBUTING.md LICENSE docs launch $(SITE_SOURCE)
	cp benchmarks/RESULTS.md $(SITE_SOURCE)/benchmarks
	cp README.md $(SITE_SOURCE)/index.md
	PYTHONPATH=. .site/bin/python -m sphinx -q -W --keep-going -c docs/site -d build/doctrees $(SITE_SOURCE) build/site

build/site/index.html:
	$(MAKE) site

bench: $(VENV)/installed  ## Measure speed and memory (minutes)
	cd benchmarks && for name in masks pictures read_images duplicates read_coco coco containers buckets table embed text metadata; do \
	    ../$(BIN)/python $$name.py || exit 1; done
	$(BIN)/uv pip install --quiet --no-deps --target .readers tfrecord==1.14.6 crc32c==2.9.post0
	cd benchmarks && PYTHONPATH=../.readers ../$(BIN)/python read.py

bench-engines: $(VENV)/installed .venv-worker/installed .engines/fetched  ## Measure one job on each engine
	PYTHONPATH=. $(BIN)/python benchmarks/engines.py

bench-peers: $(VENV)/installed .venv-model-garden/installed $(PEERS:%=.peers/%/installed)  ## Measure what others make of the same images, and draw the chart of README.md (20 minutes, 2 GB)
	cd benchmarks && ../$(BIN)/python compare_peers.py --chart ../docs/images/peers.svg

bench-readers: $(VENV)/installed .consumers/torchvision/installed $(READERS:%=.peers/%/installed)  ## Measure how fast others read the same images, and draw the chart of docs/performance.md (15 minutes, 2 GB)
	cd benchmarks && ../$(BIN)/python read_images.py --images 1500 --chart ../docs/images/readers.svg
	cd benchmarks && ../$(BIN)/python data_loader.py

bench-first-batch: $(VENV)/installed .peers/first_batch/installed  ## Measure time to the first batch, and memory per rank (20 minutes, 16 GB): FIRST_BATCH="--folder DIR"
	$(BIN)/python benchmarks/first_batch.py $(FIRST_BATCH)

lock: $(VENV)/installed  ## Pin the newest versions that pyproject.toml allows
	(echo "# Pins for Python 3.10 to 3.13, made by \`make lock\` from the ranges in pyproject.toml."; \
	 $(LOCK) pyproject.toml --extra all --extra dev) > constraints.new
	mv constraints.new constraints.txt

lock-consumers: $(VENV)/installed  ## Pin what consumers need, where it can be as in constraints.txt
	grep -v -E "^(numpy|protobuf|tensorflow|tensorflow-metadata)==" constraints.txt > constraints.new
	grep "^tensorflow==" tests/consumers/model_garden.in > overrides.new
	(echo "# Pins for Python 3.10 to 3.13, made by \`make lock-consumers\`: all there is to install, so with --no-deps."; \
	 $(LOCK) tests/consumers/model_garden.in -c constraints.new --override overrides.new && \
	 echo "tf-models-official==2.20.0") > model_garden.new
	mv model_garden.new tests/consumers/model_garden.txt
	for folder in $(dir $(wildcard tests/consumers/environments/*/*.in benchmarks/peers/environments/*/*.in docs/site/*.in)); do \
	    sed -n 's/^\([A-Za-z0-9._-]*\).*/^\1==/p' $$folder/requirements.in > named.new; \
	    grep -v -f named.new constraints.txt > constraints.new; \
	    $(LOCK) $$folder/requirements.in --excludes tests/consumers/environments/left_out.txt -c constraints.new > pins.new || exit 1; \
	    (echo "# Made by \`make lock-consumers\`: what constraints.txt has not."; \
	     grep -v -x -F -f constraints.txt pins.new) > $$folder/requirements.txt; \
	done
	rm *.new

templates: $(VENV)/installed-beam  ## Write what follows from the code: templates, tables of docs/cli.md and docs/architecture.md, keywords of convert
	$(BIN)/python -m recordmill.launch.services.template_metadata build/templates
	$(BIN)/python -m recordmill.launch.command_line.documentation docs/cli.md docs/formats.md docs/architecture.md
	$(BIN)/python -m recordmill.launch.command_line.keywords recordmill/_keywords.py recordmill/_convert.py

pictures: $(VENV)/installed .browser/installed  ## Draw the pictures of README.md and docs/cli.md again
	$(BIN)/python docs/make_pictures.py

$(BIN)/uv:
	@echo "1/5 Make $(VENV) and install uv (25 MB)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep ^uv== constraints.txt)"

$(VENV)/installed-beam: pyproject.toml constraints.txt | $(BIN)/uv
	@echo "2/5 Install Recordmill with Apache Beam (44 packages, 125 MB to download, 540 MB on disk)"
	$(INSTALL) $(BIN)/python $(PINS) -e ".[beam]"
	touch $@

$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/uv
	@echo "Install TensorFlow, Google's clients and the tools of tests (220 packages, 3.4 GB on disk)"
	$(INSTALL) $(BIN)/python $(PINS) -e ".[all,dev]"
	touch $@ $(VENV)/installed-beam

# $(VENV) is on the path last, so that the environment's packages come first.
define install_on_top
	$(BIN)/python -m venv --clear --without-pip $(@D)
	$(INSTALL) $(@D)/bin/python --quiet --no-deps -r $<
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
	    > $$(echo $(@D)/lib/python3*/site-packages)/below.pth
	if [ -x $(<D)/install.sh ]; then $(<D)/install.sh $(@D); fi
	touch $@
endef

.consumers/%/installed: tests/consumers/environments/%/requirements.txt $(VENV)/installed
	$(install_on_top)

.peers/%/installed: benchmarks/peers/environments/%/requirements.txt $(VENV)/installed
	$(install_on_top)

# Parts that could not be fetched are tried again each time.
.engines/fetched: $(VENV)/installed
	$(BIN)/python tests/engines/fetch.py $(@D)

.site/installed: docs/site/requirements.txt $(VENV)/installed
	$(install_on_top)

.browser/installed: tests/browser/install.sh tests/browser/package-lock.json
	tests/browser/install.sh .browser

# Each stands alone, with what its first file names. The worker lacks the wheel: it is to see only what was shipped, and
# setuptools builds what --setup_file stages. Tests install the wheel into `light` with pip.
.venv-model-garden/installed: tests/consumers/model_garden.txt
.venv-worker/installed .venv-light/installed: pyproject.toml constraints.txt
.venv-worker/installed: MORE = --extra gcp --extra arrayrecord setuptools
$(ALONE:%=.venv-%/installed): | $(BIN)/uv
	$(PYTHON) -m venv --clear $(@D)
	$(INSTALL) $(@D)/bin/python --quiet $(if $(filter %.txt,$<),--no-deps,-c constraints.txt) -r $< $(MORE)
	touch $@

# `airflow-dataflow` has Google's provider, too.
.venv-airflow/installed .venv-airflow-dataflow/installed: tests/airflow/install.sh tests/airflow/airflow.txt docs/airflow.md | $(BIN)/uv
	$(PYTHON) -m venv --clear $(@D)
	tests/airflow/install.sh $(BIN)/uv $(@D) $(if $(filter %-dataflow,$(@D)),,--without-google)
	touch $@

clean:
	rm -rf $(VENV) $(ALONE:%=.venv-%) .venv-airflow .venv-airflow-dataflow .consumers .peers .engines .browser .site $(DEMO) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
