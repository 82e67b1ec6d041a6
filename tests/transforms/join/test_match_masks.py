"""Panoptic annotations find their PNGs."""

import unicodedata
import zipfile
from itertools import permutations

import apache_beam as beam
import msgspec
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.annotations import AnnotatedImage, Caption, ImageLabels, ImageRow, PanopticAnnotation, Segment
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.images import ImageNotes, ImageRef, JoinSide
from recordmill.schemas.limits import MAX_FILE_BYTES
from recordmill.schemas.rejects import Count, Metric, Reason, Rejected
from recordmill.transforms.join.match_masks import ListMasks, MatchMasks, match_masks

FILE = ImageRef("masks/a.png", 100, "v1")
SEGMENTS = (Segment(5, 1, False),)


def image(id_: int = 1, path: str = "masks/a.png", **found) -> JoinSide:
    """A row with a caption, its file known already; and with a panoptic annotation, where a path is given."""
    panoptic = (PanopticAnnotation(path, "a.png", SEGMENTS, **found),) if path else ()
    labels = ImageLabels((Caption(9, "a cat"),), panoptic=panoptic)
    return JoinSide(AnnotatedImage(ImageRow(id_, f"{id_}.jpg"), "val", (), labels), ImageRef("images/1.jpg", 7))


def rejected(reason: Reason, detail: str, id_: int = 1) -> JoinSide:
    """A row whose annotation is none, with why."""
    reject = Rejected("annotation", None, reason, f"'a.png': {detail}", id_)
    return msgspec.structs.replace(image(id_, path=""), notes=ImageNotes((reject,)))


def test_each_row_gets_the_file_s_size_and_version():
    sides = [image(1), JoinSide(file=FILE), image(2)]
    expected = [image(1, size_bytes=100, version="v1"), image(2, size_bytes=100, version="v1")]
    for order in permutations(sides):
        assert sorted(match_masks(order), key=str) == expected


def test_without_a_file_the_annotation_is_rejected_and_the_image_stays():
    missing = rejected(Reason.MASK_MISSING, "no such file under --panoptic-masks")
    assert list(match_masks([image()])) == [missing]


def test_what_was_found_of_the_image_before_stays():
    before = Rejected("annotation", 4, Reason.MALFORMED_BOX, "x", 1)
    notes = ImageNotes((before,), (Count(Metric.ROWS_MERGED, 1),))
    (side,) = match_masks([msgspec.structs.replace(image(), notes=notes)])
    assert side.notes.rejected[0] == before
    assert (len(side.notes.rejected), side.notes.counted) == (2, notes.counted)


def test_a_file_that_is_too_large_is_known_before_it_is_read():
    huge = JoinSide(file=ImageRef("masks/a.png", MAX_FILE_BYTES + 1))
    detail = "256,000,001 bytes, where at most 256,000,000 are read"
    assert list(match_masks([huge, image()])) == [rejected(Reason.MASK_UNREADABLE, detail)]


def test_a_file_that_no_row_names_is_passed_over():
    assert list(match_masks([JoinSide(file=FILE)])) == []


def test_two_files_of_one_name_are_an_error_where_a_row_has_that_name():
    files = [JoinSide(file=FILE), JoinSide(file=ImageRef("masks/./a.png", 5))]
    assert list(match_masks(files)) == []
    with pytest.raises(CollidingImagesError, match=r"masks/\./a\.png and masks/a\.png"):
        list(match_masks([*files, image()]))


@pytest.mark.parametrize("member", ["masks/a.png", "other/a.png"])
@pytest.mark.parametrize("name", ["a.png", "{folder}/a.png"])
def test_in_an_archive_a_name_counts_with_and_without_the_one_folder(tmp_path, member, name):
    archive = tmp_path / "masks.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(member, b"png")
    (found,) = match_masks([image(path=f"{archive}/{name.format(folder=member.split('/')[0])}")])
    (panoptic,) = found.row.labels.panoptic
    assert (panoptic.size_bytes, bool(panoptic.version), panoptic.segments) == (3, True, SEGMENTS)


def test_the_transforms_list_and_match(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / unicodedata.normalize("NFD", "é.png")).write_bytes(b"four")
    path = str(tmp_path / "deep" / "é.png")
    rows = [("1.jpg", image(1, path)), ("2.jpg", image(2, "")), ("3.jpg", image(3, str(tmp_path / "gone.png")))]
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        files = p | "Folders" >> beam.Create([str(tmp_path)]) | ListMasks()
        matched = (p | "Rows" >> beam.Create(rows), files) | MatchMasks()
        known = matched | beam.MapTuple(lambda name, side: (name, [p.size_bytes for p in side.row.labels.panoptic]))
        assert_that(known, equal_to([("1.jpg", [4]), ("2.jpg", []), ("3.jpg", [])]), "Images")
        reasons = matched | "Reasons" >> beam.FlatMapTuple(
            lambda name, side: [(name, reject.reason) for reject in side.notes.rejected]
        )
        assert_that(reasons, equal_to([("3.jpg", Reason.MASK_MISSING)]), "Rejected")
