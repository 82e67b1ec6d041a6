"""Are there pictures of classes in a bucket? Looked at in a sample: the whole is for the job to list."""

import logging
from itertools import islice

from recordmill.pipelines.options.folder_options import LabelledOptions
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.image_labels import is_image_name
from recordmill.transforms.storage.interface import is_remote

_LOGGER = logging.getLogger(__name__)

_SAMPLE = 1000
"""Files of a folder that are looked at: a page of a bucket's listing."""


def check_sample(options: LabelledOptions) -> None:
    """Look at the first files of each folder in a bucket; warn of one without a picture of a class among them.

    Raises:
        ConfigError: these were all the files, so the job would start its machines for nothing.
    """
    folders = [folder for folder in options.images if is_remote(folder)]
    looked_at = {folder: _sample(folder) for folder in folders}
    without = {folder: why for folder in folders if (why := _fault(options, looked_at[folder]))}
    if len(without) == len(options.images) and all(len(names) < _SAMPLE for names in looked_at.values()):
        raise ConfigError(
            "; ".join(f"--images {folder} has no picture of a class: {why}" for folder, why in without.items())
        )
    for folder, why in without.items():
        _LOGGER.warning("--images %s: no picture of a class among its first %s files: %s", folder, f"{_SAMPLE:,}", why)


def _sample(folder: str) -> list[str]:
    from recordmill.transforms.images.list_images import list_images

    return [name for name, _ in islice(list_images(folder), _SAMPLE)]


def _fault(options: LabelledOptions, names: list[str]) -> str:
    """Why none of the files is an image of a class; empty if one is."""
    from recordmill.transforms.folder.label_paths import path_fault

    images = list(filter(is_image_name, names))
    faults = [path_fault(name, options.path_labels, options.division) for name in images]
    if images and not all(faults):
        return ""
    return next((fault[1] for fault in faults if fault), _no_image(names))


def _no_image(names: list[str]) -> str:
    return f"{names[0]!r} is not called as pictures are" if names else "it is empty"
