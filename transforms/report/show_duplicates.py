"""What the page says of pictures that are in a data set more than once, with some of them side by side."""

from collections.abc import Sequence

import msgspec

from recordmill.schemas.duplicates import Agreement, DuplicateGroup, DuplicateImage, Likeness
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.statistics import Example
from recordmill.transforms.report.read_examples import Chosen

GROUPS_SHOWN = 12
_IMAGES_SHOWN = 3
"""Of a group, which may have thousands."""
_ROWS = {
    "leaked": "In another split, too, exactly or nearly",
    "exact": "Exact copies of another image's picture",
    "near": "Near copies of another",
    "labels_differ": "Those of them with other labels there",
}


def chosen_duplicates(groups: Sequence[DuplicateGroup]) -> list[Chosen]:
    """A few images of each group; one of each split first."""
    return [
        (_name(number), image.split, Example(0, 0, image.shard, image.record, image.offset, image.bytes))
        for number, group in enumerate(groups)
        for image in _first_of_splits(group)[:_IMAGES_SHOWN]
    ]


def duplicate_titles(groups: Sequence[DuplicateGroup]) -> dict[str, tuple[str, str]]:
    """Title and explanation of each group, by why its images are chosen."""
    titles = {}
    for number, group in enumerate(groups):
        splits = sorted({image.split for image in group.images})
        what = "The same picture" if group.kind is Likeness.EXACT else "Pictures that look alike"
        meaning = f"{len(group.images):,} images{', with other labels' if group.labels is Agreement.DIFFER else ''}"
        titles[_name(number)] = f"{what} in {' and '.join(splits)}", meaning
    return titles


def duplicate_rows(manifest: Manifest) -> list[tuple[str, ...]]:
    """How many images of each split are there more than once; a split that was not compared has none."""
    if manifest.duplicates is msgspec.UNSET:
        return []
    of = [manifest.duplicates.splits.get(split) for split in manifest.splits]
    rows = [(title, [getattr(each, name) if each else None for each in of]) for name, title in _ROWS.items()]
    return [
        (title, *("" if number is None else f"{number:,}" for number in numbers))
        for title, numbers in rows
        if any(numbers)
    ]


def _name(number: int) -> str:
    return f"duplicates {number}"


def _first_of_splits(group: DuplicateGroup) -> list[DuplicateImage]:
    first = {image.split: image for image in reversed(group.images)}
    return [*sorted(first.values()), *(image for image in group.images if image is not first[image.split])]
