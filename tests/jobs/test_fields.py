"""Fields of each format from its files to the readers, compared with what json, csv and xml.etree read."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import recordmill
from tests.conftest import draw_jpeg, examples_by_name, manifest_of

Row = tuple[str, dict[str, Any], list[dict[str, Any]]]
"""Name of an image, its fields, and those of its objects."""
MISSING = {"i": -1, "f": np.nan, "S": b"", "O": b""}


def shape(label: str, **more: object) -> dict:
    return {"label": label, "points": [[10, 6], [20, 24]], "shape_type": "rectangle", **more}


def rectangle(id_: str, **more: object) -> dict:
    box = {"x": 25, "y": 20, "width": 25, "height": 60, "rotation": 0}
    return {"id": id_, "original_width": 40, "original_height": 30, **more, "value": box | more["value"]}


LABELME = {
    f"{name}.json": {
        "shapes": [shape("cat", flags={"far": name == "1"}, score=0.5), shape("dog", flags={"far": False})],
        "imagePath": f"{name}.jpg",
        "imageData": None,
        "imageWidth": 40,
        "imageHeight": 30,
        "weather": weather,
    }
    for name, weather in (("1", "sun"), ("2", "fög"))
}
VIA = {
    name: {
        "filename": name,
        "regions": [
            {
                "shape_attributes": {"name": "rect", "x": 10, "y": 6, "width": 10, "height": 18},
                "region_attributes": {"kind": "cat", "age": str(age), "colour": {"red": age == 3, "grey": True}},
            }
            for age in ages
        ],
        "file_attributes": {"place": f"place of {name}"},
    }
    for name, ages in (("1.jpg", [3, 4]), ("2.jpg", [5]))
}
CREATEML = [
    {
        "image": name,
        "verified": name == "1.jpg",
        "annotations": [
            {"label": "cat", "confidence": confidence, "coordinates": {"x": 15, "y": 15, "width": 10, "height": 18}}
            for confidence in (0.25, 1)
        ],
    }
    for name in ("1.jpg", "2.jpg")
]
LABELSTUDIO = [
    {
        "data": {"image": f"/data/local-files/?d={name}", "place": "sea"},
        "annotations": [
            {
                "lead_time": 1.5,
                "result": [
                    rectangle("a", type="rectanglelabels", score=0.5, value={"rectanglelabels": ["cat"]}),
                    rectangle("a", type="choices", from_name="colour", value={"choices": ["red", "grey"][:number]}),
                    {"id": "n", "type": "number", "from_name": "age", "value": {"number": number}},
                ],
            }
        ],
    }
    for number, name in ((1, "1.jpg"), (2, "2.jpg"))
]
VERTEX = [
    {
        "imageGcsUri": name,
        "boundingBoxAnnotations": [
            {"displayName": "cat", "xMin": 0.25, "yMin": 0.2, "xMax": 0.5, "yMax": 0.8}
            | {"annotationResourceLabels": {"colour": colour}}
        ],
        "dataItemResourceLabels": {"place": f"place {colour}"},
    }
    for name, colour in (("1.jpg", "red"), ("2.jpg", "grey"))
]
IMAGEFOLDER = [
    {
        "file_name": name,
        "date": f"2026-01-0{number}",
        "objects": {"bbox": [[10, 6, 10, 18]] * number, "category": ["cat"] * number, "score": [0.5, 0.25][:number]},
    }
    for number, name in ((1, "1.jpg"), (2, "2.jpg"))
]
BOX = "<bndbox><xmin>10</xmin><ymin>6</ymin><xmax>20</xmax><ymax>24</ymax></bndbox>"
ATTRIBUTE = "<attributes><attribute><name>age</name><value>{}</value></attribute></attributes>"
VOC = {
    f"{number}.xml": f"<annotation><folder>f{number}</folder>"
    f"<object><name>cat</name><occluded>{number}</occluded>{ATTRIBUTE.format(number + 0.5)}{BOX}</object>"
    f"<object><name>dog</name>{BOX}</object></annotation>"
    for number in (1, 2)
}
CVAT_BOX = '<box label="cat" occluded="{0}" z_order="{0}" xtl="10" ytl="6" xbr="20" ybr="24">{1}</box>'
CVAT_FLAG = '<attribute name="far">{}</attribute>'
CVAT = "<annotations>{}</annotations>".format(
    "".join(
        f'<image id="{number}" name="{number}.jpg" width="40" height="30">'
        f"{CVAT_BOX.format(number - 1, CVAT_FLAG.format(('true', 'false')[number - 1]))}{CVAT_BOX.format(0, '')}"
        f'<tag label="day"><attribute name="hour">{number}</attribute></tag></image>'
        for number in (1, 2)
    )
)
HEAD = "filename,width,height,class,xmin,ymin,xmax,ymax,score,colour\n"
TFCSV = f"{HEAD}1.jpg,40,30,cat,10,6,20,24,0.5,red\n1.jpg,40,30,cat,10,6,20,25,1,\n2.jpg,40,30,cat,10,6,20,24,,007\n"
OPEN = "ImageID,LabelName,XMin,XMax,YMin,YMax,IsOccluded,Confidence\n1,cat,0.25,0.5,0.2,0.8,1,0.5\n2,cat,0,1,0,1,0,1\n"


def of_labelme(data: Path) -> Iterator[Row]:
    for file in (json.loads(path.read_text()) for path in data.glob("*.json")):
        objects = [{"flags.far": int(one["flags"]["far"]), "score": one.get("score")} for one in file["shapes"]]
        yield file["imagePath"], {"weather": file["weather"]}, objects


def of_via(data: Path) -> Iterator[Row]:
    for name, image in json.loads((data / "via.json").read_text()).items():
        given = [region["region_attributes"] for region in image["regions"]]
        objects = [
            {"region_attributes.age": int(one["age"]), "region_attributes.colour.red": int(one["colour"]["red"])}
            for one in given
        ]
        yield name, {"file_attributes.place": image["file_attributes"]["place"]}, objects


def of_createml(data: Path) -> Iterator[Row]:
    for image in json.loads((data / "a.json").read_text()):
        objects = [{"confidence": one["confidence"]} for one in image["annotations"]]
        yield image["image"], {"verified": int(image["verified"])}, objects


def of_labelstudio(data: Path) -> Iterator[Row]:
    for task in json.loads((data / "a.json").read_text()):
        (annotation,) = task["annotations"]
        box, choices, number = annotation["result"]
        of_image = {"age": number["value"]["number"], "lead_time": annotation["lead_time"], "data.place": "sea"}
        objects = [{"score": box["score"], "colour": choices["value"]["choices"]}]
        yield task["data"]["image"].partition("d=")[2], of_image, objects


def of_vertex(data: Path) -> Iterator[Row]:
    for line in map(json.loads, (data / "a.jsonl").read_text().splitlines()):
        (box,) = line["boundingBoxAnnotations"]
        objects = [{"annotationResourceLabels.colour": box["annotationResourceLabels"]["colour"]}]
        place = line["dataItemResourceLabels"]["place"]
        yield line["imageGcsUri"], {"dataItemResourceLabels.place": place}, objects


def of_imagefolder(data: Path) -> Iterator[Row]:
    for row in map(json.loads, (data / "metadata.jsonl").read_text().splitlines()):
        yield row["file_name"], {"date": row["date"]}, [{"score": score} for score in row["objects"]["score"]]


def of_imagefolder_csv(data: Path) -> Iterator[Row]:
    for row in csv.DictReader((data / "metadata.csv").read_text().splitlines()):
        objects = [{"score": score} for score in json.loads(row["objects"])["score"]]
        yield row["file_name"], {"number": int(row["number"]), "date": row["date"]}, objects


def of_voc(data: Path) -> Iterator[Row]:
    for path in data.glob("*.xml"):
        root = ElementTree.parse(path).getroot()
        texts = [(one.findtext("occluded"), one.findtext("attributes/attribute/value")) for one in root.iter("object")]
        objects = [{"occluded": flag and int(flag), "attributes.age": age and float(age)} for flag, age in texts]
        yield f"{path.stem}.jpg", {"folder": root.findtext("folder")}, objects


def of_cvat(data: Path) -> Iterator[Row]:
    for image in ElementTree.parse(data / "annotations.xml").getroot():
        objects = []
        for box in image.iter("box"):
            flag = box.findtext("attribute")
            objects.append({"occluded": int(box.get("occluded")), "attributes.far": flag and int(flag == "true")})
        yield (
            image.get("name"),
            {"tags.day.hour": int(image.findtext("tag/attribute")), "id": int(image.get("id"))},
            objects,
        )


def of_tfcsv(data: Path) -> Iterator[Row]:
    rows = [*csv.DictReader((data / "a.csv").read_text().splitlines())]
    for name in ("1.jpg", "2.jpg"):
        own = [row for row in rows if row["filename"] == name]
        yield name, {}, [{"score": float(row["score"] or "nan"), "colour": row["colour"]} for row in own]


def of_openimages(data: Path) -> Iterator[Row]:
    for row in csv.DictReader((data / "train-annotations-bbox.csv").read_text().splitlines()):
        objects = [{"IsOccluded": int(row["IsOccluded"]), "Confidence": float(row["Confidence"])}]
        yield f"{row['ImageID']}.jpg", {}, objects


def of_yolo(data: Path) -> Iterator[Row]:
    for path in data.glob("*[0-9].txt"):
        lines = [line.split() for line in path.read_text().splitlines()]
        yield (
            f"{path.stem}.jpg",
            {},
            [dict(zip(("score", "track_id"), map(float, line[5:]), strict=False)) for line in lines],
        )


def lines_of(rows: list[object]) -> str:
    return "\n".join(map(json.dumps, rows))


YOLO = {"classes.txt": "cat\n", "1.txt": "0 .5 .5 .2 .2 0.25 7\n0 .5 .5 .2 .3 0.5\n", "2.txt": "0 .5 .5 .2 .2\n"}
IMAGEFOLDER_CSV = "file_name,number,date,objects\n" + "".join(
    '{},{},{},"{}"\n'.format(row["file_name"], 7, row["date"], json.dumps(row["objects"]).replace('"', '""'))
    for row in IMAGEFOLDER
)
FORMATS: dict[str, tuple[str, dict[str, object], str, Any]] = {
    "labelme": ("labelme", LABELME, "flags.far,score,image.weather", of_labelme),
    "via": (
        "via --class-attribute kind",
        {"via.json": VIA},
        "region_attributes.age,region_attributes.colour.red,file_attributes.place",
        of_via,
    ),
    "createml": ("createml", {"a.json": CREATEML}, "confidence,image.verified", of_createml),
    "labelstudio": (
        "labelstudio",
        {"a.json": LABELSTUDIO},
        "score,colour,image.age,image.lead_time,image.data.place",
        of_labelstudio,
    ),
    "vertex": (
        "vertex",
        {"a.jsonl": lines_of(VERTEX)},
        "annotationResourceLabels.colour,dataItemResourceLabels.place",
        of_vertex,
    ),
    "imagefolder": ("imagefolder", {"metadata.jsonl": lines_of(IMAGEFOLDER)}, "date,objects.score", of_imagefolder),
    "imagefolder csv": (
        "imagefolder",
        {"metadata.csv": IMAGEFOLDER_CSV},
        "number,date,objects.score",
        of_imagefolder_csv,
    ),
    "voc": ("voc", VOC, "occluded,attributes.age,image.folder", of_voc),
    "cvat": ("cvat", {"annotations.xml": CVAT}, "occluded,attributes.far,image.tags.day.hour,image.id", of_cvat),
    "tfcsv": ("tfcsv", {"a.csv": TFCSV}, "score,colour", of_tfcsv),
    "openimages": ("openimages", {"train-annotations-bbox.csv": OPEN}, "IsOccluded,Confidence", of_openimages),
    "yolo": ("yolo", YOLO, "score,track_id", of_yolo),
}


@pytest.mark.parametrize("name", FORMATS)
def test_fields_of_a_format(name, tmp_path, recordmill):
    format_, files, fields, oracle = FORMATS[name]
    data = tmp_path / "data"
    done = recordmill(*write_format(tmp_path, format_, files), "--fields", fields)
    assert done.code == 0, done
    read = {example["file_name"].decode(): example for example in records_of(tmp_path / "out")}
    expected = {image: (of_image, objects) for image, of_image, objects in oracle(data)}
    assert read.keys() == expected.keys()
    for image, (of_image, objects) in expected.items():
        for path, value in of_image.items():
            assert_equal(read[image][path], value)
        for path in {path for _, rows in expected.values() for row in rows for path in row}:
            for stored, row in zip(values_of(read[image], path), objects, strict=True):
                assert_equal(stored, row.get(path))
    (split,) = manifest_of(tmp_path / "out")["splits"].values()
    assert not unwritten_fields(split) & {*fields.split(",")}


UNNAMED = {"image.folder", "image.id"}
"""Fields that nearly every file of the format has."""


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "yolo"])
def test_fields_that_are_not_written_are_named(name, tmp_path, recordmill):
    format_, files, fields, _ = FORMATS[name]
    assert recordmill(*write_format(tmp_path, format_, files)).code == 0
    (split,) = manifest_of(tmp_path / "out")["splits"].values()
    assert {*fields.split(",")} - UNNAMED <= unwritten_fields(split)


def unwritten_fields(split: dict[str, Any]) -> set[str]:
    """Return the names that warnings tell to add."""
    return {name for text in split["warnings"] for name in text.partition("Add --fields ")[2].split(",") if name}


def write_format(folder: Path, format_: str, files: dict[str, object]) -> tuple[object, ...]:
    """Write a data set, and return the command that converts it."""
    data = folder / "data"
    for number in (1, 2):
        draw_jpeg(data / f"{number}.jpg", colour=(number * 40, 0, 0))
    for file, contents in files.items():
        (data / file).write_text(contents if isinstance(contents, str) else json.dumps(contents))
    return "convert", data, "--format", *format_.split(), "--output", folder / "out"


@pytest.mark.parametrize("choice", ["objects.all,objects.none", "all"])
def test_columns_with_the_names_of_words(choice, tmp_path, recordmill):
    table = "filename,width,height,class,xmin,ymin,xmax,ymax,none,all\n1.jpg,40,30,cat,1,1,20,20,3,4\n"
    command = write_format(tmp_path, "tfcsv", {"a.csv": table})
    assert recordmill(*command).code == 0
    (split,) = manifest_of(tmp_path / "out")["splits"].values()
    assert unwritten_fields(split) == {"objects.all", "objects.none"}
    assert recordmill(*command, "--overwrite", "--fields", choice).code == 0
    (example,) = (one for one in examples_by_name(tmp_path / "out").values() if one["image/object/area"])
    assert (example["image/object/none"], example["image/object/all"]) == ([3], [4])


def records_of(folder: Path) -> list[dict[str, Any]]:
    data = recordmill.open(folder)
    return [example for split in data for example in data[split]]


def values_of(example: dict[str, Any], path: str) -> Any:
    """Return the value of each object."""
    if path in example:
        return example[path]
    ends = np.cumsum(example[f"{path}/ragged_row_lengths_0"])
    return np.split(example[f"{path}/ragged_flat_values"], ends[:-1])


def assert_equal(stored: Any, value: Any) -> None:
    """Compare a stored value with that of the source; None is a missing value."""
    array = np.asarray(stored)
    if value is None:
        np.testing.assert_array_equal(array, MISSING[array.dtype.kind])
    elif isinstance(value, list):
        assert [item.decode() for item in array.tolist()] == value
    elif isinstance(value, str):
        assert stored.decode() == value
    else:
        np.testing.assert_allclose(float(stored), value)


def write_yolo(folder: Path) -> tuple[object, ...]:
    draw_jpeg(folder / "data" / "1.jpg")
    for name, text in {"classes.txt": "cat", "1.txt": "0 .5 .5 .2 .2 3\n0 .5 .5 .2 .4\n"}.items():
        (folder / "data" / name).write_text(text)
    return "convert", folder / "data", "--format", "yolo", "--output", folder / "out"


def test_a_sixth_number_that_is_not_read_is_counted(tmp_path, recordmill):
    done = recordmill(*write_yolo(tmp_path))
    assert done.code == 0, done
    assert "six numbers, whose sixth is not read: 1 ('1.jpg')" in " ".join(done.out.split())
    (example,) = examples_by_name(tmp_path / "out").values()
    assert example["image/object/area"] == pytest.approx([48, 96])
    assert "image/object/score" not in example


@pytest.mark.parametrize(
    ("fields", "text"), [("all", "score or track_id"), ("score", "Is it a track_id?"), ("hue", "score or track_id")]
)
def test_fields_that_yolo_does_not_have(fields, text, tmp_path, recordmill):
    done = recordmill(*write_yolo(tmp_path), "--fields", fields)
    assert done.code == 2
    assert text in done.err


def test_rows_of_an_image_share_its_fields(tmp_path, recordmill):
    draw_jpeg(tmp_path / "data" / "1.jpg")
    labels: list[dict] = [{"place": "sea"}, {"place": "lake", "hour": "7"}]
    rows = [{"imageGcsUri": "1.jpg", "dataItemResourceLabels": own} for own in labels]
    (tmp_path / "data" / "a.jsonl").write_text(lines_of(rows))
    command = ("convert", tmp_path / "data", "--format", "vertex", "--output", tmp_path / "out")
    fields = "--fields", "dataItemResourceLabels.place,dataItemResourceLabels.hour"
    done = recordmill(*command, *fields, "--allow-empty")
    assert done.code == 0, done
    (example,) = records_of(tmp_path / "out")
    values = [example[f"dataItemResourceLabels.{name}"] for name in ("place", "hour")]
    assert values == [b"sea", 7]
