"""Files that `--rows` matches."""

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.tables import ENDINGS, rows_format
from recordmill.transforms.storage.resolve import match_files


def find_rows(*patterns: str) -> tuple[str, ...]:
    """Return the files that match, sorted. A path without wild cards matches itself.

    Raises:
        ConfigError: a pattern matches nothing.
    """
    try:
        return tuple(sorted(path for pattern in patterns for path in match_files(pattern)))
    except ConfigError as error:
        raise ConfigError(f"--rows {error}") from error


def format_fault(path: str) -> str:
    """Return why a file cannot be read as rows; empty if it can."""
    known = ", ".join(ENDINGS)
    return (
        "" if rows_format(path) else f"--rows {path}: its name ends in none of {known}, perhaps with .gz, .bz2 or .zst"
    )
