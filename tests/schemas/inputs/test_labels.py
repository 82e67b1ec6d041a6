import csv
import io
import json
import sys

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from hypothesis import assume, given
from hypothesis import strategies as st

from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LABEL_FILES, LabelMap, label_files, misread_numbers, name_warnings

GAPPED = LabelMap((Category(1, "cat"), Category(3, "dog"), Category(90, "tooth brush")))
ZERO_BASED = LabelMap((Category(0, "face"), Category(1, "face"), Category(5, "hand")))
WITH_BACKGROUND = LabelMap((Category(0, "background"), Category(2, "cat")))
EMPTY = LabelMap(())
BOTH = LabelMap(
    (Category(1, "cat", keypoints=("nose", "tail")), Category(17, "dog", keypoints=("nose",)), Category(90, "tree")),
    (Category(1, "cat", isthing=1), Category(92, "banner", isthing=0)),
)
SHIFTED = LabelMap((Category(3, "cat"), Category(8, "dog")), (Category(0, "road"), Category(3, "cat")))
NEGATIVE = LabelMap((Category(-1, "__ignore__"), Category(0, "background"), Category(4, "cat")))

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def maps(labels: LabelMap) -> dict[str, str]:
    """The files of a layout with labels above the background's 0."""
    return label_files(labels, labels.label_by_id())


@pytest.fixture(scope="module")
def string_int_label_map():
    """The message that the Object Detection API reads (object_detection/protos/string_int_label_map.proto)."""
    fields = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="label_map.proto", package="test", syntax="proto2")
    item = file.message_type.add(name="Item")
    item.field.add(name="name", number=1, type=fields.TYPE_STRING, label=fields.LABEL_OPTIONAL)
    item.field.add(name="id", number=2, type=fields.TYPE_INT32, label=fields.LABEL_OPTIONAL)
    item.field.add(name="display_name", number=3, type=fields.TYPE_STRING, label=fields.LABEL_OPTIONAL)
    whole = file.message_type.add(name="LabelMap")
    repeated = {"type": fields.TYPE_MESSAGE, "label": fields.LABEL_REPEATED}
    whole.field.add(name="item", number=1, type_name=".test.Item", **repeated)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.LabelMap"))


def read_pbtxt(text: str, message) -> list[tuple[int, str]]:
    read = text_format.Parse(text, message())
    assert not any(item.HasField("display_name") for item in read.item)  # Datumaro reads no such item
    return [(item.id, item.name) for item in read.item]


@pytest.mark.parametrize(
    ("labels", "items"),
    [
        (GAPPED, [(1, "cat"), (3, "dog"), (90, "tooth brush")]),
        (ZERO_BASED, [(1, "face"), (2, "face"), (3, "hand")]),
        (WITH_BACKGROUND, [(0, "background"), (2, "cat")]),
        (NEGATIVE, [(1, "__ignore__"), (2, "background"), (3, "cat")]),
        (EMPTY, []),
        (BOTH, [(1, "cat"), (17, "dog"), (90, "tree"), (92, "banner")]),
        (SHIFTED, [(3, "road"), (1, "cat"), (2, "dog")]),  # segments follow classes
    ],
)
def test_label_files(labels, items, string_int_label_map):
    files = maps(labels)
    assert read_pbtxt(files["label_map.pbtxt"], string_int_label_map) == items
    assert files["label_map.pbtxt"].startswith("# id = class index + 1") == labels.is_shifted
    assert files["labels.csv"] == "".join(f"{label},{name}\n" for label, name in items)


@pytest.mark.parametrize(
    ("labels", "is_shifted"),
    [
        (GAPPED, False),
        (EMPTY, False),
        (ZERO_BASED, True),
        (NEGATIVE, True),
        (WITH_BACKGROUND, False),
        (LabelMap((Category(0, "_background_"), Category(1, "cat"))), False),
        (LabelMap((Category(0, "Background"), Category(1, "cat"))), False),
        (LabelMap((Category(-1, "background"), Category(1, "cat"))), True),
        (LabelMap((Category(1, "cat"),), (Category(0, "road"),)), True),
        (LabelMap((Category(1, "cat"),), (Category(0, "background"),)), False),
    ],
)
def test_labels_with_ids_below_1(labels, is_shifted):
    assert labels.is_shifted == is_shifted
    ids = [category.id for category in labels.all]
    assert (sorted(labels.label_by_id().values()) == ids) == (not is_shifted)


ANY_IDS = st.dictionaries(
    st.integers(-2, 4), st.sampled_from(["background", "_background_", "cat"]) | NAMES, max_size=5
)


@given(names=ANY_IDS, segments=ANY_IDS)
def test_label_maps_agree_and_no_class_has_background_s_label(names, segments, string_int_label_map):
    names = {**names, **{id_: segments[id_] for id_ in names.keys() & segments.keys()}}
    labels = LabelMap(*(tuple(Category(id_, of[id_]) for id_ in sorted(of)) for of in (names, segments)))
    files = maps(labels)
    items = read_pbtxt(files["label_map.pbtxt"], string_int_label_map)
    assert all(label > 0 or name.strip("_ ").casefold() == "background" for label, name in items)
    assert len({label for label, _ in items}) == len(labels.all)
    assume(sys.version_info >= (3, 11) or not any("\0" in name for _, name in items))
    assert list(csv.reader(io.StringIO(files["labels.csv"], newline=""))) == [[str(id_), name] for id_, name in items]
    found = json.loads(files["label_map.json"])
    assert [(found["label_by_id"][str(category.id)], category.name) for category in labels.all] == items
    assert found["name_by_index"] == [category.name for category in labels.categories]
    assert found["id_by_index"] == sorted(names)
    assert {int(id_): index for id_, index in found["index_by_id"].items()} == labels.index_by_id()
    assert labels.index_by_id() == {id_: index for index, id_ in enumerate(sorted(names))}


def test_no_label_map_with_label_0():
    as_they_are = {category.id: category.id for category in ZERO_BASED.categories}
    files = label_files(ZERO_BASED, as_they_are)
    assert files["labels.csv"] == "0,face\n1,face\n5,hand\n"
    assert json.loads(files["label_map.json"])["label_by_id"] == {"0": 0, "1": 1, "5": 5}
    assert set(LABEL_FILES) - files.keys() == {"label_map.pbtxt"}
    assert set(LABEL_FILES) == maps(ZERO_BASED).keys()


@pytest.mark.parametrize(
    ("labels", "names", "keypoints"),
    [
        (GAPPED, (), 0),
        (ZERO_BASED, ("face",), 0),
        (EMPTY, (), 0),
        (BOTH, (), 2),
        (LabelMap((), BOTH.categories), (), 0),
    ],
)
def test_duplicate_names_and_keypoints(labels, names, keypoints):
    assert labels.duplicate_names() == names
    assert labels.keypoints == keypoints


# Segments and keypoints


def segments(*categories: Category) -> LabelMap:
    return LabelMap((), categories)


@pytest.mark.parametrize(
    ("labels", "values"),
    [
        (EMPTY, {}),
        (GAPPED, {}),
        (
            segments(Category(1, "cat", isthing=1), Category(92, "banner", isthing=0), Category(183, "other")),
            {1: 1, 92: 2, 183: 93},
        ),
        (segments(Category(92, "low"), Category(344, "high")), {92: 2, 344: 254}),
        (segments(Category(91, "too low"), Category(100, "sky")), {91: 2, 100: 3}),
        (segments(Category(100, "sky"), Category(345, "too high")), {100: 2, 345: 3}),
        (segments(Category(0, "road"), Category(7, "car", isthing=True), Category(9, "sky")), {0: 2, 7: 1, 9: 3}),
        (segments(Category(1, "cat", isthing=1), Category(2, "dog", isthing=1)), {1: 1, 2: 1}),
    ],
)
def test_values_of_semantic_masks(labels, values):
    assert labels.semantic_by_id() == values


STUFF_MAPS = st.dictionaries(
    st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(85, 350),
    st.sampled_from([0, 1, None, True, False]),
    max_size=20,
)


@given(STUFF_MAPS)
def test_things_share_a_semantic_value(things):
    labels = segments(*(Category(id_, "name", isthing=things[id_]) for id_ in sorted(things)))
    values = labels.semantic_by_id()
    stuff = [value for id_, value in values.items() if not things[id_]]
    assert list(values) == sorted(things)
    assert {value for id_, value in values.items() if things[id_]} <= {1}
    assert sorted(set(stuff)) == stuff
    assert all(2 <= value < 255 for value in stuff)


def test_all_categories_once():
    assert BOTH.all == (*BOTH.categories, BOTH.segments[1])
    assert GAPPED.all == GAPPED.categories
    assert segments(*BOTH.segments).all == BOTH.segments


def test_label_map_json():
    assert json.loads(maps(BOTH)["label_map.json"]) == {
        "index_by_id": {"1": 0, "17": 1, "90": 2},
        "label_by_id": {"1": 1, "17": 17, "90": 90, "92": 92},
        "id_by_index": [1, 17, 90],
        "name_by_index": ["cat", "dog", "tree"],
        "semantic_by_id": {"1": 1, "92": 2},
    }
    assert "semantic_by_id" not in json.loads(maps(GAPPED)["label_map.json"])


_COUNT = "labels are class indices from 0, so "


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["0", "1", "2"], ""),
        (["00", "01", "02"], ""),
        (["1", "2", "x"], ""),
        ([], ""),
        (["0", "1", "5"], "class '5' has label 2 (1 of 3 labels differ from their class). labels.csv lists both"),
        (["-1", "1"], "class '-1' has label 0 (1 of 2 labels differ from their class). labels.csv lists both"),
    ],
)
def test_numeric_class_names(names, told):
    labels = LabelMap(tuple(Category(index, name) for index, name in enumerate(names)))
    assert [text[: len(_COUNT + told)] for text in misread_numbers(labels)] == [_COUNT + told] * bool(told)
    assert all(("--classes" in text) == ("-1" not in names) for text in misread_numbers(labels))


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["cat", "Cat", "dog "], "the classes 'cat' and 'Cat' may be one"),
        (["dog", "dog ", "hot dog", "hot__Dog"], "the classes 'dog' and 'dog ' may be one"),
        (["\ufb01sh", "fish"], "the classes '\ufb01sh' and 'fish' may be one"),
        (["cat", "", " "], "2 of 3 classes have a blank name"),
        (["1", "1.0", "2"], "the classes '1' and '1.0' may be one"),
        (["-1", "1", "0", "10"], ""),
        (["1.0", "2.0", "nan"], "the class 'nan' among numbers may be a missing label"),
        (["cat", "cats", "_", "-", "cat"], ""),
    ],
)
def test_classes_whose_names_are_alike_are_named(names, told):
    labels = LabelMap(tuple(Category(index, name) for index, name in enumerate(names)))
    assert [text[: len(told)] for text in name_warnings(labels)] == [told] * bool(told)


CAT, DOG, EMU, SKY = (Category(id_, name) for id_, name in ((1, "cat"), (2, "dog"), (3, "emu"), (9, "sky")))


@pytest.mark.parametrize(
    ("longer", "shorter", "expected"),
    [
        (LabelMap((CAT, DOG)), LabelMap((CAT, DOG)), True),
        (LabelMap((CAT, DOG)), LabelMap(()), True),
        (LabelMap((CAT, DOG), (SKY,)), LabelMap((CAT,), ()), True),
        (LabelMap((CAT,)), LabelMap((CAT, DOG)), False),
        (LabelMap((DOG, CAT)), LabelMap((CAT,)), False),
        (LabelMap((DOG, Category(0, "ant"))), LabelMap((DOG,)), False),  # labels would be shifted
        (
            LabelMap((Category(0, "ant"), CAT), (SKY,)),
            LabelMap((Category(0, "ant"),), (SKY,)),
            False,
        ),  # that of the sky
    ],
)
def test_labels_of_a_data_set_that_has_grown(longer, shorter, expected):
    assert longer.begins_with(shorter) is expected
