"""docs/consumers/datumaro_links.py: its importer has the boxes, classes and images of every record."""

import io
import runpy

import datumaro as dm
import numpy as np
import pytest
from PIL import Image

from tests.consumers.coco_truth import Truth
from tests.consumers.pages import DOCS


@pytest.fixture
def imported(truth, tmp_path, recordmill, monkeypatch):
    """Data set as Datumaro reads it."""

    def run(*flags: object) -> dm.Dataset:
        monkeypatch.chdir(tmp_path)
        assert recordmill("convert", *truth.flags, "--output", "out", "--num-shards", 2, *flags).code == 0
        return runpy.run_path(str(DOCS / "consumers" / "datumaro_links.py"))["dataset"]

    return run


def images_of(dataset: dm.Dataset, truth: Truth) -> dict[int, dm.DatasetItem]:
    """Items by image id, each with the image of its file."""
    items = {int(item.attributes["source_id"]): item for item in dataset}
    assert set(items) == truth.image_ids
    for image_id, item in items.items():
        with Image.open(truth.path(image_id)) as image:
            expected = np.asarray(image.convert("RGB"))
        with Image.open(io.BytesIO(item.media.bytes)) as image:
            assert np.array_equal(np.asarray(image.convert("RGB")), expected)
    return items


def classes_of(dataset: dm.Dataset, item: dm.DatasetItem) -> list[str]:
    names = dataset.categories()[dm.AnnotationType.label]
    return [names[annotation.label].name for annotation in item.annotations]


def expected_classes(truth: Truth, image_id: int) -> list[str]:
    return [truth.coco.cats[id_]["name"] for id_ in truth.values(image_id, "category_id")]


def test_boxes_and_classes(truth, imported):
    dataset = imported()
    for image_id, item in images_of(dataset, truth).items():
        boxes = np.array([annotation.get_bbox() for annotation in item.annotations]).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        np.testing.assert_allclose(boxes, truth.boxes_xyxy_px(image_id), atol=1e-3)
        assert classes_of(dataset, item) == expected_classes(truth, image_id)
    assert len(dataset.categories()[dm.AnnotationType.label]) == len(truth.categories)


def test_masks(truth, imported):
    dataset = imported("--masks", "png")
    for image_id, item in images_of(dataset, truth).items():
        expected = truth.masks(image_id)
        masks = [annotation.image for annotation in item.annotations]
        assert [np.array_equal(mask != 0, other != 0) for mask, other in zip(masks, expected, strict=True)] == [
            True
        ] * len(expected)
        assert classes_of(dataset, item) == expected_classes(truth, image_id)
