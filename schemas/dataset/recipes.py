"""Recipes: all that determines the bytes of a split's shards, besides the images."""

from collections.abc import Mapping

import msgspec

from recordmill.schemas.features import Part
from recordmill.schemas.layouts import TABLE, shard_names
from recordmill.schemas.shards import ShardNames

LISTING = "images"
"""Kind of an InputFile that is the names and sizes of the images in a folder."""


class InputFile(msgspec.Struct, frozen=True):
    """Input file besides images: size in bytes and base64 CRC-32C (as Cloud Storage writes it).

    Attributes:
        kind: the flag that names it: an `AnnotationKind`, `labels` for a table of labels, `rows`, `stop_words`,
            `encoders`; `LISTING` for the names and sizes of the files of a folder whose names give the labels.
        crc32c: empty for a folder that the job is to list.
        masks: folder or .zip of a panoptic file's PNGs.
    """

    kind: str
    path: str
    bytes: int
    crc32c: str
    masks: str = ""

    @property
    def other_form(self) -> str:
        """The path of the same file, compressed by GZIP if this one is not, and else plain."""
        return self.path.removesuffix(".gz") if self.path.endswith(".gz") else f"{self.path}.gz"

    @property
    def uncompressed(self) -> "InputFile":
        return msgspec.structs.replace(self, path=self.path.removesuffix(".gz"), bytes=0, crc32c="")


def to_list(folder: str) -> InputFile:
    """A folder's images, which are not listed yet."""
    return InputFile(LISTING, folder, 0, "")


class Recipe(msgspec.Struct, frozen=True):
    """Everything that decides the bytes of a split's shards, besides the images themselves. A run may resume an
    unfinished one only if their recipes are equal.

    Attributes:
        parts: what records hold besides what the layout always has, as far as it was asked for.
        options: the command's options by flag name, without those that do not change a record (workers, progress …).
    """

    format: int
    name: str
    split: str
    layout: str
    parts: tuple[Part, ...]
    inputs: tuple[InputFile, ...]
    images: tuple[str, ...]
    options: dict[str, str | int | float | bool | list[str] | None]

    def with_listings(self, found: Mapping[str, InputFile]) -> "Recipe":
        """The recipe, with what was `found` in the folders that are in it, by their paths."""
        inputs = tuple(found[file.path] if file.kind == LISTING else file for file in self.inputs)
        return msgspec.structs.replace(self, inputs=inputs)

    def is_same_content(self, other: "Recipe") -> bool:
        """Whether `other` differs in nothing but that files are compressed by GZIP in one of the two."""
        return self._uncompressed(other) == other._uncompressed(self)

    def _uncompressed(self, other: "Recipe") -> "Recipe":
        """The recipe, as if files were not compressed that `other` has in the other form."""
        paths = {file.path for file in other.inputs}
        inputs = tuple(file.uncompressed if file.other_form in paths else file for file in self.inputs)
        return msgspec.structs.replace(self, inputs=inputs)

    @property
    def unlisted(self) -> "Recipe":
        """Recipe without the listings of its folders."""
        return self.with_listings({file.path: to_list(file.path) for file in self.inputs})

    @property
    def unit(self) -> str:
        """Unit for messages: `row` if rows of a table are records, or name images; otherwise `image`."""
        of_rows = self.layout == TABLE.layout or any(file.kind == "rows" for file in self.inputs)
        return "row" if of_rows else "image"

    @property
    def shard_names(self) -> ShardNames:
        return shard_names(self.name, self.split, self.layout)
