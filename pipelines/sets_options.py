"""Options of a conversion of several data sets, which become one."""

import os
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple, get_args

import msgspec
from pydantic import PrivateAttr

from recordmill.pipelines.dataset_options import DataOptions
from recordmill.pipelines.formats import FORMATS, Format, formats
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.image_options import AnnotatedOptions, ObjectOptions
from recordmill.schemas.inputs.images import ImageRules
from recordmill.schemas.inputs.labelled_options import LabelledOptions
from recordmill.schemas.inputs.maps import MapFolder
from recordmill.schemas.inputs.option import (
    ARGUMENT,
    READ,
    Images,
    Names,
    OptionField,
    Sets,
    flag,
    option_fields,
    redefine_option,
)
from recordmill.schemas.inputs.options import RecipeValue
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.layouts import CLASSIFICATION, CocoLayout
from recordmill.schemas.names import NameSources, set_name_fault
from recordmill.schemas.paths import absolute_path, is_remote
from recordmill.schemas.sizes import shorten

SETS = Format("sets", f"{__name__}.SetsOptions", "recordmill.pipelines.sets", "", "", "")
"""Format of several data sets. It is not in the registry, because `--format` names the format of one."""
_UNNAMED = re.compile("images?|imgs?|jpegimages|data|annotations|labels", re.IGNORECASE)
"""Names of folders within a data set."""
_OF_SPLIT = re.compile("((train|val|test)([0-9]{4})?|training|valid|validation|testing)", re.IGNORECASE)
"""Names of folders with the images of a split."""
_FILE = re.compile(r"\.(json|jsonl|csv|tsv|parquet|xml|txt|ya?ml|gz)$|[*?]", re.IGNORECASE)
"""End of the name of a file of labels, or a pattern of files."""
GROUPING = ("group_from", "groups")
"""Options that group images."""
DIVIDING = ("split", "split_seed", "split_by", "stratify", *GROUPING)
"""Options that divide a data set. Those of the job divide the sets that name no splits."""
_CHOICES = ("exclude", "exclude_kinds", "class_map", "categories", "classes", "limit", "max_per_class")
_ADDING = ("add", "add_as", "sync", "prune")
_AFTER_JOIN = (*_CHOICES, "duplicates", "tile", "tile_overlap", "tile_min_visible", "keep_empty", "as_", *_ADDING)
"""Options that the job applies to the images of all sets, so that a set does not get its values."""
_OWN = {*DIVIDING, *_CHOICES, "no_crowd"}
"""Options that a set may have besides those of what to read."""
_OF_MEMBER = ("name", "format")
"""Keys of a set that are not options of its format."""
_REFUSED = ("model", "caption_text")
"""Options that several data sets do not have."""


class NamedSet(NamedTuple):
    """A data set of a job.

    Attributes:
        name: Its images' names begin with it and a slash.
        own: Options that the user gave to the set.
        options: Options of reading it, without those that divide it.
        divided: Options of reading it if it names no splits.
    """

    name: str
    format: Format
    own: Mapping[str, Any]
    options: Any
    divided: Any

    @property
    def has_groups(self) -> bool:
        """True if the set has its own groups."""
        return bool(self.own.keys() & {*GROUPING})

    def recorded(self, options: Any) -> dict[str, RecipeValue]:
        """Return the options that determine bytes and are not the job's, of the options by which the set is read."""
        names, read = {*self.own, *DIVIDING}, self.format.options
        keys = {field.recorded_as for field in option_fields(read) if field.name in names}
        return {key: value for key, value in options.record_options.items() if key in keys}


def is_of_set(field: OptionField) -> bool:
    """Return True for an option that each set may have."""
    return field.group in (ARGUMENT, READ) or field.name in _OWN


class SetsOptions(AnnotatedOptions):
    """Options of a conversion of several data sets. `sets` has the options of each set."""

    sets: Sets = redefine_option(DataOptions, "sets")
    images: Images = redefine_option(AnnotatedOptions, "images", ())
    name: str = redefine_option(AnnotatedOptions, "name", "sets")
    layout: Literal[CocoLayout, "classification"] = redefine_option(AnnotatedOptions, "layout")  # type: ignore[assignment]
    classes: Names = redefine_option(LabelledOptions, "classes")

    _members: tuple[NamedSet, ...] = PrivateAttr(())
    _parts: tuple[Part, ...] = PrivateAttr(())
    _has_shares: bool = PrivateAttr(False)

    @property
    def members(self) -> tuple[NamedSet, ...]:
        return self._members

    @property
    def set_options(self) -> Mapping[str, Any]:
        return {one.name: one.options for one in self._members}

    def with_read(self, read: Sequence[Any], has_shares: bool) -> "SetsOptions":
        """Return the options with what is known of the sets.

        Args:
            read: Options of the sets' jobs.
            has_shares: True if --split divides all sets.
        """
        images = tuple(dict.fromkeys(folder for options in read for folder in options.images))
        options = self.model_copy(update={"images": images})
        options._members = tuple(one._replace(options=own) for one, own in zip(self._members, read, strict=True))
        options._parts = tuple(dict.fromkeys(part for own in read for part in own.table.parts))
        options._has_shares = has_shares
        return options

    @property
    def map_folders(self) -> tuple[MapFolder, ...]:
        """Each set joins its own maps."""
        return ()

    @property
    def metres_per_unit(self) -> float | None:
        scales = (getattr(own, "metres_per_unit", None) for own in self.set_options.values())
        return next(filter(None, scales), None)

    @property
    def has_image_classes(self) -> bool:
        return self.layout == "classification"

    @property
    def changes_classes(self) -> bool:
        return bool(self.class_map or self.categories or self.classes)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys((*super().paths, *(path for own in self.set_options.values() for path in own.paths)))
        )

    @property
    def held_files(self) -> tuple[str, ...]:
        return tuple(path for own in self.set_options.values() for path in own.held_files)

    @property
    def held_per_byte(self) -> tuple[float, float]:
        least, most = zip(*(own.held_per_byte for own in self.set_options.values()), strict=True)
        return max(least), max(most)

    @property
    def name_sources(self) -> NameSources:
        sources = [own.name_sources for own in self.set_options.values()]
        rows = tuple(dict.fromkeys(path for source in sources for path in source.rows))
        matches, words = ({getattr(source, name) for source in sources} for name in ("match", "images_option"))
        is_listed = all(source.is_listed for source in sources)
        return NameSources(self.images, rows, _only(matches, ""), is_listed, _only(words, "--images"))

    @property
    def table(self) -> FeatureTable:
        return self.layout_table.with_parts(self._parts)

    @property
    def image_rules(self) -> ImageRules:
        rules = super().image_rules
        return msgspec.structs.replace(rules, upright=any(own.image_rules.upright for own in self.set_options.values()))

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        recorded = super().record_options
        if not self._has_shares:  # which sets are divided is in the texts of the sets
            recorded.pop("split", None)
        return recorded

    @property
    def division(self) -> Division:
        return msgspec.structs.replace(
            super().division, sets=tuple(one.name for one in self._members if not one.has_groups)
        )

    @property
    def share_cure(self) -> str:
        return "Other shares or smaller groups may come closer" if self.keeps_groups else super().share_cure

    def checked_shares(self, splits: tuple[str, ...]) -> tuple[tuple[str, Fraction], ...]:
        return super().checked_shares(splits) if self._has_shares else ()

    def _faults(self) -> Iterator[str]:
        if faults := [*super()._faults(), *self._layout_faults(), *self._group_faults()]:
            yield from faults  # sets would have those of the job, too
            return
        members = list[NamedSet]()
        for given in self.sets:
            name = given["name"]
            faults = [*self._foreign(name, given)]
            try:
                if not faults:
                    members.append(self._member(name, given))
            except ConfigError as error:
                faults = [f"{name}: {fault}" for fault in str(error).split("; ")]
            yield from faults
        self._members = tuple(members)
        yield from self._scale_faults()

    def _scale_faults(self) -> Iterator[str]:
        """Yield an error of depth maps with several scales."""
        scales = {getattr(own, "metres_per_unit", None): name for name, own in self.set_options.items()}
        shown = [f"{scale:g} in {name}" for scale, name in scales.items() if scale is not None]
        if len(shown) > 1:
            yield (
                f"--depth-scale is {' and '.join(shown)}, and the depth maps of a data set have one scale. Write those "
                "of one set in the units of the other, or convert each to its own --output"
            )

    def _foreign(self, name: str, given: Mapping[str, Any]) -> Iterator[str]:
        """Yield the errors of options that sets do not have."""
        entry = formats()[given["format"]]
        fields = {field.name: field for field in option_fields(entry.options)}
        for option in [option for option in given if option not in _OF_MEMBER]:
            if not is_of_set(fields[option]):
                yield f"{name}: {flag(option)} is an option of the whole job. Give it beside the sets"
        known = {field.attribute for field in fields.values()}
        for option in sorted(self.model_fields_set - {"sets", *known}):
            yield f"{flag(option)} is not an option of {entry.name}, the format of the set {name}. Leave it out"

    def _member(self, name: str, given: Mapping[str, Any]) -> NamedSet:
        """Return a set.

        Raises:
            ConfigError: Its options are wrong.
        """
        own = {option: value for option, value in given.items() if option not in _OF_MEMBER}
        passed = {option: getattr(self, option) for option in self.model_fields_set - {"sets", "name", *_AFTER_JOIN}}
        dividing = {option: passed.pop(option) for option in DIVIDING if option in passed}
        read: Any = formats()[given["format"]].options
        passed |= {"output": self.output, "layout": self.layout}
        if len(self.split) < 2:  # groups are for the limit of the job
            dividing = {option: value for option, value in dividing.items() if option not in GROUPING}
        if "split" in own or not dividing:
            options = divided = read(**passed | own).as_part()
        else:
            undivided = {option: value for option, value in own.items() if option not in DIVIDING}
            options = read(**passed | undivided).as_part()
            divided = read(**passed | dividing | own).as_part("" if {*GROUPING} & own.keys() else f"{name}/")
        return NamedSet(name, formats()[given["format"]], own, options, divided)

    def _group_faults(self) -> Iterator[str]:
        """Yield an error of groups of images that may be in two sets, if each set is divided by itself."""
        if self.keeps_groups and self.divides_ranked:
            ranked, groups = self.given("split_by", "stratify")[0], self.given("group_from", "groups")[0]
            yield f"{ranked} divides each data set by itself, but {groups} may group images of two sets. Leave out one"

    def _layout_faults(self) -> Iterator[str]:
        """Yield an error if some sets have objects, and others one class for each image."""
        kinds: dict[bool, list[str]] = {}
        for given in self.sets:
            read = formats()[given["format"]].options
            has_objects = issubclass(read, ObjectOptions) and not (self.has_image_classes and _stores_classes(read))
            kinds.setdefault(has_objects, []).append(f"{given['name']} ({given['format']})")
        if len(kinds) > 1:
            objects, classes = (", ".join(kinds[has_objects]) for has_objects in (True, False))
            can_store = all(_stores_classes(formats()[given["format"]].options) for given in self.sets)
            cure = ", or add --layout classification if all images have one class" if can_store else ""
            yield (
                f"all records have one layout, but images of {classes} have one class each, and images of {objects} "
                f"have objects. Convert each kind to its own --output{cure}"
            )


def _stores_classes(read: type[Any]) -> bool:
    """Return True for the options of a format that can be written in the layout `classification`."""
    values = get_args(read.model_fields["layout"].annotation)
    return not issubclass(read, ObjectOptions) or CLASSIFICATION.layout in values


def check_given(given: Mapping[str, Any], sets: Sequence[Mapping[str, Any]]) -> None:
    """Check the options of several data sets before their formats are known.

    Args:
        given: Options of the job, and of all sets.
        sets: Options of each set.

    Raises:
        ConfigError: There are not several sets, names are not usable, or an option is not for several sets.
    """
    if len(sets) < 2:
        raise ConfigError(f"--sets needs two or more data sets (got {len(sets)}). Give a single one as DATA")
    for option in _REFUSED:
        if any(option in one for one in (given, *sets)):
            raise ConfigError(f"{flag(option)} is not for several data sets. Leave it out, or convert each on its own")
    names = [one["name"] for one in sets if "name" in one]
    named = [str(name) if isinstance(name, int) and not isinstance(name, bool) else name for name in names]
    for name in (*named, *set_names(sets)):
        if fault := set_name_fault(name):
            cure = "File names begin with it" if name in named else "Give the set another `name` in --sets"
            raise ConfigError(f"--sets: name {shorten(repr(name), 80)} {fault}. {cure}")
        if named.count(name) > 1:
            raise ConfigError(f"--sets: two sets are named {name!r}. Give each a name of its own")


def _only(values: set[Any], default: Any) -> Any:
    """Return the only value; the default for several."""
    return next(iter(values)) if len(values) == 1 else default


def common_layout(names: Iterable[str]) -> dict[str, str]:
    """Return the layout that follows from the formats of sets, as a value of options; nothing for the default."""
    has_classes = all(not issubclass(formats()[name].options, ObjectOptions) for name in names)
    return {"layout": "classification"} if has_classes else {}


def set_names(sets: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the name of each set: `name`, or that of its folder, with a number after it if another set has the name.

    >>> set_names([{"data": "x/pets/"}, {"data": "y/pets.zip"}, {"images": ["z/cars/train"], "instances": ["a.json"]}])
    ['pets', 'pets2', 'cars']
    """
    sets = list(sets)
    given = {str(one["name"]) for one in sets if "name" in one}
    bases = [str(one["name"]) if "name" in one else _folder_name(one) for one in sets]
    names = list[str]()
    for one, base in zip(sets, bases, strict=True):
        name, number = base, 2
        while "name" not in one and (name in names or name in given or (name != base and name in bases)):
            name, number = f"{base}{number}", number + 1
        names.append(name)
    return names


def _folder_name(given: Mapping[str, Any]) -> str:
    """Return the name of the folder, or .zip, that has the data of a set; that of a file is the folder it is in. A name
    as `images` is that of a part of the set, which has the name of the folder above."""
    files = [given[option] for entry in FORMATS.values() for option in entry.files if option in given]
    paths = next(filter(None, (given.get("data"), given.get("images"), *files)), "")
    path = str(paths if isinstance(paths, str | os.PathLike) else next(iter(paths)))
    path = absolute_path(path)
    path = posixpath.dirname(path) if _FILE.search(path) else path
    parts = [part for part in path.partition("://")[2 if is_remote(path) else 0].split("/") if part]
    while len(parts) > 1 and (
        _UNNAMED.fullmatch(parts[-1]) or ("data" not in given and _OF_SPLIT.fullmatch(parts[-1]))
    ):
        parts.pop()
    return unicodedata.normalize("NFC", "".join(parts[-1:]).removesuffix(".zip")) or "set"
