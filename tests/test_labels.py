"""Label maps, each read back by a reader that is not ours."""

import csv
import io
import json

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from hypothesis import given
from hypothesis import strategies as st

from schemas.coco import Category
from schemas.labels import LabelMap, label_map_json, label_map_pbtxt, labels_csv

GAPPED = LabelMap((Category(1, "cat"), Category(3, "dog"), Category(90, "tooth brush")))
ZERO_BASED = LabelMap((Category(0, "face"), Category(1, "face"), Category(5, "hand")))
WITH_BACKGROUND = LabelMap((Category(0, "background"), Category(2, "cat")))
EMPTY = LabelMap(())

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
LABEL_MAPS = st.dictionaries(st.integers(1, (1 << 31) - 1), NAMES, max_size=5).map(
    lambda names: LabelMap(tuple(Category(id_, names[id_]) for id_ in sorted(names)))
)


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


def read_pbtxt(text: str, message) -> list[tuple[int, str, str]]:
    return [(item.id, item.name, item.display_name) for item in text_format.Parse(text, message()).item]


@pytest.mark.parametrize(
    ("labels", "items"),
    [
        (GAPPED, [(1, "cat"), (3, "dog"), (90, "tooth brush")]),
        (ZERO_BASED, [(1, "face"), (2, "face"), (3, "hand")]),
        (WITH_BACKGROUND, [(0, "background"), (2, "cat")]),
        (EMPTY, []),
    ],
)
def test_the_object_detection_api_gets_ids_from_1(labels, items, string_int_label_map):
    assert read_pbtxt(label_map_pbtxt(labels), string_int_label_map) == [(id_, name, name) for id_, name in items]


def test_shifted_ids_are_said_to_be_shifted():
    assert label_map_pbtxt(ZERO_BASED).startswith("# id = image/object/class/index + 1")
    assert not label_map_pbtxt(GAPPED).startswith("#")


@given(labels=LABEL_MAPS)
def test_any_name_survives_the_text_format(labels, string_int_label_map):
    items = [(category.id, category.name, category.name) for category in labels.categories]
    assert read_pbtxt(label_map_pbtxt(labels), string_int_label_map) == items


@given(labels=LABEL_MAPS)
def test_any_name_survives_the_csv(labels):
    rows = list(csv.reader(io.StringIO(labels_csv(labels), newline="")))
    assert rows == [[str(category.id), category.name] for category in labels.categories]


def test_the_csv_is_that_of_model_garden():
    assert labels_csv(GAPPED) == "1,cat\n3,dog\n90,tooth brush\n"


@given(labels=LABEL_MAPS)
def test_any_name_survives_the_json(labels):
    found = json.loads(label_map_json(labels))
    assert found["name_by_index"] == [category.name for category in labels.categories]
    assert found["id_by_index"] == [category.id for category in labels.categories]
    assert {int(id_): index for id_, index in found["index_by_id"].items()} == labels.index_by_id()


def test_index_and_name_by_id():
    assert ZERO_BASED.index_by_id() == {0: 0, 1: 1, 5: 2}
    assert ZERO_BASED.name_by_id() == {0: "face", 1: "face", 5: "hand"}


@pytest.mark.parametrize(("labels", "names"), [(GAPPED, ()), (ZERO_BASED, ("face",)), (EMPTY, ())])
def test_duplicate_names(labels, names):
    assert labels.duplicate_names() == names
