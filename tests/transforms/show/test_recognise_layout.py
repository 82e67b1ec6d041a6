import numpy as np
import pytest

from recordmill.schemas.features import FeatureKind
from recordmill.schemas.layouts import DETECTION as DETECTION_TABLE
from recordmill.transforms.records.parse_record import parse_example
from recordmill.transforms.show.find_shards import recognise, values_by_source
from tests.transforms.show.records import example, label_map, picture

PICTURE = picture()
DETECTION = {"image__encoded": [PICTURE], "image__source_id": [b"7"], "image__object__class__text": [b"cat"]} | {
    f"image__object__bbox__{edge}": [0.25] for edge in ("xmin", "ymin", "xmax", "ymax")
}


def known(**features) -> tuple[str, dict]:
    found = parse_example(example(**features))
    table = recognise(found)
    return table.layout, values_by_source(found, table)


def test_the_object_detection_api_s():
    layout, values = known(**DETECTION, image__object__difficult=[0])
    assert layout == "detection"
    assert (values["image.encoded"], values["image.id"]) == (PICTURE, b"7")
    assert values["objects.xmin"].tolist() == [0.25]
    assert values["objects.category_name"] == [b"cat"]


def test_imagenet_s():
    layout, values = known(
        image__encoded=[PICTURE], image__class__label=[3], image__class__text=[b"cat"], image__format=[b"jpeg"]
    )
    assert (layout, values["image.class_name"], values["image.class_index"].tolist()) == ("classification", b"cat", [3])


def test_tfds_coco():
    layout, values = known(
        image=[PICTURE],
        image__filename=[b"a.jpg"],
        image__id=[7],
        objects__bbox=[0.1, 0.2, 0.3, 0.4],
        objects__label=[5],
    )
    assert layout == "tfds"
    assert values["objects.bbox_yxyx"].tolist() == np.float32([0.1, 0.2, 0.3, 0.4]).tolist()
    assert (values["objects.class_index"].tolist(), values["image.number"].tolist()) == ([5], [7])


def test_the_keras_recipe_s():
    layout, values = known(
        image=[PICTURE], image_id=[7], bbox=[1.0, 2.0, 3.0, 4.0], area=[9.0], category_id=[5], id=[1], path=[b"a.jpg"]
    )
    assert (layout, values["objects.bbox_xywh_px"].tolist()) == ("keras", [1, 2, 3, 4])
    assert "objects.bbox_yxyx" not in values


def test_tfds_sets_with_label_and_file_name():
    layout, values = known(image=[PICTURE], image__filename=[b"a.jpg"], label=[1])
    assert layout == "unknown"
    assert (values["image.encoded"], values["image.file_name"]) == (PICTURE, b"a.jpg")
    assert values["image.class_index"].tolist() == [1]


def test_boxes_of_tfds_under_any_name():
    _, values = known(image=[PICTURE], faces__bbox=[0.1, 0.2, 0.3, 0.4] * 2, faces__label=[0, 1], label=[1])
    assert values["objects.bbox_yxyx"].size == 8
    assert values["objects.class_index"].tolist() == [0, 1]
    assert "image.class_index" not in values  # whose colours would be those of the objects' classes


def test_picture_under_any_name_but_no_mask():
    _, values = known(photo=[PICTURE], the_mask=[label_map([[0, 1]])], note=[b"text"])
    assert values == {"image.encoded": PICTURE}
    assert known(the_mask=[label_map([[0, 1]])])[1] == {}


@pytest.mark.parametrize("features", [{}, {"a": [1]}, {"a": [b"\xff\x00"], "b": [0.5, 2.0]}])
def test_what_is_nobody_s_is_unknown(features):
    assert known(**features) == ("unknown", {})


def test_feature_of_another_kind_is_none_of_layout_s():
    layout, values = known(**(DETECTION | {"image__source_id": [7], "image__object__class__text": [1]}))
    assert layout == "detection"
    assert values.keys() & {"image.id", "objects.category_name"} == set()


def test_single_value_several_is_left_out():
    found = {"image/encoded": (FeatureKind.BYTES, [b"a", b"b"]), "image/source_id": (FeatureKind.BYTES, [b"7"])}
    assert values_by_source(found, DETECTION_TABLE) == {"image.id": b"7"}
