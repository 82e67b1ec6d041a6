"""Extras of the distribution, installed or not."""

from importlib.util import find_spec

from recordmill.schemas.errors import ConfigError


def require_beam(verb: str) -> None:
    """Find Beam, without importing it, which takes seconds.

    Raises:
        ConfigError: it is not installed.
    """
    if find_spec("apache_beam") is None:
        raise missing_extra(f"{verb} runs a pipeline of Apache Beam", "beam")


def missing_extra(purpose: str, extra: str) -> ConfigError:
    """What to say where an extra is needed, `verify decodes images with TensorFlow`, and not there."""
    return ConfigError(f"{purpose}, which is not installed: pip install 'recordmill[{extra}]'")
