"""Whole jobs submitted to a stand-in of Dataflow's service, which runs them; in and out of a bucket's stand-in."""

import json
import time
import urllib.request
from pathlib import Path

import pytest

from recordmill.transforms.sample.write_sample import SampleFiles
from tests.conftest import shard_bytes
from tests.dataflow_stand_in import JOB_ID, PROJECT, REGION, DataflowStandIn
from tests.engines.dataflow_job import IMAGE, coco
from tests.gcs_stand_in import BUCKET, Fault, GcsStandIn, Kind

LINK = f"https://console.cloud.google.com/dataflow/jobs/{REGION}/{JOB_ID}?project={PROJECT}"


def written(gcs: GcsStandIn) -> dict[str, bytes]:
    return {name.removeprefix("out/"): data for name, data in gcs.objects().items() if name.startswith("out/")}


@pytest.fixture(scope="module")
def local(sample: SampleFiles, tmp_path_factory) -> Path:
    """The same data set, made on this machine."""
    from recordmill.launch.cli import main

    folder = tmp_path_factory.mktemp("local") / "out"
    inputs = ["--images", sample.images, "--instances", sample.instances]
    assert main(["coco", *inputs, "--output", str(folder), "--num-shards", "3", "--max-rejects", "0.2"]) == 0
    return folder


def test_a_job_is_submitted_followed_and_told(gcs, dataflow, local, recordmill):
    ended = recordmill(*coco(dataflow, "--progress", "plain", beam=("--labels=team=vision",)))
    assert ended.code == 0, ended
    assert {name: data for name, data in written(gcs).items() if name.startswith("coco-")} == shard_bytes(local)
    assert not [name for name in written(gcs) if "recordmill" in name]
    for told in (f"Created job with id: [{JOB_ID}]", LINK, "warning: gs://bucket is in us,"):
        assert told in ended.err
    assert f"coco-train is in gs://{BUCKET}/out" in ended.out
    assert "Traceback" not in ended.err

    job = dataflow.job
    assert job["name"] == "recordmill-bucket-out-train"
    assert job["labels"] == {"team": "vision", "made-by": "recordmill"}
    (pool,) = job["environment"]["workerPools"]
    assert pool["machineType"] == "e2-standard-2"
    assert int(pool["numThreadsPerWorker"]) == 2
    assert [image["containerImage"] for image in pool["sdkHarnessContainerImages"]] == [IMAGE]
    staged = sorted(name.rpartition("/")[2] for name in gcs.objects() if name.startswith("tmp/"))
    assert staged == ["pipeline.pb", "submission_environment_dependencies.txt"]  # no main session, none of our code


def test_the_job_that_the_service_gets(gcs, dataflow, recordmill):
    """Few shuffles, none of them of what WriteShards reads (tests/test_shuffle.py counts bytes); one environment."""
    assert recordmill(*coco(dataflow, "--progress", "none")).code == 0
    transforms = dataflow.pipeline.components.transforms
    grouping = "beam:transform:group_by_key:v1"
    groupings = {each.unique_name for each in transforms.values() if each.spec.urn == grouping}
    assert {name.partition("/")[0] for name in groupings} == {
        *("DescribeInputs", "ReadCoco", "ListImages", "JoinImages", "MergeCategories", "ChooseFeatures"),
        *("PlanShards", "CheckFindings", "WriteShards", "WriteMetadata"),
    }
    assert [name for name in groupings if name.startswith("WriteShards/")] == ["WriteShards/GroupByShard"]
    (root,) = dataflow.pipeline.root_transform_ids
    steps = [transforms[step].unique_name for step in transforms[root].subtransforms]
    assert [step for step in steps if step in ("ReadCoco", "JoinImages", "PlanShards", "WriteShards")] == [
        *("ReadCoco", "JoinImages", "PlanShards", "WriteShards")
    ]
    (environment,) = dataflow.pipeline.components.environments.values()
    assert environment.urn == "beam:env:docker:v1"
    assert IMAGE.encode() in environment.payload
    assert dict(environment.resource_hints) == {"beam:resources:min_ram_bytes:v1": b"4000000000"}


def test_the_progress_line_follows_the_jobs_counters(gcs, dataflow, recordmill, monkeypatch):
    from recordmill.launch.runners import watch
    from recordmill.launch.terminal import progress

    monkeypatch.setattr(watch, "_ASK_EVERY_S", 0.2)
    monkeypatch.setattr(progress, "_PLAIN_SECONDS", 0.1)
    told = everything_told(monkeypatch)
    dataflow.waits_for_counting = True
    ended = recordmill(*coco(dataflow, "--progress", "plain"))
    assert ended.code == 0, ended
    assert told["images_written"] == 22  # as the service counted: 24 rows, one file missing, one broken
    assert told["images_planned"] == 23
    assert told["shards_written"] == 3
    assert told["rejected/image/image_missing"] == 1


def everything_told(monkeypatch) -> dict[str, int]:
    """Everything that the job told of its counters."""
    from recordmill.transforms.runtime import progress

    seen: dict[str, int] = {}
    real = progress.update_from_counters

    def told(step, counts):
        seen.update({name: max(number, seen.get(name, 0)) for name, number in counts.items()})
        real(step, counts)

    monkeypatch.setattr(progress, "update_from_counters", told)
    return seen


def test_a_job_that_fails_is_told_by_its_cause(gcs, dataflow, recordmill):
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
    assert "Going on with an unfinished run" in again.out


@pytest.mark.parametrize(
    ("status", "message", "word"),
    [
        (403, "(abc): Current user cannot act as service account x.", "docs/dataflow.md"),
        # https://github.com/apache/beam/pull/29441 has the service's answer
        (409, "(abc): There is already an active job named recordmill-bucket-out-train", "running already"),
    ],
)
def test_a_job_that_the_service_refuses_is_told(gcs, dataflow, recordmill, status, message, word):
    dataflow.refuse_create = (status, message)
    ended = recordmill(*coco(dataflow))
    assert ended.code == 1
    last = ended.err.splitlines()[-1]
    assert message in last
    assert word in last


def test_a_refused_job_does_not_cost_what_it_was_to_replace(gcs, dataflow, recordmill):
    assert recordmill(*coco(dataflow)).code == 0
    before = written(gcs)
    dataflow.refuse_create = (403, "no")
    assert recordmill(*coco(dataflow, "--overwrite", "--seed", "1")).code == 1
    assert {name: data for name, data in written(gcs).items() if ".recordmill-" not in name} == before
    dataflow.refuse_create = None
    again = recordmill(*coco(dataflow, "--overwrite", "--seed", "1"))
    assert again.code == 0, again
    assert written(gcs).keys() == before.keys()
    assert written(gcs)["manifest.json"] != before["manifest.json"]


def test_missing_rights_to_the_staging_bucket_are_told_before_anything_is_done(gcs, dataflow, recordmill):
    gcs.put("x", b"", bucket="staging")
    denied = Fault(Kind.STATUS, operation="upload", when=lambda call: call.bucket == "staging", status=403, times=99)
    gcs.faults.append(denied)
    began = time.monotonic()
    ended = recordmill(*coco(dataflow, beam=("--staging_location=gs://staging/x",)))
    assert ended.code == 2
    assert time.monotonic() - began < 240  # Beam tries for eight minutes
    last = ended.err.splitlines()[-1]
    assert last.startswith("recordmill: --staging_location=gs://staging/x cannot be written and read, and the job's ")
    assert "does not have storage.objects access" in last
    assert (dataflow.requests, written(gcs)) == ([], {})


def test_a_template_is_made_and_not_run(gcs, dataflow, recordmill):
    ended = recordmill(*coco(dataflow, beam=(f"--template_location=gs://{BUCKET}/t/job.json",)))
    assert ended.code == 0, ended
    assert "The template was made" in ended.out
    assert dataflow.requests == []
    assert "manifest.json" not in written(gcs)
    job = json.loads(gcs.objects()["t/job.json"])
    assert job["environment"]["workerPools"][0]["machineType"] == "e2-standard-2"


def test_a_template_for_what_is_there_already_is_of_a_job_that_does_nothing(gcs, dataflow, recordmill):
    """Its launcher waits for a job, and what cleared a run that had succeeded for a success."""
    assert recordmill(*coco(dataflow)).code == 0
    before = written(gcs)
    ended = recordmill(*coco(dataflow, beam=(f"--template_location=gs://{BUCKET}/t/job.json",)))
    assert ended.code == 0, ended
    assert "holds the whole split already" in ended.out
    assert launched(gcs, dataflow) == "JOB_STATE_DONE"
    assert written(gcs) == before


def launched(gcs: GcsStandIn, dataflow: DataflowStandIn) -> str:
    """What the job of t/job.json has ended in, which Dataflow starts."""
    jobs = f"{dataflow.url}/v1b3/projects/{PROJECT}/locations/{REGION}/jobs"
    urllib.request.urlopen(urllib.request.Request(jobs, gcs.objects()["t/job.json"], method="POST")).close()
    last = time.monotonic() + 60
    while (state := json.load(urllib.request.urlopen(f"{jobs}/{JOB_ID}"))["currentState"]) == "JOB_STATE_RUNNING":
        assert time.monotonic() < last
        time.sleep(0.1)
    return state


def test_a_template_verifies_in_a_job_that_fails_at_a_fault(gcs, dataflow, recordmill):
    arguments = coco(dataflow)
    assert recordmill(*arguments).code == 0
    verify = ["verify", f"gs://{BUCKET}/out", "--check", "decode", *arguments[arguments.index("--") :]]
    template = f"--template_location=gs://{BUCKET}/t/job.json"
    assert recordmill(*verify, template).code == 0
    before = written(gcs)
    assert launched(gcs, dataflow) == "JOB_STATE_DONE"
    name = "coco-train.tfrecord-00001-of-00003"
    shard = before[name]
    gcs.put(f"out/{name}", shard[:500] + bytes([shard[500] ^ 4]) + shard[501:])
    assert recordmill(*verify, template).code == 0  # the launcher has no time to read a shard
    assert launched(gcs, dataflow) == "JOB_STATE_FAILED"
    told = "\n".join(text for _, text in dataflow.messages)
    assert f"FaultyDatasetError: gs://{BUCKET}/out is not what was written: " in told
    assert f"{name} record 0: data_crc: " in told
    assert written(gcs) == before | {name: gcs.objects()[f"out/{name}"]}


def test_a_data_set_is_verified_by_a_job(gcs, dataflow, recordmill):
    arguments = coco(dataflow)
    assert recordmill(*arguments).code == 0
    engine = arguments[arguments.index("--") :]
    before = gcs.objects().keys()
    ended = recordmill("verify", f"gs://{BUCKET}/out", "--check", "decode", *engine)
    assert ended.code == 0, ended
    assert "whole: every record read, parsed and decoded" in ended.out
    left = gcs.objects().keys() - before
    assert {name.rpartition("/")[2] for name in left} == {"pipeline.pb", "submission_environment_dependencies.txt"}
    assert recordmill("verify", f"gs://{BUCKET}/out", *engine).code == 2  # it would need TensorFlow
    assert recordmill("verify", f"gs://{BUCKET}/out", "--check", "decode", *engine, "--dry_run=true").code == 2
