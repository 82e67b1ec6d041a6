"""Features of images: against `model.predict` of images that are decoded already, and against the recipe's loop.

    python benchmarks/embed.py [--images 128] [--runs 5] [--model efficientnet-b0] [--size 224] [--folder DIR]

Images/s of writing shards (read, decoded, through the model, written, with checksums), of `model.predict` over the
same pixels in memory, and of the recipe's loop: `load_img`, `model.predict` of one, `tf.train.Example`,
`TFRecordWriter`. The model is loaded and has run once. Ways in turn, round after round, medians; then peak memory of
whole commands, of which one has four times the images.
"""

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from recordmill.schemas.inputs.files import ImageFile

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from arguments import read_arguments
from make_coco import make

from recordmill.schemas.dataset.manifest import FORMAT
from recordmill.schemas.inputs.annotations import Category, ImageLabels
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.models import FeatureModel, ModelChoice
from recordmill.schemas.layouts import features_table
from recordmill.schemas.shards import ShardKey
from recordmill.transforms.blocks.pack_block import pack_block
from recordmill.transforms.encoders.embed_images import EmbedImages
from recordmill.transforms.encoders.load_model import build_model, load_model
from recordmill.transforms.runtime.threads import usable_cores
from recordmill.transforms.shards.shard_file import ShardRecipe
from recordmill.transforms.shards.write_shards import write_shard
from tests.transforms.blocks.of_tasks import block_of_tasks

BATCH = 16


def embed(paths: list[Path], choice: ModelChoice, found: FeatureModel, output: Path) -> None:
    """One shard, as a worker writes it."""
    maker = EmbedImages(choice, found, BATCH, "float32", "nearest")
    recipe = ShardRecipe(str(output), "features", "features", False, 0, maker, FORMAT)
    labels, table = LabelMap((Category(0, "thing"),)), features_table(found.feature_shape, "float32")
    tasks = [
        ImageTask(id_, path.name, None, None, ImageFile(str(path), 1), "train", (), ImageLabels(class_name="thing"))
        for id_, path in enumerate(paths)
    ]
    threads = usable_cores()
    with ThreadPoolExecutor(threads) as pool:
        packed = pack_block(block_of_tasks(tasks, ("train",)))
        write_shard(recipe, labels, table, ShardKey("train", 0, 1), [packed], pool, threads)


def recipe_loop(paths: list[Path], model: keras.Model, size: tuple[int, int], output: Path) -> None:
    """One record after the other."""
    with tf.io.TFRecordWriter(str(output / "recipe.tfrecord")) as writer:
        for path in paths:
            picture = keras.utils.img_to_array(keras.utils.load_img(path, target_size=size))
            feature = model.predict(picture[None], verbose=0)[0]
            values = tf.train.FloatList(value=feature.ravel())
            features = {
                "feature": tf.train.Feature(float_list=values),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[0])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def peak_mb(images: Path, choice: ModelChoice, output: Path) -> float:
    """Peak memory of a whole command, in a separate process."""
    height, width = choice.input_size or (0, 0)
    flags = [
        "--format",
        "folder",
        "--classes",
        "thing",
        "--model",
        choice.model,
        "--weights",
        "none",
        "--input-size",
        f"{height}x{width}",
    ]
    command = [
        sys.executable,
        "-m",
        "recordmill.launch.cli",
        "convert",
        images,
        *flags,
        "--output",
        output,
        "--overwrite",
        "--progress",
        "none",
    ]
    measure = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, capture_output=True); "
    measure += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", measure, *map(str, command)], check=True, capture_output=True)
    return int(done.stdout) / 1000


def copies(paths: list[Path], folder: Path, times: int) -> Path:
    for index in range(times):
        for path in paths:
            link = folder / "thing" / f"{index}-{path.name}"
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                link.hardlink_to(path)
    return folder


def main() -> None:
    arguments, folder = read_arguments(__doc__, images=128, runs=5, model="efficientnet-b0", size=224)
    data, output = folder / f"coco-{arguments.images}", folder / "output"
    if not data.exists():
        make(data, arguments.images)
    paths = sorted((data / "images").iterdir())
    size = (arguments.size, arguments.size)
    choice = ModelChoice(arguments.model, "none", input_size=size)
    model, found = build_model(choice), load_model(choice).model
    pixels = np.stack([keras.utils.img_to_array(keras.utils.load_img(path, target_size=size)) for path in paths])
    ways: dict[str, Callable[[], object]] = {
        "recordmill": lambda: embed(paths, choice, found, output),
        "predict": lambda: model.predict(pixels, batch_size=BATCH, verbose=0),
        "recipe": lambda: recipe_loop(paths, model, size, output),
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    processor: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(arguments.runs + 1):
        for way, run in ways.items():
            shutil.rmtree(output, ignore_errors=True)
            output.mkdir()
            began, began_processor = time.perf_counter(), time.process_time()
            run()
            if turn:  # the first round warms up
                rates[way].append(len(paths) / (time.perf_counter() - began))
                processor[way].append((time.process_time() - began_processor) / len(paths))
    for way in ways:
        print(
            f"{way:12}{statistics.median(rates[way]):8.1f} images/s  ({min(rates[way]):.1f} to {max(rates[way]):.1f})"
        )
    for other in ("predict", "recipe"):
        ratios = [one / two for one, two in zip(rates["recordmill"], rates[other], strict=True)]
        seconds = [one / two for one, two in zip(processor["recordmill"], processor[other], strict=True)]
        print(
            f"recordmill is {statistics.median(ratios):.2f}x of {other}, "
            f"with {statistics.median(seconds):.2f}x of its processor time"
        )
    peaks = [peak_mb(copies(paths, folder / f"times-{n}", n), choice, folder / f"features-{n}") for n in (1, 4)]
    print(f"peak memory of a command: {peaks[0]:,.0f} MB, of four times the images {peaks[1]:,.0f} MB")


if __name__ == "__main__":
    main()
