"""What decides the bytes of a split, written down: the manifest keeps it, and an interrupted run is known by it."""

import base64

import google_crc32c

from pipelines.options import CocoOptions
from schemas.manifest import FORMAT, InputFile, Recipe
from transforms.storage import storage_for

_CHUNK_BYTES = 1 << 22


def coco_recipe(options: CocoOptions) -> Recipe:
    """What decides the bytes of the split that the options ask for."""
    return Recipe(
        FORMAT,
        options.name,
        options.split,
        options.layout,
        tuple(_input_file(path) for path in sorted(options.instances)),
        tuple(sorted(options.images)),
        options.record_options,
    )


def _input_file(path: str) -> InputFile:
    checksum, size = google_crc32c.Checksum(), 0
    with storage_for(path).open(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            checksum.update(chunk)
            size += len(chunk)
    return InputFile(path, size, base64.b64encode(checksum.digest()).decode())
