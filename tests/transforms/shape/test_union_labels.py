import msgspec
import pytest

from recordmill.schemas.errors import CategoryError, ConfigError
from recordmill.schemas.features import FeatureKind, Part
from recordmill.schemas.field_features import RAGGED, FieldColumn, add_fields, field_columns
from recordmill.schemas.inputs.annotations import Category, unnamed_keypoints
from recordmill.schemas.inputs.labels import ExistingLabels, LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.shape.union_labels import (
    RecordRequest,
    SetLabels,
    SetTable,
    adopt_union,
    union_labels,
    union_tables,
)

INT64, FLOAT, BYTES = FeatureKind.INT64, FeatureKind.FLOAT, FeatureKind.BYTES
NOSE = ("nose", "tail")


def of_objects(*categories: Category) -> LabelMap:
    return LabelMap(categories)


def of_segments(*categories: Category) -> LabelMap:
    return LabelMap((), categories)


def named(*pairs: tuple[int, str]) -> LabelMap:
    return LabelMap(tuple(Category(*pair) for pair in pairs))


@pytest.mark.parametrize(
    ("labels", "ids_and_names", "mappings"),
    [
        (
            [named((3, "cow"), (90, "eel")), named((0, "eel"), (1, "ant"), (2, "cow")), named((7, "ape"), (9, "ant"))],
            [(3, "cow"), (90, "eel"), (91, "ant"), (92, "ape")],
            [{3: 3, 90: 90}, {0: 90, 1: 91, 2: 3}, {7: 92, 9: 91}],
        ),
        ([named(), named((5, "cow"), (8, "eel"))], [(5, "cow"), (8, "eel")], [{}, {5: 5, 8: 8}]),
        (
            [named((-1, "cow")), named((4, "eel"), (6, "ant"))],
            [(-1, "cow"), (0, "eel"), (1, "ant")],
            [{-1: -1}, {4: 0, 6: 1}],
        ),
        (  # Roboflow's first category may have the name of another one
            [named((0, "fish"), (1, "fish")), named((4, "fish"), (6, "fish"), (7, "fish"))],
            [(0, "fish"), (1, "fish"), (2, "fish")],
            [{0: 0, 1: 1}, {4: 0, 6: 1, 7: 2}],
        ),
    ],
)
def test_classes_meet_by_name(labels, ids_and_names, mappings):
    union = union_labels([SetLabels(str(number), part) for number, part in enumerate(labels)])
    assert [(category.id, category.name) for category in union.labels.categories] == ids_and_names
    assert [mapping.ids for mapping in union.mappings] == mappings


def test_objects_and_segments_of_several_sets():
    first = LabelMap(
        (Category(1, "person"), Category(2, "car")), (Category(1, "person", isthing=1), Category(93, "sky", isthing=0))
    )
    second = LabelMap((Category(1, "sheep"),), (Category(5, "sky"), Category(6, "person", "human", isthing=1)))
    union = union_labels([SetLabels("a", first), SetLabels("b", second)]).labels
    assert union.categories == (Category(1, "person", "human", isthing=1), Category(2, "car"), Category(94, "sheep"))
    assert union.segments == (Category(1, "person", "human", isthing=1), Category(93, "sky", isthing=0))


@pytest.mark.parametrize(
    ("one", "other", "fault"),
    [
        (of_objects(Category(1, "x")), of_segments(Category(1, "x")), "class 'x' is a thing in a and stuff in b."),
        (
            of_segments(Category(1, "x", isthing=0)),
            of_segments(Category(1, "x", isthing=1)),
            "a thing in b and stuff in a.",
        ),
        (
            of_objects(Category(1, "x", None, NOSE)),
            of_objects(Category(4, "x", None, ("nose",))),
            "2 keypoints in a and 1 in b.",
        ),
        (of_objects(Category(1, "x", None, NOSE)), of_objects(Category(4, "x", None, NOSE[::-1])), "in a than in b."),
        (
            of_objects(Category(1, "x", None, NOSE, ((1, 2),))),
            of_objects(Category(1, "x", None, NOSE, ((1, 1),))),
            "another skeleton in a than in b.",
        ),
    ],
)
def test_contradictions_name_both_sets(one, other, fault):
    with pytest.raises(CategoryError) as error:
        union_labels([SetLabels("a", one), SetLabels("nothing", named()), SetLabels("b", other)])
    assert fault in str(error.value)


def test_keypoints_without_names_get_them():
    sets = [Category(1, "x", None, unnamed_keypoints(2)), Category(1, "x"), Category(1, "x", None, NOSE, ((2, 1),))]
    (category,) = union_labels([SetLabels(str(id_), of_objects(one)) for id_, one in enumerate(sets)]).labels.categories
    assert category == Category(1, "x", None, NOSE, ((2, 1),))


def test_more_splits_take_the_classes_of_the_data_set():
    existing = ExistingLabels(named((4, "cow"), (5, "eel"), (6, "ant")), "train of out")
    sets = [SetLabels("a", named((1, "ant"))), SetLabels("b", named((1, "cow"), (2, "ant")))]
    union, absent = adopt_union(sets, existing)
    assert (union.labels, [mapping.ids for mapping in union.mappings]) == (existing.labels, [{1: 6}, {1: 4, 2: 6}])
    assert "'eel'" in absent
    with pytest.raises(CategoryError, match="train of out has no class 'ape'"):
        adopt_union([*sets, SetLabels("c", named((1, "ape")))], existing)


DETECTION = LAYOUTS["detection"].with_parts(())
REQUEST = RecordRequest(LAYOUTS["detection"])


def with_field(kind: FeatureKind, size: int = 0, is_bool: bool = False):
    return add_fields(DETECTION, [FieldColumn("object", "x", kind, size, is_bool)]).table


@pytest.mark.parametrize(
    ("first", "second", "stored"),
    [
        (with_field(INT64), with_field(INT64), FieldColumn("object", "x", INT64)),
        (with_field(INT64), with_field(FLOAT), FieldColumn("object", "x", FLOAT)),
        (with_field(INT64), with_field(INT64, is_bool=True), FieldColumn("object", "x", BYTES)),
        (with_field(BYTES), with_field(FLOAT), FieldColumn("object", "x", BYTES)),
        (with_field(FLOAT, 2), with_field(FLOAT, 3), FieldColumn("object", "x", FLOAT, RAGGED)),
        (with_field(FLOAT, 2), with_field(FLOAT), FieldColumn("object", "x", BYTES)),
        (DETECTION, with_field(INT64, is_bool=True), FieldColumn("object", "x", INT64, is_bool=True)),
    ],
)
def test_kinds_of_a_field_in_several_sets(first, second, stored):
    table, warnings = union_tables([SetTable("a", first), SetTable("b", second)], LabelMap(()), REQUEST)
    assert [column for column in field_columns(table) if not column.is_well_known] == [stored]
    assert len(warnings) == (first != second)


def test_parts_of_all_sets_and_shifted_labels():
    tables = [SetTable(part.value, LAYOUTS["detection"].with_parts((part,))) for part in (Part.LVIS, Part.TRACKS)]
    table, warnings = union_tables(tables, named((0, "ant")), REQUEST)
    assert (table.parts, warnings) == ((Part.LVIS, Part.TRACKS, Part.CATEGORY_ID), [])
    table, _ = union_tables([SetTable("a", table)], named((1, "ant")), REQUEST)
    assert Part.CATEGORY_ID not in table.parts


def test_two_layouts_are_an_error():
    tables = [SetTable("a", DETECTION), SetTable("b", LAYOUTS["classification"])]
    with pytest.raises(ConfigError, match="set a has layout detection and set b has layout classification"):
        union_tables(tables, LabelMap(()), REQUEST)


def test_requested_field_that_no_set_has_is_an_error():
    tables = [SetTable("a", DETECTION), SetTable("b", with_field(INT64))]
    union_tables(tables, LabelMap(()), REQUEST._replace(fields=("x:int",)))
    lacking = [
        msgspec.structs.replace(table, lacking=(("y", f"no object has this field. {hint}"),))
        for (_, table), hint in zip(tables, ("Objects of this data set have no fields", "Did you mean x?"), strict=True)
    ]
    with pytest.raises(
        ConfigError,
        match=r"^--fields y: no set has this field\. Set b: no object has this field. Did you mean x\?$",
    ):
        union_tables([*map(SetTable, "ab", lacking)], LabelMap(()), REQUEST._replace(fields=("x", "y")))


def test_further_splits_have_the_fields_of_the_data_set():
    existing = ExistingLabels(LabelMap(()), "train of out", with_field(FLOAT))
    parts = [SetTable("a", with_field(INT64)), SetTable("b", DETECTION)]
    assert union_tables(parts, LabelMap(()), REQUEST._replace(existing=existing))[0] == with_field(FLOAT)
    with pytest.raises(ConfigError, match="train of out has x, and --fields gives no field"):
        union_tables(parts[1:], LabelMap(()), REQUEST._replace(existing=existing))


def test_a_field_of_one_set_is_renamed():
    part = add_fields(DETECTION, [FieldColumn("object", "x", INT64)], {"image/object/y": "z"}, is_part=True).table
    with_other = add_fields(DETECTION, [FieldColumn("object", "y", INT64)]).table
    request = REQUEST._replace(renames={"image/object/y": "z"})
    table, _ = union_tables([SetTable("a", part), SetTable("b", with_other)], LabelMap(()), request)
    assert {feature.name for feature in table.features} >= {"image/object/x", "z"}
    with pytest.raises(ConfigError, match=r"--rename: records have no feature 'image/object/y'\. Did you mean"):
        union_tables([SetTable("a", part)], LabelMap(()), request)


def of_values(*categories: Category) -> LabelMap:
    return LabelMap((), categories, has_pixel_ids=True)


ROAD, CAR, SKY = Category(0, "road"), Category(1, "car"), Category(7, "sky")


def test_values_of_masks_stay():
    union = union_labels([SetLabels("a", of_values(ROAD, SKY)), SetLabels("b", of_values(CAR, SKY)), DEPTH_ONLY])
    assert union.labels == of_values(ROAD, CAR, SKY)
    assert [mapping.ids for mapping in union.mappings] == [{0: 0, 7: 7}, {1: 1, 7: 7}, {}]


DEPTH_ONLY = SetLabels("c", LabelMap(()))


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (of_values(Category(0, "way")), "the value 0 is 'road' in masks of a, and 'way' in those of b"),
        (of_values(Category(4, "road")), "class 'road' is the value 0 in masks of a, and 4 in those of b"),
        (of_segments(Category(92, "sky")), "b has objects or other segments"),
        (of_objects(Category(1, "car")), "b has objects or other segments"),
    ],
)
def test_values_of_masks_that_contradict_each_other(labels, text):
    with pytest.raises(CategoryError, match=text):
        union_labels([SetLabels("a", of_values(ROAD, SKY)), SetLabels("b", labels)])
