"""manifest.json: contents of a data set folder, written last. A split that is in the manifest is complete.

manifest.json is merged from the manifests of the splits, manifest-train.json and so on. Each of those is written by the
job that wrote the split, so that jobs that write two splits at the same time do not overwrite each other's entries.
"""

import hashlib

import msgspec

from recordmill.schemas.containers import CONTAINERS, TFRECORD
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
from recordmill.schemas.shards import ShardInfo, ShardNames, SplitSize

FORMAT = 1
"""Format number. Development versions wrote 2 to 4. From 0.1.0 on, FORMAT increases when the same inputs and options
would give other bytes, or when the manifest changes its structure."""


class Unlisted(msgspec.Struct, frozen=True):
    """Files found in the folders of images that no image row references; they are not part of the data set."""

    files: int
    first: tuple[str, ...]  # names of the first files


class InputRows(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers of image and annotation rows of an input for a split, with rejects. `kind` is that of InputFile.

    Attributes:
        images: Image rows; rows of a table.
        uncarried: Fields with data that no record stores, in the complete input. A file that is read as two kinds lists
            the fields that neither kind stores with the first.
        leaves: Paths of open fields in such fields that are objects, by list of the file and field; some of many.
    """

    path: str
    kind: str
    images: int
    annotations: int
    uncarried: FieldRows = {}
    leaves: dict[str, dict[str, tuple[str, ...]]] = {}


class MappedClass(msgspec.Struct, frozen=True, omit_defaults=True):
    """A class of the source, and its labels that were read for a split.

    Attributes:
        name: Name in the source.
        new_name: Name in records; empty if the class is dropped.
        objects: Number of objects.
        segments: Number of panoptic segments, and of regions of stuff.
        images: Number of images, or rows, with this class or tag.
    """

    name: str
    new_name: str = ""
    objects: int = 0
    segments: int = 0
    images: int = 0

    @property
    def labels(self) -> int:
        """Number of all labels."""
        return self.objects + self.segments + self.images

    def plus(self, other: "MappedClass") -> "MappedClass":
        numbers = self.objects + other.objects, self.segments + other.segments, self.images + other.images
        return MappedClass(self.name, self.new_name, *numbers)


class RewrittenImages(msgspec.Struct, frozen=True):
    """Transcoded images: their number by file format, the numbers of turned and of shrunk images, the size of their
    files in bytes, and the size of the images stored instead."""

    by_format: dict[str, int]
    turned: int
    shrunk: int
    bytes_read: int
    bytes_written: int


class ImageCounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers of image or table rows, by outcome.

    Attributes:
        rows: Rows read by all runs: `written` + `without_record` + `without_tile` + `of_other_classes` + `over_limit` +
            `over_class_limit` + `removed` + `present` + `replaced` + the sum of `rejected`.
        without_record: Images without objects, in a layout with one record per object.
        rejected: Numbers by reason.
        of_other_classes: Images without any of the requested classes, or of a class that --class-map drops.
        rewritten: Written images that were transcoded; None if there are none.
        groups: Groups of the images that have a file, if groups are kept together.
        ungrouped: Images that have a file and no group in --groups. Their own names determine their splits.
        removed: Rows that a user's pipeline removed.
        without_objects: Written images without objects, if records have objects.
        emptied: Images whose objects were all skipped by --categories, --class-map, --no-crowd or --min-area. They are
            written without objects, or rejected.
        over_limit: Images that --limit leaves out.
        over_class_limit: Images that --max-per-class leaves out.
        tiles: Tiles of the written images, each with a record; 0 if images are not divided.
        jpeg_tiles: Tiles that were encoded as JPEG.
        empty_tiles: Tiles without objects that --keep-empty skips.
        without_tile: Images of which --keep-empty skips all tiles.
        present: Images that --add skips, because the data set has them.
        changed: Those of them whose labels, masks or fields are others than in their records.
        replaced: Images in records of earlier runs that --add --sync has written again.
        gone: Images of the data set that DATA did not have, with --sync. Each run counts them.
    """

    rows: int
    written: int
    without_record: int
    rejected: dict[str, int]
    of_other_classes: int = 0
    rewritten: RewrittenImages | None = None
    groups: int = 0
    ungrouped: int = 0
    removed: int = 0
    without_objects: int = 0
    emptied: int = 0
    over_limit: int = 0
    over_class_limit: int = 0
    tiles: int = 0
    jpeg_tiles: int = 0
    empty_tiles: int = 0
    without_tile: int = 0
    present: int = 0
    changed: int = 0
    replaced: int = 0
    gone: int = 0

    @property
    def limited(self) -> int:
        """Number of images that --limit or --max-per-class leaves out."""
        return self.over_limit + self.over_class_limit

    @property
    def unit(self) -> str:
        """`tile` if records are tiles of images, else `image`."""
        return "tile" if self.tiles else "image"

    @property
    def records(self) -> int:
        """Number of images, or of tiles, that are written."""
        return self.tiles or self.written

    @property
    def accounted(self) -> int:
        """Sum of all outcomes."""
        rejected = sum(self.rejected.values())
        omitted = self.without_record + self.without_tile + self.of_other_classes + self.limited + self.removed
        return self.written + omitted + self.present + self.replaced + rejected


class AnnotationCounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers of annotation rows by their outcome.

    Attributes:
        rows: Rows read: `in_records` - `tile_copies` + the sums of `rejected` and `filtered` + `of_rejected_images` +
            `of_limited_images` + `removed` + `in_no_tile` + `of_present_images` + `replaced`.
        joined: Keypoint rows that were merged into the instance row with the same id.
        rejected, filtered: Numbers by reason.
        boxes_clipped: Objects whose box was clipped at the edge of the image.
        masks: Objects with a mask that is not empty, if masks were requested.
        removed: Rows that a user's pipeline removed.
        keypoints_outside: Keypoints of the objects that are visible (v = 2) and outside their image.
        of_limited_images: Annotations of images that --limit or --max-per-class leaves out.
        in_no_tile: Rows of which no tile shows enough.
        tile_copies: Number of further tiles with a row that is in another tile.
        of_present_images: Annotations of images that --add skips, because the data set has them.
        replaced: Annotations that were in records of images that --add --sync has written again.
        semantic_masks, depth_maps: Maps of images in records, see `recordmill.schemas.inputs.maps`.
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
    of_limited_images: int = 0
    in_no_tile: int = 0
    tile_copies: int = 0
    of_present_images: int = 0
    replaced: int = 0
    semantic_masks: int = 0
    depth_maps: int = 0

    @property
    def in_records(self) -> int:
        """Number of rows whose content is in a record."""
        maps = self.semantic_masks + self.depth_maps
        return self.objects + self.captions + self.stuff + self.panoptic + self.joined + maps

    @property
    def accounted(self) -> int:
        """Sum of all outcomes."""
        omitted = sum(self.rejected.values()) + sum(self.filtered.values()) + self.removed + self.in_no_tile
        of_images = self.of_rejected_images + self.of_limited_images + self.of_present_images
        return self.in_records - self.tile_copies + omitted + of_images + self.replaced


class Addition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run of `convert --add` that added to a split.

    Attributes:
        recipe, made_by: See SplitManifest.
        images, annotations: Numbers of this run, which those of the split contain.
        shards: Number of shards that it wrote; 0 if `repack --replan` has planned others.
        replaced: Images of earlier runs that it wrote again.
    """

    recipe: Recipe
    made_by: dict[str, str]
    images: ImageCounts
    annotations: AnnotationCounts
    shards: int = 0
    replaced: int = 0


class SplitManifest(msgspec.Struct, frozen=True):
    """Entry of a split in the manifest.

    Attributes:
        made_by: Versions that determine bytes besides the recipe: this program, and the libraries that decode and
            encode images and masks.
        rejects_sha256: Hex digest of the split's file of rejects.
        first_rejects: First hundred rejects of each reason, in the order of that file.
        class_counts: Number of objects, or of images if each image has one class, by class index.
        warnings: Sentences about the data that are probably worth a look.
        texts: Numbers of encoded texts by column.
        findings: Numbers of images or boxes with possible problems, by a name of
            `recordmill.schemas.statistics.FINDINGS`.
        statistics_sha256: Hex digest of the split's file of statistics; UNSET if there is none.
        fingerprints_sha256: Hex digest of the split's fingerprints; UNSET if records have no images.
        class_map: Classes that --class-map renamed, merged or dropped; UNSET without the option.
        images_sha256: Hex digest of the split's file of images; UNSET if it has none.
        additions: Runs of --add, in their order. All other numbers are sums of all runs, which count a reject once
            that several have; `recipe` and `made_by` are those of the first.
        changes_sha256: Hex digest of the split's file of changes, which the last run of --add listed; UNSET without.
        replaced_shards: Files that --add --sync has written again under other names, until the next run deletes them.
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
    class_map: tuple[MappedClass, ...] | msgspec.UnsetType = msgspec.UNSET
    images_sha256: str | msgspec.UnsetType = msgspec.UNSET
    additions: tuple[Addition, ...] | msgspec.UnsetType = msgspec.UNSET
    changes_sha256: str | msgspec.UnsetType = msgspec.UNSET
    replaced_shards: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def next_shard(self) -> int:
        """Index after the largest one of a shard, listed or replaced."""
        names = self.recipe.shard_names
        replaced = () if self.replaced_shards is msgspec.UNSET else self.replaced_shards
        files = (*(shard.file for shard in self.shards), *replaced)
        return 1 + max((names.key(file, 0).index for file in files), default=-1)

    @property
    def numbered_shards(self) -> list[ShardInfo]:
        """Shards in the order of their numbers, which is that of records and lists."""
        names = self.recipe.shard_names
        return sorted(self.shards, key=lambda shard: names.key(shard.file, 0))

    @property
    def runs(self) -> tuple[Addition, ...]:
        """Runs of --add."""
        return () if self.additions is msgspec.UNSET else self.additions

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """Recipe of each run."""
        return self.recipe, *(run.recipe for run in self.runs)

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
        num_classes: Largest label of objects, or of images, + 1: number of outputs of a model. Without objects, the
            largest value of semantic masks + 1, if it is the id of its category.
        features: Features of a record, if they depend on the input; empty if the layout has them.
        encoders: Encoders of the texts of all splits; their files are next to the shards.
        duplicates: Duplicate images of all splits; UNSET if no split has fingerprints, and in the manifest of one
            split.
        problems: Possible problems of each split that was compared; UNSET if `duplicates` is.
        sha256: Hex digest of this JSON with an empty `sha256`, so that `verify` finds edits.
        container_name: `container` in JSON; UNSET for TFRecord files.
        pixel_ids: `has_pixel_ids` in JSON: True if the id of a segment is its value in semantic masks; otherwise UNSET.
        depth_scale: Metres per unit of depth maps; UNSET without them.
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
    container_name: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="container")
    pixel_ids: bool | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="has_pixel_ids")
    depth_scale: float | msgspec.UnsetType = msgspec.UNSET

    @property
    def container(self) -> str:
        """Container of the shards, see `recordmill.schemas.containers.CONTAINERS`."""
        return TFRECORD if self.container_name is msgspec.UNSET else self.container_name

    def shard_names(self, split: str) -> ShardNames:
        """Return the names of the shards of a split."""
        return shard_names(self.name, split, self.layout, self.container)

    @property
    def labels(self) -> LabelMap:
        """Classes of objects and of segments."""
        return LabelMap(self.categories, self.segments, self.pixel_ids is True)

    def with_labels(self, labels: LabelMap) -> "Manifest":
        """Return the manifest with more classes, which follow its own, see `LabelMap.begins_with`."""
        if labels == self.labels:
            return self
        more = (0,) * (len(labels.categories) - len(self.categories))
        splits = {
            name: msgspec.structs.replace(split, class_counts=split.class_counts + more)
            for name, split in self.splits.items()
        }
        return msgspec.structs.replace(
            self,
            categories=labels.categories,
            segments=labels.segments,
            pixel_ids=labels.has_pixel_ids or msgspec.UNSET,
            num_classes=num_classes(labels, self.table),
            splits=splits,
        )

    @property
    def table(self) -> FeatureTable:
        """Features of the records."""
        table = LAYOUTS[self.layout].with_parts(self.parts)
        if self.features:
            table = msgspec.structs.replace(table, features=self.features)
        return table if self.depth_scale is msgspec.UNSET else table.with_depth_scale(self.depth_scale)

    @property
    def label_by_id(self) -> dict[int, int]:
        """Label of each category in records, by category id: above 0, the background, or the id itself."""
        return label_by_id(self.labels, self.table)


class Plan(msgspec.Struct, frozen=True):
    """Plan of a job."""

    manifest: Manifest  # without shards; with the counts that are known before any image is read
    sizes: dict[str, SplitSize]  # by split
    fields: dict[str, str] = {}  # values of each requested open field, as text, by its name in --fields
    first_shards: dict[str, int] = {}  # index of the first new shard of each split that the data set has


def label_by_id(labels: LabelMap, table: FeatureTable) -> dict[int, int]:
    """Return records' number of each category, see `Manifest.label_by_id`."""
    if "objects.label" in table.sources:
        return labels.label_by_id()
    return {category.id: category.id for category in labels.all}


def num_classes(labels: LabelMap, table: FeatureTable) -> int:
    """Return the largest label + 1. The label is the class index in layouts that use it as the label, and otherwise
    `label_by_id`."""
    if table.class_source or table.label.endswith(".class_index"):
        return len(labels.categories)
    if labels.has_pixel_ids and not labels.categories:
        return max(labels.semantic_by_id().values(), default=-1) + 1
    label = label_by_id(labels, table)
    return max((label[category.id] for category in labels.categories), default=-1) + 1


def manifest_of(
    name: str,
    labels: LabelMap,
    table: FeatureTable,
    splits: dict[str, SplitManifest],
    encoders: tuple[EncoderInfo, ...] = (),
) -> Manifest:
    """Return the manifest of these classes and records. All splits have one container."""
    container = next((split.recipe.container for split in splits.values()), TFRECORD)
    depth_scale, table = table.depth_scale, table.with_depth_scale(None)
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
        container_name=msgspec.UNSET if container == TFRECORD else container,
        pixel_ids=labels.has_pixel_ids or msgspec.UNSET,
        depth_scale=msgspec.UNSET if depth_scale is None else depth_scale,
    )


class _Format(msgspec.Struct):
    """Fields of a manifest of any format."""

    format: int


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Return the manifest in `data`.

    Raises:
        ConfigError: `data` is not a manifest, or has another format. The error names `path`.
    """
    try:
        format_ = msgspec.json.decode(data, type=_Format).format
        manifest = msgspec.json.decode(data, type=Manifest) if format_ == FORMAT else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a Recordmill manifest ({error}); was it edited or cut short?") from error
    if manifest is None:
        raise ConfigError(
            f"{path} has manifest format {format_}, but this version reads format {FORMAT}: a development version of "
            "Recordmill wrote it. Convert again into another folder"
        )
    if manifest.layout not in LAYOUTS:
        raise ConfigError(f"{path} has the unknown layout {manifest.layout!r}")
    if manifest.container not in CONTAINERS:
        raise ConfigError(
            f"{path} has the unknown container {manifest.container!r}; this version reads {', '.join(CONTAINERS)}"
        )
    if fault := dataset_name_fault(manifest.name):
        raise ConfigError(f"{path}: the name {manifest.name!r} {fault}; was it edited?")
    for name, split in manifest.splits.items():
        if fault := split_name_fault(name):
            raise ConfigError(f"{path}: the name of the split {name!r} {fault}; was it edited?")
        if split.recipe.container != manifest.container:
            raise ConfigError(
                f"{path}: its container is {manifest.container}, but the recipe of {name} has "
                f"{split.recipe.container}; was it edited?"
            )
        if (split.recipe.name, split.recipe.split) != (manifest.name, name):
            raise ConfigError(
                f"{path}: the recipe of {manifest.name}-{name} belongs to {split.recipe.name}-{split.recipe.split}; "
                "was it edited?"
            )
        names = manifest.shard_names(name)
        for shard in split.shards:
            if not names.is_one(shard.file):
                raise ConfigError(f"{path} lists {shard.file!r}, which is not the name of a shard of its split {name}")
    try:
        _ = manifest.table
    except ValueError as error:
        raise ConfigError(f"{path}: {error}; was it edited?") from error
    return manifest


def encode_json(value: object) -> bytes:
    """Return `value` as indented JSON. Equal values give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2) + b"\n"


def with_digest(manifest: Manifest) -> Manifest:
    """Return the manifest with a new `sha256`."""
    bare = encode_json(msgspec.structs.replace(manifest, sha256=""))
    return msgspec.structs.replace(manifest, sha256=hashlib.sha256(bare).hexdigest())


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of manifest.json, with a new `sha256`."""
    return encode_json(with_digest(manifest))
