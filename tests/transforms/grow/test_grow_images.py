from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from recordmill.schemas.image_records import IMAGE_ROW
from recordmill.schemas.inputs.annotations import Annotation, Caption, ImageLabels
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.schemas.shards import ShardInfo, ShardNames
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.grow.compare_rows import COMPARED_ROW, OUTCOME_ROW, Outcome, digest_names
from recordmill.transforms.grow.grow_images import GrowJob, ImagesFile, cut_shards, grow_block, list_changes
from recordmill.transforms.shards.image_records import shard_images
from tests.transforms.blocks.of_tasks import block_of_tasks
from tests.transforms.dataset.kinds import listed

SPLITS = ("train", "val")
FILES = "d-train.tfrecord-00000-of-00001", "d-train.tfrecord-00003-of-00004"
BASE = SimpleNamespace(
    splits={"train": SimpleNamespace(shards=[ShardInfo(file, 1, 1, "", "") for file in FILES])},
    shard_names=lambda split: ShardNames("d", split),
)


def image(name: str, split: str = "train", objects: int = 0, captions: int = 0) -> ImageTask:
    annotations = tuple(Annotation(number, 1, (0.0, 0.0, 9.0, 9.0), 81.0, False) for number in range(objects))
    labels = ImageLabels(captions=tuple(Caption(number, "text") for number in range(captions)))
    return ImageTask(hash(name) % 1000, name, 9, 9, ImageFile(f"i/{name}", 1), split, annotations, labels)


IMAGES = [image("a", objects=2, captions=1), image("b", objects=1), image("c"), image("d", "val", objects=4)]


def grown(sync: bool, rejects=(), **outcomes: tuple[Outcome, list[int]]):
    """Names to write, outputs and Facts, of IMAGES with outcomes in `train`."""
    rows = np.zeros(sum(len(shards) for _, shards in outcomes.values()), OUTCOME_ROW)
    listed_rows = [(name, code, shard) for name, (code, shards) in outcomes.items() for shard in shards]
    for row, (name, code, shard) in zip(rows, listed_rows, strict=True):
        row["whole"], row["outcome"], row["shard"] = digest_names("train", [name])[0], code, shard
    facts = FactsBuilder()
    job = GrowJob("out", BASE, SPLITS, sync)
    rejected = {(0, reject.file_name): reject for reject in rejects}
    block, outputs = grow_block(block_of_tasks(IMAGES, SPLITS), np.sort(rows), rejected, job, facts)
    return block.file_name.texts(), [(output.tag, output.value) for output in outputs], facts.build()


def test_present_images_are_skipped_and_counted_with_their_annotations():
    names, outputs, facts = grown(False, a=(Outcome.PRESENT, [0]), d=(Outcome.PRESENT, [0]))
    assert names == ["b", "c", "d"]  # d of train is another image than d of val
    assert facts.counts == {("train", "present"): 1, ("train", "of_present_images"): 3}
    assert outputs == []


@pytest.mark.parametrize("sync", [False, True])
def test_changed_images(sync):
    names, outputs, facts = grown(sync, a=(Outcome.LABELS, [0, 3]), b=(Outcome.IMAGE, [3]))
    assert names == (["a", "b", "c", "d"] if sync else ["c", "d"])
    replaced = [(FILES[0], "a"), (FILES[1], "a"), (FILES[1], "b")]
    assert [value[1:] for tag, value in outputs if tag == "replaced"] == replaced * sync
    changes = [("train", ("labels", "a"))] + [("train", ("image", "b"))] * sync
    assert [value for tag, value in outputs if tag == "changes"] == changes
    assert facts.other_images.number == (not sync)
    counts = {("train", "present"): 2, ("train", "changed"): 1, ("train", "of_present_images"): 4}
    assert facts.counts == ({} if sync else counts)


@pytest.mark.parametrize("sync", [False, True])
def test_a_broken_file_of_a_known_image_is_a_reject_and_replaces_nothing(sync):
    reject = Rejected("image", 5, Reason.IMAGE_UNREADABLE, "'a': empty", file_name="a")
    names, outputs, facts = grown(sync, rejects=[reject])
    assert (names, outputs, facts.counts) == (["b", "c", "d"], [], {})
    assert [(split, one.file_name, one.annotations) for split, one in listed(facts)] == [("train", "a", 3)]


@pytest.mark.parametrize("has_names", [False, True])
def test_lines_are_cut_to_buckets_with_the_numbers_of_their_shards(has_names):
    shards = []
    for number, names, wholes in (("00000", ["a_0_0", "a_5_0"], ["a", "a"]), ("00007", ["a_9_0", "b"], ["a", "b"])):
        images = np.zeros(2, IMAGE_ROW)
        images["records"] = 1
        file = f"d-train.tfrecord-{number}-of-00008"
        shards.append(shard_images(file, names, images, np.zeros(0, np.int64), wholes))
    pieces = list(cut_shards(shards, ImagesFile("", ShardNames("d", "train"), 4, has_names)))
    rows = np.concatenate([np.frombuffer(packed, COMPARED_ROW) for _, (packed, _) in pieces])
    wholes = dict(zip(digest_names("train", ["a", "b"]).tolist(), "ab", strict=True))
    cut = sorted((wholes[row["whole"]], int(row["shard"]), int(row["split"])) for row in rows)
    assert cut == [("a", 0, 4), ("a", 0, 4), ("a", 7, 4), ("b", 7, 4)]
    assert len(np.unique(rows["name"])) == 4
    listed_names = sorted(name for _, (_, packed) in pieces for name in (msgspec.json.decode(packed) if packed else ()))
    assert listed_names == ["a", "a", "a", "b"] * has_names


def test_changes_are_listed_in_order_and_gone_images_are_counted():
    facts = FactsBuilder()
    changes = [("labels", "b"), ("gone", "z"), ("labels", "a"), ("image", "c"), ("gone", "y")]
    ((split, lines),) = list_changes(("val", changes), facts)
    assert split == "val"
    assert [tuple(msgspec.json.decode(line).values()) for line in lines.splitlines()] == [
        ("val", "y", "gone"),
        ("val", "z", "gone"),
        ("val", "c", "image"),
        ("val", "a", "labels"),
        ("val", "b", "labels"),
    ]
    assert facts.build().counts == {("val", "gone"): 2}
