"""Options of the format `masks`."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from recordmill.schemas.inputs.labels import SEMANTIC_IGNORE
from recordmill.schemas.inputs.option import READ, Data, Images, Masks, Names, redefine_option
from recordmill.transforms.annotated.format_options import FormatOptions

_OF_OBJECTS = (
    *("masks", "boxes", "fields", "no_crowd", "min_area", "categories", "stratify", "max_per_class"),
    *("tile_min_visible", "keep_empty"),
)
"""Options that only affect objects."""


class MasksOptions(FormatOptions):
    """Options of the format `masks`, see docs/formats.md."""

    data: Data = redefine_option(
        FormatOptions,
        "data",
        ...,
        "Folder or .zip with a folder of images and a folder of masks, such as `images` and `masks`; or with each "
        "mask next to its image; or only of images, with `--mask-images`.",
    )
    images: Images = redefine_option(
        FormatOptions, "images", text="Folder or .zip of images. DATA is then the folder of the masks.", usual="in DATA"
    )
    mask_images: Masks = READ.opt(
        "Folder or .zip of masks, if they are not in DATA. A mask is a PNG, or another lossless image, with the size "
        "and the name of its image. A prefix or suffix that all names share is ignored: `1_leftImg8bit.png` and "
        "`1_gtFine_labelIds.png`.",
        (),
        "DIR|ZIP",
        "in DATA",
    )
    class_names: Names = READ.opt(
        "Class names: name n is for pixels with value n, from 0. Or `NAME=VALUE`. Or `NAME=#RRGGBB` for coloured "
        "masks, whose colours become the values 0, 1, … Or a file: one name per line; a table with the columns `name` "
        "and `value`, or `name`, `r`, `g` and `b`; CVAT's labelmap.txt.",
        (),
        "NAME[=VALUE][,…]|FILE",
        "a file of DATA such as _classes.csv, class_dict.csv, labelmap.txt or classes.txt",
    )
    void: Names = READ.opt(
        "Pixel values of unknown pixels, which are written as 255. The value 255 is also unknown, unless a class has "
        "it. For coloured masks, the number of the class in `--class-names`, from 0.",
        (),
        "VALUE[,…]",
    )
    layout: Literal["detection"] = redefine_option(FormatOptions, "layout", "detection")
    name: str = redefine_option(FormatOptions, "name", "masks")
    endings: ClassVar[tuple[str, ...]] = ()
    most_folders: ClassVar[int | None] = 1
    has_objects: ClassVar[bool] = False

    @property
    def void_values(self) -> frozenset[int]:
        return frozenset(map(int, self.void))

    def _faults(self) -> Iterator[str]:
        for value in self.void:
            if not value.isdecimal() or int(value) > SEMANTIC_IGNORE:
                yield f"--void must be whole numbers from 0 to {SEMANTIC_IGNORE} (got {value!r})"
        for name in self.given(*_OF_OBJECTS):
            yield f"{name} is for objects, and images with masks of their pixels have none. Leave it out"
        for flag, folders in (("--images", self.images), ("--mask-images", self.mask_images)):
            if len(folders) > 1:
                yield f"{flag} is one folder for masks, and {len(folders)} are given. Convert the others with --add"
        if self.images and self.mask_images:
            yield "--images and --mask-images contradict DATA, which is one of the two. Leave one of them out"
        yield from super()._faults()
