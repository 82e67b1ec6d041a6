import pytest

from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import AnnotationFile, AnnotationKind
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION, KERAS, TFDS
from recordmill.transforms.coco.describe_files import choose_features

FROM_1 = LabelMap((Category(1, "cat"), Category(3, "dog")))
FROM_0 = LabelMap((Category(0, "cat"), Category(3, "dog")))


def file(lvis: bool) -> AnnotationFile:
    return AnnotationFile("a.json", AnnotationKind.INSTANCES, 1, 1, (), lvis)


@pytest.mark.parametrize("asked", [(), (Part.CAPTIONS,), (Part.MASK_PNG, Part.KEYPOINTS)])
@pytest.mark.parametrize(
    ("files", "lvis"),
    [([], ()), ([file(False)], ()), ([file(True)], (Part.LVIS,)), ([file(False), file(True)], (Part.LVIS,))],
)
def test_lvis_s_lists_join_what_was_asked_for_where_file_has_them(files, lvis, asked):
    table = choose_features(files, FROM_1, DETECTION.with_parts(asked), DETECTION)
    assert table == DETECTION.with_parts((*asked, *lvis))
    assert table.parts == (*asked, *lvis)


@pytest.mark.parametrize("layout", [KERAS, TFDS])
def test_layout_without_room_for_what_input_has_stays_unchanged(layout):
    asked = layout.with_parts(())
    assert choose_features([file(True)], FROM_0, asked, layout) == asked


def test_category_ids_are_in_records_where_labels_are_others():
    asked = DETECTION.with_parts((Part.CAPTIONS,))
    table = choose_features([file(False)], FROM_0, asked, DETECTION)
    assert table.parts == (Part.CAPTIONS, Part.CATEGORY_ID)
    assert "objects.category_id" in table.sources - asked.sources
