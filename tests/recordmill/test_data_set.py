import json
import os
from pathlib import Path

import msgspec
import pytest

import recordmill
from recordmill.schemas.dataset.manifest import FORMAT, Manifest
from recordmill.schemas.errors import RecordError
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.problems import SplitProblems
from recordmill.schemas.sizes import printable
from tests.gcs_stand_in import Fault, Kind
from tests.transforms.shards.test_describe_split import SPLIT


@pytest.fixture
def out(tmp_path, copy_converted) -> Path:
    """A data set of three shards."""
    copy_converted(tmp_path / "out", "--num-shards", 3)
    return tmp_path / "out"


def test_not_a_data_set(tmp_path, out):
    with pytest.raises(recordmill.ConfigError, match="no such folder"):
        recordmill.open(str(tmp_path / "none"))
    with pytest.raises(recordmill.ConfigError, match=f"^~/x: no such folder: .* give {Path.home()}/x"):
        recordmill.open("~/x")
    with pytest.raises(recordmill.ConfigError, match=r"has no manifest\.json"):
        recordmill.open(str(tmp_path))
    with pytest.raises(recordmill.ConfigError, match="no split 'test'; it has train"):
        recordmill.open(out)["test"]


def test_public_names(out):
    data = recordmill.open(out)
    assert {name for name in dir(data) if not name.startswith("_")} == {
        *("classes", "manifest", "num_classes", "num_labels", "path", "splits"),
    }
    assert {name for name in dir(data["train"]) if not name.startswith("_")} == {
        *("compression", "container", "features", "folder", "name", "shards"),
        *("grain", "numpy", "raw", "read", "repeated", "tensorflow", "torch"),
    }


@pytest.mark.parametrize(
    ("reader", "arguments", "message"),
    [
        ("tensorflow", {"batch_size": 32}, "unknown argument batch_size=32. Did you mean batch=32?"),
        ("tensorflow", {"image_size": 224}, "unknown argument image_size=224. Did you mean resize=(224, 224)?"),
        ("tensorflow", {"drop_last": True}, "unknown argument drop_last=True. Did you mean drop_remainder=True?"),
        ("tensorflow", {"shufle": True}, "unknown argument shufle=True. Did you mean shuffle=True?"),
        (
            "torch",
            {"batch_size": 8, "transforms": None},
            "unknown argument batch_size=8. Write DataLoader(split.torch(), batch_size=8); "
            "unknown argument transforms=None. Did you mean transform=None?",
        ),
        ("torch", {"batch": 8}, "unknown argument batch=8. Write DataLoader(split.torch(), batch_size=8)"),
        ("grain", {"batch": 8}, "unknown argument batch=8. Write grain.MapDataset.source(split.grain()).batch(8)"),
        ("numpy", {"columns": ["image"]}, "unknown argument columns=['image']. Did you mean keys=['image']?"),
        ("numpy", {"copies": 2}, "unknown argument copies=2; the arguments are keys, threads, resize, draft"),
        ("numpy", {"threads": "2"}, "threads='2' must be a number of threads: threads=2"),
    ],
)
def test_unknown_arguments(out, reader, arguments, message):
    with pytest.raises(recordmill.ConfigError) as raised:
        getattr(recordmill.open(out)["train"], reader)(**arguments)
    assert str(raised.value) == f"Split.{reader}: {message}"


def test_splits_are_mapping_and_survive_chdir(tmp_path, out, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = recordmill.open("out")
    assert (list(data), len(data), "train" in data, "test" in data) == (["train"], 1, True, False)
    train = data["train"]
    monkeypatch.chdir(out)
    assert next(iter(train))["image_id"] == train[0]["image_id"] == next(iter(train.tensorflow()))["image_id"]


def test_representations(tmp_path):
    hostile = "</td><script>alert('1')</script>"
    folder = tmp_path / hostile.replace("/", "\u202e")
    folder.mkdir()
    (folder / "report.html").touch()
    splits = {"train": SPLIT, hostile: msgspec.structs.replace(SPLIT, findings={"dark": 3, "thin_boxes": 4})}
    problems = {"train": SplitProblems("", {"leakage": 1000, "blurred": 5})}
    categories = tuple(Category(number, hostile) for number in range(30))
    manifest = Manifest(FORMAT, "coco", "detection", (), categories, (), splits, problems=problems)
    data = recordmill.DataSet(str(folder), manifest, {})
    totals = "30 classes, 8 rejects, 1,012 possible problems, report "
    assert f"train: 8 images, {hostile}: 8 images, {totals}{printable(str(folder))}/report.html)" in repr(data)
    page = data._repr_html_()
    for text in ("train", "8 images", "4 rejects", "1,005 possible problems", "7 possible problems", totals):
        assert text in page
    assert "<script" not in page
    assert "\u202e" not in page
    assert page.count("&lt;script&gt;alert(&#x27;1&#x27;)") == 1 + 2 + 20  # split, folder and page, classes
    assert "and 10 more" in page
    (folder / "report.html").unlink()
    assert "no report.html" in repr(data)


def test_shard_replaced_is_error(out):
    train = recordmill.open(out)["train"]
    path = Path(train.folder, train.shards[0].file)
    os.utime(path, ns=(path.stat().st_mtime_ns + 1,) * 2)
    for read in (lambda: next(iter(train)), lambda: train[0], lambda: train[:1].tensorflow()):
        with pytest.raises(RecordError, match="00000-of-00003 has changed or was deleted since it was opened"):
            read()


def test_shard_truncated_is_error(out):
    train = recordmill.open(out)["train"]
    path = Path(train.folder, train.shards[0].file)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        RecordError, match=r"it is truncated, .*recordmill verify lists all damage, and the same command"
    ):
        recordmill.open(out)["train"][0]


def test_shard_missing_is_error(out):
    path = Path(out, recordmill.open(out)["train"].shards[1].file)
    path.unlink()
    train = recordmill.open(out)["train"]
    for read in (lambda: list(train), lambda: train[12], train.tensorflow):
        with pytest.raises(
            RecordError, match=f"{path}: no such file; recordmill verify lists all damage, and the same"
        ):
            read()


@pytest.fixture
def bucket(out, gcs):
    """A bucket with the data set."""
    for path in filter(Path.is_file, out.rglob("*")):
        gcs.put(f"out/{path.relative_to(out)}", path.read_bytes())
    return gcs


@pytest.mark.usefixtures("bucket")
def test_in_a_bucket(out):
    remote, local = (recordmill.open(path)["train"] for path in ("gs://bucket/out", str(out)))
    assert [int(record["image_id"]) for record in remote] == [int(record["image_id"]) for record in local]
    assert remote.read([20, 3, 4]) == local.read([20, 3, 4])
    with pytest.raises(recordmill.ConfigError, match="no such folder"):
        recordmill.open("gs://bucket/other")


def test_opening_bucket_takes_one_request(bucket):
    before = len(bucket.log)
    assert len(recordmill.open("gs://bucket/out")["train"]) == 22
    assert [call.operation for call in bucket.log[before:]] == ["read"]


@pytest.mark.parametrize("operation", ["stat", "read"])
def test_a_bucket_without_permission(bucket, operation):
    train = recordmill.open("gs://bucket/out")["train"]
    bucket.faults = [Fault(Kind.STATUS, operation, times=1000, status=403)]
    reads = [lambda: train[3], lambda: list(train)]
    # TensorFlow reads by another client.
    reads += [train.tensorflow] if operation == "stat" else [lambda: recordmill.open("gs://bucket/out")]
    for read in reads:
        with pytest.raises(PermissionError, match=r"does not have storage\.objects access.*gs://bucket/out/"):
            read()


def test_features_of_model_have_shape_of_recipe(out):
    path = out / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest |= {"layout": "features", "features": FLOAT16}
    manifest["splits"]["train"]["recipe"] |= {"layout": "features"}
    manifest["splits"]["train"]["recipe"]["options"]["feature_shape"] = ["2", "3", "5"]
    path.write_text(json.dumps(manifest))
    (features,) = recordmill.open(out)["train"].features.values()
    assert (features.dtype, features.static_shape) == ("float16", (2, 3, 5))


FLOAT16 = [
    {"name": "feature", "source": "feature.bytes", "kind": "bytes", "shape": [], "unit": "float16", "meaning": ""},
    {"name": "feature/shape", "source": "feature.shape", "kind": "int64", "shape": ["3"], "unit": "", "meaning": ""},
]
