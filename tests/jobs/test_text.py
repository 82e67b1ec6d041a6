"""`--caption-text`: the encoders of a data set with several splits."""

import json
from pathlib import Path

import recordmill as package
from recordmill.transforms.sample.write_sample import SampleFiles
from tests.conftest import manifest_of, read_examples


def flags(files: SampleFiles, output: Path, *more: object) -> list[str]:
    inputs = ["--images", files.images, "--captions", files.captions, "--max-rejects", 0.2]
    return ["convert", *map(str, inputs), "--output", str(output), *map(str, more)]


def test_further_split_keeps_vocabulary(sample, tmp_path, recordmill):
    """The same command finds the split complete, and learns no vocabulary."""
    folder = tmp_path / "out"
    tfidf = ["--caption-text", "tfidf", "--ngrams", "1,2"]
    assert recordmill(*flags(sample, folder, *tfidf, "--num-shards", 2)).code == 0
    learned = (folder / "encoders/captions.json").read_bytes()
    rows = json.loads(Path(sample.captions).read_text())
    for number, row in enumerate(rows["annotations"]):
        row["caption"] = "a zebra and a yak" if number % 2 else row["caption"]
    other = sample._replace(captions=str(tmp_path / "val.json"))
    Path(other.captions).write_text(json.dumps(rows))
    more = [*tfidf, "--split", "val"]
    assert recordmill(*flags(other, folder, *more)).code == 0
    counts = manifest_of(folder)["splits"]["val"]["texts"]["captions"]
    # zebra, yak, and the pairs "and yak", "zebra and" and those that the caption before it makes; "and" is known
    assert counts["unknown"] >= 4 * counts["texts"]
    assert (folder / "encoders/captions.json").read_bytes() == learned
    vocabulary = package.encoders(str(folder))["captions"].vocabulary
    assert "zebra" not in vocabulary
    assert all(max(example["captions/index"]) < len(vocabulary) for example in read_examples(folder, "val"))
    assert recordmill(*flags(other, folder, *more)).code == 0
    assert recordmill("verify", folder).code == 0
    assert recordmill(*flags(other, folder, *more, "--text-features", 9, "--overwrite")).code == 2
