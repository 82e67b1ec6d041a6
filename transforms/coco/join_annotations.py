"""Join image rows and annotations of all files by image id: partial Blocks become complete Blocks."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import PCollection

from recordmill.schemas.block import Block, Ragged, join_blocks, ragged_bytes, ragged_texts, starts_of, take_rows
from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.inputs.annotations import NO_LABELS, AnnotatedImage, ImageLabels, ImageRow, PanopticAnnotation
from recordmill.schemas.inputs.coco import AnnotationKind, AnnotationSource, FileAnnotations
from recordmill.schemas.inputs.files import NO_FILE, NOT_A_FILE, File
from recordmill.schemas.inputs.images import MAX_FILE_BYTES, MAX_PIXELS
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Count, IdTexts, Reason, Rejected
from recordmill.transforms.blocks.image_tasks import (
    NO_IMAGES,
    annotations_of,
    id_texts,
    label_column,
    labels_of,
    object_columns,
    with_id_texts,
)
from recordmill.transforms.coco.coco_rows import collision_error
from recordmill.transforms.coco.convert_rows import other_format
from recordmill.transforms.coco.merge_annotations import complete_annotations, merge_parts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.list_images import ListParts, list_images
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import unpacker
from recordmill.transforms.storage.interface import NameRange
from recordmill.transforms.storage.resolve import find_archive, join_path, storage_for

MaskFiles = Mapping[str, list[File]]
"""Files by the `name_key` of their path."""


class ListMasks(beam.PTransform):
    """Convert folder paths to one MaskFiles of all their files."""

    def expand(self, folders: PCollection[str]) -> PCollection[MaskFiles]:
        listed = beam.FlatMap(_list_masks).with_output_types(tuple[str, File])
        parts = folders | "ListMaskParts" >> ListParts()
        names = parts | "ListMaskFolder" >> listed | "CollectMasks" >> beam.combiners.ToList()
        return names | "ByName" >> beam.Map(_group_masks)


def _list_masks(listed: tuple[str, tuple[str, str]]) -> Iterator[tuple[str, File]]:
    progress.set_step("listing masks")
    folder, bounds = listed
    for name, file in list_images(folder, part=NameRange(*bounds)):
        yield name_key(join_path(folder, name)), file


def _group_masks(listed: Iterable[tuple[str, File]]) -> dict[str, list[File]]:
    files = defaultdict[str, list[File]](list)
    for name, file in listed:
        files[name].append(file)
    return dict(files)


def match_mask(image: AnnotatedImage, files: MaskFiles | None) -> tuple[AnnotatedImage, Rejected | None]:
    """Add the PNG file to a panoptic annotation. Without a PNG the annotation is rejected, and the image is kept.

    Args:
        files: Files by key. None to use the paths of the JSON unchecked.

    Raises:
        CollidingImagesError: Two files have the name of the PNG.
    """
    if files is None or not image.labels.panoptic:
        return image, None
    (panoptic,) = image.labels.panoptic
    candidates = files.get(name_key(panoptic.file.path), [])
    if len(candidates) > 1:
        paths = " and ".join(sorted(file.path for file in candidates))
        raise CollidingImagesError(f"the panoptic PNG of one name is both {paths}. Rename one")
    file = candidates[0] if candidates else _find_archived_png(panoptic.file.path)
    matched: tuple[PanopticAnnotation, ...] = ()
    reject = None
    if fault := _mask_fault(file):
        reason, detail = fault
        reject = Rejected("annotation", None, reason, f"{panoptic.file_name!r}: {detail}", image.image.id)
        reject = reject.named(image.image.file_name)
    elif file:
        png = File(file.path, file.size_bytes, file.version)
        matched = (msgspec.structs.replace(panoptic, file=png),)
    labels = msgspec.structs.replace(image.labels, panoptic=matched)
    return msgspec.structs.replace(image, labels=labels), reject


def _find_archived_png(path: str) -> File | None:
    """Return a member of a .zip whose path differs from its listed name, see `ZipStorage`."""
    member = storage_for(path).stat(path) if find_archive(path) else None
    return File(path, member.size_bytes, member.version) if member else None


def _mask_fault(file: File | None) -> tuple[Reason, str] | None:
    if file is None:
        return Reason.MASK_MISSING, "no such file under --panoptic-masks"
    if file.version == NO_FILE:
        return Reason.MASK_MISSING, NOT_A_FILE
    if file.size_bytes > MAX_FILE_BYTES:
        return Reason.MASK_UNREADABLE, f"{file.size_bytes:,} bytes; the limit is {MAX_FILE_BYTES:,}"
    return None


_UNPACK_REJECTED = unpacker(list[Rejected])

RowGroup = tuple[int, list[FileAnnotations], list[int]]
"""Image id, annotations of each file for it, and indices of its rows in the Block of image rows."""


def join_annotations(
    blocks: Iterable[Block],
    sources: Sequence[AnnotationSource],
    labels: LabelMap,
    division: Division,
    masks: MaskFiles | None,
    facts: FactsBuilder,
) -> Block:
    """Join all partial Blocks of a range of images. Return one Block of the images in any order.

    Args:
        blocks: Partial Blocks in any order: image rows with file_name, or annotations with first_object_of_image.
        sources: All annotation files. The column `source` of a Block is an index into `sources`.
        labels: All categories of the input.
        masks: Files of panoptic PNGs; None if they are not listed.
        facts: Gets rejects and counts.

    Raises:
        CollidingImagesError: See `merge_parts` and `match_mask`.
    """
    parts = sorted(blocks, key=lambda block: (int(block.source[0]), int(block.part[0])))
    facts.texts = _collect_id_texts(parts)
    image_parts = [part for part in parts if part.file_name is not None]
    annotation_parts = [part for part in parts if part.file_name is None]
    images = join_blocks(image_parts) if image_parts else NO_IMAGES
    annotations = join_blocks(annotation_parts) if annotation_parts else NO_ANNOTATIONS
    images = images.replace(labels=_fill_texts(images, images.labels))
    odd = _find_odd_ids(images, annotations, sources)
    is_odd = np.isin(images.image_id, odd)
    plain = _join_plain(images.take(~is_odd), annotations, sources, division.names, facts)
    images = images.take(is_odd)
    groups = _complete_groups(group_rows(odd, images, annotations, sources), labels)
    merged = _merge_images(groups, images, division, masks, facts)
    return with_id_texts(join_blocks([plain, *merged]), facts.texts)


def _collect_id_texts(blocks: Sequence[Block]) -> IdTexts:
    """Return all string ids.

    Raises:
        CollidingImagesError: Two strings, or a string and a number, have the same id.
    """
    all_texts = IdTexts({}, {})
    if all(block.id_text is None and block.object_id_text is None for block in blocks):
        return all_texts
    images: list[tuple[int, str]] = []
    objects: list[tuple[int, str]] = []
    for block in blocks:
        numbers = block.image_id.tolist()
        images += zip(numbers, [""] * len(numbers) if block.id_text is None else block.id_text.texts(), strict=True)
        objects += id_texts(block).annotations.items()
    for known, ids in (all_texts.images, images), (all_texts.annotations, objects):
        for id_, text in ids:
            if known.setdefault(id_, text) != text:
                raise collision_error(id_, text, known[id_])
    return all_texts


NO_ANNOTATIONS = Block(
    image_id=np.zeros(0, np.int64),
    source=np.zeros(0, np.int64),
    first_object_of_image=np.zeros(1, np.int64),
    **object_columns([]),
)


def _fill_texts(block: Block, column: Ragged | None) -> Ragged:
    return ragged_texts([""] * len(block)) if column is None else column


def _find_odd_ids(images: Block, annotations: Block, sources: Sequence[AnnotationSource]) -> np.ndarray:
    """Return the image ids whose rows have to be merged one by one: int64, sorted."""
    ids, numbers = np.unique(images.image_id, return_counts=True)
    sides = images.image_size_px
    too_large = sides[:, 0] > MAX_PIXELS // np.maximum(sides[:, 1], 1)
    is_plain = np.array(
        [source.kind is AnnotationKind.INSTANCES and not other_format(source) for source in sources], bool
    )
    annotated_ids = annotations.image_id
    odd = [
        ids[numbers > 1],
        images.image_id[too_large],
        annotated_ids[~np.isin(annotated_ids, ids)],
        annotated_ids[~is_plain[annotations.source]],
        _find_in_several_files(annotated_ids, annotations.source),
        _find_equal_objects(annotations),
    ]
    for column in (annotations.labels, annotations.rejected):
        if column is not None:
            odd.append(annotated_ids[column.lengths > 0])
    return np.unique(np.concatenate(odd))


def _find_in_several_files(image_ids: np.ndarray, sources: np.ndarray) -> np.ndarray:
    """Return the image ids with annotations in several files."""
    order = np.lexsort((sources, image_ids))
    ids, files = image_ids[order], sources[order]
    return ids[1:][(ids[1:] == ids[:-1]) & (files[1:] != files[:-1])]


def _find_equal_objects(annotations: Block) -> np.ndarray:
    """Return the image ids with two objects of one id."""
    image_ids = annotations.image_id[annotations.image_of_object]
    order = np.lexsort((annotations.object_id, image_ids))
    ids, objects = image_ids[order], annotations.object_id[order]
    return ids[1:][(ids[1:] == ids[:-1]) & (objects[1:] == objects[:-1])]


def _join_plain(
    images: Block, annotations: Block, sources: Sequence[AnnotationSource], splits: Sequence[str], facts: FactsBuilder
) -> Block:
    """Join images with their objects. Each image has one row."""
    by_id = np.argsort(images.image_id)
    place = np.searchsorted(images.image_id[by_id], annotations.image_id)
    place = by_id[np.minimum(place, len(by_id) - 1)] if len(by_id) else place
    is_known = images.image_id[place] == annotations.image_id if len(by_id) else np.zeros(len(place), bool)
    image_of_object = np.where(is_known, place, -1)[annotations.image_of_object]
    order = np.lexsort((annotations.object_id, image_of_object))
    order = order[np.searchsorted(image_of_object[order], 0) :]
    columns = {name: take_rows(column, order) for name, column in annotations.object_columns()}
    numbers = np.bincount(image_of_object[order], minlength=len(images))
    if len(splits) > 1:
        annotations = annotations.take(is_known)
        for split, rows in _count_rows(images, annotations, place[is_known], sources, len(splits)):
            _move_rows(facts, splits[split], splits[0], rows)
    return images.replace(**columns, first_object_of_image=starts_of(numbers), source=None, part=None)


def _count_rows(
    images: Block, annotations: Block, place: np.ndarray, sources: Sequence[AnnotationSource], num_splits: int
) -> Iterator[tuple[int, InputRows]]:
    """Yield (split, row counts of a file) for each split after the first.

    Args:
        place: int64, index in `images` of each row of `annotations`.
    """
    for split in range(1, num_splits):
        row_sources = images.source[images.split == split]
        is_in_split = images.split[place] == split
        for number, source in enumerate(sources):
            rows = int((row_sources == number).sum())
            objects = int(annotations.objects_per_image[is_in_split & (annotations.source == number)].sum())
            if rows or objects:
                yield split, InputRows(source.path, source.kind.value, rows, objects)


def _move_rows(facts: FactsBuilder, split: str, first: str, rows: InputRows) -> None:
    """Move the row counts of a file from the first split, which has all rows at first, to `split`."""
    facts.add_rows(split, rows)
    facts.add_rows(first, InputRows(rows.path, rows.kind, -rows.images, -rows.annotations))


def _complete_groups(groups: Iterable[RowGroup], labels: LabelMap) -> Iterator[RowGroup]:
    categories = {category.id: category for category in labels.categories}
    for image_id, parts, indices in groups:
        yield image_id, [complete_annotations(part, categories) for part in parts], indices


def _merge_images(
    groups: Iterable[RowGroup], images: Block, division: Division, masks: MaskFiles | None, facts: FactsBuilder
) -> Iterator[Block]:
    """Merge the rows of images one by one. Yield one Block of the images that are not rejected, if any."""
    merged: list[AnnotatedImage] = []
    indices: list[int] = []
    for image_id, parts, image_indices in groups:
        rows = images.take(np.array(image_indices, np.int64))
        image = _merge_image(image_id, parts, rows, division, masks, facts)
        if image:
            merged.append(image)
            indices.append(image_indices[rows.file_name.texts().index(image.image.file_name)])
    if merged:
        block = images.take(np.array(indices, np.int64)).replace(source=None, part=None)
        sizes = [(image.image.width or 0, image.image.height or 0) for image in merged]
        if images.image_fields is not None:
            block = block.replace(image_fields=ragged_bytes([image.image.fields for image in merged]))
        if any(image.joined_rows for image in merged):
            block = block.replace(joined_rows=np.array([image.joined_rows for image in merged], np.int64))
        yield block.replace(
            image_size_px=np.array(sizes, np.int64).reshape(-1, 2),
            labels=_fill_texts(block, label_column([image.labels for image in merged])),
            first_object_of_image=starts_of(np.array([len(image.annotations) for image in merged], np.int64)),
            **object_columns([annotation for image in merged for annotation in image.annotations]),
        )


def _merge_image(
    image_id: int,
    parts: list[FileAnnotations],
    rows: Block,
    division: Division,
    masks: MaskFiles | None,
    facts: FactsBuilder,
) -> AnnotatedImage | None:
    """Merge the rows of all files for one image; None if the image is rejected.

    Args:
        rows: Image rows of all files.
    """
    items = list(merge_parts(image_id, parts))
    image = next((item for item in items if isinstance(item, AnnotatedImage)), None)
    names = rows.file_name.texts()
    if image is None:
        split = division.split_of(name_key(min(names))) if names else division.names[0]
        is_listed = (rows.file_folder.lengths > 0) & ~rows.is_shared
        facts.add_unlisted(*{name_key(name) for name in rows.take(is_listed).file_name.texts()})
    else:
        split = division.names[rows.split[names.index(image.image.file_name)]]
        image, reject = match_mask(image, masks)
        items += [reject] if reject else []
    for item in items:
        if isinstance(item, Rejected):
            facts.reject(split, item)
        elif isinstance(item, Count):
            facts.count(split, item.what, item.number)
    if split != division.names[0]:
        for part in parts:
            moved = InputRows(part.source, part.kind.value, len(part.rows), part.annotation_rows)
            _move_rows(facts, split, division.names[0], moved)
    return image


def group_rows(
    odd: np.ndarray, images: Block, annotations: Block, sources: Sequence[AnnotationSource]
) -> Iterator[RowGroup]:
    """Yield the RowGroup of each image id in `odd`."""
    indices, annotation_indices = _indices_by_id(odd, images.image_id), _indices_by_id(odd, annotations.image_id)
    names, sizes, lists = images.file_name.texts(), images.image_size_px.tolist(), labels_of(images)
    fields = images.list_rows("image_fields")
    for image_id in odd.tolist():
        image_indices = sorted(indices.get(image_id, ()), key=images.part.item)
        by_source = defaultdict[int, tuple[list[int], list[int]]](lambda: ([], []))
        for index in image_indices:
            by_source[int(images.source[index])][0].append(index)
        for index in annotation_indices.get(image_id, ()):
            by_source[int(annotations.source[index])][1].append(index)
        parts = []
        for source, (row_indices, part_indices) in sorted(by_source.items()):
            rows = tuple(
                ImageRow(image_id, names[index], sizes[index][0] or None, sizes[index][1] or None, fields[index])
                for index in row_indices
            )
            labels = lists[row_indices[0]] if row_indices else NO_LABELS
            part = annotations.take(np.array(part_indices, np.int64))
            parts.append(_file_annotations(image_id, sources[source], rows, labels, part))
        yield image_id, parts, image_indices


def _indices_by_id(odd: np.ndarray, image_ids: np.ndarray) -> dict[int, list[int]]:
    """Return ascending row indices per image of `odd`, by id."""
    indices_by_id = defaultdict[int, list[int]](list)
    for index in np.flatnonzero(np.isin(image_ids, odd)).tolist():
        indices_by_id[int(image_ids[index])].append(index)
    return indices_by_id


def _file_annotations(
    image_id: int, source: AnnotationSource, rows: tuple[ImageRow, ...], lists: ImageLabels, annotations: Block
) -> FileAnnotations:
    """Return the rows of a file for an image. `lists` has LVIS's lists of category ids."""
    packed = annotations.rejected.rows() if annotations.rejected is not None else []
    label_rows = labels_of(annotations)
    return FileAnnotations(
        image_id,
        source.path,
        source.kind,
        rows,
        tuple(annotations_of(annotations)),
        ImageLabels(
            tuple(chain.from_iterable(labels.captions for labels in label_rows)),
            tuple(chain.from_iterable(labels.regions for labels in label_rows)),
            tuple(chain.from_iterable(labels.panoptic for labels in label_rows)),
            lists.neg_category_ids,
            lists.not_exhaustive_category_ids,
        ),
        tuple(chain.from_iterable(_UNPACK_REJECTED(row) for row in packed if row)),
        other_format(source),
    )
