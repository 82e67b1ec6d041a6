"""Columns of texts as numbers, from the command to the records; held against scikit-learn."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

import recordmill as package
from tests.conftest import manifest_of, read_examples, rejects_of, shard_bytes
from tests.transforms.encoders.drawn_texts import ODD, captions

TEXTS = [*captions(180), *ODD]
ROWS = [{"id": number, "title": text, "part": ("train", "val")[number % 3 == 0]} for number, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    return path


def flags(rows: Path, output: Path, *more: object) -> list[str]:
    of_texts = ["--text-column", "title", "--split-column", "part", *more]
    return ["table", "--rows", str(rows), "--output", str(output), *map(str, of_texts)]


def dense(folder: Path, split: str) -> tuple[list[int], np.ndarray]:
    """Ids, and the texts' vectors."""
    records = [
        record
        for path in sorted(folder.glob(f"table-{split}.tfrecord-*"))
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    ]
    spec = {"id": tf.io.FixedLenFeature([], tf.int64), "title": package.encoders(str(folder))["title"].spec()}
    parsed = tf.io.parse_example(records, spec)
    return parsed["id"].numpy().tolist(), tf.sparse.to_dense(parsed["title"]).numpy()


def texts_of(split: str) -> dict[int, str]:
    """An empty text is one of no terms, where it is no missing value."""
    return {row["id"]: row["title"] for row in ROWS if row["part"] == split}


@pytest.mark.parametrize(("form", "vectorizer"), [("tfidf", TfidfVectorizer), ("counts", CountVectorizer)])
def test_columns_and_values_are_scikit_learn(rows, tmp_path, recordmill, form, vectorizer):
    assert recordmill(*flags(rows, tmp_path, "--text", form, "--ngrams", "1,2", "--min-df", 2)).code == 0
    expected = vectorizer(ngram_range=(1, 2), min_df=2).fit(texts_of("train").values())
    words = package.encoders(str(tmp_path))["title"]
    assert list(words.vocabulary) == expected.get_feature_names_out().tolist()
    assert words.fitted.texts == len(texts_of("train"))
    for split in ("train", "val"):
        ids, vectors = dense(tmp_path, split)
        texts = texts_of(split)
        assert sorted(ids) == sorted(texts)
        np.testing.assert_allclose(vectors, expected.transform([texts[id_] for id_ in ids]).toarray(), rtol=1e-6)
        counts = manifest_of(tmp_path)["splits"][split]["texts"]["title"]
        terms = [term for text in texts.values() for term in expected.build_analyzer()(text)]
        assert (counts["texts"], counts["terms"]) == (len(texts), len(terms))
        assert counts["unknown"] == len([term for term in terms if term not in expected.vocabulary_])
    assert recordmill("verify", tmp_path).code == 0


def test_same_bytes_by_saved_encoders(rows, tmp_path, recordmill):
    more = ["--text", "tfidf", "--text-features", 40]
    assert recordmill(*flags(rows, tmp_path / "one", *more)).code == 0
    again = recordmill(*flags(rows, tmp_path / "saved", "--text", "tfidf", "--encoders", tmp_path / "one"))
    assert again.code == 0
    first = shard_bytes(tmp_path / "one")
    assert first == shard_bytes(tmp_path / "saved")
    file = "encoders/title.json"
    assert (tmp_path / "saved" / file).read_bytes() == (tmp_path / "one" / file).read_bytes()


def written(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("\n".join(["text,kind", *(f"{text},{kind}" for text, kind in rows)]) + "\n")
    return path


def test_classes_are_saved_encoders(tmp_path, recordmill):
    """So that an index is the same class in both data sets, and what is new is a reject."""
    more = ["--text-column", "text", "--text", "counts", "--label", "kind"]
    first = written(tmp_path / "first.csv", [("red dog", "dog"), ("red cat", "cat"), ("yak", "yak")])
    assert recordmill("table", "--rows", first, "--output", tmp_path / "a", *more).code == 0
    rows = written(tmp_path / "new.csv", [("red emu", "emu"), ("a dog", "dog"), ("red yak", "yak")])
    by_saved = ["table", "--rows", rows, *more, "--encoders", tmp_path / "a", "--max-rejects", 0.5]
    assert recordmill(*by_saved, "--output", tmp_path / "b").code == 0
    assert [each["name"] for each in manifest_of(tmp_path / "b")["categories"]] == ["cat", "dog", "yak"]
    classes = sorted(example["kind"] for example in read_examples(tmp_path / "b", "train"))
    assert classes == [[1], [2]]
    assert [row["reason"] for row in rejects_of(tmp_path / "b")] == ["unknown_class"]
    refused = recordmill(*by_saved, "--classes", "dog,cat", "--output", tmp_path / "d")
    assert (refused.code, (tmp_path / "d").exists()) == (2, False)
