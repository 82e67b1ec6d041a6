"""Feature tables: the contents of a record, as data.

The encoder, the parse spec, TFDS's description and the documentation page all come from the same table.
"""

from enum import Enum
from itertools import pairwise
from typing import Any

import msgspec

from recordmill.schemas.errors import missing_extra


class FeatureKind(str, Enum):
    """The three list types of tf.train.Feature."""

    BYTES = "bytes"
    FLOAT = "float"
    INT64 = "int64"


class Part(str, Enum):
    """Optional contents of a record: requested by a flag, or present in the input."""

    MASK_PNG = "mask_png"  # --masks png
    MASK_RLE = "mask_rle"  # --masks rle
    KEYPOINTS = "keypoints"  # --keypoints
    CAPTIONS = "captions"  # --captions
    CAPTION_TERMS = "caption_terms"  # --caption-text counts, tfidf
    CAPTION_TOKENS = "caption_tokens"  # --caption-text tokens
    SEMANTIC = "semantic"  # --panoptic, --stuff, or image and mask pairs
    DEPTH = "depth"  # --depth-images
    PANOPTIC = "panoptic"  # --panoptic
    LVIS = "lvis"  # image rows with neg_category_ids
    FLAGS = "flags"  # formats that mark objects as difficult or truncated, or state their view
    ORIENTED = "oriented"  # formats with oriented boxes
    TRACKS = "tracks"  # formats with tracks
    TAGS = "tags"  # images with classes in addition to objects
    CATEGORY_ID = "category_id"  # a category with id 0 or below, so that labels are not the category ids
    TILES = "tiles"  # --tile


OF_INPUT = (Part.LVIS, Part.FLAGS, Part.ORIENTED, Part.TRACKS, Part.TAGS, Part.CATEGORY_ID, Part.TILES)
"""Parts that depend on the input and not on an option."""
PARTS_OF_FIELDS = (Part.FLAGS, Part.TRACKS)
"""Parts with the well-known fields, see `recordmill.schemas.field_features`."""


def format_parts(parts: tuple[Part, ...]) -> str:
    """Return the names of parts for a message."""
    return ", ".join(part.value for part in parts) or "no optional part"


class ColumnType(str, Enum):
    """Type of a column, as `--schema` names it. The comments describe the stored values."""

    INT64 = "int64"  # int64
    FLOAT = "float32"  # float
    BYTES = "bytes"  # bytes: text as UTF-8
    BOOL = "bool"  # int64, 0 or 1
    DATE = "date"  # int64, days since 1970-01-01
    TIMESTAMP = "timestamp"  # int64, microseconds since 1970-01-01 UTC
    ENUM = "enum"  # int64, the index of its name
    CLASS = "class"  # int64, the class index
    CLASS_NAME = "class_name"  # bytes: the name of the class as UTF-8
    TERM_INDEX = "term_index"  # int64, of the terms of a text
    TERM_VALUE = "term_value"  # float, their weights
    TERM_COUNT = "term_count"  # int64, number of times they occur in the text
    TOKEN_IDS = "token_ids"  # int64, of the tokens of a text


class Feature(msgspec.Struct, frozen=True):
    """One key of a record."""

    name: str
    # identifies the value; the same in all layouts, while `name` differs (see `recordmill.schemas.layouts`).
    source: str
    kind: FeatureKind
    # names of the dimensions, or their sizes; empty for a single value. Lists that share a name have the same length.
    # A BYTES feature whose dimensions are all sizes stores uint8 numbers as a single value.
    shape: tuple[str, ...]
    unit: str  # of the values, or how they are written
    meaning: str  # description for the documentation
    part: Part | None = None  # optional part of a record that has the feature; None if every record has it
    values: tuple[str, ...] = ()  # names of an enum by the stored number; empty for anything else
    default: str | None = None  # value stored for missing values of the input; None without a default
    column_type: ColumnType | None = None  # of a table's column; None for anything else
    # metres per unit of a depth map, see `scale`; UNSET in manifests, which have it once.
    metres: float | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="scale")

    @property
    def scale(self) -> float | None:
        """Metres per unit of a depth map; None for anything else."""
        return None if self.metres is msgspec.UNSET else self.metres

    @property
    def has_sizes(self) -> bool:
        """True if each record has the same number of values."""
        return all(size.isdecimal() for size in self.shape)

    @property
    def is_packed(self) -> bool:
        """True if the value is packed uint8 numbers of `shape`."""
        return self.kind is FeatureKind.BYTES and bool(self.shape) and self.has_sizes

    @property
    def is_list(self) -> bool:
        """True if the record has a list of values."""
        return bool(self.shape) and not self.is_packed


class Form(str, Enum):
    """Conversion of the stored value for readers."""

    AS_IT_IS = "as it is"
    DECIMAL = "decimal"
    IMAGE = "JPEG or PNG"
    PIXELS = "raw pixels"
    GREY = "grey PNG"
    DEPTH = "grey PNG of 16 bits"
    SEGMENT_IDS = "PNG of ids"
    FLOAT16 = "bytes of float16"
    STACKED = "one feature a number"
    PNG_MASKS = "grey PNGs"
    RLE_MASKS = "COCO RLE"
    KEYPOINTS = "keypoints"
    RAGGED = "lists of different lengths"


class Reading(msgspec.Struct, frozen=True):
    """Value that readers return.

    Attributes:
        name: Key of the value.
        source: Feature that the value is made from, or the first of several.
        dtype: Type of NumPy and TensorFlow; `bytes` are `bytes`, a list of them an array of objects, tf.string.
        shape: Names of the dimensions, or their sizes.
        meaning: Meaning, with unit and frame.
        padding: Padding of a list in a batch; for bytes always the empty string.
        scale: Metres per stored unit of a depth map, by which readers multiply; 1 for anything else.
    """

    name: str
    source: str
    dtype: str
    shape: tuple[str, ...]
    meaning: str
    padding: float = 0
    form: Form = Form.AS_IT_IS
    scale: float = 1.0

    @property
    def static_shape(self) -> tuple[int | None, ...]:
        """Sizes of the dimensions; None for a size that varies between records."""
        return tuple(int(size) if size.isdecimal() else None for size in self.shape)


CLASS_OF_ROW = "row.class_index/"
"""Prefix of the source of a table's label. The name of the column follows."""


class RecordOf(str, Enum):
    """Unit of a record."""

    IMAGE = "image"
    ANNOTATION = "annotation"
    ROW = "row"


class ShardNaming(str, Enum):
    """Naming of a layout's shards, see `recordmill.schemas.shards`."""

    TFDS = "tfds"
    KERAS = "keras"


class FeatureTable(msgspec.Struct, frozen=True):
    """The features of one layout, ordered by name (the order they have in the serialised record).

    Attributes:
        groups: prefixes of names that TFDS shows as one nested feature; all lists below one have the same length.
        examples_per_shard: the default without a sizing option; None for shards of about equal size in bytes.
        label: source of the label that readers return.
        lacking: requested open fields that one of several sets lacks, and a sentence about each. Empty once the sets
            are joined.
    """

    layout: str
    features: tuple[Feature, ...]
    record_of: RecordOf = RecordOf.IMAGE
    naming: ShardNaming = ShardNaming.TFDS
    groups: tuple[str, ...] = ()
    examples_per_shard: int | None = None
    label: str = ""
    lacking: tuple[tuple[str, str], ...] = ()

    def __post_init__(self):
        names = [feature.name for feature in self.features]
        if names != sorted(set(names)):
            raise ValueError(f"features of {self.layout} must be unique and sorted by name")

    @property
    def parts(self) -> tuple[Part, ...]:
        """Optional parts that the features belong to."""
        held = {feature.part for feature in self.features}
        return tuple(part for part in Part if part in held)

    @property
    def has_masks(self) -> bool:
        """True if records have masks of objects."""
        return Part.MASK_PNG in self.parts or Part.MASK_RLE in self.parts

    def with_parts(self, parts: tuple[Part, ...]) -> "FeatureTable":
        """Return the records' table with exactly the parts `parts`."""
        features = tuple(feature for feature in self.features if feature.part is None or feature.part in parts)
        return msgspec.structs.replace(self, features=features)

    @property
    def depth_scale(self) -> float | None:
        """Metres per unit of depth maps; None without depth maps."""
        return next((feature.scale for feature in self.features if feature.scale is not None), None)

    def with_depth_scale(self, metres: float | None) -> "FeatureTable":
        """Return the table with another `depth_scale`."""
        value = msgspec.UNSET if metres is None else metres
        features = (
            msgspec.structs.replace(feature, metres=value) if feature.part is Part.DEPTH else feature
            for feature in self.features
        )
        return msgspec.structs.replace(self, features=tuple(features))

    def adding(self, layout: "FeatureTable", part: Part) -> "FeatureTable":
        """Return the table with the features of a part of the layout's table."""
        features = {feature.name: feature for feature in layout.features if feature.part is part}
        features |= {feature.name: feature for feature in self.features}
        return msgspec.structs.replace(self, features=tuple(features[name] for name in sorted(features)))

    def renamed(self, names: dict[str, str]) -> "FeatureTable":
        """Return the table with other feature names for some sources.

        Raises:
            ValueError: Two features would have the same name.
        """
        features = sorted(
            (
                msgspec.structs.replace(feature, name=names.get(feature.source, feature.name))
                for feature in self.features
            ),
            key=lambda feature: feature.name,
        )
        for feature, following in pairwise(features):
            if feature.name == following.name:
                raise ValueError(f"{feature.name} would be the name of two features of layout {self.layout}")
        return msgspec.structs.replace(self, features=tuple(features))

    @property
    def sources(self) -> frozenset[str]:
        """Sources of the features, such as `objects.label`."""
        return frozenset(feature.source for feature in self.features)

    @property
    def class_source(self) -> str:
        """Source of the class index of an image or row with one class; empty if records have none."""
        class_sources = (
            source for source in self.sources if source == "image.class_index" or source.startswith(CLASS_OF_ROW)
        )
        return next(class_sources, "")


def parse_spec(table: FeatureTable) -> dict[str, Any]:
    """Return the features that `tf.io.parse_single_example` and `tf.io.parse_example` need for records of `table`.

    A feature of fixed size (a single value, a box) becomes a dense tensor; parsing fails if it is missing. A list
    becomes a dense vector for one record, and a ragged tensor for a batch. A list of boxes becomes [N, 4] for one
    record, and [batch, N, 4] for a batch. Imports TensorFlow.

    Raises:
        ConfigError: TensorFlow is not installed.
    """
    return {feature.name: _spec(feature) for feature in table.features}


def _spec(feature: Feature) -> Any:
    try:
        import tensorflow as tf
    except ModuleNotFoundError as error:
        raise missing_extra("recordmill.parse_spec", "tensorflow") from error
    dtype = {FeatureKind.BYTES: tf.string, FeatureKind.FLOAT: tf.float32, FeatureKind.INT64: tf.int64}[feature.kind]
    if feature.is_packed:
        return tf.io.FixedLenFeature([], dtype)
    if feature.has_sizes:
        return tf.io.FixedLenFeature([int(size) for size in feature.shape], dtype)
    ragged: Any = tf.io.RaggedFeature
    return ragged(dtype, partitions=[ragged.UniformRowLength(int(size)) for size in feature.shape[1:]])


DTYPES = {FeatureKind.BYTES: "bytes", FeatureKind.FLOAT: "float32", FeatureKind.INT64: "int64"}
