"""Three published readers parse, with their own keys and types, what one command each writes from real images."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recordmill.launch.cli import main
from tests.conftest import SHARED_DATA

IMAGES = SHARED_DATA / "cbir_mixed_jpg_png"
pytestmark = pytest.mark.skipif(not IMAGES.is_dir(), reason="the real data sets are not on this machine")
SIDE = 24


@pytest.fixture
def rows(tmp_path) -> Path:
    """A row an image: a number that is missing in every third row, a text, a class."""
    path = tmp_path / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["path", "width", "description", "kind"])
        for number, image in enumerate(sorted(IMAGES.rglob("*.*"))):
            if image.suffix.lower() in (".jpg", ".png"):
                words = image.parent.name.replace("_", " ")
                width = "" if number % 3 == 0 else Image.open(image).width
                table.writerow([image.relative_to(IMAGES), width, words, image.suffix[1:].lower()])
    return path


def write(output: Path, *arguments: object) -> list[bytes]:
    """The records of what a command writes, as TensorFlow reads them."""
    import tensorflow as tf

    assert main([*map(str, arguments), "--output", str(output), "--progress", "none"]) == 0
    assert main(["verify", str(output), "--progress", "none"]) == 0
    records = list(tf.data.TFRecordDataset([str(path) for path in output.glob("*.tfrecord-*")]).as_numpy_iterator())
    assert records
    return records


def test_images_whose_size_is_checked(tmp_path):
    import tensorflow as tf

    keys = "image/filename=filename,image/height=rows,image/width=cols,image/channels=channels"
    keys += ",image/encoded=image,image/class/label=label"
    spec = {name: tf.io.FixedLenFeature([], tf.string) for name in ("filename", "image")}
    spec |= {name: tf.io.FixedLenFeature([], tf.int64) for name in ("rows", "cols", "channels", "label")}
    files = {}
    for record in write(
        tmp_path / "out", "convert", IMAGES, "--format", "folder", "--rename", keys, "--max-rejects", 0.1
    ):
        found = {key: value.numpy() for key, value in tf.io.parse_single_example(record, spec).items()}
        pixels = tf.io.decode_image(found["image"])
        assert tuple(pixels.shape) == (found["rows"], found["cols"], found["channels"])
        files[found["filename"].decode()] = found["label"]
    classes = sorted({name.split("/")[0] for name in files})
    assert {name: classes.index(name.split("/")[0]) for name in files} == files


def test_rows_with_a_label_of_text(tmp_path, rows):
    import tensorflow as tf

    flags = ["--columns", "width,description", "--label", "kind", "--label-as", "text", "--default", "width=0"]
    flags += ["--rename", "width=int_col,description=str_col,kind=label"]
    write(tmp_path / "out", "convert", rows, "--format", "table", *flags)
    spec = {
        "int_col": tf.io.FixedLenFeature([], tf.int64, 0),
        "str_col": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.VarLenFeature(tf.string),
    }
    files = str(tmp_path / "out" / "*.tfrecord-*")
    batches = tf.data.experimental.make_batched_features_dataset(files, 16, spec, label_key="label", num_epochs=1)
    found = sorted(
        (text, number, label)
        for features, labels in batches
        for text, number, label in zip(
            features["str_col"].numpy(), features["int_col"].numpy(), labels.values.numpy(), strict=True
        )
    )
    with rows.open(encoding="utf-8") as file:
        expected = [(r["description"].encode(), int(r["width"] or 0), r["kind"].encode()) for r in csv.DictReader(file)]
    assert found == sorted(expected)


def test_pixels_with_sparse_counts_of_words(tmp_path, rows):
    import tensorflow as tf

    flags = ["--images", IMAGES, "--image-column", "path", "--columns", "kind", "--label", "kind"]
    flags += ["--text-column", "description", "--text", "counts", "--dtype", "description_value=int64"]
    flags += ["--text-names", "index={column}_index,value={column}_value", "--raw-size", f"{SIDE}x{SIDE}"]
    flags += ["--rename", "image/pixels=image,kind=label"]
    flags += ["--max-rejects", 0.1]
    size = 1 << 10
    spec = {
        "description": tf.io.SparseFeature("description_index", "description_value", tf.int64, size),
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "image/filename": tf.io.FixedLenFeature([], tf.string),
    }
    with rows.open(encoding="utf-8") as file:
        words = {row["path"]: len(re.findall(r"\w\w+", row["description"])) for row in csv.DictReader(file)}
    for record in write(tmp_path / "out", "convert", rows, "--format", "table", *flags):
        found = tf.io.parse_single_example(record, spec)
        pixels = tf.reshape(tf.io.decode_raw(found["image"], tf.uint8), (SIDE, SIDE, 3)).numpy()
        name = found["image/filename"].numpy().decode()
        assert tf.sparse.reduce_sum(found["description"]).numpy() == words[name]
        expected = Image.open(IMAGES / name).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        difference = np.abs(pixels.astype(int) - np.asarray(expected).astype(int))
        assert difference.mean() < 12  # as decoders and filters differ
