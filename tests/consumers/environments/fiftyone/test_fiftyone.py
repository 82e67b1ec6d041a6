"""FiftyOne's importers give every box, class and image; they need no database."""

from pathlib import Path

import fiftyone.utils.data as foud
import fiftyone.utils.tf as fout
import numpy as np
import tensorflow as tf
from PIL import Image

from tests.consumers.coco_truth import Truth


def test_detection(truth, tmp_path, recordmill):
    """One shard keeps the order: FiftyOne renumbers the images, and reads several shards in any order."""
    assert recordmill("convert", *truth.flags, "--output", tmp_path / "out", "--num-shards", 1).code == 0
    pattern = str(tmp_path / "out" / "coco-train.tfrecord-*")
    images = str(tmp_path / "images")
    shards = sorted(map(str, tmp_path.glob("out/*.tfrecord-*")))
    seen = set()
    with fout.TFObjectDetectionDatasetImporter(tf_records_path=pattern, images_dir=images) as importer:
        for record, sample in zip(tf.data.TFRecordDataset(shards).as_numpy_iterator(), importer, strict=True):
            features = tf.train.Example.FromString(record).features.feature
            image_id = int(features["image/source_id"].bytes_list.value[0])
            seen.add(image_id)
            assert_sample(sample, truth, image_id)
    assert seen == truth.image_ids


def assert_sample(sample: tuple, truth: Truth, image_id: int) -> None:
    path, metadata, label = sample
    row = truth.row(image_id)
    assert (metadata.width, metadata.height) == (row["width"], row["height"])
    with Image.open(path) as written, Image.open(truth.path(image_id)) as original:
        difference = np.asarray(written.convert("RGB"), int) - np.asarray(original.convert("RGB"), int)
    assert np.abs(difference).mean() < 8  # it encodes them anew, as JPEG
    boxes = np.array([detection.bounding_box for detection in label.detections]).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    np.testing.assert_allclose(boxes * ([row["width"], row["height"]] * 2), truth.boxes_xyxy_px(image_id), atol=1e-3)
    names = [truth.coco.cats[id_]["name"] for id_ in truth.values(image_id, "category_id")]
    assert [detection.label for detection in label.detections] == names


def test_classes_from_extract(sample, tmp_path, recordmill):
    """FiftyOne's importer of TFRecords of classes needs other features; it reads class folders."""
    flags = ["--format", "folder", "--output", tmp_path / "out", "--max-rejects", 0.2]
    assert recordmill("convert", sample.classes, *flags).code == 0
    assert recordmill("extract", tmp_path / "out", tmp_path / "back").code == 0
    (images,) = {path.parents[1] for path in tmp_path.glob("back/**/circle/*")}
    with foud.ImageClassificationDirectoryTreeImporter(dataset_dir=str(images)) as importer:
        seen = {(Path(path).name, label.label): Path(path).read_bytes() for path, _, label in importer}
    whole = {path.name for path in images.glob("*/*")}
    expected = {(p.name, p.parent.name): p.read_bytes() for p in Path(sample.classes).glob("*/*") if p.name in whole}
    assert seen == expected
    assert len(seen) == 22
