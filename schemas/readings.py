"""What readers give of a record, as data: `recordmill.open` decodes by this table, and docs/reading.md shows it."""

from collections.abc import Iterator

import msgspec

from recordmill.schemas.features import FeatureTable, Form, Reading, RecordOf
from recordmill.schemas.layouts import DECODED_PICTURE, VALUES, is_of_picture
from recordmill.schemas.values import DTYPES

READINGS = tuple(value.reading for value in VALUES if value.reading)


def readings_of(table: FeatureTable, feature_shape: tuple[str, ...] = ()) -> dict[str, Reading]:
    """What readers give of records of `table`, by name.

    Args:
        feature_shape: of one picture's feature, where records hold what a model makes of pictures.
    """
    found: dict[str, Reading] = {}
    for reading in _of_row(table) if table.record_of is RecordOf.ROW else _of_known(table):
        found.setdefault(reading.name, reading)
    if "feature" in found:
        found["feature"] = msgspec.structs.replace(found["feature"], shape=feature_shape)
    return found


def _of_known(table: FeatureTable) -> Iterator[Reading]:
    for reading in READINGS:
        if reading.source in table.sources:
            feature = next(each for each in table.features if each.source == reading.source)
            alone = table.record_of is RecordOf.ANNOTATION and reading.shape[:1] == ("N",)
            shape = reading.shape[1:] if alone else reading.shape
            dtype = DTYPES[feature.kind] if reading.form is Form.AS_IT_IS else reading.dtype
            meaning = feature.meaning if feature.source == table.label and dtype == "bytes" else reading.meaning
            yield msgspec.structs.replace(reading, shape=shape, dtype=dtype, meaning=meaning)


def _of_row(table: FeatureTable) -> Iterator[Reading]:
    """A row's features under their own names, but for the picture that it names."""
    for feature in table.features:
        if is_of_picture(feature) and feature.source == "image.encoded":
            yield msgspec.structs.replace(READINGS[0], name=DECODED_PICTURE)
        elif is_of_picture(feature) and feature.is_packed:
            yield Reading(
                DECODED_PICTURE, feature.source, "uint8", feature.shape, READINGS[0].meaning, form=Form.PIXELS
            )
        else:
            yield Reading(feature.name, feature.source, DTYPES[feature.kind], feature.shape, feature.meaning)


def listed(indent: int) -> str:
    """The table as a docstring shows it."""
    width = max(len(each.name) for each in READINGS)
    lines = (f"{'':{indent}}{each.name:{width}}  {type_text(each)}: {each.meaning}" for each in READINGS)
    return "\n".join(dict.fromkeys(lines))


def type_text(reading: Reading) -> str:
    return f"{reading.dtype} [{', '.join(reading.shape)}]" if reading.shape else reading.dtype
