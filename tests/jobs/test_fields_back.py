"""Open fields of a data set in show, verify and extract."""

import json
from pathlib import Path

import numpy as np
import pytest

from recordmill.schemas.dataset.manifest import decode_manifest
from recordmill.transforms.containers.tfrecord import open_records
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.records.parse_record import parse_example
from tests.conftest import CATEGORIES, annotation, convert, draw_jpeg, image_row, shard_bytes, write_coco
from tests.transforms.show.records import framed

IMAGE_FIELDS = [
    {"license": 3, "camera": {"exposure": 0.1, "name": "é"}, "days": [1, 2]},
    {"camera": {"exposure": 2.0}, "days": [3]},
    {"license": 4, "date_captured": "2020-01-02"},
]
OBJECT_FIELDS = [
    {
        "score": 0.1,
        "attributes": {"occluded": True, "color": "red"},
        "embedding": [0.5, 0.25, 1.0],
        "pair": [7, 8],
        "names": ["x", "y"],
    },
    {"attributes": {"occluded": False}, "words": ["a", "b c"]},
    {"score": 1.0, "attributes": {"color": "dark blue", "rank": 5}, "embedding": [0.125], "words": ["d"]},
    {"flags": {"far": True, "hidden": False}, "pair": [9, 10], "license": 1, "names": ["z", ""]},
]
FIELDS = "all"


@pytest.fixture
def document(tmp_path) -> dict:
    return document_with_fields(tmp_path)


def document_with_fields(folder: Path) -> dict:
    """Draw images, and return the contents of their COCO file."""
    rows = []
    for number, fields in enumerate(IMAGE_FIELDS, 1):
        draw_jpeg(folder / "images" / f"{number}.jpg", colour=(number * 40, 0, 0))
        rows.append(image_row(number, f"{number}.jpg") | fields)
    annotations = [annotation(number, 1 + number // 3) | own for number, own in enumerate(OBJECT_FIELDS, 1)]
    return {"images": rows, "annotations": annotations, "categories": CATEGORIES}


@pytest.fixture
def out(document, tmp_path, recordmill) -> Path:
    assert convert(recordmill, tmp_path, write_coco(tmp_path, **document), "--fields", FIELDS).code == 0
    return tmp_path / "out"


def rows_of(path: Path, part: str) -> list[dict]:
    return sorted(json.loads(path.read_text())[part], key=lambda row: row["id"])


@pytest.mark.parametrize("layout", ["detection", "tfds", "keras"])
def test_coco_comes_back(layout, document, tmp_path, recordmill):
    """Fields are where they were, and the records of what comes back have the same bytes."""
    flags = "--fields", FIELDS, "--layout", layout, *(["--num-shards", 1] if layout != "keras" else [])
    if layout == "keras":  # which has no records of images without objects
        document["images"].pop()
    instances = write_coco(tmp_path, **document)
    renamed = ["--rename", "license=image_license"] if layout == "tfds" else []
    assert convert(recordmill, tmp_path, instances, *flags, *renamed).code == 0
    done = recordmill("extract", tmp_path / "out", tmp_path / "dir")
    assert done.code == 0, done
    back = tmp_path / "dir" / "annotations" / "instances_train.json"
    assert rows_of(back, "annotations") == [
        row | ({"area": int(row["area"])} if layout == "tfds" else {}) for row in document["annotations"]
    ]
    assert rows_of(back, "images") == document["images"]
    images = tmp_path / "dir" / "images" / "train"
    again = "--images", images, "--instances", back, "--output", tmp_path / "again", *flags, *renamed
    assert recordmill("convert", *again, "--name", "coco").code == 0
    assert [*shard_bytes(tmp_path / "again").values()] == [*shard_bytes(tmp_path / "out").values()]


def test_names_that_coco_has(tmp_path, recordmill):
    """CVAT's id of an image is not COCO's."""
    draw_jpeg(tmp_path / "data" / "1.jpg")
    box = '<box label="cat" occluded="1" xtl="10" ytl="6" xbr="20" ybr="24"/>'
    image = f'<image id="70" name="1.jpg" width="40" height="30">{box}</image>'
    (tmp_path / "data" / "annotations.xml").write_text(f"<annotations>{image}</annotations>")
    flags = "--format", "cvat", "--output", tmp_path / "out", "--fields", "image.id,occluded"
    assert recordmill("convert", tmp_path / "data", *flags).code == 0
    done = recordmill("extract", tmp_path / "out", tmp_path / "dir")
    assert "fields with the name of another value of the file: image.id" in " ".join(done.out.split())
    file = tmp_path / "dir" / "annotations" / "instances_train.json"
    assert [row["occluded"] for row in rows_of(file, "annotations")] == [1]
    assert "id" in rows_of(file, "images")[0]


def test_classes_of_images_come_back(tmp_path, recordmill):
    for name in ("1.jpg", "2.jpg"):
        draw_jpeg(tmp_path / "images" / name, colour=(50 * int(name[0]), 0, 0))
    labels = 'path,label,place,hour,is_new\n1.jpg,cat,"a, b",7,true\n2.jpg,dog,,,false\n'
    (tmp_path / "labels.csv").write_text(labels)
    flags = "--format", "folder", "--fields", "place,hour,is_new", "--num-shards", 1, "--name", "coco"
    images = tmp_path / "images", "--labels", tmp_path / "labels.csv"
    assert recordmill("convert", *images, *flags, "--output", tmp_path / "out").code == 0
    assert recordmill("extract", tmp_path / "out", tmp_path / "dir").code == 0
    back = tmp_path / "dir" / "annotations" / "labels_train.csv"
    head, *lines = back.read_text().splitlines()
    expected = ["path,label,split,hour,is_new,place", '1.jpg,cat,train,7,true,"a, b"', "2.jpg,dog,train,,false,"]
    assert [head, *sorted(lines)] == expected
    images = tmp_path / "dir" / "images" / "train", "--labels", back
    assert recordmill("convert", *images, *flags, "--output", tmp_path / "again").code == 0
    assert shard_bytes(tmp_path / "again") == shard_bytes(tmp_path / "out")


@pytest.mark.parametrize(
    ("format_", "lost"),
    [
        ("yolo", ["field image.license 2", "field image.camera.exposure 2", "field score 2", "field words 2"]),
        ("voc", ["field attributes.occluded 2", "field flags.far 1", "field image.days 2"]),
        ("labelme", []),
        ("hf", []),
    ],
)
def test_formats_say_what_they_do_not_hold(format_, lost, out, tmp_path, recordmill):
    done = recordmill("extract", out, tmp_path / "dir", "--as", format_)
    assert done.code == 0
    line = " ".join(done.out.split())
    assert [text for text in lost if text not in line] == []
    assert ("field " in line) == bool(lost)


def test_labelme_comes_back(out, tmp_path, recordmill):
    assert recordmill("extract", out, tmp_path / "dir", "--as", "labelme").code == 0
    (shape,) = json.loads((tmp_path / "dir" / "train" / "2.json").read_text())["shapes"][1:]
    assert shape["flags"] == {"far": True, "hidden": False}
    names = "score,attributes.occluded,attributes.color,flags.far,embedding,image.camera.exposure,image.license,words"
    assert_same_fields(out, tmp_path / "dir" / "train", "labelme", names, recordmill)


def test_hugging_face_comes_back(out, tmp_path, recordmill):
    assert recordmill("extract", out, tmp_path / "dir", "--as", "hf").code == 0
    lines = (tmp_path / "dir" / "train" / "metadata.jsonl").read_text().splitlines()
    first, *_ = sorted(map(json.loads, lines), key=lambda line: line["file_name"])
    assert (first["license"], first["camera.exposure"], first["date_captured"]) == (3, 0.1, None)
    assert first["objects"]["attributes.occluded"] == [True, False]
    names = "objects.score,objects.attributes.occluded,objects.attributes.color,objects.words,camera.exposure,license"
    assert_same_fields(out, tmp_path / "dir" / "train", "imagefolder", names, recordmill)


def assert_same_fields(out: Path, data: Path, format_: str, names: str, recordmill) -> None:
    """The fields of a conversion of what was extracted have the values of the data set."""
    import recordmill as library

    again = out.parent / "again"
    done = recordmill("convert", data, "--format", format_, "--fields", names, "--output", again)
    assert done.code == 0, done
    old, new = (
        {example["file_name"]: example for example in library.open(folder)["train"].numpy()} for folder in (out, again)
    )
    paths = [name.removeprefix("image.").removeprefix("objects.") for name in names.split(",")]
    for file_name, example in new.items():
        before = old[file_name]
        for path in paths:
            stored = example[path] if path in example else example[f"image.{path}"]
            name = f"image.{path}" if path == "license" else path
            assert str(stored) == str(before[name]), (path, file_name)


@pytest.mark.parametrize(
    ("choice", "files"),
    [
        ("attributes.color=red", ["1.jpg"]),
        ("attributes.color=dark blue", ["2.jpg"]),
        ("score=1", ["2.jpg"]),
        ("score=0.10", ["1.jpg"]),
        ("attributes.occluded=false", ["1.jpg"]),
        ("attributes.rank=5", ["2.jpg"]),
        ("image.license=4", ["3.jpg"]),
        ("license=1", ["2.jpg"]),
        ("image.camera.name=é", ["1.jpg"]),
        ("camera.exposure=2", ["2.jpg"]),
        ("words=d", ["2.jpg"]),
        ("embedding=0.25", ["1.jpg"]),
        ("image.days=3", ["2.jpg"]),
        ("image/object/pair=10", ["2.jpg"]),
    ],
)
def test_find(choice, files, out, recordmill):
    done = recordmill("show", out, "--find", choice, "--json", "--count", 9)
    assert done.code == 0, done
    assert [record["ids"][-1] for record in json.loads(done.out)["records"]] == files


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ("attributes.color=green", "none of 3 records in 1 file has this value"),
        ("attributes.colour=red", "the nearest feature is attributes.color"),
    ],
)
def test_find_nothing(choice, text, out, recordmill):
    done = recordmill("show", out, "--find", choice)
    assert done.code == 2
    assert text in " ".join(done.err.split())


def test_show(out, recordmill, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lines = recordmill("show", out, "--id", "1.jpg").out.splitlines()
    shown = {line.split()[0]: line for line in lines if line.startswith("image/")}
    expected = {
        "image/license": "3",
        "image/date_captured": "(missing)",
        "image/days": "[1, 2]",
        "image/object/score": "float [N]",
        "image/object/attributes/occluded": "[2] true, false",
        "image/object/attributes/color": "[2] red, (missing)",
        "image/object/embedding": "[2] [0.5, 0.25, 1], (missing)",
        "image/object/words": "[2] (missing), [a, b c]",
        "image/object/pair": "[2] [7, 8], (missing)",
    }
    assert {name: text for name, text in expected.items() if text not in shown[name]} == {}
    assert not any("ragged" in line for line in lines)


def test_verify_reports_damaged_record(out, recordmill):
    """A shard that was written again, with another number of values."""
    assert recordmill("verify", out).code == 0
    (shard,) = out.glob("*.tfrecord-*")
    key, table = "image/object/score", decode_manifest((out / "manifest.json").read_bytes(), "manifest.json").table
    first, *others = open_records(str(shard), is_shard=True)
    features = parse_example(first)
    sources = {feature.source: np.array(features[feature.name][1], object) for feature in table.features}
    values = {
        feature.source: [*sources[feature.source], *([0.5] if feature.name == key else [])]
        if feature.is_list
        else sources[feature.source][0]
        for feature in table.features
    }
    shard.write_bytes(framed(ExampleWriter(table).write(values), *others))
    done = recordmill("verify", out)
    assert done.code == 1
    assert "'objects.field:score': 3.0" in done.out + done.err
