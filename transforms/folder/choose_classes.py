"""The classes of images: those that were asked for, or all that there are."""

from collections.abc import Iterable

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.annotations import Category
from recordmill.schemas.errors import CategoryError, NoSuchClassError
from recordmill.schemas.labels import LabelMap
from recordmill.transforms.blocks.pack_block import unpack_block

_MAX_DIGITS = 18
_SHOWN = 10
_SPLITS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval"}


class ListClasses(beam.PTransform):
    """Convert (range, packed Block of image rows) to one LabelMap.

    Args:
        names: the classes by index, or empty for all.
        folders: where classes are folders, those that hold them; for messages.
    """

    def __init__(self, names: tuple[str, ...], folders: tuple[str, ...]):
        super().__init__()
        self._names = names
        self._folders = folders

    def expand(self, rows: PCollection[tuple[int, bytes]]) -> PCollection[LabelMap]:
        return (
            rows
            | "Classes" >> beam.FlatMap(_class_names).with_output_types(str)
            | "Distinct" >> beam.Distinct()
            | "CollectClasses" >> beam.combiners.ToList()
            | "LabelMap" >> beam.Map(class_labels, self._names, self._folders)
        )


def _class_names(keyed: tuple[int, bytes]) -> set[str]:
    return set(unpack_block(keyed[1]).class_name.texts())


def class_labels(found: Iterable[str], names: tuple[str, ...], folders: tuple[str, ...] = ()) -> LabelMap:
    """The classes as a label map whose ids are the indices: `names` in their order, or else the found ones, sorted; as
    numbers where all are numbers.

    Raises:
        NoSuchClassError: none of `names` was found, or one was found only in another case (Cat for cat).
        CategoryError: the names of the folders in `folders` are not likely to be classes.
    """
    found = set(found)
    if names and found and not found & set(names):
        raise NoSuchClassError(f"--classes {','.join(names)}: no image is of these; there are {_some(found)}")
    if folders and not names:
        _check_folders(found, folders)
    ordered = list(names) or sorted(found)
    for name in sorted(set(names) - found):  # which may be right, as a split may lack a class
        for other in sorted(found - set(names)):
            if name.casefold().strip() == other.casefold().strip():
                raise NoSuchClassError(f"--classes {name!r}: no image is of that class; did you mean {other!r}?")
    if not names and all(name.isascii() and name.isdecimal() and len(name) <= _MAX_DIGITS for name in ordered):
        ordered.sort(key=int)
    return LabelMap(tuple(Category(index, name) for index, name in enumerate(ordered)))


def _check_folders(found: set[str], folders: tuple[str, ...]) -> None:
    where, first = " ".join(folders), min(found, default="")
    if found and {name.lower() for name in found} <= _SPLITS:
        raise CategoryError(
            f"the folders in {where} are called {_some(found)}, as splits are, and would become the classes; convert "
            f"each by a run of its own (--images {folders[0]}/{first} --split {first.lower()} …), or, if they are "
            f"classes, give --classes {','.join(sorted(found))}"
        )
    if len(found) == 1:
        raise CategoryError(
            f"all images in {where} are in one folder, {first!r}, so there would be one class; if class folders are "
            f"in that, give --images {folders[0]}/{first}; if it is the only class, --classes {first}"
        )


def _some(names: set[str]) -> str:
    first = sorted(names)[:_SHOWN]
    return ", ".join(map(repr, first)) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
