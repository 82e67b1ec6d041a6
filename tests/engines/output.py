"""Contents of a data set's folder, to compare."""

import hashlib
import json
from collections import Counter
from pathlib import Path

from tests.conftest import manifest_of


def files_of(output: Path) -> dict[str, str]:
    """SHA-256 of each file by name, of hidden ones, too; `/` for folders."""
    return {
        str(path.relative_to(output)): "/" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(output.rglob("*"))
    }


def records_of(output: Path) -> Counter[bytes]:
    """Records of all shards as TensorFlow reads them, independent of their shard."""
    import tensorflow as tf

    shards = sorted(map(str, output.glob("*.tfrecord-*")))
    return Counter(tf.data.TFRecordDataset(shards).as_numpy_iterator())


def without_shards(output: Path) -> dict[str, object]:
    """All but the shards, and the page that shows their sizes: other files by name, as digests; and those that tell how
    many records each shard has as documents, without that."""
    manifest = manifest_of(output)
    for split in manifest["splits"].values():
        del split["shards"]
    for_tfds = json.loads((output / "dataset_info.json").read_text())
    for split in for_tfds["splits"]:
        assert sum(map(int, split.pop("shardLengths"))) == records_of(output).total()
    del manifest["sha256"]
    differ = {"report.html", *(f"manifest-{name}.json" for name in manifest["splits"])}
    others = {name: of for name, of in files_of(output).items() if ".tfrecord-" not in name and name not in differ}
    return others | {"manifest.json": manifest, "dataset_info.json": for_tfds}
