"""What a run of --add commits: entries, lists and statistics of its own and of all runs before."""

import json
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from recordmill.schemas.dataset.manifest import InputRows, Manifest
from recordmill.schemas.errors import EmptyDatasetError, JobError, TooManyRejectsError
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.names import NameSources
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.dataset import rejects
from recordmill.transforms.dataset.dataset_folder import read_split_manifests
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.dataset.rejects import count_rejects, write_rejects
from recordmill.transforms.shards import commit_splits as module
from recordmill.transforms.shards import write_metadata as commit_module
from recordmill.transforms.shards.check_findings import JobLimits
from recordmill.transforms.shards.commit_splits import finish_commit, read_commits
from recordmill.transforms.shards.write_metadata import write_metadata
from tests.transforms.insight.test_find_duplicates import image
from tests.transforms.insight.test_find_duplicates import shard as fingerprints_of
from tests.transforms.shards.test_describe_split import RECIPE, SHARDS
from tests.transforms.shards.test_shard_file import crc32c
from tests.transforms.shards.test_write_metadata import LABELS, TABLE, contents, facts_of, lines, stage, write_all

GROWN = LabelMap((*LABELS.categories, Category(4, "emu")))
MORE = msgspec.structs.replace(RECIPE, images=("more",))
NEW = [
    ShardInfo(f"coco-train.tfrecord-0000{index}-of-00004", examples, 9, "crc", "c")
    for index, examples in ((2, 8), (3, 0))
]
OLD_IMAGE, NEW_IMAGE = (
    fingerprints_of(f"of {name}", image(f"{name}.jpg", number)) for number, name in enumerate(("old", "new"))
)


def first_run(folder: Path, shards=SHARDS) -> None:
    write_all(folder, [RECIPE], facts_of("train"), notes=stage(folder, RECIPE, shards, OLD_IMAGE))


def base_of(folder: Path) -> dict[str, str]:
    return {split: manifest.sha256 for split, manifest in read_split_manifests(str(folder)).items()}


def facts_of_more(**changed) -> Facts:
    """Facts of a run that adds as much as the first one, of another class."""
    return msgspec.structs.replace(facts_of("train", **changed), classes={("train", 2): 9})


PRESENT = {Metric.PRESENT.value: 3, Metric.CHANGED.value: 1, Metric.OF_PRESENT_IMAGES.value: 5}
NOTHING_NEW = Facts(
    {("train", metric): number for metric, number in PRESENT.items()},
    {("train", "c.json", "instances"): InputRows("c.json", "instances", 3, 5)},
)


# Long list of arguments: an addition, and what tests change of it.
def add(folder: Path, facts: Facts, shards=(), base=None, recipe=MORE, max_rejects=0.5, changes=None) -> Manifest:
    """Commit a run of --add whose shards have just been finished."""
    notes = stage(folder, recipe, shards, NEW_IMAGE)
    base = base_of(folder) if base is None else base
    limits = JobLimits(("train",), NameSources((), (), ""), max_rejects, str(folder), True, base=base)
    lists = list(facts.rejects.items())
    return write_metadata([recipe], limits, facts, notes, lists, GROWN, TABLE, changes=changes or {})


REJECTED_INPUTS = [InputRows("c.json", "instances", 2, 4)]
"""Rows of REJECTED, and of nothing else."""
REJECTED_MORE = [
    Rejected("image", 1, Reason.IMAGE_MISSING, "no file", annotations=2),
    Rejected("annotation", 5, Reason.EMPTY_BOX, "box", 2),
    Rejected("image", 10, Reason.MALFORMED_IMAGE, "row"),
    Rejected("annotation", 6, Reason.EMPTY_BOX, "box", 2),
]


def test_entry_and_lists_are_of_all_runs(tmp_path):
    first_run(tmp_path)
    before = contents(tmp_path)
    first = read_split_manifests(str(tmp_path))["train"].splits["train"]
    changes = b'{"split":"train","file_name":"a.jpg","change":"labels"}\n'
    whole = add(tmp_path, facts_of_more(rejected=REJECTED_MORE), NEW, changes={"train": changes})
    grown, after = whole.splits["train"], contents(tmp_path)
    assert grown.shards == (*first.shards, NEW[0])
    assert NEW[1].file not in after
    assert all(after[name] == data for name, data in before.items() if ".tfrecord-" in name)
    assert (grown.images.rows, grown.images.written, grown.images.rejected) == (
        20,
        16,
        {"image_missing": 2, "malformed_image": 2},
    )
    assert (grown.annotations.rows, grown.annotations.rejected) == (65, {"empty_box": 3})  # 5 has the same line
    assert (grown.class_counts, whole.num_classes) == ((9, 0, 9), 5)
    listed = lines(tmp_path)
    assert [(line["what"], line["id"]) for line in listed] == [
        *(("annotation", id_) for id_ in (4, 5, 6)),
        *(("image", id_) for id_ in (1, 9, 10, None)),
    ]
    assert [line.id for line in grown.first_rejects] == [line["id"] for line in listed]
    assert grown.listed_rejects == len(listed)
    assert [line["shard"] for line in lines(tmp_path, "fingerprints-train.jsonl")] == ["of old", "of old", "of new"]
    statistics = json.loads(after["statistics-train.json"])
    assert (statistics["images"], [row["objects"] for row in statistics["classes"]]) == (14, [9, 0, 9])
    assert after["changes-train.jsonl"] == changes
    assert not [name for name in after if name.startswith(".recordmill")]


def test_rejects_that_every_run_has_are_listed_and_counted_once(tmp_path):
    first_run(tmp_path)
    first = read_split_manifests(str(tmp_path))["train"].splits["train"]
    listed = lines(tmp_path)
    for day in range(3):
        recipe = msgspec.structs.replace(MORE, images=(f"{day}",))
        whole = add(
            tmp_path, facts_of("train", counts={"objects": 0}, inputs=REJECTED_INPUTS), recipe=recipe, max_rejects=1
        )
    grown = whole.splits["train"]
    assert lines(tmp_path) == listed
    assert (grown.images, grown.annotations) == (first.images, first.annotations)
    own = [(run.images.rows, run.images.rejected, run.annotations.of_rejected_images) for run in grown.runs]
    assert own == [(2, first.images.rejected, 2)] * 3


def test_run_without_new_images_is_noted(tmp_path):
    first_run(tmp_path)
    before = contents(tmp_path)
    grown = add(tmp_path, NOTHING_NEW).splits["train"]
    (run,) = grown.runs
    assert (run.shards, run.recipe, run.images.present, run.annotations.of_present_images) == (0, MORE, 3, 5)
    assert (grown.images.rows, grown.images.changed) == (13, 1)
    same = {name for name, data in contents(tmp_path).items() if before.get(name) == data}
    assert same >= {"rejects-train.jsonl", "fingerprints-train.jsonl", *(shard.file for shard in SHARDS)}


def test_changes_are_those_of_the_last_run(tmp_path):
    first_run(tmp_path)
    add(tmp_path, NOTHING_NEW, changes={"train": b"{}\n"})
    assert (tmp_path / "changes-train.jsonl").exists()
    add(tmp_path, NOTHING_NEW, recipe=msgspec.structs.replace(MORE, images=("most",)))
    assert not (tmp_path / "changes-train.jsonl").exists()


def test_rejects_of_a_run_are_judged_by_its_own_rows(tmp_path):
    first_run(tmp_path)
    before = contents(tmp_path)
    rejected = [Rejected("image", id_, Reason.IMAGE_MISSING, "no file") for id_ in (1, 2)]
    facts = Facts(
        {("train", "present"): 1},
        {("train", "c.json", "instances"): InputRows("c.json", "instances", 3, 0)},
        count_rejects(("train", reject) for reject in rejected),
    )
    with pytest.raises(TooManyRejectsError, match=r"^2 of 3 images \(66\.7%\)"):
        add(tmp_path, facts)
    assert {name: data for name, data in contents(tmp_path).items() if not name.startswith(".")} == before
    assert add(tmp_path, facts, max_rejects=0.7).splits["train"].images.rejected["image_missing"] == 3


@pytest.mark.parametrize(
    ("numbers", "listed", "repeated"),
    [
        (([0, 1], [1, 2]), 3, 1),
        (([0, 0], [0]), 2, 1),  # a file may have two equal rows
        (([0], [0, 0]), 2, 1),
        ((range(150), range(150)), 100, 100),  # those that are not listed count again
        ((range(150), range(150, 300)), 100, 0),
        ((range(50), range(60)), 60, 50),
    ],
)
def test_lines_of_two_runs(tmp_path, monkeypatch, numbers, listed, repeated):
    monkeypatch.setattr(rejects, "MOST_LISTED", 100)
    data = b""
    for part in numbers:
        rejected = [Rejected("image", id_, Reason.IMAGE_MISSING, f"{id_}", annotations=2) for id_ in part]
        kinds = count_rejects(("train", reject) for reject in rejected).items()
        list_ = write_rejects(str(tmp_path), ["train"], kinds, {"train": data})["train"]
        data = (tmp_path / ".recordmill-train/rejects.jsonl").read_bytes()
    assert data.count(b"\n") == listed
    assert list_.tally.counts == {("image", "image_missing"): len(numbers[1])}
    assert sum(list_.repeated.counts.values()) == repeated
    assert list_.repeated.annotations == 2 * repeated


def test_list_has_the_same_lines_in_any_number_of_runs(tmp_path, monkeypatch):
    """Also if only some of them are listed."""
    monkeypatch.setattr(rejects, "MOST_LISTED", 100)
    rejected = [("train", Rejected("image", id_, Reason.IMAGE_MISSING, f"{id_}")) for id_ in range(400)]
    files = {}
    for name, parts in {"one": [rejected], "two": [rejected[:150], rejected[150:]]}.items():
        output, data = tmp_path / name, b""
        for part in parts:
            kinds = count_rejects(part).items()
            list_ = write_rejects(str(output), ["train"], kinds, {"train": data})["train"]
            data = (output / ".recordmill-train/rejects.jsonl").read_bytes()
            assert list_.tally.counts == {("image", "image_missing"): len(part)}
        files[name] = data, list_.first
    assert files["one"] == files["two"]


# Two runs at once


def test_run_that_another_one_overtook_ends(tmp_path):
    first_run(tmp_path)
    base = base_of(tmp_path)
    add(tmp_path, NOTHING_NEW)
    after = contents(tmp_path)
    other = msgspec.structs.replace(MORE, images=("other",))
    with pytest.raises(JobError, match="another run has written split train since this run of --add began"):
        add(tmp_path, facts_of_more(), NEW, base, other)
    assert {name: data for name, data in contents(tmp_path).items() if not name.startswith(".")} == after


def test_the_same_run_twice_at_once_is_one(tmp_path):
    intact = [msgspec.structs.replace(shard, crc32c=crc32c(bytes(shard.bytes))) for shard in (*SHARDS, *NEW)]
    first_run(tmp_path, intact[:2])
    base = base_of(tmp_path)
    first = add(tmp_path, facts_of_more(), intact[2:], base)
    after = contents(tmp_path)
    assert add(tmp_path, facts_of_more(), intact[2:], base).splits == first.splits
    assert contents(tmp_path) == after


def test_the_same_run_commits_while_the_other_one_is_not_done(tmp_path, monkeypatch):
    """The other one has written its log, and the manifest of the split, but not manifest.json."""
    intact = [msgspec.structs.replace(shard, crc32c=crc32c(bytes(shard.bytes))) for shard in (*SHARDS, *NEW)]
    first_run(tmp_path, intact[:2])
    base, commit = base_of(tmp_path), commit_module.commit_splits

    def overtaken(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(module, "publish", Mock(side_effect=OSError("stopped")))
            with pytest.raises(OSError, match="stopped"):
                commit(*arguments)
        return commit(*arguments)

    monkeypatch.setattr(commit_module, "commit_splits", overtaken)
    (run,) = add(tmp_path, facts_of_more(), intact[2:], base).splits["train"].runs
    assert run.recipe == MORE
    assert not read_commits(str(tmp_path))


def test_split_that_another_run_has_added_is_not_replaced(tmp_path):
    first_run(tmp_path)
    with pytest.raises(JobError, match="another run has written split train"):
        add(tmp_path, facts_of_more(), NEW, base={})


def test_commit_of_a_split_that_was_replaced_meanwhile_is_dropped(tmp_path, monkeypatch):
    first_run(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_complete_commit", lambda *_: None)
        add(tmp_path, NOTHING_NEW)
    assert list(read_commits(str(tmp_path))) == ["train"]
    write_all(tmp_path, [RECIPE], facts_of("train"), labels=GROWN, notes=stage(tmp_path, RECIPE, SHARDS))
    stage(tmp_path, RECIPE, [])
    after = contents(tmp_path)
    assert finish_commit(str(tmp_path)) == []
    assert contents(tmp_path) == after


@pytest.mark.parametrize("file", ["rejects-train.jsonl", "statistics-train.json", "fingerprints-train.jsonl"])
@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_bytes(b"{}")])
def test_lists_that_have_changed_are_not_added_to(tmp_path, file, change):
    first_run(tmp_path)
    change(tmp_path / file)
    with pytest.raises(JobError, match=f"{file} is missing or has changed since it was written"):
        add(tmp_path, facts_of_more(), NEW)
    assert not read_split_manifests(str(tmp_path))["train"].splits["train"].runs


def test_new_split_needs_a_record(tmp_path):
    """A split that the data set has needs none."""
    first_run(tmp_path)
    val = msgspec.structs.replace(MORE, split="val")
    facts = Facts({("val", "images_without_record"): 1}, {("val", "c.json", "x"): InputRows("c.json", "x", 1, 0)})
    with pytest.raises(EmptyDatasetError, match="split val"):
        add(tmp_path, facts, recipe=val, base={"train": base_of(tmp_path)["train"]})
