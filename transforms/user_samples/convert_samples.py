"""Convert Samples to rows of Blocks, and back."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from apache_beam.coders import registry

from recordmill.schemas.block import Block, ragged_bytes, ragged_texts, starts_of
from recordmill.schemas.errors import CollidingImagesError, ConfigError
from recordmill.schemas.inputs.annotations import Annotation, Caption, ImageLabels
from recordmill.schemas.inputs.images import MAX_FILE_BYTES, NO_FILE, NOT_A_FILE
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.splits import Division, name_id
from recordmill.schemas.names import name_fault, name_key
from recordmill.schemas.rejects import Reason, Rejected, UnusableError
from recordmill.transforms.blocks.image_tasks import file_folder, image_tasks, label_column, object_columns
from recordmill.transforms.blocks.run_step import hash_images, image_order
from recordmill.transforms.coco.convert_rows import box_fault, keypoints_fault
from recordmill.transforms.coco.guess_box_format import LARGEST
from recordmill.transforms.runtime.beam_steps import StructCoder, unpacker
from recordmill.transforms.storage.resolve import storage_for

_INT64 = 1 << 63
Reject = Callable[[str, Rejected], None]


def _plain(value: Any) -> Any:
    """Return a NumPy value or a path as a type that msgspec encodes."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} is not a value of a Sample")


pack_sample = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic").encode
unpack_sample = unpacker(Sample)


class SampleCoder(StructCoder):
    """Coder of Samples. It is not deterministic, so that Beam refuses Samples as keys; `file_name` is the key."""

    def encode(self, value):
        return pack_sample(value)

    def decode(self, encoded):
        try:
            return unpack_sample(encoded)
        except msgspec.ValidationError:  # a value has another type, and `checked` rejects the Sample
            return Sample(**msgspec.msgpack.decode(encoded))

    def is_deterministic(self):
        return False

    def __reduce__(self):
        return SampleCoder, (Sample,)


registry.register_coder(Sample, SampleCoder)


def checked(sample: Sample) -> Sample:
    """Return a Sample with values of its fields' types.

    Raises:
        UnusableError: A value has another type, or the Sample has no name or no image.
    """
    name = getattr(sample, "file_name", sample)
    try:
        found = unpack_sample(pack_sample(sample))
    except (msgspec.MsgspecError, TypeError, OverflowError) as error:
        raise UnusableError(Reason.MALFORMED_IMAGE, f"Sample {name!r}: {error}") from error
    if fault := name_fault(found.file_name):
        raise UnusableError(Reason.UNSAFE_FILE_NAME, f"Sample {name!r}: its file name {fault}")
    if bool(found.path) == bool(found.data):
        what = "both path and data" if found.path else "neither path nor data"
        raise UnusableError(Reason.MALFORMED_IMAGE, f"Sample {name!r} has {what}; give one, with the image")
    if found.path.endswith("/"):
        raise UnusableError(Reason.MALFORMED_IMAGE, f"Sample {name!r}: path {found.path!r} is that of a folder")
    if found.image_id is not None and not -_INT64 <= found.image_id < _INT64:
        raise UnusableError(Reason.MALFORMED_IMAGE, f"Sample {name!r}: image_id {found.image_id} is beyond 64 bits")
    sides = [side for side in (found.width, found.height) if side is not None]
    if len(sides) == 1 or min(sides, default=1) < 1:
        size = f"width {found.width} and height {found.height}"
        raise UnusableError(Reason.MALFORMED_IMAGE, f"Sample {name!r}: {size}; give two sizes in pixels, or none")
    return found


def id_of(sample: Sample) -> int:
    return name_id(name_key(sample.file_name)) if sample.image_id is None else sample.image_id


def split_of(sample: Sample, division: Division) -> str:
    """Return the split of a Sample.

    Raises:
        ConfigError: There is no split of that name.
    """
    if not sample.split:
        return division.split_of(name_key(sample.file_name))
    if sample.split not in division.names:
        raise ConfigError(
            f"Sample {sample.file_name!r} is of split {sample.split}, and the splits that are written are "
            f"{', '.join(division.names)}: give the same split= to what reads and what writes"
        )
    return sample.split


class SampleRules(NamedTuple):
    """Contents of Samples that are stored.

    Attributes:
        stored: Names of the options whose annotations are stored.
        of_image: True if each image has one class.
    """

    stored: frozenset[str]
    of_image: bool
    division: Division
    seed: int


class CategoryFinder:
    """Finder of category ids of objects, by name and id, or only by name if a single category has it.

    Args:
        labels: All classes; None if they are not known yet, so that an id is the `name_id` of the category's name.
    """

    def __init__(self, labels: LabelMap | None):
        self._makes_ids = labels is None
        categories = labels.categories if labels else ()
        self._keypoints = {category.id: len(category.keypoints) for category in categories}
        self._numbers = Counter(category.name for category in categories)
        self._by_both = {(category.name, category.id): category.id for category in categories}
        self.by_name = {name: id_ for (name, id_) in self._by_both if self._numbers[name] == 1}

    def find(self, each: SampleObject) -> int:
        """Return the category id of an object. Raise UnusableError unless exactly one category matches."""
        found = self._by_both.get((each.category, each.category_id)) if each.category_id is not None else None
        found = self.by_name.get(each.category) if found is None else found
        if found is None and self._makes_ids:
            if not each.category.strip():
                raise UnusableError(Reason.UNKNOWN_CATEGORY, "no class")
            found = self.by_name[each.category] = name_id(each.category)
        if found is None:
            is_known = each.category in self._numbers
            detail = "is that of several ids, and category_id is none of these" if is_known else "is not a label"
            raise UnusableError(Reason.UNKNOWN_CATEGORY, f"category {each.category!r} {detail}")
        return found

    def keypoints(self, each: SampleObject, category_id: int) -> int:
        """Return the number of keypoints that the object should have."""
        return len(each.keypoints) // 3 if self._makes_ids else self._keypoints[category_id]


def block_of(samples: Sequence[Sample], labels: LabelMap, rules: SampleRules, reject: Reject) -> Block | None:
    """Return checked Samples as the images of a Block, in order; None if none is usable.

    Args:
        reject: Callback with the split and the reject of each unusable image or annotation.

    Raises:
        ConfigError: See `split_of`.
    """
    finder = CategoryFinder(labels)
    kept, files, splits, objects = [], [], [], []
    for sample in samples:
        split = split_of(sample, rules.division)
        try:
            file = _file_of(sample)
            if rules.of_image and sample.class_name not in finder.by_name:
                what = "no class" if sample.class_name is None else f"class {sample.class_name!r}, which is not a label"
                raise UnusableError(Reason.NO_CLASS, f"Sample {sample.file_name!r} has {what}")
        except UnusableError as fault:
            rejected = Rejected("image", id_of(sample), fault.reason, fault.detail, annotations=sample.annotation_rows)
            reject(split, rejected)
            continue
        kept.append(sample)
        files.append(file)
        splits.append(rules.division.names.index(split))
        objects.append(usable_objects(sample, finder, partial(reject, split)))
    if not kept:
        return None
    paths, sizes, versions = zip(*files, strict=True)
    block = sample_rows(kept, objects, rules.of_image).having(
        split=np.array(splits, np.int64),
        file_folder=ragged_texts([file_folder(path, one.file_name) for path, one in zip(paths, kept, strict=True)]),
        file_bytes=np.array(sizes, np.int64),
        image_data=ragged_bytes([each.data for each in kept]) if any(each.data for each in kept) else None,
        file_version=ragged_texts(versions),
    )
    return block.take(image_order(block, hash_images(block.image_id, rules.seed)))


class UsableObject(NamedTuple):
    """A checked object of a Sample."""

    annotation: Annotation
    source: SampleObject


def usable_objects(
    sample: Sample, finder: CategoryFinder, reject: Callable[[Rejected], None], places: Sequence[str] = ()
) -> list[UsableObject]:
    """Return a Sample's usable objects; pass rejects to `reject`.

    Args:
        places: beginning of the detail of each object; empty to name the Sample.
    """
    objects = []
    for number, each in enumerate(sample.objects):
        try:
            objects.append(UsableObject(_annotation(sample, number, each, finder), each))
        except UnusableError as fault:
            detail = (places[number] if places else f"Sample {sample.file_name!r}: ") + fault.detail
            reject(Rejected("annotation", each.id, fault.reason, detail, id_of(sample)))
    return objects


def sample_rows(samples: Sequence[Sample], objects: Sequence[Sequence[UsableObject]], of_image: bool = False) -> Block:
    """Return Samples as the images of a Block, without the columns of splits and files."""
    block = Block(
        image_id=np.array(list(map(id_of, samples)), np.int64),
        file_name=ragged_texts([sample.file_name for sample in samples]),
        image_size_px=np.array([(each.width or 0, each.height or 0) for each in samples], np.int64).reshape(-1, 2),
        class_name=ragged_texts([sample.class_name or "" for sample in samples]) if of_image else None,
        labels=None if of_image else label_column(list(map(_labels, samples))),
    )
    found = [each for of_sample in objects for each in of_sample]
    if not found:
        return block
    return block.having(
        first_object_of_image=starts_of(np.array(list(map(len, objects)), np.int64)),
        **object_columns([each.annotation for each in found]),
        **_more_columns([each.source for each in found]),
    )


def _more_columns(objects: Sequence[SampleObject]) -> dict[str, Any]:
    """Return the columns that an Annotation lacks, without empty ones."""
    columns: dict[str, Any] = {
        "in_fractions": np.array([each.frame == "fraction" for each in objects], bool),
        "difficult": np.array([each.difficult for each in objects], bool),
        "truncated": np.array([each.truncated for each in objects], bool),
    }
    columns = {name: column for name, column in columns.items() if column.any()}
    if any(each.view for each in objects):
        columns["view"] = ragged_texts([each.view for each in objects])
    if any(each.track_id is not None for each in objects):
        columns["track_id"] = np.array([-1 if each.track_id is None else each.track_id for each in objects], np.int64)
    if any(each.corners for each in objects):
        columns["corners_px"] = np.array([each.corners or (0.0,) * 8 for each in objects], np.float64)
    return columns


def _more_values(block: Block) -> Iterator[dict[str, Any]]:
    """Yield the fields of each object that an Annotation lacks."""
    columns = [(name, column) for name, column in block.object_columns() if name in _MORE]
    held = {name: column.texts() if name == "view" else column.tolist() for name, column in columns}
    for row in range(block.num_objects):
        values = {_MORE[name]: column[row] for name, column in held.items()}
        if "frame" in values:
            values["frame"] = "fraction" if values["frame"] else "px"
        if values.get("track_id") == -1:
            values["track_id"] = None
        if "corners" in values:
            values["corners"] = tuple(values["corners"]) if any(values["corners"]) else ()
        yield values


_MORE = {
    "in_fractions": "frame",
    "difficult": "difficult",
    "truncated": "truncated",
    "view": "view",
    "track_id": "track_id",
    "corners_px": "corners",
}
"""Fields of a SampleObject by the columns that an Annotation lacks."""


def check_distinct(samples: Iterable[Sample]) -> None:
    """Check that names and ids are unique.

    Raises:
        CollidingImagesError: Two Samples have the same name, or the same id.
    """
    names: dict[int, str] = {}
    for sample in samples:
        name, number = sample.file_name, id_of(sample)
        if (other := names.get(number)) is not None:
            what = f"name {name!r}" if other == name else f"image_id {number}, {other!r} and {name!r}"
            raise CollidingImagesError(f"two Samples have the {what}; give each Sample its own")
        names[number] = name


def _file_of(sample: Sample) -> tuple[str, int, str]:
    """Return path, size and version of the image file."""
    if sample.data:
        size, version = len(sample.data), ""
    elif sample.size_bytes is not None:
        size, version = sample.size_bytes, sample.version
    else:
        file = storage_for(sample.path).stat(sample.path)
        if file is None:
            raise UnusableError(Reason.IMAGE_MISSING, f"Sample {sample.file_name!r}: no file {sample.path!r}")
        size, version = file.size_bytes, file.version
    if version == NO_FILE:
        raise UnusableError(Reason.IMAGE_INACCESSIBLE, f"Sample {sample.file_name!r}: {sample.path!r} is {NOT_A_FILE}")
    if size > MAX_FILE_BYTES:
        detail = f"Sample {sample.file_name!r}: {size:,} bytes, where at most {MAX_FILE_BYTES:,} are read"
        raise UnusableError(Reason.TOO_LARGE, detail)
    return sample.path, size, version


def _annotation(sample: Sample, number: int, each: SampleObject, finder: CategoryFinder) -> Annotation:
    category_id, box = finder.find(each), each.box
    if fault := box_fault(box):
        raise UnusableError(Reason.MALFORMED_BOX, f"{fault}: {box}")
    if each.keypoints:
        expected = finder.keypoints(each, category_id)
        if fault := keypoints_fault(each.keypoints, expected):
            detail = f"category {each.category!r} has {expected} keypoints: {fault}"
            raise UnusableError(Reason.MALFORMED_KEYPOINTS, detail)
    if len(each.corners) not in (0, 8) or not all(abs(number) <= LARGEST for number in each.corners):
        raise UnusableError(Reason.MALFORMED_BOX, f"corners are not four finite points: {each.corners}")
    if each.track_id is not None and not 0 <= each.track_id < _INT64:
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"track_id {each.track_id} is not 0 to 2**63 - 1")
    id_ = name_id(f"{name_key(sample.file_name)} object {number}") if each.id is None else each.id
    area = box[2] * box[3] if each.area_px2 is None else each.area_px2
    if not (abs(area) <= LARGEST and -_INT64 <= id_ < _INT64):
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"area {area}, id {id_}")
    return Annotation(id_, category_id, box, area, each.is_crowd, each.segmentation.encode(), each.keypoints)


def _labels(sample: Sample) -> ImageLabels:
    return ImageLabels(
        tuple(Caption(number, text) for number, text in enumerate(sample.captions)),
        sample.stuff,
        () if sample.panoptic is None else (sample.panoptic,),
        sample.neg_category_ids,
        sample.not_exhaustive_category_ids,
        tags=sample.tags,
    )


def samples_of(block: Block, labels: LabelMap, splits: Sequence[str]) -> Iterator[Sample]:
    """Yield the images of a complete Block as Samples."""
    names = {category.id: category.name for category in labels.categories}
    more = _more_values(block)
    for task in image_tasks(block, splits):
        of_image = task.labels
        objects = [
            SampleObject(
                names[each.category_id],
                each.bbox_xywh_px,
                keypoints=each.keypoints_xyv,
                segmentation=each.segmentation.decode(),
                is_crowd=each.is_crowd,
                area_px2=each.area_px2,
                category_id=each.category_id,
                id=each.id,
                **next(more),
            )
            for each in task.annotations
        ]
        yield Sample(
            task.file_name,
            task.ref.path,
            task.ref.data,
            task.width,
            task.height,
            tuple(objects),
            of_image.class_name,
            tuple(caption.caption for caption in of_image.captions),
            task.split,
            task.image_id,
            of_image.regions,
            next(iter(of_image.panoptic), None),
            of_image.neg_category_ids,
            of_image.not_exhaustive_category_ids,
            task.ref.size_bytes,
            task.ref.version,
            of_image.tags,
        )
