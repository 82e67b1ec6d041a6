"""Files beside tars from the manifest: the index of RF-DETR, and what the dataset card and croissant.json say."""

from typing import Any

import msgspec

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.tfds import class_names
from recordmill.transforms.containers.croissant import encode_croissant, shard_object
from recordmill.transforms.containers.dataset_card import IMAGE, HubFeature, class_label, list_of, sequence, value
from recordmill.transforms.containers.sample_codings import FILES, SampleColumn
from recordmill.transforms.containers.sample_json import ANNOTATIONS
from recordmill.transforms.containers.sample_values import SampleCodec

IMAGE_FILE = FILES["image.encoded"]
IMAGE_ENDINGS = ("jpg", "png")
CLASS_KEY = "label"
"""Key of the class of an image, which is a member and not in the JSON."""
_DTYPES = {"text": "string"}


def hub_features(manifest: Manifest) -> dict[str, HubFeature]:
    """Return the features of samples as datasets' reader of WebDataset has them. It would infer types from the first
    five samples, whose lists may be empty."""
    codec = SampleCodec(manifest.table, manifest.labels)
    keys = {column.key: _hub_feature(column) for column in codec.image_columns}
    has_class = keys.pop(CLASS_KEY, None) is not None
    if codec.has_objects:
        keys[ANNOTATIONS] = list_of({column.key: _hub_feature(column) for column in codec.object_columns})
    features: dict[str, HubFeature] = {"__key__": value("string"), "__url__": value("string")}
    features |= {**dict.fromkeys(IMAGE_ENDINGS, IMAGE), "json": keys}
    if has_class:
        features["cls"] = class_label(class_names(manifest.categories))
    return features | {f"{name}.png": IMAGE for name in codec.files if name != IMAGE_FILE}


def _hub_feature(column: SampleColumn) -> HubFeature:
    if column.type == "rle":
        return {"size": sequence(value("int64"), 2), "counts": value("string")}
    single = value(_DTYPES.get(column.type, column.type))
    return sequence(single, column.size) if column.size else single


_MEDIA_TYPES = {"cls": "text/plain", "jpg": "image/jpeg", "json": "application/json"}
_STEM = "^([^.]*)"
"""Regular expression of the base name of a member."""


def croissant_of_tars(manifest: Manifest) -> bytes:
    """Return croissant.json: each tar, the members in it, and the files and annotations of each sample."""
    features = hub_features(manifest)
    endings = [name for name in features if not name.startswith("__")]
    distribution, fields = [], {}
    for name, split in manifest.splits.items():
        distribution += [shard_object(shard, "application/x-tar") for shard in split.shards]
        tars = [{"@id": shard.file} for shard in split.shards]
        distribution += [
            {
                "@type": "cr:FileSet",
                "@id": f"{name}-{ending}-files",
                "containedIn": tars,
                "encodingFormat": _MEDIA_TYPES.get(ending, "image/png"),
                "includes": f"*-????????.{ending}",
            }
            for ending in endings
        ]
        for ending in endings:
            fields[f"{name}-{ending}"] = _member_fields(f"{name}-{ending}", ending)
    return encode_croissant(manifest, distribution, fields)


def _member_fields(name: str, ending: str) -> list[dict[str, Any]]:
    """Return the fields of the members with an ending: the key of the sample, and the contents. JSON is text."""

    def field(key: str, data_type: str, extract: str, **more: Any) -> dict[str, Any]:
        source = {"fileSet": {"@id": f"{name}-files"}, "extract": {"fileProperty": extract}} | more
        return {"@type": "cr:Field", "@id": f"{name}/{key}", "name": key, "dataType": data_type, "source": source}

    data_type = {"cls": "sc:Integer", "json": "sc:Text"}.get(ending, "sc:ImageObject")
    return [field("key", "sc:Text", "filename", transform=[{"regex": _STEM}]), field("content", data_type, "content")]


def detr_indexes(manifest: Manifest) -> dict[str, bytes]:
    """Return the index that RF-DETR reads of each split with boxes, by file name."""
    if "objects.id" not in manifest.table.sources:
        return {}
    categories = [
        {"id": category.id, "name": category.name, "supercategory": category.supercategory or "none"}
        for category in manifest.categories
    ]
    files = {}
    for name, split in manifest.splits.items():
        index = {
            "version": 1,
            "split": name,
            "shards": [shard.file for shard in split.shards],
            "num_samples": sum(shard.examples for shard in split.shards),
            "categories": categories,
            "annotated_category_ids": [
                category.id for category, number in zip(manifest.categories, split.class_counts, strict=True) if number
            ],
            "category_ids": "remap",
            "samples_per_shard": [shard.examples for shard in split.shards],
        }
        files[f"{name}-index.json"] = msgspec.json.format(msgspec.json.encode(index)) + b"\n"
    return files
