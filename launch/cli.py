"""Command `recordmill VERB …`, also `python -m recordmill.launch.cli`.

It imports nothing heavy before it has parsed the command line, so that --help and errors are immediate."""

import atexit
import gc
import io
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from recordmill.launch.command_line.help import program_help
from recordmill.launch.command_line.parser import Command, parse
from recordmill.launch.local_engine.engine import importing, local_engine
from recordmill.launch.runners.signals import end_with, interrupt_on_termination
from recordmill.launch.terminal.error_stream import ErrorStreamHandler, error_stream, hide_other_output, silence
from recordmill.pipelines.verbs import OLD_VERBS, VERBS
from recordmill.schemas.errors import ConfigError, RecordmillError, missing_extra
from recordmill.schemas.sizes import printable
from recordmill.transforms.storage.os_errors import explain_os_error, is_command_error

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells: 128 + the signal's number."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Errors are printed to standard error."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    dashes = arguments.index("--") if "--" in arguments else len(arguments)
    own, beam_arguments = arguments[:dashes], arguments[dashes + 1 :]
    debug = "--debug" in own
    # Hides tracebacks of Beam's workers: their errors are reported in one line here.
    hiding = hide_other_output() if beam_arguments and not debug else nullcontext()
    with hiding, log_to_stderr(debug), _check_blocks(debug), interrupt_on_termination() as signals:
        return _run_commands(own, beam_arguments, debug, signals)


def command(run: Callable[[], int] = main) -> NoReturn:
    """Run `main`, or a function that calls it, as the process `recordmill`. It hides the output of libraries
    (libtiff's, for example). A caller's own process shows that output."""
    debug = "--debug" in sys.argv
    atexit.register(gc.freeze)  # skips the garbage collection at exit: 0.4 s of a job with ten images
    for stream in (sys.stdout, sys.stderr):  # do not fail on characters that the terminal's encoding lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with local_engine(), nullcontext() if debug else hide_other_output(for_good=True):
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
def log_to_stderr(debug: bool) -> Iterator[None]:
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


def _check_blocks(debug: bool) -> AbstractContextManager[None]:
    """Context manager: with `debug`, check the Blocks of each step."""
    if not debug:
        return nullcontext()
    from recordmill.transforms.blocks.check_block import check_blocks  # NumPy takes a tenth of a second

    return check_blocks()


def _run_commands(own: list[str], beam_arguments: list[str], debug: bool, signals: list[int]) -> int:
    try:
        if not own:
            print(program_help(), end="", file=error_stream())
            return ConfigError.exit_code
        with importing():  # recognition of a data set imports Arrow
            command = _parse([*own, "--", *beam_arguments] if own[0] in OLD_VERBS and beam_arguments else own)
        if beam_arguments and not VERBS[command.verb].runs_beam:
            raise ConfigError(f"{command.verb} does not run a pipeline, so {' '.join(beam_arguments)} has no effect")
        for line in command.notes:
            print(printable(line), flush=True)
        code, _ = run_command(command, beam_arguments)
        return code
    except RecordmillError as error:
        _print_error(error, debug)
        return error.exit_code
    except OSError as error:
        _print_error(error, debug)
        return ConfigError.exit_code if is_command_error(error) else 1
    except KeyboardInterrupt as interrupt:
        if str(interrupt):  # the message of recordmill.launch.runners.run
            _print_error(interrupt, debug)
        else:
            goes_on = own[0] in VERBS and VERBS[own[0]].resumes
            left = ". Finished shards are kept. Run the same command again to resume" if goes_on else ""
            print(f"recordmill: {'terminated' if signals else 'interrupted'}{left}", file=error_stream())
        return 128 + signals[0] if signals else INTERRUPTED


def _parse(words: list[str]) -> Command:
    """Return the command of the words. Recognition of a data set imports modules that only the extra `beam` has."""
    try:
        return parse(words)
    except ModuleNotFoundError as error:
        if find_spec("apache_beam") is None:
            raise missing_extra(words[0], "beam") from error
        raise


def _print_error(error: BaseException, debug: bool) -> None:
    if debug:
        traceback.print_exception(error, file=error_stream())
    text = explain_os_error(error) if isinstance(error, OSError) else str(error)
    print(f"recordmill: {printable(text)}", file=error_stream())


def run_command(
    command: Command, beam_arguments: list[str], show: Any = None, has_warnings: bool = True
) -> tuple[int, tuple[str, ...]]:
    """Run a command, and return its exit code and the splits that it wrote. It imports the command's modules, and Beam
    if needed, which takes seconds.

    Args:
        show: A `recordmill.launch.terminal.progress.Show` for a conversion, in place of `--progress`.
        has_warnings: See `recordmill.launch.verbs.convert.convert`.
    """
    verb, options, progress = VERBS[command.verb], command.options, show or command.terminal.progress
    source = command.format
    if verb.runs_beam and find_spec("apache_beam") is None:
        raise missing_extra(command.verb, "beam")
    if verb.converts:
        _require_installed()
    with importing():
        run = source.load("prepare") if source else verb.load("run")
    if not verb.runs_beam:
        run(options)
        return 0, ()
    with importing():
        from recordmill.launch.runners.beam_options import beam_options, run_job_name

        if source:
            from recordmill.launch.preflight.check_inputs import check_inputs
            from recordmill.launch.preflight.check_runner import check_runner
            from recordmill.launch.preflight.claim_addition import read_base
            from recordmill.launch.terminal.require_tensorflow import require_tensorflow
            from recordmill.launch.verbs.convert import convert, show_plan
            from recordmill.transforms.shards.commit_splits import finish_commit
    if not source:
        return int(run(options, progress, beam_options(beam_arguments))), ()
    parts = [f"part-{options.part}"] if options.part else []
    beams = beam_options(beam_arguments, run_job_name(options.output, [*options.splits, *parts]))
    check_runner(beams, options.paths)  # before inputs are checked, which is slow in a bucket
    if not options.dry_run:
        finish_commit(options.output)
    base = read_base(options.output) if getattr(options, "add", False) else None
    check_inputs(options)
    if source.has_model:
        require_tensorflow("--model", is_checking=False)
    if getattr(options, "labels_only", False):
        from recordmill.launch.verbs.convert_labels import convert_labels

        has_faults, splits = convert_labels(options, run, progress, beams)
        return int(has_faults), splits
    job = _prepare_addition(options, base, run) if base else run(options)
    if options.dry_run:
        show_plan(job, progress)
    else:
        convert(job, progress, beams, has_warnings)
    return 0, job.splits


def _prepare_addition(options: Any, base: Any, prepare: Callable[[Any], Any]) -> Any:
    """Return the job that adds to a data set, with the options that it adopts from it; `base` is its Manifest."""
    from recordmill.launch.preflight.claim_addition import adopt_options

    options, notes = adopt_options(options, base)
    job = prepare(options)
    return job._replace(base=base, notes=(*notes, *job.notes))


def _require_installed() -> None:
    """Raise ConfigError if the distribution is not installed: shards store the version that wrote them."""
    from importlib.metadata import distributions  # slow to import; readers do not need it

    if not any(distributions(name="recordmill")):
        clone = Path(__file__).resolve().parent.parent
        raise ConfigError(f"Recordmill is not installed for {sys.executable}: pip install --no-deps {clone}")


if __name__ == "__main__":
    command()
