"""Captions as numbers, from the command to what a training loop reads; held against scikit-learn."""

import json
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

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


def texts(files: SampleFiles) -> dict[int, str]:
    """All captions of each image, by its id."""
    found = defaultdict(list)
    for row in sorted(json.loads(Path(files.captions).read_text())["annotations"], key=lambda row: row["id"]):
        found[row["image_id"]].append(row["caption"])
    return {image: "\n".join(captions) for image, captions in found.items()}


def test_records_have_the_columns_and_values_of_scikit_learn(sample, train):
    """It learns from all images that have a file, one of which turns out to be broken."""
    import tensorflow as tf

    by_image = texts(sample)
    images = {row["id"]: row for row in json.loads(Path(sample.captions).read_text())["images"]}
    found = {id_ for id_, row in images.items() if (Path(sample.images) / row["file_name"]).exists()}
    vectorizer = TfidfVectorizer(ngram_range=(1, 2)).fit([by_image[id_] for id_ in sorted(found)])
    words = package.encoders(str(train))["captions"]
    assert list(words.vocabulary) == vectorizer.get_feature_names_out().tolist()
    np.testing.assert_allclose(words.idf, vectorizer.idf_, rtol=1e-12)
    assert (words.size, words.fitted.texts, words.fitted.split) == (len(words.vocabulary), len(found), "train")
    spec = {"id": tf.io.FixedLenFeature([], tf.string), "captions": words.spec()}
    spec = {"image/source_id": spec["id"], "captions": spec["captions"]}
    records = [
        record
        for path in sorted(train.glob("*.tfrecord-*"))
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    ]
    parsed = tf.io.parse_example(records, spec)
    expected = vectorizer.transform([by_image[int(id_)] for id_ in parsed["image/source_id"].numpy()]).toarray()
    np.testing.assert_allclose(tf.sparse.to_dense(parsed["captions"]), expected, rtol=1e-6)
    manifest = manifest_of(train)
    (told,) = manifest["encoders"]
    assert (told["column"], told["form"], told["split"]) == ("captions", "tfidf", "train")
    assert json.loads((train / "encoders" / "captions.json").read_text())["settings"]["ngrams"] == [1, 2]
    classes = json.loads((train / "encoders" / "classes.json").read_text())["classes"]
    assert classes == [category["name"] for category in manifest["categories"]]
    counts = manifest["splits"]["train"]["texts"]["captions"]
    assert (counts["texts"], counts["unknown"], counts["without"]) == (told["texts"], 0, 0)
    read = next(iter(package.open(str(train))["train"].tensorflow()))
    assert read["caption_index"].shape == read["caption_value"].shape
    assert len(read["captions"]) == 2


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


def test_tokens_are_in_the_order_of_the_text(sample, tmp_path, recordmill):
    """Stop words are left out; a word that is rare is unknown."""
    stop = tmp_path / "stop.txt"
    stop.write_text("and\nof\ndon't\n")
    more = ["--caption-text", "tokens", "--stop-words", stop, "--text-features", 12]
    assert recordmill(*flags(sample, tmp_path / "out", *more)).code == 0
    words = package.encoders(tmp_path / "out")["captions"]
    split = CountVectorizer(stop_words=["and", "of"]).build_analyzer()
    by_image = texts(sample)
    examples = read_examples(tmp_path / "out")
    assert any(1 in example["captions/tokens"] for example in examples)
    for example in examples:
        expected = split(by_image[int(example["image/source_id"][0])])
        ids = [words.vocabulary.index(token) + 2 if token in words.vocabulary else 1 for token in expected]
        assert example["captions/tokens"] == ids
    assert recordmill("verify", tmp_path / "out").code == 0
