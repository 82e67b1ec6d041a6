"""Options of conversions whose records hold objects: boxes, masks, classes."""

from collections.abc import Iterator
from typing import Any, Literal

from recordmill.schemas.features import Part
from recordmill.schemas.inputs.option import LEAVE_OUT, READ, WRITE, Names, redefined
from recordmill.schemas.inputs.options import DividedOptions, PictureOptions
from recordmill.schemas.layouts import CocoLayout

MASKS = {"none": (), "png": (Part.MASK_PNG,), "rle": (Part.MASK_RLE,), "both": (Part.MASK_PNG, Part.MASK_RLE)}


def match_option() -> Any:
    """Return the field of `--match`, of sources that name images."""
    return READ.opt(
        "How a `file_name` finds its file. `path`: it is the path below `--images`. `suffix`: the file whose path has "
        "the longest end in common with it, at least the file's name. `name`: the file with this name, in any folder. "
        "With the last two, a `file_name` may be an absolute or a Windows path, and the record has the file's path "
        "below `--images` instead. A name that two files match is an error.",
        "path",
    )


class ObjectOptions(PictureOptions):
    """Options of records that hold the objects of an image."""

    layout: CocoLayout = redefined(PictureOptions, "layout", "detection")
    examples_per_shard: int | None = redefined(PictureOptions, "examples_per_shard", usual="4096 in layout keras")
    masks: Literal["none", "png", "rle", "both"] = WRITE.opt(
        "Masks of objects. `png`: 8-bit PNG of the complete image with values 0 and 1. `rle`: COCO's compressed run "
        "lengths. With `none`, segmentations are not read.",
        "none",
        also="include-masks",
    )
    boxes: Literal["clip", "drop", "keep"] = LEAVE_OUT.opt(
        "What to do about a box that crosses its image's edge. `clip` cuts it there, `drop` skips it, `keep` stores it "
        "unchanged, beyond 0..1.",
        "clip",
    )

    @property
    def box_policy(self) -> str:
        return self.boxes


class AnnotatedOptions(ObjectOptions, DividedOptions):
    """Options of sources of images with objects."""

    stratify: bool = WRITE.opt(
        "Give each split its share of the images of every category. Iterative stratification: rare categories first; "
        "the number of images of a split is exact to one image, or one group. Images may move when others are added.",
        False,
    )
    no_crowd: bool = LEAVE_OUT.opt("Skip annotations with `iscrowd` 1.", False)
    min_area: float = LEAVE_OUT.opt("Skip annotations with a smaller `area`.", 0.0, "PX2", ge=0)
    categories: Names = LEAVE_OUT.opt(
        "Keep only annotations of these categories; repeatable. Images without any of them stay.",
        (),
        "NAME[,NAME…]",
        "all",
    )

    def _faults(self) -> Iterator[str]:
        if self.stratify and len(self.split) < 2:
            yield "--stratify divides categories, but --split names a single split"
        if self.stratify and self.given("split_by"):
            yield f"--stratify and --split-by {self.split_by} contradict each other: give one"
        yield from super()._faults()
