"""Convert image data sets to sharded TFRecord files of tf.Example, and read them.

    import recordmill

    data = recordmill.open("out")
    data["train"][17]["boxes"]  # a record as numpy arrays
    data["train"].tensorflow(batch=32, resize=(224, 224), shuffle=True)

Importing this package imports neither Beam nor TensorFlow: names are loaded at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recordmill._conversion import convert
    from recordmill._data_set import DataSet, Split, open
    from recordmill._global_order import GlobalOrder
    from recordmill._text_encoders import encoders
    from recordmill.schemas.dataset.manifest import Manifest, decode_manifest
    from recordmill.schemas.errors import ConfigError, JobError, RecordmillError
    from recordmill.schemas.features import FeatureTable, parse_spec
    from recordmill.schemas.layouts import LAYOUTS

__all__ = [
    "LAYOUTS",
    "ConfigError",
    "DataSet",
    "FeatureTable",
    "GlobalOrder",
    "JobError",
    "Manifest",
    "RecordmillError",
    "Split",
    "__version__",
    "convert",
    "decode_manifest",
    "encoders",
    "open",
    "parse_spec",
]

_NAMES = {
    "_conversion": ("convert",),
    "_data_set": ("DataSet", "Split", "open"),
    "_global_order": ("GlobalOrder",),
    "schemas.dataset.manifest": ("Manifest", "decode_manifest"),
    "schemas.errors": ("ConfigError", "JobError", "RecordmillError"),
    "schemas.features": ("FeatureTable", "parse_spec"),
    "schemas.layouts": ("LAYOUTS",),
    "_text_encoders": ("encoders",),
}
"""Public names by module."""
_MODULES = {"beam"}
"""Public modules. Users import them, because they need an extra."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("recordmill")
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"recordmill.{module}"), name)
    raise AttributeError(f"module 'recordmill' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(_MODULES & globals().keys())])
