import io
import random

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.block import Block, join_blocks, ragged_bytes, ragged_texts
from recordmill.schemas.errors import CollidingImagesError, ConfigError
from recordmill.schemas.inputs.annotations import Category, ImageLabels
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageRules, TileRules
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.blocks.image_tasks import label_column, labels_of
from recordmill.transforms.blocks.run_step import hash_in_order, image_order
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.images import measure_size as module
from recordmill.transforms.images.measure_size import measure_size
from recordmill.transforms.shape.tile_images import (
    TileJob,
    check_names,
    divide_block,
    drop_other_tags,
    list_names,
    measure_block,
    part_key,
)
from tests.transforms.shape.test_divide_images import block_of

JOB = TileJob(TileRules(100, 0.0, 0.3, 1.0), ImageRules("decode"), "clip", 0.0, ("train",))
NO_CLASSES = np.zeros(0, np.int64)
LYING = 6
"""EXIF orientation of an image that is stored on its side."""


def image_bytes(kind: str, size: tuple[int, int], orientation: int = 1, padding: int = 0) -> bytes:
    """Image with an EXIF orientation; `padding` bytes of metadata come before its size."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    more = {"comment": bytes(padding)} if padding else {}
    buffer = io.BytesIO()
    Image.effect_noise(size, 90).save(buffer, kind, exif=exif, **more)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "upright", "expected"),
    [
        pytest.param(image_bytes("JPEG", (400, 300)), True, (400, 300), id="jpeg"),
        pytest.param(image_bytes("JPEG", (400, 300), LYING), True, (300, 400), id="turned_jpeg"),
        pytest.param(image_bytes("JPEG", (400, 300), LYING), False, (400, 300), id="stored_jpeg"),
        pytest.param(image_bytes("JPEG", (400, 300), 3), True, (400, 300), id="upside_down"),
        pytest.param(image_bytes("PNG", (400, 300), LYING), True, (300, 400), id="turned_png"),
        pytest.param(image_bytes("PNG", (400, 300), LYING), False, (400, 300), id="stored_png"),
        pytest.param(image_bytes("WEBP", (400, 300)), True, (400, 300), id="webp"),
        pytest.param(image_bytes("JPEG", (400, 300), padding=3000), True, (400, 300), id="size_after_the_start"),
        pytest.param(image_bytes("JPEG", (400, 300))[:100], True, None, id="cut"),
        pytest.param(b"", True, None, id="empty"),
        pytest.param(b"text", True, None, id="no_image"),
    ],
)
def test_size_of_a_file(data, upright, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_START_BYTES", 1000)
    path = tmp_path / "image"
    path.write_bytes(data)
    file = ImageFile(str(path), len(data))
    assert measure_size(file, upright) == expected
    assert measure_size(ImageFile("", len(data), data=data), upright) == expected
    path.unlink()
    assert measure_size(file, upright) is None


def test_stated_sizes_are_trusted_and_others_are_measured():
    data = ragged_bytes([b"", image_bytes("JPEG", (80, 60), LYING), b"?", b""])
    block = block_of([(10, 20), (0, 0), (0, 0), (20_000, 10_000)], [[], [], [], []], image_data=data)
    measured = measure_block(block, upright=True)
    assert measured.image_size_px.tolist() == [[10, 20], [60, 80], [0, 0], [0, 0]]
    assert measured.is_measured.tolist() == [False, True, True, False]
    unturned = measure_block(block.replace(ignores_exif=np.full(4, True)), upright=True)
    assert unturned.image_size_px.tolist() == [[10, 20], [80, 60], [0, 0], [0, 0]]


def test_tiles_are_not_divided_again():
    tiles = block_of([(10, 20)], [[]], tile_xy_px=np.array([[0, 0]]))
    with pytest.raises(ConfigError, match="Samples are tiles already"):
        measure_block(tiles, upright=True)


def divided(block: Block, job: TileJob = JOB) -> list[Block]:
    return list(divide_block(block, job, NO_CLASSES, FactsBuilder()))


def test_images_without_a_size_stay_whole_in_their_order():
    names = ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
    block = block_of([(150, 50), (0, 0), (50, 50), (50, 150)], [[], [], [], []], names)
    tiles = join_blocks(divided(block.replace(is_measured=np.array([False, True, False, False]))))
    assert tiles.file_name.texts() == ["a_0_0.jpg", "a_100_0.jpg", "b.jpg", "c_0_0.jpg", "d_0_0.jpg", "d_0_100.jpg"]
    assert tiles.tile_xy_px[2].tolist() == [-1, -1]
    assert tiles.image_size_px[2].tolist() == [0, 0]


def test_blocks_of_tiles_are_bounded(monkeypatch):
    monkeypatch.setattr("recordmill.transforms.shape.tile_images._BLOCK_TILES", 10)
    monkeypatch.setattr("recordmill.transforms.shape.tile_images._BLOCK_DATA_BYTES", 25)
    data = ragged_bytes([b"", b"0123456789", b""])
    block = block_of([(400, 500), (400, 100), (900, 100)], [[], [], []], image_data=data)
    parts = divided(block.replace(is_measured=np.zeros(3, bool)))
    assert [len(part) for part in parts] == [10, 10, 2, 10, 1]
    assert [part.image_data.texts()[:3] for part in parts[2:4]] == [["0123456789"] * 2, ["0123456789"] * 2 + [""]]
    assert [part_key(5 << 32 | 3, number) for number in (0, 1)] == [5 << 32 | 3 << 16, 5 << 32 | 3 << 16 | 1]


def test_an_image_of_too_many_tiles_is_named():
    block = block_of([(2000, 1000)], [[]], ["a.jpg"]).replace(is_measured=np.zeros(1, bool))
    text = "'a.jpg' of 2000x1000 pixels would give 2,000,000 tiles"
    with pytest.raises(ConfigError, match=text):
        divided(block, JOB._replace(rules=TileRules(1)))


def test_tiles_of_an_image_are_neighbours_in_order():
    sides = [(250, 250), (0, 0), (150, 150)]
    block = block_of(sides, [[], [], []]).replace(is_measured=np.zeros(3, bool))
    tiles = join_blocks(divided(block))
    rows = list(range(len(tiles)))
    random.Random(0).shuffle(rows)
    shuffled = tiles.take(np.array(rows))
    ordered = shuffled.take(image_order(shuffled, hash_in_order(shuffled, 7)))
    names = [name.partition("_")[0] for name in ordered.file_name.texts()]
    assert [name for row, name in enumerate(names) if names[row - 1 : row] != [name]] == list(dict.fromkeys(names))
    for image in (5, 7):
        is_tile = ordered.whole_id == image
        assert ordered.tile_xy_px[is_tile].tolist() == tiles.tile_xy_px[tiles.whole_id == image].tolist()


@pytest.mark.parametrize(
    ("names", "splits", "text"),
    [
        pytest.param(["a.jpg", "a_0_100.jpg"], [0, 0], "'a.jpg' would have the name of the image 'a_0_100.jpg'"),
        pytest.param(["a.jpg", "a.jpg"], [0, 0], "two image ids have the file 'a.jpg', so that"),
        pytest.param(["a.jpg", "a_0_50.jpg", "a_0_900.jpg", "a_0_0.png", "a_1.jpg"], [0] * 5, ""),
        pytest.param(["a.jpg", "a_0_0.jpg"], [0, 1], ""),
    ],
)
def test_a_name_that_exists_is_an_error(names, splits, text):
    block = block_of([(150, 150)] * len(names), [[]] * len(names), names, split=np.array(splits))
    groups: dict[int, list[tuple]] = {}
    for number, name in list_names(block):
        groups.setdefault(number, []).append(tuple(name))
    if text:
        with pytest.raises(CollidingImagesError, match=text):
            check_all_names(groups)
    else:
        check_all_names(groups)


def check_all_names(groups: dict[int, list[tuple]]) -> None:
    for group in groups.items():
        check_names(group, JOB.rules)


def test_measured_files_are_read_in_order():
    files = ragged_bytes([image_bytes("PNG", (side, 7)) for side in (30, 20, 10)])
    block = block_of([(0, 0)] * 3, [[]] * 3, image_data=files, file_folder=ragged_texts(["/in/"] * 3))
    assert measure_block(block, False, lambda *arguments: list(map(*arguments))).image_size_px[:, 0].tolist() == [
        30,
        20,
        10,
    ]


def test_tags_of_other_classes_fill_no_tile():
    labels = label_column([ImageLabels(tags=("day", "car")), ImageLabels(tags=("day",))])
    block = block_of([(40, 30)] * 2, [[], []], labels=labels)
    kept = drop_other_tags(block, LabelMap((Category(1, "car"),)))
    assert [image.tags for image in labels_of(kept)] == [("car",), ()]
    assert drop_other_tags(block, LabelMap((Category(1, "car"), Category(2, "day")))) is block
