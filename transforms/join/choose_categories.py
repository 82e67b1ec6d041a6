"""Choose the categories and features that are written."""

import difflib
import shlex
from collections.abc import Iterable, Sequence

import msgspec

from recordmill.schemas.errors import CategoryError, NoSuchClassError
from recordmill.schemas.features import FeatureKind, FeatureTable, Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import AnnotationFile
from recordmill.schemas.inputs.labels import LabelMap, sorted_names
from recordmill.schemas.inputs.option import join_names
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD
from recordmill.schemas.sizes import first_texts

_CATEGORIES_SHOWN, _CLASSES_SHOWN = 20, 10


def choose_features(
    files: Iterable[AnnotationFile],
    labels: LabelMap,
    requested: FeatureTable,
    layout: FeatureTable,
    are_final: bool = True,
) -> FeatureTable:
    """Return the requested features. Add LVIS's lists if a file has them, and category ids if labels differ from them.

    Args:
        are_final: False if the labels will change, see `recordmill.transforms.shape.finish_labels`; category ids are
            then added in any case.

    Raises:
        CategoryError: See `check_label_names`.
    """
    if are_final:
        check_label_names(labels, requested)
    lvis = (Part.LVIS,) if any(file.lvis for file in files) else ()
    category_id = (Part.CATEGORY_ID,) if labels.is_shifted or not are_final else ()
    return layout.with_parts((*requested.parts, *lvis, *category_id))


def check_label_names(labels: LabelMap, requested: FeatureTable) -> None:
    """Raise CategoryError if labels are category names, and two categories have the same name."""
    is_text = any(
        feature.source == requested.label and feature.kind is FeatureKind.BYTES for feature in requested.features
    )
    if is_text and (duplicates := labels.duplicate_names()):
        raise CategoryError(
            f"two categories are called {duplicates[0]!r}, and --label-as text would store one name for both. Leave "
            "--label-as out"
        )


def select_categories(labels: LabelMap, names: tuple[str, ...], is_added: bool = False) -> LabelMap:
    """Return the classes with these names; all if `names` is empty. Segments are unchanged.

    Args:
        is_added: True for images that are added to a data set, which may lack classes.

    Raises:
        NoSuchClassError: No category has one of the names. The message lists all unknown names.
    """
    known = {category.name for category in labels.categories}
    if fault := comma_fault("--categories", names, known):
        raise NoSuchClassError(fault)
    if unknown := [name for name in names if name not in known and not is_added]:
        raise NoSuchClassError("; ".join(_describe_unknown(name, known) for name in unknown))
    selected = tuple(category for category in labels.categories if not names or category.name in names)
    return msgspec.structs.replace(labels, categories=selected)


def comma_fault(flag: str, names: Sequence[str], known: set[str]) -> str:
    """Return the error of a class name with a comma that was read as several names; "" without one."""
    unknown = {*names} - known
    for name in sorted(known):
        parts = [part.strip() for part in name.split(",") if part.strip()]
        if len(parts) > 1 and {*parts} <= unknown:
            fixed = dict.fromkeys(name if part in parts else part for part in names)
            return (
                f"{flag}: no class is called {' or '.join(map(repr, parts))}, but one is called {name!r}. Quote a name "
                f"with a comma: {flag} {shlex.quote(join_names(fixed))}"
            )
    return ""


def _describe_unknown(name: str, known: set[str]) -> str:
    if near := difflib.get_close_matches(name, known, 1):
        hint = f"Did you mean {near[0]!r}?"
    else:
        hint = f"The categories are {first_texts(sorted(known), _CATEGORIES_SHOWN) or 'none'}"
    return f"--categories {name!r}: no category has this name. {hint}"


def class_labels(
    observed: Iterable[str], names: tuple[str, ...], folders: tuple[str, ...] = (), is_added: bool = False
) -> LabelMap:
    """Return the classes with indices as ids: `names` in their order; without `names` the observed classes, sorted, as
    numbers if all are numbers.

    Args:
        observed: Classes of the images.
        folders: Folders of the class folders; empty if classes are not folders.
        is_added: True for images that are added to a data set, which may have one class.

    Raises:
        NoSuchClassError: No image has a class of `names`, or its class has another case (Cat for cat).
        CategoryError: The names of the class folders are probably not classes.
    """
    classes = set(observed)
    if fault := comma_fault("--classes", names, classes):
        raise NoSuchClassError(fault)
    if names and classes and not classes & set(names):
        raise NoSuchClassError(
            f"--classes {join_names(names)}: no image has one of these classes; the classes are "
            f"{_quote_classes(classes)}"
        )
    if folders and not names:
        _check_folders(classes, folders, is_added)
    ordered = names or sorted_names(classes)
    for name in sorted(set(names) - classes):  # not an error by itself: a split may lack a class
        for candidate in sorted(classes - set(names)):
            if name.casefold().strip() == candidate.casefold().strip():
                raise NoSuchClassError(f"--classes {name!r}: no image has this class. Did you mean {candidate!r}?")
    return LabelMap(tuple(Category(index, name) for index, name in enumerate(ordered)))


def _check_folders(classes: set[str], folders: tuple[str, ...], is_added: bool) -> None:
    paths, first = " ".join(folders), min(classes, default="")
    command = f"recordmill convert {shlex.quote(f'{folders[0]}/{first}')}"
    if classes and {name.lower() for name in classes} <= SPLIT_OF_WORD.keys():
        raise CategoryError(
            f"the folders in {paths} have the names of splits, {_quote_classes(classes)}, and would become the "
            f"classes. Convert each by its own command, {command} -o OUT --split {first.lower()} (with --labels FILE, "
            "or --label-from name for names like cat_1.jpg, if there are no class folders in it), or, if they are "
            f"classes, give --classes {shlex.quote(join_names(sorted(classes)))}"
        )
    if len(classes) == 1 and not is_added:
        raise CategoryError(
            f"all images in {paths} are in one folder, {first!r}, so there would be one class. If that folder contains "
            f"the class folders, convert it by {command} -o OUT. If it is the only class, give --classes "
            f"{shlex.quote(join_names([first]))}"
        )


def _quote_classes(names: set[str]) -> str:
    return first_texts(map(repr, sorted(names)), _CLASSES_SHOWN)
