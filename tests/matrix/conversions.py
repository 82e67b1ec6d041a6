"""Conversions whose bytes no version changes.

`python -m tests.matrix.conversions FOLDER` writes their inputs to the folder, and their outputs below its out/.
"""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam

from recordmill.beam import Sample, SampleObject, WriteDataset
from recordmill.launch.cli import main
from tests.matrix.inputs import image, write_inputs
from tests.tiny_models import saved, tiny

COCO = "convert --images coco/images --instances coco/instances.json"
CONVERSIONS = {  # name: command, and 32 digits of the SHA-256 of shards, indexes and label files
    "coco": (f"{COCO} --split train=0.7,val=0.3 --num-shards 2", "76bd1c3a8c98745d323b8cc615fda3e3"),
    "coco masks": (f"{COCO} --masks both --gzip", "ac2a28e873c821bb6fb29a08d9380e60"),
    "coco keypoints": (
        f"{COCO} --keypoints coco/points.json --no-crowd --num-shards 3",
        "e2b480f8a76ecbdc943bfecdce7a6c69",
    ),
    "coco panoptic": (
        "convert --images coco/images --panoptic coco/panoptic.json --panoptic-masks coco/segments",
        "672ee5ba28fdfbd0ba9cb95803b9bf08",
    ),
    "coco captions": (
        "convert --images coco/images --captions coco/captions.json --caption-text counts --split train=0.5,val=0.5",
        "ab5caf988599b22e68e75109f3ad8cda",
    ),
    "coco keras": (f"{COCO} --layout keras --examples-per-shard 20", "5d0924936565b64f8101a47f3d0d7f9b"),
    "yolo": ("convert yolo --format yolo --task segment --masks rle", "b20ac666951ff46194faa032f9e424c1"),
    "voc": ("convert voc --format voc --masks rle", "866d95540d2fa9fe6fbd0501e9b01881"),
    "cvat": ("convert cvat --format cvat --masks rle", "c634087516f8a1f0813a6ad7086d4926"),
    "imagefolder": (
        "convert imagefolder --format imagefolder --class-names dög,cat",
        "4c504539d9baa1bdfe5b340e9ea3480d",
    ),
    "labelme": (
        "convert labelme --format labelme --masks rle --split train=0.5,val=0.5",
        "bb8e7ebaec8c29cbb4e38323646e5261",
    ),
    "via": ("convert via --format via --masks rle --split train=0.5,val=0.5", "1b61eac5ba87a6b0e94796434136ce9f"),
    "labelstudio": ("convert labelstudio --format labelstudio --masks rle", "bb5b1cf41b12c366202c634ff1706f82"),
    "createml": ("convert createml --format createml --layout tfds", "9b238b44ecfee219665dfdc7718b4e9a"),
    "tfcsv": ("convert tfcsv --format tfcsv --label-as text", "ed304f4d3d9cef5c944436b0867cb92e"),
    "openimages": (
        "convert openimages --format openimages --images openimages/images",
        "59db12883ee3366cc041a2abf4239148",
    ),
    "vertex": (
        "convert vertex --format vertex --images vertex/images --boxes drop",
        "2f8dec15195140ebf097051695a2e8c0",
    ),
    "ndjson": ("convert ndjson --format ndjson --masks rle", "3c5afdb7b91340c043a49d058e168876"),
    "tfrecord": ("convert tfrecord --format tfrecord", "8bd18c76a948135fb92506f4ef2aece4"),
    "tfrecord classes": (
        "convert tfrecord --format tfrecord --layout classification --num-shards 2",
        "26391a1d0db590d0f45c08c01d823040",
    ),
    "folder split": (
        "convert classes/images --format folder --split train=0.5,val=0.25,test=0.25 --stratify --seed 3"
        " --num-shards 2",
        "978a3609512913513168ff47f4ca197d",
    ),
    "folder to JPEG": (
        "convert classes/images --format folder --image-format jpeg --max-side 24 --num-shards 2",
        "27e68a1f3da5cad4ac9fe081da7370a9",
    ),
    "folder labels": ("convert classes/images --labels classes/labels.csv", "07e957502be5ea0481aa9db626decb7c"),
    "table CSV": (
        "convert tables/rows.csv --format table --label class --split train=0.6,val=0.4 --num-shards 2",
        "dca16a267db456b051ee2a84fe3fc0e3",
    ),
    "table JSON Lines": (
        "convert tables/rows.jsonl --format table --key id --text-column text --text tfidf --gzip",
        "006fdf153905dbbe90c4692217bdd063",
    ),
    "table Parquet": (
        "convert tables/rows.parquet --format table --image-column image --label kind --split a=0.5,b=0.5"
        " --split-by rank",
        "8eb5702d0d1e2ea7e05b77307fa9cc81",
    ),
    "embed": (
        "convert classes/images --format folder --model tiny.keras --batch 4 --split train=0.7,val=0.3",
        "fcd2f00c65253a68127cd12b5352e915",
    ),
    "Beam": ("", "e893a65cdcf35e53d39c3827a6145e7a"),
}
VARYING = {"folder to JPEG": {"image/encoded", "image/key/sha256"}, "embed": {"feature"}}
"""Keys whose values depend on Pillow, or on the processor."""


def write_data(folder: Path) -> None:
    """Write the inputs of all conversions."""
    write_inputs(folder)
    saved(tiny(), folder / "tiny.keras")


def convert(name: str, output: Path, run: Callable[[list[str]], int] = main) -> None:
    """Run a conversion in the folder of the inputs.

    Args:
        run: Runs a command and returns its exit code.
    """
    command, _ = CONVERSIONS[name]
    if command:
        assert run([*command.split(), "--max-rejects", "0.9", "--output", str(output), "--progress", "none"]) == 0
    else:
        write_samples(output)


def write_samples(output: Path) -> None:
    """Run a pipeline of Samples."""
    polygon = json.dumps([[10, 5, 20, 5, 20, 15, 10, 15]])
    samples = [Sample("none.jpg")]
    for number in range(12):
        box = (number, 1.5, 9.25, 8)
        objects = (
            SampleObject("cat", box, segmentation=polygon, area_px2=number / 7, is_crowd=number % 3 == 0),
            SampleObject(
                "dög", (0.1, 0.2, 0.3, 0.4), "fraction", keypoints=(0.2, 0.3, 2, 0, 0, 0), fields={"difficult": True}
            ),
        )
        more = {
            "captions": (f"nr. {number}",),
            "tags": ("day", "night")[: number % 3],
            "objects": objects[: number % 3],
        }
        samples.append(Sample(f"ö/{number}", data=image(number), split=("train", "val")[number % 4 // 3], **more))
    parts = {"masks": "rle", "keypoints": True, "captions": True}
    shares = {"train": 0.7, "val": 0.3}
    with beam.Pipeline() as p:
        p | beam.Create(samples) | WriteDataset(output, **parts, split=shares, num_shards=2, max_rejects=0.5)


def files_of(output: Path) -> set[Path]:
    """Return shards, indexes and label files."""
    return {path for pattern in ("*.tfrec*", ".index/*", "*label*") for path in output.glob(pattern)}


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    write_data(Path())
    for name in CONVERSIONS:
        with contextlib.redirect_stdout(io.StringIO()):
            convert(name, Path("out", name))
