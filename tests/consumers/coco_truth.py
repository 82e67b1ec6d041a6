"""Contents of a COCO data set as json, pycocotools and Pillow read them: the expected side of every comparison here."""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from tests.conftest import SHARED_DATA, draw_jpeg, write_coco


class Truth:
    """One annotation file and its images.

    Attributes:
        images, instances: Folder of images, and the file.
        flags: `recordmill convert` with these as input. What cannot be read is accepted: the drawn sample has two such.
    """

    def __init__(self, images: str | Path, instances: str | Path):
        self.images, self.instances = Path(images), Path(instances)
        self.coco = COCO(str(instances))
        self.categories = json.loads(Path(instances).read_text())["categories"]
        self.flags = ["--images", images, "--instances", instances, "--max-rejects", 0.2]

    @cached_property
    def image_ids(self) -> set[int]:
        """Ids of the images with a complete file."""
        return {id_ for id_ in self.coco.getImgIds() if _is_whole(self.path(id_))}

    def path(self, image_id: int) -> Path:
        return self.images / self.row(image_id)["file_name"]

    def row(self, image_id: int) -> dict[str, Any]:
        (row,) = self.coco.loadImgs(image_id)
        return row

    def annotations(self, image_id: int) -> list[dict[str, Any]]:
        """In the order of their ids."""
        return sorted(self.coco.loadAnns(self.coco.getAnnIds(image_id)), key=lambda annotation: annotation["id"])

    def values(self, image_id: int, key: str) -> list[Any]:
        """One value an annotation."""
        return [annotation[key] for annotation in self.annotations(image_id)]

    def class_indices(self, image_id: int) -> list[int]:
        """Places of the annotations' categories in the file's own list."""
        ids = [category["id"] for category in self.categories]
        return [ids.index(id_) for id_ in self.values(image_id, "category_id")]

    def boxes_xyxy_px(self, image_id: int) -> np.ndarray:
        """float64 [N, 4], clipped to the image."""
        row = self.row(image_id)
        boxes = np.array(self.values(image_id, "bbox"), float).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        return boxes.clip(0, [row["width"], row["height"]] * 2)

    def boxes_yxyx_frac(self, image_id: int) -> np.ndarray:
        """float64 [N, 4]: ymin, xmin, ymax, xmax, as TensorFlow's readers stack them."""
        row = self.row(image_id)
        return self.boxes_xyxy_px(image_id)[:, [1, 0, 3, 2]] / ([row["height"], row["width"]] * 2)

    def masks(self, image_id: int) -> np.ndarray:
        """uint8 [N, height, width], 0 and 1."""
        row = self.row(image_id)
        masks = [self.coco.annToMask(annotation) for annotation in self.annotations(image_id)]
        return np.array(masks, np.uint8).reshape(-1, row["height"], row["width"])


def _is_whole(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            image.load()
    except OSError:
        return False
    return True


def coco_mini() -> Truth:
    """Images of COCO, one of them grey; crowds."""
    folder = SHARED_DATA / "coco_mini"
    return Truth(folder / "val2017", folder / "annotations" / "instances_val2017.json")


def awkward(folder: Path) -> Truth:
    """Boxes that leave the image, fractions, ids with gaps and in no order, a crowd, a grey PNG, no objects; fields."""
    draw_jpeg(folder / "images" / "a.jpg", 40, 30)
    draw_jpeg(folder / "images" / "empty.jpg", 21, 23)
    png = folder / "images" / "more" / "été b.png"
    png.parent.mkdir()
    Image.new("L", (33, 50), 77).save(png)
    images = [
        {"id": 900, "file_name": "more/été b.png", "width": 33, "height": 50},
        {"id": 5, "file_name": "a.jpg", "width": 40, "height": 30},
        {"id": 11, "file_name": "empty.jpg", "width": 21, "height": 23},
    ]
    annotations = [
        _polygon(30, 5, 7, [29.5, 20.25, 15.5, 12.25]) | {"score": 0.5, "attributes": {"colours": ["red", "grey"]}},
        _polygon(10, 5, 3, [-2.5, -1.0, 10.0, 10.0]) | {"attributes": {"colours": ["red"], "is_old": True}},
        _polygon(10_000_000_000, 900, 7, [0.1, 0.2, 32.9, 49.8]),
        _polygon(20, 5, 3, [3.0, 4.0, 5.5, 6.5])
        | {"iscrowd": 1, "segmentation": {"size": [30, 40], "counts": [95, 1105]}},
    ]
    categories = [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}, {"id": 8, "name": "of which there is none"}]
    return Truth(folder / "images", write_coco(folder, images, annotations, categories))


def _polygon(id_: int, image_id: int, category_id: int, bbox: list[float]) -> dict[str, Any]:
    """An annotation whose mask is the triangle in its box."""
    x, y, width, height = bbox
    return {
        "id": id_,
        "image_id": image_id,
        "category_id": category_id,
        "bbox": bbox,
        "area": width * height / 2,
        "iscrowd": 0,
        "segmentation": [[x, y, x + width, y, x, y + height]],
    }


def assert_boxes_equal(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal but for the rounding to float32."""
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def assert_detection(record: Mapping[str, Any], truth: Truth) -> int:
    """Assert that a record of the layout `detection`, values by feature name, equals the data set's image; returns the
    image's id."""
    image_id = int(record["image/source_id"])
    row = truth.row(image_id)
    assert bytes(record["image/encoded"]) == truth.path(image_id).read_bytes()
    assert bytes(record["image/filename"]).decode() == row["file_name"]
    for side in ("height", "width"):
        assert np.asarray(record[f"image/{side}"]).item() == row[side]
    edges = [np.asarray(record[f"image/object/bbox/{edge}"]) for edge in ("ymin", "xmin", "ymax", "xmax")]
    assert_boxes_equal(np.stack(edges, axis=-1), truth.boxes_yxyx_frac(image_id))
    assert list(record["image/object/id"]) == truth.values(image_id, "id")
    assert list(record["image/object/class/label"]) == truth.values(image_id, "category_id")
    assert list(record["image/object/class/index"]) == truth.class_indices(image_id)
    assert list(record["image/object/is_crowd"]) == truth.values(image_id, "iscrowd")
    np.testing.assert_allclose(record["image/object/area"], truth.values(image_id, "area"), rtol=1e-6)
    return image_id


needs_shared_data = pytest.mark.skipif(not SHARED_DATA.exists(), reason="the real data sets are not on this machine")
