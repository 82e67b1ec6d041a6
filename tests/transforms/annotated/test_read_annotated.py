"""Label files that name their images: rows are merged by image, and classes are collected."""

import json
from contextlib import nullcontext

import msgspec
import numpy as np
import pytest

from recordmill.launch.runners.beam_options import beam_options
from recordmill.launch.verbs.convert import convert
from recordmill.pipelines.annotated import prepare
from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import CollidingImagesError, ConfigError
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import Rejected, UnusableError
from recordmill.transforms.annotated import read_labels
from recordmill.transforms.annotated.join_annotated import frame_warnings, merge_rows
from recordmill.transforms.annotated.naming import decode_part
from recordmill.transforms.annotated.read_labels import labelled_rows
from recordmill.transforms.annotated.source import ImageParts, LabelledImage
from recordmill.transforms.join.observed_labels import label_warnings
from tests.conftest import draw_jpeg, manifest_of, read_examples, rejects_of
from tests.transforms.annotated.line_format import LineOptions

LINES = {
    "a.rows": ["x/1.jpg dog 0 0 4 3", "x/2.jpg cat 4 3 8 6", "x/1.jpg cat 10 15 20 15", "x/1.jpg bee 0 0 40 30"],
    "b.rows": ["gone.jpg cat 0 0 4 3", "x/1.jpg bee"],
}


@pytest.fixture
def folder(tmp_path):
    for number in (1, 2, 3):
        draw_jpeg(tmp_path / "data" / "x" / f"{number}.jpg")
    for name, lines in LINES.items():
        (tmp_path / "data" / name).write_text("\n".join(lines))
    return tmp_path


def run(folder, **more):
    options = LineOptions(data=str(folder / "data"), output=str(folder / "out"), max_rejects=0.5, **more)
    convert(prepare(options), "none", beam_options([]))
    return {example["image/filename"][0].decode(): example for example in read_examples(folder / "out")}


def test_rows_of_an_image_are_merged_and_classes_collected(folder):
    found = run(folder)
    assert [found["x/1.jpg"][f"image/object/bbox/{edge}"] for edge in ("xmin", "ymin")] == [[0, 0.25, 0], [0, 0.5, 0]]
    assert found["x/1.jpg"]["image/object/class/text"] == [b"dog", b"cat", b"bee"]
    assert found["x/1.jpg"]["image/object/class/label"] == [3, 2, 1]
    assert len(set(found["x/1.jpg"]["image/object/id"])) == 3
    split = manifest_of(folder / "out")["splits"]["train"]
    assert (split["images"]["rows"], split["images"]["written"], split["annotations"]["rows"]) == (3, 2, 6)
    assert split["unlisted"] == {"files": 1, "first": ["x/3.jpg"]}
    lines = {line["reason"]: line["detail"] for line in rejects_of(folder / "out")}
    assert lines == {
        "malformed_box": "b.rows, line 2: 0 numbers",
        "image_missing": "no file 'gone.jpg' in the folders of images",
    }


def test_a_copy_of_a_label_file_counts_once_and_another_version_is_an_error(folder):
    data = folder / "data"
    (data / "a copy.rows").write_bytes((data / "a.rows").read_bytes())
    examples = run(folder)
    assert examples["x/1.jpg"]["image/object/class/text"] == [b"dog", b"cat", b"bee"]
    split = manifest_of(folder / "out")["splits"]["train"]
    assert split["warnings"] == ["label files with the same bytes count once: a copy.rows equals a.rows"]
    assert (split["images"]["rows"], split["annotations"]["rows"]) == (3, 6)
    (data / "a copy.rows").write_text(LINES["a.rows"][0])
    with pytest.raises(ConfigError, match=r"a\.rows \(2 images, 1 shared\), a copy\.rows \(1 image, 1 shared\)"):
        run(folder, overwrite=True)


def test_rows_of_an_image_with_several_classes_are_a_reject():
    block = Block(
        image_id=np.array([7, 7, 8]),
        source=np.array([1, 1, 1]),
        part=np.array([0, 1, 2]),
        split=np.array([0, 0, 0]),
        file_name=ragged_texts(["7.jpg", "7.jpg", "8.jpg"]),
        image_size_px=np.zeros((3, 2), np.int64),
        class_name=ragged_texts(["dog", "cat", "dog"]),
    )
    merged = merge_rows(block)
    rejects, none = (msgspec.msgpack.decode(row, type=list[Rejected]) for row in merged.rejected.rows())
    assert [(reject.reason, reject.detail) for reject in rejects] == [
        ("no_class", "'7.jpg' is more than one class (cat, dog) in its label files")
    ]
    assert none == []


def test_categories_split_and_stratify(folder):
    run(folder, categories=["cat"], split="train=0.5,val=0.5", stratify=True)
    manifest = manifest_of(folder / "out")
    assert [each["name"] for each in manifest["categories"]] == ["cat"]
    assert [split["class_counts"] for split in manifest["splits"].values()] == [[1], [1]]


def test_stratify_divides_each_class(tmp_path):
    lines = [f"{number}.jpg {'cat' if number < 4 else 'dog'} 0 0 4 3" for number in range(8)]
    for line in lines:
        draw_jpeg(tmp_path / "data" / line.split()[0])
    (tmp_path / "data" / "a.rows").write_text("\n".join(lines))
    run(tmp_path, split="train=0.5,val=0.5", stratify=True)
    assert [split["class_counts"] for split in manifest_of(tmp_path / "out")["splits"].values()] == [[2, 2], [2, 2]]


def test_a_name_that_two_files_match(folder):
    draw_jpeg(folder / "data" / "y" / "1.jpg")
    with pytest.raises(CollidingImagesError, match=r"--match name: .*'x/1.jpg' and 'y/1.jpg'"):
        run(folder, match="name")


@pytest.mark.parametrize(
    ("sizes", "lengths"), [([], []), ([0] * 7, [3, 3, 1]), ([6, 6, 1, 1], [2, 2]), ([10, 0, 0, 0], [1, 3])]
)
def test_batches_have_most_images_and_most_bytes(monkeypatch, sizes, lengths):
    monkeypatch.setattr(read_labels, "MAX_BATCH_IMAGES", 3)
    monkeypatch.setattr(read_labels, "KEPT_BYTES", 10)
    images = [LabelledImage(Sample("", data=b"x" * size)) for size in sizes]
    found = [(("a.rows", "", 0, "", ""), number, image) for number, image in enumerate(images)]
    assert [len(batch) for batch in read_labels._batch_named_images(found)] == lengths


@pytest.mark.parametrize(
    ("sizes", "bits"),
    [
        ([], 0),
        ([(4095, 1000)], 0),
        ([(4096, 1000)], 1),
        ([(20_000, 3 << 20), (20_000, 3 << 20)], 4),  # 2,500 images of a bucket
        ([(1000, 64 << 20)], 5),  # large label files
        ([(10_000_000, 1 << 40)], 8),
    ],
)
def test_buckets_follow_the_number_and_size_of_files(sizes, bits):
    assert read_labels.bucket_bits(sizes) == bits


def rows_of(*objects: SampleObject, line: int = 0):
    """The Block and the ObservedLabels of an image, and its Source."""
    source, found = LineOptions(data="data", output="out").source(), ImageParts()
    with found.rejecting("shape 1", line):
        found.objects += objects
    return *labelled_rows(["1.jpg"], [found.image(Sample("1.jpg"))], ["a.rows"], source), source


@pytest.mark.parametrize(
    ("bad", "detail"),
    [
        (SampleObject("dog", (0, 0, 1e300, 4)), "bbox has a number that is beyond any image"),
        (SampleObject(" ", (0, 0, 4, 3)), "no class"),
    ],
)
@pytest.mark.parametrize(("line", "place"), [(0, "shape 1 in a.rows: "), (7, "a.rows, line 7, shape 1: ")])
def test_impossible_object_is_a_reject(bad, detail, line, place):
    block, _, _ = rows_of(bad, SampleObject("cat", (0, 0, 4, 3)), line=line)
    (rejected,) = msgspec.msgpack.decode(block.rejected.rows()[0], type=list[Rejected])
    assert rejected.detail.startswith(f"{place}{detail}")
    assert block.num_objects == 1


@pytest.mark.parametrize(
    ("objects", "number"),
    [
        ([SampleObject("dog", (0.1, 0.2, 0.8, 0.8)), SampleObject("dog", (0, 0, 4, 3))], 1),
        ([SampleObject("dog", (0.1, 0.2, 0.8, 0.8), "fraction"), SampleObject("dog", (0, 0, 4, 3))], 0),
        ([SampleObject("dog", (0.1, 0.2, 0.8, 0.8), "fraction")], 0),
        ([], 0),
    ],
)
def test_some_boxes_in_fractions_warn(objects, number):
    _, traits, source = rows_of(*objects)
    assert ["some boxes are within 0..1" in text for text in frame_warnings(traits, source)] == [True] * number


def test_boxes_in_fractions_alone_are_an_error():
    _, traits, source = rows_of(SampleObject("dog", (0.1, 0.2, 0.8, 0.8)))
    with pytest.raises(ConfigError, match=r"data: all boxes are within 0\.\.1, .* boxes of lines are in pixels"):
        list(frame_warnings(traits, source))
    with pytest.raises(ConfigError, match=r"by the image size, or add --bbox-format, rel-xyxy for example$"):
        list(frame_warnings(traits, source, has_option=True))


@pytest.mark.parametrize(("area", "number"), [(-1.0, 1), (0.0, 0), (None, 0)])
def test_negative_areas_are_a_warning(area, number):
    _, traits, _ = rows_of(SampleObject("dog", (0, 0, 4, 3), area_px2=area))
    assert ["negative area" in text for text in label_warnings(traits, LabelMap(()))] == [True] * number


def test_classes_are_observed_with_their_numbers_of_keypoints():
    points = (1.0, 2.0, 2.0) * 4
    _, traits, _ = rows_of(SampleObject("dog", (0, 0, 4, 3), keypoints=points), SampleObject("cat", (0, 0, 4, 3)))
    categories = {(trait.name, trait.keypoints) for trait in traits if trait.kind == "category"}
    assert categories == {("dog", 4), ("cat", 0)}


class Numbers(msgspec.Struct):
    x: float
    label: str = ""
    whole: int | None = None
    flag: bool = False


@pytest.mark.parametrize(
    ("values", "found", "warnings"),
    [
        ({"x": 12.5, "label": "3"}, Numbers(12.5, "3"), 0),
        ({"x": "12.5", "label": "3"}, Numbers(12.5, "3"), 1),
        ({"x": "-1e-2", "whole": "7"}, Numbers(-0.01, whole=7), 1),
        ({"x": 1, "whole": 7.0}, Numbers(1.0, whole=7), 0),
        *(({"x": text}, None, 0) for text in ("1,5", "", " 1", "0x10", "NaN", "nan", "-Infinity", "1e999", True, None)),
        ({"x": 1, "label": 3}, None, 0),
        ({"x": 1, "flag": "true"}, Numbers(1.0, flag=True), 1),
        ({"x": 1, "flag": "maybe"}, None, 0),
    ],
)
@pytest.mark.parametrize("form", [dict, lambda values: json.dumps(values).encode()])
def test_texts_that_are_numbers(values, found, warnings, form):
    image = ImageParts()
    with nullcontext() if found else pytest.raises(UnusableError):
        assert decode_part(form(values), Numbers, image) == found
    assert len(image.warnings) == warnings


@pytest.mark.parametrize("size", [(10**20, 30), (-(10**20), 30), (0, 10**30), (10**5, 10**5), (int("9" * 4000), 1)])
def test_a_size_that_no_image_has_is_a_reject_of_the_image(size):
    given = ImageParts()
    given.objects.append(SampleObject("cat", (1, 2, 3, 4), id=10**30))
    given.objects.append(SampleObject("cat", (1, 2, 3, 4)))
    image = given.image(Sample("1.jpg", width=size[0], height=size[1]))
    block, _ = labelled_rows(["1.jpg"], [image], ["a.rows"], LineOptions(data="data", output="out").source())
    (packed,) = block.rejected.rows()
    bad_object, bad_image = msgspec.msgpack.decode(packed, type=list[Rejected])
    assert (bad_object.reason, bad_object.id) == ("malformed_annotation", None)
    assert (bad_image.what, bad_image.reason, bad_image.annotations) == ("image", "too_large", 1)
    assert "a.rows states" in bad_image.detail
    assert block.image_size_px.tolist() == [[0, 0]]
