import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.annotations import Annotation, Caption, Category, ImageLabels, MapFile, TableRow
from recordmill.schemas.inputs.files import File, ImageFile
from recordmill.schemas.inputs.images import ImageTask, StoredImage, TileOf
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import CLASSIFICATION, DETECTION, KERAS, LAYOUTS, TFDS
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.images.masks import grey_png
from recordmill.transforms.records.tfrecord import framed_size
from tests.transforms.blocks.drawn_blocks import SPLITS, tasks
from tests.transforms.blocks.of_tasks import block_of_tasks
from tests.transforms.encoders.drawn_tasks import encode_tasks, expected_amount

LABELS = LabelMap((Category(1, "person", keypoints=tuple(f"keypoint {n}" for n in range(17))), Category(44, "bottle")))
POLYGON = b"[[" + b", ".join(b"%d.5, %d.25" % (10 + n, 20 + n * n % 90) for n in range(40)) + b"]]"
PLAIN = DETECTION.with_parts(())
GREY_PNG = grey_png(np.zeros((240, 320), np.uint8))


def expected_bytes(task: ImageTask, table: FeatureTable) -> int:
    return expected_amount(RecordEstimate(table), task)[0]


def task(objects: int = 0, size: int = 10_000, captions: int = 0, keypoints: int = 0) -> ImageTask:
    annotations = tuple(
        Annotation(
            900_100_000_000 + number, 1, (10.0, 20.0, 40.0, 90.0), 700.5, False, POLYGON, (30.0, 40.0, 2.0) * keypoints
        )
        for number in range(objects)
    )
    labels = ImageLabels(tuple(Caption(number, "a person holds a bottle by the sea") for number in range(captions)))
    return ImageTask(397133, "000000397133.jpg", 320, 240, ImageFile("i.jpg", size), "train", annotations, labels)


def framed_bytes(task: ImageTask, table: FeatureTable, image: StoredImage | None = None) -> int:
    image = image or StoredImage(bytes(task.ref.size_bytes), "jpeg", task.width, task.height, "0" * 64)
    records = encode_tasks(LABELS, table, "clip", [(task, image)]).records
    return sum(framed_size(len(b"".join(record))) for record in records)


MASKED = DETECTION.with_parts((Part.MASK_PNG, Part.MASK_RLE, Part.KEYPOINTS, Part.CAPTIONS))
TABLES = [
    PLAIN,
    KERAS.with_parts(()),
    MASKED,
    DETECTION.with_parts((Part.SEMANTIC, Part.PANOPTIC)),
    CLASSIFICATION.with_parts(()),
]


@settings(max_examples=50)
@given(tasks(), st.sampled_from(TABLES), st.sampled_from([None, 20, 1000]))
def test_other_images_change_nothing(images, table, max_side):
    estimate, block = RecordEstimate(table, max_side), block_of_tasks(images, SPLITS)
    amounts = list(zip(*(column.tolist() for column in estimate.estimate_block(block)), strict=True))
    assert amounts == [expected_amount(estimate, image) for image in images]
    alone = [estimate.least_mask_bytes(block_of_tasks([image], SPLITS)).item() for image in images]
    assert estimate.least_mask_bytes(block).tolist() == alone


@pytest.mark.parametrize("objects", [0, 1, 7])
def test_record_is_of_image_or_of_object(objects):
    found = {layout: expected_amount(RecordEstimate(table), task(objects))[1] for layout, table in LAYOUTS.items()}
    assert found == {"detection": 1, "tfds": 1, "keras": objects, "classification": 1, "features": 1, "table": 1}


@pytest.mark.parametrize("objects", [1, 7, 60])
@pytest.mark.parametrize(
    "table",
    [
        PLAIN,
        KERAS.with_parts(()),
        TFDS.with_parts(()),
        TFDS.with_parts((Part.CAPTIONS,)),
        DETECTION.with_parts((Part.CAPTIONS, Part.KEYPOINTS, Part.LVIS)),
    ],
    ids=["plain", "keras", "tfds", "captions", "keypoints"],
)
def test_estimate_is_within_a_tenth(table, objects):
    full = task(objects, captions=5, keypoints=17)
    assert expected_bytes(full, table) == pytest.approx(framed_bytes(full, table), rel=0.1)


def test_names_are_counted_in_characters():
    one, other = (msgspec.structs.replace(task(), file_name=name) for name in ("ete/日本.jpg", "été/12.jpg"))
    assert expected_bytes(one, PLAIN) == expected_bytes(other, PLAIN) == expected_bytes(task(), PLAIN) - 6


@pytest.mark.parametrize("parts", [(Part.MASK_PNG,), (Part.MASK_RLE,), (Part.MASK_PNG, Part.MASK_RLE)])
def test_masks_are_guessed_at_within_factor_of_three(parts):
    table = DETECTION.with_parts(parts)
    of_masks = framed_bytes(task(30), table) - framed_bytes(task(30), PLAIN)
    guessed = expected_bytes(task(30), table) - expected_bytes(task(30), PLAIN)
    assert of_masks / 3 < guessed < of_masks * 3


@pytest.mark.parametrize("parts", [(Part.SEMANTIC,), (Part.SEMANTIC, Part.PANOPTIC)])
def test_estimated_size_of_image_masks(parts):
    table = DETECTION.with_parts(parts)

    def guessed(width, height):
        sized = msgspec.structs.replace(task(), width=width, height=height)
        return expected_bytes(sized, table) - expected_bytes(sized, DETECTION.with_parts(()))

    one_more = guessed(640, 960) - guessed(640, 480)
    assert one_more > 1000
    assert guessed(1280, 960) - guessed(640, 480) == pytest.approx(3 * one_more, abs=2)
    assert guessed(None, None) == guessed(640, 480)


@pytest.mark.parametrize(
    ("part", "name", "tile", "share"),
    [
        (Part.DEPTH, "1.png", None, 1),
        (Part.DEPTH, "1.png", TileOf(0, 0, 640, 480, "1.jpg", 1), 0.25),
        (Part.SEMANTIC, "1.PNG", None, 1),
        (Part.SEMANTIC, "1.gif", TileOf(0, 0, 320, 480, "1.jpg", 1), 0.5),
        (Part.SEMANTIC, "1.bmp", None, 320 * 240 / 45 / 200_000),
    ],
)
@pytest.mark.parametrize("is_size_known", [True, False])
def test_maps_are_as_large_as_their_compressed_files(part, name, tile, share, is_size_known):
    table = DETECTION.with_parts((part, *((Part.TILES,) if tile else ())))
    labels = ImageLabels(maps=(MapFile(part, File(name, 200_000), name),))
    plain = msgspec.structs.replace(task(), tile=tile)
    if not (is_size_known or tile):
        share = share if share == 1 else share * 4
        plain = msgspec.structs.replace(plain, width=None, height=None)
    mapped = msgspec.structs.replace(plain, labels=labels)
    guessed = 0 if part is Part.DEPTH else (plain.width or 640) * (plain.height or 480) / 45
    added = expected_bytes(mapped, table) - expected_bytes(plain, table) + guessed
    assert added == pytest.approx(share * 200_000, abs=2)


@given(st.sampled_from([*LAYOUTS.values(), PLAIN]), st.integers(0, 20), st.integers(0, 10**9), st.integers(0, 5))
def test_more_of_anything_is_never_expected_to_be_smaller(table, objects, size, captions):
    less = expected_bytes(task(objects, size, captions), table)
    with_another = expected_bytes(task(objects + 1, size, captions), table)
    assert with_another > less if "objects.id" in table.sources else with_another == less
    assert expected_bytes(task(objects, size + 1, captions), table) >= less
    assert expected_bytes(task(objects, size, captions + 1), table) >= less


def test_estimate_of_one_class_is_within_a_tenth():
    of_one_class = msgspec.structs.replace(task(size=len(GREY_PNG)), labels=ImageLabels(class_name="bottle"))
    image = StoredImage(GREY_PNG, "png", 320, 240, "0" * 64)
    written = framed_bytes(of_one_class, CLASSIFICATION.with_parts(()), image)
    expected = expected_bytes(of_one_class, CLASSIFICATION.with_parts(()))
    assert expected == pytest.approx(written, rel=0.1)
    of_row = ImageLabels(class_name="bottle", row=TableRow(b"x" * 300, 1, "rows.csv"))
    assert (
        expected_bytes(msgspec.structs.replace(of_one_class, labels=of_row), CLASSIFICATION.with_parts(()))
        == expected + 300
    )


@pytest.mark.parametrize("side", [500, 2000, 6000])
@pytest.mark.parametrize("max_side", [None, 1000])
def test_masks_grow_with_their_image(side, max_side):
    """Every mask is a PNG of the whole image, so zeros are most of it where the image is large."""
    table = DETECTION.with_parts((Part.MASK_PNG,))
    large = msgspec.structs.replace(task(20), width=side, height=side)
    shrunk = min(side, max_side or side)
    image = StoredImage(bytes(10_000), "jpeg", shrunk, shrunk, "0" * 64, (side, side) if shrunk < side else None)
    size = framed_bytes(large, table, image)
    assert expected_amount(RecordEstimate(table, max_side), large)[0] == pytest.approx(size, rel=0.25)
    assert RecordEstimate(table, max_side).least_mask_bytes(block_of_tasks([large], (large.split,)))[0] < size


def test_texts_as_numbers_are_measured():
    """Indices of a vocabulary of some thousands of terms, and their weights."""
    index = tuple(range(50, 5_000, 25))
    labels = ImageLabels((Caption(1, "a person"),), caption_index=index, caption_value=(0.1,) * len(index))
    with_terms = msgspec.structs.replace(task(), labels=labels)
    table = DETECTION.with_parts((Part.CAPTIONS, Part.CAPTION_TERMS))
    assert expected_bytes(with_terms, table) == pytest.approx(framed_bytes(with_terms, table), rel=0.01)
    assert expected_bytes(with_terms, table) - expected_bytes(task(captions=1), table) > 5 * len(index)
