"""Data sets that commit 92be177e wrote: difficult, truncated, view and track_id were no fields then."""

import json
import zipfile
from pathlib import Path

import pytest

import recordmill as reader
from recordmill.schemas.layouts import KERAS
from recordmill.transforms.records.parse_record import parse_example

ARCHIVE = Path(__file__).with_name("data_sets_of_92be177e.zip")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["old_voc", "old_cvat"])
def test_intact(folder, recordmill, name):
    assert recordmill("verify", name, "--check", "decode").code == 0


def test_readers(folder):
    first, second = reader.open("old_voc")["train"]
    assert [first[name].tolist() for name in ("difficult", "truncated", "view")] == [[1], [1], [b"Left"]]
    assert [second[name].tolist() for name in ("difficult", "truncated", "view")] == [[0], [0], [b""]]
    assert [record["track_id"].tolist() for record in reader.open("old_cvat")["train"]] == [[7], [7]]


def test_extracted_values(folder, recordmill):
    assert recordmill("extract", "old_voc", "x").code == 0
    first, second = json.loads((folder / "x" / "annotations" / "instances_train.json").read_text())["annotations"]
    names = ("difficult", "truncated", "view")
    assert ([first[name] for name in names], {*names} & second.keys()) == ([1, 1, "Left"], set())
    assert recordmill("extract", "old_voc", "y", "--as", "voc").code == 0
    text = (folder / "y" / "Annotations" / "train" / "JPEGImages" / "0.xml").read_text()
    assert "<pose>Left</pose><truncated>1</truncated><difficult>1</difficult>" in text


@pytest.mark.parametrize("name", ["voc", "cvat"])
def test_further_splits(folder, recordmill, name):
    (folder / name).rename("more")
    added = recordmill("convert", "more", "--split", "val", "--output", f"old_{name}")
    assert added.code == 0, added.err
    assert recordmill("verify", f"old_{name}").code == 0
    train, val = (reader.open(f"old_{name}")[split].read([0, 1]) for split in ("train", "val"))
    assert train == val


def test_further_split_without_such_values(folder, recordmill):
    """Its records have the keys of the data set."""
    (folder / "cvat").rename("more")
    (folder / "more" / "annotations.xml").write_text(
        '<annotations><image id="0" name="frame_000000.png" width="8" height="8">'
        '<box label="cat" xtl="1" ytl="1" xbr="5" ybr="5"/></image></annotations>'
    )
    added = recordmill("convert", "more", "--split", "val", "--output", "old_cvat")
    assert added.code == 0, added.err
    assert reader.open("old_cvat")["val"][0]["track_id"].tolist() == [-1]


@pytest.mark.parametrize("name", ["voc", "cvat"])
def test_none_leaves_well_known_fields_out(folder, recordmill, name):
    for flags, number in (((), 1), (("--fields", "none"), 0)):
        out = f"out{number}"
        assert recordmill("convert", name, "--output", out, *flags).code == 0
        known = {"difficult", "truncated", "view"} if name == "voc" else {"track_id"}
        assert len(known & reader.open(out)["train"][0].keys()) == len(known) * number
    assert recordmill("verify", "out0", "--check", "decode").code == 0


@pytest.mark.parametrize(
    ("name", "flags", "stored", "warning"),
    [
        ("voc", (), set(), "difficult, truncated, view. Add --fields difficult,truncated,view"),
        ("voc", ("--fields", "view"), {"view"}, "difficult, truncated. Add --fields difficult,truncated"),
        ("voc", ("--fields", "all"), {"difficult", "truncated", "view"}, ""),
        ("cvat", ("--fields", "all"), {"attributes/colour", "frame", "occluded", "track_id"}, ""),
        ("voc", ("--fields", "none"), set(), ""),
    ],
)
def test_layout_without_such_keys(folder, recordmill, name, flags, stored, warning):
    assert recordmill("convert", name, "--output", "out", "--layout", "keras", *flags).code == 0
    record = parse_example(reader.open("out")["train"].raw(0))
    usual = {feature.name for feature in KERAS.with_parts(()).features}
    assert {key for key in record if key not in usual and not key.startswith("image_")} == stored
    warnings = json.loads(Path("out/manifest.json").read_text())["splits"]["train"]["warnings"]
    assert [text for text in warnings if "no feature" in text] == (
        [f"the layout keras has no feature for {warning}"] if warning else []
    )
