"""The classes of images: those that were asked for, or all that there are."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.annotations import Category
from recordmill.schemas.errors import CategoryError, NoSuchClassError
from recordmill.schemas.images import ImageTask, JoinSide
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.rejects import Count, Metric
from recordmill.transforms.runtime import coders  # noqa: F401  for the coder of ImageTask
from recordmill.transforms.runtime.outputs import COUNTED

_MAX_DIGITS = 18
_SHOWN = 10
_SPLITS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval"}


class ListClasses(beam.PTransform):
    """(name, JoinSide) of image rows become one LabelMap.

    Args:
        names: the classes by index, or empty for all.
        folders: where classes are folders, those that hold them; for messages.
    """

    def __init__(self, names: tuple[str, ...], folders: tuple[str, ...]):
        super().__init__()
        self._names = names
        self._folders = folders

    def expand(self, rows: PCollection[tuple[str, JoinSide]]) -> PCollection[LabelMap]:
        return (
            rows
            | "Class" >> beam.FlatMap(_class_name).with_output_types(str)
            | "Distinct" >> beam.Distinct()
            | "CollectClasses" >> beam.combiners.ToList()
            | "LabelMap" >> beam.Map(class_labels, self._names, self._folders)
        )


def _class_name(named: tuple[str, JoinSide]) -> Iterator[str]:
    _, match = named
    if match.image and match.image.labels.class_name is not None:
        yield match.image.labels.class_name


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


class ChosenImages(NamedTuple):
    """What ChooseClasses gives.

    Attributes:
        tasks: ImageTask.
        counted: (split, Count), of images of other classes.
    """

    tasks: PCollection
    counted: PCollection


class ChooseClasses(beam.PTransform):
    """ImageTask become ChosenImages; `names` are the classes that are wanted, or empty for all."""

    def __init__(self, names: tuple[str, ...]):
        super().__init__()
        self._names = frozenset(names)

    def expand(self, tasks: PCollection[ImageTask]):
        choose = beam.FlatMap(_choose, self._names).with_output_types(ImageTask)
        chosen = tasks | "Choose" >> choose.with_outputs(COUNTED, main="tasks")
        return ChosenImages(chosen.tasks, chosen[COUNTED])


def _choose(task: ImageTask, names: frozenset[str]) -> Iterator[Any]:
    if names and task.labels.class_name not in names:
        yield TaggedOutput(COUNTED, (task.split, Count(Metric.OF_OTHER_CLASSES, 1)))
    else:
        yield task
