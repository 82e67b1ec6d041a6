"""Measure the list of many rejects.

    python benchmarks/rejects.py [--rejects 1000000] [--sources 4] [--random]

Draws rejects of annotations in a pipeline, gathers them as a job does, and writes the list, in one process. Prints
seconds of processor and of the clock, the process's peak memory, and the bytes of a reject between steps. --random
gives ids in no order.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Iterable

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsIter
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.dataset.facts import AddFacts, Facts, FactsBuilder
from recordmill.transforms.dataset.rejects import RejectKind, Rejects, rejects_path, write_rejects

_PRIME = 1_000_000_007


def draw(source: int, sources: int, number: int, is_random: bool) -> Facts:
    facts = FactsBuilder()
    for index in range(source, number, sources):
        id_ = index * 611_953 % _PRIME if is_random else index
        detail = f"box x {id_ % 640}.5, y {id_ % 481}.25, 0x{id_ % 77} in an image of 640x480"
        reason = Reason.EMPTY_BOX if id_ % 7 else Reason.MALFORMED_BOX
        facts.reject("train", Rejected("annotation", id_, reason, detail, id_ // 7))
    return facts.build()


def write(output: str, lists: Iterable[tuple[RejectKind, Rejects]]) -> None:
    kinds = list(lists)
    packed = sum(len(rejects.packed) for _, rejects in kinds)
    started = time.process_time()
    found = write_rejects(output, ["train"], kinds)["train"]
    with open(rejects_path(output, "train"), "rb") as file:
        lines = sum(1 for _ in file)
    print(
        f"{lines:,} of {sum(found.tally.counts.values()):,} rejects listed, {packed / lines:.1f} B each between steps; "
        f"list of {os.path.getsize(rejects_path(output, 'train')) / 1e6:,.0f} MB written in "
        f"{time.process_time() - started:.1f} s of processor; sha256 {found.sha256[:12]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rejects", type=int, default=1_000_000)
    parser.add_argument("--sources", type=int, default=4, help="steps that they come from")
    parser.add_argument("--random", action="store_true")
    args = parser.parse_args()
    before, started = time.process_time(), time.monotonic()
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as output:
        with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
            parts = tuple(
                p
                | f"Source{source}" >> beam.Create([source])
                | f"Draw{source}" >> beam.Map(draw, args.sources, args.rejects, args.random)
                for source in range(args.sources)
            )
            _ = p | "Once" >> beam.Create([output]) | "List" >> beam.Map(write, AsIter((parts | AddFacts()).lists))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"{time.process_time() - before:.1f} s of processor, {time.monotonic() - started:.1f} s of the clock, "
            f"{peak / 1024:,.0f} MB at the most, of which {base / 1024:,.0f} MB at the start"
        )


if __name__ == "__main__":
    main()
