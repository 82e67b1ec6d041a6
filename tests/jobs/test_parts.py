"""Jobs in parts, which share only the output: `--part K/N`, and `seal`. Oracle: the folder that one job writes."""

import os
import shutil
from pathlib import Path

import pytest

from recordmill.launch.verbs import convert as convert_module
from recordmill.schemas.containers import CONTAINERS, TFRECORD
from recordmill.schemas.errors import ConfigError
from recordmill.transforms.shards import seal_parts
from tests.conftest import every_kind, staged_shards
from tests.jobs.folders import differing_files, draw, draw_all, whole_folder, write_table

CONTAINER_NAMES = [
    pytest.param(name, marks=pytest.mark.skipif(not row.is_installed, reason=f"without extra {row.extra}"))
    for name, row in CONTAINERS.items()
]


def write_parts(recordmill, flags: list, output: Path, parts: list[str]) -> None:
    for part in parts:
        outcome = recordmill(*flags, "--output", output, "--part", part)
        assert outcome.code == 0, outcome


def seal(recordmill, output: Path, *more: object) -> str:
    """What `seal` prints of a data set that it completes."""
    outcome = recordmill("seal", output, *more)
    assert outcome.code == 0, outcome
    return outcome.out


def error(recordmill, *command: object) -> str:
    """The single line of a command that is wrong."""
    outcome = recordmill(*command)
    assert outcome.code == 2, outcome
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("recordmill: ")]
    return line


def assert_equals_one_job(recordmill, flags: list, folder: Path, parts: list[str]) -> None:
    one, out = folder / "one", folder / "out"
    whole = recordmill(*flags, "--output", one)
    assert whole.code == 0, whole
    write_parts(recordmill, flags, out, parts)
    assert not (out / "manifest.json").exists()
    seal(recordmill, out)
    assert differing_files(one, out) == []


def coco(sample, *more: object) -> list:
    return ["convert", "--images", sample.images, "--instances", sample.instances, "--max-rejects", 0.2, *more]


@pytest.fixture
def flags(sample) -> list:
    return coco(sample, "--split", "train=0.7,val=0.3", "--num-shards", 4)


@pytest.fixture(scope="module")
def folders() -> dict[str, Path]:
    """Folders that several tests begin with, by name."""
    return {}


@pytest.fixture
def one(folders, flags, recordmill, tmp_path_factory) -> Path:
    """The folder that one job writes."""
    if "one" not in folders:
        folder = tmp_path_factory.mktemp("one")
        assert recordmill(*flags, "--output", folder).code == 0
        folders["one"] = folder
    return folders["one"]


@pytest.fixture
def two_of_three(folders, flags, recordmill, tmp_path, tmp_path_factory) -> Path:
    """An output with parts 0/3 and 1/3."""
    if "parts" not in folders:
        folder = tmp_path_factory.mktemp("parts")
        write_parts(recordmill, flags, folder, ["0/3", "1/3"])
        folders["parts"] = folder
    return shutil.copytree(folders["parts"], tmp_path / "out")


@pytest.fixture
def three_of_three(folders, flags, two_of_three, recordmill, tmp_path_factory) -> Path:
    """An output with all parts, which is not sealed."""
    if "all" not in folders:
        write_parts(recordmill, flags, two_of_three, ["2/3"])
        folders["all"] = shutil.copytree(two_of_three, tmp_path_factory.mktemp("all") / "out")
    shutil.rmtree(two_of_three)
    return shutil.copytree(folders["all"], two_of_three)


@pytest.mark.parametrize("container", CONTAINER_NAMES)
def test_every_container(container, sample, recordmill, tmp_path):
    """Rejects, duplicates, two splits; in TFRecords every kind of annotation; parts in any order."""
    inputs = ["convert", *every_kind(sample), "--masks", "rle"] if container == TFRECORD else coco(sample)
    flags = [*inputs, "--split", "train=0.7,val=0.3", "--num-shards", 3, "--container", container]
    assert_equals_one_job(
        recordmill, flags, tmp_path, ["2/3", "0/3", "1/3"] if container == TFRECORD else ["1/2", "0/2"]
    )


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(("--shard-size", "20kB", "--gzip"), id="gzip"),
        pytest.param(("--layout", "keras", "--examples-per-shard", 9), id="objects of an image in two shards"),
        pytest.param(("--limit", 15, "--max-per-class", 9, "--num-shards", 5), id="limits"),
        pytest.param(("--tile", 48, "--tile-overlap", 0.2, "--num-shards", 5), id="tiles"),
    ],
)
def test_options(more, sample, recordmill, tmp_path):
    assert_equals_one_job(recordmill, coco(sample, *more), tmp_path, ["0/2", "1/2"])


def test_class_folders(recordmill, tmp_path):
    """Listings, folders of splits, a class map, copies that are dropped."""
    folder = draw_all(
        tmp_path / "images",
        [f"{split}/{name}/{n}.png" for split in ("train", "val") for name in ("a", "b", "c") for n in range(4)],
    )
    shutil.copy(folder / "train/a/1.png", folder / "train/a/copy.png")
    names = write_table(tmp_path / "map.csv", [["a", "x"], ["b", "x"]])
    flags = ["convert", folder, "--class-map", names, "--duplicates", "drop", "--num-shards", 3]
    assert_equals_one_job(recordmill, flags, tmp_path, ["1/2", "0/2"])


def test_several_sets(copy_converted, recordmill, tmp_path):
    copy_converted(tmp_path / "converted")
    for name in ("yolo", "voc"):
        assert recordmill("extract", tmp_path / "converted", tmp_path / name, "--as", name).code == 0
    flags = ["convert", tmp_path / "yolo", tmp_path / "voc", "--num-shards", 3]
    assert_equals_one_job(recordmill, flags, tmp_path, ["1/2", "0/2"])


def test_rows_with_images(recordmill, tmp_path):
    draw_all(tmp_path / "images", [f"{number}.png" for number in range(12)])
    rows = [["id", "path", "kind"], *([number, f"{number}.png", "ab"[number % 2]] for number in range(12))]
    table = write_table(tmp_path / "rows.csv", rows)
    flags = ["convert", table, "--images", tmp_path / "images", "--image-column", "path", "--label", "kind"]
    assert_equals_one_job(recordmill, [*flags, "--num-shards", 3], tmp_path, ["1/2", "0/2"])


def test_captions_with_saved_encoders(sample, recordmill, tmp_path):
    flags = ["convert", "--images", sample.images, "--captions", sample.captions, "--caption-text", "tokens"]
    flags += ["--max-rejects", 0.2]
    assert recordmill(*flags, "--output", tmp_path / "fitted").code == 0
    saved = [*flags, "--encoders", tmp_path / "fitted", "--num-shards", 3]
    assert_equals_one_job(recordmill, saved, tmp_path, ["0/2", "1/2"])


def test_more_parts_than_shards(sample, recordmill, tmp_path):
    flags = coco(sample, "--num-shards", 1)
    outcome = recordmill(*flags, "--output", tmp_path / "out", "--part", "1/2")
    assert "none of 1 shard of train\n" in outcome.out, outcome
    assert_equals_one_job(recordmill, flags, tmp_path, ["0/2"])


def test_dry_run_lists_shards_of_part(flags, recordmill, tmp_path):
    plan = recordmill(*flags, "--output", tmp_path / "out", "--part", "1/3", "--dry-run")
    assert plan.out.endswith(
        "  part 1/3            1 of 4 shards of train: 1\n                      1 of 4 shards of val: 1\n"
    ), plan
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("part", ["16/16", "a/b", "0/0", "3", "1/100000", "0/2/3", "-1/2"])
def test_wrong_part(part, sample, recordmill, tmp_path):
    assert f"--part {part!r}: " in error(recordmill, *coco(sample, "--output", tmp_path / "out", f"--part={part}"))


def test_refused_options(sample, recordmill, tmp_path):
    part = ["--part", "0/2", "--output", tmp_path / "out"]
    table = write_table(tmp_path / "rows.csv", [["id", "note"], [1, "aa bb"]])
    texts = ["--captions", sample.captions, "--caption-text", "tokens"]
    for command in (
        coco(sample, *part, "--writer", "beam"),
        ["convert", table, "--key", "id", *part],
        [
            "convert",
            table,
            "--format",
            "table",
            "--image-column",
            "id",
            "--text",
            "counts",
            "--text-column",
            "note",
            *part,
        ],
        ["convert", "--images", sample.images, *texts, *part],
    ):
        assert "--part" in error(recordmill, *command)
    assert not (tmp_path / "out").exists()


def test_part_that_runs_again(flags, two_of_three, recordmill):
    """Its shards are kept, or those that are missing are written again; other parts' shards are not touched."""
    out = two_of_three
    before = {name: path.stat().st_mtime_ns for name, path in staged_shards(out).items()}
    assert "Part 0/3 in" in (again := recordmill(*flags, "--output", out, "--part", "0/3").out)
    assert "was complete already" in again
    shards = staged_shards(out)
    assert {name: path.stat().st_mtime_ns for name, path in shards.items()} == before
    shards["coco-train.tfrecord-00003-of-00004"].unlink()
    write_parts(recordmill, flags, out, ["2/3"])
    assert "train 3 of 4. Run the same command again with --part 0/3" in error(recordmill, "seal", out)
    assert "has 3 finished shards" not in recordmill(*flags, "--output", out, "--part", "0/3").out.splitlines()[1:]
    after = {name: path.stat().st_mtime_ns for name, path in staged_shards(out).items()}
    assert {name for name in before if after[name] != before[name]} == {"coco-train.tfrecord-00003-of-00004"}
    seal(recordmill, out)
    assert "already has all these splits" in recordmill(*flags, "--output", out, "--part", "0/3").out
    assert "is already complete" in seal(recordmill, out)


def test_damaged_file_of_part(flags, recordmill, tmp_path):
    """An error of seal; the part writes it again."""
    out = tmp_path / "out"
    write_parts(recordmill, flags, out, ["0/1"])
    path = out / ".recordmill-val/part-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-9])
    assert "is damaged" in error(recordmill, "seal", out)
    write_parts(recordmill, flags, out, ["0/1"])
    seal(recordmill, out)


def test_missing_parts_are_named(flags, recordmill, tmp_path):
    out = tmp_path / "out"
    write_parts(recordmill, flags, out, ["1/4"])
    text = error(recordmill, "seal", out)
    assert "parts 0/4, 2/4, 3/4 of train and val are missing" in text
    assert text.endswith(f"with --part 0/4, --part 2/4, --part 3/4, and then: recordmill seal {out}")
    write_parts(recordmill, flags, out, ["1/2"])
    assert "There are parts of N = 4, too" in error(recordmill, "seal", out)
    write_parts(recordmill, flags, out, ["0/2"])
    seal(recordmill, out)


def test_folders_that_seal_refuses(flags, sample, recordmill, tmp_path):
    out = tmp_path / "out"
    for folder, fault in ((out, ": no such folder"), (sample.images, " has no part, and no manifest.json")):
        assert f"{folder}{fault}. Give the --output of the parts" in error(recordmill, "seal", folder)
    write_parts(recordmill, flags, out, ["0/2"])
    (out / ".recordmill-val/part-00000-of-00002").unlink()
    assert "has no finished part, and an unfinished run of train and val" in error(recordmill, "seal", out)


def test_parts_with_other_options(flags, one, two_of_three, recordmill):
    """Options of the recipe are refused by the part; others by seal, which may replace --max-rejects."""
    out = two_of_three
    text = error(recordmill, *flags, "--seed", 4, "--output", out, "--part", "2/3")
    assert "seed: default, now 4" in text
    assert "Give all parts of a job the same options" in text
    write_parts(recordmill, [*flags, "--duplicates", "fail"], out, ["2/3"])
    text = error(recordmill, "seal", out)
    assert "part 2/3 differs from parts 0/3, 1/3 (--duplicates: report, now fail)" in text
    write_parts(recordmill, [*flags, "--max-rejects", 0.3], out, ["2/3"])
    assert "(--max-rejects: 0.2, now 0.3)" in error(recordmill, "seal", out)
    seal(recordmill, out, "--max-rejects", 0.2)
    assert differing_files(one, out) == []


def test_parts_of_other_inputs(recordmill, tmp_path):
    """Times of files may differ between machines; names, sizes and paths may not."""
    folder = draw_all(tmp_path / "images", [f"{name}/{number}.png" for name in "ab" for number in range(6)])
    flags, out = ["convert", folder, "--num-shards", 3], tmp_path / "out"
    write_parts(recordmill, flags, out, ["0/3"])
    os.utime(folder / "a/1.png", (1e9, 1e9))
    write_parts(recordmill, flags, out, ["1/3"])
    draw(folder / "a/new.png", 7)
    write_parts(recordmill, flags, out, ["2/3"])
    text = error(recordmill, "seal", out)
    assert f"part 2/3 differs from parts 0/3, 1/3 (inputs: DATA {folder} (" in text
    (folder / "a/new.png").unlink()
    write_parts(recordmill, flags, out, ["2/3"])
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    assert f"images: {folder}, now {moved}" in error(
        recordmill, "convert", moved, *flags[2:], "--output", out, "--part", "2/3"
    )
    seal(recordmill, out)
    assert recordmill(*flags, "--output", tmp_path / "one").code == 0
    assert differing_files(tmp_path / "one", out) == []


def test_parts_with_files_of_other_sizes(sample, recordmill, tmp_path):
    """Two images changed places, so that totals are the same. No recipe has the images' sizes."""
    images = tmp_path / "images"
    shutil.copytree(sample.images, images)
    flags = [images if flag == sample.images else flag for flag in coco(sample, "--num-shards", 4)]
    out = tmp_path / "out"
    write_parts(recordmill, flags, out, ["0/2"])
    one, other = sorted(images.iterdir())[:2]
    one.rename(images / "third")
    other.rename(one)
    (images / "third").rename(other)
    write_parts(recordmill, flags, out, ["1/2"])
    assert "(names, sizes or labels of images)" in error(recordmill, "seal", out)


def test_parts_of_other_versions(flags, recordmill, monkeypatch, tmp_path):
    write_parts(recordmill, flags, tmp_path / "out", ["0/1"])
    versions = seal_parts.library_versions
    monkeypatch.setattr(seal_parts, "library_versions", lambda *_: {**versions("detection"), "pillow": "0.1"})
    text = error(recordmill, "seal", tmp_path / "out")
    assert "version of pillow: " in text
    assert ", now 0.1)" in text


def test_errors_that_only_whole_job_knows(three_of_three, recordmill):
    """Too many rejects. State and parts stay."""
    out = three_of_three
    refused = recordmill("seal", out, "--max-rejects", 0.01)
    assert refused.code == 1
    assert "more than --max-rejects 0.01 allows" in refused.err
    seal(recordmill, out)


def test_copies_in_two_parts_fail(recordmill, tmp_path):
    folder = draw_all(tmp_path / "images", ["a/1.png"])
    shutil.copy(folder / "a/1.png", folder / "a/copy.png")
    flags = ["convert", folder, "--format", "folder", "--classes", "a", "--num-shards", 2, "--duplicates", "fail"]
    write_parts(recordmill, flags, tmp_path / "out", ["0/2", "1/2"])
    refused = recordmill("seal", tmp_path / "out")
    assert refused.code == 1, refused
    assert "--duplicates fail" in refused.err


def test_error_of_one_part_keeps_shards_of_others(recordmill, tmp_path):
    """A machine that has a single image, so that a split has none: nothing that other parts wrote is deleted."""
    folder = draw_all(tmp_path / "images", [f"{name}/{number}.png" for name in "ab" for number in range(6)])
    flags, out = (
        [
            "convert",
            folder,
            "--classes",
            "a,b",
            "--format",
            "folder",
            "--num-shards",
            2,
            "--split",
            "train=0.5,val=0.5",
        ],
        tmp_path / "out",
    )
    write_parts(recordmill, flags, out, ["0/2"])
    before = whole_folder(out)
    for path in sorted(folder.glob("*/*.png"))[1:]:
        path.unlink()
    failed = recordmill(*flags, "--output", out, "--part", "1/2")
    assert "gets none of the 1 images" in failed.err, failed
    kept = whole_folder(out)
    assert {name: kept.get(name) for name in before} == before


def test_error_of_first_part_keeps_what_others_began(flags, recordmill, monkeypatch, tmp_path):
    """It noted the recipe, and fails before its first shard, while another part writes."""
    out, run_job = tmp_path / "out", convert_module.run_job

    def fail_after_other(*_: object) -> None:
        monkeypatch.setattr(convert_module, "run_job", run_job)
        write_parts(recordmill, flags, out, ["1/2"])
        raise ConfigError("this machine has no images")

    monkeypatch.setattr(convert_module, "run_job", fail_after_other)
    assert "this machine has no images" in error(recordmill, *flags, "--output", out, "--part", "0/2")
    write_parts(recordmill, flags, out, ["0/2"])
    seal(recordmill, out)


def test_overwrite(flags, one, recordmill, tmp_path):
    """Each part with the same --overwrite: the first begins again, the others join it. The old data set stays until
    seal."""
    out = tmp_path / "out"
    assert recordmill(*flags, "--seed", 9, "--output", out).code == 0
    old = whole_folder(out)
    write_parts(recordmill, [*flags, "--overwrite"], out, ["0/2", "1/2"])
    now = whole_folder(out)
    assert {name: now.get(name) for name in old} == old
    seal(recordmill, out)
    assert differing_files(one, out) == []
    write_parts(recordmill, [*flags, "--overwrite"], out, ["0/2"])
    assert "part 1/2" in error(recordmill, "seal", out)
    write_parts(recordmill, [*flags, "--overwrite"], out, ["1/2"])
    seal(recordmill, out)
    assert differing_files(one, out) == []


def test_jobs_of_two_splits(sample, recordmill, tmp_path):
    """Parts of two commands are in one folder; --split seals one of them."""
    out = tmp_path / "out"
    train, val = (coco(sample, "--split", split, "--num-shards", 2) for split in ("train", "val"))
    write_parts(recordmill, train, out, ["0/2", "1/2"])
    write_parts(recordmill, val, out, ["0/2"])
    assert "part 1/2 of val is missing" in error(recordmill, "seal", out)
    assert "has no parts of split test; it has parts of train, val" in error(recordmill, "seal", out, "--split", "test")
    seal(recordmill, out, "--split", "train")
    write_parts(recordmill, val, out, ["1/2"])
    seal(recordmill, out)
    for flags in (train, val):
        assert recordmill(*flags, "--output", tmp_path / "one").code == 0
    assert differing_files(tmp_path / "one", out) == []


def test_job_without_part_completes_parts(flags, one, two_of_three, recordmill):
    whole = recordmill(*flags, "--output", two_of_three)
    assert "which has 6 finished shards" in whole.out, whole
    assert differing_files(one, two_of_three) == []


def test_seal_that_was_killed_at_its_end(three_of_three, recordmill, tmp_path):
    """The data set is complete, and some of the state is left."""
    out = three_of_three
    left = tmp_path / "left"
    shutil.copytree(out / ".recordmill-val", left)
    seal(recordmill, out)
    whole = whole_folder(out)
    for path in left.glob("*"):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in ("part-00001-of-00003", "recipe.json"):
            path.unlink()
    shutil.copytree(left, out / ".recordmill-val")
    seal(recordmill, out)
    assert whole_folder(out) == whole


def test_buckets(gcs, sample, recordmill, tmp_path):
    for path in filter(Path.is_file, Path(sample.images).rglob("*")):
        gcs.put(f"images/{path.relative_to(sample.images)}", path.read_bytes())
    flags = ["convert", "--images", f"{gcs.root}/images", "--instances", sample.instances, "--max-rejects", 0.2]
    flags += ["--num-shards", 4]
    assert recordmill(*flags, "--output", f"{gcs.root}/one").code == 0
    write_parts(recordmill, flags, f"{gcs.root}/out", ["1/2", "0/2"])
    seal(recordmill, f"{gcs.root}/out")
    objects = gcs.objects()
    one, out = (
        {name.partition("/")[2]: data for name, data in objects.items() if name.startswith(f"{folder}/")}
        for folder in ("one", "out")
    )
    assert one == out
