"""Model Garden trains and evaluates by what docs/consumers/model_garden.py writes: small images, two steps."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from recordmill.launch.cli import main
from tests.conftest import manifest_of, read_examples
from tests.consumers.test_model_garden import PYTHON

CONFIGURE = Path(__file__).parents[2] / "docs" / "consumers" / "model_garden.py"
STEPS = 2
SIDE = 128
"""Side of the model's input, whose smallest feature map has one pixel."""
EXPERIMENTS = {
    "retinanet": "retinanet_resnetfpn_coco",
    "maskrcnn": "maskrcnn_resnetfpn_coco",
    "classification": "resnet_imagenet",
    "segmentation": "seg_resnetfpn_pascal",
}

# Smaller models of the same kinds, whose steps no graph is made of: what they read, and what is measured, is tested.
# The published ones take minutes, nearly all of them for graphs of two steps.
SMALL = {"backbone": {"resnet": {"model_id": 10}}}
FEW_ROIS = {
    "roi_generator": {"num_proposals": 20, "test_num_proposals": 20},
    "roi_sampler": {"num_sampled_rois": 16},
    "mask_sampler": {"num_sampled_masks": 8},
}
EAGER = {f"{what}_tf_{how}": False for what in ("train", "eval") for how in ("function", "while_loop")}


@pytest.fixture
def detection(sample, tmp_path, copy_converted) -> Path:
    """The drawn data set with all that these consumers read, in two splits."""
    flags = ["--masks", "png", "--panoptic", sample.panoptic, "--panoptic-masks", sample.panoptic_masks]
    copy_converted(tmp_path / "detection", *flags, "--split", "train=0.7,val=0.3", "--num-shards", 2)
    return tmp_path / "detection"


@pytest.fixture(scope="module")
def classes(sample, tmp_path_factory) -> Path:
    """PNGs; that JPEGs are read, by a decoder of their own, is tested in test_model_garden_classification.py."""
    out = tmp_path_factory.mktemp("classes") / "out"
    flags = ["--format", "folder", "--image-format", "png", "--output", str(out)]
    assert main(["convert", sample.classes, *flags, "--split", "train=0.7,val=0.3"]) == 0
    return out


def config(consumer: str, out: Path) -> str:
    command = [sys.executable, CONFIGURE, consumer, out, "--batch-size", "2"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("consumer", EXPERIMENTS)
def test_configuration_follows_from_data_set(consumer, request):
    out = request.getfixturevalue("classes" if consumer == "classification" else "detection")
    found, manifest = yaml.safe_load(config(consumer, out)), manifest_of(out)
    task, trainer = found["task"], found["trainer"]
    examples = {name: sum(shard["examples"] for shard in split["shards"]) for name, split in manifest["splits"].items()}
    for split, data in (("train", task["train_data"]), ("val", task["validation_data"])):
        matched = {path.name for path in out.parent.glob(str(Path(data["input_path"]).relative_to(out.parent)))}
        assert matched == {shard["file"] for shard in manifest["splits"][split]["shards"]}
        assert data.get("decode_jpeg_only", False) is False
        assert data.get("parser", {}).get("max_num_instances", 100) == 100
    of_segments = 1 + max(json.loads((out / "label_map.json").read_text()).get("semantic_by_id", {"": 0}).values())
    classes = of_segments if consumer == "segmentation" else manifest["num_classes"]
    assert task["model"]["num_classes"] == classes
    assert trainer["steps_per_loop"] == examples["train"] // 2
    assert trainer["validation_steps"] == math.ceil(examples["val"] / 2)
    assert trainer["train_steps"] % trainer["steps_per_loop"] == 0


def test_files_of_data_set_that_has_grown(sample, tmp_path, recordmill):
    """A pattern of the first shard's name would match the shards of the first run only."""
    data, out = tmp_path / "data", tmp_path / "out"
    flags = ["convert", data, "--output", out, "--split", "train=0.7,val=0.3"]
    shutil.copytree(sample.classes, data)
    (data / "star").rename(tmp_path / "star")
    assert recordmill(*flags).code == 0
    (tmp_path / "star").rename(data / "star")
    assert recordmill(*flags, "--add").code == 0
    files = [str(out / shard["file"]) for shard in manifest_of(out)["splits"]["train"]["shards"]]
    assert len(files) == 2
    assert yaml.safe_load(config("classification", out))["task"]["train_data"]["input_path"].split(",") == files


def test_data_set_without_masks_is_refused(sample, tmp_path, recordmill):
    flags = ["--images", sample.images, "--instances", sample.instances, "--max-rejects", 0.2]
    assert recordmill("convert", *flags, "--split", "train=0.7,val=0.3", "--output", tmp_path / "out").code == 0
    with pytest.raises(subprocess.CalledProcessError) as refused:
        config("maskrcnn", tmp_path / "out")
    assert "mask_png" in refused.value.stderr


def train(consumer: str, out: Path, folder: Path) -> dict[str, float]:
    """Metrics of the evaluation after two steps."""
    (folder / "config.yaml").write_text(config(consumer, out))
    model = {"input_size": [SIDE, SIDE, 3]} | SMALL | (FEW_ROIS if consumer == "maskrcnn" else {})
    side = {"model": model}
    if consumer == "segmentation":
        side |= {data: {"output_size": [SIDE, SIDE]} for data in ("train_data", "validation_data")}
    steps = ("train_steps", "steps_per_loop", "summary_interval", "checkpoint_interval", "validation_interval")
    smaller = {"task": side, "trainer": dict.fromkeys(steps, STEPS) | EAGER}
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
def test_detector_trains_and_is_evaluated(consumer, measured, detection, tmp_path):
    found = train(consumer, detection, tmp_path)
    assert 0 <= found[measured] <= 1
    assert math.isfinite(found["validation_loss"]) or consumer == "maskrcnn"  # whose evaluation has none


def test_classifier_trains_and_is_evaluated(classes, tmp_path):
    found = train("classification", classes, tmp_path)
    assert found["accuracy"] in [hit / len(read_examples(classes, "val")) for hit in range(9)]
    assert math.isfinite(found["validation_loss"])
