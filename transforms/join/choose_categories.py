"""Choose the categories and features that are written."""

import difflib
from collections.abc import Iterable

import msgspec

from recordmill.schemas.errors import CategoryError, NoSuchClassError
from recordmill.schemas.features import FeatureKind, FeatureTable, Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import AnnotationFile
from recordmill.schemas.inputs.labels import LabelMap, sorted_names
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD
from recordmill.schemas.sizes import first_texts

_NAMES_SHOWN, _SHOWN = 20, 10


def choose_features(
    files: Iterable[AnnotationFile], labels: LabelMap, asked: FeatureTable, layout: FeatureTable
) -> FeatureTable:
    """Return the requested features. Add LVIS's lists if a file has them, and category ids if labels differ from them.

    Raises:
        CategoryError: Labels are category names, and two categories have the same name.
    """
    is_text = any(feature.source == asked.label and feature.kind is FeatureKind.BYTES for feature in asked.features)
    if is_text and (twice := labels.duplicate_names()):
        raise CategoryError(
            f"two categories are called {twice[0]!r}, and --label-as text would store one name for both; leave it out"
        )
    lvis = (Part.LVIS,) if any(file.lvis for file in files) else ()
    category_id = (Part.CATEGORY_ID,) if labels.is_shifted else ()
    return layout.with_parts((*asked.parts, *lvis, *category_id))


def select_categories(labels: LabelMap, names: tuple[str, ...]) -> LabelMap:
    """Return the classes with these names; all if `names` is empty. Segments are unchanged.

    Raises:
        NoSuchClassError: No category has one of the names. The message lists all unknown names.
    """
    known = {category.name for category in labels.categories}
    if unknown := [name for name in names if name not in known]:
        raise NoSuchClassError("; ".join(_no_category(name, known) for name in unknown))
    selected = tuple(category for category in labels.categories if not names or category.name in names)
    return msgspec.structs.replace(labels, categories=selected)


def _no_category(name: str, known: set[str]) -> str:
    if near := difflib.get_close_matches(name, known, 1):
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = f"there are: {first_texts(sorted(known), _NAMES_SHOWN) or 'none'}"
    return f"--categories {name!r}: no category has that name; {hint}"


def class_labels(found: Iterable[str], names: tuple[str, ...], folders: tuple[str, ...] = ()) -> LabelMap:
    """Return the classes with indices as ids: `names` in their order; without `names` the found classes, sorted, as
    numbers if all are numbers.

    Raises:
        NoSuchClassError: none of `names` was found, or one was found only in another case (Cat for cat).
        CategoryError: the names of the folders in `folders` are not likely to be classes.
    """
    found = set(found)
    if names and found and not found & set(names):
        raise NoSuchClassError(f"--classes {','.join(names)}: no example is of these; there are {_some(found)}")
    if folders and not names:
        _check_folders(found, folders)
    ordered = names or sorted_names(found)
    for name in sorted(set(names) - found):  # which may be right, as a split may lack a class
        for other in sorted(found - set(names)):
            if name.casefold().strip() == other.casefold().strip():
                raise NoSuchClassError(f"--classes {name!r}: no example is of that class; did you mean {other!r}?")
    return LabelMap(tuple(Category(index, name) for index, name in enumerate(ordered)))


def _check_folders(found: set[str], folders: tuple[str, ...]) -> None:
    where, first = " ".join(folders), min(found, default="")
    if found and {name.lower() for name in found} <= SPLIT_OF_WORD.keys():
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
    return first_texts(map(repr, sorted(names)), _SHOWN)
