"""Files that name the classes of semantic masks."""

import posixpath
from collections.abc import Mapping, Sequence

ADE20K = "objectInfo150.txt"
CLASS_FILES = (
    *("_classes.csv", "class_dict.csv", "class_dict_seg.csv", "labelmap.txt", "label_colors.txt", ADE20K),
    *("classes.csv", "codes.txt", "class_names.txt", "classes.txt"),
)
"""Names of files that name the classes, in order of preference."""
NAME_COLUMNS = ("name", "class", "class_name", "label", "category", "classes")
VALUE_COLUMNS = ("value", "pixel value", "pixel_value", "id", "index", "idx", "class_id", "class id")
COLOUR_COLUMNS = (("r", "g", "b"), ("red", "green", "blue"))


def is_class_table(name: str, columns: Mapping[str, Sequence[object]]) -> bool:
    """Return True if a table has the name and the columns of class names and pixel values, and names each class once.
    The values could also be names of images, as in `0.png`."""
    by_lower = {column.strip().lower(): values for column, values in columns.items()}
    names = next((by_lower[column] for column in NAME_COLUMNS if column in by_lower), ())
    has_values = not by_lower.keys().isdisjoint(VALUE_COLUMNS) or any(
        {*channels} <= by_lower.keys() for channels in COLOUR_COLUMNS
    )
    return posixpath.basename(name) in CLASS_FILES and has_values and 0 < len(names) == len(set(names))
