"""The page's template, compiled once for all jobs: that takes as long as drawing thirty pictures.

It lies where Python keeps what it compiles of our modules, and where Python may not write that, it is compiled anew.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket, FileSystemBytecodeCache


class CompiledTemplate(FileSystemBytecodeCache):
    """What jinja2 compiles, found by name, text, jinja2's version and the options of the environment, on which the
    code depends: without `autoescape` it escapes nothing."""

    def __init__(self, options: Mapping[str, object]) -> None:
        folder = Path(cache_from_source(__file__)).parent
        of_options = sha256(repr(sorted(options.items())).encode()).hexdigest()[:16]
        super().__init__(str(folder), f"template-{jinja2.__version__}-{of_options}-%s.cache")

    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            super().load_bytecode(bucket)
        except Exception:  # of a file that was cut short: pickle raises nearly anything
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                super().dump_bytecode(bucket)
