"""What was probably meant by a flag that a verb does not know: a misspelt one, or one of another tool's."""

import difflib
from collections.abc import Collection
from typing import NamedTuple

_BEAMS = ("--project", "--region", "--runner")
"""Flags of Beam's that have no underscore to know them by."""

# By what is meant. Those of create_coco_tf_record.py (Model Garden, Object Detection API), TFDS, pycocotools, Roboflow,
# Ultralytics and torchvision are among them.
_ELSEWHERE = {
    "--images": "image-dir images-dir img-dir image-folder image-root image-path img image input input-dir i "
    "train-image-dir val-image-dir test-image-dir source data-dir data directory folder root",
    "--instances": "annotations annotation annotations-file annotation-file ann ann-file annfile anns json coco-json "
    "instances-json instances-file object-annotations-file train-annotations-file val-annotations-file bbox boxes-file",
    "--labels": "annotations annotation annotations-file annotation-file csv labels-csv label-file labels-file",
    "--captions": "caption-annotations-file captions-file caption",
    "--panoptic": "panoptic-annotations-file panoptic-file include-panoptic-masks",
    "--panoptic-masks": "panoptic-masks-dir panoptic-dir panoptic-root",
    "--keypoints": "keypoint-annotations-file keypoints-file person-keypoints",
    "--image-info": "image-info-file test-annotations-file",
    "--output": "out o output-dir output-path output-folder output-file output-file-prefix output-prefix dest target "
    "save-dir outdir",
    "--name": "prefix dataset-name dataset",
    "--split train": "train training subset",
    "--split val": "val valid validation",
    "--split test": "test testing",
    "--group-from": "group group-by group-regex group-pattern",
    "--split train=0.8,val=0.2": "split-ratio split-ratios splits ratio test-size val-size val-split validation-split",
    "--num-shards": "shards n-shards number-of-shards num-output-shards",
    "--shard-size": "max-shard-size shard-bytes",
    "--examples-per-shard": "records-per-shard images-per-shard samples-per-shard",
    "--gzip": "gz compress compression compressed",
    "--masks png": "include-masks mask segmentation segmentations",
    "--categories": "classes class category class-names labels",
    "--classes": "categories class class-names label-map",
    "--max-side": "max-size resize size image-size img-size imgsz max-dim",
    "--jpeg-quality": "quality",
    "--format jpeg": "to-jpeg jpeg jpg encoding image-format",
    "--seed": "random-seed shuffle shuffle-seed",
    "--overwrite": "force f replace",
    "--dry-run": "dryrun n plan",
    "--check none": "no-check skip-check",
    "--no-crowd": "ignore-crowd skip-crowd exclude-crowd",
    "--max-rejects": "max-errors skip-errors ignore-errors",
    "--workers": "jobs j num-workers threads num-threads processes num-processes nproc max-workers",
    "--progress none": "quiet q silent no-progress",
    "--save": "out o output output-file output-dir save-dir draw export",
    "--find category=NAME": "filter query where search category categories class classes label",
    "--count": "n num number limit head max",
    "--id": "image-id name file-name",
    "--debug": "verbose v",
}

_CLOSE = 0.75
"""How alike two flags are, of 1, before one is taken for the other; difflib's 0.6 takes --frobnicate for --writer."""


class Hint(NamedTuple):
    """What is said of a flag that is not known.

    Attributes:
        meant: the flag that was probably meant, if it is as certain as that its value can be checked.
    """

    text: str
    meant: str = ""


def hint(flag: str, known: Collection[str]) -> Hint:
    """What to say of a flag that a verb does not know.

    Args:
        known: flags of the verb.
    """
    plain = flag.lstrip("-").replace("_", "-").lower()
    if f"--{plain}" in known:
        return Hint(f"unknown flag {flag}; did you mean --{plain}?", f"--{plain}")
    also = [meant for meant, names in _ELSEWHERE.items() if plain in names.split() and meant.split()[0] in known]
    if also:
        return Hint(f"unknown flag {flag}; did you mean {also[0]}?", also[0] if also[0] in known else "")
    if flag.startswith("--") and ("_" in flag or flag in _BEAMS):
        return Hint(f"unknown flag {flag}; Beam's flags go after a lone --")
    if near := difflib.get_close_matches(f"--{plain}", known, 1, _CLOSE):
        return Hint(f"unknown flag {flag}; did you mean {near[0]}?", near[0])
    return Hint(f"unknown flag {flag}")
