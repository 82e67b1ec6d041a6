"""`recordmill VERB …`: what a person types. `python -m launch.cli` is the same.

Nothing heavy is imported before the command line has been understood, so that --help and refusals come at once.
"""

import argparse
import io
import logging
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from launch.parser import coco_options, folder_options, parse
from schemas.errors import ConfigError, RecordmillError

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
TERMINATED = 143
"""Exit code after SIGTERM, which is what Kubernetes and Airflow send."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors are told on standard error."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    own, beam_arguments = _split_at_dashes(arguments)
    for stream in (sys.stdout, sys.stderr):  # names that the terminal's encoding lacks are no reason to fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    debug = "--debug" in own
    with _terminated_as_by_ctrl_c() as signals:
        return _run(own, beam_arguments, debug, signals)


def _run(own: list[str], beam_arguments: list[str], debug: bool, signals: list[int]) -> int:
    try:
        parsed = parse(own)
        logging.basicConfig(
            level=logging.DEBUG if debug else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
        )
        if not debug:
            logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # its errors are told by _complain
        return _COMMANDS[parsed.verb](parsed, beam_arguments)
    except RecordmillError as error:
        _complain(error, debug)
        return error.exit_code
    except OSError as error:
        _complain(error, debug)
        return 1
    except KeyboardInterrupt:
        goes_on = own[:1] in (["coco"], ["folder"])
        left = "; finished shards stay, and the same command goes on from there" if goes_on else ""
        print(f"recordmill: {'terminated' if signals else 'interrupted'}{left}", file=sys.stderr)
        return TERMINATED if signals else INTERRUPTED


@contextmanager
def _terminated_as_by_ctrl_c() -> Iterator[list[int]]:
    """Within, SIGTERM raises a KeyboardInterrupt as Ctrl-C does; the list tells whether it came."""
    signals: list[int] = []

    def interrupt(number: int, _: object) -> None:
        signals.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # which is the only one that may ask for signals
        yield signals
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield signals
    finally:
        signal.signal(signal.SIGTERM, before)


def _split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]


def _complain(error: Exception, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    print(f"recordmill: {error}", file=sys.stderr)


def _coco(parsed: argparse.Namespace, beam_arguments: list[str]) -> int:
    options = coco_options(parsed)
    from launch.coco import plan_coco, run_coco

    if options.dry_run:
        plan_coco(options, parsed.progress)
    else:
        run_coco(options, parsed.progress, beam_arguments)
    return 0


def _folder(parsed: argparse.Namespace, beam_arguments: list[str]) -> int:
    options = folder_options(parsed)
    from launch.folder import plan_folder, run_folder

    if options.dry_run:
        plan_folder(options, parsed.progress)
    else:
        run_folder(options, parsed.progress, beam_arguments)
    return 0


def _verify(parsed: argparse.Namespace, beam_arguments: list[str]) -> int:
    from launch.verify import run_verify

    return 0 if run_verify(parsed.folder, parsed.workers, parsed.progress, beam_arguments) else 1


def _extract(parsed: argparse.Namespace, beam_arguments: list[str]) -> int:
    from launch.extract import run_extract

    whole = run_extract(parsed.folder, parsed.target, parsed.split, parsed.workers, parsed.progress, beam_arguments)
    return 0 if whole else 1


def _sample(parsed: argparse.Namespace, beam_arguments: list[str]) -> int:
    if beam_arguments:
        raise ConfigError(f"sample runs no pipeline, so {' '.join(beam_arguments)} would do nothing")
    from launch.sample import run_sample

    run_sample(parsed.folder, parsed.count, parsed.seed, parsed.odd)
    return 0


_COMMANDS: dict[str, Callable[[argparse.Namespace, list[str]], int]] = {
    "coco": _coco,
    "folder": _folder,
    "verify": _verify,
    "extract": _extract,
    "sample": _sample,
}


if __name__ == "__main__":
    sys.exit(main())
