"""What could not run is refused before anything is submitted, with every fault at once."""

import socket

import pytest
from apache_beam.runners.portability.local_job_service import LocalJobServicer

from recordmill.launch.preflight import check_runner as check_runner_module
from recordmill.launch.preflight.check_runner import check_runner, check_staging, require_local
from recordmill.launch.runners.beam_options import beam_options
from recordmill.schemas.errors import ConfigError
from tests.gcs_stand_in import BUCKET, Fault, Kind, running

IMAGE = "--sdk_container_image=europe-west4-docker.pkg.dev/p/r/recordmill:1"
DATAFLOW = {
    "runner": "DataflowRunner",
    "project": "my-project",
    "region": "europe-west4",
    "temp_location": "gs://bucket/tmp",
}
PATHS = ("gs://bucket/images", "gs://bucket/instances.json", "gs://bucket/out")


def faults(arguments: list[str], paths=PATHS) -> list[str]:
    try:
        check_runner(beam_options(arguments), paths)
    except ConfigError as error:
        return str(error).split("; ")
    return []


def dataflow(*more: str, paths=PATHS, image: str = IMAGE, **changed: str | None) -> list[str]:
    flags = [f"--{name}={value}" for name, value in (DATAFLOW | changed).items() if value is not None]
    return faults([*flags, *filter(None, [image]), *more], paths)


def test_a_job_that_could_run_on_dataflow():
    assert dataflow() == []
    assert dataflow("--labels=team=vision", "--machine_type=n2-standard-4", "--job_name=a-1", "--num_workers=3") == []
    assert dataflow("--worker_zone=europe-west4-b", "--disk_size_gb=25", "--num_workers=3", "--max_num_workers=3") == []
    assert dataflow("--dataflow_service_options=enable_prime", "--disk_size_gb=0") == []
    assert len(dataflow("--worker_zone=europe-west4-b", region=None)) == 1
    assert dataflow("--flexrs_goal=COST_OPTIMIZED", "--worker_region=europe-west4") == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"project": None}, "--project is missing"),
        ({"project": "123456789012"}, "--project=123456789012 is no project's id"),
        ({"region": None}, "--region is missing"),
        ({"region": "europe-west4-a"}, "--region=europe-west4-a is a zone, in region europe-west4"),
        ({"region": "us-central"}, "--region=us-central has not the form of a region"),
        ({"temp_location": None}, "--temp_location is missing"),
        ({"temp_location": "/tmp/x"}, "--temp_location=/tmp/x must be in a bucket"),
        ({"temp_location": "gs://"}, "--temp_location=gs:// must be in a bucket"),
        ({"staging_location": "staging"}, "--staging_location=staging must be in a bucket"),
        ({"job_name": "Coco"}, "--job_name=Coco: Dataflow takes small letters"),
        ({"job_name": "coco-"}, "--job_name=coco-: Dataflow takes small letters"),
        ({"labels": "team"}, "--labels=team must be KEY=VALUE"),
        ({"labels": "Team=x"}, "--labels=Team=x must be KEY=VALUE"),
        ({"machine_type": "large"}, "--machine_type=large is no name of a machine type"),
        ({"max_num_workers": "0"}, "--max_num_workers=0 must be 1 or more"),
        ({"num_workers": "4", "max_num_workers": "3"}, "--num_workers=4 is more than --max_num_workers=3"),
        ({"disk_size_gb": "24"}, "--disk_size_gb=24: the image and the system alone need 25"),
        ({"worker_zone": "europe-west1-b"}, "--worker_zone=europe-west1-b is not in --region=europe-west4"),
        ({"zone": "europe-west1-b"}, "--zone=europe-west1-b is not in --region=europe-west4"),
        ({"worker_region": "europe-west1"}, "--worker_region=europe-west1 is not in --region=europe-west4"),
        (
            {"dataflow_service_options": "enable_prime", "machine_type": "e2-standard-2"},
            "--machine_type=e2-standard-2: Dataflow Prime chooses",
        ),
        (
            {"experiments": "enable_prime", "flexrs_goal": "COST_OPTIMIZED"},
            "--flexrs_goal: Dataflow Prime has no FlexRS",
        ),
    ],
)
def test_what_dataflow_would_refuse_late(changed, told):
    found = dataflow(**changed)
    assert found[0].startswith(told)
    assert len([fault for fault in found if fault.startswith("--")]) == 1


@pytest.mark.parametrize("region", ["us-central1", "europe-west12", "northamerica-northeast1", "me-central2"])
def test_forms_of_regions(region):
    assert dataflow(region=region) == []


def test_workers_must_get_our_code(tmp_path):
    assert dataflow(image="")[0].startswith("the workers would not have Recordmill: give --sdk_container_image")
    (tmp_path / "setup.py").touch()
    assert dataflow(f"--setup_file={tmp_path}/setup.py", image="") == []
    (tmp_path / "recordmill-1-py3-none-any.whl").touch()
    assert dataflow(f"--extra_package={tmp_path}/recordmill-1-py3-none-any.whl", image="") == []


def test_packages_must_be_there(tmp_path, monkeypatch):
    assert faults(["--setup_file=/nowhere/setup.py"]) == ["--setup_file=/nowhere/setup.py is not there"]
    assert faults(["--extra_package=x.whl"]) == ["--extra_package=x.whl is not there"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "setup.py").touch()
    assert faults(["--setup_file=setup.py"]) == ["--setup_file=setup.py: Beam wants a path: ./setup.py"]
    assert faults(["--setup_file=./setup.py"]) == []


def test_what_is_on_this_machine_is_out_of_dataflows_reach():
    (fault,) = dataflow(paths=("gs://b/images", "out", "/data/a.json"))[-1:]
    assert fault.endswith("copy it to a bucket: /data/a.json, out")


def test_every_fault_is_told_at_once():
    assert len(dataflow(project=None, region="x", temp_location=None, image="", paths=("out",))) == 5


def test_local_runs_need_nothing():
    assert faults([], ("out",)) == []
    assert faults(["--direct_running_mode=multi_processing", "--direct_num_workers=2"], ("out",)) == []


LOOPBACK = "--environment_type=LOOPBACK"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--runner=PortableRunner", LOOPBACK], "--job_endpoint is missing"),
        (["--runner=PortableRunner", "--job_endpoint=8099", LOOPBACK], "--job_endpoint=8099 must be HOST:PORT"),
        (["--runner=PortableRunner", "--job_endpoint=h:²", LOOPBACK], "--job_endpoint=h:² must be HOST:PORT"),
        (["--runner=PortableRunner", "--job_endpoint=http://h:1", LOOPBACK], "--job_endpoint=http://h:1 must be HOST"),
        (["--runner=PortableRunner", f"--job_endpoint={'a' * 80}:1", LOOPBACK], "no job server listens at aaaa"),
        (
            ["--runner=PortableRunner", "--job_endpoint=localhost:99999", LOOPBACK],
            "no job server listens at localhost:9",
        ),
        (["--runner=PrismRunner", "--environment_type=loopback"], "--environment_type=loopback is none of LOOPBACK, "),
        (
            ["--runner=PrismRunner", "--environment_type=EXTERNAL"],
            "--environment_config= must be HOST:PORT of a worker",
        ),
        (
            ["--runner=PrismRunner", "--environment_type=EXTERNAL", "--environment_config=http://h:5"],
            "--environment_config=http://h:5 must be HOST:PORT",
        ),
        (
            ["--runner=PrismRunner", "--environment_type=PROCESS"],
            "--environment_config is missing: what PROCESS starts",
        ),
        (["--streaming"], "--streaming: there is an end to what is converted"),
        (["--dry_run=true"], "--dry_run is Dataflow's: --dry-run before the lone --"),
        (["--template_location=gs://b/t"], "--template_location is Dataflow's"),
        (["--setup_file=/etc/hostname"], "--setup_file=/etc/hostname must be called setup.py"),
        (
            ["--runner=FlinkRunner", "--flink_master=http://localhost:1/", "--job_server_java_launcher=sh", LOOPBACK],
            "no Flink listens at --flink_master=http://localhost:1/ (Connection refused)",
        ),
        (["--direct_num_workers=-1"], "--direct_num_workers must be 1 or more, or 0 for one a core"),
        (["--runner=FlinkRunner", "--flink_job_server_jar=/nope.jar", LOOPBACK], "--flink_job_server_jar=/nope.jar is"),
        (["--runner=FlinkRunner", "--job_server_java_launcher=/nojava", LOOPBACK], "/nojava is not on the PATH"),
        (["--runner=PrismRunner", "--prism_location=/nope"], "--prism_location=/nope is not there"),
        (
            ["--runner=PortableRunner", "--job_endpoint=embed"],
            "the workers would not have Recordmill: say how they are",
        ),
        (["--runner=SparkRunner"], "the workers would not have Recordmill"),
        (
            ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=DOCKER"],
            "the workers would not have Recordmill",
        ),
    ],
)
def test_what_a_job_server_would_refuse_late(arguments, told):
    (fault, *_) = faults(arguments)
    assert fault.startswith(told)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--runner=PortableRunner", "--job_endpoint=embed", LOOPBACK],
        ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=EXTERNAL", "--environment_config=h:1"],
        ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_config=my/image:1"],
        ["--runner=FlinkRunner", "--job_server_java_launcher=sh"],
        ["--runner=PrismRunner"],
    ],
)
def test_what_a_job_server_may_take(arguments):
    assert faults(arguments) == []


def test_workers_elsewhere_need_whole_paths():
    external = ["--environment_type=EXTERNAL", "--environment_config=h:1"]
    job = ["--runner=PortableRunner", "--job_endpoint=embed"]
    paths = ("images", "/data/a.json", "gs://b/o", "./out")
    told = "workers run in folders of their own, so give whole paths, not ./out, images"
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


def test_what_listens_must_be_a_job_server(monkeypatch):
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


def test_programs_must_be_programs(tmp_path):
    (tmp_path / "text").write_text("no program")
    text = tmp_path / "text"
    assert faults(["--runner=PrismRunner", f"--prism_location={text}"]) == [f"--prism_location={text} is no program"]
    flink = ["--runner=FlinkRunner", "--job_server_java_launcher=sh", LOOPBACK]
    assert faults([*flink, f"--flink_job_server_jar={text}"]) == [f"--flink_job_server_jar={text} is no jar"]
    text.chmod(0o755)
    assert faults(["--runner=PrismRunner", f"--prism_location={text}"]) == []


@pytest.fixture
def gcs(monkeypatch):
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield server


def staging(path: str):
    return beam_options(["--runner=DataflowRunner", f"--temp_location={path}"])


def test_a_bucket_for_the_jobs_files_that_may_be_written_stays_as_it_was(gcs):
    check_staging(staging(f"gs://{BUCKET}/tmp"))
    assert gcs.objects() == {}
    assert [call.operation for call in gcs.calls()].count("upload") == 1


@pytest.mark.parametrize("operation", ["upload", "stat"])
def test_a_bucket_for_the_jobs_files_that_may_not_be_used_is_told_at_once(gcs, operation):
    gcs.faults.append(Fault(Kind.STATUS, operation=operation, status=403, times=100))
    with pytest.raises(ConfigError, match=f"--temp_location=gs://{BUCKET}/tmp cannot be written and read, and the job"):
        check_staging(staging(f"gs://{BUCKET}/tmp"))


def test_a_bucket_that_is_not_there_is_told(gcs):
    with pytest.raises(ConfigError, match="--temp_location=gs://nowhere/tmp cannot be written"):
        check_staging(staging("gs://nowhere/tmp"))


def test_the_bucket_of_what_is_staged_must_be_there_as_well(gcs):
    flags = ["--runner=DataflowRunner", f"--temp_location=gs://{BUCKET}/tmp", "--staging_location=gs://nowhere/staged"]
    with pytest.raises(ConfigError, match="--staging_location=gs://nowhere/staged cannot be written"):
        check_staging(beam_options(flags))


@pytest.mark.parametrize("verb", ["verify", "extract"])
def test_checking_is_local(verb):
    require_local(beam_options([]), verb)
    require_local(beam_options(["--direct_running_mode=multi_processing"]), verb)
    with pytest.raises(ConfigError, match=f"^{verb} runs on this machine, not on FlinkRunner: "):
        require_local(beam_options(["--runner=FlinkRunner"]), verb)
