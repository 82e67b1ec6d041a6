import json

from recordmill.transforms.containers.croissant import croissant
from recordmill.transforms.containers.dataset_card import value
from tests.transforms.containers.test_dataset_card import FEATURES, make_manifest


def test_croissant_has_files_with_digests_and_fields():
    metadata = json.loads(croissant(make_manifest("train"), FEATURES, "application/x-parquet"))
    assert metadata["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    file, _, file_set = metadata["distribution"]
    assert (file["contentUrl"], file["sha256"]) == ("coco-train-00000-of-00002.parquet", "0" * 64)
    assert file_set["includes"] == "coco-train-?????-of-?????.parquet"
    (records,) = metadata["recordSet"]
    image, _, _, objects = records["field"]
    assert image["source"]["transform"] == [{"jsonPath": "bytes"}]
    assert [field["@id"] for field in objects["subField"]] == ["train/objects/bbox", "train/objects/x_y__"]
    assert objects["subField"][0]["arrayShape"] == "-1,4"


def test_ids_of_croissant_are_unique():
    features = {name: value("int64") for name in ("a b", "a_b", "a.b")}
    metadata = json.loads(croissant(make_manifest("train"), features, "application/x-parquet"))
    ids = [field["@id"] for field in metadata["recordSet"][0]["field"]]
    assert ids == ["train/a_b", "train/a_b_0", "train/a_b_1"]
