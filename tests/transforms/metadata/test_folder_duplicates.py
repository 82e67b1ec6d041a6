import json
import tracemalloc
from hashlib import sha256

import msgspec
import pytest

from recordmill.schemas.annotations import Category
from recordmill.schemas.duplicates import Fingerprints, SplitDuplicates
from recordmill.schemas.errors import DuplicatesError
from recordmill.schemas.layouts import CLASSIFICATION
from recordmill.schemas.manifest import FORMAT, Manifest
from recordmill.transforms.metadata.check_duplicates import check_complete_duplicates, check_duplicates
from recordmill.transforms.metadata.commit_splits import commit_splits
from recordmill.transforms.metadata.folder_duplicates import (
    duplicates_of,
    fingerprint_line,
    first_groups,
    read_fingerprints,
)
from tests.transforms.duplicates.test_find_duplicates import image, shard
from tests.transforms.metadata.test_commit_splits import of_split, stage, statistics_of

CATS = tuple(image(f"cat/{n}.jpg", n, labels=0 << 32) for n in range(6))
ALL = tuple(image(f"all/{n}.jpg", n, labels=1 << 32) for n in range(6))
OTHER = (image("cat/7.jpg", 7),)


def with_fingerprints(manifest: Manifest, lines: bytes) -> Manifest:
    """The manifest of one split, that has these."""
    ((split, entry),) = manifest.splits.items()
    entry = msgspec.structs.replace(entry, fingerprints_sha256=sha256(lines).hexdigest())
    return msgspec.structs.replace(manifest, splits={split: entry})


def fingerprint_lines(shards: list[Fingerprints]) -> bytes:
    return b"".join(map(fingerprint_line, shards))


def commit(folder, split: str, lines: bytes = b"") -> Manifest:
    """Commit a split whose shards have just been finished."""
    manifest = with_fingerprints(of_split(split), lines) if lines else of_split(split)
    stage(folder, manifest.splits[split].recipe, manifest.splits[split].shards)
    (folder / f".recordmill-{split}" / "fingerprints.jsonl").write_bytes(lines)
    return commit_splits(str(folder), manifest, statistics_of(manifest))


def written(folder, **splits: list[Fingerprints]) -> Manifest:
    """A folder of splits of which only fingerprints are there."""
    entries = {}
    for split, shards in splits.items():
        lines = fingerprint_lines(shards)
        (folder / f"fingerprints-{split}.jsonl").write_bytes(lines)
        entries |= with_fingerprints(of_split(split), lines).splits
    categories = (Category(1, "cat"), Category(2, "all"))
    return Manifest(FORMAT, "coco", "classification", (), categories, (), entries)


def test_all_splits_are_compared_and_classes_named(tmp_path):
    manifest = written(tmp_path, train=[shard("t1", *CATS), shard("t0", *OTHER)], val=[shard("v", *ALL)])
    found, lines = duplicates_of(str(tmp_path), manifest)
    assert (found.groups, found.leaks, found.copied_classes) == (6, 6, {"cat": 6})
    assert found.splits == {
        "train": SplitDuplicates(exact=6, leaked=6, labels_differ=6),
        "val": SplitDuplicates(exact=6, leaked=6, labels_differ=6),
    }
    assert found.sha256 == sha256(lines).hexdigest()
    first = json.loads(lines.splitlines()[0])
    assert [each["file_name"] for each in first["images"]] == ["cat/0.jpg", "all/0.jpg"]
    (tmp_path / "duplicates.jsonl").write_bytes(lines)
    assert [group.images[0].file_name for group in first_groups(str(tmp_path), 2)] == ["cat/0.jpg", "cat/1.jpg"]


def test_a_line_is_json():
    line = fingerprint_line(shard("0", *CATS))
    assert json.loads(line)["names"] == [f"cat/{number}.jpg" for number in range(6)]
    assert msgspec.json.decode(line, type=Fingerprints).array["labels"].tolist() == [0] * 6


DAMAGED = msgspec.structs.replace(shard("v", *ALL), rows=b"not whole rows")


@pytest.mark.parametrize("damaged", [b"\xff", b"", fingerprint_lines([DAMAGED])])
def test_without_fingerprints_or_with_damaged_ones_a_split_is_not_compared(tmp_path, damaged):
    assert duplicates_of(str(tmp_path), written(tmp_path)) is None
    manifest = written(tmp_path, train=[shard("t", *CATS)], val=[shard("v", *ALL)])
    (tmp_path / "fingerprints-val.jsonl").write_bytes(damaged)
    found, lines = duplicates_of(str(tmp_path), manifest)
    assert (list(found.splits), lines) == (["train"], b"")


def test_a_split_with_damaged_fingerprints_is_refused_where_duplicates_are(tmp_path):
    commit(tmp_path, "train", fingerprint_lines([shard("t", *CATS)]))
    commit(tmp_path, "val", fingerprint_lines([shard("v", *ALL)]))
    (tmp_path / "fingerprints-val.jsonl").write_bytes(b"")
    with pytest.raises(DuplicatesError, match=r"val of .* cannot be compared.*--overwrite"):
        check_duplicates(str(tmp_path), {"test": [shard("x", *OTHER)]}, CLASSIFICATION, "leakage")
    with pytest.raises(DuplicatesError, match=r"val of .* cannot be compared"):
        check_complete_duplicates(str(tmp_path), ["train", "val"], CLASSIFICATION, "leakage")


def test_a_list_that_is_not_there_or_cut_has_no_group(tmp_path):
    assert first_groups(str(tmp_path), 5) == []
    (tmp_path / "duplicates.jsonl").write_bytes(b'{"kind": "exa')
    assert first_groups(str(tmp_path), 5) == []


def test_a_split_without_fingerprints_leaves_none_of_the_one_before(tmp_path):
    lines = fingerprint_lines([shard("v", *ALL, *CATS)])
    for fingerprints in (lines, b""):
        whole = commit(tmp_path, "val", fingerprints)
        assert (whole.duplicates is not msgspec.UNSET) == bool(fingerprints)
        for name in ("fingerprints-val.jsonl", "duplicates.jsonl"):
            assert (tmp_path / name).exists() == bool(fingerprints)


@pytest.mark.parametrize(
    ("policy", "others", "own", "is_refused"),
    [
        ("leakage", CATS, (*OTHER, *OTHER), False),
        ("fail", CATS, (*OTHER, *OTHER), True),
        ("fail", (*CATS, *CATS), OTHER, False),  # which was there before
        ("leakage", CATS, ALL, True),
        ("fail", CATS, ALL, True),
        ("fail", CATS, OTHER, False),
    ],
)
def test_what_is_refused_is_of_the_job_s_splits(tmp_path, policy, others, own, is_refused):
    commit(tmp_path, "train", fingerprint_lines([shard("t", *others)]))
    listed = tmp_path / ".recordmill-val" / "duplicates.jsonl"
    args = (str(tmp_path), {"val": [shard("v", *own)]}, CLASSIFICATION, policy)
    if not is_refused:
        assert check_duplicates(*args) == {"train", "val"}
        assert not listed.exists()
        return
    with pytest.raises(DuplicatesError, match="of val") as error:
        check_duplicates(*args)
    assert str(listed) in str(error.value)
    groups = [json.loads(line) for line in listed.read_text().splitlines()]
    assert len(groups) == (6 if own is ALL else 1)


def test_a_split_that_is_replaced_is_not_compared_with_itself(tmp_path):
    commit(tmp_path, "val", fingerprint_lines([shard("v", *CATS)]))
    check_duplicates(str(tmp_path), {"val": [shard("v", *ALL)]}, CLASSIFICATION, "fail")
    check_duplicates(str(tmp_path), {}, CLASSIFICATION, "fail")


def test_of_the_file_of_fingerprints_nothing_else_is_kept(tmp_path):
    images = [image(f"{number}.jpg", number) for number in range(2000)]
    manifest = written(tmp_path, train=[shard("t", *images)])
    read_fingerprints(str(tmp_path), manifest, ["train"])
    tracemalloc.start()
    try:
        ((of_shard,),) = read_fingerprints(str(tmp_path), manifest, ["train"]).values()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1.1 * (len(of_shard.rows) + len(bytes(of_shard.names)))
