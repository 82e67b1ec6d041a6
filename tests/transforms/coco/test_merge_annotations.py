import random
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.inputs.annotations import (
    NO_LABELS,
    Annotation,
    Caption,
    ImageLabels,
    ImageRow,
    PanopticAnnotation,
    StuffAnnotation,
)
from recordmill.schemas.inputs.coco import AnnotationKind, FileAnnotations
from recordmill.schemas.inputs.files import File
from recordmill.schemas.rejects import Count, Reason, Rejected
from recordmill.transforms.coco.merge_annotations import MergedAnnotations, merge_annotations, merge_parts

INSTANCES, KEYPOINTS = AnnotationKind.INSTANCES, AnnotationKind.KEYPOINTS
XYV = (1.0, 2.0, 2.0)


def instance(id_: int, category_id: int = 1, area: float = 12.0) -> Annotation:
    return Annotation(id_, category_id, (1.0, 2.0, 3.0, 4.0), area, False, b"[]")


def keyed(id_: int, category_id: int = 1, xyv=XYV) -> Annotation:
    return Annotation(id_, category_id, (9.0, 9.0, 9.0, 9.0), 9.0, False, b"[[9]]", xyv)


def joined(id_: int, xyv=XYV) -> Annotation:
    return Annotation(id_, 1, (1.0, 2.0, 3.0, 4.0), 12.0, False, b"[]", xyv)


def part(source: str, *annotations: Annotation, kind: AnnotationKind = INSTANCES, **labels) -> FileAnnotations:
    return FileAnnotations(1, source, kind, (), annotations, ImageLabels(**labels) if labels else NO_LABELS)


def points(source: str, *annotations: Annotation) -> FileAnnotations:
    return part(source, *annotations, kind=KEYPOINTS)


def merge(*parts: FileAnnotations) -> MergedAnnotations:
    """The same in every order of the parts."""
    first, *other_orders = (merge_annotations(1, order) for order in permutations(parts))
    assert all(
        (other.annotations, other.labels, other.joined, Counter(other.rejected))
        == (first.annotations, first.labels, first.joined, Counter(first.rejected))
        for other in other_orders
    )
    return first


def duplicate(id_: int | None, detail: str) -> Rejected:
    return Rejected("annotation", id_, Reason.DUPLICATE_ANNOTATION_ID, detail, 1)


def twice(id_: int, *files: str) -> Rejected:
    where = f"twice in {files[0]}" if len(files) == 1 else f"in {files[0]} and in {files[1]}"
    return duplicate(id_, f"an annotation of this id is {where}; the first is kept")


LATER = keyed(5, xyv=(7.0, 7.0, 1.0))
SMALL, LARGE = instance(5, area=1.0), instance(5, area=2.0)


@pytest.mark.parametrize(
    ("parts", "expected", "rejected"),
    [
        # Objects are in the order of their ids.
        ([part("b", instance(9), instance(-2)), part("a", instance(4)), part("c")], [-2, 4, 9], []),
        # A row of instances and keypoints of its id and category are one object, with the instance's box and mask.
        ([part("a", instance(5), instance(6)), points("b", keyed(5))], [joined(5), 6], []),
        ([part("b", instance(5), instance(6)), points("a", keyed(5))], [joined(5), 6], []),
        ([part("a", instance(6)), points("b", keyed(5))], [keyed(5), 6], []),
        ([part("a", instance(5)), points("b", keyed(5, category_id=2))], [5], [twice(5, "a", "b")]),
        # The first keypoints, and the first instance, are joined.
        ([part("a", instance(5)), points("b", keyed(5)), points("c", LATER)], [joined(5)], [twice(5, "b", "c")]),
        ([part("a", instance(5)), part("b", instance(5)), points("k", keyed(5))], [joined(5)], [twice(5, "a", "b")]),
        # Of an id that is twice in a file, the first row stays.
        ([part("a", SMALL, LARGE)], [SMALL], [twice(5, "a")]),
        ([part("a", LARGE, SMALL)], [LARGE], [twice(5, "a")]),
        ([points("a", LARGE, SMALL)], [LARGE], [twice(5, "a")]),
    ],
)
def test_objects(parts, expected, rejected):
    objects = tuple(
        instance(expected_object) if isinstance(expected_object, int) else expected_object
        for expected_object in expected
    )
    assert merge(*parts) == MergedAnnotations(objects, ImageLabels(), rejected, expected.count(joined(5)))


def test_captions_and_regions_by_id():
    one, two, other = Caption(1, "one"), Caption(2, "two"), Caption(2, "a.json is before b.json")
    grass, sky = StuffAnnotation(4, 92, b"[]"), StuffAnnotation(3, 100, b"[]")
    merged = merge(
        part("b.json", kind=AnnotationKind.CAPTIONS, captions=(other, one)),
        part("a.json", kind=AnnotationKind.CAPTIONS, captions=(two,)),
        part("s.json", kind=AnnotationKind.STUFF, regions=(grass, sky, grass)),
    )
    assert merged.labels == ImageLabels(captions=(one, two), regions=(sky, grass))
    assert merged.rejected == [twice(2, "a.json", "b.json"), twice(4, "s.json")]


def test_ids_of_different_kinds_do_not_meet():
    merged = merge(
        part("a.json", instance(5)),
        part("c.json", kind=AnnotationKind.CAPTIONS, captions=(Caption(5, "five"),)),
        part("s.json", kind=AnnotationKind.STUFF, regions=(StuffAnnotation(5, 92, b""),)),
    )
    labels = ImageLabels(captions=(Caption(5, "five"),), regions=(StuffAnnotation(5, 92, b""),))
    assert merged == MergedAnnotations((instance(5),), labels, [], 0)


def test_of_several_panoptic_rows_first_is_kept():
    rows = [PanopticAnnotation(File(f"masks/{name}"), name, ()) for name in ("x.png", "y.png", "z.png")]
    merged = merge(
        part("b.json", kind=AnnotationKind.PANOPTIC, panoptic=(rows[0],)),
        part("a.json", kind=AnnotationKind.PANOPTIC, panoptic=(rows[2], rows[1])),
    )
    assert merged.labels.panoptic == (rows[2],)
    assert merged.rejected == [
        duplicate(None, "a.json has another panoptic row of this image, 'y.png', after 'z.png'"),
        duplicate(None, "b.json has another panoptic row of this image, 'x.png', after 'z.png'"),
    ]


@pytest.mark.parametrize("kind", ["captions", "regions"])
def test_first_of_equal_ids_is_kept(kind):
    rows = {
        "captions": (Caption(2, "z"), Caption(2, "a")),
        "regions": (StuffAnnotation(2, 92, b"[9]"), StuffAnnotation(2, 92, b"[1]")),
    }[kind]
    for order in (rows, rows[::-1]):
        merged = merge(part("a.json", **{kind: order}))
        assert getattr(merged.labels, kind) == order[:1]
        assert merged.rejected == [twice(2, "a.json")]


def test_lvis_s_lists_are_file_that_has_them():
    merged = merge(part("a.json"), part("b.json", neg_category_ids=(5, 2), not_exhaustive_category_ids=(7,)))
    assert merged.labels == ImageLabels(neg_category_ids=(5, 2), not_exhaustive_category_ids=(7,))


ROWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from([INSTANCES, KEYPOINTS]), st.integers(0, 3), st.integers(1, 2)),
    max_size=12,
)


@given(ROWS, st.randoms(use_true_random=False))
def test_every_row_is_accounted_for(rows, rng: random.Random):
    by_file: dict[tuple, list[Annotation]] = {}
    for file, kind, id_, category_id in rows:
        row = instance(id_, category_id) if kind is INSTANCES else keyed(id_, category_id)
        by_file.setdefault((f"{file}-{kind.value}.json", kind), []).append(row)
    parts = [part(file, *annotations, kind=kind) for (file, kind), annotations in by_file.items()]
    merged = merge_annotations(1, parts)
    ids = [annotation.id for annotation in merged.annotations]
    assert ids == sorted({id_ for _, _, id_, _ in rows})
    assert len(ids) + merged.joined + len(merged.rejected) == len(rows)
    assert all(reject.reason is Reason.DUPLICATE_ANNOTATION_ID for reject in merged.rejected)
    shuffled = merge_annotations(1, rng.sample(parts, len(parts)))
    assert (shuffled.annotations, shuffled.joined) == (merged.annotations, merged.joined)
    assert Counter(shuffled.rejected) == Counter(merged.rejected)


@pytest.mark.parametrize(
    ("sizes", "detail"),
    [
        ([(40, 30), (41, 30)], "'x.jpg' is 40x30 in a but 41x30 in b"),
        ([(None, None), (40, 30)], ""),
    ],
)
def test_sizes_in_several_files(sizes, detail):
    rows = (ImageRow(1, "x.jpg", *size) for size in sizes)
    parts = [FileAnnotations(1, source, INSTANCES, (row,)) for source, row in zip("ab", rows, strict=True)]
    (image,) = (item for item in merge_parts(1, parts) if not isinstance(item, Count))
    if detail:
        assert image == Rejected("image", 1, Reason.SIZE_MISMATCH, detail, file_name="x.jpg")
    else:
        assert (image.image.width, image.image.height) == (40, 30)
