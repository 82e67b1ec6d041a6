"""Command `recordmill VERB …`, also `python -m recordmill.launch.cli`.

It imports nothing heavy before it has parsed the command line, so that --help and errors are immediate."""

import atexit
import gc
import io
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from recordmill.launch.command_line.help import program_help
from recordmill.launch.command_line.parser import HELP, Command, parse
from recordmill.launch.local_engine.engine import importing, local_engine
from recordmill.launch.runners.signals import end_with, terminated_as_by_ctrl_c
from recordmill.launch.terminal.error_stream import ErrorStreamHandler, error_stream, others_hidden, silence
from recordmill.pipelines.verbs import VERBS
from recordmill.schemas.errors import ConfigError, RecordmillError, missing_extra
from recordmill.schemas.sizes import printable
from recordmill.transforms.storage.os_errors import explain_os_error, is_of_command

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells: 128 + the signal's number."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Errors are printed to standard error."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    dashes = arguments.index("--") if "--" in arguments else len(arguments)
    own, beam_arguments = arguments[:dashes], arguments[dashes + 1 :]
    debug = "--debug" in own
    # Hides tracebacks of Beam's workers: their errors are reported in one line here.
    hiding = others_hidden() if beam_arguments and not debug else nullcontext()
    with hiding, logged(debug), _checked(debug), terminated_as_by_ctrl_c() as signals:
        return _run(own, beam_arguments, debug, signals)


def command(run: Callable[[], int] = main) -> NoReturn:
    """Run `main`, or a function that calls it, as the process `recordmill`. It hides the output of libraries
    (libtiff's, for example). A caller's own process shows that output."""
    debug = "--debug" in sys.argv
    atexit.register(gc.freeze)  # skips the garbage collection at exit: 0.4 s of a job with ten images
    for stream in (sys.stdout, sys.stderr):  # do not fail on characters that the terminal's encoding lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with local_engine(), nullcontext() if debug else others_hidden(for_good=True):
        try:
            code = run()
        except Exception as error:  # Python would print it to the hidden stream
            if debug:
                raise
            text = printable(f"{type(error).__name__}: {error}")
            print(f"recordmill: the command failed: {text} (--debug shows the traceback)", file=error_stream())
            code = 1
    if sys.stdout:
        with suppress(OSError):  # the reader of a pipe may be gone
            sys.stdout.flush()
    end_with(code)
    if sys.stderr and not debug:
        sys.stderr.flush()
        silence()  # everything is reported; Beam's threads print noise when the interpreter ends
    if code > 128:  # an interrupted step may leave a thread that the interpreter would wait for
        os._exit(code)
    sys.exit(code)


@contextmanager
def logged(debug: bool) -> Iterator[None]:
    """Context manager: print warnings, and with `debug` all log records. Handlers of the caller take precedence."""
    root, handler = logging.getLogger(), logging.StreamHandler() if debug else ErrorStreamHandler()
    if root.handlers:
        yield
        return
    form = "%(levelname)s %(name)s: %(message)s" if debug else "warning: %(message)s"
    handler.setFormatter(logging.Formatter(form))
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if debug else logging.WARNING)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def _checked(debug: bool) -> AbstractContextManager[None]:
    """Context manager: with `debug`, check the Blocks of each step."""
    if not debug:
        return nullcontext()
    from recordmill.transforms.blocks.check_block import blocks_checked  # NumPy takes a tenth of a second

    return blocks_checked()


def _run(own: list[str], beam_arguments: list[str], debug: bool, signals: list[int]) -> int:
    try:
        if not own:
            print(program_help(), end="", file=error_stream())
            return ConfigError.exit_code
        commands = [*_commands(own)]
        if len(commands) > 1 and any(word.startswith("--template_location") for word in beam_arguments):
            raise ConfigError(f"a template holds one job, and these are {len(commands)}: make one of each command")
        for command in commands:
            if beam_arguments and not VERBS[command.verb].runs_beam:
                raise ConfigError(f"{command.verb} runs no pipeline, so {' '.join(beam_arguments)} would do nothing")
            if code := run_command(command, beam_arguments).code:
                return code
        return 0
    except RecordmillError as error:
        _print_error(error, debug)
        return error.exit_code
    except OSError as error:
        _print_error(error, debug)
        return ConfigError.exit_code if is_of_command(error) else 1
    except KeyboardInterrupt as interrupt:
        if str(interrupt):  # the message of recordmill.launch.runners.run
            _print_error(interrupt, debug)
        else:
            goes_on = own[0] in VERBS and VERBS[own[0]].resumes
            left = "; finished shards stay, and the same command goes on from there" if goes_on else ""
            print(f"recordmill: {'terminated' if signals else 'interrupted'}{left}", file=error_stream())
        return 128 + signals[0] if signals else INTERRUPTED


def _commands(own: list[str]) -> Iterable[Command]:
    """Return the commands of a command line: several, perhaps, of a verb that stands for others."""
    if own[0] not in VERBS or not VERBS[own[0]].recognises or HELP & {*own}:
        return [parse(own)]
    return recognised(own[0], "recognised_commands")(own[1:])


def recognised(verb: str, function: str) -> Any:
    """Import a function of a verb that stands for others."""
    if find_spec("apache_beam") is None:
        raise missing_extra(verb, "beam")
    with importing():
        return VERBS[verb].load(function)


class Done(NamedTuple):
    """A command's exit code, and the splits that it wrote."""

    code: int
    splits: tuple[str, ...] = ()


def _print_error(error: BaseException, debug: bool) -> None:
    if debug:
        traceback.print_exception(error, file=error_stream())
    text = explain_os_error(error) if isinstance(error, OSError) else str(error)
    print(f"recordmill: {printable(text)}", file=error_stream())


def run_command(command: Command, beam_arguments: list[str], show: Any = None) -> Done:
    """Run a command. It imports the command's modules, and Beam if needed, which takes seconds.

    Args:
        show: A `recordmill.launch.terminal.progress.Show` for a conversion, in place of `--progress`.
    """
    verb, options, progress = VERBS[command.verb], command.options, show or command.terminal.progress
    if verb.runs_beam and find_spec("apache_beam") is None:
        raise missing_extra(command.verb, "beam")
    if verb.converts:
        _require_installed()
    with importing():
        run = verb.load("prepare" if verb.converts else "run")
    if not verb.runs_beam:
        run(options)
        return Done(0)
    with importing():
        from recordmill.launch.runners.beam_options import beam_options, run_job_name

        if verb.converts:
            from recordmill.launch.preflight.check_inputs import check_inputs
            from recordmill.launch.preflight.check_runner import check_runner
            from recordmill.launch.terminal.require_tensorflow import require_tensorflow
            from recordmill.launch.verbs.convert import convert, show_plan
    if not verb.converts:
        return Done(1 if run(options, progress, beam_options(beam_arguments)) else 0)
    beams = beam_options(beam_arguments, run_job_name(options.output, options.splits))
    check_runner(beams, options.paths)  # before inputs are checked, which is slow in a bucket
    check_inputs(options)
    if verb.needs_tensorflow:
        require_tensorflow(command.verb, is_checking=False)
    job = run(options)
    if options.dry_run:
        show_plan(job, progress)
    else:
        convert(job, progress, beams)
    return Done(0, job.splits)


def _require_installed() -> None:
    """Raise ConfigError if the distribution is not installed: shards store the version that wrote them."""
    from importlib.metadata import distributions  # slow to import; readers do not need it

    if not any(distributions(name="recordmill")):
        clone = Path(__file__).resolve().parent.parent
        raise ConfigError(f"Recordmill is not installed for {sys.executable}: pip install --no-deps {clone}")


if __name__ == "__main__":
    command()
