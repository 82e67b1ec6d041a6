"""Data sets of pictures and labels become sharded TFRecord files of tf.Example; here is what reads them back.

    from recordmill import dataset

    for example in dataset("out", split="train"):
        example["image"], example["boxes"], example["labels"]

Importing this package imports neither Beam nor TensorFlow: each name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recordmill.schemas.errors import ConfigError, JobError, RecordmillError
    from recordmill.schemas.features import FeatureTable, parse_spec
    from recordmill.schemas.layouts import LAYOUTS
    from recordmill.schemas.manifest import Manifest, decode_manifest
    from recordmill.tensorflow_dataset import dataset, parse_record
    from recordmill.text_encoders import encoders

__all__ = [
    "LAYOUTS",
    "ConfigError",
    "FeatureTable",
    "JobError",
    "Manifest",
    "RecordmillError",
    "__version__",
    "dataset",
    "decode_manifest",
    "encoders",
    "parse_record",
    "parse_spec",
]

_HOMES = {
    "LAYOUTS": "schemas.layouts",
    "ConfigError": "schemas.errors",
    "FeatureTable": "schemas.features",
    "JobError": "schemas.errors",
    "Manifest": "schemas.manifest",
    "RecordmillError": "schemas.errors",
    "dataset": "tensorflow_dataset",
    "decode_manifest": "schemas.manifest",
    "encoders": "text_encoders",
    "parse_record": "tensorflow_dataset",
    "parse_spec": "schemas.features",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("recordmill")
    if name not in _HOMES:
        raise AttributeError(f"module 'recordmill' has no attribute {name!r}")
    return getattr(import_module(f"recordmill.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
