"""Panoptic annotations find their PNGs."""

from collections.abc import Iterable, Iterator, Mapping

import apache_beam as beam
import msgspec
from apache_beam.pvalue import PCollection

from recordmill.schemas.annotations import AnnotatedImage, PanopticAnnotation
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.images import NO_FILE, NOT_A_FILE, ImageRef
from recordmill.schemas.limits import MAX_FILE_BYTES
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.join.list_images import ListParts, list_images
from recordmill.transforms.runtime import progress
from recordmill.transforms.storage.interface import NameRange
from recordmill.transforms.storage.resolve import archive_of, join_path, storage_for

MaskFiles = Mapping[str, list[ImageRef]]
"""Files by the key of their path."""


class ListMasks(beam.PTransform):
    """Convert paths of folders to one MaskFiles of all files in them."""

    def expand(self, folders: PCollection[str]) -> PCollection[MaskFiles]:
        listed = beam.FlatMap(_list).with_output_types(tuple[str, ImageRef])
        parts = folders | "ListMaskParts" >> ListParts()
        names = parts | "ListMaskFolder" >> listed | "CollectMasks" >> beam.combiners.ToList()
        return names | "ByName" >> beam.Map(_by_name)


def _list(listed: tuple[str, tuple[str, str]]) -> Iterator[tuple[str, ImageRef]]:
    progress.set_step("listing masks")
    folder, bounds = listed
    for name, file in list_images(folder, part=NameRange(*bounds)):
        yield name_key(join_path(folder, name)), file


def _by_name(listed: Iterable[tuple[str, ImageRef]]) -> dict[str, list[ImageRef]]:
    files: dict[str, list[ImageRef]] = {}
    for name, file in listed:
        files.setdefault(name, []).append(file)
    return files


def match_mask(image: AnnotatedImage, files: MaskFiles | None) -> tuple[AnnotatedImage, Rejected | None]:
    """Give a panoptic annotation its PNG. Without a PNG the annotation is rejected, and the image stays.

    Args:
        files: None to take each PNG to be where the JSON has it.

    Raises:
        CollidingImagesError: two files have the name.
    """
    if files is None or not image.labels.panoptic:
        return image, None
    (panoptic,) = image.labels.panoptic
    found = files.get(name_key(panoptic.path), [])
    if len(found) > 1:
        paths = " and ".join(sorted(file.path for file in found))
        raise CollidingImagesError(f"the panoptic PNG of one name is both {paths}; rename one")
    file = found[0] if found else _in_archive(panoptic.path)
    fault = _fault(file)
    matched: tuple[PanopticAnnotation, ...] = ()
    if file and not fault:
        matched = (PanopticAnnotation(file.path, panoptic.file_name, panoptic.segments, file.size_bytes, file.version),)
    labels = msgspec.structs.replace(image.labels, panoptic=matched)
    reject = None
    if fault:
        reason, detail = fault
        reject = Rejected("annotation", None, reason, f"{panoptic.file_name!r}: {detail}", image.image.id)
    return msgspec.structs.replace(image, labels=labels), reject


def _in_archive(path: str) -> ImageRef | None:
    """A member that goes by another name than it is listed by, see `ZipStorage`."""
    found = storage_for(path).stat(path) if archive_of(path) else None
    return ImageRef(path, found.size_bytes, found.version) if found else None


def _fault(file: ImageRef | None) -> tuple[Reason, str] | None:
    if file is None:
        return Reason.MASK_MISSING, "no such file under --panoptic-masks"
    if file.version == NO_FILE:
        return Reason.MASK_MISSING, NOT_A_FILE
    if file.size_bytes > MAX_FILE_BYTES:
        return Reason.MASK_UNREADABLE, f"{file.size_bytes:,} bytes, where at most {MAX_FILE_BYTES:,} are read"
    return None
