"""Panoptic annotations and their PNGs are joined by name, as images and their files are."""

from collections.abc import Iterable, Iterator

import apache_beam as beam
import msgspec
from apache_beam.pvalue import PCollection

from recordmill.schemas.annotations import PanopticAnnotation
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.images import NO_FILE, NOT_A_FILE, ImageNotes, ImageRef, JoinSide
from recordmill.schemas.limits import MAX_FILE_BYTES
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.images.list_images import ListParts, list_images
from recordmill.transforms.runtime import coders, progress  # noqa: F401  coders: for the coder of JoinSide
from recordmill.transforms.storage.interface import NameRange
from recordmill.transforms.storage.resolve import archive_of, storage_for


class ListMasks(beam.PTransform):
    """Paths of folders become (key of the path, JoinSide) of the files in them."""

    def expand(self, folders: PCollection[str]) -> PCollection[tuple[str, JoinSide]]:
        listed = beam.FlatMap(_list).with_output_types(tuple[str, JoinSide])
        return folders | "ListMaskParts" >> ListParts() | "ListMaskFolder" >> listed


def _list(listed: tuple[str, tuple[str, str]]) -> Iterator[tuple[str, JoinSide]]:
    progress.set_step("listing masks")
    folder, bounds = listed
    for name, file in list_images(folder, part=NameRange(*bounds)):
        yield name_key(storage_for(folder).join(folder, name)), JoinSide(file=file)


class MatchMasks(beam.PTransform):
    """Two PCollections, (name, JoinSide) of image rows and what ListMasks gives, become (name, JoinSide) of image rows:
    each panoptic annotation with its PNG, and no other."""

    def expand(self, sides):
        images, masks = sides
        side = tuple[str, JoinSide]
        plain = images | "WithoutMask" >> beam.FlatMap(_without_mask).with_output_types(side)
        keyed = images | "KeyByMask" >> beam.FlatMap(_by_mask).with_output_types(side)
        matched = (
            (keyed, masks)
            | "BothSides" >> beam.Flatten()
            | "GroupByMask" >> beam.GroupByKey()  # (key of the path, [JoinSide])
            | "Match" >> beam.FlatMap(_match).with_output_types(side)
        )
        return (plain, matched) | "Images" >> beam.Flatten()


def _without_mask(named: tuple[str, JoinSide]) -> Iterator[tuple[str, JoinSide]]:
    if not named[1].row.labels.panoptic:
        yield named


def _by_mask(named: tuple[str, JoinSide]) -> Iterator[tuple[str, JoinSide]]:
    for panoptic in named[1].row.labels.panoptic:
        yield name_key(panoptic.path), named[1]


def _match(group: tuple[str, Iterable[JoinSide]]) -> Iterator[tuple[str, JoinSide]]:
    _, sides = group
    return ((name_key(side.row.image.file_name), side) for side in match_masks(sides))


def match_masks(sides: Iterable[JoinSide]) -> Iterator[JoinSide]:
    """The image rows whose panoptic annotation names one PNG, and the files of that name.

    Without a file the annotation is rejected, in the image's notes, and the image stays.

    Raises:
        CollidingImagesError: two files have the name.
    """
    sides = list(sides)
    files = [side.file for side in sides if not side.image and side.file]
    if len(files) > 1 and len(sides) > len(files):
        paths = " and ".join(sorted(file.path for file in files))
        raise CollidingImagesError(f"the panoptic PNG of one name is both {paths}; rename one")
    for side in sides:
        if side.image:
            (panoptic,) = side.image.labels.panoptic
            found = files[0] if files else _in_archive(panoptic.path)
            fault = _fault(found)
            matched = () if fault or not found else (_with_file(panoptic, found),)
            labels = msgspec.structs.replace(side.image.labels, panoptic=matched)
            image = msgspec.structs.replace(side.image, labels=labels)
            yield msgspec.structs.replace(side, image=image, notes=_with_fault(side, panoptic, fault))


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


def _with_fault(side: JoinSide, panoptic: PanopticAnnotation, fault: tuple[Reason, str] | None) -> ImageNotes:
    if not fault:
        return side.notes
    reason, detail = fault
    reject = Rejected("annotation", None, reason, f"{panoptic.file_name!r}: {detail}", side.row.image.id)
    return msgspec.structs.replace(side.notes, rejected=(*side.notes.rejected, reject))


def _with_file(panoptic: PanopticAnnotation, file: ImageRef) -> PanopticAnnotation:
    return PanopticAnnotation(file.path, panoptic.file_name, panoptic.segments, file.size_bytes, file.version)
