"""Convert label files of a Source to image Blocks."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
from apache_beam.pvalue import TaggedOutput

from recordmill.schemas.block import Block, join_blocks, ragged_bytes, ragged_texts
from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.errors import JobError, RecordmillError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample, SampleObject, parts_of
from recordmill.schemas.inputs.splits import Division, name_id
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.schemas.sizes import number_text, printable
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.source import (
    EMPTY,
    FILES,
    FRACTIONS,
    LABELLED,
    NO_FILE,
    NOTE,
    OTHER_LABELS,
    PIXELS,
    LabelFault,
    LabelledImage,
    Source,
    field_notes,
)
from recordmill.transforms.blocks.image_tasks import image_paths
from recordmill.transforms.blocks.pack_block import pack_parts, unpack_block
from recordmill.transforms.blocks.run_step import hash_images, ranges_of
from recordmill.transforms.dataset.compare_names import Names
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.images.load_images import KEPT_BYTES, keep_files
from recordmill.transforms.join.field_values import FieldPicker
from recordmill.transforms.join.match_blocks import NO_FILES, FileState, assign_buckets, match_rows, name_keys
from recordmill.transforms.join.observed_labels import ObservedLabel, find_negative_areas
from recordmill.transforms.join.sample_rows import CategoryFinder, id_of, sample_rows, size_fault, usable_objects
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import ThreadedDoFn, pack, unpacker
from recordmill.transforms.runtime.threads import look_ahead
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import join_path, storage_for

_MOST_BITS = 8
"""Maximum of `bucket_bits`. With 2 ** 8 buckets and ranges, 4,000 of a million images are in memory together."""
_BUCKET_IMAGES, _BUCKET_BYTES = 4096, 4 << 20
"""Usual maximum number of images of a bucket, and of bytes of its label files. Smaller ones would be slower: a bucket
has a Block for each range, and small Blocks take more time to pack than their label files to read."""
TRAITS, NOTICES = "traits", "notices"
BARE, ALONE = "bare", "alone"
"""Tags of images without a label file, and of label files without an image, for label files that state image names."""
_MAX_LABEL_BYTES = 64 << 20
"""Maximum size of a label file beside an image."""
SMALL_FILE_BYTES = 1 << 20
"""Maximum size of a label file that names its image and is fetched ahead, or read with others."""
MAX_BATCH_IMAGES = 1000
_NO_LABEL_FILE = "images without a label file: {number}; they are written without objects, as background ({names})"
_NO_LABEL = "files without an image and without a label of the format: {number}; they are skipped ({names})"
_IMAGE_REASONS = (Reason.MALFORMED_IMAGE, Reason.MALFORMED_LABELS, Reason.SIZE_MISMATCH)
_SHARED = "images that share a label file, because their names differ only by the suffix: {number} ({names})"
_NO_ROWS = Block(file_name=ragged_texts([]), split=np.zeros(0, np.int64))

Keyed = tuple[int, bytes]
"""Number of a bucket of names or of a range of images, and a packed Block."""


class LabelFile(File, frozen=True, array_like=True, gc=False):
    """Label file, with its name in the data set, and its split."""

    name: str = ""
    split: str = ""


_Named = tuple[LabelFile, int, LabelledImage]
"""Label file, number of an image in it, and the image."""
Fetched = bytes | OSError | None
"""Bytes of a label file, or why it cannot be read; None if it is read as a stream."""


def bucket_bits(sizes: Iterable[tuple[int, int]]) -> int:
    """Return the binary logarithm of the number of buckets of names, and of ranges of images.

    Args:
        sizes: Number of images, and bytes of label files, of each part of the listing.
    """
    images, label_bytes = map(sum, zip((0, 0), *sizes, strict=True))
    return min(_MOST_BITS, max(images // _BUCKET_IMAGES, label_bytes // _BUCKET_BYTES).bit_length())


def label_buckets(names: Sequence[str], bits: int) -> np.ndarray:
    return assign_buckets(names, "path", 1 << bits)


def unpack_label_files(block: Block) -> list[LabelFile]:
    """Return the label files of a Block, whose `class_name` is their split."""
    files = image_paths(block), block.file_bytes.tolist(), block.file_version.texts()
    return list(map(LabelFile, *files, block.file_name.texts(), block.class_name.texts()))


class _LabelReader(ThreadedDoFn):
    """Reads the label files of image rows."""

    def __init__(self, options: FormatOptions, source: Source, splits: tuple[str, ...], threads: int):
        super().__init__(threads)
        self._options, self._source, self._splits = options, source, splits

    def _parse_files(self, labels: Iterable[LabelFile]) -> Iterator[LabelledImage]:
        parse = partial(_parse_file_beside, source=self._source)
        return look_ahead(parse, labels, self.pool, self.threads) if self.threads > 1 else map(parse, labels)

    def _split_of(self, label: LabelFile) -> str:
        """Return the split that counts a label file."""
        return label.split if label.split in self._splits else self._splits[0]

    def _reject_alone(
        self, alone: Iterable[tuple[str, LabelFile]], facts: FactsBuilder, excluded: frozenset[str]
    ) -> Iterator[TaggedOutput]:
        """Reject label files without an image. Yield a notice of files without a label.

        If lists name the images, label files outside the folders of the job's splits are ignored.

        Args:
            alone: Expected name of each label file, and the file.
            excluded: Names of label files whose images `--exclude` names.
        """
        source, files = self._source, []
        for name, label in alone:
            is_ignored = re.fullmatch(source.ignorable_labels, label.name) or {name, label.name} & excluded
            if not is_ignored and (not source.lists or label.split in self._splits):
                files.append(label)
        without = []
        for label, image in zip(files, self._parse_files(files), strict=True):
            if not (number := image.sample.annotation_rows if image.sample else 0):
                without.append(label.name)
                continue
            split, detail = self._split_of(label), f"no image has this label file of {number_text(number, 'label')}"
            rejected = Rejected("image", None, Reason.LABEL_WITHOUT_IMAGE, f"{label.name}: {detail}", None, number)
            facts.reject(split, rejected.named(label.name))
            facts.add_rows(split, InputRows(source.path, source.kind, 1, number))
            facts.count(split, Metric.LABEL_FILES)
        yield from _notice(_NO_LABEL, without)

    def _labelled(
        self, rows: Block, keys: Sequence[str], labels: Sequence[LabelFile | None], facts: FactsBuilder, bits: int
    ) -> Iterator[Any]:
        """Yield rows with their label files' objects, ObservedLabels and notices.

        Args:
            keys: Expected name of each row's label file.
            labels: Label file of each row.
            bits: Binary logarithm of the number of ranges.
        """
        read = {label.name: label for label in labels if label}
        for label in read.values():
            facts.count(self._split_of(label), Metric.LABEL_FILES)
        by_label = dict(zip(read, self._parse_files(read.values()), strict=True))
        images = [by_label[label.name] if label else LabelledImage(Sample("")) for label in labels]
        names = rows.file_name.texts()
        if names:
            files = [label.name if label else key for label, key in zip(labels, keys, strict=True)]
            block, traits = labelled_rows(names, images, files, self._source)
            block = block.replace(**dict(rows.image_columns()))
            ranges = ranges_of(hash_images(block.image_id, self._options.seed), bits)
            yield from pack_parts(block, ranges, is_zipped=True)
            own_splits = [self._source.own_split(index, self._splits) for index in rows.split.tolist()]
            traits |= _observe_images(names, images, [label is not None for label in labels], own_splits)
            yield from (TaggedOutput(TRAITS, tuple(trait)) for trait in traits)
        first = {label.name: name for name, label in reversed([*zip(names, labels, strict=True)]) if label}
        yield from _notice(
            _SHARED, [n for n, label in zip(names, labels, strict=True) if label and first[label.name] != n]
        )
        yield from _image_notices(names, images)


class ReadBeside(_LabelReader):
    """Read the label files of the images of a bucket."""

    def process(
        self, group: Any, facts: FactsBuilder, division: Division | None, bits: int, excluded: frozenset[str]
    ) -> Iterator[Any]:
        progress.set_step("reading label files")
        images, labels, lists = (list(side) for side in group[1])
        source, label_of = self._source, self._source.label_name or str
        listed = [label for packed in labels for label in unpack_label_files(unpack_block(packed))]
        known = {label.name: label for label in sorted(listed, key=lambda label: bool(label.split))}
        files = join_blocks([NO_FILES.replace(split=_NO_ROWS.split), *map(unpack_block, images)])
        if source.lists:
            rows = _resolve_listed_names(join_blocks([_NO_ROWS, *map(unpack_block, lists)]), files, label_of, facts)
        else:
            rows = _drop_repeated_rows(files)
        rows = rows.replace(image_id=np.array(list(map(name_id, map(name_key, rows.file_name.texts()))), np.int64))
        rows, _ = match_rows(rows, files.replace(split=None) if source.lists else None, "path", division)
        keys = [label_of(name_key(name)) for name in rows.file_name.texts()]
        is_found = rows.state == FileState.FOUND
        wanted = [known.get(key) for key in keys]
        is_bare = is_found & np.array([label is None for label in wanted], bool)
        alone = sorted(known.keys() - {label_of(name) for name in files.file_name.texts()} - {*keys})
        missing = np.flatnonzero(~is_found).tolist()
        counted = self._labelled(
            rows.take(~is_found), [keys[row] for row in missing], [wanted[row] for row in missing], facts, bits
        )
        yield from (item for item in counted if not isinstance(item, TaggedOutput))  # only to count their labels
        matched = np.flatnonzero(is_found).tolist()
        rows, keys, wanted = rows.take(is_found), [keys[row] for row in matched], [wanted[row] for row in matched]
        is_bare = is_bare[matched]
        if source.stated_label:
            bare, labelled = rows.take(is_bare), np.flatnonzero(~is_bare).tolist()
            if len(bare):
                buckets = label_buckets(keys, bits)[is_bare]
                yield from (TaggedOutput(BARE, keyed) for keyed in pack_parts(bare, buckets))
            rows, keys, wanted = rows.take(~is_bare), [keys[row] for row in labelled], [wanted[row] for row in labelled]
            for name, image in zip(alone, self._parse_files(known[name] for name in alone), strict=True):
                stated = image.sample.file_name if image.sample else ""
                key = source.stated_label(name, stated) if stated else name
                yield TaggedOutput(ALONE, (int(label_buckets([key], bits)[0]), (key, pack(known[name]))))
        else:
            if source.has_labels:
                yield from _notice(_NO_LABEL_FILE, rows.take(is_bare).file_name.texts())
            yield from self._reject_alone(((name, known[name]) for name in alone), facts, excluded)
        yield from self._labelled(rows, keys, wanted, facts, bits)


_UNPACK_LABEL = unpacker(LabelFile)


class ReadStated(_LabelReader):
    """Read label files whose stated image name differs from their own name."""

    def process(self, group: Any, facts: FactsBuilder, bits: int, excluded: frozenset[str]) -> Iterator[Any]:
        images, packed = (list(side) for side in group[1])
        labels: list[tuple[str, LabelFile]] = [(key, _UNPACK_LABEL(label)) for key, label in packed]
        rows, label_of = join_blocks([_NO_ROWS, *map(unpack_block, images)]), self._source.label_name or str
        by_key: dict[str, LabelFile] = {}
        for key, label in sorted(labels, key=lambda item: (item[0], item[1].name)):
            by_key.setdefault(key, label)
        names = rows.file_name.texts()
        keys = [label_of(name_key(name)) for name in names]
        wanted = [by_key.get(key) for key in keys]
        yield from self._labelled(rows, keys, wanted, facts, bits)
        used = {label.name for label in wanted if label}
        yield from _notice(_NO_LABEL_FILE, [name for name, label in zip(names, wanted, strict=True) if not label])
        yield from self._reject_alone((pair for pair in labels if pair[1].name not in used), facts, excluded)


def _resolve_listed_names(rows: Block, files: Block, label_of: Any, facts: FactsBuilder) -> Block:
    """Return the rows of lists. A name without a suffix gets the name of its image file."""
    existing = set(files.file_name.texts())
    by_label: dict[str, list[str]] = {}
    for name in sorted(existing):
        by_label.setdefault(label_of(name), []).append(name)
    names = [
        name if name in existing else (by_label.get(label_of(name)) or [name])[0] for name in rows.file_name.texts()
    ]
    facts.add_unlisted(*(existing - set(names)))
    return _drop_repeated_rows(rows.replace(file_name=ragged_texts(names)))


def _drop_repeated_rows(rows: Block) -> Block:
    """Return the rows without repeated rows of an image in a split."""
    first: dict[tuple[str, int], int] = {}
    for row, key in enumerate(zip(rows.file_name.texts(), rows.split.tolist(), strict=True)):
        first.setdefault(key, row)
    return rows if len(first) == len(rows) else rows.take(np.array(list(first.values()), np.int64))


def _parse_file_beside(label: LabelFile, source: Source) -> LabelledImage:
    try:
        data = storage_for(label.path).read(label.path, label.version, _MAX_LABEL_BYTES)
    except (FileNotFoundError, UnreadableFileError) as error:
        return _reject_label_file(error)
    return next(_parse(source, data, label.name), LabelledImage(Sample("")))


def labelled_rows(
    names: Sequence[str], images: Sequence[LabelledImage], files: Sequence[str], source: Source
) -> tuple[Block, set[ObservedLabel]]:
    """Return images as rows of a Block, without the columns of splits and files, and the ObservedLabels of all.

    Args:
        names: Names of the images.
        files: Label file of each image, for messages.
    """
    finder = CategoryFinder(None if source.categories is None else LabelMap(source.categories))
    picker = FieldPicker(source.fields, source.text_fields)
    samples, objects, rejected, has_other_labels = [], [], [], False
    for name, image, file in zip(names, images, files, strict=True):
        sample = image.sample or Sample("")
        if sample.file_name != name:
            sample = msgspec.structs.replace(sample, file_name=name)
        sample = picker.pick(sample)
        if source.has_image_classes and image.sample:  # faults of objects, which are not read, do not count
            has_other_labels |= sample.annotation_rows > 0 or bool(image.faults)
            sample, rejects = _with_class(sample, finder, image, file)
        else:
            rejects = list(_faults_of(image, sample, file))
        if fault := size_fault(sample):
            sample = msgspec.structs.replace(sample, width=None, height=None)
        samples.append(sample)
        objects.append(usable_objects(sample, finder, rejects.append, partial(_object_place, image, file)))
        if fault:
            detail = f"{file} states {fault}"
            reject = Rejected("image", id_of(sample), Reason.TOO_LARGE, detail, annotations=len(objects[-1]))
            rejects.append(reject.named(name))
        rejected.append(pack(rejects) if rejects else b"")
    block = sample_rows(samples, objects, source.has_image_classes)
    if any(rejected):
        block = block.replace(rejected=ragged_bytes(rejected))
    traits = _label_traits(block, samples)
    if source.categories is None:
        traits |= _category_traits(objects, images)
    traits |= {ObservedLabel(OTHER_LABELS)} if has_other_labels else set()
    traits |= set(picker.observed(crc32(names[0].encode()) if names else 0))
    notes = {note for image in images for note in image.notes} | field_notes(picker.names)
    return block, traits | {ObservedLabel(NOTE, note) for note in notes}


def _label_traits(block: Block, samples: Sequence[Sample]) -> set[ObservedLabel]:
    """Return the frames of boxes, and the parts of records that samples need."""
    traits = {trait for sample in samples for trait in find_negative_areas(sample)}
    if block.num_objects:
        boxes = block.boxes_xywh_px if block.in_fractions is None else block.boxes_xywh_px[~block.in_fractions]
        is_within = np.abs(np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]])).max(axis=1) <= 1
        frames = (FRACTIONS, is_within), (PIXELS, ~is_within)
        traits |= {ObservedLabel(kind) for kind, is_frame in frames if is_frame.any()}
    parts = parts_of(samples)
    parts |= {Part.KEYPOINTS for sample in samples for object_ in sample.objects if object_.keypoints}
    return traits | {ObservedLabel("part", part.value) for part in parts}


def _category_traits(
    objects: Iterable[Iterable[tuple[Any, SampleObject]]], images: Iterable[LabelledImage]
) -> set[ObservedLabel]:
    """Return the classes of objects and of images, with their ids and numbers of keypoints."""
    usable = (given for pairs in objects for _, given in pairs)
    classes = {(given.category, given.category_id, len(given.keypoints) // 3) for given in usable}
    traits = {
        ObservedLabel("category", name, -1 if category_id is None else category_id, keypoints)
        for name, category_id, keypoints in classes
    }
    tagged = [(image.sample.tags, image.tag_ids) for image in images if image.sample]
    pairs = (pair for tags, ids in tagged for pair in zip(tags, ids or [-1] * len(tags), strict=True))
    return traits | {ObservedLabel("category", *pair) for pair in pairs}


def _with_class(
    sample: Sample, finder: CategoryFinder, image: LabelledImage, file: str
) -> tuple[Sample, list[Rejected]]:
    """Return the Sample with its only tag as its class and without other labels, and a reject unless it has one tag."""
    fault = ""
    if len(sample.tags) != 1:
        unknown = [fault.detail for fault in image.faults if fault.reason == Reason.UNKNOWN_CATEGORY]
        fault = f"the image has {len(sample.tags)} classes, not one{''.join(f' ({text})' for text in unknown[:1])}"
    elif finder.knows_names and sample.tags[0] not in finder.by_name:
        fault = f"class {sample.tags[0]!r} is not a label"
    class_name = sample.tags[0] if len(sample.tags) == 1 else ""
    without = {"objects": (), "captions": (), "tags": (), "stuff": (), "panoptic": None}
    detail = LabelFault(Reason.NO_CLASS, fault, where=image.entry).text(file)
    rejected = Rejected("image", id_of(sample), Reason.NO_CLASS, detail).named(sample.file_name)
    return msgspec.structs.replace(sample, class_name=class_name, **without), [rejected] if fault else []


def _faults_of(image: LabelledImage, sample: Sample, file: str) -> Iterator[Rejected]:
    what, ids = ("annotation", (None, id_of(sample))) if image.sample else ("image", (id_of(sample), None))
    for fault in image.faults:
        yield Rejected(what, ids[0], fault.reason, fault.text(file), ids[1]).named(sample.file_name)


def _object_place(image: LabelledImage, file: str, number: int) -> str:
    return image.places[number].text(file) if image.places else f"{file}: "


_UNPACK_RUN = unpacker(list[LabelFile])


class ReadNaming(_LabelReader):
    """Read runs of label files that name their images."""

    def process(self, packed: bytes, facts: FactsBuilder, bits: int) -> Iterator[Any]:
        progress.set_step("reading label files")
        labels: list[LabelFile] = _UNPACK_RUN(packed)
        source, splits = self._source, self._splits
        if self.threads > 1:
            files = look_ahead(_fetch_label_file, labels, self.pool, self.threads, lambda label: label.size_bytes)
        else:
            files = map(_fetch_label_file, labels)
        named_images = (
            (label, part, image)
            for label, file in zip(labels, files, strict=True)
            for part, image in enumerate(_parse_naming_file(label, file, source))
        )
        for batch in _batch_named_images(named_images):
            for label, _, image in batch:
                split = label.split
                for fault in () if image.sample else image.faults:
                    is_image, counted = fault.reason in _IMAGE_REASONS, split if split in splits else splits[0]
                    what = "image" if is_image else "annotation"
                    facts.reject(counted, Rejected(what, None, fault.reason, fault.text(label.name)).named(label.name))
                    facts.add_rows(counted, InputRows(source.path, source.kind, is_image, not is_image))
            yield from self._named_rows([row for row in batch if row[2].sample], bits)
        yield TaggedOutput(TRAITS, tuple(ObservedLabel(FILES)))

    def _named_rows(self, rows: list[_Named], bits: int) -> Iterator[Any]:
        """Yield the rows of images, given with their label files and their numbers in the files."""
        if not rows:
            return
        labels, parts, images = zip(*rows, strict=True)
        files = [label.name for label in labels]
        samples = [image.sample for image in images if image.sample]
        names = [sample.file_name for sample in samples]
        block, traits = labelled_rows(names, images, files, self._source)
        splits = [sample.split or label.split for sample, label in zip(samples, labels, strict=True)]
        indices = [self._source.split_index(split, self._splits) for split in splits]
        own_splits = [self._source.own_split(index, self._splits) for index in indices]
        traits |= _observe_images(names, images, [True] * len(names), own_splits)
        block = block.replace(
            source=np.array([crc32(file.encode()) for file in files], np.int64),
            part=np.array(parts, np.int64),
            label_file=ragged_texts(files),
            label_entry=ragged_texts([image.entry for image in images]),
            split=np.array(indices, np.int64),
        )
        if any(image.url for image in images):
            block = block.replace(image_url=ragged_texts([image.url for image in images]))
        if self._source.holds_images:
            stored_files = [image.file or _NO_STORED_FILE for image in images]
            block = block.replace(
                file_folder=ragged_texts([label.path for label in labels]),
                file_bytes=np.array([file.size_bytes for file in stored_files], np.int64),
                file_offset=np.array([image.file.offset if image.file else 0 for image in images], np.int64),
                file_version=ragged_texts([file.version for file in stored_files]),
            )
        if any(image.id_text for image in images):
            block = block.replace(id_text=ragged_texts([image.id_text for image in images]))
        if any(sample.path or sample.data for sample in samples):
            stored = [
                label if sample.path or sample.data else _NO_STORED_FILE
                for sample, label in zip(samples, labels, strict=True)
            ]
            sizes = [len(sample.data) or label.size_bytes for sample, label in zip(samples, stored, strict=True)]
            block = block.replace(
                file_folder=ragged_texts([label.path for label in stored]),
                file_bytes=np.array(sizes, np.int64),
                file_version=ragged_texts([label.version for label in stored]),
            )
            # The label files of a format hold all images, or none. A dry run writes none.
            if samples[0].data and not self._options.dry_run:
                state = join_path(self._options.output, state_folder(self._splits[0]))
                path = join_path(state, f"images-{name_id(files[0]):05d}-{parts[0]:05d}")
                block = block.replace(
                    file_folder=ragged_texts([path] * len(samples)),
                    file_offset=keep_files(path, [sample.data for sample in samples]),
                    file_version=ragged_texts([""] * len(samples)),
                )
        buckets = assign_buckets(name_keys(names), self._options.matching, 1 << bits)
        written = np.flatnonzero([not image.is_omitted for image in images])
        yield from pack_parts(block.take(written), buckets[written])
        yield from (TaggedOutput(TRAITS, tuple(trait)) for trait in traits)
        yield from _image_notices(names, images)


def _batch_named_images(named_images: Iterable[_Named]) -> Iterator[list[_Named]]:
    """Yield batches of at most `MAX_BATCH_IMAGES` images, and of about `KEPT_BYTES` of their data."""
    batch: list[_Named] = []
    size = 0
    for row in named_images:
        batch.append(row)
        size += len(row[2].sample.data) if row[2].sample else 0
        if len(batch) == MAX_BATCH_IMAGES or size >= KEPT_BYTES:
            yield batch
            batch, size = [], 0
    yield from [batch] if batch else ()


_NO_STORED_FILE = LabelFile("")


def _fetch_label_file(label: LabelFile) -> Fetched:
    """Return the bytes of a small file, or why it cannot be read; None of a large one."""
    try:
        is_small = label.size_bytes <= SMALL_FILE_BYTES
        return storage_for(label.path).read(label.path, label.version) if is_small else None
    except (FileNotFoundError, UnreadableFileError) as error:
        return error


def _parse_naming_file(label: LabelFile, file: Fetched, source: Source) -> Iterator[LabelledImage]:
    try:
        if isinstance(file, OSError):
            raise file
        with storage_for(label.path).open(label.path, label.version) if file is None else io.BytesIO(file) as stream:
            yield from _parse(source, stream, label.name)
    except (FileNotFoundError, UnreadableFileError) as error:
        yield _reject_label_file(error)


def _parse(source: Source, contents: Any, file: str) -> Iterator[LabelledImage]:
    """Yield the images that the parser of a source finds in a file.

    Raises:
        JobError: The parser has a bug. OSError and RecordmillError are not changed.
    """
    try:
        yield from source.parse(contents, file)
    except (OSError, RecordmillError):
        raise
    except Exception as error:
        what = printable(f"{type(error).__name__}: {error}")
        raise JobError(
            f"the parser of the format {source.kind} failed on {file}: {what}. This is a fault of the parser. To "
            "reject a file, it raises UnusableError"
        ) from error


def _reject_label_file(error: OSError) -> LabelledImage:
    return LabelledImage(None, (LabelFault(Reason.MALFORMED_LABELS, f"the file cannot be read ({error.strerror})"),))


def _observe_images(
    names: Sequence[str], images: Sequence[LabelledImage], has_file: Sequence[bool], splits: Sequence[str]
) -> set[ObservedLabel]:
    """Return the first image with a label, with an empty label file and without a label file, of each split.

    Args:
        splits: Split of each image, see `Source.own_split`.
    """
    first: dict[str, str] = {}
    for name, image, is_file, split in sorted(zip(names, images, has_file, splits, strict=True), key=itemgetter(0)):
        first.setdefault((LABELLED if _has_label(image) else EMPTY if is_file else NO_FILE) + split, name)
    return {ObservedLabel(kind, "" if kind.startswith(LABELLED) else name) for kind, name in first.items()}


def _has_label(image: LabelledImage) -> bool:
    """Return True for an image with a label, usable or not."""
    sample = image.sample or Sample("")
    return bool(image.faults or sample.annotation_rows or sample.tags)


def _image_notices(names: Sequence[str], images: Sequence[LabelledImage]) -> Iterator[TaggedOutput]:
    names_by_text: dict[str, list[str]] = {}
    for name, image in zip(names, images, strict=True):
        for text in image.warnings:
            names_by_text.setdefault(text, []).append(name)
    for text, text_names in names_by_text.items():
        yield from _notice(text, text_names)


def _notice(text: str, names: Sequence[str]) -> Iterator[TaggedOutput]:
    if names:
        yield TaggedOutput(NOTICES, (text, Names.sample(names)))
