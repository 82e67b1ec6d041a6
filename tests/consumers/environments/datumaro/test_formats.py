"""Real images that Datumaro exports to a format give the records that COCO gives."""

from pathlib import Path

import datumaro as dm
import numpy as np
import pytest
from pycocotools import mask as coco_mask

from tests.conftest import SHARED_DATA, read_examples
from tests.consumers.coco_truth import needs_shared_data

MINI = SHARED_DATA / "coco_mini"
EDGES = ("ymin", "xmin", "ymax", "xmax")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> dm.Dataset:
    """coco_mini, in the folders that Datumaro looks for."""
    folder = tmp_path_factory.mktemp("coco")
    for split in ("train", "val"):
        (folder / "images").mkdir(exist_ok=True)
        (folder / "images" / split).symlink_to(MINI / f"{split}2017")
        (folder / "annotations").mkdir(exist_ok=True)
        (folder / "annotations" / f"instances_{split}.json").symlink_to(
            MINI / "annotations" / f"instances_{split}2017.json"
        )
    return dm.Dataset.import_from(str(folder), "coco_instances")


def objects_of(out: Path, split: str) -> dict[str, list[tuple]]:
    """Class and edges of all objects, by the name of the image's file."""
    return {
        Path(example["image/filename"][0].decode()).name: sorted(
            zip(
                example["image/object/class/text"],
                *(example[f"image/object/bbox/{edge}"] for edge in EDGES),
                strict=True,
            )
        )
        for example in read_examples(out, split)
    }


@needs_shared_data
@pytest.mark.parametrize(("name", "exported", "tolerance"), [("yolo", "yolo_ultralytics", 1e-6)])
def test_export_gives_the_records_of_coco(name, exported, tolerance, dataset, tmp_path, recordmill):
    dataset.export(str(tmp_path / "data"), exported, save_media=True)
    assert recordmill("convert", tmp_path / "data", "--format", name, "--output", tmp_path / "out").code == 0
    for split in ("train", "val"):
        instances = MINI / "annotations" / f"instances_{split}2017.json"
        flags = ["--images", MINI / f"{split}2017", "--instances", instances, "--no-crowd", "--split", split]
        assert recordmill("convert", *flags, "--output", tmp_path / split).code == 0
        found, expected = objects_of(tmp_path / "out", split), objects_of(tmp_path / split, split)
        assert found.keys() == expected.keys()
        assert sum(map(len, expected.values())) > 600
        for name, objects in expected.items():
            assert [each[0] for each in found[name]] == [each[0] for each in objects]
            np.testing.assert_allclose(
                np.array([each[1:] for each in found[name]]).reshape(-1, 4),
                np.array([each[1:] for each in objects]).reshape(-1, 4),
                atol=tolerance,
                rtol=0,
            )


@needs_shared_data
def test_datumaro_reads_extracted_cvat(tmp_path, recordmill):
    for split in ("train", "val"):
        instances = MINI / "annotations" / f"instances_{split}2017.json"
        flags = ["--images", MINI / f"{split}2017", "--instances", instances, "--no-crowd", "--split", split]
        assert recordmill("convert", *flags, "--masks", "rle", "--output", tmp_path / "out").code == 0
    assert recordmill("extract", tmp_path / "out", tmp_path / "back", "--as", "cvat").code == 0
    found = dm.Dataset.import_from(str(tmp_path / "back"), "cvat")
    names = [label.name.encode() for label in found.categories()[dm.AnnotationType.label]]
    for split in ("train", "val"):
        expected = {Path(name).stem: rows for name, rows in masks_of(tmp_path / "out", split).items()}
        assert sum(map(len, expected.values())) > 600
        rows = {
            item.id: sorted((names[each.label], np.uint8(each.image).tobytes()) for each in item.annotations)
            for item in found.get_subset(split)
        }
        assert rows == expected


def masks_of(out: Path, split: str) -> dict[str, list[tuple]]:
    """Class and pixels of all objects, by the name of the image's file."""
    masks = {}
    for example in read_examples(out, split):
        size = [example["image/height"][0], example["image/width"][0]]
        counts = example["image/object/mask/rle"]
        pixels = [coco_mask.decode({"size": size, "counts": rle}).tobytes() for rle in counts]
        rows = zip(example["image/object/class/text"], pixels, strict=True)
        masks[Path(example["image/filename"][0].decode()).name] = sorted(rows)
    return masks
