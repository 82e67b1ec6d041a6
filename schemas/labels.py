"""Label maps: raw COCO category ids, contiguous class indices, names."""

import json
from collections import Counter

import msgspec

from schemas.coco import Category


class LabelMap(msgspec.Struct, frozen=True):
    """The classes of a data set, ordered by category id; a class's index is its place here.

    COCO's ids have gaps (80 classes on ids 1..90), Roboflow's start at 0 and may give two ids the same name.
    """

    categories: tuple[Category, ...]

    def index_by_id(self) -> dict[int, int]:
        return {category.id: index for index, category in enumerate(self.categories)}

    def name_by_id(self) -> dict[int, str]:
        return {category.id: category.name for category in self.categories}

    def duplicate_names(self) -> tuple[str, ...]:
        """Names that more than one category has."""
        counts = Counter(category.name for category in self.categories)
        return tuple(sorted(name for name, count in counts.items() if count > 1))


def label_map_pbtxt(labels: LabelMap) -> str:
    """`label_map.pbtxt` as the Object Detection API reads it.

    Its ids start at 1 (0 is the background), so where the data set uses id 0 for a class, all ids here are class
    index + 1.
    """
    shifted = any(category.id < 1 and category.name != "background" for category in labels.categories)
    lines = []
    if shifted:
        lines.append(
            "# id = image/object/class/index + 1: the data set uses category id 0, which means background here"
        )
    for index, category in enumerate(labels.categories):
        name = _text_format(category.name)
        label = index + 1 if shifted else category.id
        lines.append(f"item {{\n  id: {label}\n  name: {name}\n  display_name: {name}\n}}")
    return "\n".join(lines) + "\n" if lines else ""


def labels_csv(labels: LabelMap) -> str:
    """`labels.csv` as Model Garden reads it: raw category id and name, no header."""
    return "".join(f"{category.id},{_csv_field(category.name)}\n" for category in labels.categories)


def label_map_json(labels: LabelMap) -> str:
    """`label_map.json`: both directions between raw category id and class index, and the names by index."""
    return _indented(
        {
            "index_by_id": {str(id_): index for id_, index in labels.index_by_id().items()},
            "id_by_index": [category.id for category in labels.categories],
            "name_by_index": [category.name for category in labels.categories],
        }
    )


def _csv_field(text: str) -> str:
    # Not csv.writer, which leaves a carriage return unquoted where lines end in a line feed.
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\r\n') else text


def _text_format(text: str) -> str:
    """A string literal of protocol buffers' text format."""
    escapes = {"\\": "\\\\", '"': '\\"', "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(char, char) for char in text) + '"'


def _indented(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
