"""What a data set's folder holds, to compare."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import tensorflow as tf

from tests.conftest import manifest_of


def files_of(output: Path) -> dict[str, str]:
    """SHA-256 of each file by name, of hidden ones, too; `/` for folders."""
    return {
        str(path.relative_to(output)): "/" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(output.rglob("*"))
    }


def records_of(output: Path) -> Counter[bytes]:
    """The records of all shards, as TensorFlow reads them, whatever shard they are in."""
    shards = sorted(map(str, output.glob("*.tfrecord-*")))
    return Counter(tf.data.TFRecordDataset(shards).as_numpy_iterator())


def without_shards(output: Path) -> dict[str, object]:
    """All but the shards, and the page that shows their sizes: other files by name, as digests; and those that tell how
    many records each shard has, or where a record is, as documents, without that."""
    manifest = manifest_of(output)
    for split in manifest["splits"].values():
        del split["shards"], split["statistics_sha256"], split["fingerprints_sha256"]
    for_tfds = json.loads((output / "dataset_info.json").read_text())
    for split in for_tfds["splits"]:
        assert sum(map(int, split.pop("shardLengths"))) == records_of(output).total()
    del manifest["sha256"]
    statistics = json.loads((output / "statistics.json").read_text())
    for split in statistics["splits"].values():
        del split["examples"]
    of_splits = {f"{what}-{name}.json" for name in manifest["splits"] for what in ("manifest", "statistics")}
    of_splits |= {"report.html", *(f"fingerprints-{name}.jsonl" for name in manifest["splits"])}
    files = files_of(output).items()
    others = {name: digest for name, digest in files if ".tfrecord-" not in name and name not in of_splits}
    return others | {"manifest.json": manifest, "dataset_info.json": for_tfds, "statistics.json": statistics}
