"""Join image rows of label files by image: partial Blocks become complete Blocks with the classes of the data set."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.block import Block, join_blocks, ragged_bytes
from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import PARTS_OF_FIELDS, Part
from recordmill.schemas.field_features import WELL_KNOWN, field_columns
from recordmill.schemas.inputs.annotations import Caption, ImageLabels
from recordmill.schemas.inputs.fields import fields_flag, split_name
from recordmill.schemas.inputs.image_options import ALLOW_EMPTY
from recordmill.schemas.inputs.labels import ExistingLabels, LabelMap, adopt_labels
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.shared_images import Clash, check_clashes, drop_copies
from recordmill.transforms.annotated.source import (
    EMPTY,
    FILES,
    FRACTIONS,
    LABELLED,
    NO_FILE,
    NOTE,
    OTHER_LABELS,
    PIXELS,
    Source,
    noted_fields,
    unwritten_fields,
)
from recordmill.transforms.blocks.cut_range import BlockKey, cut_range
from recordmill.transforms.blocks.image_tasks import label_column, labels_of
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.blocks.run_step import hash_images, image_order, run_step
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.join.choose_categories import choose_features, select_categories
from recordmill.transforms.join.choose_fields import FieldRequest, add_requested_fields
from recordmill.transforms.join.field_values import merge_fields
from recordmill.transforms.join.match_blocks import FileState, drop_faulty_images
from recordmill.transforms.join.observed_labels import ObservedLabel, choose_labels, label_warnings, observed_parts
from recordmill.transforms.join.screen_objects import screen_annotations, selected_labels
from recordmill.transforms.runtime.beam_steps import pack, unpacker
from recordmill.transforms.shape.finish_labels import select_classes
from recordmill.transforms.shards.limit_records import limit_records

_UNPACK_REJECTED = unpacker(list[Rejected])
_SHOWN = 5
_LABELS, _TABLE, _CLASHES = "labels", "table", "clashes"
_FIX = "Write all splits with one command, or give each the same classes"

Keyed = tuple[int, bytes]
"""Number of a range of images, and a packed Block."""


class DescribeClasses(beam.PTransform):
    """Convert ObservedLabels to LabelMaps of all classes and of the selected classes, and one FeatureTable.

    Args:
        existing: Labels of the data set that the splits are added to; None for a new data set.
    """

    def __init__(
        self, options: FormatOptions, source: Source, splits: tuple[str, ...], existing: ExistingLabels | None
    ):
        super().__init__()
        self._arguments = options, source, splits, existing

    def expand(self, traits: PCollection):  # Beam accepts no type hints of several outputs
        once = traits.pipeline | "Once" >> beam.Impulse()
        return once | "Describe" >> WithFacts(
            _describe_traits, *self._arguments, AsList(traits), tags=(_LABELS, _TABLE)
        )


# Long list of arguments: the options of DescribeClasses, as this runs on workers.
def _describe_traits(
    _: bytes,
    facts: FactsBuilder,
    options: FormatOptions,
    source: Source,
    splits: tuple[str, ...],
    existing: ExistingLabels | None,
    packed: list[tuple[str, str, int, int]],
) -> Iterator[Any]:
    traits, layout = [ObservedLabel(*trait) for trait in packed], options.layout_table
    if not source.label_name and not any(trait.kind == FILES for trait in traits):
        raise ConfigError(f"{source.path} has no label file of the format {source.kind}")
    notes = frozenset(trait.name for trait in traits if trait.kind == NOTE)
    expects_labels = source.has_labels and not options.allow_empty
    for unlabelled, text in empty_splits(traits, source, splits) if expects_labels else ():
        facts.warn(unlabelled, text)
    warnings = [*source.warnings, *source.check(notes), *unwritten_fields(notes, source)]
    warnings += frame_warnings(traits, source, "bbox_format" in type(options).model_fields)
    known = source.categories
    categories = choose_labels(traits, is_image_class=False) if known is None else LabelMap(known)
    if options.has_image_classes:
        categories, class_warnings = _index_classes(categories, options, traits)
        warnings += class_warnings
    categories = msgspec.structs.replace(categories, segments=source.segments, has_pixel_ids=bool(source.segments))
    warnings += label_warnings(traits, categories if options.has_final_labels else LabelMap(()))
    labels = select_categories(categories, options.read_categories, options.add)
    if existing and options.has_final_labels:
        labels, absent = adopt_labels(labels, existing, not options.has_image_classes, _FIX)
        warnings += [absent] if absent else []
    yield categories
    yield TaggedOutput(_LABELS, labels)
    table = choose_features((), labels, options.table, layout, options.has_final_labels)
    parts = [part for part in observed_parts(traits) if part not in options.unwritten_parts]
    request = FieldRequest(
        *source.fields, options.names_of_fields, existing, is_part=options.is_part, is_added=options.add
    )
    with_fields, field_warnings, previews = add_requested_fields(
        layout.with_parts((*table.parts, *parts)), request, traits
    )
    warnings += field_warnings
    facts.preview(previews)
    yield TaggedOutput(_TABLE, with_fields)
    # The command has warned about the rest.
    if Part.TAGS in parts and not {FRACTIONS, PIXELS} & {trait.kind for trait in traits}:
        warnings.append("no image has objects, only classes: --layout classification stores the class of each image")
    lacks = f"the layout {layout.layout} has no feature for"
    if lacking := sorted({*parts} - {*source.parts, *layout.parts, *PARTS_OF_FIELDS}):
        warnings.append(f"{lacks} {', '.join(lacking)}: not written")
    written = {column.path for column in field_columns(with_fields) if column.axis == "object"}
    noted = {split_name(name, source.image_fields) for name in noted_fields(notes)}
    unwritten = [path for path in sorted(WELL_KNOWN) if ("object", path) in noted and path not in written]
    if unwritten and not options.unwritten_parts:
        warnings.append(f"{lacks} {', '.join(unwritten)}. Add {fields_flag(unwritten, len(unwritten))}")
    facts.warn_all(splits[:1], warnings)


def _index_classes(
    labels: LabelMap, options: FormatOptions, traits: Iterable[ObservedLabel]
) -> tuple[LabelMap, list[str]]:
    """Return classes with indices as ids, in the order of their numbers; and warnings about what records lack."""
    kinds, warnings = {(trait.kind, trait.category_id >= 0) for trait in traits}, []
    indexed = select_classes(labels, options)
    pairs = zip(labels.categories, indexed.categories, strict=True)
    moved = next(((old, new) for old, new in pairs if old.id != new.id), None)
    if moved and ("category", False) not in kinds:
        old, new = moved
        warnings.append(
            f"records have class indices from 0, not the numbers of {options.data}: {new.name!r} is {new.id}, and was "
            f"{old.id}"
        )
    if (OTHER_LABELS, False) in kinds:
        warnings.append("the layout classification has no feature for objects and captions: they are not written")
    return indexed, warnings


def empty_splits(traits: Iterable[ObservedLabel], source: Source, splits: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield each split of the source whose images have no label, with a warning.

    Raises:
        ConfigError: No image of the job has a label.
    """
    first: dict[str, str] = {}
    for trait in sorted(traits):
        first.setdefault(trait.kind, trait.name)
    kinds = (LABELLED, EMPTY, NO_FILE)
    labelled, empty, without_file = (
        {kind.removeprefix(prefix): name for kind, name in first.items() if kind.startswith(prefix)} for prefix in kinds
    )
    cure = f"If all of them are background, add {ALLOW_EMPTY}"
    if not labelled and (empty or without_file):
        expected = _describe_expected(source, min(without_file.values(), default=""))
        raise ConfigError(f"{source.path}: no image has a label of the format {source.kind}: {expected}. {cure}")
    for split in splits if splits == source.splits else ():
        if split not in labelled and split in empty | without_file:
            expected = _describe_expected(source, without_file.get(split, ""))
            yield split, f"{source.path}: no image of the split {split} has a label: {expected}. {cure}"


def _describe_expected(source: Source, name: str) -> str:
    """Return why images have no label.

    Args:
        name: An image without a label file; empty if all have one.
    """
    if not (source.label_name and name):
        return "no label file has one"
    label = source.label_name(name_key(name))
    return f"{name!r} lacks the label file {label!r}. Move label files there, or check --images"


def frame_warnings(traits: Iterable[ObservedLabel], source: Source, has_option: bool = False) -> Iterator[str]:
    """Yield a warning of fractions among boxes in pixels.

    Args:
        has_option: True if the format has --bbox-format.

    Raises:
        ConfigError: All boxes are fractions.
    """
    kinds = {trait.kind for trait in traits}
    if FRACTIONS in kinds and PIXELS not in kinds:
        raise ConfigError(
            f"{source.path}: all boxes are within 0..1, like fractions, but boxes of {source.kind} are in pixels. "
            f"Multiply them by the image size{', or add --bbox-format, rel-xyxy for example' if has_option else ''}"
        )
    if FRACTIONS in kinds:
        yield f"{source.path}: some boxes are within 0..1, like fractions; all boxes are read as pixels. Check them"


class JoinAnnotated(beam.PTransform):
    """Convert (range, packed Block) of image rows with objects to (BlockKey, packed Block) of complete Blocks.

    Args:
        splits: Splits of the job.
        categories: PCollection of one LabelMap of all classes.
    """

    def __init__(self, options: FormatOptions, source: Source, splits: tuple[str, ...], categories: PCollection):
        super().__init__()
        self._arguments = options, source, splits, AsSingleton(categories)

    def expand(self, rows: PCollection[Keyed]) -> PCollection[tuple[BlockKey, bytes]]:
        options, source, splits, _ = self._arguments
        join = WithFacts(_join_annotated_range, *self._arguments, types=tuple[BlockKey, bytes], tags=(_CLASHES,))
        blocks, clashes = rows | "GroupByRange" >> beam.GroupByKey() | "Join" >> join
        once = rows.pipeline | "Once" >> beam.Impulse()
        once | "CheckClashes" >> WithFacts(_check_clashes, options, source, splits[0], AsList(clashes))
        return blocks


def _check_clashes(
    _: bytes,
    facts: FactsBuilder,
    options: FormatOptions,
    source: Source,
    split: str,
    clashes: list[tuple[str, str, str]],
) -> None:
    facts.warn_all([split], check_clashes(list(map(Clash._make, clashes)), options, source))


def label_pairs(keyed: Keyed, labels: LabelMap, options: FormatOptions, source: Source) -> Iterator[Keyed]:
    """Yield the result of `selected_labels` for the objects of a Block."""
    block = unpack_block(keyed[1])
    if block.class_name is not None:
        yield keyed[0], _class_pairs(block.take(block.state == FileState.FOUND), labels)
        return
    block = number_categories(block.take(block.state == FileState.FOUND), labels, source)
    if block.num_objects:
        yield keyed[0], selected_labels(block, labels, options)


def _class_pairs(block: Block, labels: LabelMap) -> bytes:
    """Return int64 [N, 2] as bytes: the ids of images and of their classes."""
    ids = {category.name: category.id for category in labels.categories}
    pairs = zip(block.image_id.tolist(), block.class_name.texts(), strict=True)
    return np.array([(image, ids[name]) for image, name in pairs if name in ids], np.int64).reshape(-1, 2).tobytes()


# Long list of arguments: the options of JoinAnnotated, as this runs on workers.
def _join_annotated_range(
    group: tuple[int, Iterable[bytes]],
    facts: FactsBuilder,
    options: FormatOptions,
    source: Source,
    splits: tuple[str, ...],
    labels: LabelMap,
) -> Iterator[Any]:
    number, packed = group
    block, clashes = drop_copies(join_blocks(list(map(unpack_block, packed))), source)
    yield from (TaggedOutput(_CLASHES, tuple(clash)) for clash in clashes)

    def join(blocks: list[Block]) -> Block:
        return join_rows(blocks, labels, options, source, splits, facts)

    yield from cut_range(number, run_step("join annotations", join, [block]))


def join_rows(
    blocks: Sequence[Block],
    labels: LabelMap,
    options: FormatOptions,
    source: Source,
    splits: tuple[str, ...],
    facts: FactsBuilder,
) -> Block:
    """Return the images of a range in order, with their usable and selected objects.

    Args:
        blocks: Blocks in any order. Several rows of an image in a split become one, with the objects of all.
        labels: All classes.
        facts: Gets rejects and counts.
    """
    block = _drop_rejected(merge_rows(join_blocks(blocks)), source, splits, facts)
    folder = next(iter(options.images), "")
    block = drop_faulty_images(block, splits, facts, options.matching, options.division.group_from, folder)
    block = number_categories(block, labels, source)
    if block.num_objects:
        block = screen_annotations(block, labels, options, splits, facts)
    block = limit_records(block, RecordEstimate(options.table, options.max_side), splits, facts)
    return block.take(image_order(block, hash_images(block.image_id, options.seed)))


def merge_rows(block: Block) -> Block:
    """Return one row per image and split, with the objects of all its rows, in the order of files and rows in them. An
    image whose rows state different sizes is rejected."""
    if block.part is None:
        return block
    block = block.take(np.lexsort((block.part, block.source, block.split, block.image_id)))
    is_first = np.append(True, (np.diff(block.image_id) != 0) | (np.diff(block.split) != 0))
    if is_first.all():
        return block
    firsts = np.flatnonzero(is_first)
    numbers = np.add.reduceat(block.objects_per_image, firsts)
    columns = dict(block.take(firsts).image_columns())
    spans = [*pairwise([*firsts.tolist(), len(block)])]
    rejects = (
        [[] for _ in range(len(block))] if block.rejected is None else list(map(_unpack_rejects, block.rejected.rows()))
    )
    columns["image_size_px"] = block.image_size_px[firsts]
    class_names = [] if block.class_name is None else block.class_name.texts()
    for row, (start, end) in enumerate(spans):
        if sizes := sorted({*map(tuple, block.image_size_px[start:end].tolist())} - {(0, 0)}):
            columns["image_size_px"][row] = sizes[0]
        classes = first_texts(sorted({*class_names[start:end]}), _SHOWN)
        for reason, number, words in (
            (Reason.SIZE_MISMATCH, len(sizes), " but ".join(f"{width}x{height}" for width, height in sizes)),
            (Reason.NO_CLASS, len({*class_names[start:end]}), f"more than one class ({classes})"),
        ):
            if number > 1:
                name, image_id = block.file_name.texts()[start], int(block.image_id[start])
                detail, total = f"{name!r} is {words} in its label files", int(numbers[row])
                rejects[start].append(Rejected("image", image_id, reason, detail, annotations=total, file_name=name))
    if any(rejects):
        columns["rejected"] = ragged_bytes([pack([*chain(*rejects[start:end])]) for start, end in spans])
    if block.image_fields is not None:
        fields = block.image_fields.rows()
        columns["image_fields"] = ragged_bytes([merge_fields(fields[start:end])[0] for start, end in spans])
    if block.labels is not None and block.labels.values.size:
        labels = labels_of(block)
        columns["labels"] = label_column([_merge_captions(labels[start:end]) for start, end in spans])
    images = Block(**columns)
    if block.first_object_of_image is None:
        return images
    objects = dict(block.object_columns())
    owner = np.repeat(np.arange(len(firsts)), numbers)
    position = np.arange(len(owner)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    has_several = np.diff(np.append(firsts, len(block)))[owner] > 1
    names, ids = images.file_name.texts(), block.object_id.copy()
    for row in np.flatnonzero(has_several & _is_repeated_id(owner, ids)).tolist():
        ids[row] = name_id(f"{name_key(names[owner[row]])} object {position[row]}")
    return images.replace(**objects | {"object_id": ids}, first_object_of_image=np.append(0, np.cumsum(numbers)))


def _is_repeated_id(owner: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return True for all objects of an image in which an id repeats: bool. Formats that number the objects of each row
    have such ids.

    Args:
        owner: Image of each object.
    """
    pairs = np.unique(np.stack([owner, ids], axis=1), axis=0)
    is_repeated = np.bincount(owner) > np.bincount(pairs[:, 0]) if len(owner) else np.zeros(0, bool)
    return np.asarray(is_repeated[owner], bool)


def _merge_captions(labels: Sequence[ImageLabels]) -> ImageLabels:
    """Return the first row's labels with all captions."""
    texts = [caption.caption for row_labels in labels for caption in row_labels.captions]
    return msgspec.structs.replace(labels[0], captions=tuple(map(Caption, range(len(texts)), texts)))


def _unpack_rejects(packed: bytes) -> list[Rejected]:
    return _UNPACK_REJECTED(packed) if packed else []


def _drop_rejected(block: Block, source: Source, splits: tuple[str, ...], facts: FactsBuilder) -> Block:
    """Count rows; drop images with an unreadable label file."""
    rejected = (
        [[] for _ in range(len(block))] if block.rejected is None else list(map(_unpack_rejects, block.rejected.rows()))
    )
    is_usable = np.ones(len(block), bool)
    for row, (split, row_rejects) in enumerate(zip(block.split.tolist(), rejected, strict=True)):
        for reject in row_rejects:
            facts.reject(splits[split], reject)
            is_usable[row] &= reject.what != "image"
    label_counts = [labels.rows for labels in labels_of(block)]
    annotations = (
        block.objects_per_image
        + label_counts
        + [sum(reject.what != "image" for reject in row_rejects) for row_rejects in rejected]
    )
    for split, name in enumerate(splits):
        is_in_split = block.split == split
        if is_in_split.any():
            numbers = int(is_in_split.sum()), int(annotations[is_in_split].sum())
            facts.add_rows(name, InputRows(source.path, source.kind, *numbers))
    return block.replace(rejected=None, source=None, part=None).take(is_usable)


def number_categories(block: Block, labels: LabelMap, source: Source) -> Block:
    """Return the Block with the ids of its categories instead of hashes of their names."""
    if source.categories is not None or not block.num_objects:
        return block
    hashes = np.array([name_id(category.name) for category in labels.categories], np.int64)
    order = np.argsort(hashes)
    ids = np.array([category.id for category in labels.categories], np.int64)[order]
    return block.replace(category_id=ids[np.searchsorted(hashes[order], block.category_id)])
