"""Which features of a record are of its picture; and the picture that a row of a table names, as features."""

from recordmill.schemas.features import Feature, FeatureTable, Kind
from recordmill.schemas.layouts import CLASSIFICATION

DECODED_PICTURE = "image"
"""What `recordmill.open` calls the pixels of a row's picture; no column's feature is called so beside it."""


def picture_of_row(raw_size: tuple[int, int] | None) -> tuple[Feature, ...]:
    """The features of the picture that a row of a table names, by name.

    Args:
        raw_size: height and width of the pixels that stand there instead of the file; None for the file.
    """
    if raw_size is None:
        return tuple(each for each in CLASSIFICATION.features if not each.source.startswith("image.class_"))
    pixels = Feature(
        "image/pixels",
        _PIXELS,
        Kind.BYTES,
        shape=(*map(str, raw_size), "3"),
        unit="uint8",
        meaning="red, green and blue of each pixel, by rows from the top, 0 to 255",
    )
    of_file = (each for each in CLASSIFICATION.features if each.source in _OF_PIXELS)
    return tuple(sorted((pixels, *of_file), key=lambda feature: feature.name))


_PIXELS = "image.pixels"
_OF_PIXELS = ("image.file_name", "image.height", "image.id", "image.width")
_OF_PICTURE = {_PIXELS, *(each.source for each in picture_of_row(None))}


def is_of_picture(feature: Feature) -> bool:
    """Whether a table's feature is of the picture that its row names, and of no column."""
    return feature.source in _OF_PICTURE


def has_picture(table: FeatureTable) -> bool:
    """Whether records hold pictures, as files or as pixels."""
    return not table.sources.isdisjoint({"image.encoded", _PIXELS})
