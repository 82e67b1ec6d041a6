"""Conversion from Python: `recordmill convert` as a call."""

import inspect
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import partial
from keyword import iskeyword
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

from typing_extensions import get_overloads

from recordmill._data_set import DataSet, open
from recordmill.schemas import errors
from recordmill.schemas.command_texts import python_text
from recordmill.schemas.dataset.dataset_files import REJECTS, split_rejects
from recordmill.schemas.errors import ConfigError, JobError, RecordmillError
from recordmill.transforms.dataset.dataset_folder import read_statistics

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions


_LOGGER = logging.getLogger("recordmill")
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.stdin.readline()); "
    "from recordmill.launch.library import child; child()"
)
_GRACE_S = 10.0  # time for a child to delete its unfinished files
_NOTEBOOK_COLUMNS = 100
_POSITIONAL = ("data", "output")

_Function = TypeVar("_Function", bound=Callable[..., "DataSet | str"])


def with_signature(function: _Function) -> _Function:
    """Return a function with signature and docstring of its first overload, which `help` and notebooks show."""
    overload, *_ = get_overloads(function)
    signature = inspect.signature(overload)
    known = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=known)  # type: ignore[attr-defined]
    function.__doc__ = overload.__doc__
    return function


def run_convert(
    function: Callable[..., DataSet | str], arguments: Sequence[Any], options: Mapping[str, Any]
) -> DataSet | str:
    """Convert as `function` does, which is `recordmill.convert`. Its signature has the options. Return the data set;
    with `labels_only`, the folder."""
    parameters = inspect.signature(function).parameters
    keywords = {name: str(parameter.annotation) for name, parameter in parameters.items()}
    given = _named_arguments(arguments, options, keywords["format"])
    runner_options, format_options = (given.pop(name, None) for name in ("runner_options", "format_options"))
    if "config" not in options:  # where a default does not overrule the file
        given = {name: value for name, value in given.items() if not _is_default(value, parameters.get(name))}
    values = {_option_name(name): plain_value(name, value) for name, value in given.items() if value is not None}
    logged = set[str]()
    try:
        values |= format_values(format_options, values)
        # Options of formats of other packages have no annotation.
        keywords = {name: type(value).__name__ for name, value in values.items()} | keywords
        if runner_options is None:
            done = _convert_in_child(values, partial(python_text, keywords=keywords), logged)
        else:
            from recordmill.launch.library import convert as convert_here

            with _translate_log_records(partial(python_text, keywords=keywords), logged):
                done = convert_here(values, _beam_flags(runner_options))
    except RecordmillError as error:
        error.args = (python_text(str(error), keywords), *error.args[1:])
        raise
    if values.get("labels_only"):
        return _labels_folder(done["output"])
    converted = open(done["output"])
    _log_warnings(converted, done["splits"], keywords, logged)
    return converted


def _option_name(keyword: str) -> str:
    """Return the name of the option of a keyword: `as` of `as_`."""
    name = keyword.removesuffix("_")
    return name if iskeyword(name) else keyword


def _labels_folder(folder: str) -> str:
    """Return the folder of labels, and log its file of rejects."""
    if os.path.exists(rejects := os.path.join(folder, REJECTS)):
        _LOGGER.warning("Rejects are listed in %s", rejects)
    return folder


def _named_arguments(arguments: Sequence[Any], options: Mapping[str, Any], formats: str) -> dict[str, Any]:
    """Return all arguments by name.

    Args:
        formats: Annotation with the names of formats, which earlier versions had in place of data.

    Raises:
        TypeError: More than two have no name, or one is given twice.
    """
    if len(arguments) > len(_POSITIONAL):
        raise TypeError(f"convert() takes data and output without a name, and {len(arguments)} values have none")
    given = dict(zip(_POSITIONAL, arguments, strict=False))
    if "data" in given and "data" in options and (given["data"] == "auto" or repr(given["data"]) in formats):
        return {**given, **options, "data": given["data"], "rows": options["data"]}  # the error shows the new call
    for name in given.keys() & options:
        raise TypeError(f"convert() got {name} twice, as {given[name]!r} and as {options[name]!r}")
    return {**given, **options}


@contextmanager
def _translate_log_records(translate: Callable[[str], str], logged: set[str]) -> Iterator[None]:
    """Context manager: translate log records of this package, and add their texts to `logged`. Filters of a logger
    would not see records of its children, so it is the factory that does."""
    make_record = logging.getLogRecordFactory()

    def make_translated(*arguments: Any, **named: Any) -> logging.LogRecord:
        record = make_record(*arguments, **named)
        if record.name.startswith("recordmill."):
            record.msg, record.args = translate(record.getMessage()), ()
            logged.add(record.msg)
        return record

    logging.setLogRecordFactory(make_translated)
    try:
        yield
    finally:
        logging.setLogRecordFactory(make_record)


def _is_default(value: Any, parameter: inspect.Parameter | None) -> bool:
    """Return whether a value is the default, which an option of another format may have, too."""
    return parameter is not None and isinstance(value, bool | int | float | str) and value == parameter.default


def format_values(options: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a format of another package.

    Raises:
        ConfigError: They are not a dict, or have the name of an option that is given.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise ConfigError(f"format_options must be a dict of options by name (got {options!r})")
    if repeated := [name for name in options if name in values]:
        raise ConfigError(f"{', '.join(repeated)}: given as a keyword, and in format_options. Give it once")
    return {name: plain_value(name, value) for name, value in options.items()}


def plain_value(name: str, value: Any) -> Any:
    """Return the value of an option as JSON types."""

    def plain(one: object) -> str | int | float:
        if isinstance(one, os.PathLike):
            return os.fsdecode(one)
        if isinstance(one, Integral):  # NumPy's integers, too
            return int(one)
        if isinstance(one, Fraction):
            return str(one)
        if isinstance(one, Real):
            return float(one)
        cure = f". Write it to a file: {name}.to_parquet(…)" if hasattr(one, "to_parquet") else ""
        raise TypeError(f"text, a number, a path or a list is expected, not {type(one).__name__}{cure}")

    try:
        return json.loads(json.dumps(value, default=plain))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}: {error}") from error


def _log_warnings(data: DataSet, splits: Sequence[str], keywords: Mapping[str, str], logged: set[str]) -> None:
    """Log what was found in new splits, and rejects. Texts that the job has logged are skipped."""
    from recordmill.transforms.dataset.fact_lines import problem_lines
    from recordmill.transforms.insight.across_splits import compare_splits

    comparison = compare_splits(read_statistics(data.path, data.manifest.splits))
    warnings = {text for split in splits for text in data.manifest.splits[split].warnings}
    for text in (*problem_lines(data.path, data.manifest, splits, comparison), *sorted(warnings)):
        translated = python_text(text, keywords)
        if translated not in logged:
            _LOGGER.warning("%s", translated)
    for split in splits:
        if rejects := data.manifest.splits[split].rejects:
            file = os.path.join(data.path, split_rejects(split))
            _LOGGER.warning("Split %s: rejects: %s, see %s", split, rejects, file)


def _beam_flags(options: "Sequence[str] | PipelineOptions") -> list[str]:
    """Return PipelineOptions as flags.

    Raises:
        ConfigError: An option is switched off, which has no general flag; or `options` has another type.
    """
    if isinstance(options, Sequence):
        return [options] if isinstance(options, str) else [*map(str, options)]
    if not hasattr(options, "get_all_options"):
        raise ConfigError(
            f"runner_options: a list of flags or PipelineOptions is expected, not {type(options).__name__}"
        )
    flags = []
    for name, value in options.get_all_options(drop_default=True).items():
        if value is False:
            raise ConfigError(f"runner_options: {name}=False. Give the list of flags in place of PipelineOptions")
        for one in value if isinstance(value, list) else [value]:
            text = json.dumps(one) if isinstance(one, dict) else one
            flags.append(f"--{name}" if one is True else f"--{name}={text}")
    return flags


def _convert_in_child(values: dict[str, Any], translate: Callable[[str], str], logged: set[str]) -> dict[str, Any]:
    """Convert in a child process, and return its result. Texts of its log are added to `logged`."""
    request = [values, os.getpid(), _live_width()]
    # A separate session: the terminal's Ctrl-C reaches only this process, which ends the child.
    with subprocess.Popen(
        [sys.executable, "-c", _START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="backslashreplace",
        start_new_session=True,
    ) as child:
        requests, messages, lines = cast("tuple[TextIO, TextIO, TextIO]", (child.stdin, child.stdout, child.stderr))
        last: deque[str] = deque(maxlen=1)
        logging_ = threading.Thread(target=_log_lines, args=(lines, last, translate, logged), daemon=True)
        logging_.start()
        try:
            with suppress(BrokenPipeError):  # the child ended early; standard error has the reason
                requests.write(f"{json.dumps([*map(str, sys.path)])}\n{json.dumps(request)}\n")
                requests.flush()
            result = _watch_child(messages)
            child.wait()
            logging_.join()
        except BaseException:
            _end_child(child)
            raise
    if "error" in result:
        error = getattr(errors, result["error"])(result["text"])
        raise error from None if isinstance(error, ConfigError) else _ChildError(result["traceback"])
    if not result:
        code = child.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise JobError(f"the child process {how}; the same call resumes after the finished shards. {''.join(last)}")
    _LOGGER.info("%s", translate(result["summary"]))
    return result


class _ChildError(Exception):
    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _watch_child(messages: Iterable[str]) -> dict[str, Any]:
    """Show progress until the result arrives, and return it."""
    shown = 0
    try:
        for message in map(json.loads, messages):
            if "line" not in message:
                return message
            line, shown = message["line"].ljust(shown), len(message["line"]) * message["live"]
            print(f"\r{line}" if shown else line, end="" if shown else "\n", file=sys.stderr, flush=True)
        return {}
    finally:
        if shown:
            print(f"\r{' ' * shown}\r", end="", file=sys.stderr, flush=True)


def _log_lines(lines: Iterable[str], last: deque[str], translate: Callable[[str], str], logged: set[str]) -> None:
    for line in lines:
        last.append(translate(line.strip()))
        text = last[-1].removeprefix("warning: ").removeprefix("note: ")
        logged.add(text)
        _LOGGER.warning("%s", text)


def _live_width() -> int:
    """Return the live line's width; 0 if none is shown."""
    if type(sys.stderr).__module__.startswith("ipykernel"):
        return _NOTEBOOK_COLUMNS
    is_terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return shutil.get_terminal_size().columns - 1 if is_terminal else 0


def _end_child(child: subprocess.Popen) -> None:
    child.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_S)
    finally:
        child.kill()
