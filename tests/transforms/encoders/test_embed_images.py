from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import msgspec
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.features import parse_spec
from recordmill.schemas.inputs.annotations import Category, ImageLabels
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.models import ModelChoice
from recordmill.schemas.layouts import features_table
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.transforms.encoders import embed_images
from recordmill.transforms.encoders.embed_images import EmbedImages, FeatureEncoder, embed_tasks, group_batches
from recordmill.transforms.encoders.load_model import LoadedModel, load_model
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.records.tfrecord import framed_size
from tests.conftest import draw_jpeg
from tests.tiny_models import saved, tiny
from tests.transforms.encoders.drawn_tasks import expected_amount

LABELS = LabelMap((Category(0, "cat"), Category(1, "dog")))


def task(number: int, path: Path | str = "", class_name: str = "dog") -> ImageTask:
    ref = ImageFile(str(path), Path(path).stat().st_size if path else 0)
    return ImageTask(number, f"dog/{number}.jpg", None, None, ref, "train", (), ImageLabels(class_name=class_name))


PIXELS = np.zeros((2, 2, 3), np.uint8)


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 7))
def test_batches_have_as_many_images_and_rejects_besides(whole, batch):
    read = [
        (task(number), PIXELS if good else Rejected("image", number, Reason.IMAGE_UNREADABLE, ""))
        for number, good in enumerate(whole)
    ]
    found = list(group_batches(iter(read), batch))
    assert [item for each in found for item in each] == read
    images = [sum(isinstance(pixels, np.ndarray) for _, pixels in each) for each in found]
    assert all(number == batch for number in images[:-1])
    assert all(number <= batch for number in images)


def encoded(feature: np.ndarray, dtype: str = "float32"):
    table = features_table(feature.shape, dtype)
    return FeatureEncoder(LABELS, table, dtype).encode(task(7), feature), parse_spec(table)


def test_record_has_feature_and_whose_it_is():
    feature = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7
    made, spec = encoded(feature)
    assert (made.counted, made.class_counts, made.rejected) == ({Metric.IMAGES: 1}, {1: 1}, [])
    (record,) = made.records
    parsed = tf.io.parse_single_example(b"".join(record), spec)
    np.testing.assert_array_equal(parsed["feature"], feature)
    assert parsed["feature/shape"].numpy().tolist() == [2, 3, 4]
    assert (parsed["image/class/label"].numpy(), parsed["image/class/text"].numpy()) == (1, b"dog")
    assert (parsed["image/filename"].numpy(), parsed["image/source_id"].numpy()) == (b"dog/7.jpg", b"7")


def test_record_of_half_precision_has_bytes():
    feature = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7
    made, spec = encoded(feature, "float16")
    parsed = tf.io.parse_single_example(b"".join(made.records[0]), spec)
    found = np.frombuffer(parsed["feature"].numpy(), "<f2").reshape(parsed["feature/shape"])
    np.testing.assert_array_equal(found, feature.astype(np.float16))


@pytest.mark.parametrize(
    ("values", "dtype", "told"),
    [
        (
            (1, 2, np.nan, 3),
            "float32",
            "of its 4 numbers from the model, 1 are NaN or infinite as float32, 1",
        ),
        ((1, 2, -np.inf, np.nan), "float32", "2 are NaN or infinite as float32, 2 of them"),
        ((1, 2, 70_000, 3), "float16", "1 are NaN or infinite as float16, 0 of them as float32"),
        ((0, 1e-9, -2e-9, 0), "float16", "all are 0 as float16; the largest is 2e-09"),
    ],
)
def test_useless_feature_is_reject(values, dtype, told):
    made, _ = encoded(np.array(values, np.float32), dtype)
    assert isinstance(made, Rejected)
    assert (made.id, made.reason) == (7, Reason.UNUSABLE_FEATURE)
    assert told in made.detail


@pytest.mark.parametrize(("values", "dtype"), [((0, 0), "float16"), ((1e-9, 1), "float16"), ((0, 1e-30), "float32")])
def test_small_numbers_are_none(values, dtype):
    made, _ = encoded(np.array(values, np.float32), dtype)
    assert made.counted == {Metric.IMAGES: 1}


@pytest.fixture
def maker(tmp_path) -> Callable[..., EmbedImages]:
    choice = ModelChoice(saved(tiny(), tmp_path / "tiny.keras"))
    return lambda batch=4, dtype="float32": EmbedImages(choice, load_model(choice).model, batch, dtype, "bilinear")


def make(maker: EmbedImages, tasks: list[ImageTask], threads: int = 2) -> list:
    table = features_table(maker.model.feature_shape, maker.dtype)
    with ThreadPoolExecutor(threads) as pool:
        context = RecordContext(LABELS, table, pool, threads)
        return list(embed_tasks(tasks, maker, context, FeatureEncoder(LABELS, table, maker.dtype)))


def drawn(folder: Path, number: int) -> list[ImageTask]:
    """Images of one colour each; every fifth is broken."""
    tasks = []
    for index in range(number):
        draw_jpeg(folder / f"{index}.jpg", colour=(10 * index, 200, 100))
        if index % 5 == 2:
            (folder / f"{index}.jpg").write_bytes((folder / f"{index}.jpg").read_bytes()[:-40])
        tasks.append(task(index, folder / f"{index}.jpg"))
    return tasks


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_every_image_in_order_and_broken_ones_beside(tmp_path, maker, threads):
    tasks = drawn(tmp_path / "images", 19)
    made = make(maker(), tasks, threads)
    assert [each for each, _ in made] == tasks
    spec = parse_spec(features_table((4, 3, 5), "float32"))
    model = keras.models.load_model(tmp_path / "tiny.keras")
    patches = keras.Model(model.inputs, model.get_layer("patches").output)
    bad = [(each, outcome) for each, outcome in made if each.image_id % 5 == 2]
    assert [(each.image_id, Reason.IMAGE_UNREADABLE) for each, _ in bad] == [(one.id, one.reason) for _, one in bad]
    good = [(each, outcome) for each, outcome in made if each.image_id % 5 != 2]
    found = [tf.io.parse_single_example(b"".join(one.records[0]), spec)["feature"] for _, one in good]
    loaded = [keras.utils.load_img(each.ref.path, target_size=(16, 12), interpolation="bilinear") for each, _ in good]
    np.testing.assert_allclose(found, patches.predict(np.array(loaded, np.float32), verbose=0), rtol=1e-4, atol=1e-5)


def test_model_is_given_whole_batches(tmp_path, maker, monkeypatch):
    sizes = []

    def counting(choice, found):
        loaded = load_model(choice)
        return LoadedModel(found, lambda images: sizes.append(len(images)) or loaded.features(images))

    monkeypatch.setattr(embed_images, "load_expected_model", counting)
    make(maker(), drawn(tmp_path / "images", 19))
    assert sizes == [4, 4, 4, 3]


def test_shard_of_broken_images_only(tmp_path, maker):
    tasks = drawn(tmp_path / "images", 3)[2:]
    ((_, outcome),) = make(maker(), tasks)
    assert outcome.reason is Reason.IMAGE_UNREADABLE
    assert make(maker(), []) == []


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_sizes_are_known_before(tmp_path, maker, dtype):
    made = maker(dtype=dtype)
    made = msgspec.structs.replace(made, model=msgspec.structs.replace(made.model, feature_shape=(7, 7, 1280)))
    table = features_table((7, 7, 1280), dtype)
    feature = np.zeros((7, 7, 1280), np.float32)
    (record,) = FeatureEncoder(LABELS, table, dtype).encode(task(1 << 62), feature).records
    estimate = made.estimate(table)
    size, examples = expected_amount(estimate, task(1 << 62))
    assert (size, examples) == (pytest.approx(framed_size(len(b"".join(record))), rel=0.001), 1)
