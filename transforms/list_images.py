"""Image folders become (name, NameMatch) for each file below them."""

import logging
from collections.abc import Iterator

import apache_beam as beam

from schemas.images import ImageRef, NameMatch
from schemas.names import name_key
from transforms import coders, progress  # noqa: F401  coders registers that of NameMatch
from transforms.storage import storage_for

_LOGGER = logging.getLogger(__name__)


class ListImages(beam.PTransform):
    """Paths of folders become (name, NameMatch)."""

    def expand(self, folders):
        return folders | "ListFolder" >> beam.FlatMap(_list).with_output_types(tuple[str, NameMatch])


def _list(folder: str) -> Iterator[tuple[str, NameMatch]]:
    progress.entered("listing images")
    for name, file in list_images(folder):
        yield name, NameMatch(file=file)


def list_images(folder: str) -> Iterator[tuple[str, ImageRef]]:
    """All files below `folder` by their `schemas.names.name_key`, relative to it.

    Names that are not UTF-8 are passed over with a warning, as no JSON file can name them.
    """
    _LOGGER.info("Listing %s", folder)
    for file in storage_for(folder).walk(folder):
        try:
            file.path.encode()
        except UnicodeEncodeError:
            _LOGGER.warning("%r is passed over: its name is not UTF-8", file.path)
            continue
        yield name_key(file.name), ImageRef(file.path, file.size_bytes, file.version)
