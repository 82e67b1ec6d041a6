"""What a job in this process pickles for itself is not compressed.

Beam pickles the functions of each step and unpickles them where the step runs, 370 and 570 times a job, and has bz2
compress each: 0.1 s, a twelfth of a job of ten images.
"""

import bz2
from typing import Any

from apache_beam.internal import cloudpickle_pickler
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.launch.runners import own_process
from recordmill.launch.runners.beam_options import local_mode

_MAGIC = b"BZh"
"""With which nothing begins that was pickled."""


def install(options: PipelineOptions) -> None:
    """For all jobs of this process, if it is for this one alone: no other process reads what it pickles."""
    if own_process.is_own() and local_mode(options) == "in_memory":
        pickler: Any = cloudpickle_pickler
        pickler.bz2 = _Uncompressed


class _Uncompressed:
    """Stands for the module bz2."""

    @staticmethod
    def compress(data: bytes, compresslevel: int = 9) -> bytes:
        return data

    @staticmethod
    def decompress(data: bytes) -> bytes:
        return bz2.decompress(data) if data.startswith(_MAGIC) else data
