import json
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import tensorflow as tf

import recordmill
from recordmill._split_records import RecordContents
from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.layouts import LAYOUTS
from tests.recordmill.splits import CONTENTS, LABELS, draw, write_split

RECORDS = 6
_RLE = tuple(feature for feature in LAYOUTS["detection"].features if feature.source != "objects.mask_png")
ALL = CONTENTS | {"rle": RecordContents(type(LAYOUTS["detection"])("detection", _RLE), LABELS)}


def split_of(folder, name, records=RECORDS, **more):
    return write_split(folder, ALL[name], [draw(ALL[name], number) for number in range(records)], **more)


def ids(data) -> list[int]:
    return np.concatenate([np.atleast_1d(record["image_id"]) for record in data.as_numpy_iterator()]).tolist()


def is_equal(one, other) -> bool:
    return (
        type(one) is type(other) and (isinstance(one, bytes) or one.dtype == other.dtype) and np.array_equal(one, other)
    )


def test_without_tensorflow_error_names_extra(tmp_path, monkeypatch):
    split = split_of(tmp_path, "rle")
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ConfigError, match=r'pip install "recordmill\[tensorflow\]"'):
        split.tensorflow()


@pytest.mark.parametrize("name", ALL)
def test_values_are_numpy_reader(tmp_path, name):
    split = split_of(tmp_path, name, 4, compressed=name == "keras")
    data = split.tensorflow()
    assert int(data.cardinality()) == 4
    for key, spec in data.element_spec.items():
        reading = split.features[key]
        sizes = [LABELS.keypoints if size == "K" else int(size) if size.isdecimal() else None for size in reading.shape]
        assert spec == tf.TensorSpec(sizes, "string" if reading.dtype == "bytes" else reading.dtype), key
    for tensors, arrays in zip(data.as_numpy_iterator(), split.numpy(), strict=True):
        assert tensors.keys() == arrays.keys()
        assert [key for key in arrays if not is_equal(tensors[key], arrays[key])] == []


def test_tensorflow_logs_no_warning(tmp_path, caplog):
    tf.get_logger().addHandler(caplog.handler)
    try:
        split_of(tmp_path, "detection").tensorflow(batch=2, resize=(8, 10))
    finally:
        tf.get_logger().removeHandler(caplog.handler)
    assert caplog.messages == []


@pytest.mark.parametrize("name", ["detection", "rle"])
def test_masks_alone(tmp_path, name):
    split = split_of(tmp_path, name, 5)
    for tensors, arrays in zip(split.tensorflow(keys=["masks"]), split, strict=True):
        assert list(tensors) == ["masks"]
        np.testing.assert_array_equal(tensors["masks"], arrays["masks"])
    sizes = {"batch": 2, "resize": (8, 10)}
    both = split.tensorflow(keys=["image", "masks"], **sizes), split.tensorflow(keys=["masks"], **sizes)
    for with_image, alone in zip(*both, strict=True):
        np.testing.assert_array_equal(alone["masks"], with_image["masks"])
    with pytest.raises(ConfigError, match="or keys, have no image"):
        split.tensorflow(keys=["boxes"], resize=(8, 10))


def test_padded_batches(tmp_path):
    split = split_of(tmp_path, "detection")
    batches = list(split.tensorflow(batch=4, resize=(8, 10)))
    assert [len(batch["image"]) for batch in batches] == [4, 2]
    whole = list(split)
    for batch, records in zip(batches, (whole[:4], whole[4:]), strict=True):
        most = max(len(record["labels"]) for record in records)
        assert batch["image"].shape == (len(records), 8, 10, 3)
        assert batch["masks"].shape == (len(records), most, 8, 10)
        for place, record in enumerate(records):
            objects = len(record["labels"])
            for key, padding in (("labels", -1), ("category_ids", -1), ("boxes", 0), ("is_crowd", 0), ("keypoints", 0)):
                assert (batch[key][place][:objects] == record[key]).numpy().all()
                assert (batch[key][place][objects:] == padding).numpy().all()
            assert batch["captions"][place].numpy().tolist() == record["captions"].tolist()


def test_ragged_batches_hold_pictures_of_any_size(tmp_path):
    split = split_of(tmp_path, "detection")
    (batch,) = split.tensorflow(batch=RECORDS, ragged=True)
    for place, record in enumerate(split):
        assert batch["labels"][place].numpy().tolist() == record["labels"].tolist()
        assert (batch["image"][place].to_tensor().numpy() == record["image"]).all()


def test_static_shapes(tmp_path):
    split = split_of(tmp_path, "detection")
    data = split.tensorflow(batch=4, resize=(8, 10), pad=5, drop_remainder=True)
    assert int(data.cardinality()) == 1
    assert all(spec.shape.is_fully_defined() for spec in data.element_spec.values())
    assert all(spec.dtype != tf.string for spec in data.element_spec.values())
    assert list(split.tensorflow(batch=4, pad=5, keys=["captions", "labels"]).element_spec) == ["labels", "captions"]
    (batch,) = data
    assert batch["labels"].shape == (4, 5)
    assert batch["caption_tokens"].shape == (4, 5)


def test_resizing(tmp_path):
    """Upwards by whole numbers: each pixel of masks and maps becomes several, and images follow TensorFlow."""
    split = split_of(tmp_path, "rle", 4)[3:]
    (plain,) = split
    (resized,) = split.tensorflow(resize=(46, 62))
    assert plain["image"].shape == (23, 31, 3)
    expected = tf.image.resize(plain["image"], (46, 62))
    assert np.abs(resized["image"].numpy() - expected.numpy()).max() <= 0.5
    for key in ("masks", "semantic", "depth", "instances"):
        assert (resized[key] == np.repeat(np.repeat(plain[key], 2, -2), 2, -1)).numpy().all()
    assert (resized["boxes"] == plain["boxes"]).numpy().all()


@pytest.mark.parametrize("size", [(46, 62), (7, 90), (11, 5), (20, 31)])
@pytest.mark.parametrize("name", ["detection", "rle", "keras", "tfds", "pixels"])
def test_numpy_readers_resize_as_tensorflow(tmp_path, name, size):
    split = split_of(tmp_path, name)
    for tensors, arrays in zip(split.tensorflow(resize=size), split.numpy(resize=size), strict=True):
        assert tensors.keys() == arrays.keys()
        for key in tensors:
            tensor, array = tensors[key].numpy(), arrays[key]
            if key != "image":
                assert is_equal(tensor, array), key
                continue
            assert (array.dtype, array.shape) == (np.uint8, (*size, 3))
            if min(size) > 40:  # Pillow averages when it shrinks, and TensorFlow does not
                assert np.abs(tensor.astype(int) - array).max() <= 1


@pytest.mark.parametrize("name", ["detection", "rle", "tfds", "float16", "rows", "pixels"])
def test_numpy_readers_pad_as_tensorflow(tmp_path, name):
    split = split_of(tmp_path, name)
    size = (8, 10) if "image" in split.features else None
    data = split.tensorflow(batch=1, resize=size, pad=5, drop_remainder=True)
    for tensors, arrays in zip(data, split.grain(resize=size, pad=5), strict=True):
        assert tensors.keys() == arrays.keys()
        for key in tensors.keys() - {"image"}:
            assert is_equal(tensors[key].numpy()[0], arrays[key]), key
        assert {key: (1, *np.shape(array)) for key, array in arrays.items()} == {
            key: tuple(spec.shape) for key, spec in data.element_spec.items()
        }


def test_boxes_in_pixels_are_resized_with_their_picture(tmp_path):
    split = split_of(tmp_path, "keras", 1)
    (plain,), (resized,) = split, split.tensorflow(resize=(40, 93))
    assert plain["image"].shape == (20, 31, 3)
    np.testing.assert_allclose(resized["box_xywh_px"], plain["box_xywh_px"] * [3, 2, 3, 2], rtol=1e-6)
    (segments,) = split_of(tmp_path, "tfds", 1).tensorflow(resize=(3, 3))
    assert segments["segment_map"].shape == (3, 3)


def test_shuffling(tmp_path):
    split = split_of(tmp_path, "classification", 40)
    plain = split.tensorflow()
    assert ids(plain) == ids(plain) == list(range(40))
    shuffled = split.tensorflow(shuffle=True, seed=1)
    first, second = ids(shuffled), ids(shuffled)
    assert first not in (second, list(range(40)))
    assert sorted(first) == sorted(second) == list(range(40))
    assert ids(split.tensorflow(shuffle=True, seed=1)) == first
    assert ids(split.tensorflow(shuffle=True, seed=2)) != first
    assert sorted(ids(split.tensorflow(shuffle=True))) == list(range(40))


def test_shards_are_visited_in_another_order(tmp_path, monkeypatch):
    monkeypatch.setattr("recordmill._tensorflow_reader._BUFFER_RECORDS", 1)
    split = split_of(tmp_path, "classification")
    assert {ids(split.tensorflow(shuffle=True, seed=seed))[0] for seed in range(8)} == {0, 2}


def test_buffer_is_of_records_read(tmp_path, monkeypatch):
    asked = []
    shuffle = tf.data.Dataset.shuffle
    monkeypatch.setattr(tf.data.Dataset, "shuffle", lambda self, size, *seed: asked.append(size) or shuffle(self, size))
    split = split_of(tmp_path, "float16", 40)
    info = split.shards[2]
    monkeypatch.setattr("recordmill._tensorflow_reader._BUFFER_BYTES", 7 * (info.bytes // info.examples))
    split[10:30].tensorflow(shuffle=True)
    split[10:].tensorflow(shuffle=True, shard=(1, 3))
    split[10:13].tensorflow(shuffle=True)
    assert asked[1::2] == [7, 7, 3]


def test_hosts(tmp_path):
    split = split_of(tmp_path, "classification", 11)
    hosts = [split.tensorflow(shard=(index, 3)) for index in range(3)]
    assert [id_ for host in hosts for id_ in ids(host)] == list(range(11))
    assert [int(host.cardinality()) for host in hosts] == [3, 4, 4]
    assert ids(split[2:5].tensorflow(shard=(1, 2), batch=2, resize=(2, 2))) == [3, 4]
    (nothing,) = [split[:1].tensorflow(shard=(np.int64(0), 2))]
    assert list(nothing) == []


def test_every_host_has_as_many_whole_batches(tmp_path):
    split = split_of(tmp_path, "float16", 11)  # 5 and 6 records
    hosts = [split.tensorflow(batch=3, shard=(index, 2), drop_remainder=True) for index in (0, 1)]
    assert [len(list(host)) for host in hosts] == [int(host.cardinality()) for host in hosts] == [1, 1]
    assert len(list(split.tensorflow(batch=3, drop_remainder=True))) == 3


def test_supervised(tmp_path):
    for name, key, of in (
        ("classification", "image", "label"),
        ("float32", "feature", "label"),
        ("keras", "image", "labels"),
    ):
        split = split_of(tmp_path, name, 2)
        for (value, label), record in zip(split.tensorflow(as_supervised=True), split, strict=True):
            assert (value.numpy() == record[key]).all()
            assert label == record[of]
    split = split_of(tmp_path, "rows", 2)
    for (row, kind), record in zip(split.tensorflow(as_supervised=True), split, strict=True):
        assert kind == record["kind"]
        assert row.keys() == {"note", "numbers"}
    (batch, kinds), *_ = split.tensorflow(batch=2, as_supervised=True)
    assert (batch["note"].shape, kinds.shape) == ((2, 1), (2,))
    with pytest.raises(ConfigError, match="one label per record, and the records have image, image_id"):
        split_of(tmp_path, "detection", 1).tensorflow(as_supervised=True)
    with pytest.raises(
        ConfigError, match=r"an image or feature and one label per record, and the records have label\. Choose"
    ):
        split_of(tmp_path, "classification", 1).tensorflow(as_supervised=True, keys=["label"])


@pytest.mark.parametrize(
    ("name", "steps", "told"),
    [
        ("detection", {"batch": 2}, "images of different sizes do not form a batch. Give resize"),
        ("detection", {"batch": 0, "resize": (2, 2)}, "batch=0"),
        ("detection", {"pad": 3}, "need batch"),
        ("rows", {"batch": 2, "pad": -1}, "pad=-1. Give 1 or more"),
        ("rows", {"batch": 2, "pad": 0}, "pad=0. Give 1 or more"),
        ("rows", {"pad": 0}, "need batch"),
        ("rows", {"batch": 2, "pad": 0, "ragged": True}, "Give one of them"),
        ("detection", {"batch": 2, "resize": (2, 2), "pad": 3, "ragged": True}, "Give one of them"),
        ("float32", {"resize": (2, 2)}, "have no image, mask or map"),
        ("detection", {"resize": 64}, r"resize=64 must be \(height, width\): resize=\(64, 64\)$"),
        ("detection", {"resize": (64, 64.5)}, r"resize=\(64, 64.5\) must be .*: resize=\(224, 224\)$"),
        ("detection", {"resize": np.array([64, 64])}, r"resize=array.* must be .*: resize=\(64, 64\)$"),
        ("rows", {"batch": "4", "shard": 2}, r"batch='4' must be .*: batch=32; shard=2 must be .*: shard=\(0, 4\)$"),
        ("rows", {"ragged": 2}, "ragged=2 must be True or False: ragged=True$"),
        ("detection", {"resize": (64, 0)}, r"resize=\(64, 0\). Give \(height, width\)"),
        ("rows", {"seed": 0}, "seed=0: seed needs shuffle=True"),
        ("rows", {"shard": (2, 2)}, r"shard=\(2, 2\): the index is 0 to hosts - 1"),
        ("rows", {"shard": (0, 0)}, "the index is 0 to hosts - 1"),
        (
            "rows",
            {"batch": 4, "shard": (0, 2), "drop_remainder": True},
            "a host has 3 records, less than one batch of 4",
        ),
    ],
)
def test_arguments_that_do_not_go_together(tmp_path, name, steps, told):
    with pytest.raises(ConfigError, match=told):
        split_of(tmp_path, name).tensorflow(**steps)


def test_more_objects_than_are_padded_to(tmp_path):
    split = split_of(tmp_path, "detection")
    with pytest.raises(tf.errors.OpError):
        list(split.tensorflow(batch=4, resize=(2, 2), pad=2))
    histogram = {"count": 6, "least": 0, "largest": 3, "mean": 1, "p05": 0, "median": 1, "p95": 3, "bins": []}
    histograms = {"objects_an_image": histogram, "captions_an_image": {**histogram, "largest": 4}}
    statistics = {"images": 6, "measured": 0, "histograms": histograms}
    statistics |= {"centres": [], "classes": [], "segments": [], "formats": {}, "examples": {}, "findings": {}}
    (tmp_path / "statistics-train.json").write_text(json.dumps(statistics))
    with pytest.raises(ConfigError, match=r"pad=2 is too small: an image has 3 objects\. Give pad=3 or more"):
        split.tensorflow(batch=4, resize=(2, 2), pad=2)
    with pytest.raises(ConfigError, match=r"pad=3 is too small: an image has 4 captions\. Give pad=4 or more"):
        split.tensorflow(batch=4, pad=3, keys=["captions"])
    split.tensorflow(batch=4, resize=(2, 2), pad=3, keys=["image", "boxes"])
    split_of(tmp_path, "keras").tensorflow(batch=4, resize=(2, 2), pad=2)  # an object a record: none is a list


def test_replaced_shard_is_error_at_once(tmp_path):
    split = split_of(tmp_path, "classification")
    split_of(tmp_path, "classification", RECORDS - 1)
    with pytest.raises(RecordError, match="bytes, but its manifest says"):
        split.tensorflow()
    assert len(ids(split[:2].tensorflow())) == 2


def test_page_parses_records_by_its_own_program(tmp_path, monkeypatch):
    split = split_of(tmp_path, "detection")
    page = (Path(__file__).parents[2] / "docs" / "reading.md").read_text()
    program = (
        "    spec = recordmill.parse_spec" + page.split("    spec = recordmill.parse_spec")[1].split("\n\nThe ")[0]
    )
    monkeypatch.chdir(tmp_path)

    class Data(dict):
        manifest = split._contents

    variables = {"recordmill": recordmill, "tf": tf, "data": Data(train=split)}
    exec(dedent(program).replace("out/", ""), variables)
    for (image, target), arrays in zip(variables["examples"], split, strict=True):
        assert image.shape == arrays["image"].shape
        np.testing.assert_array_equal(target["boxes"], arrays["boxes"])
        np.testing.assert_array_equal(target["labels"], arrays["labels"])
