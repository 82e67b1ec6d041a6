from itertools import permutations

import pytest

from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.errors import CategoryError, ConfigError
from recordmill.schemas.features import FeatureKind, Part
from recordmill.schemas.field_features import FieldColumn
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import AnnotationFile, AnnotationKind
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION, KERAS, LAYOUTS, TFDS
from recordmill.transforms.coco.describe_files import (
    describe_inputs,
    empty_splits,
    merge_categories,
    report_inputs,
)
from recordmill.transforms.dataset.facts import Facts, FactsBuilder
from recordmill.transforms.join.choose_categories import choose_features, select_categories
from recordmill.transforms.join.observed_labels import ObservedLabel

INSTANCES, KEYPOINTS, CAPTIONS, STUFF, PANOPTIC, IMAGE_INFO = AnnotationKind
CAT, DOG, BIRD = Category(17, "cat", "animal"), Category(18, "dog", "animal"), Category(0, "bird")


def file(path: str, *categories: Category, kind: AnnotationKind = INSTANCES, **more) -> AnnotationFile:
    return AnnotationFile(path, kind, 4, 9, categories, **more)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], ()),
        ([file("a.json")], ()),
        ([file("a.json", DOG, BIRD, CAT)], (BIRD, CAT, DOG)),
        ([file("a.json", DOG), file("b.json", CAT, DOG), file("c.json", BIRD)], (BIRD, CAT, DOG)),
        ([file("a.json", CAT, CAT)], (CAT,)),
        ([file("a.json", CAT, Category(20, "cat"))], (CAT, Category(20, "cat"))),
    ],
)
def test_categories_are_in_order_of_their_ids(files, expected):
    for order in permutations(files):
        assert merge_categories(order) == LabelMap(expected)


def empty_file(path: str, kind: AnnotationKind = INSTANCES) -> AnnotationFile:
    return AnnotationFile(path, kind, 4, 0, ())


@pytest.mark.parametrize(
    ("files", "warned"),
    [
        ([file("a.json"), file("b.json")], []),
        ([empty_file("a.json"), file("b.json")], ["train"]),
        ([file("a.json"), empty_file("b.json", STUFF)], ["val"]),
        ([file("a.json"), empty_file("b.json", IMAGE_INFO)], []),
        ([empty_file("a.json", CAPTIONS), empty_file("b.json", PANOPTIC)], []),
        ([empty_file("a.json"), file("a2.json")], []),
        ([empty_file("c.json"), file("b.json", kind=CAPTIONS)], []),  # --split decides
    ],
)
def test_split_without_annotations_is_a_warning(files, warned):
    splits = {"a.json": "train", "a2.json": "train", "b.json": "val"}
    assert [split for split, _ in empty_splits(files, splits)] == warned


@pytest.mark.parametrize("more", [[], [empty_file("b.json", IMAGE_INFO)], [empty_file("b.json", KEYPOINTS)]])
def test_job_without_annotations_is_an_error(more):
    with pytest.raises(ConfigError, match=r"a\.json: the list annotations is empty.*--allow-empty"):
        list(empty_splits([empty_file("a.json"), *more], {"a.json": "train", "b.json": "val"}))


@pytest.mark.parametrize("ids", [(8, 1), (2_000_000_000, 17, 5)])
def test_categories_are_sorted_by_id(ids):
    """A permuted label map is a data set whose every label is wrong."""
    rows = [Category(id_, f"number {id_}") for id_ in ids]
    in_order = tuple(sorted(rows, key=lambda category: category.id))
    files = [file("a.json", *rows), file("p.json", *rows, kind=PANOPTIC)]
    assert merge_categories(files) == LabelMap(in_order, in_order)


def test_of_rows_that_agree_on_name_that_of_first_file_stands():
    other = Category(17, "cat", "pet")
    for files in ([file("a.json", CAT), file("b.json", other)], [file("b.json", other), file("a.json", CAT)]):
        assert merge_categories(files) == LabelMap((CAT,))


@pytest.mark.parametrize(
    "files",
    [
        [file("a.json", CAT), file("b.json", Category(17, "dog"))],
        [file("a.json", CAT, Category(17, "dog"))],
        [file("a.json", CAT), file("b.json", Category(17, "dog"), kind=PANOPTIC)],
    ],
)
def test_id_with_two_names_is_error(files):
    with pytest.raises(CategoryError, match=r"category id 17 is 'cat' in a\.json and 'dog' in [ab]\.json"):
        merge_categories(reversed(files))


# Kinds of files

KEYED_CAT = Category(17, "cat", keypoints=("nose", "tail"), skeleton=((1, 2),))
GRASS = Category(92, "grass", "plant", isthing=0)
OBJECTS = {INSTANCES, KEYPOINTS}
REGIONS = {PANOPTIC, STUFF}


@pytest.mark.parametrize("kind", AnnotationKind)
def test_which_files_give_classes_and_which_give_segments(kind):
    """Beside a file of objects, and on their own."""
    other = file("b.json", DOG, kind=kind)
    labels = merge_categories([file("a.json", CAT), other])
    assert labels.categories == ((CAT, DOG) if kind in OBJECTS else (CAT,))
    assert labels.segments == ((DOG,) if kind in REGIONS else ())
    alone = merge_categories([other])
    assert alone.categories == ((DOG,) if kind in {*OBJECTS, IMAGE_INFO} else ())
    assert alone.segments == ((DOG,) if kind in REGIONS else ())


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (CAT, KEYED_CAT, Category(17, "cat", "animal", ("nose", "tail"), ((1, 2),))),
        (CAT, Category(17, "cat", isthing=1), Category(17, "cat", "animal", isthing=1)),
        (CAT, Category(17, "cat", isthing=0), Category(17, "cat", "animal", isthing=0)),
        (
            KEYED_CAT,
            Category(17, "cat", "animal", isthing=True),
            Category(17, "cat", "animal", ("nose", "tail"), ((1, 2),), True),
        ),
    ],
)
def test_rows_of_one_id_add_up(one, other, both):
    kinds = KEYPOINTS, PANOPTIC
    for first, second in permutations([one, other]):
        labels = merge_categories([file("a.json", first, kind=kinds[0]), file("b.json", second, kind=kinds[1])])
        assert labels == LabelMap((both,), (both,))


def test_id_with_two_sets_of_keypoints_is_error():
    other = Category(17, "cat", keypoints=("tail", "nose"))
    files = [file("a.json", KEYED_CAT, kind=KEYPOINTS), file("b.json", other)]
    with pytest.raises(CategoryError, match=r"'cat' \(id 17\) has 2 keypoints in a\.json and others.* in b\.json"):
        merge_categories(files)


@pytest.mark.parametrize(("stuff", "fits"), [(253, True), (254, False)])
def test_more_stuff_than_byte_has_values_for_is_error(stuff, fits):
    categories = (Category(1, "thing", isthing=1), *(Category(id_, f"stuff {id_}") for id_ in range(2, 2 + stuff)))
    files = [file("p.json", *categories, kind=PANOPTIC)]
    if fits:
        assert max(merge_categories(files).semantic_by_id().values()) == 254
    else:
        with pytest.raises(CategoryError, match="255 categories of segments include more stuff than the 253"):
            merge_categories(files)


def test_id_that_leaves_no_number_for_num_classes_is_error():
    largest = (1 << 63) - 1
    with pytest.raises(CategoryError, match=f"category 'far' has the id {largest}: num_classes, .* Renumber it"):
        merge_categories([file("a.json", CAT, Category(largest, "far"))])
    assert merge_categories([file("a.json", Category(largest - 1, "far"))]).categories[0].id == largest - 1
    assert len(merge_categories([file("a.json", BIRD, Category(largest, "far"))]).categories) == 2  # labels are shifted


def keypoints_file(path: str, category: Category, number: int) -> AnnotationFile:
    return file(path, category, kind=KEYPOINTS, keypoints={category.id: number})


def test_keypoints_without_names():
    files = [keypoints_file("b.json", CAT, 2), keypoints_file("a.json", CAT, 2), file("c.json", CAT, DOG)]
    named = Category(17, "cat", "animal", ("keypoint_1", "keypoint_2"))
    assert merge_categories(files) == merge_categories(reversed(files)) == LabelMap((named, DOG))


def test_keypoint_names_of_another_file():
    named = Category(17, "cat", "animal", ("nose", "tail"))
    assert merge_categories([keypoints_file("a.json", CAT, 2), file("b.json", named)]) == LabelMap((named,))
    for other in (file("b.json", named), keypoints_file("b.json", CAT, 2)):
        with pytest.raises(CategoryError, match=r"'cat' .* has 2 keypoints in .* and .* in c\.json, .* have 3\."):
            merge_categories([keypoints_file("c.json", CAT, 3), other])


ALL = LabelMap((BIRD, CAT, DOG, Category(20, "cat")), (CAT, GRASS))


@pytest.mark.parametrize(
    ("names", "expected"), [((), ALL.categories), (("dog",), (DOG,)), (("dog", "cat"), (CAT, DOG, Category(20, "cat")))]
)
def test_select_categories(names, expected):
    """Segments all stay."""
    assert select_categories(ALL, names) == LabelMap(expected, ALL.segments)


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (("dgo",), "Did you mean 'dog'"),
        (("cat", "zebra"), "The categories are bird, cat, dog"),
        (("Dog",), "Did you mean 'dog'"),
        (("grass",), "The categories are bird, cat, dog"),
    ],
)
def test_name_that_no_category_has_is_error(names, hint):
    with pytest.raises(CategoryError) as caught:
        select_categories(ALL, names)
    assert f"--categories {names[-1]!r}: no category has this name" in str(caught.value)
    assert hint in str(caught.value)


# Rows of each file


def uncarried(*files: AnnotationFile, layout: str = "detection") -> list[tuple]:
    described = describe_inputs(files, LAYOUTS[layout])
    assert described == describe_inputs(reversed(files), LAYOUTS[layout])
    assert [(rows.images, rows.annotations) for rows in described] == [(4, 9)] * len(files)
    return [(rows.path, rows.kind, rows.uncarried) for rows in described]


def test_each_file_has_its_own():
    fields = {"file": {"info": 1}, "annotations": {"score": 3}}
    assert uncarried(file("b", CAT, unread=fields), file("a", CAT, kind=CAPTIONS)) == [
        ("a", "captions", {}),
        ("b", "instances", fields),
    ]


def test_fields_not_written_of_file_read_twice():
    instances = file("a", CAT, unread={"file": {"info": 1}, "annotations": {"segmentation": 5, "x": 2}})
    stuff = file("a", CAT, kind=STUFF, unread={"file": {"info": 1}, "annotations": {"area": 5, "bbox": 5, "x": 2}})
    assert uncarried(instances, stuff) == [
        ("a", "instances", {"file": {"info": 1}, "annotations": {"x": 2}}),
        ("a", "stuff", {}),
    ]


def test_keypoints_of_instances_are_keypoints_file_with_one():
    instances = file("a", CAT, unread={"annotations": {"keypoints": 5, "num_keypoints": 5, "x": 1}})
    assert uncarried(instances)[0][2] == instances.unread
    assert uncarried(instances, file("b", CAT, kind=KEYPOINTS))[0][2] == {"annotations": {"x": 1}}


LVIS = {"neg_category_ids": 2, "not_exhaustive_category_ids": 1}


@pytest.mark.parametrize(
    ("layout", "expected"),
    [("detection", {}), ("tfds", {"images": LVIS}), ("keras", {"annotations": {"iscrowd": 3}, "images": LVIS})],
)
def test_fields_without_feature_in_layout(layout, expected):
    given = file("a", CAT, optional={"images": LVIS, "annotations": {"iscrowd": 3}})
    assert uncarried(given, layout=layout) == [("a", "instances", expected)]


def facts_of_inputs(files: list[AnnotationFile], splits: tuple[str, ...] = ("train",)) -> Facts:
    facts = FactsBuilder()
    report_inputs(files, LAYOUTS["detection"], splits, {}, facts)
    return facts.build()


def test_report_inputs():
    warned = file("a.json", CAT, unread={"file": {"info": 1}}, warnings=("odd",))
    facts = facts_of_inputs([warned], ("train", "val"))
    assert facts.inputs == {
        ("train", "a.json", "instances"): InputRows("a.json", "instances", 4, 9, {"file": {"info": 1}}),
        ("val", "a.json", "instances"): InputRows("a.json", "instances", 0, 0, {"file": {"info": 1}}),
    }
    assert facts.warnings == {("train", "odd")}


def test_panoptic_categories_not_said_to_be_things():
    panoptic = file("p.json", Category(1, "cup"), Category(2, "wall", isthing=0), kind=PANOPTIC)
    other = file("i.json", Category(1, "cup", isthing=1))
    ((_, text),) = facts_of_inputs([panoptic]).warnings
    assert text.startswith("p.json: 1 of 2 categories have no isthing (cup) and are written as stuff")
    assert not facts_of_inputs([panoptic, other]).warnings
    assert not facts_of_inputs([file("s.json", CAT, kind=STUFF)]).warnings


def test_annotations_without_any_category():
    bare, captions = file("i.json"), file("c.json", kind=CAPTIONS)
    ((_, text),) = facts_of_inputs([bare, captions]).warnings
    assert text.startswith("i.json: the list categories is missing or empty, so no annotation has a class")
    for other_files in ([captions], [bare, file("k.json", CAT, kind=KEYPOINTS)]):
        assert facts_of_inputs(other_files).warnings == set()


# Features

FROM_1 = LabelMap((Category(1, "cat"), Category(3, "dog")))
FROM_0 = LabelMap((Category(0, "cat"), Category(3, "dog")))


PLAIN, LVIS_FILE = file("a.json"), file("a.json", lvis=True)


@pytest.mark.parametrize("asked", [(), (Part.CAPTIONS,), (Part.MASK_PNG, Part.KEYPOINTS)])
@pytest.mark.parametrize(
    ("files", "lvis"),
    [([], ()), ([PLAIN], ()), ([LVIS_FILE], (Part.LVIS,)), ([PLAIN, LVIS_FILE], (Part.LVIS,))],
)
def test_lvis_lists_are_added_if_file_has_them(files, lvis, asked):
    table = choose_features(files, FROM_1, DETECTION.with_parts(asked), DETECTION)
    assert table == DETECTION.with_parts((*asked, *lvis))
    assert table.parts == (*asked, *lvis)


@pytest.mark.parametrize("layout", [KERAS.with_parts(()), TFDS])
def test_layout_without_feature_of_input_is_unchanged(layout):
    asked = layout.with_parts(())
    assert choose_features([LVIS_FILE], FROM_0, asked, layout) == asked


def test_category_ids_are_in_records_where_labels_are_others():
    asked = DETECTION.with_parts((Part.CAPTIONS,))
    table = choose_features([PLAIN], FROM_0, asked, DETECTION)
    assert table.parts == (Part.CAPTIONS, Part.CATEGORY_ID)
    assert "objects.category_id" in table.sources - asked.sources


def test_leaves_of_fields_that_are_not_stored():
    labels = [ObservedLabel("object path", f"attributes.{name}") for name in "xy"]
    given = file("a", CAT, unread={"annotations": {"attributes": 3, "score": 2}}, observed=tuple(labels))
    columns = [FieldColumn("object", path, FeatureKind.INT64) for path in ("attributes.x", "score", "attributes.y")]

    def described(number: int) -> tuple:
        (rows,) = describe_inputs([given], LAYOUTS["detection"], columns[:number])
        return rows.uncarried.get("annotations", {}), rows.leaves

    assert described(0)[1] == {"annotations": {"attributes": ("attributes.x", "attributes.y")}}
    assert described(2) == ({"attributes": 3}, {"annotations": {"attributes": ("attributes.y",)}})
    assert described(3) == ({}, {})
