"""Jobs that cannot run are refused before they are submitted, with all faults at once."""

import os
import socket
from types import SimpleNamespace

import pytest
from apache_beam.runners.portability.local_job_service import LocalJobServicer

from recordmill.launch.command_line.parser import parse
from recordmill.launch.preflight import check_runner as check_runner_module
from recordmill.launch.preflight.check_runner import (
    check_memory,
    check_runner,
    check_staging,
    distant_buckets,
    memory_bytes,
    memory_needed,
    require_local,
)
from recordmill.launch.runners.beam_options import beam_options
from recordmill.launch.verbs.convert import convert
from recordmill.schemas.errors import ConfigError
from tests.conftest import coco_flags
from tests.gcs_stand_in import BUCKET, Fault, Kind

DATAFLOW = {
    "runner": "DataflowRunner",
    "project": "my-project",
    "region": "europe-west4",
    "temp_location": "gs://bucket/tmp",
    "sdk_container_image": "europe-west4-docker.pkg.dev/p/r/recordmill:1",
}
PATHS = ("gs://bucket/images", "gs://bucket/instances.json", "gs://bucket/out")


def faults(arguments: list[str], paths=PATHS) -> list[str]:
    try:
        check_runner(beam_options(arguments), paths)
    except ConfigError as error:
        return str(error).split("; ")
    return []


def dataflow(paths=PATHS, **changed: str | None) -> list[str]:
    return faults([f"--{name}={value}" for name, value in (DATAFLOW | changed).items() if value is not None], paths)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, ""),
        ({"project": None}, "--project is missing"),
        ({"region": None}, "--region is missing"),
        ({"temp_location": None}, "--temp_location is missing"),
        ({"temp_location": "/tmp/x"}, "--temp_location=/tmp/x must be like gs://bucket/folder"),
        ({"temp_location": "gs://bucket"}, "--temp_location=gs://bucket must be"),  # Beam would make a bucket
        ({"temp_location": "s3://b/x"}, "--temp_location=s3://b/x must be"),
        ({"staging_location": "staging"}, "--staging_location=staging must be"),
        ({"template_location": "gs:/b/t"}, "--template_location=gs:/b/t must be"),
        ({"template_location": "template.json"}, ""),
        ({"sdk_container_image": None}, "the workers would not have Recordmill. Give --sdk_container_image"),
        ({"sdk_container_image": None, "setup_file": "setup.py"}, ""),
        ({"sdk_container_image": None, "extra_package": "recordmill-1-py3-none-any.whl"}, ""),
    ],
)
def test_faults_that_dataflow_refuses_late(changed, told):
    messages = dataflow(**changed)
    assert [fault[: len(told)] for fault in messages] == ([told] if told else [])


def test_files_on_this_machine_are_out_of_dataflows_reach():
    (fault,) = dataflow(paths=("gs://b/images", "out", "/data/a.json"))
    assert fault.endswith("use a bucket for /data/a.json, out")


def test_all_faults_come_at_once():
    messages = dataflow(paths=("out",), project=None, region=None, temp_location=None, sdk_container_image=None)
    assert len(messages) == 5


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("--direct_running_mode=multi_processing", ""),
        ("--direct_num_workers=0", ""),  # as many as cores
        ("--direct_num_workers=-1", "--direct_num_workers is negative"),
        ("--streaming", "--streaming: a conversion is a batch job"),
        ("--dry_run=true", "--dry_run is an option of Dataflow"),
        ("--template_location=gs://b/t", "--template_location is an option of Dataflow"),
    ],
)
def test_flags_for_which_local_job_has_no_use(flag, told):
    assert [fault[: len(told)] for fault in faults([flag], ("out",))] == ([told] if told else [])


LOOPBACK = "--environment_type=LOOPBACK"
JOB = "--runner=PortableRunner"
EMBEDDED = "--job_endpoint=embed"
EXTERNAL = "--environment_type=EXTERNAL", "--environment_config=h:1"
NO_RECORDMILL = "the workers would not have Recordmill. Choose how they are"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([JOB, LOOPBACK], "--job_endpoint is missing"),
        ([JOB, "--job_endpoint=8099", LOOPBACK], "no job server is listening at 8099 (it must be HOST:PORT)"),
        ([JOB, "--job_endpoint=h:²", LOOPBACK], "no job server is listening at h:² (it must be HOST:PORT)"),
        ([JOB, f"--job_endpoint={'a' * 80}:1", LOOPBACK], "no job server is listening at aaaa"),
        ([JOB, "--job_endpoint=localhost:99999", LOOPBACK], "no job server is listening at localhost:99999"),
        (
            ["--runner=FlinkRunner", "--flink_master=http://localhost:1/", LOOPBACK],
            "Flink is not listening at --flink_master=http://localhost:1/ (Connection refused)",
        ),
        (["--runner=PrismRunner", "--environment_type=EXTERNAL"], "--environment_config is missing: EXTERNAL needs"),
        (["--runner=PrismRunner", "--environment_type=PROCESS"], "--environment_config is missing: PROCESS needs"),
        ([JOB, EMBEDDED], NO_RECORDMILL),
        ([JOB, EMBEDDED, "--environment_type=DOCKER"], NO_RECORDMILL),
        (["--runner=SparkRunner"], NO_RECORDMILL),
    ],
)
def test_faults_that_job_server_refuses_late(arguments, told):
    (fault,) = faults(arguments)
    assert fault.startswith(told)


@pytest.mark.parametrize(
    "arguments",
    [
        [JOB, EMBEDDED, LOOPBACK],
        [JOB, EMBEDDED, *EXTERNAL],
        [JOB, EMBEDDED, "--environment_config=my/image:1"],
        ["--runner=FlinkRunner"],
        ["--runner=PrismRunner"],
    ],
)
def test_flags_for_job_servers(arguments):
    assert faults(arguments) == []


def test_workers_elsewhere_need_absolute_paths():
    paths = ("images", "/data/a.json", "gs://b/o", "./out")
    told = "workers run in other folders, so give absolute paths, not ./out, images"
    assert faults([JOB, EMBEDDED, *EXTERNAL], paths) == [told]
    assert faults([JOB, EMBEDDED, *EXTERNAL], paths[1:3]) == []
    assert faults([JOB, EMBEDDED, LOOPBACK], paths) == []
    assert faults(["--runner=PrismRunner"], paths) == []


def test_a_job_server_must_listen():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        endpoint = f"localhost:{listening.getsockname()[1]}"
        (fault,) = faults([JOB, f"--job_endpoint={endpoint}", LOOPBACK])
        assert fault.startswith(f"no job server is listening at {endpoint} (")


def test_listener_must_be_job_server(monkeypatch, gcs):
    """A server of something else, and one that says nothing at all."""
    monkeypatch.setattr(check_runner_module, "_ANSWER_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for endpoint in (gcs.url.removeprefix("http://"), f"localhost:{silent.getsockname()[1]}"):
            (fault,) = faults([JOB, f"--job_endpoint={endpoint}", LOOPBACK])
            assert fault.startswith(f"{endpoint} is not a job server: it answered ")


def test_a_job_server_may_be_taken():
    server = LocalJobServicer()
    port = server.start_grpc_server(0)
    try:
        assert faults([JOB, f"--job_endpoint=localhost:{port}", LOOPBACK]) == []
    finally:
        server.stop()


def staging(temporary: str = f"gs://{BUCKET}/tmp", *more: str):
    return beam_options(["--runner=DataflowRunner", f"--temp_location={temporary}", *more])


def test_staging_bucket_is_left_unchanged(gcs):
    check_staging(staging())
    assert gcs.objects() == {}
    assert [call.operation for call in gcs.calls()].count("chunk") == 1


@pytest.mark.parametrize("operation", ["chunk", "stat"])
def test_staging_bucket_without_rights_is_refused(gcs, operation):
    gcs.faults.append(Fault(Kind.STATUS, operation=operation, status=403, times=100))
    with pytest.raises(ConfigError, match=f"--temp_location=gs://{BUCKET}/tmp cannot be written"):
        check_staging(staging())


@pytest.mark.usefixtures("gcs")
def test_each_bucket_of_jobs_files_must_be_there():
    with pytest.raises(ConfigError, match="--temp_location=gs://nowhere/x cannot be written"):
        check_staging(staging("gs://nowhere/x"))
    with pytest.raises(ConfigError, match="--staging_location=gs://nowhere/x cannot be written"):
        check_staging(staging(f"gs://{BUCKET}/tmp", "--staging_location=gs://nowhere/x"))
    with pytest.raises(ConfigError, match="--template_location=gs://nowhere/x cannot be written"):
        check_staging(staging(f"gs://{BUCKET}/tmp", "--template_location=gs://nowhere/x"))


@pytest.mark.usefixtures("gcs")
@pytest.mark.parametrize(
    ("more", "first"),
    [
        ([], "gs://nowhere/x cannot be written"),
        (["--template_location=gs://bucket/t"], "gs://nowhere/x cannot be written"),
        (["--dry_run=true"], "recipes"),
    ],
)
def test_staging_bucket_is_checked_before_inputs_are_read(more, first):
    def recipes():
        raise ConfigError("recipes")

    with pytest.raises(ConfigError, match=first):
        convert(SimpleNamespace(options=None, recipes=recipes), "none", staging("gs://nowhere/x", *more))


def test_extraction_is_local():
    require_local(beam_options([]))
    require_local(beam_options(["--direct_running_mode=multi_processing"]))
    with pytest.raises(ConfigError, match=r"^extract runs on this machine, not on FlinkRunner: "):
        require_local(beam_options(["--runner=FlinkRunner"]))


# Regions of buckets

CUSTOM = {
    "location": "US",
    "locationType": "dual-region",
    "customPlacementConfig": {"dataLocations": ["US-EAST1", "US-WEST1"]},
}


@pytest.mark.parametrize(
    ("place", "region", "where"),
    [
        ({"location": "EUROPE-WEST4", "locationType": "region"}, "europe-west4", None),
        ({"location": "EUROPE-WEST4", "locationType": "region"}, "europe-west40", "europe-west4"),
        ({"location": "US", "locationType": "multi-region"}, "us-central1", "us"),  # reading costs money within it, too
        (CUSTOM, "us-west1", None),
        (CUSTOM, "us-central1", "us-east1 and us-west1"),
        ({"location": "NAM4", "locationType": "dual-region"}, "us-west1", None),  # its regions are not listed
        ({}, "us-west1", None),  # as some emulators answer
    ],
)
def test_bucket_is_near_if_one_of_its_regions_is_jobs(gcs, place, region, where):
    gcs.bucket_place = place
    warnings = list(distant_buckets(["gs://bucket/x", "gs://bucket/y", "local/folder"], region))
    beginning = f"gs://bucket is in {where}, but the job runs in {region}: "
    assert [line[: len(beginning)] for line in warnings] == ([beginning] if where else [])


def test_bucket_whose_metadata_cannot_be_read_is_skipped(gcs):
    assert list(distant_buckets(["gs://there-is-none/x"], "us-west1")) == []
    gcs.faults = [Fault(Kind.STATUS, status=403, message="no storage.buckets.get access")]
    assert list(distant_buckets(["gs://bucket/x"], "us-west1")) == []


# Memory

GB = 10**9


def options_of(sample, tmp_path, *more):
    command = parse([str(word) for word in coco_flags(sample, tmp_path / "out", *more)])
    return command.options


@pytest.fixture
def large(tmp_path):
    """An annotation file of 2 GB, none of which is on the disk."""
    path = tmp_path / "large.json"
    path.touch()
    os.truncate(path, 2 * GB)
    return path


def test_needed_space_grows_with_annotation_files(sample, tmp_path, large):
    small, same = memory_needed(options_of(sample, tmp_path))
    assert 300_000_000 < small <= same < 310_000_000
    least, most = memory_needed(options_of(sample, tmp_path, "--captions", large))
    assert GB / 2 < least < most < 4 * GB
    with_masks = memory_needed(options_of(sample, tmp_path, "--captions", large, "--masks", "png"))
    assert least < with_masks[0] < with_masks[1]
    assert most < with_masks[1]
    packed = tmp_path / "large.json.gz"
    packed.touch()
    os.truncate(packed, GB)
    assert memory_needed(options_of(sample, tmp_path, "--captions", packed))[0] - small == 4 * (least - small)
    assert memory_needed(options_of(sample, tmp_path, "--captions", tmp_path / "none.json")) == (small, same)


@pytest.mark.parametrize(
    ("available_bytes", "outcome"), [(64 * GB, "said"), (2 * GB, "doubted"), (GB * 2 // 5, "refused")]
)
def test_much_is_said_and_too_much_refused(sample, tmp_path, large, monkeypatch, available_bytes, outcome):
    monkeypatch.setattr(check_runner_module, "memory_bytes", lambda: available_bytes)
    assert check_memory(options_of(sample, tmp_path)) == ""
    options = options_of(sample, tmp_path, "--captions", large)
    least, most = (number / GB for number in memory_needed(options))
    numbers = f"{least:,.1f} to {most:,.1f} GB"
    if outcome == "refused":
        with pytest.raises(ConfigError, match=rf"(?s){numbers}.*0\.4 GB.*Dataflow"):
            check_memory(options)
        return
    note = check_memory(options)
    assert numbers in note
    assert f"{available_bytes / GB:.1f} GB" in note
    assert ("Dataflow" in note) == (outcome == "doubted")


def test_exactly_the_least_is_enough(sample, tmp_path, large, monkeypatch):
    options = options_of(sample, tmp_path, "--captions", large)
    monkeypatch.setattr(check_runner_module, "memory_bytes", lambda: memory_needed(options)[0])
    assert "If that is not enough" in check_memory(options)


@pytest.mark.parametrize(("limit", "expected"), [("max\n", 8 * GB), ("3000000000\n", 3 * GB), ("64000000000", 8 * GB)])
@pytest.mark.parametrize("version", [0, 1])
def test_a_container_has_its_share(tmp_path, monkeypatch, limit, expected, version):
    paths = tmp_path / "v2", tmp_path / "v1"
    paths[version].write_text(limit)
    monkeypatch.setattr(check_runner_module, "_LIMITS", paths)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 1000, "SC_PHYS_PAGES": 8_000_000}.__getitem__)
    assert memory_bytes() == expected


def test_job_is_refused_before_it_starts_and_so_is_plan(recordmill, sample, tmp_path, monkeypatch):
    monkeypatch.setattr(check_runner_module, "memory_bytes", lambda: 200_000_000)
    for more in ([], ["--dry-run"]):
        outcome = recordmill(*coco_flags(sample, tmp_path / "out", *more))
        assert (outcome.code, outcome.out) == (2, ""), outcome
        assert "0.3 GB" in outcome.err
        assert ("Dataflow" in outcome.err) == (not more)
        assert not (tmp_path / "out").exists()
