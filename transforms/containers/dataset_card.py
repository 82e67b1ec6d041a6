"""README.md with a dataset card for Hugging Face, from the manifest.

With the card's YAML, `datasets.load_dataset(folder)` has splits, features and class names without a script.
https://huggingface.co/docs/hub/datasets-manual-configuration
"""

import re
from collections.abc import Mapping
from glob import escape
from typing import Any

import yaml

from recordmill.schemas.dataset.manifest import Manifest, SplitManifest

CARD = "README.md"
_FENCE = "---\n"
_TEXT = """
# {name}

Written by Recordmill from its manifest.json. Text below the YAML is yours: it is kept when the card is written again.
"""

HubFeature = Mapping[str, Any]
"""Feature of Hugging Face's datasets as JSON: `{"_type": "Value", "dtype": "int64"}`, or a mapping of features."""


def value(dtype: str) -> HubFeature:
    """Return a feature of single values."""
    return {"dtype": dtype, "_type": "Value"}


def sequence(feature: HubFeature, length: int = -1) -> HubFeature:
    """Return a feature of lists, in the form that versions 2 to 5 of datasets read.

    Args:
        length: Number of values of each list; -1 if it varies.
    """
    return {"feature": feature, "_type": "Sequence"} | ({"length": length} if length >= 0 else {})


def list_of(feature: HubFeature) -> HubFeature:
    """Return a feature of lists of mappings. Those of `sequence` would become a mapping of lists."""
    return {"feature": feature, "_type": "List"}


def class_label(names: list[str]) -> HubFeature:
    """Return a feature of class indices."""
    return {"names": names, "_type": "ClassLabel"}


IMAGE: HubFeature = {"_type": "Image"}


def dataset_card(manifest: Manifest, features: Mapping[str, HubFeature]) -> bytes:
    """Return README.md without a user's text.

    Args:
        features: Features of a sample by name; empty to have readers infer them.
    """
    return _encode_card(_card_head(manifest, features), _TEXT.format(name=manifest.name))


def keep_edits(card: bytes, stored: bytes | None) -> bytes:
    """Return a card with the text and the other keys of the stored one: the same bytes if it has the keys of `card`.

    Args:
        stored: README.md in the folder; None if there is none.
    """
    if stored is None:
        return card
    (head, text), (expected, _) = _split_card(stored), _split_card(card)
    return stored if head | expected == head else _encode_card(head | expected, text)


def _card_head(manifest: Manifest, features: Mapping[str, HubFeature]) -> dict[str, Any]:
    files = [
        {"split": name, "path": shard_patterns(manifest.name, name, split)} for name, split in manifest.splits.items()
    ]
    splits = [
        {"name": name, "num_bytes": split.record_bytes, "num_examples": split.examples}
        for name, split in manifest.splits.items()
    ]
    info = {"features": _yaml_list(features)} if features else {}
    sizes = {
        "download_size": sum(split.bytes for split in manifest.splits.values()),
        "dataset_size": sum(split.record_bytes for split in manifest.splits.values()),
    }
    config = {"config_name": "default", "data_files": files}
    return {"configs": [config], "dataset_info": {**info, "splits": splits, **sizes}}


def shard_patterns(name: str, split: str, entry: SplitManifest) -> str | list[str]:
    """Return the glob pattern of a split's shards, which matches no file of another split. While the folder has shards
    that the pattern matches and the manifest does not list, it is the list of the files."""
    if entry.replaced_shards:
        return [escape(shard.file) for shard in entry.shards]
    prefix = f"{name}-{split}"
    number = entry.shards[0].file.removeprefix(prefix)
    return escape(prefix) + re.sub("[0-9]", "?", number)


def _yaml_list(features: Mapping[str, HubFeature]) -> list[dict[str, Any]]:
    return [{"name": name, **_yaml_feature(feature)} for name, feature in features.items()]


def _yaml_feature(feature: HubFeature) -> dict[str, Any]:
    match feature.get("_type"):
        case "Value":
            return {"dtype": feature["dtype"]}
        case "Image":
            return {"dtype": "image"}
        case "ClassLabel":
            return {"dtype": {"class_label": {"names": {str(i): name for i, name in enumerate(feature["names"])}}}}
        case "Sequence":
            item = _yaml_feature(feature["feature"])
            length = {"length": feature["length"]} if "length" in feature else {}
            return {"sequence": item.get("dtype", item), **length}
        case "List":
            return {"list": _yaml_list(feature["feature"])}
    return {"struct": _yaml_list(feature)}


class _Dumper(yaml.SafeDumper):
    """Dumper of YAML that writes text that is not printable with escapes, on one line: it could end the YAML."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"'
    ),
)


def _encode_card(head: Mapping[str, Any], text: str) -> bytes:
    encoded = yaml.dump(dict(head), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20)
    return f"{_FENCE}{encoded}{_FENCE}{text}".encode(errors="surrogateescape")


def _split_card(card: bytes) -> tuple[dict[str, Any], str]:
    """Return YAML and text of a card. YAML that cannot be read is text."""
    text = card.decode(errors="surrogateescape")
    if match := re.match(r"---\r?\n(.*?\n)??---(?:\r?\n|$)", text, re.DOTALL):
        try:
            head = yaml.safe_load(match[1] or "")
        except (yaml.YAMLError, ValueError, RecursionError):
            return {}, text
        if isinstance(head, dict | None):
            return head or {}, text[match.end() :]
    return {}, text
