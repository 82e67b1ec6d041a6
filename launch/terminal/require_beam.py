"""Beam, installed or not."""

from importlib.util import find_spec

from recordmill.schemas.errors import missing_extra


def require_beam(verb: str) -> None:
    """Find Beam, without importing it, which takes seconds.

    Raises:
        ConfigError: it is not installed.
    """
    if find_spec("apache_beam") is None:
        raise missing_extra(verb, "beam")
