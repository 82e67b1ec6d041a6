import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.errors import CategoryError, CollidingImagesError, ConfigError
from recordmill.schemas.inputs.annotations import Category, PanopticAnnotation, Segment, StuffAnnotation
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.encoders.encode_objects import scale_to_pixels
from recordmill.transforms.join.observed_labels import ObservedLabel, choose_labels
from recordmill.transforms.join.sample_rows import id_of
from recordmill.transforms.user_samples.convert_samples import (
    SampleCoder,
    check_distinct,
    convert_block,
    convert_samples,
    validate_sample,
)
from recordmill.transforms.user_samples.record_options import RecordOptions

LABELS = LabelMap((Category(-3, "cat"), Category(7, "dog", keypoints=("nose", "tail")), Category(9, "cat")))
SPLITS = ("train", "val")
DIVISION = Division(SplitShares((("train", 0.5), ("val", 0.5)), 0))

INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.floats(-1e18, 1e18)
SIDES = st.floats(0, 1e18)
TEXTS = st.text(max_size=9)
OBJECTS = st.builds(
    lambda category, keypoints, **fields: SampleObject(
        category.name, category_id=category.id, keypoints=keypoints if category.keypoints else (), **fields
    ),
    st.sampled_from(LABELS.categories),
    st.sampled_from([(), (1.0, 2.5, 2.0, 0.0, 0.0, 0.0)]),
    box=st.tuples(NUMBERS, NUMBERS, SIDES, SIDES),
    frame=st.sampled_from(["px", "fraction"]),
    corners=st.just(()) | st.tuples(*[st.floats(1, 1e18)] * 8),
    segmentation=st.sampled_from(["", "[[1,2,3,4,5,6.5]]", '{"counts":"ö","size":[1,2]}']),
    is_crowd=st.booleans(),
    area_px2=NUMBERS,
    id=INT64,
    fields=st.fixed_dictionaries(
        {}, optional={"difficult": st.booleans(), "view": st.sampled_from(["Left", "ö"]), "track_id": INT64}
    ),
)
SEGMENTS = st.builds(Segment, INT64, INT64, st.booleans(), st.none() | st.tuples(*[NUMBERS] * 4), st.none() | NUMBERS)
FIELDS = {
    "split": st.sampled_from(SPLITS),
    "image_id": INT64,
    "size_bytes": st.integers(0, 10**6),
    "version": TEXTS,
    "ignores_exif": st.booleans(),
}
SIZE = st.none() | st.tuples(st.integers(1, 10**6), st.integers(1, 10**6))
DETECTED = {
    "objects": st.lists(OBJECTS, max_size=3).map(tuple),
    "captions": st.lists(TEXTS, max_size=2).map(tuple),
    "tags": st.lists(TEXTS, max_size=2).map(tuple),
    "stuff": st.lists(st.builds(StuffAnnotation, INT64, INT64, st.binary(max_size=5)), max_size=2).map(tuple),
    "panoptic": st.none()
    | st.builds(
        PanopticAnnotation, st.builds(File, TEXTS, INT64, TEXTS), TEXTS, st.lists(SEGMENTS, max_size=2).map(tuple)
    ),
    "neg_category_ids": st.lists(INT64, max_size=2).map(tuple),
    "not_exhaustive_category_ids": st.lists(INT64, max_size=2).map(tuple),
}
IMAGES = (
    st.just(("img/a.jpg", b"")) | st.just(("elsewhere.png", b"")) | st.binary(min_size=1).map(lambda data: ("", data))
)


def sample_of(size, image, **fields) -> Sample:
    width, height = size or (None, None)
    path, data = image
    if data:
        fields |= {"size_bytes": len(data), "version": ""}
    return Sample("a.jpg", path=path, data=data, width=width, height=height, **fields)


def no_reject(split: str, rejected: object) -> None:
    raise AssertionError(rejected)


def validated(sample: Sample) -> Sample:
    checked, rejects = validate_sample(sample)
    assert rejects == []
    return checked


def as_block(samples, labels=LABELS, is_image_class=False, reject=no_reject):
    return convert_samples(
        samples,
        labels,
        RecordOptions(
            layout="classification" if is_image_class else "detection", split="train=0.5,val=0.5", output="out"
        ),
        reject,
    )


@settings(max_examples=300)
@given(st.builds(sample_of, SIZE, IMAGES, **FIELDS, **DETECTED))
def test_sample_is_row_of_block(sample):
    block = unpack_block(pack_block(as_block([validated(sample)])))
    block.check("test")
    assert list(convert_block(block, LABELS, SPLITS)) == [sample]


@given(st.builds(sample_of, SIZE, IMAGES, **FIELDS, class_name=st.sampled_from(["dog", "ö"])))
def test_sample_of_one_class_is_row_of_block(sample):
    labels = LabelMap((Category(0, "dog"), Category(1, "ö")))
    block = unpack_block(pack_block(as_block([validated(sample)], labels, is_image_class=True)))
    assert list(convert_block(block, labels, SPLITS)) == [sample]


@given(
    st.lists(st.builds(sample_of, SIZE, IMAGES, **FIELDS, **DETECTED), max_size=4, unique_by=lambda one: one.image_id)
)
def test_blocks_do_not_depend_on_order_of_samples(samples):
    blocks = [as_block(order) for order in (samples, samples[::-1])]
    packed = [block and list(convert_block(block, LABELS, SPLITS)) for block in blocks]
    assert packed[0] == packed[1]


IMAGE = {"data": b"JPEG"}
BOX = (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("sample", "reason", "detail"),
    [
        (Sample("a"), Reason.MALFORMED_IMAGE, "'a' has neither path nor data"),
        (Sample("a", path="x", **IMAGE), Reason.MALFORMED_IMAGE, "'a' has both path and data"),
        (Sample("a", path="img/", size_bytes=1), Reason.MALFORMED_IMAGE, "path 'img/' is a folder"),
        (Sample("../a", **IMAGE), Reason.UNSAFE_FILE_NAME, "'../a': its file name has .. in it"),
        (Sample(7, **IMAGE), Reason.MALFORMED_IMAGE, "Sample 7: Expected `str`"),
        (Sample("a", **IMAGE, width=4), Reason.MALFORMED_IMAGE, "width 4 and height None"),
        (Sample("a", **IMAGE, width=4, height=0), Reason.MALFORMED_IMAGE, "width 4 and height 0"),
        (Sample("a", **IMAGE, image_id=2**63), Reason.MALFORMED_IMAGE, "beyond 64 bits"),
        (Sample("a", **IMAGE, image_id=2**70), Reason.MALFORMED_IMAGE, "'a'"),
        (Sample("a", **IMAGE, objects=7), Reason.MALFORMED_IMAGE, "objects"),
        (Sample("a", **IMAGE, captions="a cat"), Reason.MALFORMED_IMAGE, "captions"),
        (Sample("a", **IMAGE, fields={"a": b"1"}), Reason.MALFORMED_IMAGE, "field a is of bytes"),
        (Sample(7, **IMAGE, objects=[SampleObject("cat", (1, 2, 3))]), Reason.MALFORMED_IMAGE, "file_name"),
        (Sample("a", **IMAGE, class_name=object()), Reason.MALFORMED_IMAGE, "object is not a value of a Sample"),
        ({"file_name": "a"}, Reason.MALFORMED_IMAGE, "'a'"),
    ],
)
def test_samples_that_cannot_be_used(sample, reason, detail):
    with pytest.raises(UnusableError) as fault:
        validate_sample(sample)
    assert fault.value.reason is reason
    assert detail in fault.value.detail


CAT = SampleObject("cat", BOX)


@pytest.mark.parametrize(
    ("annotations", "reason", "detail"),
    [
        ({"objects": [CAT, SampleObject("cat", (1, 2, 3), id=5)]}, Reason.MALFORMED_BOX, "objects[1]: "),
        ({"objects": [CAT, SampleObject("cat", BOX, corners=("x",))]}, Reason.MALFORMED_BOX, "`$.corners[0]`"),
        ({"objects": [CAT, SampleObject("cat", BOX, keypoints=7)]}, Reason.MALFORMED_KEYPOINTS, "`$.keypoints`"),
        ({"objects": [CAT, SampleObject("cat", BOX, segmentation=[1])]}, Reason.MALFORMED_SEGMENTATION, "objects[1]"),
        ({"objects": [CAT, SampleObject(None, BOX)]}, Reason.MALFORMED_ANNOTATION, "`$.category`"),
        ({"objects": [CAT, SampleObject("cat", BOX, id=2**70)]}, Reason.MALFORMED_ANNOTATION, "objects[1]"),
        ({"objects": [CAT, {"category": "cat", "id": 6}]}, Reason.MALFORMED_ANNOTATION, "missing required field `box`"),
        ({"objects": [CAT, "cat"]}, Reason.MALFORMED_ANNOTATION, "objects[1]"),
        (
            {"objects": [CAT, SampleObject("cat", BOX, fields={"a": b"1"})]},
            Reason.MALFORMED_ANNOTATION,
            "field a is of",
        ),
        ({"objects": [CAT, SampleObject("cat", BOX, fields={"a": 1j})]}, Reason.MALFORMED_ANNOTATION, ""),
        ({"objects": [CAT, SampleObject("cat", BOX, fields={1: 2})]}, Reason.MALFORMED_ANNOTATION, "objects[1]"),
        ({"objects": [CAT, SampleObject("c\ud800", BOX)]}, Reason.MALFORMED_ANNOTATION, "objects[1]"),
        ({"captions": ["a cat", 7]}, Reason.MALFORMED_CAPTION, "captions[1]: Expected `str`, got `int`"),
        ({"stuff": [StuffAnnotation(1, 2, b""), 7]}, Reason.MALFORMED_ANNOTATION, "stuff[1]"),
        ({"panoptic": "a.png"}, Reason.MALFORMED_PANOPTIC, "panoptic: "),
    ],
)
def test_a_faulty_annotation_is_a_reject_and_others_are_kept(annotations, reason, detail):
    sample = SampleCoder(Sample).decode(SampleCoder(Sample).encode(Sample("a", **IMAGE, **annotations)))
    for one in (sample, Sample("a", **IMAGE, **annotations)):
        checked, (rejected,) = validate_sample(one)
        assert rejected.image_id == id_of(checked)
        assert checked.annotation_rows == (0 if "panoptic" in annotations else 1)
        assert (rejected.what, rejected.reason) == ("annotation", reason)
        assert rejected.detail.startswith("Sample 'a': ")
        assert detail in rejected.detail


CLASSES = LabelMap((Category(0, "dog"),))


@pytest.mark.parametrize(
    ("sample", "labels", "reason", "detail"),
    [
        *(
            (Sample("a", **IMAGE, objects=(each,)), LABELS, reason, detail)
            for each, reason, detail in (
                (SampleObject("cow", BOX), Reason.UNKNOWN_CATEGORY, "'cow' is not a label"),
                (SampleObject("cat", BOX), Reason.UNKNOWN_CATEGORY, "'cat' is ambiguous"),
                (SampleObject("dog", (1, 2, -3, 4)), Reason.MALFORMED_BOX, "negative width"),
                (SampleObject("dog", BOX, keypoints=(1, 2, 2)), Reason.MALFORMED_KEYPOINTS, "2 keypoints: 3 numbers"),
                (SampleObject("dog", BOX, area_px2=float("nan")), Reason.MALFORMED_ANNOTATION, "area nan"),
                (SampleObject("dog", BOX, id=2**63), Reason.MALFORMED_ANNOTATION, "id 9223372036854775808"),
            )
        ),
        (Sample("a", path="/nowhere/a.jpg"), CLASSES, Reason.IMAGE_MISSING, "no file '/nowhere/a.jpg'"),
        (Sample("a", path="a", size_bytes=10**9), CLASSES, Reason.TOO_LARGE, "1,000,000,000 bytes"),
        (Sample("a", path="a", size_bytes=0, version="no file"), CLASSES, Reason.IMAGE_INACCESSIBLE, "'a' is"),
        (Sample("a", **IMAGE), CLASSES, Reason.NO_CLASS, "has no class"),
        (Sample("a", **IMAGE, class_name="cow"), CLASSES, Reason.NO_CLASS, "has class 'cow'"),
    ],
)
def test_objects_and_images_that_cannot_be_used(sample, labels, reason, detail):
    """Without an object, its image stays."""
    rejects = []
    block = as_block([sample], labels, labels is CLASSES, lambda split, rejected: rejects.append(rejected))
    what = "annotation" if sample.objects else "image"
    assert [(one.what, one.reason) for one in rejects] == [(what, reason)]
    assert re.search(f"Sample 'a'.*{detail}", rejects[0].detail)
    assert (block and (len(block), block.num_objects)) == ((1, 0) if sample.objects else None)


def test_fractions_and_ids_left_out():
    object_ = SampleObject("dog", (0.25, 0.5, 0.5, 0.25), "fraction", (0.5, 0.5, 2.0, 0.0, 0.0, 0.0))
    polygon = SampleObject("dog", (0, 0, 1, 1), "fraction", segmentation="[[0,0,0.5,0,0.5,1]]")
    pixels = SampleObject("dog", (1, 2, 3, 4), segmentation="[[0,0,5,0,5,5]]")
    sample = Sample("a", **IMAGE, objects=(object_, object_, polygon, pixels))
    block = scale_to_pixels(unpack_block(pack_block(as_block([sample]))), np.array([[40, 20]]))
    block, more_objects = block.take_objects(np.arange(4) < 2), block.take_objects(np.arange(4) > 1)
    assert more_objects.boxes_xywh_px.tolist() == [[0, 0, 40, 20], [1, 2, 3, 4]]
    assert more_objects.segmentation.texts() == ["[[0.0,0.0,20.0,0.0,20.0,20.0]]", "[[0,0,5,0,5,5]]"]
    assert block.keypoints_xyv.values.tolist() == [20, 10, 2, 0, 0, 0] * 2
    assert block.boxes_xywh_px.tolist() == [[10, 10, 20, 5]] * 2
    assert block.area_px2.tolist() == [100, 100]
    assert len({*block.object_id.tolist()}) == 2
    assert block.category_id.tolist() == [7, 7]
    assert block.split.tolist() == [SPLITS.index(DIVISION.split_of("a"))]


def test_a_split_that_is_not_written():
    with pytest.raises(ConfigError, match=r"Sample 'a' has split test, .* train, val"):
        as_block([Sample("a", **IMAGE, split="test")])


def test_samples_of_one_key():
    with pytest.raises(CollidingImagesError, match="two Samples have the same name 'a'"):
        check_distinct([Sample("a"), Sample("b"), Sample("a")])
    with pytest.raises(CollidingImagesError, match="image_id 1, 'a' and 'b'"):
        check_distinct([Sample("a", image_id=1), Sample("b", image_id=1)])


def test_coder_accepts_rejects():
    coder = SampleCoder(Sample)
    assert coder.decode(coder.encode(Sample("a", width="40"))).width == "40"
    assert coder.decode(coder.encode(Sample("a", path=Path("b/a")))).path == "b/a"
    numpy = Sample("a", width=np.int64(40), objects=[SampleObject("cat", np.zeros(4))])
    plain = Sample("a", width=40, objects=(SampleObject("cat", (0.0, 0.0, 0.0, 0.0)),))
    assert coder.decode(coder.encode(numpy)) == plain
    faulty = Sample("a", data=b"1", objects=(CAT, SampleObject("cat", (1, 2, 3))), image_id=7, tags=("a",))
    decoded = coder.decode(coder.encode(faulty))
    assert (decoded.objects[0], decoded.objects[1].category) == (CAT, "cat")
    assert (decoded.data, decoded.image_id, decoded.tags) == (b"1", 7, ("a",))
    assert not coder.is_deterministic()


@pytest.mark.parametrize(
    ("traits", "categories"),
    [
        ([("dog", 18), ("cat", 17)], [(17, "cat"), (18, "dog")]),
        ([("dog", 18), ("cat", 18)], [(1, "cat"), (2, "dog")]),
        ([("dog", 18), ("dog", 17)], [(1, "dog")]),
        ([("dog", 18), ("cat", -1)], [(1, "cat"), (2, "dog")]),
        ([], []),
    ],
)
def test_labels_of_samples(traits, categories):
    labels = choose_labels([ObservedLabel("category", *of) for of in traits], is_image_class=False)
    assert [(category.id, category.name) for category in labels.categories] == categories


def test_keypoints_of_samples():
    traits = [ObservedLabel("category", "dog", 1, 0), ObservedLabel("category", "dog", 1, 2)]
    assert len(choose_labels(traits, is_image_class=False).categories[0].keypoints) == 2
    with pytest.raises(CategoryError, match="'dog' have 2 and 3 keypoints"):
        choose_labels([*traits, ObservedLabel("category", "dog", 1, 3)], is_image_class=False)
    with pytest.raises(ConfigError, match="Give labels="):
        choose_labels([ObservedLabel("stuff")], is_image_class=False)
