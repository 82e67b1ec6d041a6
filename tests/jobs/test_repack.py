"""Whole jobs of `repack`. A repacked folder is, file by file, the one that a conversion with `--container` writes."""

import json
import shlex
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

import recordmill as library
from recordmill.schemas.containers import CONTAINERS, TFRECORD
from recordmill.schemas.dataset.manifest import decode_manifest, encode_manifest
from recordmill.schemas.shards import SIZING_OPTIONS
from tests.conftest import every_kind
from tests.faults.warm_process import Command, write_in_forked_processes_only
from tests.jobs.folders import differing_files, whole_folder
from tests.literal_data import write_files

OTHERS = [
    pytest.param(name, marks=pytest.mark.skipif(not row.is_installed, reason=f"without extra {row.extra}"))
    for name, row in CONTAINERS.items()
    if name != TFRECORD
]


@pytest.fixture
def convert(copy_converted, tmp_path):
    """Returns a function that converts the sample to two splits of two shards, in a folder of `tmp_path`."""

    def copy(name: str, *more: object) -> Path:
        copy_converted(tmp_path / name, "--split", "train=0.75,val=0.25", "--num-shards", 2, *more)
        return tmp_path / name

    return copy


@pytest.mark.parametrize("container", OTHERS)
def test_folder_is_that_of_a_conversion(container, sample, recordmill, tmp_path):
    """Every kind of annotation, rejects, duplicates, two splits. It goes back to the same TFRecords, and both commands
    find it complete."""
    flags = [*every_kind(sample), "--masks", "rle", "--split", "train=0.7,val=0.3", "--num-shards", 3]
    one, other, out, back = (tmp_path / name for name in ("tfrecord", "other", "out", "back"))
    assert recordmill("convert", *flags, "--output", one).code == 0
    assert recordmill("convert", *flags, "--output", other, "--container", container).code == 0
    repacked = recordmill("repack", one, out, "--container", container)
    assert repacked.code == 0, repacked
    assert differing_files(out, other) == []
    assert recordmill("repack", out, back, "--container", TFRECORD).code == 0
    assert differing_files(back, one) == []
    again = recordmill("convert", *flags, "--output", out, "--container", container).out
    assert "already has all these splits" in again
    assert "is already complete" in recordmill("repack", one, out, "--container", container).out
    assert recordmill("verify", out, "--check", "decode").code == 0
    assert differing_files(out, other) == []


@pytest.mark.parametrize("container", OTHERS)
def test_readers_return_values_of_tfrecords(container, convert, recordmill, tmp_path):
    assert recordmill("repack", convert("one", "--masks", "rle"), tmp_path / "out", "--container", container).code == 0
    one, other = (library.open(tmp_path / name)["train"] for name in ("one", "out"))
    expected = list(one)
    numbers = [len(one) - 1, 0, 17, 3]
    with_threads, grain = list(other.numpy(threads=2, keys=list(one.features))), other.grain(pad=30)
    for given, wanted in (
        (other, expected),
        (with_threads, expected),
        (other.tensorflow().as_numpy_iterator(), one.tensorflow().as_numpy_iterator()),
        (other.tensorflow(4, pad=30, resize=(8, 8)).as_numpy_iterator(), one.tensorflow(4, pad=30, resize=(8, 8))),
        (grain._getitems(numbers), one.grain(pad=30)._getitems(numbers)),
        ((other[number] for number in numbers), (expected[number] for number in numbers)),
    ):
        for example, same in zip(given, wanted, strict=True):
            assert example.keys() == same.keys()
            for key, value in example.items():
                np.testing.assert_array_equal(value, same[key], key)


@pytest.mark.parametrize("container", [name for name in OTHERS if name.values[0] != "webdataset"])
def test_rows(container, recordmill, tmp_path):
    rows = [f'{{"id": {number}, "kind": "{"ab"[number % 2]}", "sizes": [{number}.5]}}\n' for number in range(30)]
    write_files(tmp_path, {"rows.jsonl": "".join(rows)})
    flags = ["convert", tmp_path / "rows.jsonl", "--split", "train=0.7,val=0.3", "--key", "id", "--label", "kind"]
    for name, more in (("one", ()), ("other", ("--container", container))):
        assert recordmill(*flags, "--output", tmp_path / name, *more).code == 0
    assert recordmill("repack", tmp_path / "one", tmp_path / "out", "--container", container).code == 0
    assert differing_files(tmp_path / "out", tmp_path / "other") == []


def test_texts_have_their_encoders(recordmill, tmp_path):
    rows = [f'{{"id": {number}, "note": "{"aa bb cc dd"[: 2 + number % 9]}"}}\n' for number in range(30)]
    write_files(tmp_path, {"rows.jsonl": "".join(rows)})
    flags = ["convert", tmp_path / "rows.jsonl", "--key", "id", "--text", "tfidf", "--text-column", "note"]
    outcome = recordmill(*flags, "--output", tmp_path / "one")
    assert outcome.code == 0, outcome
    assert recordmill("repack", tmp_path / "one", tmp_path / "out", "--container", TFRECORD, "--gzip").code == 0
    assert recordmill(*flags, "--output", tmp_path / "gzip", "--gzip").code == 0
    assert differing_files(tmp_path / "out", tmp_path / "gzip") == []


def test_gzip(convert, recordmill, tmp_path):
    plain, compressed = convert("plain"), convert("compressed", "--gzip")
    for source, name, more in ((plain, "out", ("--gzip",)), (compressed, "back", ())):
        assert recordmill("repack", source, tmp_path / name, "--container", TFRECORD, *more).code == 0
    assert differing_files(tmp_path / "out", compressed) == []
    assert differing_files(tmp_path / "back", plain) == []


@pytest.mark.skipif(not CONTAINERS["arrayrecord"].is_installed, reason="without extra arrayrecord")
def test_names_of_keras(sample, recordmill, tmp_path):
    """A shard's number is in another place of its name, and an image has several records."""
    flags = ["convert", "--images", sample.images, "--instances", sample.instances, "--max-rejects", 0.2]
    flags += ["--layout", "keras", "--num-shards", 3, "--output"]
    containers = {"gzip": ("--container", TFRECORD, "--gzip"), "other": ("--container", "arrayrecord")}
    for name, more in {"one": (), **containers}.items():
        assert recordmill(*flags, tmp_path / name, *more).code == 0
    for name, more in containers.items():
        assert recordmill("repack", tmp_path / "one", tmp_path / f"{name}-out", *more).code == 0
        assert differing_files(tmp_path / f"{name}-out", tmp_path / name) == []
    assert recordmill("repack", tmp_path / "other", tmp_path / "back", "--container", TFRECORD).code == 0
    assert differing_files(tmp_path / "back", tmp_path / "one") == []


def resize(folder: Path, **sizing: int) -> None:
    """Edit the recipes of a folder, as if its shards had been written in other sizes."""
    for path in folder.glob("manifest*.json"):
        manifest, splits = decode_manifest(path.read_bytes(), ""), {}
        for name, split in manifest.splits.items():
            options = {key: value for key, value in split.recipe.options.items() if key not in SIZING_OPTIONS} | sizing
            recipe = msgspec.structs.replace(split.recipe, options=options)
            splits[name] = msgspec.structs.replace(split, recipe=recipe)
        path.write_bytes(encode_manifest(msgspec.structs.replace(manifest, splits=splits, sha256="")))


_OF_CUT_IMAGES = {"fingerprints", "manifest", "report", "statistics"}
"""Lists that describe the first part of an image whose annotations lie in two shards."""


@pytest.mark.parametrize(
    ("flags", "before", "sizing", "container"),
    [
        ("--masks rle --split train=0.7,val=0.3", {"num_shards": 5}, {"shard_size": 60_000}, ""),
        ("--container parquet", {"shard_size": 40_000}, {"num_shards": 3}, "webdataset"),
        ("--tile 64 --container arrayrecord", {"examples_per_shard": 30}, {"num_shards": 3}, "tfrecord"),
        ("--layout keras --gzip --seed 3", {"examples_per_shard": 17}, {"examples_per_shard": 10}, ""),
    ],
)
def test_replan_is_a_conversion(flags, before, sizing, container, sample, recordmill, tmp_path):
    """Shards of other sizes are planned, with every list, as a conversion writes them."""
    rows = [CONTAINERS[name] for name in (*flags.split(), container) if name in CONTAINERS]
    if extras := [row.extra for row in rows if not row.is_installed]:
        pytest.skip(f"without extra {', '.join(extras)}")
    convert = ["convert", "--images", sample.images, "--instances", sample.instances, "--max-rejects", 0.2]
    convert += shlex.split(flags)
    to = ["--container", container] * bool(container)
    for name, sizes, more in (("one", before, ()), ("other", sizing, to)):
        (option, number), *_ = sizes.items()
        size = f"--{option.replace('_', '-')}", number
        written = recordmill(*convert, *size, *more, "--output", tmp_path / name)
        assert written.code == 0, written
    resize(tmp_path / "one", **sizing)
    repacked = recordmill("repack", tmp_path / "one", tmp_path / "out", "--replan", *to)
    assert (repacked.code, "may differ" in repacked.out) == (0, False), repacked
    differing = {
        name.partition(".")[0].partition("-")[0] for name in differing_files(tmp_path / "out", tmp_path / "other")
    }
    assert differing <= (_OF_CUT_IMAGES if "keras" in flags else set())
    assert recordmill("verify", tmp_path / "out", "--check", "decode").code == 0
    again = recordmill("repack", tmp_path / "one", tmp_path / "out", "--replan", *to)
    assert "is already complete" in again.out, again


def write_part(sample, folder: Path, chosen: slice, broken: int | None = None) -> Path:
    """Write some images of the sample as a data set; one of them with other bytes that are no image."""
    annotations = json.loads(Path(sample.instances).read_text())
    images = annotations["images"][chosen]
    ids = {image["id"] for image in images}
    rows = [row for row in annotations["annotations"] if row["image_id"] in ids]
    files = {"instances.json": json.dumps({**annotations, "images": images, "annotations": rows})}
    write_files(folder, files)
    for number, image in enumerate(images):
        source, path = Path(sample.images) / image["file_name"], folder / "images" / image["file_name"]
        if source.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * source.stat().st_size if number == broken else source.read_bytes())
    return folder


@pytest.mark.parametrize(
    ("flags", "sizes", "later"),
    [
        ("", "--num-shards 3", "--num-shards 4"),
        ("--layout keras --gzip", "--examples-per-shard 10", "--examples-per-shard 7"),
        ("--tile 64 --container webdataset", "--shard-size 60KB", "--num-shards 1"),
    ],
)
def test_replan_of_grown_data_set_is_a_conversion(flags, sizes, later, sample, recordmill, tmp_path):
    """An image that is broken at first is delivered again."""
    parts = [(slice(0, 15), 4), (slice(4, 20), None), (slice(20, None), None)]
    more = ["--max-rejects", 1, *shlex.split(flags)]
    out, new = tmp_path / "out", tmp_path / "new"
    for number, (chosen, broken) in enumerate(parts):
        part = write_part(sample, tmp_path / f"part{number}", chosen, broken)
        size = shlex.split(later if number else sizes)
        added = recordmill("convert", part, "-o", out, *more, *size, *["--add"] * (number > 0))
        assert added.code == 0, added
    every = write_part(sample, tmp_path / "every", slice(None))
    assert recordmill("convert", every, "-o", tmp_path / "all", *more, *shlex.split(sizes)).code == 0
    replanned = recordmill("repack", out, new, "--replan")
    assert (replanned.code, "may differ" in replanned.out, "TFDS" in replanned.out) == (0, False, False), replanned
    described = {"manifest", "rejects", "report"} | (_OF_CUT_IMAGES if "keras" in flags else set())
    differing = differing_files(new, tmp_path / "all")
    assert {name.partition(".")[0].partition("-")[0] for name in differing} <= described
    assert recordmill("verify", new, "--check", "decode").code == 0
    assert "is already complete" in recordmill("repack", out, new, "--replan").out


def test_replan_counts_images_of_shards_that_rejects_left_empty(sample, recordmill, tmp_path):
    out, new, whole = tmp_path / "out", tmp_path / "new", tmp_path / "all"
    more = ["--max-rejects", 1, "--num-shards"]
    assert recordmill("convert", write_part(sample, tmp_path / "a", slice(0, 15)), "-o", out, *more, 3).code == 0
    every = write_part(sample, tmp_path / "b", slice(None), broken=20)
    assert recordmill("convert", every, "-o", out, *more, 30, "--add").code == 0
    assert recordmill("repack", out, new, "--replan").code == 0
    assert recordmill("convert", every, "-o", whole, *more, 3).code == 0
    shards = [path.name for path in sorted(whole.glob("*tfrecord*"))]
    assert [(new / name).read_bytes() for name in shards] == [(whole / name).read_bytes() for name in shards]


def test_grown_data_set_is_numbered_again(sample, recordmill, tmp_path):
    out = tmp_path / "out"
    for number, chosen in enumerate((slice(0, 20), slice(20, None))):
        part = write_part(sample, tmp_path / f"part{number}", chosen)
        flags = "--max-rejects", 1, "--num-shards", 2, *["--add"] * number
        assert recordmill("convert", part, "-o", out, *flags).code == 0
    assert (out / "coco-train.tfrecord-00003-of-00004").exists()
    repacked = recordmill("repack", out, tmp_path / "new", "--container", TFRECORD, "--gzip")
    assert (repacked.code, "TFDS" in repacked.out) == (0, False), repacked
    names = sorted(name for name in whole_folder(tmp_path / "new") if name.startswith("coco-"))
    assert names == [f"coco-train.tfrecord-0000{number}-of-00004.gz" for number in range(4)]
    assert recordmill("verify", tmp_path / "new", "--check", "decode").code == 0


def test_replan_of_other_shards_is_no_repack_of_these(convert, recordmill, tmp_path):
    one, out = convert("one"), tmp_path / "out"
    resize(one, num_shards=3)
    planned = recordmill("repack", one, out, "--replan", "--dry-run")
    assert (planned.code, "3 of about" in planned.out, out.exists()) == (0, True, False), planned
    assert recordmill("repack", one, out, "--container", TFRECORD, "--gzip").code == 0
    refused = recordmill("repack", one, out, "--replan", "--container", TFRECORD, "--gzip")
    assert (refused.code, "has another version of split" in refused.err) == (2, True), refused


def test_replan_continues(convert, recordmill, tmp_path):
    """A damaged shard is named; the other shards stay."""
    one, out = convert("one"), tmp_path / "out"
    resize(one, num_shards=3)
    path = one / "coco-train.tfrecord-00001-of-00002"
    data = path.read_bytes()
    flip(path)
    failed = recordmill("repack", one, out, "--replan")
    assert (failed.code, failed.err.count(str(path))) == (1, 1), failed
    path.write_bytes(data)
    assert "Resuming an unfinished run" in recordmill("repack", one, out, "--replan").out
    assert recordmill("verify", out).code == 0
    assert "coco-train.tfrecord-00002-of-00003" in whole_folder(out)


def forget_images(one: Path) -> None:
    for path in one.glob("manifest*.json"):
        manifest = decode_manifest(path.read_bytes(), "")
        splits = {
            name: msgspec.structs.replace(split, images_sha256=msgspec.UNSET) for name, split in manifest.splits.items()
        }
        path.write_bytes(encode_manifest(msgspec.structs.replace(manifest, splits=splits, sha256="")))


def test_replan_needs_images(convert, recordmill, tmp_path):
    one = convert("one")
    forget_images(one)
    refused = recordmill("repack", one, tmp_path / "out", "--replan")
    assert (refused.code, "has no images-train.jsonl" in refused.err) == (2, True), refused


def test_replan_of_rows_is_refused(recordmill, tmp_path):
    write_files(tmp_path, {"rows.jsonl": '{"id": 1}\n{"id": 2}\n'})
    assert recordmill("convert", tmp_path / "rows.jsonl", "--key", "id", "--output", tmp_path / "one").code == 0
    refused = recordmill("repack", tmp_path / "one", tmp_path / "out", "--replan")
    assert (refused.code, "rows of a table" in refused.err) == (2, True), refused


def test_dry_run_writes_nothing(convert, recordmill, tmp_path):
    outcome = recordmill("repack", convert("one"), tmp_path / "out", "--container", "webdataset", "--dry-run")
    assert outcome.code == 0, outcome
    assert "coco-val-000000.tar to coco-val-000001.tar" in outcome.out
    assert not (tmp_path / "out").exists()


def test_bucket(convert, recordmill, gcs, tmp_path):
    """From a folder to a bucket, and back."""
    one = convert("one")
    assert recordmill("repack", one, f"{gcs.root}/out", "--container", "webdataset").code == 0
    assert recordmill("repack", f"{gcs.root}/out", tmp_path / "back", "--container", TFRECORD).code == 0
    assert differing_files(tmp_path / "back", one) == []


def test_forked_processes(convert, tmp_path):
    one, out = convert("one"), tmp_path / "out"
    flags = ["repack", one, out, "--container", "webdataset"]
    command = Command(flags, tmp_path / "log", disturbance=write_in_forked_processes_only).end()
    assert command.code == 0, command
    other = convert("other", "--container", "webdataset")
    assert differing_files(out, other) == ["report.html"]  # the other one is empty


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[300] ^= 4
    path.write_bytes(data)


def swap(path: Path) -> None:
    path.write_bytes(path.with_name(path.name.replace("00001-of", "00000-of")).read_bytes())


@pytest.mark.parametrize("damage", [flip, swap, Path.unlink])
def test_damaged_shard_is_named(damage, convert, recordmill, tmp_path):
    """Nothing is committed; with the shard in its place again, the run continues."""
    one, out = convert("one"), tmp_path / "out"
    path = one / "coco-train.tfrecord-00001-of-00002"
    data = path.read_bytes()
    damage(path)
    failed = recordmill("repack", one, out, "--container", "webdataset")
    assert (failed.code, failed.err.count(str(path))) == (1, 1)
    assert [name for name in whole_folder(out) if not name.startswith(".")] == []
    path.write_bytes(data)
    assert "Resuming an unfinished run" in recordmill("repack", one, out, "--container", "webdataset").out
    assert differing_files(out, convert("other", "--container", "webdataset")) == []


def test_cures_of_the_same_container(convert, recordmill, tmp_path):
    """Each works as printed."""
    one = convert("one")
    refused = recordmill("repack", one, tmp_path / "out", "--container", TFRECORD)
    assert (refused.code, "Add --gzip" in refused.err) == (2, True)
    assert recordmill("repack", one, tmp_path / "out", "--container", TFRECORD, "--gzip").code == 0


def edit_statistics(one: Path) -> None:
    path = one / "statistics-train.json"
    path.write_text(path.read_text() + " ")


def interrupt(one: Path) -> None:
    (one / ".recordmill-test").mkdir()
    (one / ".recordmill-test" / "recipe.json").write_text("{}")


def use_format_9(one: Path) -> None:
    path = one / "manifest.json"
    path.write_text(path.read_text().replace('"format": 1,', '"format": 9,', 1))


@pytest.mark.parametrize(
    ("change", "target", "flags", "said"),
    [
        (None, "one", "webdataset", "is the folder of the data set itself"),
        (None, "one/../one", "webdataset", "is the folder of the data set itself"),
        (None, "strange", "webdataset", "is not empty"),
        (None, "nested", "webdataset", "is not empty (a/b.txt)"),
        (None, "one/sub", "webdataset", "in the folder of the data set"),
        (None, "other", "webdataset", "has another data set"),
        (None, "new", "tfrecord", "already has --container tfrecord"),
        (None, "new", "webdataset --gzip", "--gzip does not compress"),
        (None, "new", "webdataset --replan --gzip", "--gzip does not compress"),
        (interrupt, "new", "webdataset", "has an unfinished run of test"),
        (edit_statistics, "new", "webdataset", "statistics-train.json: edited"),
        (use_format_9, "new", "webdataset", "has manifest format 9"),
        (lambda one: (one / "manifest.json").unlink(), "new", "webdataset", "has no manifest.json"),
    ],
)
def test_refused(change, target, flags, said, convert, recordmill, tmp_path):
    one = convert("one")
    write_files(tmp_path / "strange", {"a.txt": "a"})
    write_files(tmp_path / "nested", {"a/b.txt": "a"})
    shutil.copytree(one, tmp_path / "other")
    if change:
        change(one)
    before = whole_folder(tmp_path)
    refused = recordmill("repack", one, tmp_path / target, "--container", *shlex.split(flags))
    assert (refused.code, refused.out, len(refused.err.splitlines())) == (2, "", 1)
    assert said in refused.err
    assert whole_folder(tmp_path) == before


def test_empty_shards_need_fewer(copy_converted, recordmill, tmp_path):
    copy_converted(tmp_path / "one", "--num-shards", 30)
    refused = recordmill("repack", tmp_path / "one", tmp_path / "out", "--container", "webdataset")
    assert (refused.code, "smaller --num-shards" in refused.err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_masks_as_pngs(sample, recordmill, tmp_path):
    assert recordmill("convert", *every_kind(sample), "--masks", "both", "--output", tmp_path / "one").code == 0
    refused = recordmill("repack", tmp_path / "one", tmp_path / "out", "--container", "webdataset")
    assert (refused.code, "Convert again with --masks rle" in refused.err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_source_was_written_again(convert, recordmill, tmp_path):
    """With other images of the same names, so that its recipe is the same."""
    one, out = convert("one"), tmp_path / "out"
    assert recordmill("repack", one, out, "--container", "webdataset").code == 0
    for path in one.glob("manifest*.json"):
        manifest = decode_manifest(path.read_bytes(), "")
        splits = {name: msgspec.structs.replace(split, findings={"dark": 1}) for name, split in manifest.splits.items()}
        path.write_bytes(encode_manifest(msgspec.structs.replace(manifest, splits=splits, sha256="")))
    refused = recordmill("repack", one, out, "--container", "webdataset")
    assert (refused.code, "with other images or shards. Delete " in refused.err) == (2, True), refused
