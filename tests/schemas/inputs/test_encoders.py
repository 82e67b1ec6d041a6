import json
import re

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.encoders import TextEncoder, TextForm, TextSettings, decode_encoder, encode_encoder

SETTINGS = TextSettings(TextForm.TFIDF, ngrams=(1, 2), stop_words=("on", "the"), min_df=0.5, features=3)
ENCODER = TextEncoder(1, "captions", SETTINGS, "train", 7, ("cat", "dog", "狗"), (1.1, 2.0, 2.386294361119891))


def test_file_gives_its_encoder_back_and_is_plain_json():
    data = encode_encoder(ENCODER)
    assert decode_encoder(data, "x") == ENCODER
    read = json.loads(data)
    assert read["vocabulary"] == ["cat", "dog", "狗"]
    assert read["idf"] == [1.1, 2.0, 2.386294361119891]
    assert read["settings"]["form"] == "tfidf"
    assert (read["split"], read["texts"]) == ("train", 7)


@pytest.mark.parametrize(("min_df", "kind"), [(1, int), (1.0, float)])
def test_number_of_texts_stays_one_and_fraction_too(min_df, kind):
    settings = TextSettings(TextForm.COUNTS, min_df=min_df)
    encoder = TextEncoder(1, "captions", settings, "train", 7, ("cat",))
    assert type(decode_encoder(encode_encoder(encoder), "x").settings.min_df) is kind


def test_size_is_that_of_vector_and_of_token_ids():
    assert ENCODER.size == ENCODER.info.size == 3
    tokens = TextEncoder(1, "captions", TextSettings(TextForm.TOKENS), "train", 7, ("cat", "dog"))
    assert tokens.size == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary": ["cat", "cat", "dog"]}, r"'cat' \(index 0\) twice"),
        ({"vocabulary": ["cat", "yak", "dog"]}, r"'yak' \(index 1\) before 'dog', but terms must be sorted"),
        ({"vocabulary": []}, "vocabulary is empty"),
        ({"idf": [1.0, 2.0]}, "2 idf for 3 terms"),
        ({"idf": []}, "0 idf for 3 terms"),
        ({"idf": [1.0, -2.0, 1.0]}, "an idf is -2.0"),
        ({"idf": [1.0, 1e200, 1.0]}, r"an idf is 1e\+200"),
        ({"idf": [1.0, None, 1.0]}, "not an encoder of Recordmill"),
        ({"format": 2}, "its format is 2, and this version reads 1"),
        ({"settings": {"form": "raw"}}, "form raw"),
        ({"settings": {"form": "counts", "token_pattern": "(a+)+$"}}, "token_pattern"),
        ({"settings": {"form": "tfidf", "ngrams": [2, 1]}}, "ngrams are 2 to 1"),
        ({"settings": {"form": "tfidf", "ngrams": [1, 1000000]}}, "ngrams are 1 to 1000000"),
        ({"settings": {"form": "counts"}}, "3 idf for 3 terms of the form counts"),
        ({"vocabulary": "cat"}, "not an encoder of Recordmill"),
    ],
)
def test_wrong_encoder_is_refused(changes, message):
    data = json.dumps(json.loads(encode_encoder(ENCODER)) | changes).encode()
    with pytest.raises(ConfigError, match=message) as refused:
        decode_encoder(data, "captions.json")
    assert str(refused.value).startswith("captions.json")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        *((data, "captions.json is not an encoder") for data in (b"", b"[]", b"\xff\xfe", b"[" * 100_000, b"{}")),
        *((encode_encoder(ENCODER).replace(b"1.1", idf), "captions.json") for idf in (b"NaN", b"Infinity", b"1e999")),
    ],
)
def test_not_an_encoder_is_refused(data, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        decode_encoder(data, "captions.json")
