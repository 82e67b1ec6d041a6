"""Find folders of label files that a Source does not read."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from recordmill.schemas.paths import relative_path
from recordmill.schemas.sizes import first_texts, number_text
from recordmill.transforms.annotated.source import Source
from recordmill.transforms.storage.resolve import join_path, split_folder, storage_for

_NAMES = ("labels", "annotations")
_LISTED = 20_000
_SHOWN = 3


def unread_folders(source: Source) -> Iterator[str]:
    """Yield a warning of the folders `labels` and `annotations` of a data set that have label files and are not read.

    Only the first files of the data set count.
    """
    root = source.path if storage_for(source.path).is_folder(source.path) else split_folder(source.path)[0]
    read = [folder.path for folder in source.folders]
    counts: Counter[str] = Counter()
    for name in islice(storage_for(root).walk_names(root), _LISTED):
        parts = name.split("/")
        depth = next((number for number, part in enumerate(parts[:-1], 1) if part.lower() in _NAMES), 0)
        if depth and source.is_label(name):
            counts[join_path(root, "/".join(parts[:depth]))] += 1
    unread = [
        f"{path} ({number_text(number, 'label file')})"
        for path, number in sorted(counts.items())
        if all(relative_path(*pair) is None for folder in read for pair in ((path, folder), (folder, path)))
    ]
    if unread:
        yield (
            f"folders of label files that are not read: {first_texts(unread, _SHOWN)}. Images and label files are read "
            f"from {first_texts(read, _SHOWN)}. Move them there with their images, if they belong to the data set"
        )
