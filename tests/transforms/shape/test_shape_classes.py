import numpy as np
import pytest

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.dataset.manifest import MappedClass
from recordmill.schemas.errors import CategoryError, NoSuchClassError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category, ImageLabels, StuffAnnotation
from recordmill.schemas.inputs.labels import ExistingLabels, LabelMap
from recordmill.schemas.layouts import DETECTION
from recordmill.schemas.rejects import Metric
from recordmill.transforms.blocks.image_tasks import label_column
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.folder.folder_options import FolderOptions
from recordmill.transforms.shape.class_map import ClassMap
from recordmill.transforms.shape.finish_labels import finish_labels
from recordmill.transforms.shape.shape_classes import new_ids, shape_classes

CLASSES = LabelMap((Category(0, "car"), Category(3, "cat"), Category(6, "bus")))
VEHICLES = ClassMap("map.csv", {"car": "vehicle", "bus": "vehicle"})
TABLE = DETECTION.with_parts((Part.CATEGORY_ID,))


def coco(**options) -> CocoOptions:
    return CocoOptions(images="i", instances="a.json", output="out", class_map="map.csv", **options)


def folder(**options) -> FolderOptions:
    return FolderOptions(data="i", output="out", class_map="map.csv", **options)


@pytest.mark.parametrize(
    ("options", "class_map", "expected"),
    [
        (coco(), VEHICLES, [(0, "vehicle"), (3, "cat")]),
        (coco(categories="cat,vehicle"), VEHICLES, [(3, "cat"), (0, "vehicle")]),
        (coco(categories="bus,cat"), None, [(6, "bus"), (3, "cat")]),
        (folder(), VEHICLES, [(0, "vehicle"), (1, "cat")]),
        (folder(classes="cat,vehicle"), VEHICLES, [(0, "cat"), (1, "vehicle")]),
        (folder(), ClassMap("map.csv", {"car": ""}), [(0, "cat"), (1, "bus")]),
    ],
)
def test_new_names_are_selected_in_order(options, class_map, expected):
    labels = finish_labels(CLASSES, TABLE, options, class_map).labels
    assert [(category.id, category.name) for category in labels.categories] == expected


@pytest.mark.parametrize("options", [coco(categories="vehicles"), folder(classes="vehicles")])
def test_selection_of_unknown_class(options):
    with pytest.raises(NoSuchClassError, match="vehicles"):
        finish_labels(CLASSES, TABLE, options, VEHICLES)


@pytest.mark.parametrize(
    ("names", "has_ids"),
    [
        ({"car": ""}, False),
        ({"car": "background"}, False),
        ({"cat": "car"}, True),
        ({"car": "cat", "cat": "car"}, True),
    ],
)
def test_category_ids_are_stored_if_labels_differ_from_them(names, has_ids):
    table = finish_labels(CLASSES, TABLE, coco(), ClassMap("map.csv", names)).table
    assert (Part.CATEGORY_ID in table.parts) is has_ids
    assert Part.CATEGORY_ID in finish_labels(CLASSES, TABLE, coco().as_part(), ClassMap("map.csv", names)).table.parts


def test_equal_names_of_text_labels_may_be_merged():
    twins = LabelMap((Category(1, "car"), Category(2, "car"), Category(3, "cat")))
    texts = CocoOptions(images="i", instances="a.json", output="out", layout="tfds", label_as="text").layout_table
    with pytest.raises(CategoryError, match="two categories are called 'car'"):
        finish_labels(twins, texts, coco(), ClassMap("map.csv", {"cat": "dog"}))
    assert finish_labels(twins, texts, coco(), ClassMap("map.csv", {"car": "vehicle"})).labels.duplicate_names() == ()


def test_existing_data_set_is_compared_after_map():
    known = ExistingLabels(LabelMap((Category(0, "vehicle"), Category(3, "cat"), Category(9, "dog"))), "train of out")
    finished = finish_labels(CLASSES, TABLE, coco(), VEHICLES, known)
    assert finished.labels == known.labels
    assert finished.warnings == ("no example is of 'dog'; labels are those of train of out",)
    with pytest.raises(CategoryError, match="train of out has no class 'car', 'bus'"):
        finish_labels(CLASSES, TABLE, coco(), None, known)
    other_ids = ExistingLabels(LabelMap((Category(5, "vehicle"), Category(3, "cat"))), "train of out")
    with pytest.raises(CategoryError, match="train of out has another id for the class 'vehicle'"):
        finish_labels(CLASSES, TABLE, coco(), VEHICLES, other_ids)


class OfTwoSets(CocoOptions):
    @property
    def set_options(self):
        return {"a": self, "b": self}


@pytest.mark.parametrize(
    ("categories", "class_map", "ids", "selected"),
    [
        (("bus", "cat"), None, {0: 10, 3: 6, 6: 3}, ["bus", "cat"]),
        ((), ClassMap("map.csv", {"car": "bus"}), {0: 3, 6: 3, 3: 6}, ["bus", "cat"]),
    ],
)
def test_classes_of_several_sets_meet_those_of_the_existing_data_set_by_name(categories, class_map, ids, selected):
    known = ExistingLabels(LabelMap((Category(3, "bus"), Category(6, "cat"), Category(9, "dog"))), "train of out")
    options = OfTwoSets(images="i", instances="a.json", output="out", class_map="map.csv", categories=categories)
    finished = finish_labels(CLASSES, TABLE, options, class_map, known)
    assert (finished.mapping.ids, finished.labels) == (ids, known.labels)
    assert [category.name for category in finished.selected.categories] == selected


def test_splits_added_to_a_data_set_lack_objects_of_its_other_classes():
    known = ExistingLabels(CLASSES, "train of out")
    finished = finish_labels(CLASSES, TABLE, coco(categories="cat"), None, known)
    assert finished.labels == CLASSES
    assert [category.name for category in finished.selected.categories] == ["cat"]


def test_warnings_are_of_new_names():
    labels = LabelMap((Category(1, "Hot dog"), Category(2, "hot_dog"), Category(3, "cat")))
    assert (
        finish_labels(labels, TABLE, coco(), ClassMap("m", {"Hot dog": "hotdog", "hot_dog": "hotdog"})).warnings == ()
    )
    (warning,) = finish_labels(labels, TABLE, coco(), ClassMap("m", {"cat": "Cat"})).warnings
    assert warning.startswith("the classes 'Hot dog' and 'hot_dog' may be one")


def test_splits_depend_on_new_ids():
    assert new_ids(CLASSES, VEHICLES, coco(categories="vehicle")) == {0: 0, 6: 0}


def counts(facts: FactsBuilder) -> dict[tuple[str, str], int]:
    return {(split, metric): number for (split, metric), number in facts.build().counts.items() if number}


def test_counts_of_objects():
    """Three images of train and one of val: one loses all objects by the map, another by the selection."""
    segments = LabelMap(CLASSES.categories, (Category(90, "sky"), Category(91, "sea")))
    regions = ImageLabels(regions=(StuffAnnotation(1, 90, b""), StuffAnnotation(2, 91, b"")))
    block = Block(
        image_id=np.arange(4),
        split=np.array([0, 0, 1, 0]),
        labels=label_column([regions, ImageLabels(), ImageLabels(), ImageLabels()]),
        first_object_of_image=np.array([0, 3, 4, 5, 5]),
        object_id=np.arange(5),
        category_id=np.array([0, 3, 6, 3, 6]),
    )
    class_map = ClassMap("m", {"car": "vehicle", "bus": "vehicle", "cat": "", "sky": ""})
    finished = finish_labels(segments, TABLE, coco(), class_map)
    facts = FactsBuilder()
    shaped = shape_classes(block, segments, finished.mapping, finished.selected, ("train", "val"), facts)
    assert shaped.first_object_of_image.tolist() == [0, 2, 2, 3, 3]
    assert counts(facts) == {("train", Metric.FILTERED_CLASS_MAP): 3, ("train", Metric.EMPTIED): 1}
    assert {key: mapped for key, mapped in facts.build().mapped.items() if key[0] == "train"} == {
        ("train", "car", "vehicle", ""): MappedClass("car", "vehicle", objects=1),
        ("train", "bus", "vehicle", ""): MappedClass("bus", "vehicle", objects=1),
        ("train", "cat", "", ""): MappedClass("cat", "", objects=2),
        ("train", "sky", "", ""): MappedClass("sky", "", segments=1),
        ("train", "sea", "sea", ""): MappedClass("sea", "sea", segments=1),
    }
    facts = FactsBuilder()
    selected = LabelMap((Category(3, "cat"),), segments.segments)
    unchanged = finish_labels(segments, TABLE, coco(), ClassMap("m", {"car": "auto"})).mapping
    shape_classes(block, segments, unchanged, selected, ("train", "val"), facts)
    assert counts(facts) == {
        ("train", Metric.FILTERED_CATEGORY): 2,
        ("val", Metric.FILTERED_CATEGORY): 1,
        ("val", Metric.EMPTIED): 1,
    }


def test_counts_of_images():
    block = Block(
        image_id=np.arange(4), split=np.array([0, 1, 1, 1]), class_name=ragged_texts(["car", "cat", "bus", "cat"])
    )
    class_map = ClassMap("m", {"cat": ""})
    finished = finish_labels(CLASSES, TABLE, folder(classes="car"), class_map)
    facts = FactsBuilder()
    shaped = shape_classes(block, CLASSES, finished.mapping, finished.selected, ("train", "val"), facts)
    assert shaped.class_name.texts() == ["car"]
    assert counts(facts) == {("val", Metric.OF_OTHER_CLASSES): 3}
