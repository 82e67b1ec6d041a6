"""Random data sets of each format, converted by the command, in Python and by Beam, have the values that were drawn.
Each container has the records of TFRecord files."""

import random
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest

import recordmill
from recordmill.beam import ReadDataset, WriteDataset
from recordmill.schemas.containers import CONTAINERS, TFRECORD
from tests.matrix.generated_sets import FIELDS, HEIGHT, WIDTH, WRITERS, TrueImage, draw_set, write_set

SEEDS = range(2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("format_name", WRITERS)
def test_generated_set(format_name, seed, tmp_path):
    check_generated_set(format_name, seed * 1000 + [*WRITERS].index(format_name), tmp_path)


def check_generated_set(format_name: str, seed: int, folder: Path) -> None:
    """Write a data set, convert it in one of three ways, and compare what readers return with what was drawn."""
    images, draw = draw_set(seed), random.Random(seed)
    data, out = folder / "data", folder / "out"
    write_set(data, format_name, images)
    has_score = any(one.score is not None for image in images for one in image.objects)
    has_colour = any(one.colour is not None for image in images for one in image.objects)
    paths = dict(zip(("score", "colour"), FIELDS.get(format_name, ("score", "colour")), strict=True))
    kinds = {"score": "float"} if has_score and paths["score"] else {}
    kinds |= {"colour": "text"} if has_colour and paths["colour"] else {}
    fields = {paths[name]: kind for name, kind in kinds.items()}
    options = {"format": format_name} if draw.random() < 0.5 else {}
    options |= {"class_attribute": "kind"} if format_name == "via" else {}
    options |= {"fields": fields} if fields else {}
    layout = draw.choice(("detection", "tfds"))
    written = {"layout": layout, "num_shards": draw.randint(1, min(3, len(images)))}
    is_beam = draw.random() < 0.4
    others = [row.name for row in CONTAINERS.values() if row.name != TFRECORD and layout in (row.layouts or [layout])]
    for container in (TFRECORD, *draw.sample(others, min(1, len(others)))):
        own = out / container
        if is_beam:
            with beam.Pipeline() as p:
                p | ReadDataset(str(data), **options) | WriteDataset(str(own), container=container, **written)
        else:
            recordmill.convert(str(data), str(own), container=container, **written, **options)
        compare(own, images, {name: paths[name].rpartition("objects.")[2] for name in kinds})
        assert raw_records(own) == raw_records(out / TFRECORD)


def raw_records(folder: Path) -> dict[str, list[bytes]]:
    """Return the records of each split, read by number."""
    data_set = recordmill.open(folder)
    return {name: list(map(data_set[name].raw, range(len(data_set[name])))) for name in data_set}


def compare(out: Path, images: list[TrueImage], paths: dict[str, str]) -> None:
    data_set = recordmill.open(out)
    names = data_set.classes
    read = {
        example["file_name"].decode().rpartition("/")[2]: example for split in data_set for example in data_set[split]
    }
    assert read.keys() == {image.name for image in images}
    for image in images:
        example = read[image.name]
        top, left, bottom, right = (example["boxes"] * [HEIGHT, WIDTH, HEIGHT, WIDTH]).T
        boxes = np.stack([left, top, right - left, bottom - top], axis=1)
        expected = np.array([one.box for one in image.objects], np.float32).reshape(-1, 4)
        np.testing.assert_allclose(boxes, expected, atol=1e-4)
        assert [names[label] for label in example["labels"]] == [one.label for one in image.objects]
        if "score" in paths:
            scores = [np.nan if one.score is None else one.score for one in image.objects]
            np.testing.assert_allclose(example[paths["score"]], np.array(scores, np.float32), rtol=1e-6)
        if "colour" in paths:
            assert [text.decode() for text in np.ravel(example[paths["colour"]])] == [
                one.colour or "" for one in image.objects
            ]
