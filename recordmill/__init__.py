"""Convert image data sets to sharded TFRecord files of tf.Example, and read them.

    import recordmill

    data = recordmill.open("out")
    data["train"][17]["boxes"]  # a record as numpy arrays
    data["train"].tensorflow(batch=32, resize=(224, 224), shuffle=True)

Importing this package imports neither Beam nor TensorFlow: names are loaded at their first use.
"""

from typing import TYPE_CHECKING

__all__ = [
    "LAYOUTS",
    "ConfigError",
    "DataSet",
    "FeatureTable",
    "GlobalOrder",
    "JobError",
    "Manifest",
    "RecordError",
    "RecordmillError",
    "Split",
    "__version__",
    "collate",
    "convert",
    "decode_manifest",
    "encoders",
    "open",
    "parse_spec",
]

_NAMES = {
    "_collate": ("collate",),
    "_convert": ("convert",),
    "_data_set": ("DataSet", "Split", "open"),
    "_global_order": ("GlobalOrder",),
    "schemas.dataset.manifest": ("Manifest", "decode_manifest"),
    "schemas.errors": ("ConfigError", "JobError", "RecordError", "RecordmillError"),
    "schemas.features": ("FeatureTable", "parse_spec"),
    "schemas.layouts": ("LAYOUTS",),
    "_text_encoders": ("encoders",),
}
"""Public names by module."""
_MODULES = {"beam", "formats"}
"""Public modules. Users import them, because they need an extra."""

if TYPE_CHECKING:
    from recordmill._collate import collate
    from recordmill._convert import convert
    from recordmill._data_set import DataSet, Split, open
    from recordmill._global_order import GlobalOrder
    from recordmill._text_encoders import encoders
    from recordmill.schemas.dataset.manifest import Manifest, decode_manifest
    from recordmill.schemas.errors import ConfigError, JobError, RecordError, RecordmillError
    from recordmill.schemas.features import FeatureTable, parse_spec
    from recordmill.schemas.layouts import LAYOUTS

    __version__: str
else:  # so that type checkers report an unknown name

    def __getattr__(name):
        if name == "__version__":
            from importlib.metadata import version

            return version("recordmill")
        for module, names in _NAMES.items():
            if name in names:
                from importlib import import_module

                return getattr(import_module(f"recordmill.{module}"), name)
        raise AttributeError(f"module 'recordmill' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(_MODULES & globals().keys())])
