from itertools import permutations

import msgspec
import pytest

from recordmill.schemas.errors import CategoryError
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import AnnotationFile, AnnotationKind
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.coco.describe_files import merge_categories, select_categories

CAT, DOG, BIRD = Category(17, "cat", "animal"), Category(18, "dog", "animal"), Category(0, "bird")


def file(path: str, *categories: Category, kind: AnnotationKind = AnnotationKind.INSTANCES) -> AnnotationFile:
    return AnnotationFile(path, kind, 1, 1, categories)


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


@pytest.mark.parametrize("ids", [(8, 1), (2_000_000_000, 17, 5)])
def test_categories_are_in_order_of_their_ids_where_set_has_them_in_another(ids):
    """A permuted label map is a data set whose every label is wrong."""
    rows = [Category(id_, f"number {id_}") for id_ in ids]
    in_order = tuple(sorted(rows, key=lambda category: category.id))
    files = [file("a.json", *rows), file("p.json", *rows, kind=AnnotationKind.PANOPTIC)]
    assert merge_categories(files) == LabelMap(in_order, in_order)


def test_of_rows_that_agree_on_name_that_of_first_file_stands():
    other = Category(17, "cat", "pet")
    for files in ([file("a.json", CAT), file("b.json", other)], [file("b.json", other), file("a.json", CAT)]):
        assert merge_categories(files) == LabelMap((CAT,))


@pytest.mark.parametrize(
    "files", [[file("a.json", CAT), file("b.json", Category(17, "dog"))], [file("a.json", CAT, Category(17, "dog"))]]
)
def test_id_with_two_names_is_error(files):
    with pytest.raises(CategoryError, match=r"category id 17 is 'cat' in a\.json and 'dog' in [ab]\.json"):
        merge_categories(reversed(files))


# Kinds of files

KEYED_CAT = Category(17, "cat", keypoints=("nose", "tail"), skeleton=((1, 2),))
GRASS = Category(92, "grass", "plant", isthing=0)
OBJECTS = {AnnotationKind.INSTANCES, AnnotationKind.KEYPOINTS}
REGIONS = {AnnotationKind.PANOPTIC, AnnotationKind.STUFF}


@pytest.mark.parametrize("kind", AnnotationKind)
def test_which_files_give_classes_and_which_give_segments(kind):
    """Beside a file of objects, and on their own."""
    other = file("b.json", DOG, kind=kind)
    labels = merge_categories([file("a.json", CAT), other])
    assert labels.categories == ((CAT, DOG) if kind in OBJECTS else (CAT,))
    assert labels.segments == ((DOG,) if kind in REGIONS else ())
    alone = merge_categories([other])
    assert alone.categories == ((DOG,) if kind in {*OBJECTS, AnnotationKind.IMAGE_INFO} else ())
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
    kinds = AnnotationKind.KEYPOINTS, AnnotationKind.PANOPTIC
    for first, second in permutations([one, other]):
        labels = merge_categories([file("a.json", first, kind=kinds[0]), file("b.json", second, kind=kinds[1])])
        assert labels == LabelMap((both,), (both,))


def test_id_with_two_sets_of_keypoints_is_error():
    other = Category(17, "cat", keypoints=("tail", "nose"))
    files = [file("a.json", KEYED_CAT, kind=AnnotationKind.KEYPOINTS), file("b.json", other)]
    with pytest.raises(CategoryError, match=r"'cat' \(id 17\) has 2 keypoints in a\.json and others.* in b\.json"):
        merge_categories(files)


def test_object_and_segment_of_one_id_and_two_names_are_error():
    files = [file("a.json", CAT), file("p.json", Category(17, "sky"), kind=AnnotationKind.PANOPTIC)]
    with pytest.raises(CategoryError, match=r"category id 17 is 'cat' in a\.json and 'sky' in p\.json"):
        merge_categories(files)


@pytest.mark.parametrize(("stuff", "fits"), [(253, True), (254, False)])
def test_more_stuff_than_byte_has_values_for_is_error(stuff, fits):
    categories = (Category(1, "thing", isthing=1), *(Category(id_, f"stuff {id_}") for id_ in range(2, 2 + stuff)))
    files = [file("p.json", *categories, kind=AnnotationKind.PANOPTIC)]
    if fits:
        assert max(merge_categories(files).semantic_by_id().values()) == 254
    else:
        with pytest.raises(CategoryError, match="255 categories of segments have more stuff among them than the 253"):
            merge_categories(files)


def test_id_that_leaves_no_number_for_num_classes_is_error():
    largest = (1 << 63) - 1
    with pytest.raises(CategoryError, match=f"category 'far' has the id {largest}: num_classes, .* renumber it"):
        merge_categories([file("a.json", CAT, Category(largest, "far"))])
    assert merge_categories([file("a.json", Category(largest - 1, "far"))]).categories[0].id == largest - 1
    assert len(merge_categories([file("a.json", BIRD, Category(largest, "far"))]).categories) == 2  # labels are shifted


def test_classes_are_selected_by_name_and_segments_all_stay():
    labels = LabelMap((BIRD, CAT), (CAT, GRASS))
    assert select_categories(labels, ("bird",)) == LabelMap((BIRD,), (CAT, GRASS))
    with pytest.raises(CategoryError, match="'grass'"):
        select_categories(labels, ("grass",))


def keypoints_file(path: str, category: Category, number: int) -> AnnotationFile:
    return AnnotationFile(path, AnnotationKind.KEYPOINTS, 1, 1, (category,), keypoints={category.id: number})


def test_keypoints_that_no_file_names_are_as_many_as_rows_have():
    files = [keypoints_file("b.json", CAT, 2), keypoints_file("a.json", CAT, 2), file("c.json", CAT, DOG)]
    named = msgspec.structs.replace(CAT, keypoints=("keypoint_1", "keypoint_2"))
    assert merge_categories(files) == merge_categories(reversed(files)) == LabelMap((named, DOG))


def test_names_of_keypoints_are_another_file_where_it_has_as_many():
    named = msgspec.structs.replace(CAT, keypoints=("nose", "tail"))
    assert merge_categories([keypoints_file("a.json", CAT, 2), file("b.json", named)]) == LabelMap((named,))
    for other in (file("b.json", named), keypoints_file("b.json", CAT, 2)):
        with pytest.raises(CategoryError, match=r"'cat' .* has 2 keypoints in .* and .* in c\.json, .* have 3;"):
            merge_categories([keypoints_file("c.json", CAT, 3), other])


ALL = LabelMap((BIRD, CAT, DOG, Category(20, "cat")))


@pytest.mark.parametrize(
    ("names", "expected"), [((), ALL.categories), (("dog",), (DOG,)), (("dog", "cat"), (CAT, DOG, Category(20, "cat")))]
)
def test_select_categories(names, expected):
    assert select_categories(ALL, names) == LabelMap(expected)


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (("dgo",), "did you mean 'dog'"),
        (("cat", "zebra"), "there are: bird, cat, dog"),
        (("Dog",), "did you mean 'dog'"),
    ],
)
def test_name_that_no_category_has_is_error(names, hint):
    with pytest.raises(CategoryError) as caught:
        select_categories(ALL, names)
    assert f"--categories {names[-1]!r}: no category has that name" in str(caught.value)
    assert hint in str(caught.value)
