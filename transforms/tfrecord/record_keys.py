"""Keys in the records of other tools. A role is the name of a key in the Object Detection API."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

IMAGE, NAME, ID, WIDTH, HEIGHT = "image/encoded", "image/filename", "image/source_id", "image/width", "image/height"
EDGES = tuple(f"image/object/bbox/{edge}" for edge in ("xmin", "ymin", "xmax", "ymax"))
XYWH, YXYX = "bbox", "objects/bbox"
BOXES = (XYWH, YXYX)
"""Boxes in one key: x, y, width, height in pixels, as in keras' recipe; ymin, xmin, ymax, xmax as fractions, as in
TFDS."""
TEXT, LABEL = "image/object/class/text", "image/object/class/label"
TAG_TEXT, TAG_LABEL = "image/class/text", "image/class/label"
OBJECT_ID, AREA, CROWD, GROUP = (f"image/object/{name}" for name in ("id", "area", "is_crowd", "group_of"))
MASK, MASK_RLE = "image/object/mask", "image/object/mask/rle"
POINT_X, POINT_Y, POINT_V = (f"image/object/keypoint/{name}" for name in ("x", "y", "visibility"))
FIELDS = {f"image/object/{name}": name for name in ("difficult", "truncated", "view", "track_id")}
"""Well-known fields of objects."""
CAPTION = "image/caption"
ROLES = (
    *(IMAGE, NAME, ID, WIDTH, HEIGHT, *EDGES, TEXT, LABEL, TAG_TEXT, TAG_LABEL, OBJECT_ID, AREA, CROWD, GROUP),
    *(MASK, MASK_RLE, POINT_X, POINT_Y, POINT_V, *FIELDS, CAPTION),
)
"""Keys of the Object Detection API that are read, and those that our records add."""
_NOT_READ = frozenset(
    (
        *("image/format", "image/key/sha256", "image/channels", "image/object/keypoint/num"),
        *("image/object/keypoint/text", "image/object/class/index", "class_index", "image/object/bbox/label"),
        *("image/object/category_id", "objects/category_id"),
    )
)
"""Keys whose values follow from those of other keys."""


_UNREAD = "unread"
"""Role of keys that `--keys` leaves out."""


class RecordKeys(NamedTuple):
    """Names of keys in the records of a data set.

    Attributes:
        layout: Name of the layout.
        names: Keys of each role. The first one that a record has counts.
        objects: Prefix of the keys of objects' fields; empty if a record is one object with all fields.
    """

    layout: str
    names: Mapping[str, tuple[str, ...]]
    objects: str

    def field(self, name: str, objects: int, length: int) -> tuple[bool, str] | None:
        """Return True for a field of objects, and the path of the field; None for a key that is read, or unused.

        Args:
            objects: Number of objects of the record.
            length: Number of values.
        """
        if name in _NOT_READ or any(name in names for names in self.names.values()):
            return None
        if self.layout == "keras":
            return True, name
        if name.startswith(self.objects):
            return (objects > 0 and length % objects == 0), name.removeprefix(self.objects)
        return False, name.removeprefix("image/")


_API = {role: (role,) for role in ROLES} | {
    LABEL: (LABEL, "image/object/bbox/label", "image/object/category_id"),  # ImageNet's script; records of ours
}
_KERAS = {
    IMAGE: "image",
    NAME: "path",
    ID: "image_id",
    XYWH: "bbox",
    AREA: "area",
    LABEL: "category_id",
    OBJECT_ID: "id",
}
_TFDS = {
    IMAGE: "image",
    NAME: "image/filename",
    ID: "image/id",
    YXYX: "objects/bbox",
    LABEL: "objects/label",
    OBJECT_ID: "objects/id",
    AREA: "objects/area",
    CROWD: "objects/is_crowd",
    "image/object/difficult": "objects/is_difficult",
    "image/object/truncated": "objects/is_truncated",
}
_TFDS_CLASSES = {IMAGE: ("image",), TAG_LABEL: ("label",), NAME: ("image/filename", "file_name"), ID: ("id",)}


def _single(names: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    return {role: (name,) for role, name in names.items()}


_LAYOUTS = {
    "keras": RecordKeys("keras", _single(_KERAS), ""),
    "tfds": RecordKeys("tfds", _single(_TFDS), "objects/"),
    "tfds classes": RecordKeys("tfds classes", _TFDS_CLASSES, "objects/"),
}
_MARKS = {"keras": ("image", "bbox"), "tfds": ("image", "objects/bbox"), "tfds classes": ("image", "label")}
"""Keys by which a layout is recognised."""
API = RecordKeys("detection", _API, "image/object/")


def choose_keys(names: Collection[str], given: Mapping[str, str] = MappingProxyType({})) -> RecordKeys:
    """Return the names of keys in records that have these names.

    Args:
        given: Value of `--keys`.

    >>> choose_keys({"image", "path", "bbox", "category_id"}).names["image/filename"]
    ('path',)
    >>> choose_keys({"img"}, {"image/encoded": "img", "image/filename": ""}).names["image/filename"]
    ()
    """
    layouts = (layout for name, layout in _LAYOUTS.items() if {*_MARKS[name]} <= {*names})
    keys = API if IMAGE in names else next(layouts, API)
    unread = tuple(other for role, name in given.items() if not name for other in keys.names.get(role, ()))
    named = {role: (name,) if name else () for role, name in given.items()}
    return keys._replace(names={**keys.names, **named, _UNREAD: unread})
