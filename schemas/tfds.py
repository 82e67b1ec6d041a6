"""What TensorFlow Datasets wants to find in a folder, so that `tfds.builder_from_directory` opens it.

The files are those that `tfds.core.DatasetInfo` and `tfds.features.FeaturesDict.save_config` write (TFDS 4.9).
"""

from collections import Counter
from typing import Any

from schemas.features import Feature, FeatureTable, Kind
from schemas.labels import LabelMap
from schemas.manifest import Manifest, SplitManifest, encode_json
from schemas.shards import shard_prefix

DATASET_INFO = "dataset_info.json"
FEATURES = "features.json"

_FEATURES = "tensorflow_datasets.core.features."
_DTYPES = {Kind.FLOAT: "float32", Kind.INT64: "int64"}


def is_readable(manifest: Manifest) -> bool:
    """Whether TFDS can read all splits: it does not read compressed shards."""
    return not any(split.compression for split in manifest.splits.values())


def tfds_files(manifest: Manifest, table: FeatureTable) -> dict[str, bytes]:
    """The files by name: the data set's splits, its features, and the names of its classes."""
    labels = LabelMap(manifest.categories)
    names = "".join(f"{name}\n" for name in class_names(labels))
    classes = [feature for feature in table.features if feature.source == "objects.class_index"]
    return {
        DATASET_INFO: encode_json(_dataset_info(manifest)),
        FEATURES: encode_json(_features(table, labels)),
        **{f"{feature.name.replace('/', '.')}.labels.txt": names.encode() for feature in classes},
    }


def class_names(labels: LabelMap) -> list[str]:
    """Names by class index, one line each; where categories share one, ids are added, as TFDS wants all to differ.

    >>> from schemas.coco import Category
    >>> class_names(LabelMap((Category(0, "face"), Category(1, "face"), Category(2, "hand"))))
    ['face (id 0)', 'face (id 1)', 'hand']
    """
    names = [" ".join(category.name.split()) for category in labels.categories]
    counts = Counter(names)
    return [
        f"{name} (id {category.id})".strip() if counts[name] > 1 or not name else name
        for name, category in zip(names, labels.categories, strict=True)
    ]


def _dataset_info(manifest: Manifest) -> dict[str, Any]:
    return {
        "fileFormat": "tfrecord",
        "name": manifest.name,
        "splits": [_split(manifest.name, name, split) for name, split in manifest.splits.items()],
        "version": "1.0.0",
    }


def _split(dataset: str, name: str, split: SplitManifest) -> dict[str, Any]:
    return {
        "filepathTemplate": shard_prefix(dataset, name) + "-{SHARD_X_OF_Y}",
        "name": name,
        "numBytes": str(split.record_bytes),
        "shardLengths": [str(shard.examples) for shard in split.shards],
    }


def _features(table: FeatureTable, labels: LabelMap) -> dict[str, Any]:
    features = {feature.name: _connector(feature, labels) for feature in table.features}
    return {"featuresDict": {"features": features}, "pythonClassName": f"{_FEATURES}features_dict.FeaturesDict"}


def _connector(feature: Feature, labels: LabelMap) -> dict[str, Any]:
    """What TFDS calls a feature connector."""
    if feature.shape:
        return {
            "pythonClassName": f"{_FEATURES}sequence_feature.Sequence",
            "sequence": {"feature": _item(feature, labels), "length": "-1"},
        }
    return _item(feature, labels)


def _item(feature: Feature, labels: LabelMap) -> dict[str, Any]:
    if feature.source == "image.encoded":
        image = {"dtype": "uint8", "shape": {"dimensions": ["-1", "-1", "3"]}}
        return {"image": image, "pythonClassName": f"{_FEATURES}image_feature.Image"}
    if feature.source == "objects.class_index":
        return {
            "classLabel": {"numClasses": str(len(labels.categories))},
            "pythonClassName": f"{_FEATURES}class_label_feature.ClassLabel",
        }
    if feature.kind is Kind.BYTES:
        return {"pythonClassName": f"{_FEATURES}text_feature.Text", "text": {}}
    tensor = {"dtype": _DTYPES[feature.kind], "encoding": "none", "shape": {}}
    scalar = "tensor_feature.Tensor" if feature.shape else "scalar.Scalar"
    return {"pythonClassName": f"{_FEATURES}{scalar}", "tensor": tensor}
