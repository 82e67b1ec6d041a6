"""What a table is asked to do whose rows name pictures."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from recordmill.pipelines.options.convert_options import RecipeValue
from recordmill.pipelines.options.option import PICTURES, READ, Kind, flag, option, redefined
from recordmill.pipelines.options.picture_options import SIZE, PictureOptions, size_of
from recordmill.schemas.images import PictureRules

_OF_PICTURES = ("images", "raw_size", "check", "format", "max_side", "jpeg_quality", "workers", "duplicates")
_OF_FILES = ("check", "format", "max_side", "jpeg_quality")


@dataclass(frozen=True, kw_only=True)
class RowPictureOptions(PictureOptions):
    """What a table is asked to do whose rows name pictures. Names are those of the flags; see docs/tables.md."""

    images: tuple[str, ...] = redefined(
        PictureOptions,
        "images",
        (),
        help="folder or .zip of the pictures that --image-column names; repeatable",
        docs=(
            "folder or .zip of the pictures that `--image-column` names, and all folders in it; repeatable. A name "
            "that two folders have is an error"
        ),
    )
    image_column: str | None = option(
        None,
        kind=Kind.TEXT,
        group=READ,
        metavar="COLUMN",
        help="column of paths of pictures, which go into the records",
        docs=(
            "column of paths of pictures below `--images`: each record has its row's picture, checked, and the path "
            "only as `image/filename`. Without `--key`, rows are known by their picture"
        ),
    )
    raw_size: str = option(
        "",
        kind=Kind.TEXT,
        group=PICTURES,
        metavar="HxW",
        help="write pixels of this height and width instead of files",
        docs=(
            "write pixels of this height and width, `image/pixels`, instead of files: uint8, three a pixel, so that "
            "224x224 takes 150,528 bytes a picture. Pictures are decoded whole, and made that size without keeping "
            "their shape (bilinear)"
        ),
        pattern=SIZE.pattern,
    )

    @property
    def holds_pictures(self) -> bool:
        return bool(self.image_column)

    @property
    def pictures(self) -> PictureRules:
        return msgspec.structs.replace(super().pictures, raw_size=size_of(self.raw_size))

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        of_rows: dict[str, RecipeValue] = {"image_column": self.image_column, "raw_size": self.raw_size}
        return super().record_options | (of_rows if self.holds_pictures else {})

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        given = [name for name in _OF_PICTURES if getattr(self, name) != _DEFAULTS[name]]
        if not self.image_column:
            yield from (f"{flag(name)} would do nothing without --image-column" for name in given)
            return
        if not self.images:
            yield f"--image-column {self.image_column} names files: give --images, the folder that they are in"
        if self.raw_size and not SIZE.fullmatch(self.raw_size):
            yield f"--raw-size {self.raw_size!r} is no height and width in pixels: 224x224 for example"
        elif self.raw_size:
            yield from (f"{flag(name)} is of files, and --raw-size writes none" for name in given if name in _OF_FILES)


_DEFAULTS = {name: known.default for name, known in RowPictureOptions.__dataclass_fields__.items()}
