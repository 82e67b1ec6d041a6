import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apache_beam as beam
import msgspec
import pytest
import tensorflow as tf
from apache_beam.testing.util import assert_that, equal_to
from PIL import Image

from recordmill.schemas.dataset.manifest import FORMAT
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Annotation, Caption, Category, ImageLabels, PanopticAnnotation
from recordmill.schemas.inputs.files import File, ImageFile
from recordmill.schemas.inputs.images import ImageRules, ImageTask
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION, KERAS
from recordmill.schemas.rejects import Metric, Reason
from recordmill.schemas.shards import ShardInfo, ShardKey, ShardResult
from recordmill.transforms.dataset.facts import Facts, add_facts
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.records import example
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import library_versions
from recordmill.transforms.shards.encode_images import EncodeImages
from recordmill.transforms.shards.shard_file import FinishedShards, Note
from recordmill.transforms.shards.write_shards import (
    WriteShards,
    WriteWithBeam,
    ordered_block,
    plan_digest,
    write_shard,
)
from tests.beam_pipeline import Pipeline
from tests.transforms.blocks.of_tasks import pack_tasks
from tests.transforms.shards.test_shard_file import KEY, crc32c, index_info, index_of, read, recipe

LABELS = LabelMap((Category(1, "cat"),))
TABLE = DETECTION.with_parts(())
INSIDE = Annotation(5, 1, (0.0, 0.0, 10.0, 10.0), 100.0, False)
OUTSIDE = Annotation(6, 1, (90.0, 0.0, 10.0, 10.0), 100.0, False)


@pytest.fixture(name="tasks")
def three_tasks(tmp_path) -> list[ImageTask]:
    """Three images: a good one with a box outside, one that is cut short, and another good one."""
    (tmp_path / "images").mkdir()
    tasks = []
    for id_, annotations in ((1, (INSIDE, OUTSIDE)), (2, (INSIDE,)), (3, ())):
        path = tmp_path / "images" / f"{id_}.png"
        Image.new("RGB", (40, 30), (id_, 0, 0)).save(path)
        if id_ == 2:
            path.write_bytes(path.read_bytes()[:-12])
        ref = ImageFile(str(path), path.stat().st_size, str(path.stat().st_mtime_ns))
        tasks.append(ImageTask(id_, path.name, 40, 30, ref, "train", annotations))
    return tasks


def digest_of(key, tasks, recipe, labels, table) -> str:
    with ThreadPoolExecutor(1) as pool:
        block = ordered_block(pack_tasks(tasks), recipe.seed)
        return plan_digest(key, block, recipe, RecordContext(labels, table, pool, 1))


def finish(tasks, recipe, labels=LABELS, table=TABLE):
    with ThreadPoolExecutor(2) as pool:
        return write_shard(recipe, labels, table, KEY, pack_tasks(tasks), pool, 2)


def result_of(tasks, recipe, labels=LABELS, table=TABLE) -> ShardResult:
    """Finish a shard; return what its note says."""
    finished = FinishedShards(recipe.output, recipe.name, recipe.layout, recipe.container)
    return finished.result(KEY, finish(tasks, recipe, labels, table).note)


def source_ids(path: Path) -> list[int]:
    examples = map(tf.train.Example.FromString, read(path))
    return [int(example.features.feature["image/source_id"].bytes_list.value[0]) for example in examples]


NAME = "coco-train.tfrecord-00001-of-00003"
FILE = f".recordmill-train/{NAME}"
NOTE = f"{FILE}.json"
INDEX = f".recordmill-train/.index/{NAME}.idx"


def test_finished_shard_and_its_note(tmp_path, tasks):
    result = result_of(tasks, recipe(tmp_path))
    data = (tmp_path / "out" / FILE).read_bytes()
    index = index_info(read(tmp_path / "out" / FILE))
    assert result.info == ShardInfo(NAME, 2, len(data), crc32c(data), hashlib.sha256(data).hexdigest(), index)
    assert result.made_by == library_versions("detection")
    assert source_ids(tmp_path / "out" / FILE) == [3, 1]  # in the order of hashes
    record_bytes = sum(map(len, read(tmp_path / "out" / FILE)))
    assert result.counted == {Metric.IMAGES: 2, Metric.OBJECTS: 1, Metric.RECORD_BYTES: record_bytes}
    assert {(reject.what, reject.id, reject.reason) for reject in result.rejected} == {
        ("annotation", 6, Reason.EMPTY_BOX),
        ("image", 2, Reason.IMAGE_UNREADABLE),
    }


KERAS_NAME = "file_01-1.tfrec"
KERAS_FILE = f".recordmill-train/{KERAS_NAME}"


def test_no_objects_no_image_is_read(tmp_path, tasks):
    Path(tasks[2].ref.path).write_bytes(b"no image at all")
    result = result_of(tasks, recipe(tmp_path, layout="keras"), table=KERAS.with_parts(()))
    data = (tmp_path / "out" / KERAS_FILE).read_bytes()
    (record,) = read(tmp_path / "out" / KERAS_FILE)
    index = index_info([record])
    assert result.info == ShardInfo(KERAS_NAME, 1, len(data), crc32c(data), hashlib.sha256(data).hexdigest(), index)
    assert list(tf.train.Example.FromString(record).features.feature["id"].int64_list.value) == [INSIDE.id]
    assert result.counted == {
        Metric.IMAGES: 1,
        Metric.IMAGES_WITHOUT_RECORD: 1,
        Metric.OBJECTS: 1,
        Metric.RECORD_BYTES: len(record),
    }
    assert {(reject.what, reject.id, reject.reason) for reject in result.rejected} == {
        ("annotation", 6, Reason.EMPTY_BOX),
        ("image", 2, Reason.IMAGE_UNREADABLE),
    }
    assert result_of(tasks, recipe(tmp_path, layout="keras"), table=KERAS.with_parts(())) == result


def test_shard_is_same_bytes_in_any_order_of_images(tmp_path, tasks):
    one = finish(tasks, recipe(tmp_path, output=str(tmp_path / "one")))
    other = finish(reversed(tasks), recipe(tmp_path, output=str(tmp_path / "other")))
    assert one == other


def test_progress_is_that_of_planned_images(tmp_path, tasks):
    progress.reset()
    finish(tasks, recipe(tmp_path))
    now = progress.snapshot()
    assert (now.images_done, now.shards_done, now.rejected) == (3, 1, 2)
    assert now.bytes_done == sum(task.ref.size_bytes for task in tasks)
    finish(tasks, recipe(tmp_path))
    again = progress.snapshot()
    assert (again.images_done, again.images_skipped, again.shards_done) == (6, 3, 2)
    assert again.bytes_done == now.bytes_done


def test_image_in_two_pieces_is_one_image(tmp_path, tasks):
    """Written, rejected, or finished by an earlier run."""
    more = msgspec.structs.replace(INSIDE, id=7)
    pieces = [
        piece
        for task in tasks[:2]
        for piece in (task, msgspec.structs.replace(task, annotations=(more,), is_continuation=True))
    ]
    size = sum(task.ref.size_bytes for task in tasks[:2])
    for run in (1, 2):
        progress.reset()
        result = result_of(pieces, recipe(tmp_path, layout="keras"), table=KERAS.with_parts(()))
        now = progress.snapshot()
        assert (now.images_done, now.images_skipped, now.bytes_done) == ((2, 0, size), (2, 2, 0))[run - 1]
    assert {(reject.what, reject.id, reject.annotations) for reject in result.rejected} == {
        ("annotation", 6, 0),
        ("image", 2, 1),
    }
    assert len(result.rejected) == 2
    assert (result.counted[Metric.IMAGES], result.counted[Metric.OF_REJECTED_IMAGES]) == (1, 1)


def test_finished_shard_is_not_written_again(tmp_path, tasks):
    first = finish(tasks, recipe(tmp_path))
    before = (tmp_path / "out" / FILE).stat().st_mtime_ns
    assert finish(reversed(tasks), recipe(tmp_path)) == first
    assert (tmp_path / "out" / FILE).stat().st_mtime_ns == before
    (tmp_path / "out" / ".index").mkdir()
    (tmp_path / "out" / INDEX).rename(tmp_path / "out" / ".index" / f"{NAME}.idx")
    assert finish(tasks, recipe(tmp_path)) == first  # as a run leaves it that was killed as it ended
    assert not (tmp_path / "out" / INDEX).exists()
    (tmp_path / "out" / FILE).rename(tmp_path / "out" / NAME)
    assert finish(tasks, recipe(tmp_path)) == first
    assert not (tmp_path / "out" / FILE).exists()


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def changed_note(out: Path, old: bytes, new: bytes) -> None:
    (out / NOTE).write_bytes((out / NOTE).read_bytes().replace(old, new))


def other_note(out: Path, old: bytes, new: bytes) -> None:
    """Replace the note by that of another run."""
    data = bytes(msgspec.json.decode((out / NOTE).read_bytes(), type=Note).result).replace(old, new)
    note = Note(hashlib.sha256(data).hexdigest(), msgspec.Raw(data))
    (out / NOTE).write_bytes(msgspec.json.encode(note))


DAMAGES = {
    "gone": lambda out: (out / FILE).unlink(),
    "cut": lambda out: (out / FILE).write_bytes((out / FILE).read_bytes()[:-1]),
    "a bit flipped": lambda out: (out / FILE).write_bytes(flipped((out / FILE).read_bytes())),
    "no index": lambda out: (out / INDEX).unlink(),
    "another index": lambda out: (out / INDEX).write_bytes(flipped((out / INDEX).read_bytes())),
    "no note": lambda out: (out / NOTE).unlink(),
    "empty note": lambda out: (out / NOTE).write_bytes(b""),
    "cut note": lambda out: (out / NOTE).write_bytes((out / NOTE).read_bytes()[:-9]),
    "another plan": lambda out: other_note(out, b'"plan":"', b'"plan":"0'),
    "another version": lambda out: other_note(out, b'"pillow":"', b'"pillow":"0'),
    "another count": lambda out: changed_note(out, b'"images":2', b'"images":3'),
    "note not UTF-8": lambda out: changed_note(out, b"coco", b"coc\xff"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_shard_not_known_to_be_whole_is_written_again(tmp_path, tasks, damage):
    first = finish(tasks, recipe(tmp_path))
    whole = (tmp_path / "out" / FILE).read_bytes()
    damage(tmp_path / "out")
    progress.reset()
    assert finish(tasks, recipe(tmp_path)) == first
    assert (tmp_path / "out" / FILE).read_bytes() == whole
    assert progress.snapshot().images_skipped == 0  # it was written, not left alone


@pytest.mark.parametrize("how", [lambda path: None, lambda path: path.mkdir()], ids=["gone", "not to be read"])
def test_images_that_may_be_had_again_are_tried_again(tmp_path, tasks, how):
    """A drive that comes back has its files as they were listed."""
    path = Path(tasks[0].ref.path)
    kept = path.rename(tmp_path / "kept")
    how(path)
    assert result_of(tasks, recipe(tmp_path)).info.examples == 1
    if path.exists():
        path.rmdir()
    kept.rename(path)
    assert result_of(tasks, recipe(tmp_path)).info.examples == 2
    assert sorted(source_ids(tmp_path / "out" / FILE)) == [1, 3]


def test_output_that_cannot_be_written_stops_job(tmp_path, tasks):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OSError, match="out"):
        finish(tasks, recipe(tmp_path))


def test_plan_is_known_by_all_that_decides_its_bytes(tmp_path, tasks):
    def plan(key=KEY, tasks=tasks, labels=LABELS, table=TABLE, **changed) -> str:
        return digest_of(key, tasks, recipe(tmp_path, **changed), labels, table)

    def with_first(**changed) -> str:
        return plan(tasks=[msgspec.structs.replace(tasks[0], **changed), *tasks[1:]])

    masks = [PanopticAnnotation(File("masks/a.png", 100, version), "a.png", ()) for version in ("1", "2")]
    digests = [
        plan(),
        plan(ShardKey("train", 2, 3)),
        plan(tasks=tasks[:2]),
        with_first(ref=msgspec.structs.replace(tasks[0].ref, version="2")),
        with_first(annotations=()),
        with_first(labels=ImageLabels((Caption(1, "a cat"),))),
        *(with_first(labels=ImageLabels(panoptic=(mask,))) for mask in masks),
        plan(labels=LabelMap((Category(1, "dog"),))),
        plan(labels=LabelMap(LABELS.categories, (Category(92, "banner"),))),
        plan(table=DETECTION.with_parts((Part.CAPTIONS,))),
        plan(name="other"),
        plan(seed=1),
        plan(layout="other"),
        plan(gzip=True),
        plan(maker=EncodeImages("keep", ImageRules("decode"))),
        plan(maker=EncodeImages("clip", ImageRules("none"))),
        plan(format=FORMAT + 1),
    ]
    assert sorted(set(digests)) == sorted(digests)
    assert plan(output="elsewhere") == digests[0]


def test_transform_writes_full_and_empty_shards(tmp_path, tasks):
    made = recipe(tmp_path, gzip=True)
    full, empty = ShardKey("train", 0, 2), ShardKey("train", 1, 2)
    with Pipeline() as p:
        packed = [(full, block) for block in pack_tasks(tasks)]
        placed = p | "Placed" >> beam.Create([*packed, (empty, b"")])
        labels, table = p | "Labels" >> beam.Create([LABELS]), p | "Table" >> beam.Create([TABLE])
        checked = p | "Checked" >> beam.Create([True])
        written = placed | WriteShards(checked, labels, table, made, threads=2)
        keys = written | "Keys" >> beam.Map(lambda shard: (shard.key, len(shard.note)))
        facts = written | "Numbers" >> beam.Map(lambda shard: _numbers(shard.facts))
        names = [f"coco-train.tfrecord-{index:05}-of-00002.gz" for index in range(2)]
        assert_that(keys, equal_to([(full, 64), (empty, 64)]), "Shards")
        rejects = {("train", "image", "image_unreadable"): 1, ("train", "annotation", "empty_box"): 1}
        assert_that(facts, equal_to([(1, rejects, 2), (0, {}, 0)]), "Facts")
    assert sorted(source_ids(tmp_path / "out" / ".recordmill-train" / names[0])) == [1, 3]
    assert read(tmp_path / "out" / ".recordmill-train" / names[1]) == []


def _numbers(facts: Facts) -> tuple[int, dict, int]:
    rejects = {kind: rejects.number for kind, rejects in facts.rejects.items()}
    return facts.counts.get(("train", "objects"), 0), rejects, facts.statistics["train"].images


def numbers_of(facts, split):
    """The counts and the classes of a split."""
    return [
        sorted((key[1], number) for key, number in part.items() if key[0] == split)
        for part in (facts.counts, facts.classes)
    ]


@pytest.mark.parametrize(("gzip", "ending"), [(False, ""), (True, ".gz")])
def test_write_with_beam(tmp_path, tasks, monkeypatch, gzip, ending):
    monkeypatch.setattr(example, "_COPIED_BYTES", 8)  # so that records are in pieces
    usual = finish(tasks, recipe(tmp_path / "usual"))
    records = read(tmp_path / "usual" / "out" / FILE)
    progress.reset()
    with Pipeline() as p:
        placed = p | beam.Create(
            [(ShardKey(split, 0, 1), packed) for split in ("train", "val") for packed in pack_tasks(tasks)]
        )
        sides = [p | f"Side{side}" >> beam.Create([of]) for side, of in enumerate((True, LABELS, TABLE))]
        written = placed | WriteWithBeam(*sides, recipe(tmp_path, gzip=gzip), 2, splits=("train", "val"), num_shards=2)
        noted = written | beam.Filter(lambda shard: shard.note)
        notes = noted | beam.Map(lambda shard: f"{shard.key.split} {shard.key.index} {shard.note}")
        notes | beam.io.WriteToText(str(tmp_path / "notes"))
        facts = written | "Facts" >> beam.Map(lambda shard: shard.facts) | beam.combiners.ToList() | beam.Map(add_facts)
        numbers = facts | beam.Map(lambda facts: (numbers_of(facts, "val"), facts.statistics["val"].images))
        assert_that(numbers, equal_to([(numbers_of(usual.facts, KEY.split), 2)]))
    assert progress.snapshot().shards_done == 4
    notes = [line.split() for path in tmp_path.glob("notes*") for line in path.read_text().splitlines()]
    finished = FinishedShards(str(tmp_path / "out"), "coco", "detection", "tfrecord")
    infos = [finished.result(ShardKey(split, int(index), 2), note).info for split, index, note in notes]
    written_records = []
    for split in ("train", "val"):
        state = tmp_path / "out" / f".recordmill-{split}"
        names = [f"coco-{split}.tfrecord-0000{index}-of-00002{ending}" for index in range(2)]
        assert {path.name for path in state.iterdir()} - {
            ".index",
            *(f"{name.removesuffix('.gz')}.json" for name in names),
        } == set(names)
        for name in names:
            data, inside = (state / name).read_bytes(), read(state / name)
            index = msgspec.UNSET if gzip else index_info(inside)
            digests = crc32c(data), hashlib.sha256(data).hexdigest()
            assert ShardInfo(name, len(inside), len(data), *digests, index) in infos
            if not gzip:
                assert (state / ".index" / f"{name}.idx").read_bytes() == index_of(inside)
            written_records += [(split, record) for record in inside]
    assert len(infos) == 4
    assert sorted(written_records) == sorted((split, record) for record in records for split in ("train", "val"))
