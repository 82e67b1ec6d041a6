import msgspec
import pytest
import yaml

from recordmill.schemas.dataset.manifest import Manifest, manifest_of
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.containers.dataset_card import (
    IMAGE,
    class_label,
    dataset_card,
    keep_edits,
    sequence,
    shard_patterns,
    value,
)

AWKWARD = ["<script>", "a: b", "two\nlines", "cat 😀", "---", "yes", "# x", "'q\"", "猫"]
AWKWARD += ["x\u2028---\u2028y", "\n---\n"]
FEATURES = {
    "image": IMAGE,
    "label": class_label(AWKWARD),
    'a: "b"\n': value("int64"),
    "objects": {"bbox": sequence(sequence(value("float64"), 4)), 'x y\\"': sequence(value("string"))},
}


def make_manifest(*splits: str) -> Manifest:
    manifest = manifest_of("coco", LabelMap(()), DETECTION.with_parts((Part.SEMANTIC,)), {})
    return msgspec.structs.replace(manifest, splits={split: _Split(split) for split in splits})


class _Split:
    """The fields of a SplitManifest that the card has."""

    def __init__(self, name: str):
        self.shards = [ShardInfo(f"coco-{name}-0000{i}-of-00002.parquet", 3, 50, "", f"{i}" * 64) for i in range(2)]
        self.record_bytes, self.bytes, self.examples = 90, 100, 6
        self.replaced_shards = ()


def read_yaml(card: bytes) -> dict:
    """YAML of a card as the Hub splits it: up to the next line ---."""
    lines = card.decode().splitlines()
    assert lines[0] == "---"
    return yaml.safe_load("\n".join(lines[1 : lines.index("---", 1)]))


def test_card_has_splits_sizes_and_features():
    head = read_yaml(dataset_card(make_manifest("train", "train_b"), FEATURES))
    assert head["configs"] == [
        {
            "config_name": "default",
            "data_files": [
                {"split": "train", "path": "coco-train-?????-of-?????.parquet"},
                {"split": "train_b", "path": "coco-train_b-?????-of-?????.parquet"},
            ],
        }
    ]
    info = head["dataset_info"]
    assert info["splits"][0] == {"name": "train", "num_bytes": 90, "num_examples": 6}
    assert (info["download_size"], info["dataset_size"]) == (200, 180)
    assert info["features"] == [
        {"name": "image", "dtype": "image"},
        {"name": "label", "dtype": {"class_label": {"names": {str(i): name for i, name in enumerate(AWKWARD)}}}},
        {"name": 'a: "b"\n', "dtype": "int64"},
        {
            "name": "objects",
            "struct": [
                {"name": "bbox", "sequence": {"sequence": "float64", "length": 4}},
                {"name": 'x y\\"', "sequence": "string"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("coco-train-00000-of-00002.parquet", "coco-train-?????-of-?????.parquet"),
        ("coco-train-000000.tar", "coco-train-??????.tar"),
    ],
)
def test_pattern_matches_one_split(file, pattern):
    split = _Split("train")
    split.shards = [ShardInfo(file, 1, 1, "", "")]
    assert shard_patterns("coco", "train", split) == pattern
    split.replaced_shards = ("coco-train-old",)  # matched by the pattern, too
    assert shard_patterns("coco", "train", split) == [file]


TEXT = b"\n# Mine \xff\r\n---\nx"


@pytest.mark.parametrize(
    ("stored", "keys", "text"),
    [
        (b"---\nlicense: mit\n---\n" + TEXT, {"license": "mit"}, TEXT),
        (b"---\r\nlicense: mit\r\n---\r\n" + TEXT, {"license": "mit"}, TEXT),
        (b"---\nconfigs: old\n---\n" + TEXT, {}, TEXT),
        (b"---\n---\n" + TEXT, {}, TEXT),
        (b"# Mine", {}, b"# Mine"),
        (b"---\na: [\n---\nx", {}, b"---\na: [\n---\nx"),
        (b"---\nx", {}, b"---\nx"),
        (b"", {}, b""),
    ],
)
def test_a_users_text_and_keys_are_kept(stored, keys, text):
    card = dataset_card(make_manifest("train"), FEATURES)
    kept = keep_edits(card, stored)
    assert kept.endswith(b"\n---\n" + text)
    assert read_yaml(kept[: len(kept) - len(text)]) == keys | read_yaml(card)
    assert keep_edits(card, kept) == kept


def test_a_card_without_edits_and_with_ours_changed():
    card = dataset_card(make_manifest("train"), FEATURES)
    assert keep_edits(card, None) == card
    assert keep_edits(card, card) == card
    assert keep_edits(card, card.replace(b"num_examples: 6", b"num_examples: 7")) == card
