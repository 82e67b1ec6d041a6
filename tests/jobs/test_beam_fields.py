"""Open fields of Samples of users' pipelines."""

import math

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.beam import Encode, ReadDataset, Sample, SampleObject, WriteDataset
from recordmill.schemas.errors import ConfigError
from tests.beam_pipeline import Pipeline
from tests.conftest import (
    CATEGORIES,
    annotation,
    draw_jpeg,
    image_row,
    read_examples,
    rejects_of,
    shard_bytes,
    write_coco,
)

pytestmark = pytest.mark.usefixtures("empty_pages")
BOX = (1, 2, 10, 12)


@pytest.fixture
def samples(tmp_path) -> list[Sample]:
    fields = [
        {"score": np.float32(0.5), "attributes": {"occluded": True, "color": "red"}, "points": [1, 2]},
        {"score": 0.25, "attributes": {"color": None}, "points": np.array([3])},
        {},
    ]
    made = []
    for number, own in enumerate(fields):
        draw_jpeg(tmp_path / f"{number}.jpg")
        objects = (SampleObject("cat", BOX, fields=own), SampleObject("dog", BOX))
        of_image = {"prompt": f"a cat, {number}"} if number else {}
        made.append(Sample(f"{number}.jpg", str(tmp_path / f"{number}.jpg"), objects=objects, fields=of_image))
    return made


def write(samples, output, **options) -> list[dict]:
    with Pipeline() as p:
        p | beam.Create(samples) | WriteDataset(output, **options)
    return sorted(read_examples(output), key=lambda example: example["image/filename"])


def test_all_fields_are_written(samples, tmp_path):
    first, second, third = write(samples, tmp_path / "out")
    assert first["image/object/score"] == pytest.approx([0.5, math.nan], nan_ok=True)
    assert second["image/object/score"] == pytest.approx([0.25, math.nan], nan_ok=True)
    assert first["image/object/attributes/occluded"] == [1, -1]
    assert second["image/object/attributes/occluded"] == [-1, -1]
    assert first["image/object/attributes/color"] == [b"red", b""]
    assert [one["image/object/points/ragged_row_lengths_0"] for one in (first, second, third)] == [
        [2, 0],
        [1, 0],
        [0, 0],
    ]
    assert first["image/object/points/ragged_flat_values"] == [1, 2]
    assert [one["image/prompt"] for one in (first, second, third)] == [[b""], [b"a cat, 1"], [b"a cat, 2"]]


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        (["score"], {"image/object/score"}),
        ({"score": "text", "image.prompt": None}, {"image/object/score", "image/prompt"}),
        ("none", set()),
    ],
)
def test_only_requested_fields(fields, keys, samples, tmp_path):
    first, *_ = write(samples, tmp_path / "out", fields=fields)
    plain, *_ = write([Sample(one.file_name, one.path, objects=one.objects[1:]) for one in samples], tmp_path / "plain")
    assert first.keys() - plain.keys() == keys
    if isinstance(fields, dict):
        assert first["image/object/score"] == [b"0.5", b""]


def test_a_field_that_no_sample_has(samples, tmp_path):
    with pytest.raises(Exception, match=r"Did you mean image.prompt\?"):
        write(samples, tmp_path / "out", fields=["image.promt"])


def test_values_that_are_no_fields_are_rejects(samples, tmp_path):
    bad = Sample("bad.jpg", data=b"x", fields={"blob": b"bytes"})
    assert len(write([*samples, bad], tmp_path / "out", max_rejects=1)) == 3
    (reject,) = rejects_of(tmp_path / "out")
    assert "field blob is of bytes" in reject["detail"]


def test_records_of_encode_have_fields(samples):
    import tensorflow as tf

    def scores(record: bytes) -> float:
        feature = tf.train.Example.FromString(record).features.feature["image/object/score"]
        return round(feature.float_list.value[0], 3)

    with Pipeline() as p:
        records = p | beam.Create(samples[:2]) | Encode()
        assert_that(records | beam.Map(scores), equal_to([0.5, 0.25]))


def test_fields_that_are_read_give_bytes_of_command(tmp_path, recordmill):
    for name in "ab":
        draw_jpeg(tmp_path / "images" / f"{name}.jpg")
    rows = [image_row(1, "a.jpg") | {"license": 1}, image_row(2, "b.jpg")]
    annotations = [
        annotation(5, 1) | {"score": 0.5, "attributes": {"occluded": True}},
        annotation(6, 2) | {"attributes": {"occluded": False}},
    ]
    files = {"images": str(tmp_path / "images"), "instances": str(write_coco(tmp_path, rows, annotations, CATEGORIES))}
    fields = "score,attributes.occluded:text,image.license"
    flags = [word for name, path in files.items() for word in (f"--{name}", path)]
    assert recordmill("convert", *flags, "--fields", fields, "--output", tmp_path / "command").code == 0
    with Pipeline() as p:
        p | ReadDataset(**files, fields=fields) | WriteDataset(tmp_path / "out", name="coco")
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "command")
    with Pipeline() as p:
        read = p | "Without" >> ReadDataset(**files)
        assert_that(read.samples | beam.Map(lambda sample: sample.fields), equal_to([{}, {}]))
    with pytest.raises(ConfigError, match="kind"):
        ReadDataset(**files, fields={"score": "double"})
