"""Choose the format of a conversion, and the options of its job, from the options that a user gave."""

import difflib
import json
import os
import posixpath
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from recordmill.pipelines.dataset_options import DataOptions, TerminalOptions
from recordmill.pipelines.formats import Format, all_formats, fields_by_name, formats
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.fields import field_choices
from recordmill.schemas.inputs.option import OptionField, by_heading, flag, join_names, merge_fields, option_fields

if TYPE_CHECKING:
    from recordmill.transforms.rows.data_contents import Interpretation

_STORED = {"keep", "jpeg", "png"}
"""Values of `--image-format`, which users may give to `--format`."""
_CLOSE = 0.6
_FREE = {"data", "format"}
"""Options of every format."""


class Conversion(NamedTuple):
    """A conversion of data of a known format.

    Attributes:
        values: Values of options by name.
        notes: What was recognised, and the command that names the format; empty if the user named it.
    """

    format: Format
    values: dict[str, Any]
    notes: tuple[str, ...] = ()


@cache
def convert_fields() -> tuple[OptionField, ...]:
    """Return the options of `convert`: those of all formats. Options of one name are one option."""
    fields = {field.name: copy(field) for field in option_fields(DataOptions)}
    fields["format"].choices = tuple(formats())
    for name, by_format in fields_by_name().items():
        fields.setdefault(name, merge_fields(by_format, len(all_formats())))
    return by_heading(fields.values())


def format_fields(name: str) -> tuple[OptionField, ...]:
    """Return the options of a format, also with a model, without those that need another format."""
    entry = formats()[name]
    fields = {field.name: field for field in option_fields(entry.options)}
    if entry.model_options_path:
        for field in option_fields(entry.with_model().options):
            fields.setdefault(field.name, field)
    return by_heading((*fields.values(), *option_fields(TerminalOptions)))


def choose_conversion(values: Mapping[str, Any], recognises: bool = True) -> Conversion | None:
    """Return the conversion that options ask for.

    Args:
        values: Values of options by name, as JSON has them.
        recognises: False to return None if the options do not name the format: nothing is read.

    Raises:
        ConfigError: The format is unknown, not recognised or ambiguous, or an option belongs to another format.
    """
    given = {name: value for name, value in values.items() if value not in (None, "", [], ())}
    given["data"] = [path for path in map(str, _listed(given.get("data"))) if path]
    if "sets" in given:
        if given["data"]:
            raise ConfigError("DATA and --sets both name the data sets. Give only one of them")
        return _join_sets(given.pop("sets"), given, recognises)
    name = given.pop("format", None)
    if name is not None:
        return _complete_named(_named_format(str(name)), given, recognises)
    by_files = {entry.name: files for entry in formats().values() if (files := [f for f in entry.files if f in given])}
    if len(by_files) > 1:
        shown = " and ".join(f"{flag(files[0])} ({format_})" for format_, files in by_files.items())
        raise ConfigError(f"{shown} are of two formats. Give only one of them")
    if recognises and "labels" in given and (fault := _labels_folder_fault(given)):
        raise ConfigError(fault)
    for format_, files in by_files.items():
        return _complete(formats()[format_], given, f"{flag(files[0])} is a flag of {format_}")
    if not given["data"]:
        raise ConfigError(
            "DATA is missing: the folder, .zip or file of the data set (recordmill convert --help has examples)"
        )
    return _recognise(given) if recognises else None


def _labels_folder_fault(given: Mapping[str, Any]) -> str:
    """Return the error of --labels with a folder of label files, with the command that reads it; "" for files."""
    from recordmill.transforms.storage.resolve import storage_for

    folder = next((path for path in _listed(given["labels"]) if storage_for(path).is_folder(path)), "")
    if not folder:
        return ""
    from recordmill.pipelines.recognise import reads_data, recognise_data

    images = given["data"] or _listed(given.get("images"))
    parents = {posixpath.dirname(path.rstrip("/")) for path in (folder, *images)}
    places = [*(parents if len(parents) == 1 else ()), folder]
    text = f"--labels {folder} is a folder. Give the table of image paths and classes, or label files as DATA"
    for place in filter(None, places):
        for name, match in recognise_data([place]):
            if not formats()[name].has_label_files:
                continue
            own_images = images if place == folder else []
            text = f"--labels {folder} is a folder of {name} ({match.why}), not a table"
            if reads_data(name, place, own_images):
                beside = [word for path in own_images for word in ("--images", path)]
                command = shlex.join(["recordmill", "convert", place, *beside, "--format", name, "-o", "OUT"])
                return f"{text}. Convert it by: {command}"
            if match.fault:
                text += f": {match.fault}"
    return text


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _named_format(name: str) -> Format:
    if name in formats():
        return formats()[name]
    if name in _STORED:
        raise ConfigError(
            f"--format names the format of DATA. To store images as {name}, give --image-format {name} in its place"
        )
    if name == "embed":
        raise ConfigError("--format embed does not exist. To store features of a model, give --model NAME in its place")
    near = difflib.get_close_matches(name, formats(), 1, _CLOSE)
    hint = f". Did you mean {near[0]}?" if near else ""
    raise ConfigError(f"--format must be one of {', '.join(formats())} (got {name!r}){hint}")


def _join_sets(sets: Sequence[Mapping[str, Any]], given: Mapping[str, Any], recognises: bool) -> Conversion | None:
    """Return the conversion of several data sets.

    Args:
        sets: Options of each set, by name.
        given: Options of the job, and of all sets.

    Raises:
        ConfigError: The format of a set is unknown, not recognised or ambiguous; or an option is not for several sets.
    """
    from recordmill.pipelines.sets_options import SETS, check_given, common_layout, set_names

    check_given(given, sets)
    job_names = {field.name for field in option_fields(SETS.options)} - {"images"}
    job = {name: value for name, value in given.items() if name in job_names}
    shared = {name: value for name, value in given.items() if name not in (*job_names, "data")}
    members, descriptions = list[dict[str, Any]](), list[str]()
    for name, one in zip(set_names(sets), sets, strict=True):
        try:
            conversion = choose_conversion(
                shared | {option: one[option] for option in one if option != "name"}, recognises
            )
        except ConfigError as error:
            is_named = str(error).startswith(tuple(map(str, _listed(one.get("data")))))
            raise (error if is_named else ConfigError(f"{name}: {error}")) from error
        if conversion is None:
            return None
        if conversion.format.name == SETS.name:
            raise ConfigError(f"{name}: its data are {len(conversion.values['sets'])} data sets. List each by itself")
        if conversion.format.name == "table":
            raise ConfigError(
                f"{name} is rows{''.join(f' ({note})' for note in conversion.notes[:1])}, and tables are not joined. "
                "Several files of rows are one table. Give them as DATA, or convert it on its own"
            )
        members.append({"name": name, "format": conversion.format.name, **conversion.values})
        descriptions += conversion.notes[:-1]
    values = common_layout(member["format"] for member in members) | job | {"sets": members}
    shown = ", ".join(f"{member['name']} ({member['format']})" for member in members)
    notes = f"{len(members)} data sets become one: {shown}", *descriptions, _command(values)
    return Conversion(SETS, values, notes if recognises else ())


def _complete_named(entry: Format, given: Mapping[str, Any], recognises: bool) -> Conversion | None:
    """Return the conversion of a format that the user named. Recognition adds the folder in a wrapping folder, label
    files, and the images beside them. It adds nothing to a table: its images stay columns."""
    why = f"--format is {entry.name}"
    has_files = any(name in given for name in entry.files)
    if recognises and given["data"] and (inputs := entry.options_of_paths(given["data"])):
        return _complete(entry, {**given, **inputs}, why)
    if len(given["data"]) > 1 and not has_files and entry.options.model_fields.get("data"):  # not a list
        return _join_sets([{"data": path} for path in given["data"]], {**given, "format": entry.name}, recognises)
    if not recognises or has_files or entry.name == "table" or len(given["data"]) != 1:
        return _complete(entry, given, why)
    from recordmill.pipelines.recognise import recognise, unwrap_folder  # imports pyarrow

    (data,) = given["data"]
    try:
        matches = recognise(unwrap_folder(data), _given_options(given), entry.name)
    except ConfigError:
        matches = []  # options or preflight report a missing path
    match = next((match for _, match in matches if not match.fault), None)
    if not match:
        return _complete(entry, given, why)
    values = _with_inputs(entry, given, match)
    conversion = _complete(entry, values, why)
    if _listed(match.inputs.get("data")) == given["data"] and not values.keys() - given.keys():
        return conversion
    return conversion._replace(notes=_describe_match(entry, given["data"], values, match))


def _given_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that belong to some formats only."""
    return {name: value for name, value in given.items() if name not in _FREE}


def _with_inputs(entry: Format, given: Mapping[str, Any], match: "Interpretation") -> dict[str, Any]:
    """Return the options with the inputs that recognition found."""
    inputs = {name: value for name, value in match.inputs.items() if name not in given or name == "data"}
    values = {**given, **inputs}
    if any(name in values for name in entry.files) and values["data"] == _listed(values.get("images")):
        del values["images"]  # DATA names them
    return values


def _describe_match(
    entry: Format, data: Sequence[str], values: Mapping[str, Any], match: "Interpretation"
) -> tuple[str, str]:
    """Return what was recognised, and the command that does the same without recognition."""
    verb = "is" if len(data) == 1 else "are"
    has_files = any(name in values for name in entry.files)
    command = _command({**values} if has_files else {**values, "format": entry.name})
    return f"{', '.join(data)} {verb} read as {entry.name}: {match.why}", command


def _complete(entry: Format, given: Mapping[str, Any], why: str) -> Conversion:
    """Return the conversion of data of a format.

    Args:
        why: Why the data has this format, for the error of an option of another one.
    """
    if "model" in given:
        if not entry.model_options_path:
            raise ConfigError(
                f"--model applies to class folders, and to rows with --image-column, but {why}. Leave --model out"
            )
        entry = entry.with_model()
    given = _place_data(entry, given)
    known = {field.name for field in option_fields(entry.options)}
    faults = [_foreign_flag(name, entry, why) for name in given if name not in known]
    if faults:
        raise ConfigError(", ".join(faults))
    return Conversion(entry, dict(given))


def _foreign_flag(name: str, entry: Format, why: str) -> str:
    """Return the error of an option that a format does not have, or not with --model."""
    if name == "images" and entry.name == "folder":
        return f"--images is not needed with class folders. Give them as DATA; {why}"
    if name == "add" and entry.options.model_fields.get("rows"):
        return f"--add is a flag of formats whose images have names to compare; {why}. Write all rows to a new --output"
    users = [*fields_by_name()[name]]
    if {entry.name, f"{entry.name} --model"} & {*users}:
        return f"{flag(name)} has no effect {'with' if entry.has_model else 'without'} --model"
    users = [user for user in users if user in formats()] or users
    shown = ", ".join(users[:3]) + (" and others" if len(users) > 3 else "")
    return f"{flag(name)} is a flag of {shown}; {why}"


def _place_data(entry: Format, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with DATA as the format's options have it."""
    values, data = dict(given), list(given["data"])
    images = _listed(given.get("images"))
    has_files = any(name in given for name in entry.files)
    if has_files and data and images and sorted(data) != sorted(map(str, images)):
        raise ConfigError(
            f"{' '.join(data)} and --images {' '.join(map(str, images))} both name the images. Give only one of them"
        )
    if has_files:
        is_folder = entry.name == "folder"
        values.pop("images", None)
        values.pop("data")
        return values | {"data" if is_folder else "images": data or images}
    if not data:
        values.pop("data")
    elif not entry.options.model_fields.get("data"):
        return values  # a list
    else:
        values["data"] = data[0]
    return values


def _recognise(given: Mapping[str, Any]) -> Conversion | None:
    """Return the conversion of data whose format the user did not name: of one data set, or of several."""
    from recordmill.pipelines.recognise import describe_nearest, recognise_data  # imports pyarrow

    options = _given_options(given)
    matches = recognise_data(given["data"], options)
    if not matches and len(given["data"]) > 1:
        return _join_sets([{"data": path} for path in given["data"]], given, recognises=True)
    shown = ", ".join(given["data"])
    fitting = [(name, match) for name, match in matches if _has_options(formats()[name], options)]
    if len(fitting) > 1:
        choices = ", ".join(f"{name} ({match.why})" for name, match in fitting)
        raise ConfigError(f"{shown} can be read in {len(fitting)} ways: {choices}. {_choice_cure(fitting)}")
    if not fitting and len(matches) == 1:
        fitting = list(matches)  # the error names the option that does not fit
    if not fitting and not matches:
        users = [name for name in formats() if any(_is_only_of(option, name) for option in options)]
        if len(users) == 1 and _has_options(formats()[users[0]], options):
            return _complete(formats()[users[0]], given, f"the format is {users[0]}")
    if not fitting:
        raise ConfigError(_not_recognised(given["data"]))
    name, match = fitting[0]
    if match.fault:
        near = describe_nearest(_listed(match.inputs["data"])[0], name)
        raise ConfigError(f"{match.fault}. {near}".rstrip()) if near else match.fault
    entry = formats()[name]
    values = _with_inputs(entry, given, match)
    conversion = _complete(entry, values, f"{shown} is {name} ({match.why})")
    return conversion._replace(notes=_describe_match(entry, given["data"], values, match))


def _choice_cure(matches: Sequence[tuple[str, "Interpretation"]]) -> str:
    """Return the cure of data that fits several formats: the formats that can read all of it, and its folders."""
    from recordmill.pipelines.recognise import describe_nearest

    names = [name for name, match in matches if not match.fault]
    near = describe_nearest(_listed(matches[0][1].inputs["data"])[0])
    which = "NAME to choose one" if len(names) == len(matches) else " or ".join(names)
    return f"Add --format {which}{', or give one of its folders. ' if near else ''}{near}".rstrip()


def _has_options(entry: Format, names: Iterable[str]) -> bool:
    entries = [entry, *([entry.with_model()] if entry.model_options_path else [])]
    known = {field.name for one in entries for field in option_fields(one.options)}
    return all(name in known for name in names)


def _is_only_of(option: str, name: str) -> bool:
    return {user.partition(" ")[0] for user in fields_by_name().get(option, ())} == {name}


def _not_recognised(data: Sequence[str]) -> str:
    """Return the error for data that no format recognises."""
    from recordmill.pipelines.recognise import describe_data

    return f"{', '.join(data)}: {describe_data(data)}"


def _command(values: Mapping[str, Any]) -> str:
    """Return the command that does the same without recognition."""
    shown = {name: value for name, value in values.items() if name != "dry_run"}
    return shlex.join(["recordmill", "convert", *command_words(shown)])


def command_words(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of `convert` for values of options by name."""
    fields = {field.name: field for field in (*convert_fields(), *option_fields(TerminalOptions))}
    for name in sorted(values, key=lambda name: not fields[name].is_argument):
        field, value = fields[name], values[name]
        if field.type is bool:
            yield from [field.flag] if value in (True, "true") else []
            continue
        if field.are_fields:
            value = ",".join(field_choices(value))
        if field.are_sets:
            value = [json.dumps(one, default=str, ensure_ascii=False) for one in value]
        if isinstance(value, Mapping):
            pairs = [f"{key}={other}" for key, other in value.items()]
            value = pairs if field.are_names else ",".join(pairs)
        if field.are_names and isinstance(value, list | tuple):
            value = join_names(map(str, value))
        for text in value if isinstance(value, list | tuple) else [value]:
            yield from (
                [str(text)]
                if field.is_argument
                else [field.flag, os.fspath(text) if isinstance(text, os.PathLike) else str(text)]
            )
