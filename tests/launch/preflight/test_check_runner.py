"""What could not run is refused before anything is submitted, with every fault at once."""

import socket

import pytest
from apache_beam.runners.portability.local_job_service import LocalJobServicer

from recordmill.launch.preflight import check_runner as check_runner_module
from recordmill.launch.preflight.check_runner import check_runner, check_staging, require_local
from recordmill.launch.runners.beam_options import beam_options
from recordmill.schemas.errors import ConfigError
from tests.gcs_stand_in import BUCKET, Fault, Kind, running

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
        ({"temp_location": "/tmp/x"}, "Dataflow's workers cannot see what is on this machine"),
        ({"staging_location": "staging"}, "Dataflow's workers cannot see what is on this machine"),
        ({"sdk_container_image": None}, "the workers would not have Recordmill: give --sdk_container_image"),
        ({"sdk_container_image": None, "setup_file": "setup.py"}, ""),
        ({"sdk_container_image": None, "extra_package": "recordmill-1-py3-none-any.whl"}, ""),
    ],
)
def test_what_dataflow_would_refuse_late(changed, told):
    found = dataflow(**changed)
    assert [fault[: len(told)] for fault in found] == ([told] if told else [])


def test_files_on_this_machine_are_out_of_dataflows_reach():
    (fault,) = dataflow(paths=("gs://b/images", "out", "/data/a.json"))
    assert fault.endswith("copy it to a bucket: /data/a.json, out")


def test_all_faults_come_at_once():
    found = dataflow(paths=("out",), project=None, region=None, temp_location=None, sdk_container_image=None)
    assert len(found) == 5


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("--direct_running_mode=multi_processing", ""),
        ("--streaming", "--streaming: there is an end to what is converted"),
        ("--dry_run=true", "--dry_run is Dataflow's: --dry-run before the lone --"),
        ("--template_location=gs://b/t", "--template_location is Dataflow's"),
    ],
)
def test_flags_for_which_local_job_has_no_use(flag, told):
    assert [fault[: len(told)] for fault in faults([flag], ("out",))] == ([told] if told else [])


LOOPBACK = "--environment_type=LOOPBACK"
JOB = "--runner=PortableRunner"
EMBEDDED = "--job_endpoint=embed"
NO_RECORDMILL = "the workers would not have Recordmill: say how they are"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([JOB, LOOPBACK], "--job_endpoint is missing"),
        ([JOB, "--job_endpoint=8099", LOOPBACK], "no job server listens at 8099 (it must be HOST:PORT)"),
        ([JOB, "--job_endpoint=h:²", LOOPBACK], "no job server listens at h:² (it must be HOST:PORT)"),
        ([JOB, f"--job_endpoint={'a' * 80}:1", LOOPBACK], "no job server listens at aaaa"),
        ([JOB, "--job_endpoint=localhost:99999", LOOPBACK], "no job server listens at localhost:99999"),
        (
            ["--runner=FlinkRunner", "--flink_master=http://localhost:1/", LOOPBACK],
            "no Flink listens at --flink_master=http://localhost:1/ (Connection refused)",
        ),
        (["--runner=PrismRunner", "--environment_type=EXTERNAL"], "--environment_config is missing: EXTERNAL needs"),
        (["--runner=PrismRunner", "--environment_type=PROCESS"], "--environment_config is missing: PROCESS needs"),
        ([JOB, EMBEDDED], NO_RECORDMILL),
        ([JOB, EMBEDDED, "--environment_type=DOCKER"], NO_RECORDMILL),
        (["--runner=SparkRunner"], NO_RECORDMILL),
    ],
)
def test_what_job_server_would_refuse_late(arguments, told):
    (fault,) = faults(arguments)
    assert fault.startswith(told)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--runner=PortableRunner", "--job_endpoint=embed", LOOPBACK],
        ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=EXTERNAL", "--environment_config=h:1"],
        ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_config=my/image:1"],
        ["--runner=FlinkRunner"],
        ["--runner=PrismRunner"],
    ],
)
def test_what_a_job_server_may_take(arguments):
    assert faults(arguments) == []


def test_workers_elsewhere_need_absolute_paths():
    external = ["--environment_type=EXTERNAL", "--environment_config=h:1"]
    job = ["--runner=PortableRunner", "--job_endpoint=embed"]
    paths = ("images", "/data/a.json", "gs://b/o", "./out")
    told = "workers run in other folders, so give absolute paths, not ./out, images"
    assert faults([*job, *external], paths) == [told]
    assert faults([*job, *external], paths[1:3]) == []
    assert faults([*job, LOOPBACK], paths) == []
    assert faults(["--runner=PrismRunner"], paths) == []


def test_a_job_server_must_listen():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        arguments = ["--runner=PortableRunner", f"--job_endpoint=localhost:{listening.getsockname()[1]}", LOOPBACK]
        (fault,) = faults(arguments)
        assert fault.startswith(f"no job server listens at localhost:{listening.getsockname()[1]} (")


def test_what_listens_must_be_job_server(monkeypatch):
    """A server of something else, and one that says nothing at all."""
    monkeypatch.setattr(check_runner_module, "_ANSWER_S", 1)
    with running() as http:
        endpoint = http.url.removeprefix("http://")
        (fault,) = faults(["--runner=PortableRunner", f"--job_endpoint={endpoint}", LOOPBACK])
        assert fault.startswith(f"what listens at {endpoint} does not answer as a job server does, but ")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"localhost:{silent.getsockname()[1]}"
        (fault,) = faults(["--runner=PortableRunner", f"--job_endpoint={endpoint}", LOOPBACK])
        assert fault.startswith(f"what listens at {endpoint} does not answer as a job server does, but ")


def test_a_job_server_may_be_taken():
    server = LocalJobServicer()
    port = server.start_grpc_server(0)
    try:
        assert faults(["--runner=PortableRunner", f"--job_endpoint=localhost:{port}", LOOPBACK]) == []
    finally:
        server.stop()


def staging(path: str):
    return beam_options(["--runner=DataflowRunner", f"--temp_location={path}"])


def test_staging_bucket_is_left_unchanged(gcs):
    check_staging(staging(f"gs://{BUCKET}/tmp"))
    assert gcs.objects() == {}
    assert [call.operation for call in gcs.calls()].count("chunk") == 1


@pytest.mark.parametrize("operation", ["chunk", "stat"])
def test_staging_bucket_without_rights_is_refused(gcs, operation):
    gcs.faults.append(Fault(Kind.STATUS, operation=operation, status=403, times=100))
    with pytest.raises(ConfigError, match=f"--temp_location=gs://{BUCKET}/tmp cannot be written and read, and the job"):
        check_staging(staging(f"gs://{BUCKET}/tmp"))


@pytest.mark.usefixtures("gcs")
@pytest.mark.parametrize("name", ["temp_location", "staging_location"])
def test_each_bucket_of_jobs_files_must_be_there(name):
    paths = {"temp_location": f"gs://{BUCKET}/tmp", name: "gs://nowhere/x"}
    with pytest.raises(ConfigError, match=f"--{name}=gs://nowhere/x cannot be written"):
        check_staging(beam_options(["--runner=DataflowRunner", *(f"--{each}={path}" for each, path in paths.items())]))


@pytest.mark.parametrize("verb", ["verify", "extract"])
def test_checking_is_local(verb):
    require_local(beam_options([]), verb)
    require_local(beam_options(["--direct_running_mode=multi_processing"]), verb)
    with pytest.raises(ConfigError, match=f"^{verb} runs on this machine, not on FlinkRunner: "):
        require_local(beam_options(["--runner=FlinkRunner"]), verb)
