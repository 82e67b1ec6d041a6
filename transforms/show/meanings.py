"""What the integers in records stand for."""

from collections.abc import Sequence

from recordmill.schemas.encoders import TextForm, decode_encoder
from recordmill.schemas.features import CLASS_OF_ROW, FeatureTable
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.storage.resolve import storage_for

_OF_CLASSES = ("objects.class_index", "image.class_index")
_PADDING = ("(padding)", "(unknown)")
"""The token ids before those of terms."""


def meanings(table: FeatureTable, labels: LabelMap) -> dict[str, Sequence[str]]:
    """Names of classes, of panoptic segments, and of enums, by the feature that has their numbers."""
    names = tuple(category.name for category in labels.categories)
    found: dict[str, Sequence[str]] = {}
    for feature in table.features:
        if feature.source in _OF_CLASSES or feature.source.startswith(CLASS_OF_ROW):
            found[feature.name] = names
        elif feature.source == "segments.class_index":
            found[feature.name] = tuple(category.name for category in labels.segments)
        elif feature.values:
            found[feature.name] = feature.values
    return found


def terms(folder: str, manifest: Manifest) -> dict[str, Sequence[str]]:
    """The terms of texts that were encoded, by the feature that has their indices, or token ids.

    Raises:
        ConfigError: an encoder's file is gone, or none.
    """
    storage = storage_for(folder)
    found: dict[str, Sequence[str]] = {}
    for info in manifest.encoders:
        path = storage.join(folder, info.file)
        if storage.size(path) is None:
            continue  # the numbers are still shown; verify says that it is gone
        vocabulary = decode_encoder(storage.read(path), path).vocabulary
        is_tokens = info.form is TextForm.TOKENS
        source = f"{info.column}.{'tokens' if is_tokens else 'index'}"
        for feature in manifest.table.features:
            if feature.source == source:
                found[feature.name] = (*_PADDING, *vocabulary) if is_tokens else vocabulary
    return found
