"""Find folders of label files that a Source does not read."""

import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from recordmill.schemas.paths import is_remote
from recordmill.schemas.sizes import first_texts, number_text
from recordmill.transforms.annotated.source import Source
from recordmill.transforms.storage.resolve import join_path, split_folder, storage_for

_NAMES = ("labels", "annotations")
_LISTED = 20_000
_SHOWN = 3


def unread_folders(source: Source) -> Iterator[str]:
    """Yield a warning for each folder `labels` or `annotations` of a data set that has label files and is not read.

    Only the first files of the data set count.
    """
    root = source.path if storage_for(source.path).is_folder(source.path) else split_folder(source.path)[0]
    read = [folder.path for folder in source.folders]
    counts: Counter[str] = Counter()
    for file in islice(storage_for(root).walk(root), _LISTED):
        parts = file.name.split("/")
        depth = next((number for number, part in enumerate(parts[:-1], 1) if part.lower() in _NAMES), 0)
        if depth and source.is_label(file.name):
            counts[join_path(root, "/".join(parts[:depth]))] += 1
    for path, number in sorted(counts.items()):
        if not any(_is_within(path, folder) or _is_within(folder, path) for folder in read):
            yield (
                f"{path} has {number_text(number, 'label file')}, and none is read: images and label files are read "
                f"from {first_texts(read, _SHOWN)}. If they belong to the data set, move them and their images there"
            )


def _is_within(path: str, folder: str) -> bool:
    path, folder = (name if is_remote(name) else os.path.abspath(name) for name in (path, folder))
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")
