"""The manifest of a data set folder."""

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.manifest import MANIFEST, Manifest, decode_manifest
from recordmill.transforms.storage.resolve import storage_for


def read_manifest(output: str) -> Manifest | None:
    """The manifest of a data set folder; None where it has none.

    Raises:
        ConfigError: see `recordmill.schemas.manifest.decode_manifest`.
    """
    storage = storage_for(output)
    path = storage.join(output, MANIFEST)
    if storage.size(path) is None:
        return None
    try:
        data = storage.read(path)
    except FileNotFoundError:  # another run may just have deleted it
        return None
    return decode_manifest(data, path)


def require_manifest(output: str) -> Manifest:
    """The manifest of a complete data set.

    Raises:
        ConfigError: it has none, or see `read_manifest`.
    """
    manifest = read_manifest(output)
    if manifest is None:
        raise ConfigError(
            f"{output} has no {MANIFEST}: it is no Recordmill data set, or one that was not finished (run it again)"
        )
    return manifest
