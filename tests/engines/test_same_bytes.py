"""Each engine, and each runner as docs/flink.md types it, writes the same bytes."""

import os
import subprocess
import sys

import pytest

from tests.conftest import coco_flags, draw_jpeg, every_kind, manifest_of, read_examples, rejects_of
from tests.engines import fetch
from tests.engines.command import Command
from tests.engines.conftest import fetched, in_pool
from tests.engines.output import files_of, records_of, without_shards


def test_planned_shards_are_same_bytes(coco, engine, convert):
    """And so is all else that is in the folder; nothing more is."""
    sized = [*coco, "--shard-size", "50kB" if "both" in coco else "2MB"]
    reference = convert("reference", sized)
    assert len(manifest_of(reference)["splits"]["train"]["shards"]) > 3
    assert files_of(convert("engine", sized, engine)) == files_of(reference)


@pytest.mark.parametrize("flink", [fetch.NEWER_FLINK], indirect=True)
@pytest.mark.parametrize("engine", ["flink_local", "flink_cluster"], indirect=True)
@pytest.mark.parametrize("coco", ["sample"], indirect=True)
def test_newer_flink_writes_same_bytes(coco, engine, cluster, flink, convert):
    assert cluster.version() == flink
    assert files_of(convert("engine", coco, engine)) == files_of(convert("reference", coco))


def test_stock_shards_are_same_records(sample, engine, convert):
    """Beam's own writer lets chance decide which shard a record is in."""
    stock = ["coco", *every_kind(sample), "--writer", "beam", "--num-shards", "3"]
    reference = convert("reference", stock)
    assert sorted(reject["reason"] for reject in rejects_of(reference)) == ["image_missing", "image_unreadable"]
    output = convert("engine", stock, engine)
    assert records_of(output) == records_of(reference)
    assert len(manifest_of(output)["splits"]["train"]["shards"]) == 3
    assert without_shards(output) == without_shards(reference)


@pytest.fixture
def classes(tmp_path):
    """Flags of sixty pictures in two classes, one of which is broken, and of two splits."""
    for number in range(60):
        draw_jpeg(tmp_path / "pictures" / ("cat", "dog")[number % 2] / f"{number}.jpg", colour=(4 * number, 0, 0))
    (tmp_path / "pictures" / "cat" / "broken.jpg").write_bytes(b"no picture")
    flags = ["--split", "train=0.7,val=0.3", "--num-shards", "3", "--max-rejects", "0.1"]
    return ["--images", str(tmp_path / "pictures"), *flags]


def test_two_splits_of_classes_on_cluster(classes, flink_cluster, convert):
    reference = convert("reference", ["folder", *classes])
    output = convert("engine", ["folder", *classes], flink_cluster)
    assert files_of(output) == files_of(reference)
    assert len(read_examples(output, "train")) + len(read_examples(output, "val")) == 60


@pytest.mark.parametrize("engine", ["processes", "prism", "flink_local"], indirect=True)
def test_features_of_random_weights(classes, engine, convert):
    embed = ["embed", *classes, "--model", "mobilenet-v2", "--weights", "none", "--input-size", "32x32", "--batch", "8"]
    reference = convert("reference", embed)
    features = [example["feature"] for example in read_examples(reference, "train")]
    assert len({tuple(feature) for feature in features}) == len(features) > 30
    assert files_of(convert("engine", embed, engine)) == files_of(reference)


@pytest.mark.parametrize(
    "more",
    [
        "--key object --stratify",
        "--images {s.images} --image-column image --max-rejects 0.2 --text-column caption --text counts",
    ],
)
def test_rows_of_table_on_each_engine(more, sample, engine, convert):
    rows = f"table --rows {sample.objects} --label shape --split train=0.7,val=0.3 --num-shards 3".split()
    rows += more.format(s=sample).split()
    reference = convert("reference", rows)
    assert len(read_examples(reference, "train")) > 40
    if "--images" in rows:
        assert {reject["reason"] for reject in rejects_of(reference)} == {"image_missing", "image_unreadable"}
    assert files_of(convert("engine", rows, engine)) == files_of(reference)


def test_data_set_is_verified_on_each_engine(sample, engine, convert, tmp_path):
    """Without TensorFlow, which the cluster's workers do not have."""
    inputs = ["--images", sample.images, "--instances", sample.instances, "--max-rejects", "0.2"]
    output = convert("out", ["coco", *inputs, "--num-shards", "3"])
    damaged = output / "coco-train.tfrecord-00001-of-00003"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    before = sorted(output.iterdir())
    verify = ["verify", output, "--check", "decode"]
    here = Command(verify, tmp_path / "here").end()
    there = Command([*verify, "--", *engine], tmp_path / "there").end()
    assert (there.code, there.out) == (1, here.out), there
    assert f"{damaged.name} record " in here.out
    assert sorted(output.iterdir()) == before


def test_flink_runner_starts_its_job_server(sample, cluster, pool, job_server_jar, convert):
    coco = ["coco", *every_kind(sample), "--num-shards", "3"]
    runner = ["--runner=FlinkRunner", "--flink_version=1.19", f"--flink_master={cluster.master}"]
    output = convert("engine", coco, [*runner, f"--flink_job_server_jar={job_server_jar}", *in_pool(pool)])
    assert files_of(output) == files_of(convert("reference", coco))


@pytest.mark.parametrize("coco", ["sample"], indirect=True)
def test_spark_runner_starts_its_job_server(coco, convert):
    jar = fetched(fetch.SPARK_JOB_SERVER) / fetch.JOB_SERVER_JAR
    spark = ["--runner=SparkRunner", "--spark_master_url=local[2]", f"--spark_job_server_jar={jar}"]
    output = convert("engine", coco, [*spark, "--environment_type=LOOPBACK"])
    assert files_of(output) == files_of(convert("reference", coco))


def test_folders_of_a_project_do_not_shadow_ours(sample, processes, tmp_path):
    """Its folders have the names of our rooms, and come first on the path of several processes."""
    for name in ("schemas", "pipelines", "transforms", "launch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('this is the project')\n")
    command = [sys.executable, "-m", "recordmill.launch.cli", *coco_flags(sample, tmp_path / "out"), "--", *processes]
    environment = {**os.environ, "PYTHONPATH": "."}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "out" / "manifest.json").exists()
