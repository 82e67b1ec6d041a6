"""Workers that have our wheel and nothing else of ours run every step of both conversions."""

import csv
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from recordmill.transforms.sample.write_sample import SampleFiles
from tests.conftest import draw_jpeg, every_kind, shard_bytes
from tests.engines.worker_pool import Pool, running_pool, worker_environment
from tests.faults.warm_process import Command
from tests.jobs.folders import whole_folder
from tests.jobs.test_verify import records

Words = list[object]


@dataclass(frozen=True)
class Inputs:
    """What the jobs read.

    Attributes:
        images: of the sample, in a .zip.
        classes: class folders, of files that can be read and files that cannot.
        names: the same, where names begin with the class.
        table: path, label and split of the same; one row names no file.
    """

    sample: SampleFiles
    images: Path
    classes: Path
    names: Path
    table: Path


@pytest.fixture(scope="module")
def inputs(sample, tmp_path_factory) -> Inputs:
    folder = tmp_path_factory.mktemp("inputs")
    images = shutil.make_archive(str(folder / "images"), "zip", sample.images)
    classes, names = folder / "classes", folder / "names"
    rows = [("path", "label", "split"), ("cat/none.jpg", "cat", "train")]
    for number in range(12):
        label = ("cat", "dog", "owl")[number % 3]
        draw_jpeg(classes / label / f"{number}.jpg", 20 + number, 30)
        draw_jpeg(names / f"{label}_{number}.jpg", 20 + number, 30)
        rows.append((f"{label}/{number}.jpg", label, "val" if number < 4 else "train"))
    (classes / "dog" / "cut.jpg").write_bytes((classes / "cat" / "0.jpg").read_bytes()[:300])
    (classes / "cat" / "notes.txt").write_text("no image")
    draw_jpeg(classes / "nowhere.jpg")
    draw_jpeg(names / "nothing.jpg")
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return Inputs(sample, Path(images), classes, names, folder / "labels.csv")


def every_kind_of_a_zip(inputs: Inputs) -> Words:
    flags = every_kind(inputs.sample)
    flags[flags.index("--images") + 1] = str(inputs.images)
    texts = ["--caption-text", "tfidf", "--ngrams", "1,2"]
    return ["coco", *flags, "--masks", "both", "--format", "jpeg", "--num-shards", 40, *texts]


def stuff_without_a_list(inputs: Inputs) -> Words:
    sample = inputs.sample
    kinds = ["--instances", sample.instances, "--stuff", sample.stuff, "--image-info", sample.image_info]
    filters = ["--no-list", "--categories", "square,circle", "--min-area", 50, "--no-crowd", "--boxes", "drop"]
    return ["coco", "--images", sample.images, *kinds, *filters, "--max-side", 100, "--max-rejects", 1]


def by_the_stock_writer(inputs: Inputs) -> Words:
    flags = ["--writer", "beam", "--num-shards", 3, "--masks", "png"]
    return ["coco", *every_kind(inputs.sample), *flags]


def keras(inputs: Inputs) -> Words:
    """With an annotation of no image, which the reader of the file rejects."""
    sample = inputs.sample
    content = json.loads(Path(sample.instances).read_text())
    content["annotations"].append({"id": 1, "category_id": 7, "bbox": [1, 1, 5, 5]})
    odd = inputs.images.with_name("odd.json")
    odd.write_text(json.dumps(content))
    flags = ["--layout", "keras", "--examples-per-shard", 20, "--max-rejects", 0.2]
    return ["coco", "--images", sample.images, "--instances", odd, *flags]


def tfds(inputs: Inputs) -> Words:
    sample = inputs.sample
    kinds = ["--instances", sample.instances, "--panoptic", sample.panoptic, "--panoptic-masks", sample.panoptic_masks]
    more = ["--layout", "tfds", "--max-rejects", 0.2, "--gzip", "--match", "name"]
    groups = ["--split", "train=0.6,val=0.4", "--group-from", "([0-9][0-9])[.]"]
    return ["coco", "--images", sample.images, *kinds, *more, *groups]


def class_folders_stratified(inputs: Inputs) -> Words:
    groups = inputs.table.with_name("groups.csv")
    groups.write_text("file_name,group\ncat/0.jpg,1\ndog/1.jpg,1\n")
    splits = ["--split", "train=0.5,val=0.25,test=0.25", "--stratify", "--groups", groups, "--num-shards", 2]
    return ["folder", "--images", inputs.classes, *splits, "--max-rejects", 1]


def names_by_the_stock_writer(inputs: Inputs) -> Words:
    flags = ["--label-from", "name", "--split", "train=0.5,val=0.5", "--writer", "beam", "--num-shards", 2]
    return ["folder", "--images", inputs.names, *flags, "--max-rejects", 1]


def a_table_with_splits(inputs: Inputs) -> Words:
    flags = ["--labels", inputs.table, "--classes", "dog,cat", "--num-shards", 3, "--max-rejects", 1]
    return ["folder", "--images", inputs.classes, *flags]


def rows_of_a_table(inputs: Inputs) -> Words:
    flags = ["--label", "shape", "--key", "object", "--split", "train=0.6,val=0.4", "--stratify", "--num-shards", 2]
    return ["table", "--rows", inputs.sample.objects, *flags]


def rows_with_pictures(inputs: Inputs) -> Words:
    sample = inputs.sample
    pictures = ["--images", sample.images, "--image-column", "image", "--max-rejects", 0.2]
    texts = ["--text-column", "caption", "--text", "tfidf"]
    return ["table", "--rows", sample.objects, *pictures, *texts, "--label", "shape", "--num-shards", 2]


JOBS = (
    every_kind_of_a_zip,
    stuff_without_a_list,
    by_the_stock_writer,
    keras,
    tfds,
    class_folders_stratified,
    names_by_the_stock_writer,
    a_table_with_splits,
    rows_of_a_table,
    rows_with_pictures,
)


@pytest.fixture(scope="module")
def python(built_wheel, tmp_path_factory) -> Path:
    return worker_environment(tmp_path_factory.mktemp("engine") / "environment", built_wheel)


def submit(arguments: Words, pool: Pool, log: Path) -> Command:
    """In a process of its own, which can be ended if it hangs: Beam waits for ever for a worker that does not come."""
    flags = ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=EXTERNAL"]
    return Command([*arguments, "--", *flags, f"--environment_config={pool.endpoint}"], log).end()


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_the_same_data_set_as_in_process(python, inputs, recordmill, tmp_path, job):
    shipped, out, log = tmp_path / "shipped", tmp_path / "out", tmp_path / "pool.log"
    with running_pool(python, log) as pool:
        command = submit([*job(inputs), "--output", shipped], pool, tmp_path / "command")
    assert command.code == 0, f"{command}\n{log.read_text()}"
    outcome = recordmill(*job(inputs), "--output", out)
    assert outcome.code == 0, outcome
    if "beam" in job(inputs):  # whose records are in other shards every time
        assert all_records(shipped) == all_records(out) != []
    else:
        said, _, took = command.out.replace(str(shipped), str(out)).rpartition("That took ")
        here, _, took_here = outcome.out.rpartition("That took ")
        assert said == here
        assert re.fullmatch(r"[0-9.]+ s\n", took)  # the command only knows how long it waited
        assert "writing" in took_here
        assert shard_bytes(shipped) != {}
        assert whole_folder(shipped) == whole_folder(out)


def all_records(folder: Path) -> list[bytes]:
    return sorted(record for path in folder.glob("*.tfrecord-*") for record in records(path))


def test_without_the_wheel_the_job_fails(inputs, tmp_path):
    python, log = worker_environment(tmp_path / "environment", None), tmp_path / "pool.log"
    with running_pool(python, log) as pool:
        words = [*every_kind_of_a_zip(inputs), "--output", tmp_path / "out"]
        command = submit(words, pool, tmp_path / "command")
    assert "ModuleNotFoundError: No module named 'recordmill'" in log.read_text()
    assert command.code == 1, command
    (line,) = command.err.splitlines()
    assert line.startswith("recordmill: ")
    assert "'recordmill'" in line
    assert shard_bytes(tmp_path / "out") == {}
    assert not (tmp_path / "out" / "manifest.json").exists()
