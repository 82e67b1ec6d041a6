"""Label files that annotate the same images, as text."""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import numpy as np

from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.names import name_key
from recordmill.schemas.sizes import first_texts, number_text

_SHOWN = 5


def describe_versions(images: Mapping[str, Callable[[], Iterable[str]]]) -> tuple[str, str]:
    """Return label files with their numbers of images, as text; and the file with most images, of several the last.

    Args:
        images: Function that returns the names of the images, by label file. It is called for the first five files.

    >>> describe_versions({"a.json": lambda: ["1.jpg", "2.jpg"], "b.json": lambda: ["2.jpg"]})
    ('a.json (2 images, 1 shared), b.json (1 image, 1 shared)', 'a.json')
    """
    ids = {
        file: np.unique(np.fromiter((name_id(name_key(name)) for name in names()), np.int64))
        for file, names in islice(images.items(), _SHOWN)
    }
    every, numbers = np.unique(np.concatenate([*ids.values()]), return_counts=True)
    shared = {file: int(np.isin(file_ids, every[numbers > 1]).sum()) for file, file_ids in ids.items()}
    texts = [f"{file} ({number_text(len(ids[file]), 'image')}, {number:,} shared)" for file, number in shared.items()]
    most = max(map(len, ids.values()))
    largest = [file for file, file_ids in ids.items() if len(file_ids) == most][-1]
    return first_texts([*texts, *list(images)[_SHOWN:]], _SHOWN), largest
