"""croissant.json, a description of a data set by MLCommons: its files with digests, and the fields of its records.

https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html
"""

import re
from collections.abc import Mapping
from typing import Any

from recordmill.schemas.dataset.manifest import Manifest, encode_json
from recordmill.transforms.containers.dataset_card import HubFeature, shard_pattern

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
    files = {name: (media_type, [shard_pattern(manifest.name, name, split)]) for name, split in manifest.splits.items()}
    records = {name: _fields(name, (), features) for name in manifest.splits}
    return _encode(manifest, media_type, files, records)


def tar_croissant(manifest: Manifest, members: Mapping[str, tuple[HubFeature, Mapping[str, str]]]) -> bytes:
    """Return croissant.json of tars. The members of a split with one ending are the records of `{split}-{member}`, each
    with its content and the key of its sample: mlcroissant reads no values from JSON files in archives.

    Args:
        members: Feature of the content by member, and glob patterns of its files by media type.
    """
    files: dict[str, tuple[Any, list[str]]] = {}
    records: dict[str, list[dict[str, Any]]] = {}
    for split in manifest.splits:
        for member, (feature, patterns) in members.items():
            name = f"{split}-{re.sub(_NOT_OF_ID, '_', member)}"
            files[name] = list(patterns), list(patterns.values())
            source = {"fileSet": {"@id": f"{name}-files"}, "extract": {"fileProperty": "content"}}
            field = {"@type": "cr:Field", "@id": f"{name}/content", "dataType": _data_type(feature), "source": source}
            records[name] = [_key(name), field]
    return _encode(manifest, _TAR, files, records)


_TAR = "application/x-tar"
_NOT_OF_ID = r"\W"


def _key(record_set: str) -> dict[str, Any]:
    source = {
        "fileSet": {"@id": f"{record_set}-files"},
        "extract": {"fileProperty": "filename"},
        "transform": [{"regex": r"^([^.]+)"}],
    }
    return {"@type": "cr:Field", "@id": f"{record_set}/__key__", "dataType": "sc:Text", "source": source}


def _encode(
    manifest: Manifest,
    media_type: str,
    files: Mapping[str, tuple[Any, list[str]]],
    records: Mapping[str, list[dict[str, Any]]],
) -> bytes:
    """Return croissant.json.

    Args:
        files: Media types, and glob patterns, of the files of each record set.
        records: Fields of each record set.
    """
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    metadata = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": manifest.name,
        "description": f"{manifest.name}, written by Recordmill.",
        "distribution": [
            *(
                {
                    "@type": "cr:FileObject",
                    "@id": shard.file,
                    "contentSize": f"{shard.bytes} B",
                    "contentUrl": shard.file,
                    "encodingFormat": media_type,
                    "sha256": shard.sha256,
                }
                for shard in shards
            ),
            *(
                {
                    "@type": "cr:FileSet",
                    "@id": f"{name}-files",
                    "encodingFormat": types,
                    "includes": patterns,
                    **_archives(manifest, name, media_type),
                }
                for name, (types, patterns) in files.items()
            ),
        ],
        "recordSet": [{"@type": "cr:RecordSet", "@id": name, "field": fields} for name, fields in records.items()],
    }
    return encode_json(metadata)


def _archives(manifest: Manifest, name: str, media_type: str) -> dict[str, Any]:
    """Return the archives of a file set. Files that are shards themselves are in the folder of croissant.json."""
    if media_type != _TAR:
        return {}
    split = manifest.splits[name.partition("-")[0]]
    return {"containedIn": [{"@id": shard.file} for shard in split.shards]}


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
        id_ = re.sub(_NOT_OF_ID, "_", name)
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
