"""Options of conversions whose records hold images: their pixels, and boxes, masks and classes of objects."""

from collections.abc import Iterable, Iterator, Mapping
from math import isqrt
from typing import Any, ClassVar, Literal

from recordmill.schemas.containers import CONTAINERS
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import PARTS_OF_FIELDS, FeatureKind, FeatureTable, Part
from recordmill.schemas.inputs.fields import NONE, Fields, FieldSelection, select_fields
from recordmill.schemas.inputs.images import MAX_PIXELS, ImageRules, TileRules
from recordmill.schemas.inputs.maps import MapFolder, depth_folders
from recordmill.schemas.inputs.option import (
    COMMON,
    IMAGES,
    LEAVE_OUT,
    RARE,
    READ,
    TEXTS,
    WRITE,
    Images,
    Names,
    Pairs,
    option_fields,
    redefine_option,
)
from recordmill.schemas.inputs.options import DividedOptions, ImageOptions, RecipeValue, pair_faults, parse_pairs
from recordmill.schemas.layouts import CLASSIFICATION, LAYOUTS, NUMERIC, CocoLayout, labels_table

MASKS = {"none": (), "png": (Part.MASK_PNG,), "rle": (Part.MASK_RLE,), "both": (Part.MASK_PNG, Part.MASK_RLE)}


ALLOW_EMPTY = "--allow-empty"
LabelFormatName = Literal["coco", "yolo", "voc", "labelme", "hf", "ndjson", "cvat", "createml"]
LABEL_FORMATS_TEXT = (
    "`coco`: COCO JSON. `yolo`: data.yaml, images and labels, for Ultralytics. `voc`: Pascal VOC. `labelme`: a JSON "
    "file next to each image. `hf`: Hugging Face's imagefolder, with metadata.jsonl. `ndjson`: images and "
    "dataset.ndjson, as Ultralytics' platform exports them. `cvat`: images and annotations.xml, CVAT's XML 1.1. "
    "`createml`: Apple's JSON next to the images."
)
_MOST_METRES = 10
"""Maximum metres per unit of depth maps. Data sets that state units per metre have larger numbers."""


def match_option() -> Any:
    """Return the field of `--match`, for sources that name images."""
    return READ.opt(
        "How to find the file of a `file_name`. `path`: it is the path below the folder of images. `suffix`: the file "
        "whose path has the longest common suffix with it, at least the file name. `name`: the file with this name, "
        "in any folder. With `suffix` and `name`, a `file_name` may be an absolute or a Windows path, and the record "
        "stores the file's path below the folder of images instead. A name that matches two files is an error.",
        "path",
    )


def bbox_format_option(boxes: str, more: str = "") -> Any:
    """Return the field of `--bbox-format`, for sources whose boxes may have several meanings.

    Args:
        boxes: Name of the boxes in the help, with their files.
        more: Condition of fractions in the help.
    """
    return READ.opt(
        f"Meaning of the four numbers of a {boxes}. Left, top, width, height; or "
        "left, top, right, bottom; or (`cxcywh`) centre, width, height; in pixels, or (`rel-`) as fractions of the "
        f"image size{more}. Without it, a file whose boxes do not fit `xywh` is refused.",
        usual="xywh, if the boxes fit it",
    )


class StoredImageOptions(ImageOptions):
    """Options of conversions whose records hold images."""

    check: Literal["none", "header", "decode"] = LEAVE_OUT.opt(
        "How thoroughly images are checked. `none` trusts the sizes in the JSON. `header` reads the header and checks "
        "that the file is not truncated. `decode` also reads every marker or chunk and decodes every pixel.",
        "decode",
    )
    duplicates: Literal["report", "leakage", "fail", "drop"] = LEAVE_OUT.opt(
        "What to do about duplicate images. `report` lists them in [duplicates.jsonl](records.md#duplicatesjsonl); "
        "`leakage` fails the job if two splits have an exact or near copy of an image. `fail` also fails it if one "
        "split has copies. The shards are kept: the same command with `report` accepts them without writing them "
        "again. Complete splits are compared, too, and stay. `drop` keeps one of a job's images with identical files. "
        "The others are rejected as `duplicate`, which `--max-rejects` does not count. Near copies are known only "
        "when images are decoded: `--exclude` drops them in the next run.",
        "report",
        recorded=False,
    )
    image_format: Literal["keep", "jpeg", "png"] = IMAGES.opt(
        "Format of stored images. `keep` stores files unchanged, see [image_formats.md](image_formats.md).",
        "keep",
        recorded="format",
        rank=COMMON,
    )
    max_side: int | None = IMAGES.opt(
        "Shrink images whose longer side has more pixels. Boxes, masks, keypoints and panoptic maps follow.",
        metavar="PX",
        ge=1,
        le=65_500,
        also="resize image-size",
        rank=COMMON,
    )
    jpeg_quality: int = IMAGES.opt(
        "Quality of images that are encoded as JPEG.", 95, "Q", ge=1, le=100, also="quality", rank=RARE
    )

    dtype: Pairs = WRITE.opt(
        "Numeric types of keys of records. `--dtype area=int64`. The job fails at the first number that the type "
        "cannot represent exactly.",
        (),
        "KEY=int64|float32[,…]",
    )

    @property
    def kinds(self) -> dict[str, FeatureKind]:
        return {key: NUMERIC[name] for key, name in parse_pairs(self.dtype).items() if name in NUMERIC}

    def _faults(self) -> Iterator[str]:
        if self.writer == "beam" and self.refused_duplicates != "report":
            yield f"--writer beam does not search for duplicates. Leave --duplicates {self.duplicates} out"
        yield from pair_faults("dtype", self.dtype, "KEY=int64 or KEY=float32", NUMERIC)
        yield from super()._faults()
        if not (self.rename or self.dtype):
            return
        try:
            self._check_keys()
        except ConfigError as fault:
            yield str(fault)

    def _check_keys(self) -> None:
        """Raise ConfigError if `--rename` or `--dtype` is invalid."""
        _ = self.layout_table

    @property
    def refused_duplicates(self) -> str:
        """Policy of `recordmill.transforms.insight.across_splits.check_duplicates`."""
        return "report" if self.duplicates == "drop" else self.duplicates

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        recorded = super().record_options
        return recorded | {"duplicates": self.duplicates} if self.duplicates == "drop" else recorded

    @property
    def box_policy(self) -> str:
        """Policy of `recordmill.transforms.encoders.encode_objects.fit_boxes`."""
        return "keep"

    @property
    def has_exact_sizes(self) -> bool:
        return super().has_exact_sizes and not self.max_side and self.image_format == "keep"

    @property
    def image_rules(self) -> ImageRules:
        return ImageRules(self.check, self.image_format, self.max_side, self.jpeg_quality)


_OF_RECORDS = (WRITE, IMAGES, TEXTS)
"""Headings of options that describe records."""
_OF_LABELS = {
    *("labels_only", "as", "output", "name", "dry_run", "masks", "fields"),
    *("split", "split_seed", "split_by", "stratify", "group_from", "groups"),
}
"""Options below these headings that also describe label files."""


class LabelsOnlyOptions(StoredImageOptions):
    """Options of conversions that can write labels of another format in place of records.

    Attributes:
        has_objects: False for images that never have objects.
    """

    has_objects: ClassVar[bool] = True

    labels_only: bool = WRITE.opt(
        "Write labels in another format instead of records. Images are linked, or copied where links are not "
        "possible. See [recipes.md](recipes.md#convert-labels-to-another-format).",
        False,
        rank=COMMON,
    )
    as_: LabelFormatName = WRITE.opt(
        f"Format of the labels. {LABEL_FORMATS_TEXT}",
        "coco",
        alias="as",
        needs="labels_only",
        recorded=False,
    )

    def __init__(self, **values: Any):
        if values.get("labels_only") in (True, "true"):
            # Shapes are part of the labels, and unchanged images need no check of their pixels.
            values = {"check": "header"} | ({"masks": "rle"} if self._may_have_shapes(values) else {}) | values
        super().__init__(**values)

    @classmethod
    def _may_have_shapes(cls, values: Mapping[str, Any]) -> bool:
        """Return True if options may read objects with masks."""
        field = next((field for field in option_fields(cls) if field.name == "masks"), None)
        if field is None or not cls.has_objects or values.get("layout") == CLASSIFICATION.layout:
            return False
        return not field.needs or any(values.get(name) for name in field.needs)

    @property
    def usual_table(self) -> FeatureTable:
        return labels_table(super().usual_table) if self.labels_only else super().usual_table

    @property
    def has_exact_sizes(self) -> bool:
        return super().has_exact_sizes and not self.labels_only

    def _faults(self) -> Iterator[str]:
        if self.labels_only:
            yield from self._record_faults()
        yield from super()._faults()

    def _record_faults(self) -> Iterator[str]:
        """Yield an error of options that describe records."""
        fields = (field for field in option_fields(type(self)) if field.group in _OF_RECORDS or field.name == "part")
        foreign = [field.attribute for field in fields if field.name not in _OF_LABELS]
        if self.layout == CLASSIFICATION.layout:  # that of images of one class each, which users cannot choose
            foreign.remove("layout")
        if flags := self.given(*foreign):
            yield f"--labels-only writes no records, so {', '.join(flags)} would do nothing. Leave {_it(flags)} out"
        if (masks := getattr(self, "masks", "rle")) in ("png", "both"):
            yield f"--labels-only writes masks as --as {self.as_} stores them. Leave --masks {masks} out"
        if self.refused_duplicates != "report" and self.check != "decode":
            yield (
                f"--duplicates {self.duplicates} compares pixels, which --labels-only does not read. Add --check decode"
            )


def _it(flags: list[str]) -> str:
    return "them" if len(flags) > 1 else "it"


class TileOptions(StoredImageOptions):
    """Options of records that hold images, or tiles of images."""

    tile: int | None = IMAGES.opt(
        "Divide images into tiles of this width and height, one record per tile. Boxes, masks, keypoints and panoptic "
        "maps follow. The last tile of a row or column has the remaining pixels. An image smaller than a tile is one "
        "tile. See [shape.md](shape.md#tiles).",
        metavar="PX",
        ge=1,
        also="tile-size slice-size crop-size",
        rank=COMMON,
    )
    tile_overlap: float = IMAGES.opt(
        "Overlap of neighbouring tiles as a share of a tile, 0 to below 1.", 0.0, "SHARE", needs="tile", ge=0, le=1
    )
    tile_min_visible: float = IMAGES.opt(
        "Minimum visible share of an object in a tile. Objects with a smaller share are dropped from the tile. The "
        "share is measured in pixels of the mask if `--masks` reads masks, otherwise in the area of the box.",
        0.3,
        "SHARE",
        needs="tile",
        ge=0,
        le=1,
    )
    keep_empty: float = IMAGES.opt(
        "Share of the tiles without objects to write. A hash of their names selects them.",
        0.0,
        "SHARE",
        needs="tile",
        ge=0,
        le=1,
    )

    @property
    def tile_rules(self) -> TileRules | None:
        """Rules for tiles; None if images stay whole."""
        if self.tile is None:
            return None
        return TileRules(self.tile, self.tile_overlap, self.tile_min_visible, self.keep_empty)

    @property
    def has_exact_sizes(self) -> bool:
        return super().has_exact_sizes and not self.tile

    def _faults(self) -> Iterator[str]:
        if self.tile_overlap == 1:
            yield "--tile-overlap must be below 1, or tiles would not advance"
        if self.tile and self.tile**2 > MAX_PIXELS:
            most = isqrt(MAX_PIXELS)
            yield f"--tile {self.tile} is larger than any image that is read, of {MAX_PIXELS:,} pixels: {most} or less"
        if self.tile and self.max_side:
            yield "--tile and --max-side contradict each other. Leave one of the two out"
        yield from super()._faults()


class ObjectOptions(TileOptions):
    """Options of records that hold the objects of an image."""

    layout: CocoLayout = redefine_option(StoredImageOptions, "layout", "detection")
    examples_per_shard: int | None = redefine_option(
        StoredImageOptions, "examples_per_shard", usual="4096 in layout keras"
    )
    masks: Literal["none", "png", "rle", "both"] = WRITE.opt(
        "Masks of objects. `png`: 8-bit PNG of the complete image with values 0 and 1. `rle`: COCO's compressed run "
        "lengths. With `none`, segmentations are not read.",
        "none",
        also="include-masks",
        rank=COMMON,
    )
    boxes: Literal["clip", "drop", "keep"] = LEAVE_OUT.opt(
        "What to do about a box that crosses its image's edge. `clip` clips it to the image, `drop` rejects it, "
        "`keep` stores it unchanged, outside of 0..1.",
        "clip",
    )
    fields: Fields = WRITE.opt(
        "Fields to store: values of objects or images for which the layout has no feature. `NAME` is the path of the "
        "value in the source: `score`, `attributes.occluded`. `image.NAME` is a field of the image. `:int`, `:float` "
        "and `:text` set the kind; by default, it is inferred from all values. `all` stores all fields. `none` also "
        "omits difficult, truncated, view and track_id. On the command line, quote a path with a comma or a colon as "
        "in CSV. See [formats.md](formats.md#fields).",
        (),
        "NAME[:KIND][,…]|all|none",
    )

    def _faults(self) -> Iterator[str]:
        if self.masks in ("png", "both") and not CONTAINERS[self.container].has_png_masks:
            yield f"--masks {self.masks}: --container {self.container} stores masks of objects as --masks rle only"
        yield from super()._faults()

    @property
    def box_policy(self) -> str:
        return self.boxes

    @property
    def unwritten_parts(self) -> tuple[Part, ...]:
        """Parts with the well-known fields, if `--fields none` leaves them out."""
        return PARTS_OF_FIELDS if self.fields == (NONE,) else ()

    @property
    def has_fields(self) -> bool:
        return any(self.selected_fields())

    def selected_fields(self, image_paths: Iterable[str] = ()) -> tuple[FieldSelection, FieldSelection]:
        """Return the requested open fields of images, and those of objects. See `select_fields`."""
        return select_fields(self.fields, image_paths, self.dry_run)


class AnnotatedOptions(ObjectOptions, LabelsOnlyOptions, DividedOptions):
    """Options of sources of images with objects."""

    stratify: bool = WRITE.opt(
        "Give each split its share of the images of every category. Iterative stratification: rare categories first. "
        "The number of images per split is exact to one image, or one group. Images may change splits when others are "
        "added.",
        False,
        rank=COMMON,
    )
    no_crowd: bool = LEAVE_OUT.opt("Skip annotations with `iscrowd` 1.", False)
    min_area: float = LEAVE_OUT.opt("Skip annotations with a smaller `area`.", 0.0, "PX2", ge=0)
    categories: Names = LEAVE_OUT.opt(
        "Keep only annotations of these categories; repeatable. Images without them stay, as background.",
        (),
        "NAME[,NAME…]",
        "all",
        rank=COMMON,
    )
    depth_images: Images = READ.opt(
        "Folder or .zip of depth maps, including its subfolders; repeatable. 16-bit greyscale PNGs, one per image, "
        "with the path and name of the image. Folder names and suffixes such as `images`, `rgb` or `depth` are "
        "ignored: the depth map of `rgb/1.jpg` is `depth/1.png` or `1_depth.png`. Needs `--depth-scale`. An image "
        "without a depth map is rejected. See [formats.md](formats.md#depth-maps).",
        (),
        "DIR|ZIP",
        also="depth depth-dir depth-maps",
    )
    depth_scale: float | None = READ.opt(
        "Metres per unit of the depth maps. 0.001 for millimetres (NYU, ScanNet, RealSense), 0.00390625 for KITTI, "
        "0.0002 for TUM. Readers return metres.",
        metavar="METRES",
        needs="depth_images",
    )
    allow_empty: bool = READ.opt(
        "Accept a data set without any label: all images are background. Without it, a job that reads no label fails, "
        "because the label files are probably elsewhere. Captions, panoptic segments and `--image-info` need no flag.",
        False,
        recorded=False,
        rank=RARE,
    )

    @property
    def map_folders(self) -> tuple[MapFolder, ...]:
        """Folders of the maps of images: semantic masks and depth maps."""
        return depth_folders(self.depth_images, self.images)

    @property
    def metres_per_unit(self) -> float | None:
        """Metres per unit of depth maps; None without depth maps."""
        return self.depth_scale

    def stored(self, table: FeatureTable) -> FeatureTable:
        return super().stored(table).with_depth_scale(self.metres_per_unit)

    @property
    def read_categories(self) -> tuple[str, ...]:
        """Categories that the source selects; empty for all, as if a class map renames them first."""
        return () if self.changes_classes else self.categories

    @property
    def divides_ranked(self) -> bool:
        """True if the split of an image depends on the other images."""
        return self.stratify or self.split_by == "rank"

    def _faults(self) -> Iterator[str]:
        if self.stratify and len(self.split) < 2:
            yield "--stratify needs several splits, but --split names one"
        if self.stratify and self.given("split_by"):
            yield f"--stratify and --split-by {self.split_by} contradict each other. Give only one of them"
        if self.depth_images and self.depth_scale is None:
            yield (
                "--depth-images needs --depth-scale, the metres per unit of its pixels: 0.001 for NYU, ScanNet, "
                "RealSense and other maps in millimetres, 0.00390625 for KITTI, 0.0002 for TUM"
            )
        if self.depth_scale is not None and not 0 < self.depth_scale <= _MOST_METRES:
            cure = (
                f": {self.depth_scale:g} units per metre are {1 / self.depth_scale:.6g}" if self.depth_scale > 0 else ""
            )
            yield (
                f"--depth-scale is the metres per unit, more than 0 and at most {_MOST_METRES} (got "
                f"{self.depth_scale:g}){cure}"
            )
        if self.depth_images and Part.DEPTH not in LAYOUTS[self.layout].parts:
            yield f"--layout {self.layout} has no feature for --depth-images. Leave one of the two out"
        yield from super()._faults()
