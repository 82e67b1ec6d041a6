"""manifest.json: what a data set folder holds. It is written last: a split that is in the manifest is complete.

It is made of the splits' own manifests, manifest-train.json and so on, each written by the job that wrote the split, so
that jobs that write two splits at once do not overwrite what the other says.
"""

import hashlib

import msgspec

from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Feature, FeatureTable, Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import FieldRows
from recordmill.schemas.inputs.encoders import EncoderInfo, TextCounts
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.splits import split_name_fault
from recordmill.schemas.layouts import LAYOUTS, shard_names
from recordmill.schemas.names import dataset_name_fault
from recordmill.schemas.problems import Duplicates, SplitProblems
from recordmill.schemas.rejects import MOST_LISTED, RejectLine
from recordmill.schemas.shards import ShardInfo, SplitSize

FORMAT = 1
"""Development versions wrote 2 to 4. From 0.1.0 on it is raised when the same inputs and options would give other
bytes, or the manifest another shape."""


class Unlisted(msgspec.Struct, frozen=True):
    """Files found under --images that no image row references; they are not part of the data set."""

    files: int
    first: tuple[str, ...]  # names of a few of them


class InputRows(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers of image and annotation rows of an input for a split, with rejects; `kind` as in InputFile. For a table,
    `images` are rows.

    Attributes:
        uncarried: fields with data that no record carries, in the complete input. Of a file that is
            read as of two kinds, those that neither carries, with the first.
    """

    path: str
    kind: str
    images: int
    annotations: int
    uncarried: FieldRows = {}


class RewrittenPictures(msgspec.Struct, frozen=True):
    """Pictures that were transcoded: how many, by the format of their file; how many of them were turned upright, or
    made smaller; size of their files, and of what is in the records in their place."""

    by_format: dict[str, int]
    turned: int
    shrunk: int
    bytes_read: int
    bytes_written: int


class ImageCounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many image rows, or rows of a table, were read, and what became of them.

    `rows` (image rows read) = `written` + `without_record` + `of_other_classes` + `removed` + the sum of `rejected` (by
    reason). A user's pipeline `removed` some.

    `without_record` have no object, in a layout of one record an object. `of_other_classes` are of none of the classes
    that were asked for. `rewritten` counts those written ones that were transcoded; None where there are none. `groups`
    is how many groups the images with a file are of, where groups are kept together; `ungrouped` how many of these
    images are in no group of --groups, and are divided by their own names. `without_objects` of the written ones have
    no object, where records have objects. `emptied` image rows had objects, and --categories, --no-crowd or --min-area
    skipped all of them; their images are written without objects, or rejected.
    """

    rows: int
    written: int
    without_record: int
    rejected: dict[str, int]
    of_other_classes: int = 0
    rewritten: RewrittenPictures | None = None
    groups: int = 0
    ungrouped: int = 0
    removed: int = 0
    without_objects: int = 0
    emptied: int = 0

    @property
    def accounted(self) -> int:
        """Counts of image rows."""
        rejected = sum(self.rejected.values())
        return self.written + self.without_record + self.of_other_classes + self.removed + rejected


class AnnotationCounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many annotation rows were read, and what became of them.

    `rows` = `objects` + `captions` + `stuff` + `panoptic`, all in records, + `joined` + the sums of `rejected` and
    `filtered` (by reason) + `of_rejected_images` + `removed` (by a user's pipeline).

    `joined` are keypoint rows that became one object with the instance row of the same id. Of the objects,
    `boxes_clipped` were cut at their image's edge, and `masks` have a mask that is not empty, where masks were asked
    for. `keypoints_outside` of their keypoints are visible (v = 2) and outside their image.
    """

    rows: int
    objects: int
    captions: int
    stuff: int
    panoptic: int
    joined: int
    rejected: dict[str, int]
    filtered: dict[str, int]
    of_rejected_images: int
    boxes_clipped: int
    masks: int
    removed: int = 0
    keypoints_outside: int = 0

    @property
    def in_records(self) -> int:
        """Rows whose content is in a record."""
        return self.objects + self.captions + self.stuff + self.panoptic + self.joined

    @property
    def accounted(self) -> int:
        """Counts of annotation rows."""
        left_out = sum(self.rejected.values()) + sum(self.filtered.values()) + self.removed
        return self.in_records + left_out + self.of_rejected_images


class SplitManifest(msgspec.Struct, frozen=True):
    """Entry of a split in the manifest.

    Attributes:
        made_by: versions of what decides bytes besides the recipe: this program, and the libraries that decode and
            encode pictures and masks.
        rejects_sha256: hex digest of the split's file of rejects.
        first_rejects: the first hundred of each reason, in that file's order.
        class_counts: how many objects there are of each class, by class index; of images that have one class each, how
            many images.
        warnings: what is not likely to be meant, for a person.
        texts: what was encoded, by column.
        findings: numbers of pictures or boxes that may be faults, by name, see
            `recordmill.schemas.statistics.FINDINGS`.
        statistics_sha256: hex digest of the split's file of statistics; UNSET if it has none.
        fingerprints_sha256: hex digest of its fingerprints; UNSET if records have no pictures.
    """

    recipe: Recipe
    made_by: dict[str, str]
    compression: str
    inputs: tuple[InputRows, ...]
    images: ImageCounts
    annotations: AnnotationCounts
    unlisted: Unlisted
    record_bytes: int
    rejects_sha256: str
    shards: tuple[ShardInfo, ...]
    class_counts: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    texts: dict[str, TextCounts] = {}
    findings: dict[str, int] = {}
    statistics_sha256: str | msgspec.UnsetType = msgspec.UNSET
    fingerprints_sha256: str | msgspec.UnsetType = msgspec.UNSET
    first_rejects: tuple[RejectLine, ...] = ()

    @property
    def examples(self) -> int:
        return sum(shard.examples for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)

    @property
    def rejects(self) -> int:
        """Number of images, rows and annotations that were rejected."""
        return sum(self._reject_counts)

    @property
    def listed_rejects(self) -> int:
        """Number of lines of the split's file of rejects: at most MOST_LISTED a reason."""
        return sum(min(number, MOST_LISTED) for number in self._reject_counts)

    @property
    def _reject_counts(self) -> list[int]:
        return [*self.images.rejected.values(), *self.annotations.rejected.values()]


class Manifest(msgspec.Struct, frozen=True):
    """Contents of manifest.json.

    Attributes:
        parts: Groups of features that the records of all splits have besides those of the layout.
        categories: Categories of objects, by class index.
        segments: Categories of semantic and panoptic masks.
        num_classes: Largest label of objects, or of images, + 1: number of outputs of a model.
        features: Features of a record, if they depend on the input; empty if the layout has them.
        encoders: Encoders of the texts of all splits; their files are next to the shards.
        duplicates: Duplicate images of all splits; UNSET if no split has fingerprints, and in the manifest of one
            split.
        problems: Possible problems of each split that was compared; UNSET if `duplicates` is.
        sha256: Hex digest of this JSON with an empty `sha256`, so that `verify` finds edits.
    """

    format: int
    name: str
    layout: str
    parts: tuple[Part, ...]
    categories: tuple[Category, ...]
    segments: tuple[Category, ...]
    splits: dict[str, SplitManifest]
    num_classes: int = 0
    features: tuple[Feature, ...] = ()
    encoders: tuple[EncoderInfo, ...] = ()
    duplicates: Duplicates | msgspec.UnsetType = msgspec.UNSET
    problems: dict[str, SplitProblems] | msgspec.UnsetType = msgspec.UNSET
    sha256: str = ""

    @property
    def labels(self) -> LabelMap:
        """Classes of objects and of segments."""
        return LabelMap(self.categories, self.segments)

    @property
    def table(self) -> FeatureTable:
        """Contents of the records."""
        table = LAYOUTS[self.layout].with_parts(self.parts)
        return msgspec.structs.replace(table, features=self.features) if self.features else table

    @property
    def label_by_id(self) -> dict[int, int]:
        """Label of each category in records, by category id: above 0, the background, or the id itself."""
        return label_by_id(self.labels, self.table)


class Plan(msgspec.Struct, frozen=True):
    """Plan of a job."""

    manifest: Manifest  # without shards. Counts are those that are known before a picture is read
    sizes: dict[str, SplitSize]  # by split


def label_by_id(labels: LabelMap, table: FeatureTable) -> dict[int, int]:
    """See Manifest."""
    if "objects.label" in table.sources:
        return labels.label_by_id()
    return {category.id: category.id for category in labels.all}


def num_classes(labels: LabelMap, table: FeatureTable) -> int:
    """See Manifest. What readers take for the label is the class index in layouts that call it so, and else
    `label_by_id`."""
    if table.class_source or table.label.endswith(".class_index"):
        return len(labels.categories)
    label = label_by_id(labels, table)
    return max((label[category.id] for category in labels.categories), default=-1) + 1


def manifest_of(
    name: str,
    labels: LabelMap,
    table: FeatureTable,
    splits: dict[str, SplitManifest],
    encoders: tuple[EncoderInfo, ...] = (),
) -> Manifest:
    """The manifest of a data set with these classes and records."""
    return Manifest(
        FORMAT,
        name,
        table.layout,
        table.parts,
        labels.categories,
        labels.segments,
        splits,
        num_classes(labels, table),
        () if table == LAYOUTS[table.layout].with_parts(table.parts) else table.features,
        encoders,
    )


class _Format(msgspec.Struct):
    """Fields of a manifest of any format."""

    format: int


def decode_manifest(data: bytes, path: str) -> Manifest:
    """The manifest in `data`.

    Raises:
        ConfigError: it is not one, or one of another format; `path` is named.
    """
    try:
        format_ = msgspec.json.decode(data, type=_Format).format
        manifest = msgspec.json.decode(data, type=Manifest) if format_ == FORMAT else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a Recordmill manifest ({error}); was it edited or cut short?") from error
    if manifest is None:
        raise ConfigError(
            f"{path} is of manifest format {format_}, and this version reads format {FORMAT}: a development version of "
            "Recordmill wrote it; convert again, into another folder"
        )
    if manifest.layout not in LAYOUTS:
        raise ConfigError(f"{path} is of layout {manifest.layout!r}, which this program does not know")
    if fault := dataset_name_fault(manifest.name):
        raise ConfigError(f"{path}: the name {manifest.name!r} {fault}; was it edited?")
    for name, split in manifest.splits.items():
        if fault := split_name_fault(name):
            raise ConfigError(f"{path}: the name of the split {name!r} {fault}; was it edited?")
        if (split.recipe.name, split.recipe.split) != (manifest.name, name):
            raise ConfigError(
                f"{path}: the recipe of {manifest.name}-{name} is that of {split.recipe.name}-{split.recipe.split}; "
                "was it edited?"
            )
        names = shard_names(manifest.name, name, manifest.layout)
        for shard in split.shards:
            if not names.is_one(shard.file):
                raise ConfigError(f"{path} lists {shard.file!r}, which is not the name of a shard of its split {name}")
    try:
        _ = manifest.table
    except ValueError as error:
        raise ConfigError(f"{path}: {error}; was it edited?") from error
    return manifest


def encode_json(value: object) -> bytes:
    """`value` as indented JSON, the same bytes for equal values."""
    return msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2) + b"\n"


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of manifest.json, with a new `sha256`."""
    bare = encode_json(msgspec.structs.replace(manifest, sha256=""))
    return encode_json(msgspec.structs.replace(manifest, sha256=hashlib.sha256(bare).hexdigest()))
