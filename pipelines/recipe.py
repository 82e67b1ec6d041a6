"""What decides the bytes of a split, written down: the manifest keeps it, and an interrupted run is known by it."""

import base64

import google_crc32c
from msgspec.structs import astuple

from pipelines.options import CocoOptions
from schemas.coco import AnnotationSource
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
        options.table.parts,
        tuple(map(_input_file, sorted(options.sources, key=astuple))),
        tuple(sorted(options.images)),
        options.record_options,
    )


def _input_file(source: AnnotationSource) -> InputFile:
    path = source.path
    checksum, size = google_crc32c.Checksum(), 0
    with storage_for(path).open(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            checksum.update(chunk)
            size += len(chunk)
    return InputFile(source.kind, path, size, base64.b64encode(checksum.digest()).decode(), source.masks)
