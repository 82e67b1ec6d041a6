from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import pytest

from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.models import TOLERANCE, ModelChoice
from recordmill.schemas.layouts import features_table
from recordmill.transforms.encoders.embed_images import EmbedImages, FeatureEncoder
from recordmill.transforms.encoders.load_model import load_model
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.records.parse_record import RecordFault
from recordmill.transforms.verify.verify_shards import Recomputing, recompute_features
from tests.conftest import draw_jpeg
from tests.tiny_models import saved, tiny
from tests.transforms.encoders.test_embed_images import drawn, make

LABELS = LabelMap((Category(0, "cat"), Category(1, "dog")))


@pytest.fixture(params=["float32", "float16"])
def maker(tmp_path, request) -> EmbedImages:
    choice = ModelChoice(saved(tiny(), tmp_path / "tiny.keras"))
    return EmbedImages(choice, load_model(choice).model, 4, request.param, "bilinear")


@pytest.fixture
def records(tmp_path, maker) -> list[bytes]:
    """Of nine images, whose files are in the folder `dog`; two more are broken."""
    made = make(maker, drawn(tmp_path / "pictures" / "dog", 11))
    return [b"".join(record) for _, outcome in made if not hasattr(outcome, "reason") for record in outcome.records]


def recompute(
    tmp_path: Path, maker: EmbedImages, records: list[bytes], **changed
) -> tuple[int, float, list[tuple[int, RecordFault]]]:
    """Number of features, largest difference, and faults with record numbers."""
    how = Recomputing(maker, (str(tmp_path / "none"), str(tmp_path / "pictures")), 16, TOLERANCE)
    with ThreadPoolExecutor(2) as pool:
        of = RecordContext(LABELS, features_table(maker.model.feature_shape, maker.dtype), pool, 2)
        return recompute_features(records, msgspec.structs.replace(how, **changed), of)


def test_same_model_makes_same_numbers(tmp_path, maker, records):
    assert recompute(tmp_path, maker, records) == (9, 0.0, [])


def test_other_weights_make_others(tmp_path, maker, records):
    other = tiny()
    other.set_weights([weight * 1.01 for weight in other.get_weights()])
    choice = ModelChoice(saved(other, tmp_path / "other.keras"))
    other_maker = msgspec.structs.replace(maker, choice=choice, model=load_model(choice).model)
    _, difference, faults = recompute(tmp_path, other_maker, records)
    assert [(number, *fault[:1]) for number, fault in faults] == [(index, "feature_differs") for index in range(9)]
    assert difference == pytest.approx(0.01, rel=0.1)
    assert recompute(tmp_path, other_maker, records, tolerance=difference)[2] == []
    assert len(recompute(tmp_path, other_maker, records, tolerance=difference * 0.999)[2]) >= 1


def test_another_image_is_one_fault_and_record_s(tmp_path, maker, records):
    draw_jpeg(tmp_path / "pictures" / "dog" / "3.jpg", colour=(0, 0, 250))
    ((number, (reason, detail)),) = recompute(tmp_path, maker, records)[2]
    assert (number, reason) == (2, "feature_differs")  # 2.jpg is broken
    assert detail.startswith("'dog/3.jpg'")


def test_images_gone_broken_or_elsewhere_are_faults(tmp_path, maker, records):
    folder = tmp_path / "pictures" / "dog"
    (folder / "0.jpg").unlink()
    (folder / "4.jpg").write_bytes(b"no image")
    features, _, faults = recompute(tmp_path, maker, records)
    assert features == 7
    assert [(number, reason) for number, (reason, _) in faults] == [(0, "picture"), (3, "picture")]
    assert "Name its folder with --images" in faults[0][1][1]
    assert "unsupported_format" in faults[1][1][1]


def record_of(task: ImageTask, maker: EmbedImages) -> bytes:
    """A record whose features are all zero."""
    table = features_table((4, 3, 5), maker.dtype)
    (record,) = FeatureEncoder(LABELS, table, maker.dtype).encode(task, np.zeros((4, 3, 5), np.float32)).records
    return b"".join(record)


def test_record_names_nothing_outside_of_folders(tmp_path, maker):
    (task,) = drawn(tmp_path / "victim", 1)
    record = record_of(msgspec.structs.replace(task, file_name="../victim/0.jpg"), maker)
    assert [reason for _, (reason, _) in recompute(tmp_path, maker, [record])[2]] == ["picture"]


def test_numbers_all_zero_differ_by_nothing_or_all(tmp_path, maker):
    (task,) = drawn(tmp_path / "pictures" / "dog", 1)
    assert recompute(tmp_path, maker, [record_of(task, maker)])[1] == 1
