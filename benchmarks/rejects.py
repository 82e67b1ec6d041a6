"""What it costs to list rejects, many of them.

    python benchmarks/rejects.py [--rejects 1000000] [--sources 4] [--random] [--dry-run]

Draws so many rejects of annotations in a pipeline, gathers them as a job does, and writes the list, in one process:
seconds of processor and of the clock, the process's peak memory, and what the compressed runs are a reject. --random
gives ids in no order, so that every run has some of everywhere. --dry-run gathers them as a dry run does, and adds
their tallies up instead of writing the list.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsIter
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from recordmill.launch.runners import garbage
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.rejects.gather_rejects import GatherRejects
from recordmill.transforms.rejects.reject_blocks import line_of
from recordmill.transforms.rejects.write_rejects import SplitRuns, add_tallies, rejects_path, write_rejects
from recordmill.transforms.runtime.line_blocks import packed_lines
from recordmill.transforms.runtime.outputs import of_split

_PRIME = 1_000_000_007


def draw(source: int, sources: int, number: int, is_random: bool) -> Iterator[Rejected]:
    for index in range(source, number, sources):
        id_ = index * 611_953 % _PRIME if is_random else index
        detail = f"box x {id_ % 640}.5, y {id_ % 481}.25, 0x{id_ % 77} in an image of 640x480"
        yield Rejected("annotation", id_, Reason.EMPTY_BOX if id_ % 7 else Reason.MALFORMED_BOX, detail, id_ // 7)


def write(output: str, rejected: SplitRuns) -> None:
    runs = list(rejected)
    packed = sum(len(packed_lines(block)) for _, run in runs for block in run.blocks)
    started = time.process_time()
    found = write_rejects(output, ["train"], runs)["train"]
    number = sum(found.tally.counts.values())
    print(
        f"{number:,} rejects in {len(runs):,} runs, {packed / number:.1f} B each; "
        f"list of {os.path.getsize(rejects_path(output, 'train')) / 1e6:,.0f} MB written in "
        f"{time.process_time() - started:.1f} s of processor; sha256 {found.sha256[:12]}"
    )


def tally(output: str, rejected: SplitRuns) -> None:
    tallies = [run.tally for _, run in rejected]
    found = add_tallies(tallies)
    print(
        f"{found.reasons('annotation')} in {len(tallies):,} tallies; the first: {line_of(found.first['annotation'])!r}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rejects", type=int, default=1_000_000)
    parser.add_argument("--sources", type=int, default=4, help="steps that they come from")
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    garbage.put_off()  # as a job does
    garbage.look()
    before, started = time.process_time(), time.monotonic()
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as output:
        with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
            parts = tuple(
                p
                | f"Source{source}" >> beam.Create([source])
                | f"Draw{source}" >> beam.FlatMap(draw, args.sources, args.rejects, args.random)
                | f"OfSplit{source}" >> of_split("train")
                for source in range(args.sources)
            )
            runs = parts | GatherRejects("" if args.dry_run else output)
            _ = p | "Once" >> beam.Create([output]) | "List" >> beam.Map(tally if args.dry_run else write, AsIter(runs))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"{time.process_time() - before:.1f} s of processor, {time.monotonic() - started:.1f} s of the clock, "
            f"{peak / 1024:,.0f} MB at the most, of which {base / 1024:,.0f} MB at the start"
        )


if __name__ == "__main__":
    main()
