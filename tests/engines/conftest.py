"""Engines that jobs run on, each as what stands after a command's `--`, and the data that all of them get."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from recordmill.launch.cli import main
from tests import dataflow_stand_in
from tests.conftest import CATEGORIES, SHARED_DATA, annotation, draw_jpeg, every_kind, image_row, write_coco
from tests.dataflow_stand_in import DataflowStandIn
from tests.engines import fetch
from tests.engines.command import Command
from tests.engines.disturbed_job import SHARDS, DisturbedJob
from tests.engines.flink import LOCAL, FlinkCluster, JobServer, running_job_server
from tests.engines.output import files_of
from tests.engines.worker_pool import ROOT, Pool, built_wheel, running_pool, worker_environment
from tests.gcs_stand_in import BUCKET, GcsStandIn, running

__all__ = ["built_wheel"]  # a fixture

PARTS = Path(os.environ.get("ENGINES", ROOT / ".engines"))
IMAGES = 96
"""Of slow_job."""


@pytest.fixture
def empty_pages() -> None:
    """Jobs draw their pages, as output in buckets is compared with what a local job writes."""


def fetched(part: fetch.Part) -> Path:
    """The folder of a part; a test is skipped if the part could not be had."""
    if part.reason(PARTS).exists():
        pytest.skip(part.reason(PARTS).read_text())
    assert part.folder(PARTS).exists(), f"{part.folder(PARTS)} is not there; `make test-engines` fetches it"
    return part.folder(PARTS)


@pytest.fixture(scope="session")
def flink(request) -> str:
    """Version of Flink and its job server; a test chooses another one by an indirect parameter."""
    return getattr(request, "param", fetch.FLINK)


@pytest.fixture(scope="session")
def job_server_jar(flink) -> Path:
    return fetched(fetch.job_server("flink", flink)) / fetch.JOB_SERVER_JAR


@pytest.fixture(scope="session")
def prism() -> list[str]:
    return ["--runner=PrismRunner", f"--prism_location={fetched(fetch.PRISM) / 'prism'}"]


@pytest.fixture(scope="session")
def processes() -> list[str]:
    """Two processes of the local runner."""
    return ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]


@pytest.fixture(scope="session")
def flink_local(job_server_jar, tmp_path_factory) -> Iterator[list[str]]:
    """Flink within the job server; the workers are threads of the command."""
    with running_job_server(job_server_jar, LOCAL, tmp_path_factory.mktemp("job-server")) as server:
        yield [*of_job_server(server), "--environment_type=LOOPBACK", "--parallelism=2"]


@pytest.fixture(scope="session")
def cluster(flink, tmp_path_factory) -> Iterator[FlinkCluster]:
    with FlinkCluster(fetched(fetch.flink(flink)), tmp_path_factory.mktemp("flink")) as running:
        yield running


@pytest.fixture(scope="session")
def cluster_job_server(cluster, job_server_jar, tmp_path_factory) -> Iterator[JobServer]:
    with running_job_server(job_server_jar, cluster.master, tmp_path_factory.mktemp("job-server")) as server:
        yield server


@pytest.fixture(scope="session")
def worker_python(built_wheel, tmp_path_factory) -> Path:
    """Python of an environment with Beam, our dependencies and our wheel."""
    return worker_environment(tmp_path_factory.mktemp("worker") / "environment", built_wheel)


@pytest.fixture(scope="session")
def pool(worker_python, tmp_path_factory) -> Iterator[Pool]:
    with running_pool(worker_python, tmp_path_factory.mktemp("pool") / "pool.log") as running:
        yield running


@pytest.fixture(scope="session")
def flink_cluster(cluster_job_server, pool) -> list[str]:
    """A cluster of Flink; the workers are processes that have nothing of the checkout."""
    return [*of_job_server(cluster_job_server), *in_pool(pool)]


def of_job_server(server: JobServer) -> list[str]:
    return ["--runner=PortableRunner", f"--job_endpoint={server.endpoint}"]


def in_pool(pool: Pool) -> list[str]:
    return ["--environment_type=EXTERNAL", f"--environment_config={pool.endpoint}", "--parallelism=2"]


@pytest.fixture(params=["processes", "prism", "flink_local", "flink_cluster"])
def engine(request) -> list[str]:
    """Flags after a command's `--`, for each engine."""
    return request.getfixturevalue(request.param)


needs_shared_data = pytest.mark.skipif(
    not (SHARED_DATA / "coco_mini").exists(), reason="the real data sets are not on this machine"
)


@pytest.fixture
def coco(request, sample) -> list[str]:
    """`convert` with all that the drawn data set has, bad files too; or, by an indirect parameter, with a real one."""
    if request.param == "sample":
        return ["convert", *every_kind(sample), "--masks", "both", "--caption-text", "tfidf", "--ngrams", "1,2"]
    folder = SHARED_DATA / "coco_mini"
    annotations = folder / "annotations"
    files = ["--instances", annotations / "instances_train2017.json"]
    files += ["--keypoints", annotations / "person_keypoints_train2017.json"]
    files += ["--captions", annotations / "captions_train2017.json"]
    fields = ["--fields", "image.license,image.date_captured"]
    return ["convert", "--images", str(folder / "train2017"), *map(str, files), *fields]


@pytest.fixture(scope="session")
def reference(tmp_path_factory) -> Callable[..., Path]:
    """Output of a command on the local runner, in this process. Each command runs once; tests only read its output."""

    @cache
    def run(*arguments: object) -> Path:
        output = tmp_path_factory.mktemp("reference") / "out"
        assert main([*map(str, arguments), "--output", str(output)]) == 0
        return output

    return run


@pytest.fixture
def convert(tmp_path) -> Callable[..., Path]:
    """Runs a command to its good end on an engine; returns its output."""

    def run(arguments: list[str], engine: Sequence[str]) -> Path:
        output = tmp_path / "engine"
        command = Command([*arguments, "--output", output, "--", *engine], tmp_path / "printed").end()
        assert command.code == 0, command
        return output

    return run


@pytest.fixture(scope="session")
def bucket() -> Iterator[GcsStandIn]:
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def slow_job(bucket, tmp_path_factory) -> list[object]:
    """`convert` on the images in the bucket, one after another in each shard: some 3 s a shard."""
    folder = tmp_path_factory.mktemp("slow")
    for number in range(IMAGES):
        picture = folder / "picture.jpg"
        draw_jpeg(picture, colour=(2 * number, 0, 0))
        bucket.put(f"images/{number:03}.jpg", picture.read_bytes())
    rows = [image_row(number, f"{number:03}.jpg") for number in range(IMAGES)]
    instances = write_coco(folder, rows, [annotation(number, number) for number in range(IMAGES)], CATEGORIES)
    flags = ["--images", f"gs://{BUCKET}/images", "--instances", instances, "--num-shards", SHARDS, "--workers", 1]
    return ["convert", *flags]


@pytest.fixture(scope="session")
def disturbed_job(slow_job, bucket, tmp_path_factory) -> Callable[[list[str], Path], DisturbedJob]:
    """`slow_job` on an engine, with outputs in a folder."""

    @cache
    def whole() -> dict[str, str]:
        folder = tmp_path_factory.mktemp("whole")
        job = DisturbedJob(slow_job, [], bucket, folder, dict)
        assert job.start(job.output, []).end().code == 0
        return files_of(job.output)

    return lambda engine, folder: DisturbedJob(slow_job, engine, bucket, folder, whole)


@pytest.fixture
def gcs(monkeypatch, sample) -> Iterator[GcsStandIn]:
    """A bucket with the sample's images and instances in it, which this process takes for the real one."""
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "1")
        images = Path(sample.images)
        for path in sorted(images.rglob("*")):
            if path.is_file():
                server.put(f"in/{path.relative_to(images)}", path.read_bytes())
        server.put("instances.json", Path(sample.instances).read_bytes())
        server.log.clear()
        yield server


@pytest.fixture
def dataflow(gcs) -> Iterator[DataflowStandIn]:
    with dataflow_stand_in.running(gcs) as server:
        yield server
