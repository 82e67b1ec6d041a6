import hashlib
import io
import json
import shutil
from pathlib import Path

import msgspec
import pytest

from recordmill.schemas.dataset.checks import Faults, ShardCheck
from recordmill.schemas.dataset.manifest import (
    FORMAT,
    Manifest,
    SplitManifest,
    decode_manifest,
    encode_json,
    encode_manifest,
)
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.statistics import SplitStatistics
from recordmill.transforms.shards.commit_splits import publish
from recordmill.transforms.storage.interface import compute_checksum
from recordmill.transforms.verify.check_folder import folder_faults
from tests.transforms.shards.test_describe_split import SHARDS, SPLIT

FOUND = {"train": ((6, 5), (2, 4)), "val": ((6, 100), (2, 200))}
"""How many records and objects each shard of a split has."""


REJECTS, REASONS = SPLIT.rejects, len(SPLIT.images.rejected) + len(SPLIT.annotations.rejected)


def split_manifest(name: str, split: SplitManifest = SPLIT) -> SplitManifest:
    recipe = msgspec.structs.replace(split.recipe, split=name)
    shards = tuple(msgspec.structs.replace(shard, file=shard.file.replace("train", name)) for shard in split.shards)
    return msgspec.structs.replace(split, recipe=recipe, shards=shards)


def plus(split: SplitManifest, part: str, *counts: str, by: int = 1) -> SplitManifest:
    """A split's manifest with other counts."""
    before = getattr(split, part) if part else split
    changed = msgspec.structs.replace(before, **{count: getattr(before, count) + by for count in counts})
    return msgspec.structs.replace(split, **{part: changed}) if part else changed


VAL = split_manifest("val")
VAL = msgspec.structs.replace(VAL, annotations=msgspec.structs.replace(VAL.annotations, rows=324, objects=300))


def write(folder: Path, train: SplitManifest = SPLIT, layout: str = "detection", **splits: SplitManifest) -> None:
    """The metadata of a data set."""
    for name, split in {"train": train, **splits}.items():
        write_alone(folder, name, split, layout)
    publish(str(folder))


def write_alone(
    folder: Path, name: str, split: SplitManifest, layout: str = "detection", rejects: bytes | None = None
) -> None:
    """What a job writes of its own split."""
    rejects = b"{}\n" * split.listed_rejects if rejects is None else rejects
    statistics = encode_json(SplitStatistics(9, {}, (), {name: 9}, (), (), {}, {}, 0))
    digests = {"rejects_sha256": rejects, "statistics_sha256": statistics}
    split = msgspec.structs.replace(
        split, **{field: hashlib.sha256(data).hexdigest() for field, data in digests.items()}
    )
    alone = Manifest(FORMAT, "coco", layout, (), (Category(1, "cat"), Category(2, "dog")), (), {name: split})
    (folder / f"manifest-{name}.json").write_bytes(encode_manifest(alone))
    (folder / f"rejects-{name}.jsonl").write_bytes(rejects)
    (folder / f"statistics-{name}.json").write_bytes(statistics)


def faults(folder: Path) -> list[tuple[str, str]]:
    checks = [
        ShardCheck(split, f"{split} {number}", examples, objects, 350, 0, Faults())
        for split, counts in FOUND.items()
        for number, (examples, objects) in enumerate(counts)
    ]
    return [(fault.file, fault.reason) for fault in folder_faults(str(folder), checks)]


@pytest.mark.parametrize(
    ("part", "counts"),
    [
        ("images", ()),
        ("images", ("written", "rows")),  # records
        ("images", ("rows",)),
        ("annotations", ("objects", "rows")),  # objects
        ("annotations", ("rows",)),
        ("", ("record_bytes",)),
    ],
)
@pytest.mark.parametrize(("name", "by"), [("train", 1), ("val", -1)])
def test_each_count_is_held_against_its_parts(tmp_path, part, counts, name, by):
    splits = {"train": SPLIT, "val": VAL}
    write(tmp_path, **splits | {name: plus(splits[name], part, *counts, by=by)})
    assert faults(tmp_path) == [("manifest.json", "count")] * bool(counts)


def test_sample_and_damaged_shard_say_nothing_of_sums(tmp_path):
    write(tmp_path, plus(SPLIT, "annotations", "objects", "rows"))
    checks = [ShardCheck("train", f"train {number}", *of, 350, 0, Faults()) for number, of in enumerate(FOUND["train"])]
    assert [fault.reason for fault in folder_faults(str(tmp_path), checks)] == ["count"]
    damaged = msgspec.structs.replace(checks[0], examples=checks[0].examples - 1)
    for fewer in (checks[1:], [damaged, *checks[1:]]):
        assert folder_faults(str(tmp_path), fewer) == []


def write_keras(folder: Path, examples: int) -> None:
    """A data set of one shard of so many records, an object each."""
    shards = (msgspec.structs.replace(SHARDS[0], file=f"file_00-{examples}.tfrec", examples=examples),)
    (folder / shards[0].file).touch()
    recipe = msgspec.structs.replace(SPLIT.recipe, layout="keras")
    write(folder, msgspec.structs.replace(SPLIT, shards=shards, recipe=recipe), "keras")


@pytest.mark.parametrize(("examples", "is_right"), [(9, True), (8, False)])
def test_where_record_is_of_object_as_many_records_as_objects(tmp_path, examples, is_right):
    write_keras(tmp_path, examples)
    assert faults(tmp_path) == [("manifest.json", "count")] * (not is_right)


def test_manifest_of_a_split_does_not_replace_that_of_the_folder(tmp_path):
    (tmp_path / "fingerprints-train.jsonl").touch()
    write(tmp_path, msgspec.structs.replace(SPLIT, fingerprints_sha256=hashlib.sha256(b"").hexdigest()))
    correct = faults(tmp_path)
    shutil.copy(tmp_path / "manifest-train.json", tmp_path / "manifest.json")  # it has no numbers of duplicates
    assert faults(tmp_path) == [("manifest.json", "edited"), *correct]


def test_file_named_as_shard_must_be_listed(tmp_path):
    write(tmp_path, val=VAL)
    for name in (*(shard.file for shard in (*SPLIT.shards, *VAL.shards)), "x-val.tfrecord-00000-of-00001", "x"):
        (tmp_path / name).touch()
    assert faults(tmp_path) == []
    strays = "coco-test.tfrecord-00000-of-00001", "coco-val.tfrecord-00000-of-00003.gz"
    for stray in strays:
        (tmp_path / stray).touch()
    assert faults(tmp_path) == [(stray, "unlisted") for stray in strays]


def edited(file: str, before: str, after: str):
    def edit(folder: Path) -> None:
        text = (folder / file).read_text()
        assert before in text
        (folder / file).write_text(text.replace(before, after))

    return edit


def in_place_of_a_file(name: str):
    def edit(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return edit


def without_splits(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "splits": {}}))


def renamed_and_sealed(folder: Path) -> None:
    """As by an editor that knows of the checksum."""
    manifest = decode_manifest((folder / "manifest.json").read_bytes(), "manifest.json")
    classes = Category(1, "dog"), Category(2, "cat")
    (folder / "manifest.json").write_bytes(encode_manifest(msgspec.structs.replace(manifest, categories=classes)))


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (edited("manifest.json", '"cat"', '"cow"'), ("manifest.json", "edited")),
        (without_splits, ("manifest.json", "count")),
        (renamed_and_sealed, ("manifest-train.json", "edited")),
        (edited("manifest-train.json", '"masks": 7', '"masks": 8'), ("manifest-train.json", "edited")),
        (edited("manifest-train.json", '"sha256": "', '"sha256": "0'), ("manifest-train.json", "edited")),
        (edited("manifest-train.json", '"format": 1,', '"format": 1, "more": 1,'), ("manifest-train.json", "edited")),
        (lambda folder: write_alone(folder, "test", split_manifest("test")), ("manifest-test.json", "unlisted")),
        (lambda folder: (folder / "manifest-train.json").unlink(), ("manifest-train.json", "missing")),
        (lambda folder: (folder / "rejects-train.jsonl").unlink(), ("rejects-train.jsonl", "missing")),
        (lambda folder: (folder / "rejects-train.jsonl").write_text("junk"), ("rejects-train.jsonl", "edited")),
        (lambda folder: (folder / "statistics-train.json").unlink(), ("statistics-train.json", "missing")),
        (edited("statistics-train.json", "train", "trail"), ("statistics-train.json", "edited")),
        (edited("statistics.json", "train", "trail"), ("statistics.json", "edited")),
        (lambda folder: (folder / "statistics.json").unlink(), ("statistics.json", "missing")),
        (edited("label_map.json", "dog", "cow"), ("label_map.json", "edited")),
        (edited("dataset_info.json", '"train"', '"test"'), ("dataset_info.json", "edited")),
        (lambda folder: (folder / "labels.csv").unlink(), ("labels.csv", "missing")),
        (in_place_of_a_file("labels.csv"), ("labels.csv", "missing")),
        (lambda folder: (folder / "schema.pbtxt").touch(), ("schema.pbtxt", "unlisted")),
        (in_place_of_a_file("rejects-train.jsonl"), ("rejects-train.jsonl", "missing")),
    ],
)
def test_edited_or_missing_files_are_found(tmp_path, edit, fault):
    write(tmp_path)
    assert faults(tmp_path) == []
    edit(tmp_path)
    assert fault in faults(tmp_path)


@pytest.mark.parametrize(
    ("most", "lines", "expected"),
    [
        (100_000, REJECTS - 1, [("rejects-train.jsonl", "count")]),
        (1, REJECTS, [("rejects-train.jsonl", "count")]),
        (1, REASONS, []),
    ],
)
def test_length_of_list_of_rejects(tmp_path, monkeypatch, most, lines, expected):
    monkeypatch.setattr("recordmill.schemas.dataset.manifest.MOST_LISTED", most)
    write(tmp_path, val=VAL)
    write_alone(tmp_path, "train", SPLIT, rejects=b"{}\n" * lines)
    publish(str(tmp_path))
    assert faults(tmp_path) == expected


def test_links_for_tfds_are_there_or_tfds_files_are_not(tmp_path):
    write_keras(tmp_path, 9)
    assert faults(tmp_path) == []
    (tmp_path / "coco-train.tfrecord-00000-of-00001").unlink()
    assert faults(tmp_path) == [("coco-train.tfrecord-00000-of-00001", "missing")]
    for file in ("dataset_info.json", "features.json", *(path.name for path in tmp_path.glob("*.labels.txt"))):
        (tmp_path / file).unlink()  # as in a bucket, which has no links
    assert faults(tmp_path) == []


def test_a_link_for_tfds_leads_to_its_shard(tmp_path):
    contents = {"file_00-9.tfrec": b"first", "file_01-9.tfrec": b"other"}
    shards = tuple(
        msgspec.structs.replace(
            shard, file=file, bytes=len(data), examples=9, crc32c=compute_checksum(io.BytesIO(data))[1]
        )
        for shard, (file, data) in zip(SPLIT.shards, contents.items(), strict=True)
    )
    write(tmp_path, msgspec.structs.replace(SPLIT, shards=shards), "keras")
    for file, data in contents.items():
        (tmp_path / file).write_bytes(data)
    first, second = (tmp_path / f"coco-train.tfrecord-0000{number}-of-00002" for number in (0, 1))
    correct = faults(tmp_path)
    first.unlink()
    first.write_bytes(b"first")  # a copy of the folder may have files in place of links
    assert (first.name, "edited") not in correct
    assert faults(tmp_path) == correct
    for target in ("file_00-9.tfrec", "manifest.json", first.name):
        second.unlink()
        second.symlink_to(target)
        assert faults(tmp_path) == [*correct, (second.name, "edited")]
    second.unlink()
    second.symlink_to(second.name)
    assert faults(tmp_path) == [*correct, (second.name, "missing")]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"alternativeFileFormats": ["array_record"]}, []),  # as TFDS's convert_format does
        ({"name": "another"}, [("dataset_info.json", "edited")]),
    ],
)
def test_additions_of_tfds_are_no_fault(tmp_path, change, expected):
    write(tmp_path)
    file = tmp_path / "dataset_info.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | change))
    assert faults(tmp_path) == expected
    for text in ("[]", "{"):
        file.write_text(text)
        assert faults(tmp_path) == [("dataset_info.json", "edited")]
