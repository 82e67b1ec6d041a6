"""Model Garden's train.py trains and evaluates by what `recordmill config` fills, on small pictures, two steps long."""

import json
import math
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import read_examples
from tests.consumers.coco_truth import Truth, coco_mini, needs_shared_data
from tests.consumers.test_model_garden import PYTHON

SCRIPT = Path(__file__).with_name("evaluate_with_model_garden.py")
STEPS = 2
SIDE = 128
"""Of pictures that a model gets, of which the smallest feature map has one pixel."""
EXPERIMENTS = {
    "retinanet": "retinanet_resnetfpn_coco",
    "maskrcnn": "maskrcnn_resnetfpn_coco",
    "classification": "resnet_imagenet",
    "segmentation": "seg_resnetfpn_pascal",
}


@pytest.fixture
def detection(sample, tmp_path, recordmill) -> Path:
    """The drawn data set with all that these consumers read, in two splits."""
    out, folder = tmp_path / "detection", Path(sample.images).parent
    flags = ["--images", sample.images, "--instances", sample.instances, "--max-rejects", 0.2, "--masks", "png"]
    flags += ["--panoptic", folder / "annotations" / "panoptic.json", "--panoptic-masks", folder / "panoptic"]
    outcome = recordmill("coco", *flags, "--split", "train=0.7,val=0.3", "--num-shards", 2, "--output", out)
    assert outcome.code == 0, outcome
    return out


@pytest.fixture
def classes(sample, tmp_path, recordmill) -> Path:
    """PNGs; that JPEGs are read, by a decoder of their own, is tested in test_model_garden_classification.py."""
    out = tmp_path / "classes"
    flags = ["--images", Path(sample.images).parent / "classes", "--format", "png", "--output", out]
    outcome = recordmill("folder", *flags, "--split", "train=0.7,val=0.3")
    assert outcome.code == 0, outcome
    return out


def config(consumer: str, out: Path, recordmill, *more: object) -> str:
    outcome = recordmill("config", f"model-garden-{consumer}", out, *more)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out


def train(consumer: str, out: Path, folder: Path, recordmill) -> dict[str, float]:
    """What the evaluation after two steps measures."""
    (folder / "config.yaml").write_text(config(consumer, out, recordmill, "--batch-size", 2))
    side = {"model": {"input_size": [SIDE, SIDE, 3]}}
    if consumer == "segmentation":
        side |= {data: {"output_size": [SIDE, SIDE]} for data in ("train_data", "validation_data")}
    steps = ("train_steps", "steps_per_loop", "summary_interval", "checkpoint_interval", "validation_interval")
    smaller = {"task": side, "trainer": dict.fromkeys(steps, STEPS)}
    (folder / "smaller.yaml").write_text(yaml.safe_dump(smaller))
    command = [PYTHON, "-m", "official.vision.train", f"--experiment={EXPERIMENTS[consumer]}", "--mode=train_and_eval"]
    files = [f"--config_file={folder / name}" for name in ("config.yaml", "smaller.yaml")]
    run = subprocess.run(
        [*map(str, command), *files, f"--model_dir={folder / 'model'}"],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-5000:]
    assert (folder / "model" / f"ckpt-{STEPS}.index").exists()
    said = (run.stdout + run.stderr).rpartition("eval | step:")[2]
    return {name: float(value) for name, value in re.findall(r"'(\w+)': np\.float32\(([^)]+)\)", said)}


@pytest.mark.parametrize(
    ("consumer", "measured"), [("retinanet", "AP"), ("maskrcnn", "mask_AP"), ("segmentation", "mean_iou")]
)
def test_a_detector_trains_and_is_evaluated(consumer, measured, detection, tmp_path, recordmill):
    found = train(consumer, detection, tmp_path, recordmill)
    assert 0 <= found[measured] <= 1
    assert math.isfinite(found["validation_loss"]) or consumer == "maskrcnn"  # whose evaluation has none


def test_a_classifier_trains_and_is_evaluated(classes, tmp_path, recordmill):
    found = train("classification", classes, tmp_path, recordmill)
    assert found["accuracy"] in [hit / len(read_examples(classes, "val")) for hit in range(9)]
    assert math.isfinite(found["validation_loss"])


@pytest.mark.parametrize("data", ["sample", pytest.param("coco_mini", marks=needs_shared_data)])
@pytest.mark.parametrize("consumer", ["retinanet", "maskrcnn"])
def test_the_jsons_own_boxes_are_right_on_every_image(consumer, data, sample, tmp_path, recordmill):
    truth = Truth(sample.images, sample.instances) if data == "sample" else coco_mini("val")
    out = tmp_path / "out"
    outcome = recordmill("coco", *truth.flags, "--masks", "png", "--split", "train=0.6,val=0.4", "--output", out)
    assert outcome.code == 0, outcome
    boxes, expected = {}, {}
    for id_ in truth.image_ids:
        crowd = truth.values(id_, "iscrowd")
        rows = zip(
            truth.boxes_xyxy_px(id_)[:, [1, 0, 3, 2]].tolist(), truth.values(id_, "category_id"), crowd, strict=True
        )
        boxes[id_] = [[*box, label] for box, label, is_crowd in rows if not is_crowd]
        expected[str(id_)] = 1.0 if boxes[id_] else -1.0
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    (tmp_path / "config.yaml").write_text(config(consumer, out, recordmill, "--batch-size", 2))
    files = [tmp_path / name for name in ("config.yaml", "boxes.json", "found.json")]
    command = [PYTHON, SCRIPT, EXPERIMENTS[consumer], *files]
    run = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-5000:]
    assert json.loads(files[-1].read_text()) == pytest.approx(expected)
