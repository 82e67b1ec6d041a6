"""Which split's texts make the vocabulary, and which saved encoders are taken."""

from pathlib import Path

import msgspec
import pytest

from recordmill.launch.preflight.choose_encoders import choose_encoder, read_stop_words, saved_classes
from recordmill.pipelines.options.text_options import TextOptions
from recordmill.schemas.encoders import (
    EncoderSource,
    TextEncoder,
    TextForm,
    TextSettings,
    classes_file,
    encode_encoder,
)
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.manifest import FORMAT, Manifest, encode_manifest
from tests.transforms.metadata.test_describe_split import RECIPE, SPLIT

COUNTS = TextSettings(TextForm.COUNTS)


def encoder(split: str = "train", column: str = "captions", settings: TextSettings = COUNTS) -> TextEncoder:
    return TextEncoder(1, column, settings, split, 7, ("cat", "dog"))


def data_set(folder: Path, *splits: str, by: TextEncoder | None = None) -> Path:
    """A folder with a manifest of these splits; their texts are encoded by one encoder, if there is any."""
    entries = {
        split: msgspec.structs.replace(SPLIT, recipe=msgspec.structs.replace(RECIPE, split=split), shards=())
        for split in splits
    }
    encoders = (by.info,) if by else ()
    folder.mkdir()
    (folder / "manifest.json").write_bytes(
        encode_manifest(Manifest(FORMAT, "coco", "detection", (), (), (), entries, encoders=encoders))
    )
    if by:
        save(folder / "encoders", by)
    return folder


def save(folder: Path, saved: TextEncoder) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / f"{saved.column}.json").write_bytes(encode_encoder(saved))
    return folder


def chosen(folder: Path, *splits: str, form: TextForm = TextForm.COUNTS, **options) -> EncoderSource:
    return choose_encoder(TextOptions(**options), form, "captions", str(folder), splits)


@pytest.mark.parametrize(
    ("splits", "asked", "fitted"),
    [
        (("train",), None, "train"),
        (("test", "train", "val"), None, "train"),
        (("val",), None, "val"),
        (("a", "b"), "b", "b"),
        (("train", "b"), "b", "b"),
    ],
)
def test_a_new_folder_learns_from_train_or_the_only_split_or_the_one_asked_for(tmp_path, splits, asked, fitted):
    source = chosen(tmp_path / "new", *splits, fit_split=asked)
    assert source == EncoderSource("captions", COUNTS, fitted)


def test_a_further_split_is_encoded_as_the_first(tmp_path):
    folder = data_set(tmp_path / "out", "train", by=encoder())
    for options in ({}, {"fit_split": "train"}):
        source = chosen(folder, "val", **options)
        assert (source.saved, source.fit_split) == (encoder(), "")
        assert source.path == str(folder / "encoders" / "captions.json")


@pytest.mark.parametrize(("fitted", "splits"), [("train", ("train",)), ("val", ("val",)), ("val", ("val", "test"))])
def test_the_split_that_was_learned_from_is_learned_from_again(tmp_path, fitted, splits):
    """So that the same command finds what it has written."""
    folder = data_set(tmp_path / "out", fitted, by=encoder(fitted))
    assert chosen(folder, *splits) == EncoderSource("captions", COUNTS, fitted)


def test_what_other_splits_are_encoded_by_is_learned_again_or_not_at_all(tmp_path):
    """As `--overwrite` of one split would make the indices of the others mean other terms."""
    folder = data_set(tmp_path / "out", "train", "val", by=encoder())
    assert chosen(folder, "train") == EncoderSource("captions", COUNTS, "train", known=encoder().info)
    assert chosen(folder, "train", "val") == EncoderSource("captions", COUNTS, "train")
    with pytest.raises(ConfigError, match=r"holds the split val, encoded .* of train, .* another \(min_df 1, not 2\)"):
        chosen(folder, "train", min_df="2")
    with pytest.raises(ConfigError, match=r"holds the split train, .* and val would get another \(of its own\)"):
        chosen(folder, "val", fit_split="val")


def test_classes_of_saved_encoders(tmp_path):
    for name, classes in (("a", ["cat", "dog"]), ("b", []), ("c", ["dog", "cat"])):
        save(tmp_path / name / "encoders", encoder())
        (tmp_path / name / "encoders" / "classes.json").write_bytes(classes_file(classes))
    save(tmp_path / "d", encoder())
    a, b, c, d = (str(tmp_path / name) for name in "abcd")
    assert saved_classes([a, d]) == saved_classes([f"{a}/encoders", b]) == ("cat", "dog")
    assert saved_classes([b]) == saved_classes([d]) == ()
    with pytest.raises(ConfigError, match="have different classes; give one of them"):
        saved_classes([a, c])


@pytest.mark.parametrize(
    "data",
    [b"{", b'{"format": 2, "classes": []}', b'{"format": 1, "classes": ["a", "a"]}', b'{"format": 1, "classes": [""]}'],
)
def test_classes_that_were_edited_are_refused(tmp_path, data):
    (tmp_path / "classes.json").write_bytes(data)
    with pytest.raises(ConfigError, match=r"classes\.json"):
        saved_classes([str(tmp_path)])


def test_train_is_not_encoded_by_what_was_learned_from_val_unless_that_is_said(tmp_path):
    folder = data_set(tmp_path / "out", "val", by=encoder("val"))
    with pytest.raises(ConfigError, match=r"the vocabulary of split val.*--fit-split val if that is meant"):
        chosen(folder, "train")
    assert chosen(folder, "train", fit_split="val").saved == encoder("val")


@pytest.mark.parametrize(
    ("splits", "options", "said"),
    [
        (("a", "b"), {}, "no split of a, b is called train; give --fit-split"),
        (("a",), {"fit_split": "b"}, "--fit-split b: this command writes a, and .* has no vocabulary of b"),
    ],
)
def test_a_split_that_nobody_has_is_refused(tmp_path, splits, options, said):
    with pytest.raises(ConfigError, match=said):
        chosen(tmp_path / "new", *splits, **options)


def test_other_settings_than_those_of_the_folder_are_refused_with_what_differs(tmp_path):
    settings = TextSettings(TextForm.COUNTS, ngrams=(1, 2), features=9, stop_words=("on",))
    folder = data_set(tmp_path / "out", "train", by=encoder(settings=settings))
    with pytest.raises(ConfigError) as refused:
        chosen(folder, "val")
    for said in ("ngrams (1, 2), not (1, 1)", "features 9, not None", "1 stop words, not these 0", "--encoders"):
        assert said in str(refused.value)
    assert chosen(folder, "val", encoders=(str(folder),)).saved == encoder(settings=settings)


@pytest.mark.parametrize("below", ["", "encoders"])
def test_saved_encoders_are_those_of_a_data_set_or_a_folder_of_them(tmp_path, below):
    folder = save(tmp_path / "a" / "encoders", encoder()).parent / below
    source = chosen(tmp_path / "new", "test", encoders=(str(folder),))
    assert (source.saved, source.path) == (encoder(), str(tmp_path / "a" / "encoders" / "captions.json"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda a, b: (a.mkdir(), b.mkdir()), "no encoders/captions.json, which would encode captions"),
        (lambda a, b: (save(a, encoder()), save(b, encoder())), "both encode captions; give one of them"),
        (
            lambda a, b: (b.mkdir(), a.mkdir(), (a / "captions.json").write_bytes(encode_encoder(encoder(column="x")))),
            "is the encoder of 'x', not of 'captions'",
        ),
        (
            lambda a, b: (save(a, encoder(settings=TextSettings(TextForm.TOKENS))), b.mkdir()),
            "makes tokens of captions, and counts are asked for",
        ),
        (lambda a, b: (a.mkdir(), b.mkdir(), (a / "captions.json").write_bytes(b"{")), "is no encoder of Recordmill"),
    ],
)
def test_encoders_that_cannot_be_used_are_refused(tmp_path, make, said):
    folders = tmp_path / "a", tmp_path / "b"
    make(*folders)
    with pytest.raises(ConfigError, match=said):
        chosen(tmp_path / "new", "test", encoders=tuple(map(str, folders)))


def test_other_encoders_than_those_of_a_further_split_are_refused(tmp_path):
    folder = data_set(tmp_path / "out", "train", by=encoder())
    other = str(save(tmp_path / "other", msgspec.structs.replace(encoder(), vocabulary=("cat", "yak"))))
    with pytest.raises(ConfigError, match="holds the split train, encoded by another vocabulary"):
        chosen(folder, "val", encoders=(other,))
    assert chosen(folder, "train", encoders=(other,)).saved  # which replaces all there is


def test_stop_words_are_one_a_line(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_bytes(b"\xef\xbb\xbfthe\r\n\r\n on \n")
    second.write_text("été\nthe", encoding="utf-8")
    assert read_stop_words([str(first), str(second)]) == ("the", "on", "été", "the")


@pytest.mark.parametrize(("data", "said"), [(b"\xe9t\xe9\n", "is not UTF-8"), (b"\n \n", "has no word")])
def test_files_that_have_no_stop_words_are_refused(tmp_path, data, said):
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(ConfigError, match=said):
        read_stop_words([str(tmp_path / "a.txt")])
