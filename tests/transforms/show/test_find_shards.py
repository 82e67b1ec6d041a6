from pathlib import Path

import numpy as np
import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureKind
from recordmill.schemas.layouts import DETECTION as DETECTION_TABLE
from recordmill.transforms.records.parse_record import parse_example
from recordmill.transforms.show.find_shards import find_shards, recognise_features, values_by_source
from tests.gcs_stand_in import BUCKET
from tests.transforms.show.records import example, framed, image_bytes, label_map, write


def test_a_data_set_s_folder(tmp_path, copy_converted):
    copy_converted(tmp_path, "--num-shards", 3)
    shards = find_shards(str(tmp_path), "")
    assert shards.is_whole
    assert shards.manifest.layout == "detection"
    assert [shard.split for shard in shards.shards] == ["train"] * 3
    assert sum(shard.records for shard in shards.shards) == 22
    with pytest.raises(ConfigError, match="Its splits are train"):
        find_shards(str(tmp_path), "val")


def test_shard_is_known_by_manifest_beside_it(tmp_path, copy_converted):
    copy_converted(tmp_path, "--num-shards", 3)
    (shard,) = find_shards(str(tmp_path / "coco-train.tfrecord-00001-of-00003"), "").shards
    assert (shard.split, shard.records) == ("train", 7)
    shards = find_shards(f"{tmp_path}/coco-train*", "")
    assert (len(shards.shards), shards.manifest is None, shards.is_whole) == (3, False, False)


def test_files_of_others_beside_data_set_are_theirs(tmp_path, copy_converted):
    copy_converted(tmp_path)
    path = write(tmp_path / "mine.tfrecord", b"")
    shards = find_shards(path, "")
    assert (shards.manifest, shards.shards[0].records, shards.shards[0].split) == (None, None, "")


@pytest.mark.parametrize("ending", ["idx", "index"])
def test_indexes_of_others_are_no_shards(tmp_path, ending):
    paths = [write(tmp_path / f"{name}.tfrecord", b"") for name in "ab"]
    for path in paths:
        Path(f"{path}.{ending}").write_text("0 16\n")
    for named in (tmp_path, f"{tmp_path}/*"):
        assert [shard.path for shard in find_shards(str(named), "").shards] == paths
    assert [shard.path for shard in find_shards(f"{paths[0]}.{ending}", "").shards] == [f"{paths[0]}.{ending}"]


def test_a_folder_of_tfds(tmp_path):
    write(tmp_path / "faces-val.tfrecord-00000-of-00001", b"")
    write(tmp_path / "faces-train.tfrecord-00000-of-00001", b"")
    (tmp_path / "faces-label.labels.txt").write_text("cat\ndog\n")
    (tmp_path / "image.class.label.labels.txt").write_text("a\n")
    (tmp_path / "features.json").write_text("{}")
    shards = find_shards(str(tmp_path), "val")
    assert [shard.split for shard in shards.shards] == ["val"]
    assert shards.class_names == {"faces-label": ("cat", "dog"), "image-class-label": ("a",)}


def test_named_files_need_no_manifest(tmp_path):
    (tmp_path / "manifest.json").write_text('{"version": 2}')
    path = write(tmp_path / "x.tfrecord", b"")
    assert find_shards(path, "").manifest is None
    with pytest.raises(ConfigError, match="not a Recordmill manifest"):
        find_shards(str(tmp_path), "")


@pytest.mark.parametrize(
    ("path", "told"), [("gone", "no such file or folder"), ("*.none", "no file matches"), (".", "has no manifest")]
)
def test_not_found(path, told, tmp_path):
    with pytest.raises(ConfigError, match="~/gone: no such file or folder: only a shell expands ~"):
        find_shards("~/gone", "")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ConfigError, match=told):
        find_shards(str(tmp_path / path), "")


def test_a_bucket(gcs):
    gcs.put("in/a-train.tfrecord-00000-of-00001", framed(b"abc"))
    gcs.put("in/notes.txt", b"")
    for path in ("in", "in/a-*", "in/a-train.tfrecord-00000-of-00001"):
        (shard,) = find_shards(f"gs://{BUCKET}/{path}", "").shards
        assert shard.path == f"gs://{BUCKET}/in/a-train.tfrecord-00000-of-00001"


IMAGE = image_bytes()
DETECTION = {"image__encoded": [IMAGE], "image__source_id": [b"7"], "image__object__class__text": [b"cat"]} | {
    f"image__object__bbox__{edge}": [0.25] for edge in ("xmin", "ymin", "xmax", "ymax")
}


def known(**features) -> tuple[str, dict]:
    values = parse_example(example(**features))
    table = recognise_features(values)
    return table.layout, values_by_source(values, table)


def test_the_object_detection_api_s():
    layout, values = known(**DETECTION, image__object__difficult=[0])
    assert layout == "detection"
    assert (values["image.encoded"], values["image.id"]) == (IMAGE, b"7")
    assert values["objects.xmin"].tolist() == [0.25]
    assert values["objects.category_name"] == [b"cat"]


def test_imagenet_s():
    layout, values = known(
        image__encoded=[IMAGE], image__class__label=[3], image__class__text=[b"cat"], image__format=[b"jpeg"]
    )
    assert (layout, values["image.class_name"], values["image.class_index"].tolist()) == ("classification", b"cat", [3])


def test_tfds_coco():
    more = {"image__filename": [b"a.jpg"], "image__id": [7], "objects__bbox": [0.1, 0.2, 0.3, 0.4]}
    layout, values = known(image=[IMAGE], objects__label=[5], **more)
    assert layout == "tfds"
    assert values["objects.bbox_yxyx"].tolist() == np.float32([0.1, 0.2, 0.3, 0.4]).tolist()
    assert (values["objects.class_index"].tolist(), values["image.number"].tolist()) == ([5], [7])


def test_the_keras_recipe_s():
    layout, values = known(
        image=[IMAGE], image_id=[7], bbox=[1.0, 2.0, 3.0, 4.0], area=[9.0], category_id=[5], id=[1], path=[b"a.jpg"]
    )
    assert (layout, values["objects.bbox_xywh_px"].tolist()) == ("keras", [1, 2, 3, 4])
    assert "objects.bbox_yxyx" not in values


def test_tfds_sets_with_label_and_file_name():
    layout, values = known(image=[IMAGE], image__filename=[b"a.jpg"], label=[1])
    assert layout == "unknown"
    assert (values["image.encoded"], values["image.file_name"]) == (IMAGE, b"a.jpg")
    assert values["image.class_index"].tolist() == [1]


def test_boxes_of_tfds_under_any_name():
    _, values = known(image=[IMAGE], faces__bbox=[0.1, 0.2, 0.3, 0.4] * 2, faces__label=[0, 1], label=[1])
    assert values["objects.bbox_yxyx"].size == 8
    assert values["objects.class_index"].tolist() == [0, 1]
    assert "image.class_index" not in values  # whose colours would be those of the objects' classes


def test_image_under_any_name_but_no_mask():
    _, values = known(photo=[IMAGE], the_mask=[label_map([[0, 1]])], note=[b"text"])
    assert values == {"image.encoded": IMAGE}
    assert known(the_mask=[label_map([[0, 1]])])[1] == {}


@pytest.mark.parametrize("features", [{}, {"a": [1]}, {"a": [b"\xff\x00"], "b": [0.5, 2.0]}])
def test_foreign_file_is_unknown(features):
    assert known(**features) == ("unknown", {})


def test_feature_of_another_kind_is_none_of_layout_s():
    layout, values = known(**(DETECTION | {"image__source_id": [7], "image__object__class__text": [1]}))
    assert layout == "detection"
    assert values.keys() & {"image.id", "objects.category_name"} == set()


def test_single_value_several_is_left_out():
    features = {"image/encoded": (FeatureKind.BYTES, [b"a", b"b"]), "image/source_id": (FeatureKind.BYTES, [b"7"])}
    assert values_by_source(features, DETECTION_TABLE) == {"image.id": b"7"}
