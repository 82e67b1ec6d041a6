"""Label maps: raw COCO category ids, contiguous class indices, names."""

import json
from collections import Counter

import msgspec

from recordmill.schemas.annotations import Category

SEMANTIC_THING = 1
SEMANTIC_IGNORE = 255
_COCO_STUFF_OFFSET = 90
"""Model Garden's script (official/vision/data/create_coco_tf_record.py) subtracts this from COCO's stuff ids."""


class LabelMap(msgspec.Struct, frozen=True):
    """The classes of a data set, ordered by category id; a class's index is its position here.

    COCO's ids have gaps (80 classes on ids 1..90), Roboflow's start at 0 and may give two ids the same name.

    Attributes:
        categories: of objects.
        segments: categories of the regions of semantic and panoptic masks, by id; these may be among `categories`, too.
    """

    categories: tuple[Category, ...]
    segments: tuple[Category, ...] = ()

    @property
    def all(self) -> tuple[Category, ...]:
        """All categories, by id."""
        by_id = {category.id: category for category in (*self.segments, *self.categories)}
        return tuple(by_id[id_] for id_ in sorted(by_id))

    @property
    def keypoints(self) -> int:
        """The largest number of keypoints of a category."""
        return max((len(category.keypoints) for category in self.categories), default=0)

    def semantic_by_id(self) -> dict[int, int]:
        """The value of each category in semantic masks: 1 for every thing, 2 and above for stuff.

        The value of COCO's stuff is id - 90, as in Model Garden. Where that does not fit (ids below 92 or above 344),
        stuff categories are numbered from 2 on, by id.
        """
        stuff = [category.id for category in self.segments if not category.isthing]
        as_coco = all(SEMANTIC_THING < id_ - _COCO_STUFF_OFFSET < SEMANTIC_IGNORE for id_ in stuff)
        values = {id_: id_ - _COCO_STUFF_OFFSET if as_coco else 2 + index for index, id_ in enumerate(stuff)}
        return {category.id: values.get(category.id, SEMANTIC_THING) for category in self.segments}

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
    shifted = any(category.id < 1 and category.name != "background" for category in labels.all)
    lines = []
    if shifted:
        lines.append("# id = class index + 1: the data set uses category id 0, which means background here")
    for index, category in enumerate(labels.categories if shifted else labels.all):
        name = _text_format(category.name)
        label = index + 1 if shifted else category.id
        lines.append(f"item {{\n  id: {label}\n  name: {name}\n  display_name: {name}\n}}")
    return "\n".join(lines) + "\n" if lines else ""


def labels_csv(labels: LabelMap) -> str:
    """`labels.csv` as Model Garden reads it: raw category id and name, no header."""
    return "".join(f"{category.id},{_csv_field(category.name)}\n" for category in labels.all)


def label_map_json(labels: LabelMap) -> str:
    """`label_map.json`: both directions between raw category id and class index, and the names by index."""
    return _indented(
        {
            "index_by_id": {str(id_): index for id_, index in labels.index_by_id().items()},
            "id_by_index": [category.id for category in labels.categories],
            "name_by_index": [category.name for category in labels.categories],
            **({"semantic_by_id": _semantic(labels)} if labels.segments else {}),
        }
    )


def _semantic(labels: LabelMap) -> dict[str, int]:
    return {str(id_): value for id_, value in labels.semantic_by_id().items()}


def _csv_field(text: str) -> str:
    # Not csv.writer, which leaves a carriage return unquoted where lines end in a line feed.
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\r\n') else text


def _text_format(text: str) -> str:
    """A string literal of protocol buffers' text format."""
    escapes = {"\\": "\\\\", '"': '\\"', "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(char, char) for char in text) + '"'


def _indented(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


LABEL_FILES = {
    "label_map.pbtxt": label_map_pbtxt,
    "labels.csv": labels_csv,
    "label_map.json": label_map_json,
}
"""The label maps beside the shards, by their files' names."""
