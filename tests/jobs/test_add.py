"""Whole jobs with --add: images are compared with those of the data set."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.conftest import (
    CATEGORIES,
    SKELETON,
    annotation,
    draw_jpeg,
    examples_by_name,
    image_row,
    manifest_of,
    read_examples,
    rejects_of,
    write_coco,
)
from tests.literal_data import write_files

FLAGS = ("--name", "d", "--max-rejects", "1", "--progress", "none")


class Data:
    """COCO data of images `a.jpg`, `b.jpg`, … with two objects each, whose ids are the images' place."""

    def __init__(self, folder: Path, names: str, **changes):
        self.folder, self.rows, self.objects = folder, [], []
        for number, name in enumerate(names, 1):
            self.rows.append(image_row(number, f"{name}.jpg"))
            draw_jpeg(folder / f"images/{name}.jpg", colour=(ord(name), 60, 50))
            self.objects += [annotation(10 * number + one, number) for one in (0, 1)]

    def object_of(self, name: str) -> dict:
        (id_,) = (row["id"] for row in self.rows if row["file_name"] == f"{name}.jpg")
        return next(row for row in self.objects if row["image_id"] == id_)

    def flags(self) -> list:
        path = write_coco(self.folder, self.rows, self.objects, CATEGORIES)
        return ["convert", "--images", self.folder / "images", "--instances", path, *FLAGS]


@pytest.fixture(scope="module")
def bases() -> dict[tuple[str, ...], Path]:
    """Data sets of a.jpg to d.jpg, by the flags that made them."""
    return {}


@pytest.fixture
def add(tmp_path, tmp_path_factory, bases, recordmill):
    """Add Data to the data set of a.jpg to d.jpg, which is made with the same flags, once."""

    def run(data: Data, *flags: str, code: int = 0):
        if flags not in bases:
            folder = tmp_path_factory.mktemp("base")
            assert recordmill(*Data(folder, "abcd").flags(), "-o", folder / "out", *flags).code == 0
            bases[flags] = folder / "out"
        shutil.copytree(bases[flags], tmp_path / "out")
        outcome = recordmill(*data.flags(), "-o", tmp_path / "out", "--add", *flags)
        assert outcome.code == code, outcome
        return outcome

    return run


def run_counts(out: Path) -> dict[str, int]:
    (run,) = manifest_of(out)["splits"]["train"]["additions"]
    numbers = {name: run["images"].get(name, 0) for name in ("rows", "written", "present", "changed")}
    return numbers | {"of_present": run["annotations"].get("of_present_images", 0)}


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--layout", "keras", "--examples-per-shard", "3"),
        ("--container", "webdataset", "--num-shards", "2"),
        ("--container", "parquet"),
        ("--examples-per-shard", "3", "--gzip"),
        ("--tile", "20", "--keep-empty", "1"),
        ("--split", "train=0.5,val=0.5"),
        ("--image-format", "png", "--masks", "rle"),
    ],
    ids=" ".join,
)
def test_images_of_another_export_are_present_and_new_ones_written(tmp_path, add, recordmill, flags):
    """The export has other ids, and another order."""
    more = Data(tmp_path / "more", "ecafdb")
    add(more, *flags)
    out = tmp_path / "out"
    assert recordmill("verify", out).code == 0
    runs = [split["additions"][0]["images"] for split in manifest_of(out)["splits"].values()]
    assert [sum(run.get(name, 0) for run in runs) for name in ("rows", "written", "present")] == [6, 2, 4]
    if not {"webdataset", "parquet", "--gzip", "keras"} & set(flags):
        rebuilt = recordmill(*Data(tmp_path / "all", "abcdef").flags(), "-o", tmp_path / "rebuilt", *flags)
        assert rebuilt.code == 0
        for split in manifest_of(out)["splits"]:
            grown, whole = (read_examples(folder, split) for folder in (out, tmp_path / "rebuilt"))
            names = [sorted(example["image/filename"] for example in examples) for examples in (grown, whole)]
            assert names[0] == names[1]


def test_nothing_new_is_a_run_without_shards(tmp_path, add):
    outcome = add(Data(tmp_path / "more", "abcd"))
    assert run_counts(tmp_path / "out") == {"rows": 4, "written": 0, "present": 4, "changed": 0, "of_present": 8}
    assert [path.name for path in (tmp_path / "out").glob("*tfrecord*")] == ["d-train.tfrecord-00000-of-00001"]
    assert "added               nothing, 4 images were present" in outcome.out
    assert (tmp_path / "out/dataset_info.json").exists()


def test_changed_labels_are_listed_and_the_cure_writes_them(tmp_path, add, recordmill):
    more = Data(tmp_path / "more", "abcd")
    more.object_of("b")["bbox"] = [5, 5, 11, 10]
    more.object_of("c")["category_id"] = 3
    outcome = add(more)
    out = tmp_path / "out"
    assert run_counts(out) == {"rows": 4, "written": 0, "present": 4, "changed": 2, "of_present": 8}
    lines = [json.loads(line) for line in (out / "changes-train.jsonl").read_text().splitlines()]
    assert [(line["file_name"], line["change"]) for line in lines] == [("b.jpg", "labels"), ("c.jpg", "labels")]
    assert "2 of the present have other labels" in outcome.out
    assert recordmill(*more.flags(), "-o", out, "--add", "--sync").code == 0
    assert recordmill("verify", out).code == 0
    labels = examples_by_name(out)["c.jpg"]["image/object/class/label"]
    assert sorted(labels) == [1, 3]


def test_other_bytes_end_the_job_before_a_shard(tmp_path, add, recordmill):
    more = Data(tmp_path / "day 2", "abcde")
    for name in "bc":
        draw_jpeg(more.folder / f"images/{name}.jpg", colour=(1, 2, 3))
    before = tmp_path / "before"
    outcome = add(more, code=2)
    out = tmp_path / "out"
    assert "2 images have the name of an image of the data set, and other bytes: 'b.jpg', 'c.jpg'" in outcome.err
    assert not [path for path in out.iterdir() if path.name.startswith(".recordmill")]
    (value,) = re.findall(r"--add-as ('[^']+'|\S+)\.", outcome.err)
    shutil.copytree(out, before)
    for cure in (["--add-as", *shlex.split(value)], ["--sync"]):
        shutil.rmtree(out)
        shutil.copytree(before, out)
        assert recordmill(*more.flags(), "-o", out, "--add", *cure).code == 0
        assert recordmill("verify", out).code == 0
    dry = recordmill(*more.flags(), "-o", before, "--add", "--dry-run")
    assert dry.code == 2


def test_broken_file_of_a_known_image_is_a_reject_and_its_record_stays(tmp_path, add):
    more = Data(tmp_path / "more", "abcd")
    (more.folder / "images/b.jpg").write_bytes(b"")
    add(more)
    assert run_counts(tmp_path / "out") == {"rows": 4, "written": 0, "present": 3, "changed": 0, "of_present": 6}
    assert [(row["file_name"], row["annotations"]) for row in rejects_of(tmp_path / "out")] == [("b.jpg", 2)]
    assert len(read_examples(tmp_path / "out")) == 4


def test_what_stays_broken_is_rejected_once(tmp_path, recordmill):
    """Annotations of present images and of broken ones, and broken images, in each of three runs."""
    data, out = Data(tmp_path / "data", "abc"), tmp_path / "out"
    (data.folder / "images/b.jpg").write_bytes(b"")
    data.objects += [annotation(90, 1, category_id=77), annotation(91, 2, category_id=77)]
    assert recordmill(*data.flags(), "-o", out).code == 0
    first, rejects = manifest_of(out)["splits"]["train"], rejects_of(out)
    assert [row["id"] for row in rejects] == [90, 91, 2]
    for number, name in enumerate("def", 4):
        data.rows.append(image_row(number, f"{name}.jpg"))
        draw_jpeg(data.folder / f"images/{name}.jpg", colour=(ord(name), 60, 50))
        assert recordmill(*data.flags(), "-o", out, "--add").code == 0
    entry = manifest_of(out)["splits"]["train"]
    assert rejects_of(out) == rejects
    assert entry["images"]["rejected"] == first["images"]["rejected"] == {"image_unreadable": 1}
    assert entry["annotations"]["rejected"] == first["annotations"]["rejected"] == {"unknown_category": 2}
    assert entry["annotations"]["of_rejected_images"] == first["annotations"]["of_rejected_images"] == 2
    assert entry["images"]["rows"] - entry["images"]["present"] == 6
    assert recordmill("verify", out).code == 0


def test_joined_keypoint_rows_of_present_images(tmp_path, recordmill):
    """They are in no record of the run."""
    data, out = Data(tmp_path / "data", "abc"), tmp_path / "out"
    people = [CATEGORIES[0] | SKELETON, *CATEGORIES[1:]]

    def convert(*flags: str):
        points = [row | {"keypoints": [6, 6, 2, 7, 7, 1], "num_keypoints": 2} for row in data.objects[::2]]
        path = data.folder / "points.json"
        path.write_text(json.dumps({"images": data.rows, "annotations": points, "categories": people}))
        return recordmill(*data.flags(), "--keypoints", path, "-o", out, *flags)

    assert convert().code == 0
    data.rows.append(image_row(4, "d.jpg"))
    data.objects += [annotation(id_, 4) for id_ in (40, 41)]
    draw_jpeg(data.folder / "images/d.jpg", colour=(1, 60, 50))
    outcome = convert("--add")
    assert "annotations         12 of 12\n" in outcome.out
    assert "objects 8, keypoint rows joined with their instance 4\n" in outcome.out
    assert "added               1 image in 1 shard, 3 were present\n" in outcome.out
    (run,) = manifest_of(out)["splits"]["train"]["additions"]
    counts = {name: run["annotations"][name] for name in ("rows", "objects", "joined", "of_present_images")}
    assert counts == {"rows": 12, "objects": 2, "joined": 1, "of_present_images": 9}


def test_image_that_was_broken_is_new_when_it_is_whole(tmp_path, recordmill):
    data, out = Data(tmp_path / "data", "abc"), tmp_path / "out"
    whole = (data.folder / "images/b.jpg").read_bytes()
    (data.folder / "images/b.jpg").write_bytes(b"")
    assert recordmill(*data.flags(), "-o", out).code == 0
    (data.folder / "images/b.jpg").write_bytes(whole)
    data.rows.append(image_row(9, "z.jpg"))  # its file is missing
    assert recordmill(*data.flags(), "-o", out, "--add").code == 0
    assert run_counts(out) == {"rows": 4, "written": 1, "present": 2, "changed": 0, "of_present": 4}
    assert [line["file_name"] for line in rejects_of(out)] == ["z.jpg"]  # not the one that is written now
    images = manifest_of(out)["splits"]["train"]["images"]
    assert (images["rows"], images["written"], images["rejected"]) == (6, 3, {"image_missing": 1})


def test_run_that_failed_gives_way_to_another_one(tmp_path, recordmill):
    out, folder = tmp_path / "out", tmp_path / "data"
    assert recordmill(*Data(tmp_path / "base", "a").flags(), "-o", out).code == 0
    flags = Data(folder, "bcd").flags()
    (folder / "images/c.jpg").write_bytes(b"")
    flags[flags.index("--max-rejects") + 1] = "0"
    add = (*flags, "-o", out, "--add", "--num-shards", 3)
    for _ in range(2):
        assert "are rejected, more than --max-rejects" in recordmill(*add).err
    Data(folder, "bce").flags()
    assert recordmill(*add).code == 0
    assert sorted(examples_by_name(out)) == ["a.jpg", "b.jpg", "c.jpg", "e.jpg"]
    assert not (out / ".recordmill-train").exists()


def test_missing_file_that_arrives_is_added_by_the_same_command(tmp_path, recordmill):
    data = Data(tmp_path / "data", "abc")
    path = tmp_path / "data/images/c.jpg"
    late = path.read_bytes()
    path.unlink()
    assert recordmill(*data.flags(), "-o", tmp_path / "out").code == 0
    path.write_bytes(late)
    assert "already has" not in recordmill(*data.flags(), "-o", tmp_path / "out", "--add").out
    assert sorted(examples_by_name(tmp_path / "out")) == ["a.jpg", "b.jpg", "c.jpg"]
    assert "already has" in recordmill(*data.flags(), "-o", tmp_path / "out", "--add").out


@pytest.mark.parametrize("container", ["tfrecord", "webdataset"])
def test_new_shard_without_records_is_not_kept(tmp_path, add, recordmill, container):
    more = Data(tmp_path / "more", "abcde")
    (more.folder / "images/e.jpg").write_bytes(b"")
    add(more, "--container", container)
    entry = manifest_of(tmp_path / "out")["splits"]["train"]
    assert len(entry["shards"]) == 1
    assert entry["images"]["rejected"] == {"image_unreadable": 1}
    assert recordmill("verify", tmp_path / "out").code == 0


def test_new_copies_of_images_of_the_data_set_go(tmp_path, add):
    more = Data(tmp_path / "more", "abef")
    shutil.copy(more.folder / "images/b.jpg", more.folder / "images/e.jpg")
    outcome = add(more, "--duplicates", "drop")
    assert run_counts(tmp_path / "out") == {"rows": 4, "written": 1, "present": 2, "changed": 0, "of_present": 4}
    (row,) = rejects_of(tmp_path / "out")
    assert row["detail"] == "'e.jpg': the same bytes as 'b.jpg' of train, which the data set has"
    assert "A conversion of all data may keep the new image instead" in outcome.out


@pytest.mark.parametrize("flag", [(), ("--dry-run",)])
def test_new_tile_with_the_name_of_an_image_of_the_data_set(tmp_path, recordmill, flag):
    base, out = Data(tmp_path / "base", "bc"), tmp_path / "out"
    base.rows[0]["file_name"] = "a_0_20.jpg"  # a.jpg is 40x30
    base.rows[1]["file_name"] = "a_0_19.jpg"
    for old, row in zip("bc", base.rows, strict=True):
        (base.folder / f"images/{old}.jpg").rename(base.folder / "images" / row["file_name"])
    tile = "--tile", "20", "--tile-overlap", "0", "--keep-empty", "1"
    assert recordmill(*base.flags(), "-o", out, *tile).code == 0
    more = Data(tmp_path / "more", "a")
    outcome = recordmill(*more.flags(), "-o", out, "--add", *tile, *flag)
    assert outcome.code == 1
    assert "a tile of 'a.jpg' would have the name of the image 'a_0_20.jpg'. Name one of the two in" in outcome.err
    if flag:
        assert recordmill(*more.flags(), "-o", out, "--add", *tile, "--add-as", "new").code == 0
        assert recordmill("verify", out).code == 0


def test_plan_counts_new_and_present_images_and_names_the_files(tmp_path, add, recordmill):
    more = Data(tmp_path / "more", "abcde")
    add(Data(tmp_path / "none", "abcd"))
    plan = recordmill(*more.flags(), "-o", tmp_path / "out", "--add", "--dry-run")
    assert "1 of 1" in plan.out
    assert "added               1 image, 4 are present\n" in plan.out
    assert "d-train.tfrecord-00001-of-00002" in plan.out
    assert "dataset_info.json and features.json are removed" in plan.out
    (tmp_path / "out/images-train.jsonl").unlink()
    plan = recordmill(*more.flags(), "-o", tmp_path / "out", "--add", "--dry-run")
    assert "no digests of the records of train" in plan.err
    assert "5 of 5" in plan.out


def test_label_files_beside_images_are_read_again(tmp_path, monkeypatch, recordmill):
    """Their recipe stays the same when files are added, because it has no checksums of them."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path / "pets", {"data.yaml": b"train: images\nnames: [cat]"})
    flags = ["convert", "pets", "--format", "yolo", "-o", "out"]
    for name in "ab":
        draw_jpeg(tmp_path / f"pets/images/{name}.jpg", colour=(ord(name), 60, 50))
        write_files(tmp_path / "pets", {f"labels/{name}.txt": b"0 .5 .5 .2 .2"})
        done = recordmill(*flags, *["--add"] * (name != "a"))
        assert done.code == 0, done
    assert run_counts(tmp_path / "out")["written"] == 1
    done = recordmill(*flags, "--add")
    assert (done.code, "2 images were present" in done.out) == (0, True), done
