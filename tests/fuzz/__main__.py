"""Fuzzing: read seeded mutants of small valid files by every parser.

    python -m tests.fuzz [--seconds 150] [--seed 1] [--target NAME]     # `make test-fuzz`
    python -m tests.fuzz --seed 1 --target voc --case 123 [--keep DIR]  # the same mutant again

The checks before a job, the parser, and the first steps of the job read a mutant, in a child process. It ends in a
value, a reject, or a RecordmillError. A fault is any other exception, more than 5 seconds, more than 1 GB, or a process
that ends. Each kind of fault is printed once, with the command that brings it.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.mutate import mutate
from tests.fuzz.targets import OUTCOMES, Target, all_targets, import_parsers, write_files

_CASES = 100
"""Mutants that a child process reads."""
_MOST_SECONDS, _MOST_BYTES = 5, 1 << 30
_GRACE_SECONDS = 10
"""Time after which the parent ends a child that no signal interrupts."""


class _TooSlowError(BaseException):
    """The time of a mutant is over. It is not an Exception, which parsers of damaged data catch."""


def mutant(seed: int, target: Target, case: int) -> tuple[dict[str, bytes], random.Random]:
    """Return the files of a mutant, and the generator that chooses options."""
    rng = random.Random(f"{seed} {target.name} {case}")
    names = [name for name in target.files if not name.endswith(("1.jpg", "2.jpg"))] or list(target.files)
    chosen = rng.sample(names, 1 if rng.random() < 0.9 else len(names))
    changed = {name: mutate(rng, name, target.files[name]) for name in chosen}
    return {**target.files, **changed}, rng


def read_mutant(seed: int, target: Target, case: int, folder: Path) -> str:
    """Return the fault of a mutant, with its place in the code; "" for a good outcome."""
    files, rng = mutant(seed, target, case)
    write_files(folder, files)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.setitimer(signal.ITIMER_REAL, _MOST_SECONDS)
    fault = ""
    try:
        target.read(folder, rng)
    except OUTCOMES:
        pass
    except (Exception, _TooSlowError) as error:
        text = str(error).replace(str(folder), "DIR")
        fault = f"{_place(error)}\n{type(error).__name__}: {text[:300]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    return fault or (f"memory\n{grown >> 20:,} MB more" if grown > _MOST_BYTES else "")


def _place(error: BaseException) -> str:
    """Return the innermost line of the project that raised an exception."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in frames
        if f"{os.sep}tests{os.sep}" not in frame.filename and "-packages" not in frame.filename
    ]
    frame = next((f for f in reversed(own) if "/recordmill/" in f.filename or "/transforms/" in f.filename), frames[-1])
    return f"{'/'.join(Path(frame.filename).parts[-3:])}:{frame.lineno} {type(error).__name__}"


def _stop(_: int, __: FrameType | None) -> None:
    raise _TooSlowError(f"more than {_MOST_SECONDS} s")


def _read_run(seed: int, target: Target, cases: range, report: Path, now: mmap, end: float) -> None:
    """Read mutants in a child process; write faults to the report, and the number of the current mutant to `now`."""
    signal.signal(signal.SIGALRM, _stop)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for case in cases:
        if time.monotonic() > end:
            break
        now[:8] = case.to_bytes(8, "little")
        with tempfile.TemporaryDirectory(dir=report.parent, ignore_cleanup_errors=True) as folder:
            fault = read_mutant(seed, target, case, Path(folder))
        if fault:
            with report.open("a") as file:
                file.write(json.dumps([target.name, case, *fault.split("\n", 1)]) + "\n")
    now[8:16] = (case + 1 - cases.start).to_bytes(8, "little")


def run_target(
    seed: int, target: Target, cases: range, folder: Path, end: float
) -> Iterator[tuple[str, int, str, str]]:
    """Yield the faults of mutants that a child process reads: target, mutant, place and text."""
    report, now = folder / "report.jsonl", mmap(-1, 16)
    report.write_text("")
    child = os.fork()
    if not child:
        code = 1
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            _read_run(seed, target, cases, report, now, end)
            code = 0
        finally:
            os._exit(code)
    last, since, status = b"", time.monotonic(), 0
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if now[:8] != last:
            last, since = now[:8], time.monotonic()
        if time.monotonic() - since > _MOST_SECONDS + _GRACE_SECONDS:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    status = os.waitstatus_to_exitcode(ended[1])
    yield from (tuple(json.loads(line)) for line in report.read_text().splitlines())
    if status:
        what = "no end" if status == -signal.SIGKILL else f"the process ended with {status}"
        yield target.name, int.from_bytes(now[:8], "little"), f"process {what}", what
    now.close()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", default="")
    parser.add_argument("--case", type=int)
    parser.add_argument("--keep", type=Path, help="folder for the files of the mutant")
    options = parser.parse_args(arguments)
    targets = [target for target in all_targets() if options.target in ("", target.name)]
    if options.case is not None:
        return _repeat(options, targets[0])
    import_parsers()
    end, faults, read, round_ = time.monotonic() + options.seconds, dict[str, Any](), Counter[str](), 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        while time.monotonic() < end:
            for target in targets:
                cases = range(round_ * _CASES, (round_ + 1) * _CASES)
                while cases and time.monotonic() < end:
                    last = cases.stop - 1
                    for name, case, place, text in run_target(options.seed, target, cases, Path(folder), end):
                        faults.setdefault(f"{name} {place}", []).append((case, text))
                        last = case if place.startswith("process") else last
                    read[target.name] += last + 1 - cases.start
                    cases = range(last + 1, cases.stop)
            round_ += 1
    for kind, found in faults.items():
        case, text = found[0]
        target = kind.partition(" ")[0]
        print(f"\n{kind} ({len(found)} of {read[target]:,} mutants)\n  {text}")
        print(f"  python -m tests.fuzz --seed {options.seed} --target {target} --case {case}")
    print(
        f"{sum(read.values()):,} mutants of {len(targets)} targets, seed {options.seed}: {len(faults)} kinds of faults"
    )
    return 1 if faults else 0


def _repeat(options: argparse.Namespace, target: Target) -> int:
    """Read one mutant, with its traceback."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        files, rng = mutant(options.seed, target, options.case)
        write_files(folder, files)
        for name, data in files.items():
            if data != target.files[name]:
                print(f"{name} ({len(data):,} bytes): {data[:2000]!r}")
        try:
            target.read(folder, rng)
        except OUTCOMES as error:
            print(f"{type(error).__name__}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
