"""Parts of a format of another package. See docs/formats_of_your_own.md.

A package registers a format by an entry point of the group `recordmill.formats`, `NAME = package.module`. The module
has `Options`, which is FormatOptions, NamingOptions or a class of them, and `source(options)`, which returns a Source.
`recordmill convert --format NAME`, `recordmill.convert` and `recordmill.beam.ReadDataset` then read the format.

Importing this module imports neither Beam nor NumPy: names are loaded at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recordmill.schemas.inputs.annotations import Category
    from recordmill.schemas.inputs.option import READ, redefine_option
    from recordmill.schemas.inputs.sample import Sample, SampleObject
    from recordmill.schemas.rejects import Reason, UnusableError
    from recordmill.transforms.annotated.format_options import FormatOptions, NamingOptions
    from recordmill.transforms.annotated.naming import (
        decode_part,
        find_labels,
        naming_source,
        read_label_json,
        resolve_image_name,
    )
    from recordmill.transforms.annotated.source import (
        ImageParts,
        LabelFault,
        LabelledImage,
        Source,
        SourceFolder,
        SplitList,
        parser,
        unusable_image,
    )

__all__ = [
    "READ",
    "Category",
    "FormatOptions",
    "ImageParts",
    "LabelFault",
    "LabelledImage",
    "NamingOptions",
    "Reason",
    "Sample",
    "SampleObject",
    "Source",
    "SourceFolder",
    "SplitList",
    "UnusableError",
    "decode_part",
    "find_labels",
    "naming_source",
    "parser",
    "read_label_json",
    "redefine_option",
    "resolve_image_name",
    "unusable_image",
]

_NAMES = {
    "schemas.inputs.annotations": ("Category",),
    "schemas.inputs.option": ("READ", "redefine_option"),
    "schemas.inputs.sample": ("Sample", "SampleObject"),
    "schemas.rejects": ("Reason", "UnusableError"),
    "transforms.annotated.format_options": ("FormatOptions", "NamingOptions"),
    "transforms.annotated.naming": (
        "decode_part",
        "find_labels",
        "naming_source",
        "read_label_json",
        "resolve_image_name",
    ),
    "transforms.annotated.source": (
        "ImageParts",
        "LabelFault",
        "LabelledImage",
        "Source",
        "SourceFolder",
        "SplitList",
        "parser",
        "unusable_image",
    ),
}
"""Public names by module."""


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"recordmill.{module}"), name)
    raise AttributeError(f"module 'recordmill.formats' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
