"""`recordmill config` as it is typed."""

import yaml


def test_a_configuration_of_the_splits_that_are_named(copy_converted, tmp_path, recordmill, monkeypatch):
    copy_converted(tmp_path / "out", "--split", "train=0.5,val=0.5")
    monkeypatch.chdir(tmp_path)  # the configuration is right in other folders, too
    outcome = recordmill(
        "config", "model-garden-retinanet", "out/", "--train", "val", "--validation", "train", "--batch-size", 2
    )
    assert (outcome.code, outcome.err) == (0, "")
    task = yaml.safe_load(outcome.out)["task"]
    assert task["train_data"]["input_path"] == f"{tmp_path}/out/coco-val.tfrecord-*-of-00001"
    assert task["validation_data"]["input_path"] == f"{tmp_path}/out/coco-train.tfrecord-*-of-00001"


def test_a_name_that_is_not_known_is_refused_with_those_that_are(tmp_path, recordmill):
    outcome = recordmill("config", "model-garden-yolo", tmp_path)
    assert outcome.code == 2
    assert "model-garden-retinanet" in outcome.err
