"""Whole jobs submitted to a stand-in of Dataflow's service, which runs them; in and out of a bucket's stand-in."""

import contextlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.launch import flat
from recordmill.transforms.sample.write_sample import SampleFiles
from tests.conftest import shard_bytes
from tests.dataflow_stand_in import JOB_ID, PROJECT, REGION, DataflowStandIn
from tests.engines.worker_pool import ROOT
from tests.gcs_stand_in import BUCKET, GcsStandIn
from tests.literal_data import jpeg

IMAGE = "europe-west4-docker.pkg.dev/recordmill-test/recordmill/convert:1"
LINK = f"https://console.cloud.google.com/dataflow/jobs/{REGION}/{JOB_ID}?project={PROJECT}"


def coco(dataflow: DataflowStandIn, *more: str, beam: tuple[str, ...] = ()) -> list[str]:
    return [
        *("convert", "--images", f"gs://{BUCKET}/in", "--instances", f"gs://{BUCKET}/instances.json"),
        *("--output", f"gs://{BUCKET}/out", "--num-shards", "3", "--max-rejects", "0.2", *more, "--"),
        *(
            "--runner=DataflowRunner",
            f"--project={PROJECT}",
            f"--region={REGION}",
            f"--temp_location=gs://{BUCKET}/tmp",
        ),
        *(f"--sdk_container_image={IMAGE}", f"--dataflow_endpoint={dataflow.url}", "--no_auth", *beam),
    ]


def written(gcs: GcsStandIn) -> dict[str, bytes]:
    return {name.removeprefix("out/"): data for name, data in gcs.objects().items() if name.startswith("out/")}


@pytest.fixture(scope="module")
def local(sample: SampleFiles, tmp_path_factory) -> Path:
    """The same data set, made on this machine."""
    from recordmill.launch.cli import main

    folder = tmp_path_factory.mktemp("local") / "out"
    inputs = ["--images", sample.images, "--instances", sample.instances]
    assert main(["convert", *inputs, "--output", str(folder), "--num-shards", "3", "--max-rejects", "0.2"]) == 0
    return folder


def test_job_is_submitted_followed_and_run(gcs, dataflow, local, recordmill, monkeypatch):
    from recordmill.launch.runners import run

    monkeypatch.setattr(run, "_ASK_EVERY_S", 0.2)
    counts = counts_of_progress(monkeypatch)
    dataflow.waits_for_counting = True
    ended = recordmill(*coco(dataflow, "--progress", "plain", beam=("--labels=team=vision",)))
    assert ended.code == 0, ended
    assert {name: data for name, data in written(gcs).items() if name.startswith("coco-")} == shard_bytes(local)
    assert not [name for name in written(gcs) if "recordmill" in name]
    for told in (f"Created job with id: [{JOB_ID}]", LINK, "warning: gs://bucket is in us,"):
        assert told in ended.err
    assert f"coco-train is in gs://{BUCKET}/out" in ended.out
    assert counts["images_written"] == 22  # as the service counted: 24 rows, one file missing, one broken
    assert counts["images_planned"] == 23
    assert counts["shards_written"] == 3
    assert counts["rejected/image/image_missing"] == 1

    job = dataflow.job
    assert job["name"] == "recordmill-bucket-out-train"
    assert job["labels"] == {"team": "vision", "made-by": "recordmill"}
    (pool,) = job["environment"]["workerPools"]
    assert pool["machineType"] == "e2-standard-2"
    assert int(pool["numThreadsPerWorker"]) == 2
    assert [image["containerImage"] for image in pool["sdkHarnessContainerImages"]] == [IMAGE]
    staged = sorted(name.rpartition("/")[2] for name in gcs.objects() if name.startswith("tmp/"))
    assert staged == ["pipeline.pb", "submission_environment_dependencies.txt"]  # no main session, none of our code

    assert str(ROOT).encode() not in dataflow.pipeline.SerializeToString()

    # Few shuffles, and of what WriteShards reads one; one environment.
    transforms = dataflow.pipeline.components.transforms
    grouping = "beam:transform:group_by_key:v1"
    groupings = {each.unique_name for each in transforms.values() if each.spec.urn == grouping}
    assert {name.partition("/")[0] for name in groupings} == {
        *("ReadCoco", "ListImages", "JoinImages", "AddFindings", "WriteShards", "WriteMetadata")
    }
    assert [name for name in groupings if name.startswith("WriteShards/")] == ["WriteShards/GroupByShard"]
    (environment,) = dataflow.pipeline.components.environments.values()
    assert environment.urn == "beam:env:docker:v1"
    assert IMAGE.encode() in environment.payload
    assert dict(environment.resource_hints) == {"beam:resources:min_ram_bytes:v1": b"4000000000"}


def counts_of_progress(monkeypatch) -> dict[str, int]:
    """The largest number that the progress line gets of each counter."""
    from recordmill.transforms.runtime import progress

    seen: dict[str, int] = {}
    real = progress.update_from_counters

    def update(step, counts):
        seen.update({name: max(number, seen.get(name, 0)) for name, number in counts.items()})
        real(step, counts)

    monkeypatch.setattr(progress, "update_from_counters", update)
    return seen


def test_job_that_fails_is_named_by_its_cause_and_goes_on(gcs, dataflow, recordmill):
    dataflow.messages.append(("JOB_MESSAGE_WARNING", "Quota CPUS exceeded. Limit: 8.0 in region europe-west4."))
    ended = recordmill(*coco(dataflow, "--max-rejects", "0"))
    assert ended.code == 1
    lines = ended.err.splitlines()
    assert "Dataflow: Quota CPUS exceeded. Limit: 8.0 in region europe-west4." in lines
    assert lines[-1].startswith("recordmill: 1 of 24 images (4.2%) are rejected, more than --max-rejects 0 allows: ")
    assert "Traceback" not in ended.err
    assert "manifest.json" not in written(gcs)
    again = recordmill(*coco(dataflow, "--progress", "none"))
    assert again.code == 0, again
    assert "Resuming an unfinished run" in again.out


def test_job_that_service_refuses_costs_nothing(gcs, dataflow, recordmill):
    """https://github.com/apache/beam/pull/29441 has the service's answer to a second job of a name."""
    assert recordmill(*coco(dataflow)).code == 0
    before = written(gcs)
    for status, message in ((409, "There is already an active job named x."), (403, "Cannot act as service account")):
        dataflow.refuse_create = (status, message)
        ended = recordmill(*coco(dataflow, "--overwrite", "--seed", "1"))
        assert ended.code == 1
        assert message.rstrip(".") in ended.err.splitlines()[-1]
        assert {name: data for name, data in written(gcs).items() if ".recordmill-" not in name} == before
    dataflow.refuse_create = None
    assert recordmill(*coco(dataflow, "--overwrite", "--seed", "1")).code == 0
    assert written(gcs).keys() == before.keys()
    assert written(gcs)["manifest.json"] != before["manifest.json"]


def test_template_is_made_and_runs_later(gcs, dataflow, recordmill):
    template = coco(dataflow, beam=(f"--template_location=gs://{BUCKET}/t/job.json",))
    ended = recordmill(*template)
    assert ended.code == 0, ended
    assert "The template was written" in ended.out
    assert (dataflow.requests, "manifest.json" in written(gcs)) == ([], False)
    assert launched(gcs, dataflow) == "JOB_STATE_DONE"
    before = written(gcs)
    assert "manifest.json" in before

    # The launcher waits for a job, so it gets one that does nothing.
    ended = recordmill(*template)
    assert ended.code == 0, ended
    assert "already has the complete split" in ended.out
    assert launched(gcs, dataflow) == "JOB_STATE_DONE"
    assert written(gcs) == before


def make_template_of_recognised(dataflow: DataflowStandIn) -> int:
    """Make t/job.json of the data set in `sets`, and return the exit code."""
    engine = coco(dataflow, beam=(f"--template_location=gs://{BUCKET}/t/job.json",))
    ours = ("--command=convert", f"--data=gs://{BUCKET}/sets", f"--output=gs://{BUCKET}/out")
    return flat.main([*ours, *engine[engine.index("--") + 1 :]])


@pytest.mark.parametrize(("tops", "splits"), [(("",), {"train"}), (("train/", "val/"), {"train", "val"})])
def test_template_of_recognised_class_folders(gcs, dataflow, tops, splits):
    for name in (f"sets/{top}{kind}/a.jpg" for top in tops for kind in ("cat", "dog")):
        gcs.put(name, jpeg(0))
    assert make_template_of_recognised(dataflow) == 0
    assert launched(gcs, dataflow) == "JOB_STATE_DONE"
    assert {f"manifest-{split}.json" for split in splits} <= written(gcs).keys()


def test_template_of_parquet_files_of_splits_is_one_job(gcs, dataflow):
    rows = io.BytesIO()
    pq.write_table(pa.table({"image": [{"bytes": jpeg(0), "path": "a.jpg"}], "label": ["cat"]}), rows)
    for split in ("train", "val"):
        gcs.put(f"sets/data/{split}-0.parquet", rows.getvalue())
    assert make_template_of_recognised(dataflow) == 0
    assert launched(gcs, dataflow) == "JOB_STATE_DONE"
    assert {"manifest-train.json", "manifest-val.json"} <= written(gcs).keys()


def test_dry_run_of_beams_changes_nothing(gcs, dataflow, recordmill):
    """Not even with --overwrite."""
    assert recordmill(*coco(dataflow)).code == 0
    before = gcs.objects()
    dataflow.requests.clear()
    ended = recordmill(*coco(dataflow, "--overwrite", beam=("--dry_run=true",)))
    assert ended.code == 0, ended
    assert "built but not run, and nothing was written" in ended.out
    assert (dataflow.requests, gcs.objects()) == ([], before)


def launched(gcs: GcsStandIn, dataflow: DataflowStandIn) -> str:
    """Final state of the job of t/job.json, which Dataflow starts."""
    jobs = f"{dataflow.url}/v1b3/projects/{PROJECT}/locations/{REGION}/jobs"
    urllib.request.urlopen(urllib.request.Request(jobs, gcs.objects()["t/job.json"], method="POST")).close()
    last = time.monotonic() + 60
    while (state := json.load(urllib.request.urlopen(f"{jobs}/{JOB_ID}"))["currentState"]) == "JOB_STATE_RUNNING":
        assert time.monotonic() < last
        time.sleep(0.1)
    return state


def test_job_verifies_and_its_template_fails_at_fault(gcs, dataflow, recordmill):
    arguments = coco(dataflow)
    assert recordmill(*arguments).code == 0
    engine = arguments[arguments.index("--") :]
    verify = ["verify", f"gs://{BUCKET}/out", "--check", "decode", *engine]
    before = gcs.objects()
    ended = recordmill(*verify)
    assert ended.code == 0, ended
    assert "is intact: all records were read, parsed and decoded" in ended.out
    left = gcs.objects().keys() - before.keys()
    assert {name.rpartition("/")[2] for name in left} == {"pipeline.pb", "submission_environment_dependencies.txt"}

    name = "coco-train.tfrecord-00001-of-00003"
    shard = before[f"out/{name}"]
    for changed, state in ((shard, "DONE"), (shard[:500] + bytes([shard[500] ^ 4]) + shard[501:], "FAILED")):
        gcs.put(f"out/{name}", changed)
        assert recordmill(*verify, f"--template_location=gs://{BUCKET}/t/job.json").code == 0  # nothing is read yet
        assert launched(gcs, dataflow) == f"JOB_STATE_{state}"
    told = "\n".join(text for _, text in dataflow.messages)
    assert f"FaultyDatasetError: gs://{BUCKET}/out differs from what was written: " in told
    assert f"{name} record 0: data_crc: " in told

    for words, reason in (
        (["verify", f"gs://{BUCKET}/out", *engine], "Use --check decode"),
        ([*verify, "--dry_run=true"], "does not support a dry run"),
        ([*verify, "--staging_location=gs://nowhere/x"], "--staging_location=gs://nowhere/x cannot be written"),
    ):
        ended = recordmill(*words)
        assert (ended.code, reason in ended.err) == (2, True), ended


# Ctrl-C while a command on a terminal waits for its job

CANCEL = f"gcloud dataflow jobs cancel {JOB_ID} --project={PROJECT} --region={REGION}"
QUESTION = f"Job {JOB_ID} runs on Dataflow. Cancel it (c), or leave it running and exit (Enter)?"


class Typed:
    """A command as a person types it."""

    def __init__(self, arguments: list[str]):
        self._person, inside = pty.openpty()
        command = [sys.executable, "-m", "recordmill.launch.cli", *arguments]
        self.process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, start_new_session=True)
        self._shown: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        os.close(inside)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone with its last process
            while data := os.read(self._person, 4096):
                self._shown.append(data)

    @property
    def shown(self) -> str:
        return b"".join(self._shown).decode()

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + 180
        while text not in self.shown:
            assert self.process.poll() is None, self.shown
            assert time.monotonic() < until, self.shown
            time.sleep(0.05)

    def types(self, text: str) -> None:
        os.write(self._person, text.encode())

    def end(self) -> int:
        try:
            self.process.wait(180)
        finally:
            self.process.kill()
        self._reader.join(60)
        os.close(self._person)
        return self.process.returncode


@contextlib.contextmanager
def held(dataflow: DataflowStandIn) -> Iterator[Typed]:
    """A command that waits for a job which does not end by itself."""
    dataflow.is_held = True
    typed = Typed(coco(dataflow, "--progress", "auto"))
    until = time.monotonic() + 180
    while ("GET", f"/v1b3/projects/{PROJECT}/locations/{REGION}/jobs/{JOB_ID}/messages") not in dataflow.requests:
        assert typed.process.poll() is None, typed.shown
        assert time.monotonic() < until, dataflow.requests
        time.sleep(0.1)
    yield typed
    dataflow.cancel()


@pytest.mark.parametrize(("answer", "state"), [("c\n", "CANCELLED"), ("\n", "RUNNING")])
def test_ctrl_c_asks_about_job(dataflow, answer, state):
    with held(dataflow) as typed:
        os.kill(typed.process.pid, signal.SIGINT)
        typed.wait_for(QUESTION)
        time.sleep(1)
        assert typed.shown.endswith(f"{QUESTION}\r\n"), "the live line does not wipe the question out"
        typed.types(answer)
        assert typed.end() == 130
        assert dataflow.state == f"JOB_STATE_{state}"
    last = typed.shown.splitlines()[-1]
    if state == "CANCELLED":
        assert f"Cancelled job {JOB_ID}" in typed.shown
        assert last.endswith("Run the same command again to resume")
    else:
        assert last.endswith(f"continues without this process; to stop it: {CANCEL}")
    assert "Traceback" not in typed.shown
