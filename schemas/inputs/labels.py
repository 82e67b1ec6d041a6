"""Label maps: COCO category ids of the source, labels in records, contiguous class indices, names."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

import msgspec

from recordmill.schemas.errors import CategoryError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.annotations import Category

SEMANTIC_THING = 1
SEMANTIC_IGNORE = 255
THINGS = "things"
"""Name of all things together, which have the same value in semantic masks."""
_COCO_STUFF_OFFSET = 90
"""Model Garden's script (official/vision/data/create_coco_tf_record.py) subtracts this from COCO's stuff ids."""


class LabelMap(msgspec.Struct, frozen=True):
    """The classes of a data set; the index of a class is its position. Classes are ordered by category id, unless a
    selection of mapped classes sets the order.

    COCO's ids have gaps: 80 classes have ids in 1..90. Roboflow's ids start at 0, and two may share a name.

    Attributes:
        categories: Categories of objects.
        segments: Categories of semantic and panoptic masks, by id. `categories` may contain them, too.
        has_pixel_ids: True if the id of each of `segments` is its value in semantic masks, as in image and mask pairs.
    """

    categories: tuple[Category, ...]
    segments: tuple[Category, ...] = ()
    has_pixel_ids: bool = False

    @property
    def all(self) -> tuple[Category, ...]:
        """All categories, by id."""
        by_id = {category.id: category for category in (*self.segments, *self.categories)}
        return tuple(by_id[id_] for id_ in sorted(by_id))

    @property
    def keypoints(self) -> int:
        """Maximum number of keypoints of a category."""
        return max((len(category.keypoints) for category in self.categories), default=0)

    def semantic_by_id(self) -> dict[int, int]:
        """Return the value of each category in semantic masks: 1 for every thing, 2 and above for stuff.

        The value of COCO's stuff is id - 90, as in Model Garden. If that does not fit (ids below 92 or above 344),
        stuff categories are numbered from 2, by id. With `has_pixel_ids`, the value is the id.
        """
        if self.has_pixel_ids:
            return {category.id: category.id for category in self.segments}
        stuff = [category.id for category in self.segments if not category.isthing]
        as_coco = all(SEMANTIC_THING < id_ - _COCO_STUFF_OFFSET < SEMANTIC_IGNORE for id_ in stuff)
        values = {id_: id_ - _COCO_STUFF_OFFSET if as_coco else 2 + index for index, id_ in enumerate(stuff)}
        return {category.id: values.get(category.id, SEMANTIC_THING) for category in self.segments}

    def semantic_names(self) -> dict[int, str]:
        """Return the name of each value of semantic masks. All things together have one value."""
        names = {category.id: category.name for category in self.segments}
        things = {} if self.has_pixel_ids else {SEMANTIC_THING: THINGS}
        return {value: names[id_] for id_, value in self.semantic_by_id().items()} | things

    @property
    def is_shifted(self) -> bool:
        """True if labels differ from the category ids. Readers treat label 0 as background, so labels are shifted if a
        category other than the background has id 0 or below."""
        return not self.has_pixel_ids and any(category.id < 1 and not is_background(category) for category in self.all)

    def label_by_id(self) -> dict[int, int]:
        """Return the label of each category; 0 means background. A label is the category id. If labels are shifted, it
        is class index + 1, and segments that are not classes follow."""
        ordered = dict.fromkeys(category.id for category in (*self.categories, *self.segments))
        is_shifted = self.is_shifted
        return {id_: label if is_shifted else id_ for label, id_ in enumerate(ordered, 1)}

    def begins_with(self, other: "LabelMap") -> bool:
        """Return True if these are the classes of `other`, with the same numbers in records, and perhaps further ones.

        >>> cat, dog = Category(1, "cat"), Category(2, "dog")
        >>> LabelMap((cat, dog)).begins_with(LabelMap((cat,))), LabelMap((dog, cat)).begins_with(LabelMap((cat,)))
        (True, False)
        """
        return (
            self.categories[: len(other.categories)] == other.categories
            and self.segments[: len(other.segments)] == other.segments
            and (self.has_pixel_ids == other.has_pixel_ids or not other.segments)
            and other.label_by_id().items() <= self.label_by_id().items()
            and other.semantic_by_id().items() <= self.semantic_by_id().items()
        )

    def index_by_id(self) -> dict[int, int]:
        return {category.id: index for index, category in enumerate(self.categories)}

    def duplicate_names(self) -> tuple[str, ...]:
        """Return the names that several categories share."""
        counts = Counter(category.name for category in self.categories)
        return tuple(sorted(name for name, count in counts.items() if count > 1))


class ExistingLabels(msgspec.Struct, frozen=True):
    """Label map of a data set that gets more splits."""

    labels: LabelMap
    where: str  # other splits and folder of the data set, for messages
    table: FeatureTable | None = None  # features of its records


SAME_CLASSES = "Give the same --classes to each split, with all classes in the order of their labels"


def adopt_labels(labels: LabelMap, beside: ExistingLabels, by_id: bool, cure: str) -> tuple[LabelMap, str]:
    """Return the label map of the data set, and a sentence that names the classes missing in `labels`; empty if none
    are.

    Args:
        labels: Classes of the added splits.
        by_id: True if classes must also have equal ids.
        cure: Fix, for the error.

    Raises:
        CategoryError: The data set lacks a class, or has it with another id.

    >>> known = ExistingLabels(LabelMap((Category(0, "ant"), Category(1, "bee"), Category(2, "cat"))), "train of out")
    >>> adopt_labels(LabelMap((Category(0, "ant"), Category(1, "cat"))), known, False, "")[1]
    "no example is of 'bee'; labels are those of train of out"
    """
    ours, theirs = (
        {(category.id if by_id else 0, category.name): category.name for category in label_map.all}
        for label_map in (labels, beside.labels)
    )
    if unknown := [name for key, name in ours.items() if key not in theirs]:
        renumbered = [name for name in unknown if name in theirs.values()]
        fault = f"no class {_some_names(unknown)}"
        if renumbered:
            fault = f"another id for the class {_some_names(renumbered)}"
        raise CategoryError(f"{beside.where} has {fault}, so labels would differ between splits. {cure}")
    absent = [name for key, name in theirs.items() if key not in ours]
    text = f"no example is of {_some_names(absent)}; labels are those of {beside.where}" if absent else ""
    return beside.labels, text


def _some_names(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_NAMES_SHOWN])) + " …" * (len(names) > _NAMES_SHOWN)


_NAMES_SHOWN = 5


def misread_numbers(labels: LabelMap) -> Iterator[str]:
    """Yield a warning if all class names are integers, and some differ from their labels.

    >>> next(misread_numbers(LabelMap((Category(0, "1"), Category(1, "2"))))).split(" (")[0]
    "labels are class indices from 0, so class '1' has label 0"
    """
    names = [category.name for category in labels.categories]
    if not all(_WHOLE.fullmatch(name) for name in names):
        return
    shifted = [(index, name) for index, name in enumerate(names) if Decimal(name) != index]
    if shifted:
        index, name = shifted[0]
        cure = (
            ""
            if any(Decimal(name) < 0 for name in names)
            else ". To keep the numbers, give --classes with every number from 0 on"
        )
        yield (
            f"labels are class indices from 0, so class {name!r} has label {index} ({len(shifted):,} of {len(names):,} "
            f"labels differ from their class). labels.csv lists both{cure}"
        )


def sorted_names(names: Iterable[str]) -> list[str]:
    """Return the names of classes in the order of their indices: by number if all are numbers, NaN and infinity last.

    >>> sorted_names(["10.0", "2.5", "1e-05", "nan"]), sorted_names(["10", "2", "nan", "b"])
    (['1e-05', '2.5', '10.0', 'nan'], ['10', '2', 'b', 'nan'])
    """
    names = sorted(names)
    finite = [name for name in names if not _NOT_FINITE.fullmatch(name)]
    if not all(map(_NUMBER.fullmatch, finite)):
        return names
    return [*sorted(finite, key=Decimal), *(name for name in names if _NOT_FINITE.fullmatch(name))]


def merge_numbers(names: Iterable[str]) -> dict[str, str]:
    """Return the class of each name that equals another one as a number: 1 for 1.0. That of true and false is a number.

    >>> merge_numbers(["0", "0.0", "2.50", "1.0", "true"])
    {'0': '0', '0.0': '0', '1.0': '1', 'true': '1'}
    """
    by_number: dict[str, list[str]] = {}
    for name in names:
        by_number.setdefault(number_name(name), []).append(name)
    return {
        name: number
        for number, equal in by_number.items()
        for name in equal
        if len(equal) > 1 or name.lower() in _TRUTHS
    }


_TRUTHS = {"false": "0", "true": "1"}


def number_name(name: str) -> str:
    """Return the whole number that a name is, without a fraction; true is 1. Other names are unchanged.

    >>> [number_name(name) for name in ("1.0", "-0.", "1e+22", "False", "007", "1.5")]
    ['1', '0', '10000000000000000000000', '0', '007', '1.5']
    """
    if truth := _TRUTHS.get(name.lower()):
        return truth
    if _PLAIN_NUMBER.fullmatch(name) and (number := Decimal(name)) == number.to_integral_value():
        return str(int(number))
    return name


_PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)([.][0-9]*)?(e[+-]?[0-9]{1,3})?", re.IGNORECASE)


def name_warnings(labels: LabelMap) -> Iterator[str]:
    """Yield warnings of class names that are blank, that are NaN among numbers, or that differ only in case, in the
    separator of words, or in the form of a number.

    >>> next(name_warnings(LabelMap((Category(0, "Hot dog"), Category(1, "hot_dog"))))).split(",")[0]
    "the classes 'Hot dog' and 'hot_dog' may be one"
    """
    if blank := sum(not category.name.strip() for category in labels.categories):
        yield f"{blank:,} of {len(labels.categories):,} classes have a blank name. Name them in the labels"
    not_numbers = [category.name for category in labels.categories if not _NUMBER.fullmatch(category.name)]
    if 0 < len(not_numbers) < len(labels.categories) and all(map(_NOT_FINITE.fullmatch, not_numbers)):
        yield f"the class {not_numbers[0]!r} among numbers may be a missing label. Leave out its images, or rename it"
    groups: dict[str | Decimal, list[str]] = {}
    for category in labels.categories:
        name = unicodedata.normalize("NFKC", category.name).casefold().strip()
        words = Decimal(name) if _NUMBER.fullmatch(name) else _BETWEEN_WORDS.sub(" ", name).strip()
        groups.setdefault(words, []).append(category.name)
    similar = [names for words, names in groups.items() if words != "" and len(set(names)) > 1]
    if similar:
        one, other, *_ = dict.fromkeys(similar[0])
        yield (
            f"the classes {one!r} and {other!r} may be one, as they differ in case, signs or form alone (number of "
            f"such names: {len(similar):,}); all are separate classes. Rename a folder, or fix the "
            "labels, to make them one"
        )


_BETWEEN_WORDS = re.compile(r"[\s_-]+")
_WHOLE = re.compile(r"-?[0-9]{1,18}([.]0*)?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf(inity)?)", re.IGNORECASE)
_NUMBER = re.compile(r"-?[0-9]+([.][0-9]*)?(e[+-][0-9]{1,3})?")


def is_background(category: Category) -> bool:
    """Return True if a category is the background, which 0 means anyway. LabelMe names it `_background_`."""
    return category.id == 0 and category.name.strip("_ ").casefold() == "background"


def label_files(labels: LabelMap, label_by_id: Mapping[int, int]) -> dict[str, str]:
    """Return the label map files by file name.

    Args:
        label_by_id: Number that records store for each category; `label_map.pbtxt` and `labels.csv` contain it.
    """
    named = [(label_by_id[category.id], category) for category in labels.all]
    # labels.csv as Model Garden reads it: label and name, no header.
    rows = "".join(f"{label},{_csv_field(category.name)}\n" for label, category in named)
    files = {"labels.csv": rows, "label_map.json": _label_map_json(labels, label_by_id)}
    if all(label > 0 or is_background(category) for label, category in named):
        files["label_map.pbtxt"] = label_map_pbtxt(named, labels.is_shifted)
    return files


LABEL_FILES = ("label_map.pbtxt", "labels.csv", "label_map.json")
"""File names that `label_files` may return. If a class has label 0, there is no `label_map.pbtxt`: its reader, the
Object Detection API, reserves 0 for the background."""


def label_map_pbtxt(named: Iterable[tuple[int, Category]], is_shifted: bool) -> str:
    """Return `label_map.pbtxt` for the Object Detection API.

    It has no display_name: the API falls back to the name, and Datumaro skips items that have a display_name.
    """
    lines = []
    if is_shifted:
        lines.append("# id = class index + 1: the data set has a category id below 1, and 0 means background here")
    for label, category in named:
        lines.append(f"item {{\n  id: {label}\n  name: {_text_format(category.name)}\n}}")
    return "\n".join(lines) + "\n" if lines else ""


def _label_map_json(labels: LabelMap, label_by_id: Mapping[int, int]) -> str:
    """Return JSON with class indices by category id and the reverse, labels by id, and names by index."""
    contents = {
        "index_by_id": labels.index_by_id(),
        "label_by_id": label_by_id,
        "id_by_index": [category.id for category in labels.categories],
        "name_by_index": [category.name for category in labels.categories],
    }
    if labels.segments:
        contents["semantic_by_id"] = labels.semantic_by_id()
    return json.dumps(contents, indent=2, ensure_ascii=False) + "\n"


def _csv_field(text: str) -> str:
    # csv.writer does not quote a carriage return if lines end in a line feed.
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\r\n') else text


def _text_format(text: str) -> str:
    """Return a string literal of protocol buffers' text format."""
    escapes = {"\\": "\\\\", '"': '\\"', "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(char, char) for char in text) + '"'
