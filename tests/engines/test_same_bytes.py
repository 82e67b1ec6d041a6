"""Each engine, and each runner as docs/flink.md types it, writes the same bytes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.beam import ReadDataset, WriteDataset
from recordmill.launch.cli import main
from recordmill.schemas.containers import CONTAINERS, TFRECORD
from tests.conftest import coco_flags, draw_jpeg, every_kind, manifest_of, read_examples, rejects_of
from tests.engines import fetch
from tests.engines.command import Command
from tests.engines.conftest import fetched, in_pool, needs_shared_data
from tests.engines.output import files_of, records_of, without_shards
from tests.literal_data import write_files


@pytest.mark.parametrize(
    ("coco", "engine"),
    [
        *(("sample", engine) for engine in ("processes", "prism", "flink_local", "flink_cluster")),
        *(pytest.param("coco_mini", engine, marks=needs_shared_data) for engine in ("prism", "flink_cluster")),
    ],
    indirect=True,
)
def test_planned_shards_are_same_bytes(coco, engine, convert, reference):
    """And so is all else that is in the folder; nothing more is."""
    sized = [*coco, "--shard-size", "50kB" if "both" in coco else "2MB"]
    expected = reference(*sized)
    assert len(manifest_of(expected)["splits"]["train"]["shards"]) > 3
    assert files_of(convert(sized, engine)) == files_of(expected)


@pytest.mark.parametrize("container", [name for name in CONTAINERS if name != TFRECORD])
@pytest.mark.parametrize("engine", ["processes", "prism", "flink_local"], indirect=True)
def test_containers_are_same_bytes(container, sample, engine, convert, reference):
    """Maps, masks, keypoints and captions, in several shards."""
    flags = ["convert", *every_kind(sample), "--masks", "rle", "--num-shards", "3", "--container", container]
    expected = reference(*flags)
    assert len(manifest_of(expected)["splits"]["train"]["shards"]) == 3
    assert files_of(convert(flags, engine)) == files_of(expected)


@pytest.mark.parametrize("engine", ["processes", "prism", "flink_local"], indirect=True)
def test_tiles_are_same_bytes(sample, engine, convert, reference):
    """Tiles of an image are in two shards, which two workers may write."""
    tiles = ["--tile", "40", "--tile-overlap", "0.25", "--keep-empty", "0.5"]
    flags = ["convert", *every_kind(sample), "--masks", "rle", "--num-shards", "3", *tiles]
    expected = reference(*flags)
    images = manifest_of(expected)["splits"]["train"]["images"]
    assert images["tiles"] > 3 * images["written"]
    assert files_of(convert(flags, engine)) == files_of(expected)


def test_additions_are_same_bytes(sample, engine, convert, reference, tmp_path):
    """A data set of some images gets the others, and some whose labels have changed."""
    base = reference("convert", *every_kind(sample), "--masks", "rle", "--num-shards", "2", "--limit", "12")
    document = json.loads(Path(sample.instances).read_text())
    written = json.loads((base / "images-train.jsonl").read_text().splitlines()[0])["names"]
    changed = {image["id"] for image in document["images"] if image["file_name"] in written[:3]}
    for row in document["annotations"]:
        row["area"] += 5 * (row["image_id"] in changed)
    write_files(tmp_path, {"instances.json": json.dumps(document)})
    flags = [str(tmp_path / "instances.json") if flag == sample.instances else flag for flag in every_kind(sample)]
    command = ["convert", *flags, "--masks", "rle", "--num-shards", "3", "--add", "--sync"]
    for folder in ("here", "engine"):  # convert writes to engine
        shutil.copytree(base, tmp_path / folder)
    assert main([*command, "--output", str(tmp_path / "here")]) == 0
    (run,) = manifest_of(tmp_path / "here")["splits"]["train"]["additions"]
    assert run["replaced"] >= 2
    assert run["shards"] == 4
    assert files_of(convert(command, engine)) == files_of(tmp_path / "here")


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Sixty images with YOLO's label files, and a label file without an image."""
    folder = tmp_path_factory.mktemp("labelled")
    for number in range(60):
        draw_jpeg(folder / "images" / f"{number}.jpg", colour=(4 * number, 0, 0))
    texts = {f"labels/{number}.txt": f"{number % 2} .5 .5 .{number + 10} .4\n" for number in range(61)}
    write_files(folder, {**texts, "data.yaml": "train: images\nnames: [cat, dog]\n"})
    return ["convert", str(folder), "--format", "yolo", "--num-shards", "3", "--max-rejects", "0.1"]


@pytest.mark.parametrize("engine", ["processes", "prism", "flink_local"], indirect=True)
def test_label_files_are_same_bytes(labelled, engine, convert, reference):
    expected = reference(*labelled)
    assert [reject["reason"] for reject in rejects_of(expected)] == ["label_without_image"]
    assert files_of(convert(labelled, engine)) == files_of(expected)


@pytest.mark.parametrize("flink", [fetch.NEWER_FLINK], indirect=True)
@pytest.mark.parametrize("coco", ["sample"], indirect=True)
def test_newer_flink_writes_same_bytes(coco, flink_cluster, cluster, flink, convert, reference):
    assert cluster.version() == flink
    assert files_of(convert(coco, flink_cluster)) == files_of(reference(*coco))


def test_stock_shards_are_same_records(sample, engine, convert, reference):
    """Beam's own writer lets chance decide which shard a record is in."""
    stock = ["convert", *every_kind(sample), "--writer", "beam", "--num-shards", "3"]
    expected = reference(*stock)
    assert sorted(reject["reason"] for reject in rejects_of(expected)) == ["image_missing", "image_unreadable"]
    output = convert(stock, engine)
    assert records_of(output) == records_of(expected)
    assert len(manifest_of(output)["splits"]["train"]["shards"]) == 3
    assert without_shards(output) == without_shards(expected)


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """Flags of sixty images in two classes, one of which is broken, and of two splits."""
    pictures = tmp_path_factory.mktemp("classes") / "pictures"
    for number in range(60):
        draw_jpeg(pictures / ("cat", "dog")[number % 2] / f"{number}.jpg", colour=(4 * number, 0, 0))
    (pictures / "cat" / "broken.jpg").write_bytes(b"no image")
    flags = ["--split", "train=0.7,val=0.3", "--num-shards", "3", "--max-rejects", "0.1"]
    return [str(pictures), "--format", "folder", *flags]


# In workers of their own, and in threads of the command, as Flink's LOOPBACK has them, too.
@pytest.mark.parametrize("engine", ["processes", "prism"], indirect=True)
def test_features_of_random_weights(classes, engine, convert, reference):
    model = ["--model", "mobilenet-v2", "--weights", "none", "--input-size", "32x32", "--batch", "8"]
    embed = ["convert", *classes, *model]
    features = [example["feature"] for example in read_examples(reference(*embed), "train")]
    assert len({tuple(feature) for feature in features}) == len(features) > 30
    assert files_of(convert(embed, engine)) == files_of(reference(*embed))


@pytest.mark.parametrize("engine", ["processes", "prism"], indirect=True)
def test_samples_of_data_set(classes, engine, tmp_path):
    """A pipeline that reads, filters and writes Samples."""
    for name, flags in (("here", []), ("engine", engine)):
        with beam.Pipeline(options=PipelineOptions(flags)) as p:
            read = p | ReadDataset(classes[0], split={"train": 0.7, "val": 0.3})
            kept = read | beam.Filter(lambda sample: sample.file_name > "cat/3") | beam.Reshuffle()
            kept | WriteDataset(tmp_path / name, num_shards=3, max_rejects=0.1)
    images = [split["images"] for split in manifest_of(tmp_path / "engine")["splits"].values()]
    assert all(counts["removed"] and counts["written"] for counts in images)
    assert files_of(tmp_path / "engine") == files_of(tmp_path / "here")


BY_KEY = "--key object --stratify"
WITH_PICTURES = "--images {s.images} --image-column image --max-rejects 0.2 --text-column caption --text counts"


@pytest.mark.parametrize(
    ("more", "engine"),
    [(BY_KEY, "prism"), (BY_KEY, "flink_cluster"), (WITH_PICTURES, "processes"), (WITH_PICTURES, "flink_local")],
    indirect=["engine"],
)
def test_rows_of_table(more, sample, engine, convert, reference):
    rows = f"convert {sample.objects} --format table --label shape --split train=0.7,val=0.3 --num-shards 3".split()
    rows += more.format(s=sample).split()
    expected = reference(*rows)
    assert len(read_examples(expected, "train")) > 40
    if "--images" in rows:
        assert {reject["reason"] for reject in rejects_of(expected)} == {"image_missing", "image_unreadable"}
    assert files_of(convert(rows, engine)) == files_of(expected)


def test_data_set_is_verified_on_each_engine(engine, copy_converted, recordmill, tmp_path):
    """Without TensorFlow, which the cluster's workers do not have."""
    output = tmp_path / "out"
    copy_converted(output, "--num-shards", 3)
    damaged = output / "coco-train.tfrecord-00001-of-00003"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    before = sorted(output.iterdir())
    verify = ["verify", output, "--check", "decode"]
    here = recordmill(*verify)
    there = Command([*verify, "--", *engine], tmp_path / "there").end()
    assert (there.code, there.out) == (1, here.out), there
    assert f"{damaged.name} record " in here.out
    assert sorted(output.iterdir()) == before


def test_flink_runner_starts_its_job_server(sample, cluster, pool, job_server_jar, convert, reference):
    coco = ["convert", *every_kind(sample), "--num-shards", "3"]
    runner = ["--runner=FlinkRunner", "--flink_version=1.19", f"--flink_master={cluster.master}"]
    output = convert(coco, [*runner, f"--flink_job_server_jar={job_server_jar}", *in_pool(pool)])
    assert files_of(output) == files_of(reference(*coco))


@pytest.mark.parametrize("coco", ["sample"], indirect=True)
def test_spark_runner_starts_its_job_server(coco, convert, reference):
    jar = fetched(fetch.SPARK_JOB_SERVER) / fetch.JOB_SERVER_JAR
    spark = ["--runner=SparkRunner", "--spark_master_url=local[2]", f"--spark_job_server_jar={jar}"]
    output = convert(coco, [*spark, "--environment_type=LOOPBACK"])
    assert files_of(output) == files_of(reference(*coco))


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
