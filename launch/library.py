"""Conversion for `recordmill.convert`, in this or a child process.

A child reads two lines of JSON from standard input: the import path; and a list of the values of options by name, the
process id of the caller, and the width of its live line, 0 for plain lines. It writes lines of JSON to
standard output: progress, and at the end the result or the error. Standard error has the messages of the command."""

import io
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, TextIO

from recordmill.launch.cli import command, log_to_stderr, run_command
from recordmill.launch.command_line.parser import old_verb_fault, parse_values
from recordmill.launch.runners.signals import interrupt_on_termination
from recordmill.pipelines.choose_format import convert_fields
from recordmill.pipelines.formats import FORMATS
from recordmill.pipelines.verbs import OLD_VERBS
from recordmill.schemas.errors import ConfigError, JobError, RecordmillError, missing_extra
from recordmill.schemas.inputs.option import flag
from recordmill.schemas.sizes import printable
from recordmill.transforms.runtime.threads import end_with_parent
from recordmill.transforms.storage.os_errors import explain_os_error, is_command_error


def convert(
    values: Mapping[str, Any], beam_arguments: list[str], show: Callable[[str], Any] | None = None
) -> dict[str, Any]:
    """Convert, and return the folder and the splits.

    Args:
        values: Values of options by name, as JSON has them.
        show: Returns a `recordmill.launch.terminal.progress.Show` for a mode of `progress`.

    Raises:
        ConfigError: With all errors.
        JobError: The job failed.
    """
    if find_spec("apache_beam") is None:
        raise missing_extra("recordmill.convert", "beam")
    try:
        if fault := _old_call_fault(values):
            raise ConfigError(fault)
        # Without an output, nothing is read to recognise the format.
        asked = parse_values("convert", values, recognises=bool({"output", "config"} & {*values}))
        if asked.options is None:
            raise ConfigError(next(field.missing for field in convert_fields() if field.name == "output"))
        for line in asked.notes:
            print(printable(line))
        mode, output = asked.terminal.progress, asked.options.output
        if asked.options.dry_run:
            raise ConfigError("dry_run does not write a data set. The command `recordmill convert` prints the plan")
        if asked.options.part:
            raise ConfigError(
                "part does not write a whole data set. The command `recordmill convert` writes parts, and `recordmill "
                "seal` completes them"
            )
        _, splits = run_command(asked, beam_arguments, show and mode != "none" and show(mode), has_warnings=False)
    except RecordmillError:
        raise
    except OSError as error:
        raise (ConfigError if is_command_error(error) else JobError)(explain_os_error(error)) from error
    except Exception as error:
        raise JobError(f"{type(error).__name__}: {error}") from error
    return {"output": output, "splits": splits}


def _old_call_fault(values: Mapping[str, Any]) -> str:
    """Return the error of a call that names a verb of earlier versions, with the command that replaces it."""
    verb = values.get("data")
    names_data = {"images", "rows", *(name for entry in FORMATS.values() for name in entry.files)} & {*values}
    if verb not in OLD_VERBS or not names_data or os.path.exists(verb):
        return ""
    words = (word for name, value in values.items() if name != "data" for word in _option_words(flag(name), value))
    return old_verb_fault(verb, [*words])


def _option_words(flag_: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yield from [flag_] if value else []
        return
    if isinstance(value, Mapping):
        value = ",".join(f"{key}={other}" for key, other in value.items())
    for one in value if isinstance(value, list) else [value]:
        yield from (flag_, str(one))


def child() -> None:
    """Run as the child process of a caller."""
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries may print there
    sys.stdout = summary = io.StringIO()
    command(lambda: _answer(messages, summary))


def _answer(messages: TextIO, summary: io.StringIO) -> int:
    values, parent, columns = json.loads(sys.stdin.readline())
    _end_with(parent)

    def send(message: Mapping[str, Any]) -> None:
        print(json.dumps(message), file=messages, flush=True)

    def show(mode: str) -> Any:
        from recordmill.launch.terminal.progress import send_lines

        width = columns if mode == "auto" else 0
        return lambda stop, _: send_lines(stop, width, lambda line: send({"line": line, "live": bool(width)}))

    with log_to_stderr(False), interrupt_on_termination() as signals:
        try:
            done = convert(values, [], show)
        except KeyboardInterrupt:
            return 128 + (signals or [signal.SIGINT])[0]
        except RecordmillError as error:
            text = "".join(traceback.format_exception(error))
            send({"error": type(error).__name__, "text": str(error), "traceback": text})
            return error.exit_code
        send(done | {"summary": summary.getvalue()})
    return 0


def _end_with(parent: int) -> None:
    if sys.platform == "linux":
        end_with_parent(parent)  # without a thread, because writers are forked
    else:
        threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
