"""Captions as numbers, from the command to what a training loop reads; held against scikit-learn."""

import json
import shutil
from pathlib import Path

import pytest

import recordmill as package
from recordmill.transforms.sample.write_sample import SampleFiles
from tests.conftest import manifest_of, read_examples


def flags(files: SampleFiles, output: Path, *more: object) -> list[str]:
    inputs = ["--images", files.images, "--captions", files.captions, "--max-rejects", 0.2]
    return ["coco", *map(str, inputs), "--output", str(output), *map(str, more)]


@pytest.fixture(scope="module")
def train(sample, tmp_path_factory) -> Path:
    """Captions as tf-idf of words and pairs of them."""
    from recordmill.launch.cli import main

    output = tmp_path_factory.mktemp("train") / "out"
    more = ["--caption-text", "tfidf", "--ngrams", "1,2", "--num-shards", "2"]
    assert main([*flags(sample, output), *more]) == 0
    return output


def test_a_further_split_has_the_same_vocabulary_and_what_it_lacks_is_told(sample, train, tmp_path, recordmill):
    """The same command again finds all done; the vocabulary is not learned anew."""
    folder = tmp_path / "out"
    shutil.copytree(train, folder)
    rows = json.loads(Path(sample.captions).read_text())
    for number, row in enumerate(rows["annotations"]):
        row["caption"] = "a zebra and a yak" if number % 2 else row["caption"]
    other = sample._replace(captions=str(tmp_path / "val.json"))
    Path(other.captions).write_text(json.dumps(rows))
    more = ["--caption-text", "tfidf", "--ngrams", "1,2", "--split", "val"]
    done = recordmill(*flags(other, folder, *more))
    assert done.code == 0, done
    counts = manifest_of(folder)["splits"]["val"]["texts"]["captions"]
    # zebra, yak, and the pairs "and yak", "zebra and" and those that the caption before it makes; "and" is known
    assert counts["unknown"] >= 4 * counts["texts"]
    assert (folder / "encoders/captions.json").read_bytes() == (train / "encoders/captions.json").read_bytes()
    vocabulary = package.encoders(str(folder))["captions"].vocabulary
    assert "zebra" not in vocabulary
    assert all(max(example["captions/index"]) < len(vocabulary) for example in read_examples(folder, "val"))
    assert recordmill(*flags(other, folder, *more)).code == 0
    assert recordmill("verify", folder).code == 0
    assert recordmill(*flags(other, folder, *more, "--text-features", 9, "--overwrite")).code == 2
