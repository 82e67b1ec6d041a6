import pytest

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.encoders import TextEncoder, TextForm, TextSettings, encode_encoder
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION, TFDS
from recordmill.transforms.show.describe_values import meanings, terms
from tests.conftest import CATEGORIES

LABELS = LabelMap(tuple(Category(**row) for row in CATEGORIES), (Category(92, "sky"),))


def test_class_indices_and_segments():
    assert meanings(TFDS, LABELS) == {"objects/label": ("cat", "dog"), "panoptic_objects/label": ("sky",)}
    assert meanings(DETECTION, LABELS) == {"image/object/class/index": ("cat", "dog")}


@pytest.mark.parametrize(
    ("form", "feature", "before"),
    [(TextForm.COUNTS, "captions/index", ()), (TextForm.TOKENS, "captions/tokens", ("(padding)", "(unknown)"))],
)
def test_terms_and_tokens(form, feature, before, tmp_path):
    encoder = TextEncoder(1, "captions", TextSettings(form), "train", 2, ("a", "cat"))
    parts = (Part.CAPTION_TOKENS if form is TextForm.TOKENS else Part.CAPTION_TERMS,)
    manifest = Manifest(4, "coco", "detection", parts, (), (), {}, encoders=(encoder.info,))
    assert terms(str(tmp_path), manifest) == {}
    path = tmp_path / encoder.info.file
    path.parent.mkdir()
    path.write_bytes(encode_encoder(encoder))
    assert terms(str(tmp_path), manifest) == {feature: (*before, "a", "cat")}
