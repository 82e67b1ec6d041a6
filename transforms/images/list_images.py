"""Image folders become (name, JoinSide) for each file below them."""

import logging
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.images import ImageRef, JoinSide
from recordmill.schemas.names import name_key
from recordmill.transforms.runtime import coders, progress  # noqa: F401  coders: for the coder of JoinSide
from recordmill.transforms.storage.resolve import storage_for

_LOGGER = logging.getLogger(__name__)


class ListImages(beam.PTransform):
    """Paths of folders become (name, JoinSide)."""

    def expand(self, folders: PCollection[str]) -> PCollection[tuple[str, JoinSide]]:
        return folders | "ListFolder" >> beam.FlatMap(_list).with_output_types(tuple[str, JoinSide])


def _list(folder: str) -> Iterator[tuple[str, JoinSide]]:
    progress.set_step("listing images")
    for name, file in list_images(folder):
        yield name, JoinSide(file=file)


def list_images(folder: str) -> Iterator[tuple[str, ImageRef]]:
    """All files below `folder` by their `recordmill.schemas.names.name_key`, relative to it.

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
