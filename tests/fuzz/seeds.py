"""Small valid data sets: files by name."""

import gzip
import io
import json
import zipfile
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.literal_data import old_record, png, tfrecord

Files = dict[str, bytes]
COCO = {
    "images": [
        {"id": 1, "file_name": "1.jpg", "width": 40, "height": 30, "date": "2020", "neg_category_ids": [3]},
        {"id": "0998", "file_name": "b/2.jpg", "width": 40, "height": 30, "coco_url": "http://a/2.jpg"},
    ],
    "annotations": [
        {
            "id": 7,
            "image_id": 1,
            "category_id": 3,
            "bbox": [1, 2, 3.5, 4],
            "area": 12.5,
            "iscrowd": 0,
            "score": 0.5,
            "segmentation": [[1, 2, 4, 2, 4, 6]],
            "keypoints": [1, 2, 2, 0, 0, 0],
            "num_keypoints": 1,
            "caption": "a cat",
        },
        {
            "id": 8,
            "image_id": "0998",
            "category_id": 3,
            "bbox": [1, 2, 3, 4],
            "iscrowd": "no",
            "segmentation": {"size": [30, 40], "counts": [10, 20, 1170]},
            "keypoints": [],
            "caption": "two",
        },
    ],
    "categories": [{"id": 3, "name": "cat", "supercategory": "animal", "keypoints": ["a", "b"], "skeleton": [[1, 2]]}],
}
PANOPTIC = {
    "images": COCO["images"],
    "annotations": [
        {
            "image_id": 1,
            "file_name": "1.png",
            "segments_info": [{"id": 5, "category_id": 3, "iscrowd": 0, "bbox": [0, 0, 4, 4], "area": 16}],
        }
    ],
    "categories": [{"id": 3, "name": "cat", "isthing": 1}],
}
_LABELME = {
    "version": "5.0",
    "flags": {"day": True},
    "imagePath": "1.jpg",
    "imageData": None,
    "imageHeight": 30,
    "imageWidth": 40,
    "shapes": [
        {"label": "cat", "points": [[1, 2], [4, 6]], "shape_type": "rectangle", "group_id": None, "flags": {}},
        {
            "label": "cat",
            "points": [[1, 2], [4, 2], [4, 6]],
            "shape_type": "polygon",
            "group_id": 1,
            "difficult": False,
        },
        {"label": "dog", "points": [[5, 5], [7, 5]], "shape_type": "circle", "score": 0.5},
    ],
}
_REGION = {"name": "polygon", "all_points_x": [1, 4, 4], "all_points_y": [2, 2, 6]}
_VIA = {
    "_via_settings": {"core": {"default_filepath": ""}},
    "_via_attributes": {"region": {"kind": {"type": "radio", "options": {"0": "cat", "1": "dog"}}}},
    "_via_img_metadata": {
        "1.jpg7": {
            "filename": "1.jpg",
            "size": 7,
            "file_attributes": {"day": "1"},
            "regions": [
                {"shape_attributes": _REGION, "region_attributes": {"kind": "cat"}},
                {
                    "shape_attributes": {"name": "rect", "x": 1, "y": 2, "width": 3, "height": 4},
                    "region_attributes": {"kind": {"cat": True}},
                },
                {
                    "shape_attributes": {"name": "ellipse", "cx": 5, "cy": 6, "rx": 3, "ry": 2, "theta": 0.5},
                    "region_attributes": {"kind": "0"},
                },
            ],
        }
    },
}
_TASKS = [
    {
        "id": 1,
        "data": {"image": "/data/upload/1/1.jpg", "site": "a"},
        "predictions": [],
        "annotations": [
            {
                "was_cancelled": False,
                "lead_time": 1.5,
                "result": [
                    {
                        "id": "a",
                        "type": "rectanglelabels",
                        "original_width": 200,
                        "original_height": 100,
                        "image_rotation": 0,
                        "value": {
                            "x": 25,
                            "y": 50,
                            "width": 10,
                            "height": 20,
                            "rotation": 10,
                            "rectanglelabels": ["Cat"],
                        },
                    },
                    {
                        "id": "b",
                        "type": "polygonlabels",
                        "original_width": 200,
                        "original_height": 100,
                        "score": 0.5,
                        "value": {"points": [[10, 20], [40, 20], [40, 60]], "polygonlabels": ["Cat", "Dog"]},
                    },
                    {
                        "id": "c",
                        "type": "ellipselabels",
                        "original_width": 200,
                        "original_height": 100,
                        "value": {"x": 50, "y": 50, "radiusX": 5, "radiusY": 5, "ellipselabels": ["Cat"]},
                    },
                    {"id": "d", "type": "choices", "from_name": "day", "value": {"choices": ["sunny"]}},
                    {"id": "a", "type": "rating", "from_name": "stars", "value": {"rating": 3}},
                ],
            }
        ],
    }
]
_VERTEX = {
    "imageGcsUri": "gs://b/1.jpg",
    "dataItemResourceLabels": {"aiplatform.googleapis.com/ml_use": "test"},
    "boundingBoxAnnotations": [{"displayName": "cat", "xMin": "0.25", "yMin": 0.5, "xMax": 0.5, "yMax": 1, "other": 1}],
}
_METADATA = [
    {
        "file_name": "1.jpg",
        "width": 40,
        "height": 30,
        "text": "a cat",
        "site": "x",
        "objects": {
            "bbox": [[1, 2, 30, 20], [3, 4, 20, 6]],
            "category": ["cat", "dog"],
            "area": [12, 1.5],
            "id": [7, 8],
        },
    },
    {"file_name": "2.jpg", "objects": {"bbox": [[1, 2, 3, 4]], "category": ["cat"], "iscrowd": ["0"], "id": [9.0]}},
]
_VOC = """<?xml version="1.0" encoding="utf-8"?>
<annotation><folder>x</folder><filename>1.jpg</filename>
<size><width>40</width><height>30</height><depth>3</depth></size><source><year>2007</year></source>
<object><name>cat</name><pose>Left</pose><truncated>1</truncated><difficult>0</difficult>
<bndbox><xmin>3</xmin><ymin>4</ymin><xmax>13</xmax><ymax>24.5</ymax></bndbox>
<attributes><attribute><name>a</name><value>1</value></attribute></attributes></object>
<object><name>dog</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>
</annotation>
"""
_CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations><meta><task><mode>annotation</mode><start_frame>0</start_frame><stop_frame>1</stop_frame></task></meta>
<image id="0" name="1.jpg" width="40" height="30" subset="train">
<box label="cat" xtl="1" ytl="2" xbr="4" ybr="6" occluded="0" rotation="30"><attribute name="a">1</attribute></box>
<polygon label="cat" points="1.5,2;4,2;4,6.25"/><points label="dog" points="3,5;4,4"/>
<ellipse label="cat" cx="5" cy="6" rx="2" ry="1"/><tag label="day"/>
<mask label="cat" rle="0, 2, 2" left="1" top="1" width="2" height="2"/></image></annotations>
"""
_CVAT_VIDEO = """<annotations><meta><task><mode>interpolation</mode><start_frame>0</start_frame>
<stop_frame>6</stop_frame><frame_filter>step=2</frame_filter></task><original_size><width>40</width><height>30</height></original_size></meta>
<track id="7" label="cat"><box frame="0" outside="0" xtl="1" ytl="2" xbr="4" ybr="6"/>
<box frame="2" outside="1" xtl="1" ytl="2" xbr="4" ybr="6"/></track></annotations>
"""
_YAML = b"path: .\ntrain: images/train\nval: images/val\nnc: 2\nnames:\n  0: cat\n  1: dog\nkpt_shape: [2, 3]\n"
_OPENIMAGES = (
    b"ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside\n"
    b"0a,xclick,/m/1,1,0.25,0.5,0.5,1,0,1,0,0,0\n0a,xclick,/m/2,1,0,1,0,1,1,0,1,0,-1\n"
)
ROWS = b'id,label,score,when,note\n1,cat,0.5,2020-01-01,"a, b"\n'
ROWS += b'2,dog,1e3,2020-01-02T10:00:00Z,\n3,caf\xc3\xa9,-1,,"x\ny"\n'


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode()


_NDJSON = [
    {"type": "dataset", "task": "pose", "class_names": {"0": "cat", "1": "dog"}, "kpt_shape": [1, 3], "path": ""},
    {
        "type": "image",
        "file": "1.jpg",
        "url": "https://a/1.jpg",
        "width": 40,
        "height": 30,
        "split": "train",
        "annotations": {"pose": [[0, 0.5, 0.5, 0.2, 0.4, 0.5, 0.5, 2]], "classification": [1]},
    },
    {
        "type": "image",
        "file": "2.jpg",
        "split": "val",
        "annotations": {"segments": [[1, 0.1, 0.1, 0.5, 0.1, 0.5, 0.5]], "hash": "x"},
    },
]


def _lines(rows: list[dict]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def _parquet(rows: list[dict], **options: object) -> bytes:
    data = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), data, **options)
    return data.getvalue()


@cache
def image(format_: str, mode: str = "RGB") -> bytes:
    data = io.BytesIO()
    Image.linear_gradient("L").resize((40, 30)).convert("RGB").convert(mode).save(data, format_)
    return data.getvalue()


CLASS_MAPS: Files = {
    "map.csv": b'from,to\ncar,vehicle\nbus,vehicle\n"cat, big",\n*,other\n',
    "map.yaml": b"car: vehicle\nbus: vehicle\ncat, big:\n",
    "list.yaml": b"- {from: car, to: bus}\n- {from: bus, to: car}\n- {from: '*', to: ''}\n",
}


def label_sets() -> dict[str, tuple[str, Files]]:
    """Return the format and the files of each data set of label files, by its name."""
    pictures = {"1.jpg": image("JPEG"), "2.jpg": image("JPEG")}
    pose = b"0 0.5 0.5 0.2 0.4 0.1 0.1 2 0.2 0.2 1\n1 0.5 0.5 0.1 0.1 0 0 0 0 0 0\n"
    return {
        "voc": ("voc", {"Annotations/1.xml": _VOC.encode(), "JPEGImages/1.jpg": image("JPEG")}),
        "cvat": ("cvat", {"annotations.xml": _CVAT.encode(), "images/1.jpg": image("JPEG")}),
        "cvat_video": ("cvat", {"annotations.xml": _CVAT_VIDEO.encode(), "images/frame_000000.PNG": image("PNG")}),
        "yolo": (
            "yolo",
            {
                "data.yaml": _YAML.replace(b"kpt_shape: [2, 3]\n", b""),
                "images/train/1.jpg": image("JPEG"),
                "images/val/2.jpg": image("JPEG"),
                "labels/train/1.txt": b"0 0.5 0.5 0.2 0.4\n1 .1 .1 .9 .1 .9 .5\n",
                "labels/val/2.txt": b"1 0.5 0.5 0.2 0.4 0.9\n",
            },
        ),
        "yolo_pose": (
            "yolo",
            {
                "data.yaml": _YAML,
                "images/train/1.jpg": image("JPEG"),
                "labels/train/1.txt": pose,
                "images/val/2.jpg": image("JPEG"),
            },
        ),
        "masks": (
            "masks",
            {
                "images/train/1.jpg": image("JPEG"),
                "masks/train/1.png": png(np.full((3, 4, 3), (1, 2, 3), np.uint8)),
                "images/val/2.jpg": image("JPEG"),
                "masks/val/2.png": png(np.full((3, 4, 3), (255, 0, 0), np.uint8)),
                "labelmap.txt": b"# label:color_rgb:parts:actions\ncat:1,2,3::\ndog:255,0,0::\n",
            },
        ),
        "masks_table": (
            "masks",
            {
                "train/1.jpg": image("JPEG"),
                "train/1_mask.png": png(np.eye(4, dtype=np.uint8)),
                "_classes.csv": b"Pixel Value, Class\n0, sky\n1, car\n",
            },
        ),
        "yolo_classes": ("yolo", {"classes.txt": b"cat\ndog\n", "1.txt": b"0 0.5 0.5 0.2 0.4\n", **pictures}),
        "labelme": ("labelme", {"1.json": _json(_LABELME), **pictures}),
        "via": ("via", {"via.json": _json(_VIA), **pictures}),
        "createml": (
            "createml",
            {
                "_annotations.createml.json": _json(
                    [
                        {
                            "image": "1.jpg",
                            "annotations": [
                                {
                                    "label": "cat",
                                    "coordinates": {"x": 20, "y": 30, "width": 10, "height": 40},
                                    "score": 1,
                                }
                            ],
                        }
                    ]
                ),
                **pictures,
            },
        ),
        "tfcsv": (
            "tfcsv",
            {
                "a.csv": b"filename,width,height,class,xmin,ymin,xmax,ymax,note\n1.jpg,40,30,cat,1,2,4,6,x\n"
                b"1.jpg,40,30,dog,1,2,9,9,\n2.jpg,40,30,,,,,,\n",
                **pictures,
            },
        ),
        "labelstudio": ("labelstudio", {"a.json": _json(_TASKS), **pictures}),
        "openimages": (
            "openimages",
            {
                "train-annotations-bbox.csv": _OPENIMAGES,
                "0a.jpg": image("JPEG"),
                "class-descriptions.csv": b"LabelName,DisplayName\n/m/1,Cat\n/m/2,Dog\n",
            },
        ),
        "vertex": ("vertex", {"a.jsonl": _lines([_VERTEX, _VERTEX | {"imageGcsUri": "2.jpg"}]), **pictures}),
        "vertex_csv": (
            "vertex",
            {"a.csv": b"TEST,gs://b/1.jpg,cat,0.25,0.5,,,0.5,1,,\nTRAIN,2.jpg,dog,0,0,1,0,1,1,0,1\n", **pictures},
        ),
        "ndjson": ("ndjson", {"set.ndjson": _lines(_NDJSON), **pictures}),
        "tfrecord": (
            "tfrecord",
            {"train.record": tfrecord(old_record(1), old_record(2)), "map.pbtxt": b"item { id: 1 name: 'cat' }"},
        ),
        "imagefolder": ("imagefolder", {"metadata.jsonl": _lines(_METADATA), **pictures}),
        "imagefolder_csv": (
            "imagefolder",
            {
                "metadata.csv": b"file_name,width,height,objects,text\n1.jpg,40,30,"
                b'"{""bbox"": [[1, 2, 30, 20]], ""category"": [""cat""], ""id"": [1]}",hello\n',
                **pictures,
            },
        ),
        "imagefolder_parquet": ("imagefolder", {"metadata.parquet": _parquet(_METADATA[:1]), **pictures}),
        "imagefolder_images": (
            "imagefolder",
            {
                "data/train-00000-of-00001.parquet": _parquet(
                    [{"image": {"bytes": image("JPEG"), "path": "1.jpg"}, "objects": _METADATA[0]["objects"]}]
                )
            },
        ),
    }


def tables() -> Files:
    rows = [{"id": 1, "label": "cat", "tags": ["a", "b"], "box": {"x": 1.5, "y": None}, "when": "2020-01-01"}]
    rows += [{"id": 2, "label": "dog", "tags": [], "box": {"x": 2, "y": 3.0}, "when": None}]
    return {
        "rows.csv": ROWS,
        "rows.tsv": ROWS.replace(b",", b"\t"),
        "rows.jsonl": _lines(rows),
        "rows.parquet": _parquet(rows, compression="none"),
        "packed.parquet": _parquet(rows),
        "rows.csv.gz": gzip.compress(ROWS, mtime=0),
    }


def images() -> Files:
    jpeg = Image.new("RGB", (40, 30), (90, 60, 30))
    exif = jpeg.getexif()
    exif[0x0112] = 6
    turned = io.BytesIO()
    jpeg.save(turned, "JPEG", exif=exif, progressive=True)
    files = {"turned.jpg": turned.getvalue(), "grey.jpg": image("JPEG", "L"), "cmyk.jpg": image("JPEG", "CMYK")}
    files |= {f"{mode}.png": image("PNG", mode) for mode in ("RGB", "L", "P", "RGBA", "I")}
    return files | {f"a.{format_}": image(format_) for format_ in ("GIF", "BMP", "TIFF", "WEBP", "PPM")}


def archives() -> Files:
    stored, packed = io.BytesIO(), io.BytesIO()
    for data, method in ((stored, zipfile.ZIP_STORED), (packed, zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(data, "w", method) as archive:
            archive.writestr("a/1.jpg", image("JPEG"))
            archive.writestr("a/é.txt", b"0 0.5 0.5 0.2 0.4\n" * 50)
    return {"stored.zip": stored.getvalue(), "packed.zip": packed.getvalue()}
