"""Recipes: everything that determines the bytes of a split's shards, except the images."""

from collections.abc import Mapping

import msgspec

from recordmill.schemas.containers import TFRECORD
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.coco import AnnotationKind
from recordmill.schemas.layouts import LAYOUTS, TABLE, requested_sizing, shard_names
from recordmill.schemas.shards import SIZING_OPTIONS, ShardNames, ShardSizing

LISTING = "images"
"""Kind of an InputFile that stands for the names and sizes of the images in a folder."""


class InputFile(msgspec.Struct, frozen=True):
    """Input file other than an image: size in bytes and base64 CRC-32C (as Cloud Storage writes it).

    Attributes:
        kind: Flag that names the file: an `AnnotationKind`, `labels` for a table of labels, `rows`, `stop_words`,
            `encoders`; `LISTING` for the names and sizes of the files of a folder whose names are the labels.
        crc32c: Empty for a folder that the job has yet to list.
        masks: Folder or .zip of a panoptic file's PNGs.
    """

    kind: str
    path: str
    bytes: int
    crc32c: str
    masks: str = ""

    @property
    def other_form(self) -> str:
        """Path of the same file with GZIP if this path is plain, and without GZIP otherwise."""
        return self.path.removesuffix(".gz") if self.path.endswith(".gz") else f"{self.path}.gz"

    @property
    def uncompressed(self) -> "InputFile":
        return msgspec.structs.replace(self, path=self.path.removesuffix(".gz"), bytes=0, crc32c="")


def unlisted_folder(folder: str) -> InputFile:
    """Return the InputFile of a folder not listed yet."""
    return InputFile(LISTING, folder, 0, "")


class Recipe(msgspec.Struct, frozen=True):
    """Everything that determines the bytes of a split's shards, except the images. A run resumes an unfinished run only
    if their recipes are equal.

    Attributes:
        parts: Requested optional contents of records.
        options: Options of the command by flag name, without those that change no record (workers, progress …).
    """

    format: int
    name: str
    split: str
    layout: str
    parts: tuple[Part, ...]
    inputs: tuple[InputFile, ...]
    images: tuple[str, ...]
    options: dict[str, str | int | float | bool | list[str] | None]

    def with_listings(self, listings: Mapping[str, InputFile]) -> "Recipe":
        """Return the recipe with the listings of its folders; `listings` has them by path."""
        inputs = tuple(listings[file.path] if file.kind == LISTING else file for file in self.inputs)
        return msgspec.structs.replace(self, inputs=inputs)

    def of_layout(self, layout: str) -> "Recipe":
        """Return the recipe with the layout that Samples decided, and the requested parts that it has."""
        if layout == self.layout:
            return self
        parts = tuple(part for part in self.parts if part in LAYOUTS[layout].parts)
        return msgspec.structs.replace(self, layout=layout, parts=parts)

    def is_same_content(self, other: "Recipe") -> bool:
        """Return True if the recipes are equal, except that one of them has files compressed by GZIP."""
        return self._uncompressed(other) == other._uncompressed(self)

    def changes(self, new: "Recipe", between: str = "; ") -> str:
        """Return the differences of a new recipe, with `between` between two."""
        before, now = (
            msgspec.to_builtins(recipe) | {_OPTION_BY_KEY.get(key, key): value for key, value in recipe.options.items()}
            for recipe in (self, new)
        )
        keys = [key for key in before | now if key != "options" and before.get(key) != now.get(key)]
        return between.join(
            f"{key.replace('_', '-')}: {_format_option(before.get(key))}, now {_format_option(now.get(key))}"
            for key in keys
        )

    def _uncompressed(self, other: "Recipe") -> "Recipe":
        """Return the recipe with plain files in place of those that only one of the recipes has compressed."""
        paths = {file.path for file in other.inputs}
        inputs = tuple(file.uncompressed if file.other_form in paths else file for file in self.inputs)
        return msgspec.structs.replace(self, inputs=inputs)

    @property
    def unlisted(self) -> "Recipe":
        """Recipe without the listings of its folders."""
        return self.with_listings({file.path: unlisted_folder(file.path) for file in self.inputs})

    @property
    def unit(self) -> str:
        """Unit for messages: `row` if rows of a table are records, or name images; otherwise `image`."""
        has_rows = self.layout == TABLE.layout or any(file.kind == "rows" for file in self.inputs)
        return "row" if has_rows else "image"

    @property
    def container(self) -> str:
        """Container of the shards, see `recordmill.schemas.containers.CONTAINERS`."""
        return str(self.options.get("container", TFRECORD))

    @property
    def seed(self) -> int:
        """Seed of the order of records."""
        return seed if isinstance(seed := self.options.get("seed"), int) else 0

    @property
    def sizing(self) -> ShardSizing:
        """Requested sizing of shards."""
        given = {name: value for name in SIZING_OPTIONS if isinstance(value := self.options.get(name), int)}
        return requested_sizing(self.layout, **given)

    @property
    def shard_names(self) -> ShardNames:
        return shard_names(self.name, self.split, self.layout, self.container)


_OPTION_BY_KEY = {"format": "image_format", "label_column": "label", "path_column": "image_column"}
"""Options whose keys in recipes are others, see `recordmill.schemas.inputs.option.Heading.opt`."""

_FLAGGED = (
    *(kind.value for kind in AnnotationKind),
    *("labels", "groups", "exclude", "class_map", "encoders", "stop_words"),
)
_INPUT_FLAGS = {kind: f"--{kind.replace('_', '-')}" for kind in _FLAGGED} | {"schema": "--schema-file"}
"""Flags of input files by kind. Files of other kinds are DATA."""


def _format_option(value: object) -> str:
    if value is None:
        return "default"
    if isinstance(value, list | tuple):
        shown = (
            f"{_INPUT_FLAGS.get(item['kind'], 'DATA')} {item['path']}"
            + (f" ({item['bytes']:,} bytes, crc32c {item['crc32c']})" if item["crc32c"] else "")
            + (f" with {item['masks']}" if item["masks"] else "")
            if isinstance(item, dict)
            else str(item)
            for item in value
        )
        return " ".join(shown) or "none"
    return str(value)
