"""Tiles of Blocks become records: each image is decoded once, and counted once."""

import io
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.annotations import (
    NO_LABELS,
    Annotation,
    Caption,
    ImageLabels,
    PanopticAnnotation,
    Segment,
)
from recordmill.schemas.inputs.files import File, ImageFile
from recordmill.schemas.inputs.images import ImageRules, ImageTask, TileOf
from recordmill.schemas.layouts import CLASSIFICATION, DETECTION, KERAS, TFDS
from recordmill.schemas.rejects import Metric, Reason
from recordmill.transforms.encoders import record_maker
from recordmill.transforms.encoders.record_maker import EncodedRun, RecordContext
from recordmill.transforms.images.load_images import DECODING
from recordmill.transforms.records.parse_record import RecordParser
from recordmill.transforms.shards import encode_images, tile_batches
from recordmill.transforms.shards.encode_images import EncodeImages
from tests.transforms.blocks.of_tasks import block_of_tasks
from tests.transforms.encoders.drawn_tasks import LABELS

WIDTH, HEIGHT, SIDE = 70, 50, 32
PLACES = [(x, y) for y in (0, 32) for x in (0, 32, 64)]
_RULES = ImageRules("decode")
TABLE = DETECTION.with_parts((Part.TILES,))


def draw(path: Path, seed: int = 0, size: tuple[int, int] = (WIDTH, HEIGHT)) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


def tiles(
    path: Path, whole_id: int, places=PLACES, labels=NO_LABELS, side=SIDE, size=(WIDTH, HEIGHT)
) -> list[ImageTask]:
    """The tiles of an image, each with an object; the first is the first of the image."""
    ref = ImageFile(str(path), path.stat().st_size, str(path.stat().st_mtime_ns))
    width, height = size
    return [
        ImageTask(
            100 * whole_id + number,
            f"{path.stem}_{x}_{y}.png",
            min(side, width - x),
            min(side, height - y),
            ref,
            "train",
            (Annotation(10 * whole_id + number, 127, (1.0, 1.0, 3.0, 3.0), 9.0, False),),
            labels,
            tile=TileOf(x, y, width, height, path.name, whole_id, number == 0),
        )
        for number, (x, y) in enumerate(places)
    ]


def encode(
    tasks: list[ImageTask], table: FeatureTable = TABLE, rules: ImageRules = _RULES, threads: int = 2
) -> list[EncodedRun]:
    with ThreadPoolExecutor(threads) as pool:
        start = EncodeImages("clip", rules).start(RecordContext(LABELS, table, pool, threads))
        return [
            run._replace(records=[b"".join(record) for record in run.records])
            for run in start(block_of_tasks(tasks, ("train",)), "train")
        ]


def values(runs: Iterable[EncodedRun], table: FeatureTable = TABLE) -> list[dict]:
    parser = RecordParser(table)
    return [parser(record) for run in runs for record in run.records]


def total(runs: Iterable[EncodedRun]) -> Counter:
    return sum((run.counted for run in runs), Counter())


@pytest.fixture
def reads(monkeypatch) -> list[str]:
    """Names of the images that are decoded to be cut."""
    names: list[str] = []
    read = tile_batches.read_whole

    def count(data, tile, rules):
        names.append(tile.whole_name)
        return read(data, tile, rules)

    monkeypatch.setattr(tile_batches, "read_whole", count)
    return names


def test_tiles_are_crops_and_their_image_is_decoded_once(tmp_path, monkeypatch, reads):
    monkeypatch.setattr(encode_images, "_BATCH_IMAGES", 2)  # three batches an image, in two threads
    monkeypatch.setattr(encode_images, "_TASKS_AT_ONCE", 4)
    pixels = {name: draw(tmp_path / name, seed) for seed, name in enumerate(("a.png", "b.png"))}
    runs = encode([*tiles(tmp_path / "a.png", 1), *tiles(tmp_path / "b.png", 2)])
    assert sorted(reads) == ["a.png", "b.png"]
    records = values(runs)
    assert len(records) == 12
    for record in records:
        name = record["tile.file_name"].decode()
        x, y, width, height = (int(record[key][0]) for key in ("tile.x", "tile.y", "image.width", "image.height"))
        tile = np.asarray(Image.open(io.BytesIO(record["image.encoded"])))
        assert np.array_equal(tile, pixels[name][y : y + height, x : x + width])
    assert [record["tile.image_id"] for record in records] == [b"1"] * 6 + [b"2"] * 6
    counted = total(runs)
    assert {metric: counted[metric] for metric in (Metric.IMAGES, Metric.TILES, Metric.JPEG_TILES, Metric.OBJECTS)} == {
        Metric.IMAGES: 2,
        Metric.TILES: 12,
        Metric.JPEG_TILES: 0,
        Metric.OBJECTS: 12,
    }


def test_broken_image_is_one_reject_with_the_name_and_annotations_of_the_source(tmp_path, reads):
    draw(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:-40])
    captions = ImageLabels(captions=(Caption(5, "x"),))
    broken = tiles(tmp_path / "b.png", 2, labels=captions)
    runs = encode([*broken[:4], *tiles(tmp_path / "a.png", 1)])
    (reject,) = (reject for run in runs for reject in run.rejected)
    assert (reject.id, reject.file_name, reject.reason, reject.annotations) == (2, "b.png", Reason.IMAGE_UNREADABLE, 2)
    assert total(runs)[Metric.OF_REJECTED_IMAGES] == 6  # of the three further tiles
    (other,) = encode(broken[4:])  # of another shard
    assert not other.rejected
    assert dict(+other.counted) == {Metric.OF_REJECTED_IMAGES: 4}
    assert len(reads) == 3


def test_image_that_is_one_tile_is_stored_unchanged(tmp_path, reads):
    draw(tmp_path / "a.png", size=(20, 30))
    runs = encode(tiles(tmp_path / "a.png", 1, [(0, 0)], size=(20, 30)))
    (record,) = values(runs)
    assert record["image.encoded"] == (tmp_path / "a.png").read_bytes()
    assert total(runs)[Metric.TILES] == total(runs)[Metric.IMAGES] == 1
    assert not reads


def test_jpeg_tiles_are_counted(tmp_path):
    draw(tmp_path / "a.jpg")
    counted = total(encode(tiles(tmp_path / "a.jpg", 1)))
    assert (counted[Metric.TILES], counted[Metric.JPEG_TILES], counted[Metric.FROM_JPEG]) == (6, 6, 0)


def test_annotation_that_is_rejected_has_the_ids_of_the_source(tmp_path):
    draw(tmp_path / "a.png")
    first, second, *_ = tiles(tmp_path / "a.png", 7)
    outside = Annotation(1, 127, (40.0, 0.0, 5.0, 5.0), 25.0, False)
    (run,) = encode([first, msgspec.structs.replace(second, annotations=(outside,))])
    (reject,) = run.rejected
    assert (reject.id, reject.image_id, reject.file_name) == (1001, 7, "a.png")


@pytest.mark.parametrize("table", [KERAS, TFDS, CLASSIFICATION], ids=lambda table: table.layout)
def test_each_layout_has_the_place_of_tiles(tmp_path, table):
    draw(tmp_path / "a.png")
    table = table.with_parts((Part.TILES,))
    labels = ImageLabels(class_name=LABELS.categories[0].name if table.layout == "classification" else None)
    (run,) = encode(tiles(tmp_path / "a.png", 1, PLACES[4:5], labels), table)
    (record,) = values([run], table)
    assert (record["tile.x"], record["tile.y"], record["tile.file_name"]) == (32, 32, b"a.png")


def test_tile_too_large_for_a_record_ends_the_job(tmp_path, monkeypatch):
    draw(tmp_path / "a.png")
    monkeypatch.setattr(record_maker, "MAX_RECORD_BYTES", 3000)
    with pytest.raises(ConfigError, match=r"'a.png': tile 'a_0_0.png': .* Use a smaller --tile"):
        encode(tiles(tmp_path / "a.png", 1))


@pytest.fixture
def encode_four(tmp_path, monkeypatch):
    """Function that encodes four images, a tile at a time."""
    monkeypatch.setattr(encode_images, "_BATCH_IMAGES", 1)
    monkeypatch.setattr(encode_images, "_RUN_IMAGES", 1)
    tasks = []
    for number in range(4):
        draw(tmp_path / f"{number}.png", number)
        tasks += tiles(tmp_path / f"{number}.png", number + 1)
    maker = EncodeImages("clip", _RULES)
    return lambda pool: maker.start(RecordContext(LABELS, TABLE, pool, 3))(block_of_tasks(tasks, ("train",)), "train")


def test_budget_of_decoded_images_is_given_back(encode_four, monkeypatch):
    monkeypatch.setattr(DECODING, "_total", WIDTH * HEIGHT)  # one image at a time
    with ThreadPoolExecutor(3) as pool:
        assert sum(run.images for run in encode_four(pool)) == 24
    assert DECODING._used == 0


def test_budget_is_given_back_where_batches_are_cancelled(encode_four, monkeypatch):
    load, calls, may_go_on = tile_batches.DividedImage.load, [], threading.Event()

    def load_first(*arguments):
        if len(calls) == 2:  # the reader has the first run then
            may_go_on.wait(10)
        calls.append(arguments)
        return load(*arguments)

    monkeypatch.setattr(tile_batches.DividedImage, "load", load_first)
    with ThreadPoolExecutor(1) as pool:
        runs = encode_four(pool)
        next(runs)
        runs.close()
        may_go_on.set()
    assert len(calls) < 6
    assert DECODING._used == 0


SEGMENTS = (Segment(7, 127, False, (0.0, 0.0, 40.0, 50.0), 2000.0), Segment(300, 192, False))


def panoptic_file(path: Path, size: tuple[int, int] = (WIDTH, HEIGHT)) -> PanopticAnnotation:
    """Segment 7 in the columns before 40, 300 from there on; void in the first row."""
    ids = np.full(size[::-1], 300, np.uint32)
    ids[:, :40], ids[0] = 7, 0
    Image.fromarray(np.stack([ids & 255, ids >> 8 & 255, ids >> 16], axis=2).astype(np.uint8)).save(path)
    return PanopticAnnotation(File(str(path), path.stat().st_size), "a.png", SEGMENTS)


def test_panoptic_maps_are_cropped_with_the_segments_that_they_show(tmp_path):
    draw(tmp_path / "a.png")
    labels = ImageLabels(panoptic=(panoptic_file(tmp_path / "map.png"),))
    table = TFDS.with_parts((Part.PANOPTIC, Part.TILES))
    runs = encode(tiles(tmp_path / "a.png", 1, labels=labels), table)
    records = values(runs, table)
    whole = np.asarray(Image.open(tmp_path / "map.png"))
    for (x, y), record in zip(PLACES, records, strict=True):
        part = np.asarray(Image.open(io.BytesIO(record["panoptic.png"])))
        assert np.array_equal(part, whole[y : y + SIDE, x : x + SIDE])
    assert [list(record["segments.id"]) for record in records] == [[7], [7, 300], [300], [7], [7, 300], [300]]
    assert list(records[1]["segments.area"]) == [8 * 31, 24 * 31]
    assert records[1]["segments.bbox_yxyx"].ravel().tolist() == [1 / 32, 0.0, 1.0, 0.25, 1 / 32, 0.25, 1.0, 1.0]
    assert records[1]["panoptic.file_name"] == b"a_32_0.png"
    counted = total(runs)
    assert (counted[Metric.PANOPTIC], counted[Metric.TILE_COPIES]) == (6, 5)


def test_memory_of_a_large_decoded_map_is_returned_before_its_image_is_decoded(tmp_path, monkeypatch, reads):
    monkeypatch.setattr(tile_batches, "_LARGE_PIXELS", 0)
    monkeypatch.setattr(tile_batches, "return_memory", lambda: reads.append("returned"))
    for number, name in enumerate(("a.png", "b.png"), 1):
        draw(tmp_path / name)
        panoptic = (panoptic_file(tmp_path / "map.png"),) if number == 1 else ()
        encode(
            tiles(tmp_path / name, number, labels=ImageLabels(panoptic=panoptic)),
            TFDS.with_parts((Part.PANOPTIC, Part.TILES)),
        )
    assert reads == ["returned", "a.png", "returned", "b.png", "returned"]


@pytest.mark.parametrize("split_at", [6, 3])
def test_panoptic_file_of_another_size_is_one_reject(tmp_path, split_at):
    draw(tmp_path / "a.png")
    labels = ImageLabels(panoptic=(panoptic_file(tmp_path / "map.png", (60, 50)),))
    table = TFDS.with_parts((Part.PANOPTIC, Part.TILES))
    tasks = tiles(tmp_path / "a.png", 1, labels=labels)
    shards = [encode(part, table) for part in (tasks[:split_at], tasks[split_at:]) if part]
    (reject,) = (reject for runs in shards for run in runs for reject in run.rejected)
    assert (reject.reason, reject.image_id, reject.file_name) == (Reason.MASK_SIZE_MISMATCH, 1, "a.png")
    counted = sum(map(total, shards), Counter())
    assert (counted[Metric.TILES], counted[Metric.PANOPTIC], counted[Metric.TILE_COPIES]) == (6, 0, 0)


def test_fingerprints_and_pixel_problems_are_of_images(tmp_path):
    Image.new("RGB", (WIDTH, HEIGHT)).save(tmp_path / "black.png")
    (run,) = encode(tiles(tmp_path / "black.png", 1))
    facts = run.facts.without_tiles()
    assert facts.name.texts() == ["black.png"] * 6
    assert facts.is_continuation.tolist() == [False] + [True] * 5
    assert facts.size_px.tolist() == [[WIDTH, HEIGHT]] * 6
    assert len(set(facts.sha256)) == 1
    assert facts.sha256 != run.facts.sha256
    assert [bool(measures) for measures in facts.measures] == [True] + [False] * 5
