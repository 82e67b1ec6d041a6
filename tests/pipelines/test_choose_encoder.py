"""Choice of the split whose texts make the vocabulary, and of saved encoders."""

from pathlib import Path

import msgspec
import pytest

from recordmill.pipelines.choose_encoder import choose_encoder, read_stop_words, saved_classes
from recordmill.schemas.dataset.manifest import FORMAT, Manifest, encode_manifest
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.encoders import (
    EncoderSource,
    TextEncoder,
    TextForm,
    TextSettings,
    classes_file,
    encode_encoder,
    encoder_file,
)
from recordmill.schemas.inputs.text_options import TextOptions
from tests.transforms.shards.test_describe_split import RECIPE, SPLIT

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


def fitted(split: str, **more) -> EncoderSource:
    return EncoderSource("captions", COUNTS, split, **more)


@pytest.mark.parametrize(
    ("there", "splits", "options", "source"),
    [
        ({}, "train", {}, fitted("train")),
        ({}, "test train val", {}, fitted("train")),
        ({}, "val", {}, fitted("val")),
        ({}, "a b", {"fit_split": "b"}, fitted("b")),
        ({}, "train b", {"fit_split": "b"}, fitted("b")),
        # The same command finds what it has written.
        ({"train": encoder()}, "train", {}, fitted("train")),
        ({"val": encoder("val")}, "val", {}, fitted("val")),
        ({"val": encoder("val")}, "val test", {}, fitted("val")),
        # With --overwrite of one split, the indices of the others mean the same terms.
        ({"train val": encoder()}, "train", {}, fitted("train", known=encoder().info)),
        ({"train val": encoder()}, "train val", {}, fitted("train")),
    ],
)
def test_split_that_is_learned_from(tmp_path, there, splits, options, source):
    for names, by in there.items():
        data_set(tmp_path / "out", *names.split(), by=by)
    assert chosen(tmp_path / "out", *splits.split(), **options) == source


def test_further_split_is_encoded_as_first(tmp_path):
    folder = data_set(tmp_path / "out", "train", by=encoder())
    for options in ({}, {"fit_split": "train"}):
        source = chosen(folder, "val", **options)
        assert (source.saved, source.fit_split) == (encoder(), "")
        assert source.path == str(folder / "encoders" / "captions.json")


def test_classes_of_saved_encoders(tmp_path):
    for name, classes in (("a", ["cat", "dog"]), ("b", []), ("c", ["dog", "cat"])):
        save(tmp_path / name / "encoders", encoder())
        (tmp_path / name / "encoders" / "classes.json").write_bytes(classes_file(classes))
    save(tmp_path / "d", encoder())
    a, b, c, d = (str(tmp_path / name) for name in "abcd")
    assert saved_classes([a, d]) == saved_classes([f"{a}/encoders", b]) == ("cat", "dog")
    assert saved_classes([b]) == saved_classes([d]) == ()
    with pytest.raises(ConfigError, match=r"have different classes\. Give one of them"):
        saved_classes([a, c])


@pytest.mark.parametrize(
    "data",
    [b"{", b'{"format": 2, "classes": []}', b'{"format": 1, "classes": ["a", "a"]}', b'{"format": 1, "classes": [""]}'],
)
def test_classes_that_were_edited_are_refused(tmp_path, data):
    (tmp_path / "classes.json").write_bytes(data)
    with pytest.raises(ConfigError, match=r"classes\.json"):
        saved_classes([str(tmp_path)])


TOKENS = encoder(settings=TextSettings(TextForm.TOKENS))
OTHER = msgspec.structs.replace(encoder(), vocabulary=("cat", "yak"))
NGRAMS = TextSettings(TextForm.COUNTS, ngrams=(1, 2), features=9, stop_words=("on",))


CATS = encode_encoder(encoder())


@pytest.mark.parametrize(
    ("there", "splits", "options", "saved", "words"),
    [
        ({}, "a b", {}, [], ["--fit-split"]),
        ({}, "a", {"fit_split": "b"}, [], ["--fit-split b"]),
        ({"val": encoder("val")}, "train", {}, [], ["--fit-split val"]),
        (
            {"train": encoder(settings=NGRAMS)},
            "val",
            {},
            [],
            ["ngrams (1, 2)", "features 9", "stop words", "--encoders"],
        ),
        ({"train val": encoder()}, "train", {"min_df": "2"}, [], ["holds the split val", "min_df 1, not 2"]),
        ({"train val": encoder()}, "val", {"fit_split": "val"}, [], ["holds the split train"]),
        ({"train": encoder()}, "val", {}, [encode_encoder(OTHER)], ["another vocabulary"]),
        ({}, "test", {}, [None, None], ["no encoders/captions.json"]),
        ({}, "test", {}, [CATS, CATS], ["one of them"]),
        ({}, "test", {}, [encode_encoder(encoder(column="x"))], ["'x'"]),
        ({}, "test", {}, [encode_encoder(TOKENS)], ["tokens"]),
        ({}, "test", {}, [b"{"], ["not an encoder"]),
    ],
)
def test_refused(tmp_path, there, splits, options, saved, words):
    """`saved` is what the folders of --encoders have for captions."""
    for names, by in there.items():
        data_set(tmp_path / "out", *names.split(), by=by)
    folders = [tmp_path / str(number) for number in range(len(saved))]
    for folder, data in zip(folders, saved, strict=True):
        folder.mkdir()
        if data is not None:
            (folder / "captions.json").write_bytes(data)
    with pytest.raises(ConfigError) as refused:
        chosen(tmp_path / "out", *splits.split(), encoders=tuple(map(str, folders)), **options)
    assert [word for word in words if word not in str(refused.value)] == []


def test_suggestion(tmp_path):
    of_val = data_set(tmp_path / "val", "val", by=encoder("val"))
    assert chosen(of_val, "train", fit_split="val").saved == encoder("val")
    of_train = data_set(tmp_path / "train", "train", by=encoder(settings=NGRAMS))
    assert chosen(of_train, "val", encoders=(str(of_train),)).saved == encoder(settings=NGRAMS)
    other = str(save(tmp_path / "other", OTHER))
    assert chosen(of_train, "train", encoders=(other,)).saved == OTHER  # which replaces all there is


@pytest.mark.parametrize("below", ["", "encoders"])
def test_saved_encoders_are_data_set_or_folder_of_them(tmp_path, below):
    folder = save(tmp_path / "a" / "encoders", encoder()).parent / below
    source = chosen(tmp_path / "new", "test", encoders=(str(folder),))
    assert (source.saved, source.path) == (encoder(), str(tmp_path / "a" / "encoders" / "captions.json"))


def test_read_stop_words(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_bytes(b"\xef\xbb\xbfthe\r\n\r\n on \n")
    second.write_text("été\nthe", encoding="utf-8")
    assert read_stop_words([str(first), str(second)]) == ("the", "on", "été", "the")
    for data, said in ((b"\xe9t\xe9\n", "is not UTF-8"), (b"\n \n", "has no word")):
        first.write_bytes(data)
        with pytest.raises(ConfigError, match=said):
            read_stop_words([str(first)])


def test_encoders_of_another_data_set_are_refused(tmp_path):
    path = tmp_path / encoder_file("captions")
    path.parent.mkdir()
    path.touch()
    with pytest.raises(ConfigError, match=f"has {encoder_file('captions')}"):
        chosen(tmp_path, "train")
    (tmp_path / ".recordmill-val").mkdir()
    (tmp_path / ".recordmill-val" / "recipe.json").write_text("{}")
    assert chosen(tmp_path, "train") == EncoderSource("captions", COUNTS, "train")
