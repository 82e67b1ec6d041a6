"""Options of verbs: pydantic fields with a heading and one text. The parser, help, docs, `--config`, Dataflow templates
and Airflow Params use them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from annotated_types import Ge, Le
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.fields import field_choices, quote_item
from recordmill.schemas.sizes import shorten

COMMON, OF_FORMAT, RARE = "common", "of a format", "rare"
"""Ranks of options: what most jobs use; what a format uses; what few jobs use."""


class Heading(str):
    """Heading of a group of options in the help."""

    def opt(
        self,
        text: str,
        default: Any = None,
        metavar: str = "",
        usual: str = "",
        also: str = "",
        needs: str = "",
        recorded: bool | str = True,
        rank: str = OF_FORMAT,
        **constraints: Any,
    ) -> Any:
        """Return the field of an option.

        Args:
            text: Markdown. The first sentence is the help line; docs/cli.md has all of it.
            default: `...` if the option is required.
            metavar: Placeholder for the value in the help.
            usual: Description of the default, if `default` does not describe it.
            also: Names of the option in other tools, with spaces between them. Its error suggests the flag.
            needs: Options, with spaces between them. This option needs at least one of them to have an effect.
            recorded: False if it changes no byte of a shard. Paths and options for running a job never change one.
                Or the option's key in recipes, which keep the keys of earlier data sets.
            rank: COMMON, OF_FORMAT or RARE: where help and docs show the option.
        """
        words = {"metavar": metavar, "usual": usual, "also": also, "needs": needs}
        extra: Any = {"group": self, **words, "recorded": recorded, "rank": rank, "constraints": constraints}
        return Field(default, description=text, json_schema_extra=extra, **constraints)


ARGUMENT = Heading("")  # positional arguments
READ, WRITE, LEAVE_OUT = map(Heading, ("what to read", "what to write", "what to leave out"))
IMAGES, TEXTS = map(Heading, ("images", "texts"))
MODEL, RUN = map(Heading, ("which model, and which of its outputs", "how to run"))
_GROUPS = (ARGUMENT, READ, MODEL, WRITE, LEAVE_OUT, IMAGES, TEXTS, RUN)
_LINK = re.compile(r"\[(.+?)\]\(.+?\)")
_SENTENCE_END = re.compile(r"\.(?: |$)")
_PERCENT = re.compile(r"\d+(?:\.\d+)?%")


class Must(Enum):
    """Kind of file or folder that a path must name before a job starts. Preflight and the forms of services use it."""

    FILE = "file"
    FOLDER = "folder"
    IMAGES = "folder or .zip with files"
    MASKS = "folder or .zip, which may be given several times"
    ROWS = "file or pattern of files"
    DATA = "file, folder or .zip"
    OUTPUT = "folder that can be made or written to"
    DATA_SET = "folder of a data set"


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
_SHARE = re.compile(r"([^=]*?)\s*=\s*(-?\d{0,9}\.?\d{1,18}(?:e-?\d)?|-?\d{1,9}/0*[1-9]\d{0,8})", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", re.IGNORECASE)


def size_bytes(value: Any) -> Any:
    """Return a size in bytes.

    >>> size_bytes("150MB"), size_bytes("1.5GiB"), size_bytes("4096")
    (150000000, 1610612736, 4096)
    """
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if not match or len(match[1]) > 18:
        raise ValueError("not a size. Give a number of bytes, or a size such as 150MB, 1.5GB or 100MiB")
    return int(Decimal(match[1]) * _UNITS[(match[2] or "").upper()])


def split_shares(value: Any) -> Any:
    """Return splits with their shares, as fractions. A single name has the share 1.

    >>> split_shares("val"), split_shares(["train=0.75", "val=1/4"])
    ((('val', Fraction(1, 1)),), (('train', Fraction(3, 4)), ('val', Fraction(1, 4))))
    >>> split_shares({"train": 0.75, "val": "1/4"})
    (('train', Fraction(3, 4)), ('val', Fraction(1, 4)))
    """
    if isinstance(value, dict):
        value = ",".join(f"{name}={share}" for name, share in value.items())
    if isinstance(value, list):
        value = ",".join(map(str, value))
    if not isinstance(value, str):
        return value
    if not set("=,") & set(value):
        return ((value, Fraction(1)),)
    matches = [_SHARE.fullmatch(part.strip()) for part in value.split(",")]
    if not all(matches):
        raise ValueError("neither a name nor shares. Give a name, or shares such as train=0.8,val=0.1,test=0.1")
    return tuple((match[1], Fraction(match[2])) for match in matches if match)


def split_names(value: Any) -> Any:
    """Return names as a tuple: those of the text of the command line, quoted as in CSV if they have a comma; or the
    items of a list, which are literal.

    >>> split_names('person, traffic light,"a,b"'), split_names(["a,b", "c"])
    (('person', 'traffic light', 'a,b'), ('a,b', 'c'))
    """
    if isinstance(value, str):
        names = [_read_item(match) for match in _ITEM.finditer(value)]
        value = [name for name in names if name] or [""]
    if not isinstance(value, list):
        return value
    if not all(str(name).strip() for name in value):
        raise ValueError("not a list of names. Separate names by commas")
    return tuple(map(str, value))


_ITEM = re.compile(r'\s*(?:"((?:[^"]|"")*)"\s*|([^,]*))(?:,|$)')


def _read_item(match: re.Match[str]) -> str:
    return match[2].strip() if match[1] is None else match[1].replace('""', '"')


def join_names(names: Iterable[str]) -> str:
    """Return the text of the command line for names.

    >>> join_names(["a,b", "traffic light"])
    '"a,b",traffic light'
    """
    return ",".join(map(quote_item, names))


def key_values(value: Any) -> Any:
    """Return `KEY=VALUE` texts, see `split_names`, or those of a mapping.

    >>> key_values({"image/encoded": "image"}), key_values("a=b,c=d")
    (('image/encoded=image',), ('a=b', 'c=d'))
    """
    return split_names([f"{key}={other}" for key, other in value.items()] if isinstance(value, dict) else value)


def mappings(value: Any) -> Any:
    """Return mappings of options: mappings, or texts that are one or a list of them in JSON.

    >>> mappings(['{"data": "a"}', {"data": "b"}]), mappings('[{"data": "a"}]')
    (({'data': 'a'}, {'data': 'b'}), ({'data': 'a'},))
    """
    items = [
        _read_json(item) if isinstance(item, str) else item
        for item in (value if isinstance(value, list | tuple) else [value])
    ]
    items = [mapping for item in items for mapping in (item if isinstance(item, list | tuple) else [item])]
    if not all(isinstance(item, Mapping) and all(isinstance(name, str) for name in item) for item in items):
        raise ValueError(_MAPPINGS)
    return tuple({name.replace("-", "_"): option for name, option in item.items()} for item in items)


_MAPPINGS = 'Give the options of each set by name, such as {"data": "A", "format": "coco"}'


def _read_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"{shorten(repr(text), 80)} is not JSON ({error}). {_MAPPINGS}") from None


def one_or_more(value: Any) -> Any:
    """Return a list; `--config` files may have one value instead."""
    return [value] if isinstance(value, str) else value


Size = Annotated[int, BeforeValidator(size_bytes), Ge(1)]
Shares = Annotated[tuple[tuple[str, Fraction], ...], BeforeValidator(split_shares)]
Names = Annotated[tuple[str, ...], BeforeValidator(split_names)]
Pairs = Annotated[tuple[str, ...], BeforeValidator(key_values)]
Texts = Annotated[tuple[str, ...], BeforeValidator(one_or_more)]
Sets = Annotated[tuple[dict[str, Any], ...], BeforeValidator(mappings)]
File = Annotated[str, Must.FILE]
Files = Annotated[Texts, Must.FILE]
Folders = Annotated[Texts, Must.FOLDER]
Images = Annotated[Texts, Must.IMAGES]
Masks = Annotated[Texts, Must.MASKS]
Rows = Annotated[Texts, Must.ROWS]
Output = Annotated[str, Must.OUTPUT]
Data = Annotated[str, Must.DATA]
Datas = Annotated[Texts, Must.DATA]
DataSet = Annotated[str, Must.DATA_SET]


def redefine_option(
    base: type[BaseModel], name: str, default: Any = None, text: str = "", usual: str = "", needs: str = ""
) -> Any:
    """Return a field of the base class with another default or another text."""
    known = base.model_fields[name]
    extra = _extra(known) | {"usual": usual, "needs": needs}
    default = known.default if default is None else default
    return Field(default, description=text or known.description, json_schema_extra=extra, **extra["constraints"])


def _extra(field: FieldInfo) -> Any:
    return field.json_schema_extra


class OptionField:
    """An option of a verb, as its field declares it.

    Attributes:
        name: Name in a `--config` file, with underscores.
        default: None if the option is required.
        type: bool, int, float or str. Lists, choices and sizes are str.
        choices: Words of a choice; empty for others.
        must_be: What a path must be; None for others.
        also, needs, rank: See `Heading.opt`.
        is_list: True if it has several values.
        are_fields: True for names of open fields.
        are_names: True for other names, and for pairs of names. The text of the command line has commas and quotes as
            in CSV; items of a list are literal.
        are_sets: True for mappings of options, one for each data set. The text of the command line is JSON.
        recorded_as: Key in the recipe of a split, of a value that is not the default; empty if it is not recorded.
        least, largest: Bounds, included; None without.
    """

    def __init__(self, attribute: str, field: FieldInfo):
        self.attribute, self.name, self.text = attribute, field.alias or attribute, str(field.description)
        extra = _extra(field)
        self.group, self.usual, self.rank = extra["group"], extra["usual"], extra["rank"]
        self.also, self.needs = extra["also"].split(), extra["needs"].split()
        self.is_required = field.is_required()
        self.default = None if self.is_required else field.default
        self.is_argument = self.group == ARGUMENT
        self.flag = flag(self.name)
        inner, marks = field.annotation, [*field.metadata]
        if type(None) in get_args(inner):
            inner = next(member for member in get_args(inner) if member is not type(None))
        while get_origin(inner) is Annotated:
            inner, *more = get_args(inner)
            marks += more
        self.choices: tuple[str, ...] = get_args(inner) if get_origin(inner) is Literal else ()
        validators = [mark.func for mark in marks if isinstance(mark, BeforeValidator)]
        self.is_list = get_origin(inner) is tuple
        self.are_fields = field_choices in validators
        self.are_names = split_names in validators or key_values in validators
        self.is_shares, self.is_size = split_shares in validators, size_bytes in validators
        self.are_sets = mappings in validators
        self.type: type = inner if inner in (bool, int, float) and not validators else str  # type: ignore[assignment]
        self.must_be = next((mark for mark in marks if isinstance(mark, Must)), None)
        is_recorded = extra["recorded"] and not self.must_be and self.group != RUN
        key = extra["recorded"] if isinstance(extra["recorded"], str) else self.name
        self.recorded_as = key if is_recorded else ""
        self.least = next((mark.ge for mark in marks if isinstance(mark, Ge)), None)
        self.largest = next((mark.le for mark in marks if isinstance(mark, Le)), None)
        usual = "N" if self.type is int else self.name.replace("_", "-").upper()
        self.metavar = "|".join(self.choices) or extra["metavar"] or usual

    @property
    def stand_in(self) -> str | list[str]:
        """Placeholder that is a valid value."""
        return ["-"] if self.is_list else next(iter(self.choices), "-")

    @property
    def typed(self) -> str:
        """Flag, or name of a positional argument."""
        return self.metavar if self.is_argument else self.flag

    @property
    def help(self) -> str:
        """First sentence of the text, without Markdown."""
        return _LINK.sub(r"\1", _SENTENCE_END.split(self.text)[0].replace("`", ""))

    @property
    def shown_default(self) -> str:
        """Default as text; empty if the option is off or unset by default."""
        if self.usual or self.default in (None, "", ()) or self.default is False:
            return self.usual
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)

    @property
    def missing(self) -> str:
        """Error without a value."""
        first = self.help[0] if self.help[1:2].isupper() else self.help[0].lower()
        what = f"{first}{self.help[1:]}"
        if self.is_argument:
            return f"{self.typed} is missing ({what})"
        return f"{self.flag} is missing. Give the {what.partition('; ')[0]}"

    def fault(self, error: Any) -> str:
        """Return the message for pydantic's error about the value."""
        kind, value = error["type"], error["input"]
        if kind == "missing":
            return self.missing
        if kind == "value_error":
            if isinstance(value, dict):
                value = [f"{name}={share}" for name, share in value.items()]
            shown = value if isinstance(value, str) else ",".join(map(str, value))
            return f"{self.typed} {shown!r}: {error['ctx']['error']}"
        if self.choices:
            return f"{self.typed} must be one of {', '.join(self.choices)} (got {value!r})"
        if kind.startswith(("greater", "less", "finite")):
            return f"{self.typed} must be {self._bounds} (got {value})"
        expected = {bool: "true or false", int: "a whole number", float: "a number"}.get(self.type, "a text")
        share = f". Give {float(value[:-1]) / 100:g}" if self.type is float and _PERCENT.fullmatch(str(value)) else ""
        return f"{self.typed} must be {expected} (got {value!r}){share}"

    @property
    def _bounds(self) -> str:
        if self.least is None and self.largest is None:
            return "finite"
        return f"{self.least} {'or more' if self.largest is None else f'to {self.largest}'}"


class Options(BaseModel):
    """Base of the options of a verb."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True, defer_build=True
    )

    def __init__(self, **values: Any):
        """Raise ConfigError with all errors: errors of single values, and of combinations of options."""
        faults, wrong = [], set()
        fields = {field.name: field for field in option_fields(type(self))}
        required = [field for field in fields.values() if field.is_required]
        empty = {field.name for field in required if values.get(field.name) in ("", (), [])}
        values = {name: value for name, value in values.items() if name not in empty}  # missing
        for name in values.keys() & {field.name for field in fields.values() if field.choices}:
            if type(values[name]) is int:  # as coerce_numbers_to_str does for texts
                values[name] = str(values[name])
        try:
            super().__init__(**values)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                name = str(details["loc"][0])
                if name not in fields:
                    raise
                faults += [] if name in wrong else [fields[name].fault(details)]
                wrong.add(name)
            usable = {name: value for name, value in values.items() if name not in wrong}
            super().__init__(**{field.name: field.stand_in for field in required} | usable)
        reported = {fields[name].typed for name in wrong}
        combination_faults = (*self._missing(fields.values()), *self._faults())
        faults += [fault for fault in combination_faults if not reported & set(re.findall(r"--[a-z-]+", fault))]
        if faults:
            raise ConfigError("; ".join(faults))

    def _missing(self, fields: Iterable[OptionField]) -> Iterator[str]:
        """Yield an error for each option that has no effect without another option."""
        for field in fields:
            if field.needs and self.given(field.attribute) and not self.given(*field.needs):
                yield f"{field.flag} has no effect without {' or '.join(map(flag, field.needs))}"

    def _faults(self) -> Iterator[str]:
        """Yield errors of combinations of options."""
        yield from ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths that a job reads, and its output folder."""
        return tuple(path for _, path in named_paths(self))

    def given(self, *options: str) -> list[str]:
        """Return the flags of those of `options` that are not at their defaults."""
        fields = type(self).model_fields
        return [flag(name) for name in options if name in fields and getattr(self, name) != fields[name].default]


def named_paths(options: Options) -> Iterator[tuple[OptionField, str]]:
    """Yield each path that an option names."""
    for field in option_fields(type(options)):
        value = getattr(options, field.attribute)
        for path in (value if field.is_list else filter(None, [value])) if field.must_be else ():
            yield field, path


@cache
def option_fields(options: type[Options]) -> tuple[OptionField, ...]:
    """Return the options of a verb by heading. Within a heading, options of the base class come first."""
    return by_heading(OptionField(*item) for item in options.model_fields.items())


def by_heading(fields: Iterable[OptionField]) -> tuple[OptionField, ...]:
    """Return options in help's order of headings."""
    return tuple(sorted(fields, key=lambda field: _GROUPS.index(field.group)))


def merge_fields(fields: Mapping[str, OptionField], users: int) -> OptionField:
    """Return the option of one name of several users, with the defaults of each.

    Args:
        fields: By user.
        users: Number of all users. An option that some do not have is not required, and has no default value, so that a
            form does not set it.
    """
    defaults: dict[str, list[str]] = {}
    for user, field in fields.items():
        defaults.setdefault(field.shown_default, []).append(user)
    merged = copy(next(iter(fields.values())))
    merged.is_required = len(fields) == users and all(field.is_required for field in fields.values())
    merged.choices = tuple(dict.fromkeys(choice for field in fields.values() for choice in field.choices))
    merged.metavar = "|".join(merged.choices) or merged.metavar
    if len(defaults) > 1:
        merged.usual = "; ".join(f"{text} ({', '.join(names)})" for text, names in defaults.items() if text)
    else:
        (merged.usual,) = defaults
    if len(defaults) > 1 or (len(fields) < users and merged.type is not bool and not merged.is_list):
        merged.default = None
    return merged


def flag(name: str) -> str:
    """Return the flag that sets an option.

    >>> flag("image_info")
    '--image-info'
    """
    return "--" + name.replace("_", "-")
