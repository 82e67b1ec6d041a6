"""Input files of each format, without an encoder of images. Each format has two or more classes, an image without
objects and a name outside ASCII, and most have several splits."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.conftest import CATEGORIES, image_row
from tests.literal_data import csv_rows, jpeg, old_record, png, tfrecord, write_coco_set, write_files

IMAGES = ("1.png", "2.jpg", "ö 3.png", "4.jpg", "5.png", "6.jpg")
"""40x30 pixels each. Formats have no objects in 4.jpg."""


def image(number: int) -> bytes:
    """Return a JPEG for an even number, or else a PNG of a slope. Colours, or a comment, differ by number."""
    y, x = np.mgrid[:30, :40]
    slope = np.stack([x * 6, y * 8, np.full_like(x, number * 20 % 256)], 2).astype(np.uint8)
    return png(slope) if number % 2 else jpeg(number)


def images(*folders: str) -> dict[str, bytes | str]:
    """Return the images as files: the first in the first folder, the second in the second, and so on."""
    return {f"{folders[at % len(folders)]}/{name}": image(at + 1) for at, name in enumerate(IMAGES)}


def lines(*rows: object) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


def write_coco(folder: Path) -> None:
    names = write_coco_set(folder)
    rows = [image_row(number, f"{name}.png") for number, name in enumerate(names)]
    captions = [{"id": id_, "image_id": id_ % 11, "caption": f"a cät, nr. {id_ % 4}"} for id_ in range(25)]
    panoptic = []
    for number in range(0, 12, 2):
        pixels = np.zeros((30, 40, 3), np.uint8)
        pixels[:12, number:] = 1, 0, 0
        pixels[15:, 5:30] = 2, 1, 0
        write_files(folder, {f"segments/{number}.png": png(pixels)})
        of_thing = {"bbox": [number, 0, 40 - number, 12], "area": 12 * (40 - number), "iscrowd": number % 4 // 2}
        of_stuff = {"bbox": [5, 15, 25, 15], "area": 375, "iscrowd": 0}
        segments = [{"id": 1, "category_id": 1, **of_thing}, {"id": 258, "category_id": 7, **of_stuff}]
        panoptic.append({"image_id": number, "file_name": f"{number}.png", "segments_info": segments})
    things = [{**category, "isthing": 1} for category in CATEGORIES]
    kinds = [*things, {"id": 7, "name": "grass", "isthing": 0}]
    files = {
        "captions.json": {"images": rows[:11], "annotations": captions},
        "panoptic.json": {"images": rows, "annotations": panoptic, "categories": kinds},
    }
    write_files(folder, {name: json.dumps(file) for name, file in files.items()})


def write_yolo(folder: Path) -> None:
    labels = {
        "train/labels/1": "0 0.5 0.5 0.5 0.2\n1 .1 .1 .9 .1 .9 .5\n",
        "valid/labels/2": "1 0.9 0.9 0.2 0.2\n",
        "train/labels/ö 3": "1 .2 .2 .4 .2 .4 .7 .2 .9\n1 .2 .2 .4 .2 .4 .7 .2 .9\n0 0.5 0.5\n",
        "valid/labels/4": "",
        "valid/labels/6": "0 0.25 0.5 0.5 1\n",
    }
    write_files(folder, images("train/images", "valid/images"))
    write_files(folder, {f"{name}.txt": text for name, text in labels.items()})
    write_files(folder, {"data.yaml": "train: train/images\nval: valid/images\nnames: {0: cat, 1: 'dög'}\n"})


def write_voc(folder: Path) -> None:
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>13.5</xmax><ymax>40</ymax></bndbox>"
    flags = "<pose>Left</pose><truncated>1</truncated><difficult>1</difficult>"
    cat, dog = f"<object><name>cat</name>{flags}{box}</object>", f"<object><name>dög</name>{box}</object>"
    size = "<size><width>40</width><height>30</height><depth>3</depth></size>"
    objects = {"1": cat + dog, "2": dog, "ö 3": cat + "<object/>", "4": "", "5": dog + dog, "6": cat}
    indices = np.zeros((30, 40), np.uint8)
    indices[3:9, 2:8], indices[12:29, 5:9], indices[11, 5] = 1, 2, 255
    write_files(folder, images("JPEGImages"))
    write_files(folder, {"SegmentationObject/1.png": png(indices, bytes(range(256)) * 3)})
    for stem, texts in objects.items():
        write_files(folder, {f"Annotations/{stem}.xml": f"<annotation>\n{size}\n{texts}\n</annotation>"})
    for split, stems in {"train": ("1", "ö 3", "4"), "val": ("2", "5"), "test": ("6",)}.items():
        write_files(folder, {f"ImageSets/Main/{split}.txt": lines(*stems)})


def write_cvat(folder: Path) -> None:
    shapes = {
        "1.png": """<box label="dög" xtl="0" ytl="0" xbr="20" ybr="30" occluded="1"/><tag label="day"/>
<mask label="cat" rle="1, 2, 1" left="10" top="20" width="2" height="2"/>""",
        "2.jpg": '<polygon label="cat" points="1.5,2;4,2;4,6.25"/><polyline label="cat" points="1,1;2,2"/>',
        "ö 3.png": '<box label="cat" xtl="10" ytl="10" xbr="20" ybr="14" rotation="30"/>',
        "4.jpg": "",
        "5.png": '<points label="nose" points="3,5;7.5,8"/>',
        "6.jpg": '<ellipse label="cat" cx="15" cy="12" rx="5" ry="2" rotation="90"/>',
    }
    rows = []
    for at, (name, text) in enumerate(shapes.items()):
        subset = ("Train", "Validation")[at % 2]
        rows.append(f'<image id="{at}" name="{name}" subset="{subset}" width="40" height="30">{text}</image>')
    subsets = "<meta><project><subsets>Train\nValidation</subsets></project></meta>"
    write_files(folder, images("images"))
    write_files(folder, {"annotations.xml": lines("<annotations>", subsets, *rows, "</annotations>")})


def write_imagefolder(folder: Path) -> None:
    objects = {"bbox": [[5, 5, 10, 10], [0, 0, 60, 10]], "category": [1, 0], "area": [90.5, 200], "iscrowd": [0, 1]}
    write_files(folder, images("train", "validation"))
    for at, split in enumerate(("train", "validation")):
        rows = [{"file_name": name, "objects": objects, "text": f"picture {name}"} for name in IMAGES[at::2]]
        rows[1]["objects"] = {"bbox": [], "category": [], "area": [], "iscrowd": []}
        write_files(folder, {f"{split}/metadata.jsonl": lines(*rows)})


def write_labelme(folder: Path) -> None:
    triangle, corners = [[1, 2], [4, 2], [4, 6]], [[10, 6], [20, 24]]
    shapes = {
        "1": [("cat", triangle, "polygon", 1), ("cat", [[7, 1], [9, 1], [9, 3]], "polygon", 1)],
        "2": [("dög", corners, "rectangle", None), ("__ignore__", corners, "rectangle", None)],
        "ö 3": [("cat", [[15, 15], [15, 18]], "circle", None), ("cat", [[1, 1]], "point", None)],
        "4": [],
        "5": [("dög", [*triangle, [1, 6]], "rotation", None)],
        "6": [("cat", corners[::-1], "rectangle", 3)],
    }
    write_files(folder, images("."))
    for (stem, of_image), name in zip(shapes.items(), IMAGES, strict=True):
        rows = [dict(zip(("label", "points", "shape_type", "group_id"), shape, strict=True)) for shape in of_image]
        file = {"shapes": rows, "imagePath": name, "imageData": None, "imageHeight": 30, "imageWidth": 40}
        write_files(folder, {f"{stem}.json": json.dumps(file)})


def write_via(folder: Path) -> None:
    shapes = [
        {"name": "rect", "x": 1, "y": 2, "width": 3, "height": 4},
        {"name": "polygon", "all_points_x": [1, 4, 4], "all_points_y": [2, 2, 6]},
        {"name": "circle", "cx": 5, "cy": 6, "r": 2},
        None,
        {"name": "ellipse", "cx": 15, "cy": 16, "rx": 3, "ry": 2, "theta": 0.5},
        {"name": "polyline", "all_points_x": [1, 4, 4], "all_points_y": [2, 2, 6]},
    ]
    file = {}
    for at, (name, shape) in enumerate(zip(IMAGES, shapes, strict=True)):
        kinds = ("cat", "dög") if shape else ()
        regions = [{"shape_attributes": shape, "region_attributes": {"kind": kind}} for kind in kinds[: 1 + at % 2]]
        file[f"{name}-1"] = {"filename": name, "size": -1, "regions": regions, "file_attributes": {}}
    write_files(folder, images("."))
    write_files(folder, {"via_export_json.json": json.dumps(file)})


def write_labelstudio(folder: Path) -> None:
    shape = {"x": 25, "y": 20, "width": 25, "height": 60, "rotation": 0}
    triangle = {"points": [[10, 20], [40, 20], [40, 60]], "polygonlabels": ["cat"]}
    ellipse = {"x": 50, "y": 50, "radiusX": 30, "radiusY": 5, "rotation": 90, "ellipselabels": ["dög"]}
    results = [
        [("rectanglelabels", {**shape, "rectanglelabels": ["cat", "dög"]}), ("choices", {"choices": ["day"]})],
        [("polygonlabels", triangle)],
        [("rectanglelabels", {**shape, "rotation": 30, "rectanglelabels": ["cat"]})],
        [],
        [("ellipselabels", ellipse), ("keypointlabels", {"x": 1, "y": 1, "width": 1, "keypointlabels": ["dög"]})],
        [("rectanglelabels", {**shape, "x": 90, "rectanglelabels": ["dög"]})],
    ]
    size = {"original_width": 40, "original_height": 30, "image_rotation": 0}
    tasks = []
    for name, of_image in zip(IMAGES, results, strict=True):
        rows = [{"type": kind, "value": value, **size} for kind, value in of_image]
        tasks.append({"data": {"image": f"/data/local-files/?d={name}"}, "annotations": [{"result": rows}]})
    write_files(folder, images("."))
    write_files(folder, {"project-1-at-2026-01-01.json": json.dumps(tasks)})


def write_createml(folder: Path) -> None:
    write_files(folder, images("train", "valid"))
    for at, split in enumerate(("train", "valid")):
        rows = []
        for number, name in enumerate(IMAGES[at::2]):
            box = {"x": 15 + number, "y": 15, "width": 10.5, "height": 18}
            cats = [{"label": ("cat", "dög")[number % 2], "coordinates": box}, {"label": "cat"}]
            rows.append({"image": name, "annotations": [] if name == "4.jpg" else cats[: 1 + at]})
        write_files(folder, {f"{split}/_annotations.createml.json": json.dumps(rows)})


def write_tfcsv(folder: Path) -> None:
    head = "filename,width,height,class,xmin,ymin,xmax,ymax"
    train = "1.png,40,30,cat,1,2,4,6", "1.png,40,30,dög,0,0,40,30.5", "ö 3.png,,,cat,1,1,2,2", "5.png,40,30,cat,4,2,1,6"
    valid = "2.jpg,40,30,dög,10,6,20,24", "4.jpg,40,30,,,,,", "6.jpg,40,30,cat,10,6,20,24"
    write_files(folder, images("train", "valid"))
    for split, rows in {"train": train, "valid": valid}.items():
        write_files(folder, {f"{split}/_annotations.csv": lines(head, *rows)})


def write_openimages(folder: Path) -> None:
    head = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction"
    train = "1,x,/m/1,1,0.25,0.5,0.5,1,0,1,0,0", "1,x,/m/2,1,0,1,0,1,1,0,1,-1", "ö 3,x,/m/2,1,0,.3,.1,1,0,0,0,0"
    valid = "2,x,/m/2,1,0.1,0.5,0.5,1,0,0,0,0", "4,x,/m/1,1,12,50,0.5,1,0,0,0,0", "6,x,/m/3,1,0.1,0.5,0.5,1,0,0,0,0"
    write_files(folder, {f"images/{Path(name).stem}.jpg": jpeg(at) for at, name in enumerate(IMAGES)})
    write_files(folder, {"class-descriptions-boxable.csv": "/m/1,Cat\n/m/2,Dög\n"})
    for split, rows in {"train": train, "validation": valid}.items():
        write_files(folder, {f"{split}-annotations-bbox.csv": lines(head, *rows)})


def write_vertex(folder: Path) -> None:
    rows = (
        "TRAIN,gs://b/1.png,cat,0.25,0.2,,,0.5,0.8,,",
        "TRAIN,gs://b/1.png,dög,0.5,1,,,0.25,0.5,,",
        "VALIDATION,gs://b/2.jpg,cat,0.25,0.5,0.5,0.5,0.5,1,0.25,1",
        "TRAIN,gs://b/ö 3.png,cat,25,50,,,50,100,,",
        "TEST,gs://b/4.jpg",
        "TEST,gs://b/5.png,dög,0,0,,,1,1,,",
        "VALIDATION,gs://b/6.jpg,dög,0.1,0.2,,,0.3,0.4,,",
    )
    write_files(folder, {**images("images"), "import.csv": lines(*rows)})


def write_ndjson(folder: Path) -> None:
    boxes: dict[str, dict[str, list]] = {
        "1.png": {"boxes": [[0, 0.5, 0.5, 0.5, 0.2], [1, 0.9, 0.9, 0.2, 0.2]]},
        "2.jpg": {"segments": [[1, 0.1, 0.1, 0.9, 0.1, 0.9, 0.5]], "classification": [0]},
        "ö 3.png": {"boxes": [[1, 0.5, 0.5, 0.2, 0.4], [2, 0.5, 0.5, 0.2, 0.4], [0, 0.5]]},
        "4.jpg": {},
        "5.png": {"obb": [[0, 0.2, 0.2, 0.4, 0.2, 0.4, 0.7, 0.2, 0.9]]},
        "6.jpg": {"boxes": [[0, 0.25, 0.5, 0.5, 1]]},
    }
    rows = [
        {
            "type": "image",
            "file": name,
            "width": 40,
            "height": 30,
            "split": ("train", "val")[at % 2],
            "annotations": own,
        }
        for at, (name, own) in enumerate(boxes.items())
    ]
    header = {"type": "dataset", "task": "detect", "name": "set", "class_names": {"0": "cat", "1": "dög"}}
    write_files(folder, {**images("images"), "set.ndjson": lines(header, *rows)})


def write_tfrecord(folder: Path) -> None:
    """Write records of objects and of a class of each image; an image in two records, and a box beyond its image."""
    kinds = ("cat", "dög", "big dog")
    records = [
        old_record(
            number,
            image__object__class__text=kinds[number % 3].encode(),
            image__object__class__label=[number % 3 + 1],
            image__class__text=kinds[number % 2].encode(),
            image__class__label=[number % 2 + 1],
        )
        for number in range(12)
    ]
    records += [
        old_record(0, image__class__text=b"cat", image__class__label=[1]),
        old_record(12, image__object__bbox__xmax=[9.0], image__class__text=b"cat", image__class__label=[1]),
    ]
    write_files(folder, {"train.record": tfrecord(*records[::2]), "val.record": tfrecord(*records[1::2])})


def write_classes(folder: Path) -> None:
    kinds = ("cat", "dög", "big dog")
    names = [f"{kinds[number % 3]}/{number:02}" for number in range(24)]
    write_files(folder, {f"images/{name}.{('jpg', 'png')[at % 2]}": image(at) for at, name in enumerate(names)})
    rows = [
        f"{name}.{('jpg', 'png')[at % 2]},c{at % 4},{('train', 'val')[at % 5 // 4]}" for at, name in enumerate(names)
    ]
    write_files(folder, {"labels.csv": lines("path,label,split", *rows)})


def write_tables(folder: Path) -> None:
    words = ("a cät", "sees", "no dog", "")
    rows = [
        {"id": id_, "part": id_ / 7 if id_ % 5 else None, "text": words[id_ % 4], "sizes": [id_, 2 * id_][: id_ % 3]}
        for id_ in range(40)
    ]
    write_files(folder, {"rows.csv": csv_rows(), "rows.jsonl": lines(*rows)})
    pictures = [{"image": {"bytes": image(at), "path": f"ö{at}"}, "kind": at % 3, "n": at / 3} for at in range(12)]
    pq.write_table(pa.Table.from_pylist(pictures), folder / "rows.parquet", row_group_size=5)


def write_inputs(folder: Path) -> None:
    """Write a folder for each format."""
    for name, write in {
        "coco": write_coco,
        "yolo": write_yolo,
        "voc": write_voc,
        "cvat": write_cvat,
        "imagefolder": write_imagefolder,
        "labelme": write_labelme,
        "via": write_via,
        "labelstudio": write_labelstudio,
        "createml": write_createml,
        "tfcsv": write_tfcsv,
        "openimages": write_openimages,
        "vertex": write_vertex,
        "ndjson": write_ndjson,
        "tfrecord": write_tfrecord,
        "classes": write_classes,
        "tables": write_tables,
    }.items():
        (folder / name).mkdir(parents=True)
        write(folder / name)


def write_masks(folder: Path) -> None:
    """Write masks of three colours; in one of two splits, an image has none."""
    y, x = np.mgrid[:30, :40]
    files = images("train/images", "val/images")
    for number, name in enumerate(sorted(files)):
        colours = np.array([[0, 0, 0], [0, 128, 0], [255, 0, 9]], np.uint8)[(x + y * number) // 20 % 3]
        if not name.endswith("/4.jpg"):
            files[f"{name.replace('images', 'masks').rpartition('.')[0]}_mask.png"] = png(colours)
    write_files(folder, files | {"class_dict.csv": "name,r,g,b\nsky,0,0,0\ntréé,0,128,0\nvoid,255,0,9\n"})
