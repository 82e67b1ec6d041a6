"""The values of records that anybody has written, by what they are.

A layout is known by the names of its features (`recordmill.schemas.layouts`): the Object Detection API's and Model
Garden's have those of `detection` and `classification`, TFDS's those of `tfds`. Of names that no layout has, the few
that most writers use are known, too.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.features import Feature, FeatureKind, FeatureTable
from recordmill.schemas.layouts import BOX_CODINGS, CLASSIFICATION, DETECTION, KERAS, TFDS
from recordmill.transforms.images.open_picture import kind_of
from recordmill.transforms.records.parse_record import Values

Found = Mapping[str, tuple[FeatureKind, Values]]
"""As `parse_example` gives it."""

UNKNOWN = FeatureTable("unknown", ())

_PICTURE = Feature("", "image.encoded", FeatureKind.BYTES, (), "JPEG or PNG", "a picture")
_FILE_NAME = Feature("", "image.file_name", FeatureKind.BYTES, (), "utf-8", "file name")
_CLASS = Feature("", "image.class_index", FeatureKind.INT64, (), "0..classes-1", "class index")
_BOX = Feature("", "objects.bbox_yxyx", FeatureKind.FLOAT, ("N", "4"), "fraction", "ymin, xmin, ymax, xmax")
_CLASSES = Feature("", "objects.class_index", FeatureKind.INT64, ("N",), "0..classes-1", "class index")
_FILE_NAMES = ("filename", "file_name", "path")
_NO_PICTURES_OF_THEIR_OWN = ("mask", "panoptic", "segmentation", "annotation", "label")
"""In names of PNGs that are numbers of pixels."""
_OF_BOXES = frozenset(source for coding in BOX_CODINGS for source in coding.sources)
_LEAST_NAMES = 3
"""Of a layout, to be it."""


def recognise(found: Found) -> FeatureTable:
    """What is in a record, as far as it is known; of layout `unknown` where it is nobody's that is."""
    tables = (DETECTION, CLASSIFICATION, TFDS, KERAS)
    best = max((_present(table, found) for table in tables), key=lambda table: len(table.features))
    sources = best.sources
    if len(best.features) < _LEAST_NAMES or not sources & {"image.encoded", *_OF_BOXES}:
        best = UNKNOWN
    return _with_others(best, found)


def _present(table: FeatureTable, found: Found) -> FeatureTable:
    features = [each for each in table.features if each.name in found]
    return FeatureTable(table.layout, tuple(features), table.record_of)


def _with_others(table: FeatureTable, found: Found) -> FeatureTable:
    """The table with what its layout lacks: a picture, its name, a label, boxes of TFDS under any name."""
    more = dict[str, Feature]()
    for name, (kind, values) in found.items():
        group, _, last = name.rpartition("/")
        if kind is FeatureKind.BYTES and _is_picture(name, values):
            more.setdefault("image.encoded", _named(_PICTURE, name))
        elif kind is FeatureKind.BYTES and len(values) == 1 and last in _FILE_NAMES:
            more.setdefault("image.file_name", _named(_FILE_NAME, name))
        elif kind is FeatureKind.INT64 and len(values) == 1 and last == "label":
            more.setdefault("image.class_index", _named(_CLASS, name))
        elif kind is FeatureKind.FLOAT and last == "bbox" and len(values) % 4 == 0 and group:
            more.setdefault("objects.bbox_yxyx", _named(_BOX, name))
            labels = found.get(f"{group}/label")
            if labels and labels[0] is FeatureKind.INT64 and 4 * len(labels[1]) == len(values):
                more.setdefault("objects.class_index", _named(_CLASSES, f"{group}/label"))
    if "objects.bbox_yxyx" in more or any(source.startswith("objects.") for source in table.sources):
        more.pop("image.class_index", None)  # an only object's
    if table.sources & _OF_BOXES:
        more.pop("objects.bbox_yxyx", None)
        more.pop("objects.class_index", None)
    kept = (feature for source, feature in more.items() if source not in table.sources)
    known = {feature.name: feature for feature in (*kept, *table.features)}
    return FeatureTable(table.layout, tuple(known[name] for name in sorted(known)), table.record_of)


def _named(feature: Feature, name: str) -> Feature:
    return msgspec.structs.replace(feature, name=name)


def _is_picture(name: str, values: Values) -> bool:
    is_other = any(word in name.lower() for word in _NO_PICTURES_OF_THEIR_OWN)
    return not is_other and len(values) == 1 and bool(kind_of(values[0]))


def values_by_source(found: Found, table: FeatureTable) -> dict[str, Any]:
    """What `RecordParser` gives of a record, as far as the record has it: bytes for a single text or file, an array of
    numbers, a list of bytes."""
    values: dict[str, Any] = {}
    for feature in table.features:
        kind, listed = found.get(feature.name, (None, []))
        if kind is not feature.kind:
            continue
        if kind is FeatureKind.BYTES and not feature.is_list:
            values |= {feature.source: listed[0]} if len(listed) == 1 else {}
        else:
            values[feature.source] = listed if kind is FeatureKind.BYTES else np.asarray(listed)
    return values
