"""Limits of a split's images, see docs/shape.md."""

from typing import NamedTuple


class Limits(NamedTuple):
    """Values of `--limit` and `--max-per-class`; None for no limit."""

    images: int | None = None
    per_class: int | None = None
