"""Room on Dataflow's workers: their disks hold shards."""

import pytest

from recordmill.launch.preflight.check_workers import check_room
from recordmill.launch.runners.beam_options import beam_options
from recordmill.pipelines.options.folder_options import FolderOptions
from recordmill.schemas.errors import ConfigError
from tests.gcs_stand_in import running

GB = 10**9
FOLDER = FolderOptions(images=("gs://b/images",), output="gs://b/out")


def room(*flags: str, options=FOLDER, **changed) -> str:
    """What is refused; empty if nothing is."""
    try:
        check_room(type(options)(**options.__dict__ | changed), beam_options(["--runner=DataflowRunner", *flags]))
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("flags", "fits", "too_large"),
    [  # of shards
        ([], 5.2, 5.3),  # 4 in hand: 2 processes of 2 threads
        (["--disk_size_gb=50"], 10.4, 10.5),
        (["--number_of_worker_harness_threads=1"], 10.4, 10.5),
        (["--machine_type=n2-custom-4-8192"], 2.6, 2.7),
        (["--machine_type=n1-highcpu-16"], 0.65, 0.66),
    ],
)
def test_a_disk_must_hold_the_shards_in_hand(flags, fits, too_large):
    assert room(*flags, shard_size=int(fits * GB)) == ""
    assert "GB in hand at once" in room(*flags, shard_size=int(too_large * GB))


def test_the_cure_of_a_disk():
    told = room(shard_size=10 * GB)
    assert told.startswith("a worker has 4 shards of 10.0 GB in hand at once, 48 GB with a fifth to spare")
    assert "a disk of 25 GB: give --disk_size_gb=73" in told
    assert room("--disk_size_gb=73", shard_size=10 * GB) == ""


@pytest.mark.parametrize("machine", ["z9-standard-64", "e2-medium", "m1-ultramem-40"])
def test_of_machines_that_are_not_known_nothing_is_said(machine):
    assert room(f"--machine_type={machine}", shard_size=100 * GB) == ""
    assert room("--dataflow_service_options=enable_prime", shard_size=100 * GB) == ""


def test_a_command_is_refused_before_anything_is_written(monkeypatch, recordmill):
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        server.put("images/cat/a.jpg", b"")
        flags = ["folder", "--images", "gs://bucket/images", "--output", "gs://bucket/out", "--shard-size", "10GB"]
        beam = [
            "--runner=DataflowRunner",
            "--project=my-project",
            "--region=us-central1",
            "--sdk_container_image=a/b:1",
        ]
        outcome = recordmill(*flags, "--", *beam, "--temp_location=gs://bucket/tmp")
        assert outcome.code == 2
        assert "a disk of 25 GB: give --disk_size_gb=73" in outcome.err
        assert server.objects().keys() == {"images/cat/a.jpg"}
