"""Options that all formats share."""

import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from typing import Any, ClassVar, Literal

import msgspec
from pydantic import PrivateAttr

from recordmill.schemas.errors import ConfigError, RecordmillError
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.file_kinds import content_format
from recordmill.schemas.inputs.image_options import MASKS, AnnotatedOptions, match_option
from recordmill.schemas.inputs.images import ImageRules
from recordmill.schemas.inputs.maps import MapFolder, depth_folders, is_depth_map
from recordmill.schemas.inputs.option import ARGUMENT, Data, Images, redefine_option
from recordmill.schemas.layouts import CLASSIFICATION, CocoLayout
from recordmill.schemas.names import Match, NameSources
from recordmill.transforms.annotated.source import Source


class FormatOptions(AnnotatedOptions):
    """Options of a format of images with label files. A format adds its own by `READ.opt`.

    Our formats have them in transforms/NAME/NAME_options.py, and `source` in read_NAME.py.

    Attributes:
        known_names: Regular expression of the names of files that only this format has.
        known_columns: Columns of tables that only this format has.
        endings: Endings of its label files, in lower case.
        most_folders: Maximum number of folders of --images; None without a limit.
    """

    data: Data = ARGUMENT.opt("The data set: its file, or its folder or .zip.", ..., "DATA")
    images: Images = redefine_option(
        AnnotatedOptions, "images", (), "Folder or .zip to which image paths are relative.", "the folder of DATA"
    )

    name: str = redefine_option(AnnotatedOptions, "name", ..., usual="the name of the format")
    layout: Literal[CocoLayout, "classification"] = redefine_option(AnnotatedOptions, "layout")  # type: ignore[assignment]

    known_names: ClassVar[str] = ""
    known_columns: ClassVar[frozenset[str]] = frozenset()
    endings: ClassVar[tuple[str, ...]] = (".json",)
    most_folders: ClassVar[int | None] = None
    _parts: tuple[Part, ...] = PrivateAttr(())
    _maps: tuple[MapFolder, ...] = PrivateAttr(())
    _root: str = PrivateAttr("")

    def with_source(self, source: Source) -> "FormatOptions":
        """Return the options with what the data set says."""
        options = self.model_copy(update={"images": source.images})
        options._parts, options._maps, options._root = source.parts, source.maps, source.root
        return options

    @property
    def map_folders(self) -> tuple[MapFolder, ...]:
        return (*self._maps, *depth_folders(self.depth_images, self.images, self._root))

    def source(self) -> Source:
        """Look at the data set, but not at each file.

        Raises:
            ConfigError: It is not a data set of the format, or can be read in several ways.
        """
        name = self.format_name()
        return self._complete(import_module(f"recordmill.transforms.{name}.read_{name}").source(self))

    def _complete(self, source: Source) -> Source:
        """Return the source with the requested fields and layout, and without depth maps among its images."""
        folders = depth_folders(self.depth_images, source.images)
        if any(folder.has_others for folder in folders):
            source = replace(source, is_map=partial(_is_map, is_map=source.is_map, folders=folders))
        source = replace(source, fields=self.selected_fields(source.image_fields)) if self.fields else source
        return replace(source, has_image_classes=True) if self.has_image_classes else source

    @property
    def has_image_classes(self) -> bool:
        return self.layout == CLASSIFICATION.layout

    def _faults(self) -> Iterator[str]:
        if self.has_image_classes and (flags := self.given("categories", "masks", "tile")):
            yield f"--layout classification stores a class for each image, so leave {', '.join(flags)} out"
        yield from super()._faults()

    @classmethod
    def format_name(cls) -> str:
        """Return the name of the format, which is the default of `--name`."""
        return str(cls.model_fields["name"].default)

    @classmethod
    def recognise(cls, names: Iterable[str]) -> str:
        """Return the first file of only this format, or ""."""
        return next((name for name in sorted(names) if re.fullmatch(cls.known_names, name)), "")

    @classmethod
    def recognise_content(cls, head: bytes) -> bool:
        """Return True for a label file of the format. `head` is its beginning, at most 64 KiB."""
        return content_format(head) == cls.format_name()

    @classmethod
    def recognise_columns(cls, columns: Mapping[str, Any]) -> str:
        """Return the columns that only tables of the format have; empty without them. Values are Arrow's arrays."""
        return ", ".join(sorted(cls.known_columns)) if cls.known_columns <= columns.keys() else ""

    @classmethod
    def recognise_rows(cls, head: bytes) -> str:
        """Return the evidence that a CSV without column names has this format; "" if there is none."""
        return ""

    def source_splits(self, source: Source) -> tuple[str, ...]:
        """Return the splits that are written.

        Raises:
            ConfigError: Both the data set and --split name the splits.
        """
        if not source.splits or (len(source.splits) == 1 and self.is_split_given):
            return self.splits
        if self.is_split_given:
            raise ConfigError(
                f"{self.data} names the splits of its images ({', '.join(source.splits)}), and so does --split. "
                "Leave --split out"
            )
        return source.splits

    @property
    def matching(self) -> Match:
        """Rule that matches image names with files."""
        return getattr(self, "match", "path")

    @property
    def name_sources(self) -> NameSources:
        return NameSources(self.images, (self.data,), getattr(self, "match", ""), most_folders=self.most_folders)

    @property
    def table(self) -> FeatureTable:
        depth = (Part.DEPTH,) if self.depth_images else ()
        parts = (*MASKS[self.masks], *self._parts, *depth)
        return self.layout_table.with_parts(tuple(part for part in parts if part not in self.unwritten_parts))

    @property
    def image_rules(self) -> ImageRules:
        """Images whose size no file states are turned upright by EXIF, as labelling tools show them."""
        return msgspec.structs.replace(super().image_rules, upright=True)


class NamingOptions(FormatOptions):
    """Options of a format whose label files name their images."""

    match: Match = match_option()


class _Registered(FormatOptions):
    """Options of a format of another package. Workers import them by the name of its module."""

    module: ClassVar[str] = ""

    def source(self) -> Source:
        try:
            source: Source = import_module(self.module).source(self)
        except (RecordmillError, OSError):
            raise
        except Exception as error:
            raise ConfigError(
                f"the function source of the format {self.format_name()} failed on {self.data}: "
                f"{type(error).__name__}: {error}. This is a fault of {self.module}"
            ) from error
        if not isinstance(source, Source):
            raise ConfigError(f"{self.module}.source returned {type(source).__name__}, not a Source")
        return self._complete(source)

    def __reduce__(self) -> Any:
        return _restore, (self.format_name(), self.module, self.__getstate__())


@cache
def registered_options(name: str, module: str) -> type[FormatOptions]:
    """Return the options of a format that another package registers: those of its module, with `name` as the default
    of `--name`.

    Args:
        name: Name of the format.
        module: Module with `Options`, a FormatOptions, and `source(options)`, which returns a Source.

    Raises:
        ConfigError: The module does not have them.
    """
    loaded = import_module(module)
    own = getattr(loaded, "Options", None)
    if not (isinstance(own, type) and issubclass(own, FormatOptions)):
        raise ConfigError(f"{module}.Options is not a class of recordmill.formats.FormatOptions")
    if not callable(getattr(loaded, "source", None)):
        raise ConfigError(f"{module} has no function source(options)")
    bases = (_Registered,) if own is FormatOptions else (own, _Registered)  # fields of the first base count
    namespace = {
        "__module__": __name__,
        "__doc__": own.__doc__,
        "__annotations__": {"name": str},
        "name": redefine_option(own, "name", name),
        "module": module,
    }
    return types.new_class(f"{name}Options", bases, exec_body=lambda body: body.update(namespace))


def _is_map(name: str, is_map: Callable[[str], bool], folders: Sequence[MapFolder]) -> bool:
    return is_map(name) or is_depth_map(name, folders)


def _restore(name: str, module: str, state: dict[str, Any]) -> FormatOptions:
    """Return unpickled options.

    Raises:
        ConfigError: This process does not have the module.
    """
    try:
        options = registered_options(name, module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"this worker has no module {error.name}, which the format {name} needs. Install its package on workers"
        ) from error
    restored = options.__new__(options)
    restored.__setstate__(state)
    return restored
