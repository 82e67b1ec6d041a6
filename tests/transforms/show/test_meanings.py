import json

from recordmill.schemas.annotations import Category
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import DETECTION, TFDS
from recordmill.transforms.metadata.dataset_folder import require_manifest
from recordmill.transforms.show.meanings import meanings, terms
from tests.conftest import CATEGORIES

LABELS = LabelMap(tuple(Category(**row) for row in CATEGORIES), (Category(92, "sky"),))


def test_class_indices_and_segments():
    assert meanings(TFDS, LABELS) == {"objects/label": ("cat", "dog"), "panoptic_objects/label": ("sky",)}
    assert meanings(DETECTION, LABELS) == {"image/object/class/index": ("cat", "dog")}


def test_terms_and_tokens(sample, tmp_path, copy_converted):
    for form, feature, first in (("tfidf", "captions/index", 0), ("tokens", "captions/tokens", 2)):
        folder = tmp_path / form
        copy_converted(folder, "--captions", sample.captions, "--caption-text", form)
        vocabulary = json.loads((folder / "encoders" / "captions.json").read_text())["vocabulary"]
        found = terms(str(folder), require_manifest(str(folder)))
        assert found.keys() == {feature}
        assert list(found[feature][first:]) == vocabulary
        (folder / "encoders" / "captions.json").unlink()
        assert terms(str(folder), require_manifest(str(folder))) == {}
