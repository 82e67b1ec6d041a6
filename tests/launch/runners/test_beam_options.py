"""Beam's options as a job gets them."""

import os
import re

import pytest
from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PortableOptions,
    SetupOptions,
    StandardOptions,
    WorkerOptions,
)

from recordmill.launch.runners.beam_options import (
    DATAFLOW_MACHINE,
    DATAFLOW_THREADS,
    Runner,
    beam_options,
    chosen_runner,
    job_purpose,
    run_job_name,
)
from recordmill.schemas.errors import ConfigError

DATAFLOW = ["--runner=DataflowRunner", "--project=p-12345", "--region=us-central1"]


@pytest.mark.parametrize("named", [[], ["--runner=DirectRunner"], ["--runner=direct"], ["--runner=FnApiRunner"]])
def test_local_runs_name_runner_that_downloads_nothing(named):
    options = beam_options(named)
    assert options.view_as(StandardOptions).runner.endswith(".fn_api_runner.FnApiRunner")
    assert chosen_runner(options) is Runner.LOCAL
    assert options.view_as(WorkerOptions).machine_type is options.view_as(GoogleCloudOptions).labels is None


@pytest.mark.parametrize(
    ("name", "runner"),
    [
        ("DataflowRunner", Runner.DATAFLOW),
        ("dataflow", Runner.DATAFLOW),
        ("FlinkRunner", Runner.PORTABLE),
        ("portablerunner", Runner.PORTABLE),
        ("apache_beam.runners.portability.prism_runner.PrismRunner", Runner.PORTABLE),
        ("SparkRunner", Runner.PORTABLE),
    ],
)
def test_runners(name, runner):
    assert chosen_runner(beam_options([f"--runner={name}"])) is runner


@pytest.mark.parametrize(
    "name", ["DaskRunner", "InteractiveRunner", "Flnk", "my.FlinkRunner", "apache_beam.runners.ray.RayRunner"]
)
def test_runner_not_known_to_work_is_refused(name):
    with pytest.raises(ConfigError, match="must be one of DataflowRunner"):
        beam_options([f"--runner={name}"])


def test_setup_file_has_whole_path():
    assert os.path.isabs(beam_options(["--setup_file=setup.py"]).view_as(SetupOptions).setup_file)


@pytest.mark.parametrize("arguments", [[], DATAFLOW, ["--runner=FlinkRunner"], [*DATAFLOW, "--save_main_session"]])
def test_main_session_is_never_shipped(arguments):
    assert beam_options(arguments).view_as(SetupOptions).save_main_session is False


def test_dataflow_gets_defaults_where_nothing_is_said():
    options = beam_options(DATAFLOW)
    assert options.view_as(WorkerOptions).machine_type == DATAFLOW_MACHINE
    for flag in ("--dataflow_service_options=enable_prime", "--experiments=enable_prime"):
        assert beam_options(["--runner=DataflowRunner", flag]).view_as(WorkerOptions).machine_type is None
    assert options.view_as(DebugOptions).number_of_worker_harness_threads == DATAFLOW_THREADS
    cloud = options.view_as(GoogleCloudOptions)
    assert cloud.labels == ["made-by=recordmill"]
    assert cloud.job_name.startswith("recordmill-20")
    assert cloud.job_name != beam_options(DATAFLOW).view_as(GoogleCloudOptions).job_name
    assert beam_options(DATAFLOW, "same").view_as(GoogleCloudOptions).job_name == "same"


def test_messages_stay():
    more = ["--machine_type=n2-highmem-8", "--number_of_worker_harness_threads=5", "--job_name=mine", "--labels=a=b"]
    options = beam_options([*DATAFLOW, *more])
    assert options.view_as(WorkerOptions).machine_type == "n2-highmem-8"
    assert options.view_as(DebugOptions).number_of_worker_harness_threads == 5
    zero = beam_options([*DATAFLOW, "--number_of_worker_harness_threads=0"])
    assert zero.view_as(DebugOptions).number_of_worker_harness_threads == 0
    assert options.view_as(GoogleCloudOptions).job_name == "mine"
    assert beam_options([*DATAFLOW, "--job_name=mine"], "other").view_as(GoogleCloudOptions).job_name == "mine"
    assert options.view_as(GoogleCloudOptions).labels == ["a=b", "made-by=recordmill"]


def test_job_server_timeout_is_long():
    for more, least, most in (([], 7 * 24 * 3600, 365 * 24 * 3600), (["--job_server_timeout=20"], 20, 20)):
        options = beam_options(["--runner=PrismRunner", *more])
        assert least <= options.view_as(PortableOptions).job_server_timeout <= most


def test_who_may_add_flags_that_beam_does_not_know():
    beam_options(["--runner=FlinkRunner", "--checkpointing_interval=1000"])
    beam_options([*DATAFLOW, "--template_location=gs://b/t.json", "--launchers_own=1"])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        *(
            ([*named, flag], word)
            for named in ([], ["--runner=DirectRunner"], ["--runner=FlinkRunner"], DATAFLOW)
            for flag, word in (("--num-shards=4", "--num-shards=4 must"), ("--flink-master=h:1", "--flink_master?"))
        ),
        *(([*named, "--max_num_wrokers=3"], "--max_num_workers?") for named in ([], DATAFLOW)),
        (["--num_workers=many"], "--num_workers: "),
        ([*DATAFLOW, "--flexrs_goal=FAST"], "--flexrs_goal: "),
        (["--runner=FlinkRunner", "--parallelism=abc"], "--parallelism: "),
        (["--runner=DataflowRunner", "--project"], "--project: "),
        (["--runner"], "--runner: "),
    ],
)
def test_flags_that_beam_would_drop_or_not_take_are_refused(arguments, word):
    with pytest.raises(ConfigError) as caught:
        beam_options(arguments)
    assert word in str(caught.value)


def test_purpose_of_a_job():
    assert job_purpose(beam_options(DATAFLOW)) == "run"
    assert job_purpose(beam_options([*DATAFLOW, "--dry_run=true"])) == "dry run"
    assert job_purpose(beam_options([*DATAFLOW, "--template_location=gs://b/t.json"])) == "template"
    assert job_purpose(beam_options([])) == "run"


@pytest.mark.parametrize("folder", ["x" * 2000, "x/" * 600, f"yx{'/x' * 600}"])
def test_names_are_such_that_dataflow_takes_them(folder):
    assert re.fullmatch("[a-z]([-a-z0-9]{0,1022}[a-z0-9])?", run_job_name(f"gs://b/{folder}", ["train"]))
