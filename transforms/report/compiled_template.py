"""The page's template, compiled once for all jobs: that takes as long as drawing thirty pictures.

It lies where Python keeps what it compiles of our modules, and where Python may not write that, it is compiled anew.
"""

import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket, FileSystemBytecodeCache


class CompiledTemplate(FileSystemBytecodeCache):
    """What jinja2 compiles, found by name, text and jinja2's version."""

    def __init__(self) -> None:
        folder = Path(cache_from_source(__file__)).parent
        super().__init__(str(folder), f"template-{jinja2.__version__}-%s.cache")

    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            super().load_bytecode(bucket)
        except Exception:  # of a file that was cut short: pickle raises nearly anything
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                super().dump_bytecode(bucket)
