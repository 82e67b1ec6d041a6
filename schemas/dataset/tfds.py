"""Files of TensorFlow Datasets, for `tfds.builder_from_directory`.

The files are those that `tfds.core.DatasetInfo` and `tfds.features.FeaturesDict.save_config` write (TFDS 4.9).
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from recordmill.schemas.containers import CONTAINERS
from recordmill.schemas.dataset.manifest import Manifest, SplitManifest, encode_json
from recordmill.schemas.features import CLASS_OF_ROW, Feature, FeatureKind, FeatureTable
from recordmill.schemas.field_features import FLAT_VALUES, LENGTHS
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.shards import ShardKey, ShardNames

DATASET_INFO = "dataset_info.json"
FEATURES = "features.json"

_ADDED_FORMATS = "alternativeFileFormats"
_FEATURES = "tensorflow_datasets.core.features."
_DTYPES = {FeatureKind.FLOAT: "float32", FeatureKind.INT64: "int64"}
_TRUTHS = ("objects.is_crowd", "segments.is_crowd")
"""Sources with values 0 and 1 that TFDS shows as bool, as in its own coco."""
_CHANNELS = {
    **dict.fromkeys(("image.encoded", "panoptic.png"), "3"),
    **dict.fromkeys(("semantic.png", "panoptic.category_png", "panoptic.instance_png", "depth.png"), "1"),
}
"""Image features of TFDS, by source. Lists of masks stay PNGs."""
_IMAGES = ("image.encoded", "image.pixels", "feature.values")
"""Sources of the input of a classifier."""


def is_readable(manifest: Manifest) -> bool:
    """Return True if TFDS can read all splits. TFDS reads neither compressed shards, nor all containers, nor the shards
    of a data set that has grown, whose names do not all have the same number of shards."""
    return bool(CONTAINERS[manifest.container].tfds_format) and all(
        not split.compression and _is_numbered(manifest.shard_names(name), split)
        for name, split in manifest.splits.items()
    )


def _is_numbered(names: ShardNames, split: SplitManifest) -> bool:
    """Return True if the names of the shards, or of their links, have the numbers from 0 and the number of shards."""
    count = len(split.shards)
    return names.is_keras or all(
        shard.file == names.stable(ShardKey(names.split, index, count)) for index, shard in enumerate(split.shards)
    )


def shard_links(names: ShardNames, split: SplitManifest) -> dict[str, str]:
    """Return the links for shards whose names TFDS does not expect: expected name -> file of the shard."""
    if not names.is_keras:
        return {}
    files = [shard.file for shard in split.shards]
    return {names.stable(ShardKey(names.split, index, len(files))): file for index, file in enumerate(files)}


def tfds_files(manifest: Manifest) -> dict[str, bytes]:
    """Return the files of TFDS by name: splits, features and class names of the data set."""
    files = {
        DATASET_INFO: encode_json(_dataset_info(manifest)),
        FEATURES: encode_json(_features(manifest.table, manifest.labels)),
    }
    for feature in manifest.table.features:
        if categories := _indexed_categories(feature, manifest.labels):
            group = _group_prefix(feature, manifest.table)
            path = [group, feature.name[len(group) + 1 :]] if group else [feature.name]
            file = "-".join(part.replace("/", ".") for part in path)
            files[f"{file}.labels.txt"] = "".join(f"{name}\n" for name in class_names(categories)).encode()
    return files


def is_dataset_info(stored: bytes, expected: bytes) -> bool:
    """Return True if `stored` equals `expected`, except for the file formats that convert_format adds."""
    try:
        stated = json.loads(stored)
    except ValueError:
        return False
    return isinstance(stated, dict) and stated | {_ADDED_FORMATS: None} == json.loads(expected) | {_ADDED_FORMATS: None}


def class_names(categories: Sequence[Category]) -> list[str]:
    """Return unique names by class index, one line each, as TFDS requires. Shared names get their ids.

    >>> class_names((Category(0, "face"), Category(1, "face"), Category(2, "hand")))
    ['face (id 0)', 'face (id 1)', 'hand']
    """
    names = [" ".join(category.name.split()) for category in categories]
    counts = Counter(names)
    return [
        f"{name} (id {category.id})".strip() if counts[name] > 1 or not name else name
        for name, category in zip(names, categories, strict=True)
    ]


def _indexed_categories(feature: Feature, labels: LabelMap) -> tuple[Category, ...]:
    """Return the categories that a feature indexes; none if it is not a class index or there are no classes."""
    if feature.source == "segments.class_index":
        return labels.segments
    is_class = feature.source in ("image.class_index", "objects.class_index")
    is_class = (is_class or feature.source.startswith(CLASS_OF_ROW)) and feature.kind is FeatureKind.INT64
    return labels.categories if is_class else ()


def _group_prefix(feature: Feature, table: FeatureTable) -> str:
    return next((group for group in table.groups if feature.name.startswith(f"{group}/")), "")


def _dataset_info(manifest: Manifest) -> dict[str, Any]:
    return {
        "fileFormat": CONTAINERS[manifest.container].tfds_format,
        "name": manifest.name,
        "splits": [
            {
                # Not the shards' own names: TFDS's convert_format replaces {FILEFORMAT} by array_record.
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "name": name,
                "numBytes": str(split.record_bytes),
                "shardLengths": [str(shard.examples) for shard in split.shards],
            }
            for name, split in manifest.splits.items()
        ],
        **_supervised_keys(manifest.table, manifest.labels),
        "version": "1.0.0",
    }


def _supervised_keys(table: FeatureTable, labels: LabelMap) -> dict[str, Any]:
    """Keys of `as_supervised`: image or feature, and class; none unless a record has exactly one of each."""
    images = [feature.name for feature in table.features if feature.source in _IMAGES]
    classes = [feature.name for feature in table.features if not feature.shape and _indexed_categories(feature, labels)]
    if len(images) != 1 or len(classes) != 1:
        return {}
    return {"supervisedKeys": {"tuple": {"items": [{"featureKey": name} for name in images + classes]}}}


def _features(table: FeatureTable, labels: LabelMap) -> dict[str, Any]:
    features: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    for feature in table.features:
        group = _group_prefix(feature, table)
        name = feature.name[len(group) + 1 :] if group else feature.name
        if feature.source.endswith(LENGTHS):
            continue  # TFDS derives the lengths of a sequence in a sequence
        if feature.source.endswith(FLAT_VALUES):
            inner = _sequence(_item(feature, (), labels))
            if group:
                groups.setdefault(group, {})[name.removesuffix(FLAT_VALUES)] = inner
            else:
                features[name.removesuffix(FLAT_VALUES)] = _sequence(inner)
        elif group:
            groups.setdefault(group, {})[name] = _item(feature, feature.shape[1:], labels)
        elif feature.shape and not feature.shape[0].isdecimal():
            features[feature.name] = _sequence(_item(feature, feature.shape[1:], labels))
        else:
            features[feature.name] = _item(feature, feature.shape, labels)
    return _features_dict(features | {name: _sequence(_features_dict(group)) for name, group in groups.items()})


def _features_dict(features: dict[str, Any]) -> dict[str, Any]:
    return {"featuresDict": {"features": features}, "pythonClassName": f"{_FEATURES}features_dict.FeaturesDict"}


def _sequence(feature: dict[str, Any]) -> dict[str, Any]:
    return {
        "pythonClassName": f"{_FEATURES}sequence_feature.Sequence",
        "sequence": {"feature": feature, "length": "-1"},
    }


def _item(feature: Feature, shape: tuple[str, ...], labels: LabelMap) -> dict[str, Any]:
    """Return TFDS's feature connector configuration for `shape`."""
    if channels := _CHANNELS.get(feature.source):
        image = {
            "dtype": "uint16" if feature.source == "depth.png" else "uint8",
            "shape": {"dimensions": ["-1", "-1", channels]},
        }
        return {"image": image, "pythonClassName": f"{_FEATURES}image_feature.Image"}
    if categories := _indexed_categories(feature, labels):
        return {
            "classLabel": {"numClasses": str(len(categories))},
            "pythonClassName": f"{_FEATURES}class_label_feature.ClassLabel",
        }
    if feature.is_packed:
        tensor = {"dtype": "uint8", "encoding": "bytes", "shape": {"dimensions": list(shape)}}
        return {"pythonClassName": f"{_FEATURES}tensor_feature.Tensor", "tensor": tensor}
    if feature.kind is FeatureKind.BYTES:
        if shape:  # TFDS reads a sequence of sequences as lists of different lengths
            texts = {"dtype": "string", "encoding": "none", "shape": {"dimensions": list(shape)}}
            return {"pythonClassName": f"{_FEATURES}tensor_feature.Tensor", "tensor": texts}
        return {"pythonClassName": f"{_FEATURES}text_feature.Text", "text": {}}
    dimensions = {"dimensions": list(shape)} if shape else {}
    if feature.source.endswith(".bbox_yxyx"):
        box = {"bboxFormat": "REL_YXYX", "dtype": _DTYPES[feature.kind], "shape": dimensions}
        return {"boundingBox": box, "pythonClassName": f"{_FEATURES}bounding_boxes.BBoxFeature"}
    dtype = "bool" if feature.source in _TRUTHS and feature.kind is FeatureKind.INT64 else _DTYPES[feature.kind]
    tensor = {"dtype": dtype, "encoding": "none", "shape": dimensions}
    scalar = "tensor_feature.Tensor" if feature.shape else "scalar.Scalar"
    return {"pythonClassName": f"{_FEATURES}{scalar}", "tensor": tensor}
