"""Rows, annotations and files find each other."""

from fractions import Fraction
from itertools import permutations

import apache_beam as beam
import msgspec
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.annotations import AnnotatedImage, Annotation, ImageRow
from recordmill.schemas.coco import AnnotationKind, BlockRows, FileAnnotations
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.images import ImageNotes, ImageRef, ImageTask, JoinSide, UnmatchedImage, UnreferencedFile
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.manifest import InputRows, SplitRows
from recordmill.schemas.rejects import Count, Metric, Reason, Rejected, SplitReject
from recordmill.schemas.splits import Division, SplitShares
from recordmill.transforms.join.join_images import JoinImages, assumed_file, join_parts, merge_parts

FILE = ImageRef("images/a.jpg", 100, "1")


def annotation(id_: int, category_id: int = 1) -> Annotation:
    return Annotation(id_, category_id, (1.0, 2.0, 3.0, 4.0), 12.0, False)


def of_block(source: str, *rows: ImageRow, annotations: tuple[Annotation, ...] = (), image_id: int = 1) -> BlockRows:
    ids = (image_id,) * len(annotations)
    return BlockRows(0, source, AnnotationKind.INSTANCES, 0, rows, (), ids, annotations)


def part(source: str, *rows: ImageRow, annotations: tuple[Annotation, ...] = (), image_id: int = 1) -> FileAnnotations:
    return FileAnnotations(image_id, source, AnnotationKind.INSTANCES, rows, annotations)


VAL = Division(SplitShares((("val", Fraction(1)),)))
SIZED, UNSIZED = ImageRow(1, "a.jpg", 40, 30), ImageRow(1, "a.jpg")


def test_annotations_are_ordered_by_id():
    parts = [part("x.json", SIZED, annotations=(annotation(9), annotation(-2), annotation(4)))]
    assert list(merge_parts(1, parts)) == [AnnotatedImage(SIZED, "", (annotation(-2), annotation(4), annotation(9)))]


def test_files_add_up_in_whatever_order_they_come():
    parts = [
        part("a.json", UNSIZED, annotations=(annotation(5),)),
        part("b.json", annotations=(annotation(2), annotation(5, category_id=0))),
        part("c.json", SIZED, annotations=(annotation(3),)),
    ]
    merged = AnnotatedImage(SIZED, "", (annotation(2), annotation(3), annotation(5)))
    detail = "an annotation of this id is in a.json and in b.json; the first is kept"
    second = Rejected("annotation", 5, Reason.DUPLICATE_ANNOTATION_ID, detail, 1)
    for order in permutations(parts):
        assert list(merge_parts(1, order)) == [second, Count(Metric.ROWS_MERGED, 1), merged]


def test_annotations_of_an_image_that_no_file_lists_are_rejected():
    parts = [part("x.json", annotations=(annotation(8), annotation(7))), part("y.json", annotations=(annotation(1),))]
    assert list(merge_parts(1, parts)) == [
        Rejected("annotation", id_, Reason.UNKNOWN_IMAGE, "no image row has the id 1", 1) for id_ in (1, 7, 8)
    ]


def test_of_two_images_with_one_id_in_a_file_none_is_taken_as_annotations_may_be_of_either():
    ambiguous = part("x.json", SIZED, ImageRow(1, "b.jpg"), annotations=(annotation(1), annotation(2)))
    images = "x.json gives this id to 2 images, 'a.jpg', 'b.jpg'"
    detail = f"{images}: none is taken, as the 2 annotations of the id may be of any"
    rejected = Rejected("image", 1, Reason.DUPLICATE_IMAGE_ID, detail)
    assert list(merge_parts(1, [ambiguous])) == [
        rejected,
        msgspec.structs.replace(rejected, annotations=2),
    ]
    others = [part("w.json", SIZED, annotations=(annotation(4),)), part("y.json", SIZED)]
    for order in permutations([ambiguous, *others]):
        assert list(merge_parts(1, order)) == [
            rejected,
            Count(Metric.ROWS_MERGED, 2),
            msgspec.structs.replace(rejected, annotations=3),
        ]


def test_a_file_that_gives_one_id_to_thousands_is_told_in_short_lines():
    rejects = list(merge_parts(1, [part("x.json", *(ImageRow(1, f"{n}.jpg") for n in range(2000)))]))
    assert len(rejects) == 2000
    assert "2000 images, '0.jpg', '1.jpg', '10.jpg' …" in rejects[0].detail


@pytest.mark.parametrize("again", [SIZED, UNSIZED, ImageRow(1, "./a.jpg", 40, 30)])
@pytest.mark.parametrize("before", [True, False])
def test_a_second_row_that_says_the_same_is_rejected_and_the_image_stays(again, before):
    rows = (again, SIZED) if before else (SIZED, again)
    reject, image = merge_parts(1, [part("x.json", *rows, annotations=(annotation(1),))])
    assert (reject.reason, reject.annotations) == (Reason.DUPLICATE_IMAGE_ID, 0)
    assert (image.image.width, image.image.height, image.annotations) == (40, 30, (annotation(1),))


def test_two_rows_of_a_file_that_say_different_sizes_reject_the_image():
    parts = [part("x.json", UNSIZED, SIZED, ImageRow(1, "a.jpg", 30, 40), annotations=(annotation(1),))]
    *again, last = merge_parts(1, parts)
    detail = "'a.jpg' is 40x30 in x.json but 30x40 in x.json"
    assert last == Rejected("image", 1, Reason.SIZE_MISMATCH, detail, annotations=1)
    assert [(reject.reason, reject.annotations) for reject in again] == [(Reason.DUPLICATE_IMAGE_ID, 0)] * 2


def test_what_is_read_does_not_depend_on_the_order_of_a_file_s_two_kinds():
    """One file given as instances and as keypoints."""
    row = annotation(1)
    kinds = [
        FileAnnotations(1, "x.json", kind, (SIZED,), (row,))
        for kind in (AnnotationKind.INSTANCES, AnnotationKind.KEYPOINTS)
    ]
    first, second = (list(merge_parts(1, order)) for order in permutations(kinds))
    assert first == second


def test_sizes_that_contradict_each_other_reject_the_image():
    parts = [part("x.json", SIZED, annotations=(annotation(1),)), part("y.json", ImageRow(1, "a.jpg", 30, 40))]
    detail = "'a.jpg' is 40x30 in x.json but 30x40 in y.json"
    assert list(merge_parts(1, parts)) == [
        Count(Metric.ROWS_MERGED, 1),
        Rejected("image", 1, Reason.SIZE_MISMATCH, detail, annotations=1),
    ]


def test_one_name_spelled_twice_is_one_image():
    parts = [part("x.json", ImageRow(1, "./b/a.jpg")), part("y.json", ImageRow(1, "b//a.jpg", 40, 30))]
    assert list(merge_parts(1, parts)) == [
        Count(Metric.ROWS_MERGED, 1),
        AnnotatedImage(ImageRow(1, "b//a.jpg", 40, 30), "", ()),
    ]


def test_one_id_of_two_images_is_an_error():
    with pytest.raises(CollidingImagesError, match=r"image id 1 is 'a\.jpg' in x\.json and 'b\.jpg' in y\.json"):
        list(merge_parts(1, [part("y.json", ImageRow(1, "b.jpg")), part("x.json", SIZED)]))


def test_the_transform_joins_by_id_and_then_by_name():
    parts = [
        (1, of_block("x.json", SIZED, annotations=(annotation(2),))),
        (1, of_block("y.json", UNSIZED, annotations=(annotation(1),))),
        (1, of_block("x.json", ImageRow(2, "gone.jpg"), image_id=2)),
        (1, of_block("x.json", annotations=(annotation(9),), image_id=3)),
    ]
    files = [("a.jpg", JoinSide(file=FILE)), ("b.jpg", JoinSide(file=ImageRef("images/b.jpg", 5)))]
    task = ImageTask(1, "a.jpg", 40, 30, FILE, "val", (annotation(1), annotation(2)))
    rejected = [
        Rejected("image", 2, Reason.IMAGE_MISSING, "no file 'gone.jpg' under --images"),
        Rejected("annotation", 9, Reason.UNKNOWN_IMAGE, "no image row has the id 3", 3),
    ]
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        joined = (
            p
            | "Parts" >> beam.Create(parts)
            | JoinImages(p | "Labels" >> beam.Create([LabelMap(())]), VAL, p | "Files" >> beam.Create(files))
        )
        assert_that(joined.tasks, equal_to([task]), "Tasks")
        assert_that(joined.rejected | beam.Flatten(), equal_to([("val", reject) for reject in rejected]), "Rejected")
        assert_that(joined.counted, equal_to([("val", Count(Metric.ROWS_MERGED, 1))]), "Counted")
        assert_that(joined.unlisted, equal_to([UnreferencedFile("b.jpg")]), "Unlisted")
        assert_that(joined.unmatched, equal_to([UnmatchedImage("gone.jpg")]), "Unmatched")


def test_without_a_listing_no_file_is_assumed_of_a_name_that_must_not_be_looked_up():
    rows = [ImageRow(1, "a.jpg"), ImageRow(2, "../a.jpg")]
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        parts = p | beam.Create([(1, of_block("x.json", *rows))])
        joined = parts | JoinImages(p | "Labels" >> beam.Create([LabelMap(())]), VAL, None, "images")
        paths = joined.tasks | beam.Map(lambda task: task.ref.path)
        reasons = (
            joined.rejected | beam.Flatten() | "Reasons" >> beam.MapTuple(lambda _, reject: (reject.id, reject.reason))
        )
        assert_that(paths, equal_to(["images/a.jpg"]), "Tasks")
        assert_that(reasons, equal_to([(2, Reason.UNSAFE_FILE_NAME)]), "Rejected")


def test_names_are_matched_as_asked():
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        parts = p | "Parts" >> beam.Create([(1, of_block("x.json", ImageRow(1, "/x/a.jpg")))])
        files = p | "Files" >> beam.Create([("deep/a.jpg", JoinSide(file=FILE))])
        names = parts | JoinImages(p | "Labels" >> beam.Create([LabelMap(())]), VAL, files, match="suffix")
        assert_that(names.tasks | beam.Map(lambda task: task.file_name), equal_to(["deep/a.jpg"]))


@pytest.mark.parametrize("size", [(10**6, 10**6), (10**18, 10**18), (178_000_001, 1), (2, 89_000_001)])
def test_more_pixels_than_are_ever_decoded_are_known_from_the_json(size):
    (reject,) = merge_parts(1, [part("x.json", ImageRow(1, "a.jpg", *size), annotations=(annotation(1),))])
    assert (reject.what, reject.reason, reject.annotations) == ("image", Reason.TOO_LARGE, 1)
    assert reject.detail == (f"'a.jpg': the JSON gives {size[0]}x{size[1]} pixels; at most 178,000,000 are decoded")
    largest = ImageRow(1, "a.jpg", 2, 89_000_000)
    assert list(merge_parts(1, [part("x.json", largest)])) == [AnnotatedImage(largest, "")]


# Into splits

HALVES = Division(SplitShares((("a", Fraction(1, 2)), ("b", Fraction(1, 2)))))
BAD = Rejected("annotation", 3, Reason.MALFORMED_BOX, "x", 1)


def with_rejects(source: str, *rows: ImageRow, **more) -> FileAnnotations:
    return msgspec.structs.replace(part(source, *rows, **more), rejected=(BAD,))


def test_what_is_found_of_an_image_goes_with_it():
    parts = [part("y.json", UNSIZED, annotations=(annotation(1),)), with_rejects("x.json", SIZED)]
    rows = (InputRows("x.json", "instances", 1, 1), InputRows("y.json", "instances", 1, 1))
    notes = ImageNotes((BAD,), (Count(Metric.ROWS_MERGED, 1),), rows)
    image = AnnotatedImage(SIZED, "", (annotation(1),))
    assert list(join_parts(1, parts, HALVES, {})) == [JoinSide(image, notes=notes)]
    single = list(join_parts(1, parts, VAL, {}))  # whose rows are those of the files
    assert single == [JoinSide(image, notes=msgspec.structs.replace(notes, rows=()))]


@pytest.mark.parametrize("name", ["a.jpg", "b.jpg", "c.jpg", "d.jpg"])
def test_what_is_of_an_image_that_is_rejected_is_of_the_split_of_its_name(name):
    sizes = [with_rejects("x.json", ImageRow(1, f"./{name}", 4, 3)), part("y.json", ImageRow(1, name, 3, 4))]
    found = list(join_parts(1, sizes, HALVES, {}))
    assert {item.split for item in found} == {HALVES.split_of(name)}
    rejects = [item.reject.reason for item in found if isinstance(item, SplitReject)]
    assert rejects == [Reason.MALFORMED_BOX, Reason.SIZE_MISMATCH]
    rows = [item.rows for item in found if isinstance(item, SplitRows)]
    assert [(of.path, of.images, of.annotations) for of in rows] == (
        [("x.json", 1, 1), ("y.json", 1, 0)] if HALVES.split_of(name) == "b" else []
    )


def test_what_is_of_no_image_is_of_the_first_split():
    found = list(join_parts(5, [with_rejects("x.json", annotations=(annotation(8),))], HALVES, {}))
    assert [(item.split, item.reject.reason) for item in found] == [
        ("a", Reason.MALFORMED_BOX),
        ("a", Reason.UNKNOWN_IMAGE),
    ]


@pytest.mark.parametrize(
    ("folder", "name", "path"),
    [
        ("images/", "./deep//a.jpg", "images/deep/a.jpg"),
        ("gs://bucket/images", "deep/a.jpg", "gs://bucket/images/deep/a.jpg"),
    ],
)
def test_a_file_that_is_not_listed_is_in_the_folder_by_its_name(folder, name, path):
    assert assumed_file(folder, name).path == path
