"""Masks of the records are those that pycocotools draws from the annotation file, pixel for pixel."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as rle_masks

from tests.conftest import draw_jpeg, read_examples, write_coco
from tests.consumers.coco_truth import Truth

HEIGHT, WIDTH = 30, 40

TRIANGLE = [4.2, 3.7, 30.5, 8.1, 12.0, 25.9]
SQUARE = [20.0, 15.0, 35.5, 15.0, 35.5, 28.0, 20.0, 28.0]


def _column_runs() -> dict:
    """Uncompressed run lengths, down the columns: two bars."""
    counts = [5 * HEIGHT + 3, 20, 4 * HEIGHT - 20, 25]
    return {"size": [HEIGHT, WIDTH], "counts": [*counts, HEIGHT * WIDTH - sum(counts)]}


def _compressed(runs: dict) -> dict:
    rle = rle_masks.frPyObjects(runs, HEIGHT, WIDTH)
    return {"size": rle["size"], "counts": rle["counts"].decode()}


FORMS = {
    "a polygon": [TRIANGLE],
    "two polygons": [TRIANGLE, SQUARE],
    "a polygon that leaves the picture": [[-5.0, -5.0, 50.0, 10.0, 20.0, 45.0]],
    "run lengths": _column_runs(),
    "compressed run lengths": _compressed(_column_runs()),
    "run lengths of nothing": {"size": [HEIGHT, WIDTH], "counts": [HEIGHT * WIDTH]},
    "run lengths of everything": {"size": [HEIGHT, WIDTH], "counts": [0, HEIGHT * WIDTH]},
}


def png_masks(example: dict) -> list[np.ndarray]:
    """As Pillow reads them."""
    images = [Image.open(io.BytesIO(data)) for data in example["image/object/mask"]]
    assert {(image.format, image.mode) for image in images} <= {("PNG", "L")}
    return [np.asarray(image) for image in images]


def rle_decoded(example: dict) -> list[np.ndarray]:
    """As pycocotools reads them."""
    size = [example["image/height"][0], example["image/width"][0]]
    return [rle_masks.decode({"size": size, "counts": counts}) for counts in example["image/object/mask/rle"]]


def assert_masks_equal(example: dict, expected: np.ndarray) -> None:
    for masks in (png_masks(example), rle_decoded(example)):
        assert [mask.shape for mask in masks] == [mask.shape for mask in expected]
        different = [int((mask != other).sum()) for mask, other in zip(masks, expected, strict=True)]
        assert different == [0] * len(expected)  # pixels


def test_every_mask(truth, tmp_path, recordmill):
    outcome = recordmill("coco", *truth.flags, "--output", tmp_path, "--masks", "both", "--num-shards", 3)
    assert outcome.code == 0, outcome
    examples = {int(example["image/source_id"][0]): example for example in read_examples(tmp_path)}
    assert set(examples) == truth.image_ids
    for image_id, example in examples.items():
        assert example["image/object/id"] == truth.values(image_id, "id")
        assert_masks_equal(example, truth.masks(image_id))


@pytest.mark.parametrize("crowd", [0, 1])
def test_every_legal_form_of_a_segmentation(tmp_path, recordmill, crowd):
    truth = _forms(tmp_path, [*FORMS.values()], crowd)
    flags = [*truth.flags, "--bbox-format", "xywh"]  # which the polygons contradict
    outcome = recordmill("coco", *flags, "--output", tmp_path / "out", "--masks", "both")
    assert outcome.code == 0, outcome
    (example,) = read_examples(tmp_path / "out")
    assert example["image/object/is_crowd"] == [crowd] * len(FORMS)
    assert_masks_equal(example, truth.masks(1))


def test_no_segmentation_is_a_mask_of_nothing(tmp_path, recordmill):
    """pycocotools itself draws none; the other objects must keep theirs."""
    truth = _forms(tmp_path, [[TRIANGLE], [], [SQUARE]], crowd=0)
    outcome = recordmill("coco", *truth.flags, "--output", tmp_path / "out", "--masks", "both")
    assert outcome.code == 0, outcome
    (example,) = read_examples(tmp_path / "out")
    first, _, last = truth.annotations(1)
    nothing = np.zeros((HEIGHT, WIDTH), np.uint8)
    assert_masks_equal(example, np.array([truth.coco.annToMask(first), nothing, truth.coco.annToMask(last)]))


def test_a_polygon_of_four_numbers_is_a_box(tmp_path, recordmill):
    """pycocotools takes a box in an array only, and raises at the list that is in JSON."""
    box = [5.0, 6.0, 10.0, 8.0]
    truth = _forms(tmp_path, [[box], [TRIANGLE]], crowd=0)
    outcome = recordmill("coco", *truth.flags, "--output", tmp_path / "out", "--masks", "both")
    assert outcome.code == 0, outcome
    (example,) = read_examples(tmp_path / "out")
    drawn = rle_masks.decode(rle_masks.frPyObjects(np.array([box]), HEIGHT, WIDTH))[..., 0]
    assert drawn.sum() == 80
    assert_masks_equal(example, np.array([drawn, truth.coco.annToMask(truth.annotations(1)[1])]))


def _forms(folder: Path, segmentations: list, crowd: int) -> Truth:
    """One picture with a square object for each segmentation."""
    draw_jpeg(folder / "images" / "a.jpg", WIDTH, HEIGHT)
    annotations = [
        {
            "id": number,
            "image_id": 1,
            "category_id": 1,
            "bbox": [5, 5, 10, 10],
            "area": 100,
            "iscrowd": crowd,
            "segmentation": segmentation,
        }
        for number, segmentation in enumerate(segmentations, 1)
    ]
    image = {"id": 1, "file_name": "a.jpg", "width": WIDTH, "height": HEIGHT}
    return Truth(folder / "images", write_coco(folder, [image], annotations, [{"id": 1, "name": "thing"}]))
