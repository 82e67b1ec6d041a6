"""Columns of texts as numbers, from the command to the records; held against scikit-learn."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from sklearn.feature_extraction.text import TfidfVectorizer

import recordmill as package
from tests.conftest import manifest_of, read_examples, rejects_of, shard_bytes
from tests.jobs.folders import whole_folder
from tests.transforms.encoders.drawn_texts import ODD, captions

TEXTS = [*captions(180), *ODD]
ROWS = [{"id": number, "title": text, "part": ("train", "val")[number % 3 == 0]} for number, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    return path


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


def test_columns_and_values_are_scikit_learn(rows, tmp_path, recordmill):
    """The same encoder writes the same bytes again."""
    flags = [
        "convert",
        rows,
        "--format",
        "table",
        "--text-column",
        "title",
        "--split-column",
        "part",
        "--text",
        "tfidf",
    ]
    assert recordmill(*flags, "--ngrams", "1,2", "--min-df", 2, "--output", tmp_path / "out").code == 0
    expected = TfidfVectorizer(ngram_range=(1, 2), min_df=2).fit(texts_of("train").values())
    words = package.encoders(str(tmp_path / "out"))["title"]
    assert list(words.vocabulary) == expected.get_feature_names_out().tolist()
    assert words.fitted.texts == len(texts_of("train"))
    for split in ("train", "val"):
        ids, vectors = dense(tmp_path / "out", split)
        texts = texts_of(split)
        assert sorted(ids) == sorted(texts)
        np.testing.assert_allclose(vectors, expected.transform([texts[id_] for id_ in ids]).toarray(), rtol=1e-6)
        counts = manifest_of(tmp_path / "out")["splits"][split]["texts"]["title"]
        terms = [term for text in texts.values() for term in expected.build_analyzer()(text)]
        assert (counts["texts"], counts["terms"]) == (len(texts), len(terms))
        assert counts["unknown"] == len([term for term in terms if term not in expected.vocabulary_])
    assert recordmill("verify", tmp_path / "out").code == 0
    assert recordmill(*flags, "--encoders", tmp_path / "out", "--output", tmp_path / "again").code == 0
    one, again = (whole_folder(tmp_path / name) for name in ("out", "again"))
    assert again["encoders/title.json"] == one["encoders/title.json"]
    assert shard_bytes(tmp_path / "again") == shard_bytes(tmp_path / "out")


def written(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("\n".join(["text,kind", *(f"{text},{kind}" for text, kind in rows)]) + "\n")
    return path


def test_classes_are_saved_encoders(tmp_path, recordmill):
    """So that an index is the same class in both data sets, and what is new is a reject."""
    more = ["--text-column", "text", "--text", "counts", "--label", "kind"]
    first = written(tmp_path / "first.csv", [("red dog", "dog"), ("red cat", "cat"), ("yak", "yak")])
    assert recordmill("convert", first, "--format", "table", "--output", tmp_path / "a", *more).code == 0
    rows = written(tmp_path / "new.csv", [("red emu", "emu"), ("a dog", "dog"), ("red yak", "yak")])
    by_saved = ["convert", rows, "--format", "table", *more, "--encoders", tmp_path / "a", "--max-rejects", 0.5]
    assert recordmill(*by_saved, "--output", tmp_path / "b").code == 0
    assert [each["name"] for each in manifest_of(tmp_path / "b")["categories"]] == ["cat", "dog", "yak"]
    classes = sorted(example["kind"] for example in read_examples(tmp_path / "b", "train"))
    assert classes == [[1], [2]]
    assert [row["reason"] for row in rejects_of(tmp_path / "b")] == ["unknown_class"]
    refused = recordmill(*by_saved, "--classes", "dog,cat", "--output", tmp_path / "d")
    assert (refused.code, (tmp_path / "d").exists()) == (2, False)
