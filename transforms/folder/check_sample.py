"""The first files of a bucket, before a job starts its machines."""

import logging
from itertools import islice

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.image_labels import is_image_name
from recordmill.transforms.folder.choose_classes import path_fault
from recordmill.transforms.folder.folder_options import LabelledOptions
from recordmill.transforms.join.list_images import list_images
from recordmill.transforms.storage.interface import is_remote

_LOGGER = logging.getLogger(__name__)

_SAMPLE = 1000  # files, a page of a bucket's listing


def check_sample(options: LabelledOptions) -> None:
    """Read the first names of each folder in a bucket; warn if none is an image of a class.

    Raises:
        ConfigError: these are all the files, so the job would start its machines for nothing.
    """
    folders = [folder for folder in options.images if is_remote(folder)]
    seen = {folder: [name for name, _ in islice(list_images(folder), _SAMPLE)] for folder in folders}
    without = {folder: why for folder in folders if (why := _sample_fault(options, seen[folder]))}
    if len(without) == len(options.images) and all(len(names) < _SAMPLE for names in seen.values()):
        raise ConfigError("; ".join(f"--images {path} has no image of a class: {why}" for path, why in without.items()))
    for folder, why in without.items():
        _LOGGER.warning("--images %s: no image of a class among its first %s files: %s", folder, f"{_SAMPLE:,}", why)


def _sample_fault(options: LabelledOptions, names: list[str]) -> str:
    """Return why no file is an image of a class; empty if one is."""
    images = list(filter(is_image_name, names))
    if not images:
        return f"{names[0]!r} has no suffix of an image format" if names else "it is empty"
    faults = [path_fault(name, options.path_labels, options.division) for name in images]
    return faults[0][1] if faults[0] and all(faults) else ""
