"""Shards are written whole, in order, and once."""

import gzip
import hashlib
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import apache_beam as beam
import msgspec
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from recordmill.schemas.annotations import Annotation, Caption, Category, ImageLabels
from recordmill.schemas.features import Part
from recordmill.schemas.images import ImageRef, ImageTask, PictureRules
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import DETECTION, KERAS
from recordmill.schemas.manifest import FORMAT
from recordmill.schemas.rejects import Count, Metric, Reason
from recordmill.schemas.shards import ShardInfo, ShardKey
from recordmill.transforms.runtime import progress
from recordmill.transforms.shards.plan_shards import ShardPlans, image_order
from recordmill.transforms.shards.write_shards import (
    BYTES_AHEAD,
    ShardFile,
    ShardRecipe,
    WriteShards,
    batches,
    finish_shard,
    plan_digest,
    prepare_ahead,
)

LABELS = LabelMap((Category(1, "cat"),))
TABLE = DETECTION.with_parts(())
KEY = ShardKey("train", 1, 3)
INSIDE = Annotation(5, 1, (0.0, 0.0, 10.0, 10.0), 100.0, False)
OUTSIDE = Annotation(6, 1, (90.0, 0.0, 10.0, 10.0), 100.0, False)


def sized(id_: int, size: int) -> ImageTask:
    return ImageTask(id_, f"{id_}.jpg", None, None, ImageRef(f"{id_}.jpg", size), "train", ())


def size_of(task: ImageTask) -> int:
    return task.ref.size_bytes


# Batches


@given(st.lists(st.integers(0, 3_000_000), max_size=40))
def test_batches_are_of_few_images_and_few_bytes(sizes):
    tasks = [sized(id_, size) for id_, size in enumerate(sizes)]
    found = list(batches(tasks, size_of))
    assert [task for batch in found for task in batch] == tasks
    for batch in found:
        assert 1 <= len(batch) <= 8
        assert len(batch) == 1 or sum(task.ref.size_bytes for task in batch) <= 2_000_000


@given(st.lists(st.integers(0, 3_000_000), max_size=40))
def test_no_batch_could_have_taken_the_next_image(sizes):
    found = list(batches([sized(id_, size) for id_, size in enumerate(sizes)], size_of))
    for batch, after in pairwise(found):
        larger = [*batch, after[0]]
        assert len(larger) > 8 or sum(task.ref.size_bytes for task in larger) > 2_000_000


# Preparing ahead


def prepare(tasks: list[ImageTask]) -> list[tuple[ImageTask, int]]:
    return [(task, -task.image_id) for task in tasks]


@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_prepared_comes_in_order(threads):
    tasks = [sized(id_, 700_000 * (id_ % 4)) for id_ in range(100)]
    with ThreadPoolExecutor(threads) as pool:
        assert list(prepare_ahead(tasks, prepare, pool, threads, size_of)) == prepare(tasks)


@pytest.mark.parametrize("size", [BYTES_AHEAD // 3, BYTES_AHEAD, 2 * BYTES_AHEAD])
def test_bytes_ahead_are_bounded(size):
    """Large images: each is a batch of its own."""
    started: list[int] = []
    turn = threading.Lock()

    def note(tasks):
        with turn:
            started.append(tasks[0].image_id)
        return prepare(tasks)

    with ThreadPoolExecutor(8) as pool:
        ahead = prepare_ahead([sized(id_, size) for id_ in range(20)], note, pool, 8, size_of)
        for written, _ in enumerate(ahead):
            with turn:
                assert len(started) - written <= max(1, BYTES_AHEAD // size) + 1
    assert sorted(started) == list(range(20))


class AtOnce(Executor):
    """Has done what it is given as soon as it is given."""

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future


def test_as_much_is_ahead_after_gigabytes_as_in_the_beginning():
    started: list[int] = []

    def note(tasks):
        started.extend(task.image_id for task in tasks)
        return prepare(tasks)

    tasks = [sized(id_, BYTES_AHEAD // 4) for id_ in range(40)]
    ahead = [len(started) - written for written, _ in enumerate(prepare_ahead(tasks, note, AtOnce(), 8, size_of))]
    assert ahead == [4] * 37 + [3, 2, 1]


def test_threads_bound_the_batches_ahead_of_small_images():
    started: list[int] = []

    def note(tasks):
        started.extend(task.image_id for task in tasks)
        return prepare(tasks)

    with ThreadPoolExecutor(1) as pool:
        ahead = prepare_ahead((sized(id_, 10) for id_ in range(1000)), note, pool, 1, size_of)
        assert next(ahead) == (sized(0, 10), 0)
    assert started == list(range(16))  # two batches of eight, and no third one before the first is used up


def test_an_error_in_a_thread_is_raised_where_its_images_would_come():
    def fail(tasks):
        if any(task.image_id == 20 for task in tasks):
            raise PermissionError("20.jpg")
        return prepare(tasks)

    tasks = [sized(id_, 10) for id_ in range(100)]
    with ThreadPoolExecutor(2) as pool:
        ahead = prepare_ahead(tasks, fail, pool, 2, size_of)
        assert [next(ahead) for _ in range(16)] == prepare(tasks[:16])
        with pytest.raises(PermissionError, match=r"20\.jpg"):
            next(ahead)


class Pending(Executor):
    """Fails with the first that it is given, and never comes to the others."""

    def __init__(self):
        self.futures: list[Future] = []

    def submit(self, function, *arguments):
        self.futures.append(Future())
        if len(self.futures) == 1:
            self.futures[0].set_exception(PermissionError("0.jpg"))
        return self.futures[-1]


def test_after_an_error_nothing_more_is_begun():
    """A job that has failed would go on reading images that nobody wants."""
    pool = Pending()
    tasks = [sized(id_, BYTES_AHEAD // 4) for id_ in range(10)]
    with pytest.raises(PermissionError, match=r"0\.jpg"):
        next(prepare_ahead(tasks, prepare, pool, 8, size_of))
    assert [future.cancelled() for future in pool.futures] == [False, True, True, True]


# Files

RECORDS = [b"", b"first", bytes(range(256)) * 10_000, b"last"]


def read(path: Path) -> list[bytes]:
    compression = "GZIP" if path.suffix == ".gz" else ""
    return list(tf.data.TFRecordDataset(str(path), compression).as_numpy_iterator())


def recipe(tmp_path, **changed) -> ShardRecipe:
    made = ShardRecipe(str(tmp_path / "out"), "coco", 0, "detection", False, "clip", PictureRules("decode"), FORMAT)
    return msgspec.structs.replace(made, **changed)


def write(recipe: ShardRecipe, records: list[bytes] = RECORDS) -> ShardFile:
    with ShardFile(recipe, KEY) as shard:
        for record in records:
            shard.append(record)
    return shard


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({}, "coco-train.tfrecord-00001-of-00003"),
        ({"gzip": True}, "coco-train.tfrecord-00001-of-00003.gz"),
        ({"layout": "keras"}, "file_01-{examples}.tfrec"),
        ({"layout": "keras", "gzip": True}, "file_01-{examples}.tfrec.gz"),
    ],
)
@pytest.mark.parametrize("records", [RECORDS, []])
def test_tensorflow_reads_the_file_and_size_and_digest_are_its(tmp_path, changed, name, records):
    shard = write(recipe(tmp_path, **changed), records)
    name = name.format(examples=len(records))
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]
    data = (tmp_path / "out" / name).read_bytes()
    assert read(tmp_path / "out" / name) == records
    assert (shard.name, shard.examples) == (name, len(records))
    assert (shard.size, shard.digest) == (len(data), hashlib.sha256(data).hexdigest())


def test_a_gzip_file_holds_what_the_plain_one_does_and_neither_time_nor_name(tmp_path):
    plain = write(recipe(tmp_path)).name
    data = (tmp_path / "out" / write(recipe(tmp_path, gzip=True)).name).read_bytes()
    assert gzip.decompress(data) == (tmp_path / "out" / plain).read_bytes()
    assert data[3:8] == bytes(5)  # flags: no name; modification time: none


@pytest.mark.parametrize("layout", ["detection", "keras"])
def test_a_file_is_not_there_before_it_is_whole(tmp_path, layout):
    with ShardFile(recipe(tmp_path, layout=layout), KEY) as shard:
        shard.append(bytes(3_000_000))
        assert [path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")] == []
    assert [path.name for path in (tmp_path / "out").iterdir()] == [shard.name]
    assert read(tmp_path / "out" / shard.name) == [bytes(3_000_000)]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_file_that_is_broken_off_leaves_no_trace(tmp_path, error):
    def break_off():
        with ShardFile(recipe(tmp_path, gzip=True), KEY) as shard:
            shard.append(bytes(3_000_000))
            raise error

    with pytest.raises(error):
        break_off()
    assert list((tmp_path / "out").iterdir()) == []


# Shards


@pytest.fixture
def tasks(tmp_path) -> list[ImageTask]:
    """Three images: a good one with a box outside, one that is cut short, and another good one."""
    (tmp_path / "images").mkdir()
    found = []
    for id_, annotations in ((1, (INSIDE, OUTSIDE)), (2, (INSIDE,)), (3, ())):
        path = tmp_path / "images" / f"{id_}.png"
        Image.new("RGB", (40, 30), (id_, 0, 0)).save(path)
        if id_ == 2:
            path.write_bytes(path.read_bytes()[:-12])
        ref = ImageRef(str(path), path.stat().st_size, str(path.stat().st_mtime_ns))
        found.append(ImageTask(id_, path.name, 40, 30, ref, "train", annotations))
    return found


def finish(tasks, recipe, labels=LABELS, table=TABLE):
    with ThreadPoolExecutor(2) as pool:
        return finish_shard(KEY, tasks, recipe, labels, table, pool, 2)


def source_ids(path: Path) -> list[int]:
    examples = map(tf.train.Example.FromString, read(path))
    return [int(example.features.feature["image/source_id"].bytes_list.value[0]) for example in examples]


FILE = "coco-train.tfrecord-00001-of-00003"
STATE = f".recordmill-train/{FILE}.json"


def test_a_finished_shard_and_what_is_said_of_it(tmp_path, tasks):
    result = finish(tasks, recipe(tmp_path))
    data = (tmp_path / "out" / FILE).read_bytes()
    assert result.info == ShardInfo(FILE, 2, len(data), hashlib.sha256(data).hexdigest())
    assert source_ids(tmp_path / "out" / FILE) == sorted((1, 3), key=lambda id_: image_order(0, id_))
    record_bytes = sum(map(len, read(tmp_path / "out" / FILE)))
    assert result.counted == {Metric.IMAGES: 2, Metric.OBJECTS: 1, Metric.RECORD_BYTES: record_bytes}
    assert {(reject.what, reject.id, reject.reason) for reject in result.rejected} == {
        ("annotation", 6, Reason.EMPTY_BOX),
        ("image", 2, Reason.IMAGE_UNREADABLE),
    }


KERAS_FILE = "file_01-1.tfrec"


def test_a_shard_of_one_record_an_object_reads_no_image_without_one(tmp_path, tasks):
    Path(tasks[2].ref.path).write_bytes(b"no image at all")
    result = finish(tasks, recipe(tmp_path, layout="keras"), table=KERAS)
    data = (tmp_path / "out" / KERAS_FILE).read_bytes()
    assert result.info == ShardInfo(KERAS_FILE, 1, len(data), hashlib.sha256(data).hexdigest())
    (record,) = read(tmp_path / "out" / KERAS_FILE)
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
    assert finish(tasks, recipe(tmp_path, layout="keras"), table=KERAS) == result


def test_a_shard_is_the_same_bytes_in_whatever_order_its_images_come(tmp_path, tasks):
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
    assert (again.images_done, again.bytes_done, again.shards_done) == (6, 2 * now.bytes_done, 2)


def test_an_image_in_two_pieces_is_one_image(tmp_path, tasks):
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
        result = finish(pieces, recipe(tmp_path, layout="keras"), table=KERAS)
        now = progress.snapshot()
        assert (now.images_done, now.bytes_done) == (2, size), run
    assert {(reject.what, reject.id, reject.annotations) for reject in result.rejected} == {
        ("annotation", 6, 0),
        ("image", 2, 1),
    }
    assert len(result.rejected) == 2
    assert (result.counted[Metric.IMAGES], result.counted[Metric.OF_REJECTED_IMAGES]) == (1, 1)


def test_a_finished_shard_is_not_written_again(tmp_path, tasks):
    first = finish(tasks, recipe(tmp_path))
    before = (tmp_path / "out" / FILE).stat().st_mtime_ns
    assert finish(reversed(tasks), recipe(tmp_path)) == first
    assert (tmp_path / "out" / FILE).stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda out: (out / FILE).unlink(),
        lambda out: (out / FILE).write_bytes((out / FILE).read_bytes()[:-1]),
        lambda out: (out / STATE).unlink(),
        lambda out: (out / STATE).write_bytes(b""),
        lambda out: (out / STATE).write_bytes((out / STATE).read_bytes()[:-9]),
        lambda out: (out / STATE).write_bytes((out / STATE).read_bytes().replace(b'"plan":"', b'"plan":"0')),
        lambda out: (out / STATE).write_bytes((out / STATE).read_bytes().replace(b"coco", b"coc\xff")),
    ],
    ids=["gone", "cut", "no state", "empty state", "cut state", "another plan", "state not UTF-8"],
)
def test_a_shard_that_is_not_known_to_be_whole_is_written_again(tmp_path, tasks, damage):
    first = finish(tasks, recipe(tmp_path))
    whole = (tmp_path / "out" / FILE).read_bytes()
    (tmp_path / "out" / FILE).write_bytes(bytes(len(whole)))  # so that writing can be told from leaving alone
    damage(tmp_path / "out")
    assert finish(tasks, recipe(tmp_path)) == first
    assert (tmp_path / "out" / FILE).read_bytes() == whole


@pytest.mark.parametrize("how", [lambda path: None, lambda path: path.mkdir()], ids=["gone", "not to be read"])
def test_images_that_may_be_had_again_are_tried_again(tmp_path, tasks, how):
    """A drive that comes back has its files as they were listed."""
    path = Path(tasks[0].ref.path)
    kept = path.rename(tmp_path / "kept")
    how(path)
    assert finish(tasks, recipe(tmp_path)).info.examples == 1
    if path.exists():
        path.rmdir()
    kept.rename(path)
    assert finish(tasks, recipe(tmp_path)).info.examples == 2
    assert sorted(source_ids(tmp_path / "out" / FILE)) == [1, 3]


def test_a_changed_image_is_written_again(tmp_path, tasks):
    finish(tasks, recipe(tmp_path))
    Image.new("RGB", (40, 30), (0, 0, 255)).save(tasks[0].ref.path)
    version = str(Path(tasks[0].ref.path).stat().st_mtime_ns)
    newer = msgspec.structs.replace(tasks[0], ref=msgspec.structs.replace(tasks[0].ref, version=version))
    finish([newer, *tasks[1:]], recipe(tmp_path))
    records = read(tmp_path / "out" / FILE)
    assert any(Path(tasks[0].ref.path).read_bytes() in record for record in records)


def test_an_output_that_cannot_be_written_stops_the_job(tmp_path, tasks):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OSError, match="out"):
        finish(tasks, recipe(tmp_path))


def test_a_plan_is_known_by_all_that_decides_its_bytes(tmp_path, tasks):
    plain = recipe(tmp_path)
    moved = msgspec.structs.replace(tasks[0], ref=msgspec.structs.replace(tasks[0].ref, version="2"))
    plans = [
        (KEY, tasks, plain, LABELS, TABLE),
        (ShardKey("train", 2, 3), tasks, plain, LABELS, TABLE),
        (KEY, tasks[:2], plain, LABELS, TABLE),
        (KEY, [moved, *tasks[1:]], plain, LABELS, TABLE),
        (KEY, [msgspec.structs.replace(tasks[0], annotations=()), *tasks[1:]], plain, LABELS, TABLE),
        (
            KEY,
            [msgspec.structs.replace(tasks[0], labels=ImageLabels((Caption(1, "a cat"),))), *tasks[1:]],
            plain,
            LABELS,
            TABLE,
        ),
        (KEY, tasks, plain, LabelMap((Category(1, "dog"),)), TABLE),
        (KEY, tasks, plain, LabelMap(LABELS.categories, (Category(92, "banner"),)), TABLE),
        (KEY, tasks, plain, LABELS, DETECTION.with_parts((Part.CAPTIONS,))),
        *(
            (KEY, tasks, recipe(tmp_path, **changed), LABELS, TABLE)
            for changed in (
                {"name": "other"},
                {"seed": 1},
                {"layout": "other"},
                {"gzip": True},
                {"boxes": "keep"},
                {"pictures": PictureRules("none")},
                {"format": FORMAT + 1},
            )
        ),
    ]
    digests = [plan_digest(*plan) for plan in plans]
    assert sorted(set(digests)) == sorted(digests)
    assert plan_digest(KEY, tasks, recipe(tmp_path, output="elsewhere"), LABELS, TABLE) == digests[0]


def test_the_transform_writes_full_and_empty_shards(tmp_path, tasks):
    made = recipe(tmp_path, gzip=True)
    full, empty = ShardKey("train", 0, 2), ShardKey("train", 1, 2)
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        placed = p | "Placed" >> beam.Create([(full, task) for task in tasks])
        plans = ShardPlans(placed, p | "Empty" >> beam.Create([empty]), p | "Plans" >> beam.Create([]))
        labels, table = p | "Labels" >> beam.Create([LABELS]), p | "Table" >> beam.Create([TABLE])
        written = plans | WriteShards(labels, table, made, threads=2)
        files = written.shards | "Files" >> beam.MapTuple(lambda split, info: (split, info.file, info.examples))
        objects = written.counted | "Objects" >> beam.Filter(lambda counted: counted[1].what == Metric.OBJECTS)
        reasons = written.rejected | "Reasons" >> beam.MapTuple(lambda split, reject: (split, reject.id, reject.reason))
        names = [f"coco-train.tfrecord-{index:05}-of-00002.gz" for index in range(2)]
        assert_that(files, equal_to([("train", names[0], 2), ("train", names[1], 0)]), "Shards")
        assert_that(objects, equal_to([("train", Count(Metric.OBJECTS, 1))]), "Counted")
        assert_that(
            reasons, equal_to([("train", 6, Reason.EMPTY_BOX), ("train", 2, Reason.IMAGE_UNREADABLE)]), "Rejected"
        )
    assert sorted(source_ids(tmp_path / "out" / names[0])) == [1, 3]
    assert read(tmp_path / "out" / names[1]) == []
