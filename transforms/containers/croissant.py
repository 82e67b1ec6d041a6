"""croissant.json, a description of a data set by MLCommons: its files with digests, and the fields of its records.

https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from recordmill.schemas.dataset.manifest import Manifest, SplitManifest, encode_json
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.containers.dataset_card import HubFeature, shard_patterns

CROISSANT = "croissant.json"

_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
"""Context of Croissant 1.1, as mlcroissant writes it."""


def croissant(manifest: Manifest, features: Mapping[str, HubFeature], media_type: str) -> bytes:
    """Return croissant.json of shards with columns.

    Args:
        features: Features by column.
        media_type: Media type of a shard.
    """
    distribution = [
        item for name, split in manifest.splits.items() for item in _split_files(manifest, name, split, media_type)
    ]
    return encode_croissant(manifest, distribution, {name: _fields(name, (), features) for name in manifest.splits})


def encode_croissant(
    manifest: Manifest, distribution: list[dict[str, Any]], fields: Mapping[str, list[dict[str, Any]]]
) -> bytes:
    """Return croissant.json with these files, and the fields of each record set."""
    metadata = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": manifest.name,
        "description": f"{manifest.name}, written by Recordmill.",
        "distribution": distribution,
        "recordSet": [{"@type": "cr:RecordSet", "@id": name, "field": own} for name, own in fields.items()],
    }
    return encode_json(metadata)


def shard_object(shard: ShardInfo, media_type: str) -> dict[str, Any]:
    """Return Croissant's FileObject of a shard."""
    return {
        "@type": "cr:FileObject",
        "@id": shard.file,
        "contentSize": f"{shard.bytes} B",
        "contentUrl": shard.file,
        "encodingFormat": media_type,
        "sha256": shard.sha256,
    }


def _split_files(manifest: Manifest, name: str, split: SplitManifest, media_type: str) -> Iterator[dict[str, Any]]:
    for shard in split.shards:
        yield shard_object(shard, media_type)
    yield {
        "@type": "cr:FileSet",
        "@id": f"{name}-files",
        "encodingFormat": media_type,
        "includes": shard_patterns(manifest.name, name, split),
    }


_DATA_TYPES = {"binary": "sc:Text", "bool": "sc:Boolean", "date32": "sc:Date", "string": "sc:Text"}


def _data_type(feature: HubFeature) -> str:
    if feature["_type"] == "Image":
        return "sc:ImageObject"
    dtype = feature.get("dtype", "int64")
    return _DATA_TYPES.get(dtype, "sc:Float" if dtype.startswith("float") else "sc:Integer")


def _fields(split: str, parents: tuple[str, ...], features: Mapping[str, HubFeature]) -> list[dict[str, Any]]:
    """Return the fields of features. An id of Croissant has no spaces, so a number makes equal ids differ."""
    ids: set[str] = set()
    fields = []
    for name, feature in features.items():
        id_ = re.sub(r"\W", "_", name)
        id_ = next(new for new in (id_, *(f"{id_}_{number}" for number in range(len(features)))) if new not in ids)
        ids.add(id_)
        field = _field(split, (*parents, name), feature)
        fields.append(field | {"@id": "/".join((split, *parents, id_)), "name": name})
    return fields


def _field(split: str, path: tuple[str, ...], feature: HubFeature) -> dict[str, Any]:
    """Return a field without its id. The first name of `path` is the column, and the others are names within it."""
    if "_type" not in feature:
        return {"@type": "cr:Field", "subField": _fields(split, path, feature)}
    shape = []
    while feature["_type"] == "Sequence":
        shape.append(feature.get("length", -1))
        feature = feature["feature"]
    steps = [re.sub(r'["\\]', r"\\\g<0>", name).join('""') for name in path[1:]]
    steps += ["bytes"] * (feature["_type"] == "Image")
    source: dict[str, Any] = {"fileSet": {"@id": f"{split}-files"}, "extract": {"column": path[0]}}
    if steps:
        source["transform"] = [{"jsonPath": step} for step in steps]
    array = {"isArray": True, "arrayShape": ",".join(map(str, shape))} if shape else {}
    return {"@type": "cr:Field", "dataType": _data_type(feature), "source": source, **array}
