"""How texts become numbers: what is wrong is said before anything runs."""

import pytest

from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.schemas.encoders import TextForm, TextSettings
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.layouts import LAYOUTS

GIVEN = {"images": ("images",), "captions": ("c.json",), "output": "out", "caption_text": "counts"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"caption_text": "raw", "ngrams": "1,2"}, "--ngrams would do nothing without --caption-text counts, tfidf or"),
        ({"caption_text": "raw", "encoders": ("e",)}, "--encoders would do nothing without --caption-text"),
        ({"captions": (), "instances": ("i.json",)}, "--caption-text counts is of the captions of --captions"),
        ({"caption_text": "tokens", "ngrams": "1,2"}, "--ngrams 1,2: tokens are in the order of the text"),
        ({"ngrams": "2,1"}, "--ngrams '2,1' must be two numbers from 1 to 9"),
        ({"ngrams": "1"}, "--ngrams '1' must be"),
        ({"ngrams": "1,10"}, "--ngrams '1,10' must be"),
        ({"min_df": "0"}, "--min-df '0' must be a number of texts"),
        ({"min_df": "2.0"}, "--min-df '2.0' must be"),
        ({"min_df": "0.0"}, "--min-df '0.0' must be"),
        ({"text_features": 0}, "--text-features 0 must be 1 to"),
        ({"fit_split": "a-b"}, "--fit-split 'a-b'"),
        ({"encoders": ("e",), "min_df": "2", "no_lower": True}, "leave it out, or --min-df, --no-lower"),
        (
            {"text_names": "tokens=a"},
            "--text-names 'tokens=a' is not index=NAME,value=NAME, the features",
        ),
        ({"text_names": "index=a,index=b"}, "--text-names 'index=a,index=b' is not"),
        ({"text_names": "index=a,value="}, "--text-names 'index=a,value=' is not"),
        ({"text_names": "index=a,value=a"}, "gives two features one name"),
        ({"text_names": "index=image/width"}, "--text-names image/width would be the name of two features of layout"),
        (
            {"layout": "tfds", "text_names": "index=captions/i"},
            "--text-names captions/i: in layout tfds that is",
        ),
        ({"layout": "keras"}, "--layout keras has no feature for --caption-text"),
    ],
)
def test_what_contradicts_itself_is_refused(changed, said):
    with pytest.raises(ConfigError) as refused:
        CocoOptions(**GIVEN | changed)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("given", "min_df"), [("1", 1), ("25", 25), ("0.25", 0.25), (".5", 0.5), ("1.0", 1.0), ("1e-3", 0.001)]
)
def test_a_fraction_of_texts_is_told_from_a_number(given, min_df):
    """As scikit-learn does, for which 1 is a text and 1.0 are all."""
    found = CocoOptions(**GIVEN, min_df=given).settings(TextForm.COUNTS, ()).min_df
    assert (found, type(found)) == (min_df, type(min_df))


def test_settings_are_what_was_asked_for():
    options = CocoOptions(**GIVEN, text_features=7, min_df="2", ngrams="1, 3", no_lower=True)
    assert options.settings(TextForm.COUNTS, ("the", "on", "the")) == TextSettings(
        TextForm.COUNTS, (1, 3), lower=False, stop_words=("on", "the"), min_df=2, features=7
    )


@pytest.mark.parametrize(
    ("layout", "form", "names", "expected"),
    [
        ("detection", "counts", None, ["captions/index", "captions/value"]),
        ("detection", "tokens", None, ["captions/tokens"]),
        ("tfds", "tfidf", None, ["captions_index", "captions_value"]),
        (
            "detection",
            "tfidf",
            "value=description_value,index=description_index",
            ["description_index", "description_value"],
        ),
        ("detection", "counts", "index=z_{column}", ["captions/value", "z_captions"]),
        ("tfds", "tokens", "tokens=words", ["words"]),
    ],
)
def test_features_have_the_names_that_were_asked_for(layout, form, names, expected):
    table = CocoOptions(**GIVEN | {"layout": layout, "caption_text": form, "text_names": names}).table
    before = {feature.name for feature in LAYOUTS[layout].with_parts(table.parts[:1]).features}
    assert [feature.name for feature in table.features if feature.name not in before] == expected
