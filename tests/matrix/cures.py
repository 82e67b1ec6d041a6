"""Small inputs that bring each message with a cure: a command, or a flag with a value."""

import io
import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.literal_data import example, jpeg, old_record, png, tfrecord

Files = dict[str, bytes | str]


class Cure(NamedTuple):
    """A message with a cure.

    Attributes:
        module, message: Module of the message, and a literal part of it in the sources.
        files: Inputs by name.
        commands: Command lines without `recordmill`. The last one prints the message.
        cure: Words of the cure as printed, joined as in a shell; several flags count together.
        then: Part of the error after the cure, if it fails for another reason. Empty if it succeeds.
        words: Words in place of the placeholders of the cure.
        in_place_of: Flag that the cure replaces.
        fresh: False if the cure is for the output of the command.
    """

    module: str
    message: str
    files: Files
    commands: tuple[str, ...]
    cure: str
    then: str = ""
    words: dict[str, str] = {}
    in_place_of: str = ""
    fresh: bool = True


def noise(seed: int) -> bytes:
    """Return a PNG of 40x30 pixels that is no near copy of another one."""
    return png(np.random.default_rng(seed).integers(0, 256, (30, 40), np.uint8))


def images(*names: str) -> Files:
    return {name: noise(number) for number, name in enumerate(names)}


def coco(*names: str, box: tuple[float, ...] = (5, 5, 20, 12), **more: object) -> str:
    """Return COCO's JSON with an object in each image. `more` are further keys of each object."""
    rows = [{"id": id_, "file_name": name, "width": 40, "height": 30} for id_, name in enumerate(names)]
    objects = [
        {"id": id_, "image_id": id_, "category_id": 1, "bbox": box, "area": 240, "iscrowd": 0, **more}
        for id_ in range(len(names))
    ]
    return json.dumps({"images": rows, "annotations": objects, "categories": [{"id": 1, "name": "cat"}]})


def createml(*names: str, **more: object) -> str:
    box = {"x": 15, "y": 15, "width": 10, "height": 8}
    objects = [{"label": "cat", "coordinates": box, **more}]
    return json.dumps([{"image": name, "annotations": objects} for name in names or ("1.png",)])


_CVAT_BOX = 'xtl="1" ytl="2" xbr="9" ybr="8"'


def cvat(*names: str) -> str:
    box = f'<box label="cat" {_CVAT_BOX}/>'
    rows = "".join(f'<image name="{name}" width="40" height="30">{box}</image>' for name in names)
    return f"<annotations>{rows}</annotations>"


def cvat_track(frame: int) -> str:
    box = f'<box frame="{frame}" outside="0" {_CVAT_BOX}/>'
    return f'<annotations><track id="0" label="cat">{box}</track></annotations>'


def voc(xmin: int = 1, more: str = "") -> str:
    box = f"<bndbox><xmin>{xmin}</xmin><ymin>{xmin}</ymin><xmax>40</xmax><ymax>30</ymax></bndbox>"
    size = "<size><width>40</width><height>30</height><depth>3</depth></size>"
    return f"<annotation>{size}<object><name>cat</name>{more}{box}</object></annotation>"


def rows(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def labelme(name: str, shape: str, points: list[list[float]]) -> str:
    shapes = [{"label": "cat", "points": points, "shape_type": shape, "group_id": None}]
    return json.dumps({"shapes": shapes, "imagePath": name, "imageData": None, "imageHeight": 30, "imageWidth": 40})


def labelstudio() -> str:
    """Return a task with two annotations."""
    value = {"x": 25, "y": 20.5, "width": 25, "height": 60, "rotation": 0, "rectanglelabels": ["cat"]}
    result = {"type": "rectanglelabels", "value": value, "original_width": 40, "original_height": 30}
    return json.dumps([{"data": {"image": "1.png"}, "annotations": [{"result": [result]}, {"result": [result]}]}])


def imagefolder(**columns: int) -> str:
    objects = {"bbox": [[5, 5, 10, 10]]} | {name: [value] for name, value in columns.items()}
    return json.dumps({"file_name": "1.png", "objects": objects}) + "\n"


def yolo(*lines: str) -> Files:
    """Return a data set of an image per line."""
    files = {f"set/train/labels/{number}.txt": f"0 {line}\n" for number, line in enumerate(lines)}
    return images(*(f"set/train/images/{number}.png" for number in range(len(lines)))) | files | {"set/data.yaml": YAML}


def masked(values: Sequence[object]) -> Files:
    """Return an image, and its mask with an equal number of columns of each value, or colour."""
    columns = np.repeat(np.array([values], np.uint8), 40 // len(values) + 1, axis=1)[:, :40]
    return {"images/1.png": noise(1), "masks/1.png": png(np.repeat(columns, 30, axis=0))}


def indices() -> bytes:
    """Return a PNG of the indices of objects, with a palette."""
    pixels = np.zeros((30, 40), np.uint8)
    pixels[1:29, 1:39] = 1
    return png(pixels, bytes(range(256)) * 3)


def parquet(**columns: list[object]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


YAML = "train: train/images\nnames: [cat]\n"
BOX = "0 .5 .5 .2 .2\n"
TWO = images("img/1.png", "img/2.png")
CLASSES = images("set/cat/1.png", "set/cat/2.png", "set/dog/3.png", "set/dog/4.png")
COPIES = {**images("set/a/1.png", "set/b/2.png"), "set/a/3.png": jpeg(1), "set/b/4.png": jpeg(1)}
SETS = {
    **images("one/images/1.png", "one/images/2.png", "two/images/3.png", "two/images/4.png"),
    "one/annotations/instances.json": coco("1.png", "2.png"),
    "two/annotations/instances.json": coco("3.png", "4.png"),
    "one/images/1.png": jpeg(1),
    "two/images/3.png": jpeg(1),
}
TEXTS = rows("text,label", *(f"cat number {number} runs,a" for number in range(20)))
OTHER_TEXTS = rows("text,label", *(f"dog number {number} sleeps,a" for number in range(20)))
NAMES = "transforms/dataset/compare_names.py"
FACTS = "transforms/dataset/fact_lines.py"
FORMATS = "pipelines/choose_format.py"
CLASS_NAMES = "transforms/join/choose_categories.py"
VOCABULARIES = "pipelines/choose_encoder.py"
INSTANCES = "convert img --instances a.json -o out"
TEXT_JOB = "convert --format table --text-column text --text counts"
OF_COCO = {**images("img/1.png", "by/train/1.png", "images/train/1.png"), "a.json": coco("1.png")}
TO_O_1 = "convert img --instances a.json -o 'o 1'"
PERSON = coco("1.png", keypoints=[6, 6, 2], num_keypoints=1).replace('"cat"', '"cat", "keypoints": ["nose"]')

CURES = [
    # Files of images
    Cure(NAMES, "--match suffix", TWO | {"a.json": coco("x/1.png", "x/2.png")}, (INSTANCES,), "--match suffix"),
    Cure(NAMES, "Use --images {}", images("img/a b/1.png") | {"a.json": coco("1.png")}, (INSTANCES,), "DATA 'img/a b'"),
    Cure(NAMES, "Use --images {}", TWO | {"a.json": coco("img/1.png", "img/2.png")}, (INSTANCES,), "DATA ./"),
    Cure(
        NAMES,
        "Use --images {}",
        TWO
        | images("a b/1.png", "a b/2.png")
        | {"a b/l.csv": rows("path,label", "1.png,a", "2.png,b"), "x/1.jpg": b""},
        ("convert x --labels 'a b/l.csv' -o out",),
        "DATA 'a b'",
    ),
    Cure(
        NAMES,
        "Use --images {}",
        images("set/a b/1.png") | {"set/a.json": createml()},
        ("convert set/a.json --format createml -o out",),
        "--images 'set/a b'",
    ),
    Cure(
        NAMES,
        "or use --images {}",
        {"img/b c.zip": b"", "a.json": coco("1.png")},
        (INSTANCES,),
        "DATA 'img/b c.zip'",
        "is not a ZIP archive",
    ),
    Cure(
        "transforms/coco/find_exports.py",
        "with --match name",
        images("set/some/1.png") | {"set/annotations/instances_train.json": coco("x/1.png")},
        ("convert set -o out",),
        "--match name",
    ),
    Cure(
        "transforms/yolo/read_yolo.py",
        "Add --images {}",
        images("set/a b/train/images/1.png") | {"set/a b/train/labels/1.txt": BOX, "set/data.yaml": YAML},
        ("convert set --format yolo -o out",),
        "--images '{folder}/set/a b'",
    ),
    # What records do not store
    Cure(
        "transforms/annotated/source.py",
        "label files have fields that are not written{}",
        images("set/1.png") | {"set/a.json": createml(**{"a b": 1, "c,d": 2})},
        ("convert set -o out",),
        """--fields '"c,d",a b'""",
    ),
    Cure(
        "transforms/annotated/join_annotated.py",
        "{} {}. Add --fields {}",
        images("set/JPEGImages/1.png") | {"set/Annotations/1.xml": voc(more="<difficult>1</difficult>")},
        ("convert set --layout keras -o out",),
        "--fields difficult",
    ),
    Cure(
        "transforms/folder/read_folder.py",
        "not written{}",
        TWO | {"l.csv": rows("path,label,a b", "1.png,a,1", "2.png,b,2")},
        ("convert img --labels l.csv -o out",),
        "--fields 'a b'",
    ),
    Cure(
        "transforms/join/choose_fields.py",
        "with --fields {}, NaN does",
        images("set/1.png") | {"set/a.json": createml(**{"a b": -1})},
        ("convert set -o out --fields 'a b'",),
        "--fields 'a b:float'",
    ),
    Cure(
        "schemas/field_features.py",
        "Add --rename {}=NAME",
        images("set/1.png") | {"set/a.json": createml(x={"a b": 1, "": {"z": 2}})},
        ("convert set -o out --fields x..z",),
        "--rename image/object/x//z=NAME",
        words={"NAME": "image/object/z"},
    ),
    Cure(
        "transforms/annotated/naming.py",
        "--masks rle or --masks png stores masks",
        images("set/1.png") | {"set/a.json": labelme("1.png", "polygon", [[1, 1], [9, 1], [9, 9]])},
        ("convert set -o out",),
        "--masks rle",
    ),
    Cure(
        "transforms/voc/read_voc.py",
        "--masks rle or --masks png stores masks",
        images("set/JPEGImages/1.png") | {"set/Annotations/1.xml": voc(), "set/SegmentationObject/1.png": indices()},
        ("convert set -o out",),
        "--masks png",
    ),
    Cure(
        "transforms/voc/read_voc.py",
        "--voc-origin 1 moves",
        images("set/JPEGImages/1.png") | {"set/Annotations/1.xml": voc()},
        ("convert set -o out",),
        "--voc-origin 1",
    ),
    Cure(
        "transforms/yolo/read_yolo.py",
        "--masks rle or --masks png stores masks",
        yolo(".2 .2 .6 .2 .6 .7", ".5 .5 .2 .2"),
        ("convert set -o out",),
        "--masks png",
    ),
    Cure(
        "transforms/yolo/read_yolo.py",
        "Add --fields score, or --fields ",
        yolo(".5 .5 .2 .2 .9"),
        ("convert set -o out",),
        "--fields score",
    ),
    Cure(
        "transforms/yolo/read_yolo.py",
        "Add --task segment or --task obb",
        yolo(".2 .2 .6 .2 .6 .7 .2 .7"),
        ("convert set -o out",),
        "--task obb",
    ),
    Cure(
        FACTS,
        "--masks png",
        TWO | {"a.json": coco("1.png", segmentation=[[5, 5, 9, 5, 9, 9]])},
        (INSTANCES,),
        "--masks png",
    ),
    Cure(
        FACTS,
        "--masks rle",
        TWO | {"a.json": coco("1.png", segmentation=[[5, 5, 9, 5, 9, 9]])},
        (f"{INSTANCES} --container parquet",),
        "--masks rle",
    ),
    Cure(
        FACTS, "--keypoints FILE", TWO | {"a.json": PERSON}, (INSTANCES,), "--keypoints FILE", words={"FILE": "a.json"}
    ),
    Cure(
        FACTS,
        "--captions FILE",
        TWO | {"a.json": coco("1.png", caption="x")},
        (INSTANCES,),
        "--captions FILE",
        words={"FILE": "a.json"},
    ),
    Cure(
        FACTS,
        "--panoptic FILE",
        TWO | {"a.json": coco("1.png", segments_info=[{"id": 1}])},
        (INSTANCES,),
        "--panoptic FILE",
        "--panoptic is given 1 times and --panoptic-masks 0",
        words={"FILE": "a.json"},
    ),
    Cure(
        FACTS,
        "--instances FILE",
        TWO | {"a.json": coco("1.png", caption="a cat")},
        ("convert img --captions a.json -o out",),
        "--instances FILE",
        words={"FILE": "a.json"},
    ),
    Cure(
        FACTS,
        "--layout detection",
        TWO | {"a.json": coco("1.png", iscrowd=1)},
        (f"{INSTANCES} --layout keras",),
        "--layout detection",
    ),
    Cure(
        FACTS,
        "--layout detection {}",
        TWO | {"a.json": PERSON},
        (f"{INSTANCES} --layout keras",),
        "--layout detection",
    ),
    Cure(
        "transforms/shards/check_findings.py",
        "leave these label files out by --max-rejects 1",
        images("set/train/images/1.png")
        | {f"set/train/labels/{number}.txt": BOX for number in range(1, 9)}
        | {"set/data.yaml": YAML},
        ("convert set -o out",),
        "--max-rejects 1",
    ),
    # Splits and copies
    Cure(
        FACTS,
        "Convert again with --groups {}",
        COPIES,
        ("convert set -o 'o 1' --split train=0.5,val=0.5 --split-seed 0",),
        "--groups 'o 1/duplicates.jsonl'",
    ),
    Cure(  # names of files begin with those of the sets
        FACTS,
        "Convert again with --groups {}",
        SETS,
        ("convert one two -o 'o 1' --split train=0.5,val=0.5 --split-seed 0",),
        "--groups 'o 1/duplicates.jsonl'",
    ),
    Cure(
        "transforms/join/drop_images.py",
        "Add --duplicates drop to keep one of each",
        SETS,
        ("convert one two -o out",),
        "--duplicates drop",
    ),
    Cure(
        FACTS,
        "--exclude {}",
        images("set/train/a/1.png", "set/val/a/2.png", "set/train/b/5.png", "set/val/b/6.png")
        | {"set/train/a/3.png": jpeg(1), "set/val/a/4.png": jpeg(1)},
        ("convert set --format folder -o 'o 1'",),
        "--exclude 'o 1/problems-val.jsonl' --exclude-kinds leakage",
    ),
    Cure(
        FACTS,
        "or convert again with {} --exclude-kinds {}",
        COPIES,
        ("convert set -o 'o 1'",),
        "--exclude 'o 1/problems-train.jsonl' --exclude-kinds exact_duplicates",
    ),
    Cure(
        "transforms/insight/across_splits.py",
        "run again with --duplicates report",
        COPIES,
        ("convert set -o out --duplicates fail",),
        "--duplicates report",
    ),
    Cure(
        "schemas/inputs/options.py",
        "--split-by rank is exact to one image",
        images("set/a/1.png", "set/a/2.png", "set/b/3.png", "set/b/4.png"),
        ("convert set -o out --split a=0.7,b=0.3 --split-seed 4",),
        "--split-by rank",
    ),
    # Classes
    Cure(
        "transforms/folder/choose_classes.py",
        "--classes {}",
        images("set/a b/1.png", "set/c/A B/2.png", "set/c/3.png"),
        ("convert set -o out",),
        "--classes 'a b'",
    ),
    Cure(
        CLASS_NAMES,
        "Convert each by its own command",
        images("set/train/1.png", "set/val/2.png"),
        ("convert set --format folder -o out",),
        "recordmill convert set/train -o OUT --split train",
        "the format is not recognised",
    ),
    Cure(
        CLASS_NAMES,
        "if they are classes, give --classes",
        images("set/train/1.png", "set/val/2.png"),
        ("convert set --format folder -o out",),
        "--classes train,val",
    ),
    Cure(
        CLASS_NAMES,
        "If it is the only class, give --classes",
        images("set/a b/1.png"),
        ("convert set --format folder -o out",),
        "--classes 'a b'",
    ),
    Cure(
        CLASS_NAMES,
        "recordmill convert {}",
        images("s t/images/cat/1.png", "s t/images/dog/1.png"),
        ("convert 's t' --format folder -o out",),
        "recordmill convert 's t/images' -o OUT",
    ),
    Cure(
        "transforms/folder/recognise_folder.py",
        "recordmill convert {} --labels {} {} --label",
        TWO | {"img/l.csv": rows("path,a,b", "1.png,1,2", "2.png,1,3")},
        ("convert img -o out",),
        "recordmill convert img --labels img/l.csv --label COLUMN -o OUT",
        words={"COLUMN": "a"},
    ),
    Cure(
        "transforms/folder/recognise_folder.py",
        "add --format table",
        TWO | {"img/l.csv": rows("path,a,b", "1.png,1,2", "2.png,1,3")},
        ("convert img -o out",),
        "--format table",
    ),
    # Formats
    Cure(
        "transforms/imagefolder/read_imagefolder.py",
        "To read folders of classes, add --format folder",
        CLASSES,
        ("convert set --format imagefolder -o out",),
        "--format folder",
    ),
    Cure(
        "transforms/imagefolder/read_imagefolder.py",
        "To read folders of classes, add --format folder",
        images("set/train/a/1.png", "set/train/b/2.png"),
        ("convert set --format imagefolder -o out",),
        "--format folder",
    ),
    Cure(
        "transforms/imagefolder/read_imagefolder.py",
        "reads one as the class of the image",
        images("a b/1.png", "a b/2.png") | {"a b/metadata.csv": rows("file_name,mo od", "1.png,x", "2.png,y")},
        ("convert 'a b' --format imagefolder -o out",),
        "recordmill convert 'a b' --labels 'a b/metadata.csv' --label COLUMN -o OUT",
        words={"COLUMN": "mo od"},
    ),
    Cure(
        "transforms/imagefolder/read_imagefolder.py",
        "reads all",
        images("a b/1.png", "a b/2.png") | {"a b/metadata.csv": rows("file_name,mo od", "1.png,x", "2.png,y")},
        ("convert 'a b' --format imagefolder -o out",),
        "recordmill convert 'a b/metadata.csv' --format table --images 'a b' --image-column file_name -o OUT",
    ),
    Cure(
        "transforms/imagefolder/read_imagefolder.py",
        "reads images and their classes",
        {"a b/train.parquet": parquet(**{"ima ge": [{"bytes": noise(1), "path": ""}], "kind": ["x"]})},
        ("convert 'a b' --format imagefolder -o out",),
        "recordmill convert 'a b/*.parquet' -o OUT --format table --image-column 'ima ge' --label LABEL",
        words={"LABEL": "kind"},
    ),
    Cure(
        "transforms/annotated/recognise_format.py",
        "recordmill repack {} OUT --replan",
        CLASSES,
        ("convert set -o 'o 1'", "convert 'o 1' -o out"),
        "recordmill repack 'o 1' OUT --replan",
        words={"OUT": "again"},
    ),
    Cure(
        "transforms/annotated/recognise_format.py",
        "recordmill extract {} OUT --as {}",
        CLASSES,
        ("convert set -o 'o 1'", "convert 'o 1' --labels-only --as hf -o out"),
        "recordmill extract 'o 1' OUT --as hf",
        words={"OUT": "again"},
    ),
    *(
        Cure("transforms/tfrecord/read_tfrecord.py", message, files, ("convert 'o 1' -o out",), cure, words=words)
        for message, files, cure, words in (
            (
                "choose some by --files {}",
                {"o 1/train a.record": tfrecord(old_record()), "o 1/b.record": tfrecord(old_record(1))},
                "--files 'train a.record'",
                {},
            ),
            (
                "Name the key of encoded images by --keys {}={}, and those of labels",
                {"o 1/a.record": tfrecord(example(img=noise(1), image__class__text=b"cat"))},
                "--keys image/encoded=img",
                {},
            ),
            (
                "Name those of boxes by --keys {}=NAME and so on, or those ",
                {"o 1/a.record": tfrecord(example(image__encoded=noise(1)))},
                "--allow-empty",
                {},
            ),
            (
                "objects have no class. Add --class-names object",
                {"o 1/a.record": tfrecord(old_record(image__object__class__text=[], image__object__class__label=[]))},
                "--class-names object",
                {},
            ),
            *(
                (
                    "--label-map {}, or --class-names cat={}",
                    {
                        "o 1/a.record": tfrecord(old_record(image__object__class__text=[])),
                        "map.pbtxt": "item { id: 1 name: 'cat' }",
                    },
                    cure,
                    {"FILE.pbtxt": "map.pbtxt"},
                )
                for cure in ("--label-map FILE.pbtxt", "--class-names cat=1,dog=2")
            ),
        )
    ),
    Cure(
        "transforms/join/match_blocks.py",
        "Add --keys image/filename= to name images",
        {"o 1/a.record": tfrecord(old_record(0), old_record(1, image__filename=b"0.jpg"))},
        ("convert 'o 1' -o out",),
        "--keys image/filename=",
    ),
    Cure(
        "transforms/annotated/join_annotated.py",
        "--layout classification stores the class of each image",
        {"o 1/a.record": tfrecord(example(image__encoded=noise(1), image__class__text=b"cat"))},
        ("convert 'o 1' -o out",),
        "--layout classification",
        fresh=True,
    ),
    Cure(
        "pipelines/sets_options.py",
        "add --layout classification if all images have one class",
        CLASSES | {"o 1/a.record": tfrecord(example(image__encoded=noise(1), image__class__text=b"cat"))},
        ("convert set 'o 1' -o out",),
        "--layout classification",
    ),
    Cure(
        "transforms/annotated/shared_images.py",
        "Add --keys image/source_id= to make ids",
        {"o 1/a.record": tfrecord(*(old_record(number, image__source_id=b"0") for number in (0, 1)))},
        ("convert 'o 1' -o out",),
        "--keys image/source_id=",
    ),
    Cure(
        "transforms/imagefolder/read_imagefolder.py",
        "Add --class-names cat,dog",
        images("set/1.png") | {"set/metadata.jsonl": imagefolder(category=1)},
        ("convert set -o out",),
        "--class-names cat,dog",
    ),
    Cure(
        "transforms/imagefolder/read_imagefolder.py",
        "Add --class-names object",
        images("set/1.png") | {"set/metadata.jsonl": imagefolder()},
        ("convert set -o out",),
        "--class-names object",
    ),
    Cure(
        "transforms/imagefolder/read_imagefolder.py",
        "Convert them by: {} --format tfcsv -o OUT",
        images("a b/1.png") | {"a b/metadata.csv": rows("file_name,xmin,ymin,xmax,ymax,label", "1.png,1,2,9,8,cat")},
        ("convert 'a b' --format imagefolder -o out",),
        "recordmill convert 'a b/metadata.csv' --format tfcsv -o OUT",
    ),
    Cure(
        "transforms/imagefolder/read_imagefolder.py",
        "recordmill convert {}",
        images("a b/train/1.png")
        | {"a b/train/metadata.csv": rows("file_name,xmin,ymin,xmax,ymax,label", "1.png,1,2,9,8,cat")},
        ("convert 'a b' --format imagefolder -o out",),
        "recordmill convert 'a b' --format tfcsv -o OUT",
    ),
    Cure(
        "schemas/inputs/box_columns.py",
        "recordmill convert {} {} --format {} -o OUT",
        images("a b/1.png") | {"a b/l.csv": rows("image,xmin,ymin,xmax,ymax,label", "1.png,1,2,9,8,cat")},
        ("convert 'a b' --labels 'a b/l.csv' -o out",),
        "recordmill convert 'a b/l.csv' --images 'a b' --format tfcsv -o OUT",
    ),
    Cure(
        "schemas/inputs/box_columns.py",
        "To read a class per image, add --label {}",
        images("a b/1.png") | {"a b/l.csv": rows("image,xmin,ymin,xmax,ymax,ki nd,label", "1.png,1,2,9,8,x,cat")},
        ("convert 'a b' --labels 'a b/l.csv' -o out",),
        "--label label",
    ),
    Cure(
        "transforms/tfcsv/read_tfcsv.py",
        "Add --bbox-format xywh for left, top",
        images("set/1.png") | {"set/a.csv": rows("filename,bbox,class", '1.png,"[1, 2, 9, 8]",cat')},
        ("convert set --format tfcsv -o out",),
        "--bbox-format xywh",
    ),
    Cure(
        "transforms/cvat/read_cvat.py",
        "Add --frame-name {}",
        images("set/images/a b_07.png") | {"set/annotations.xml": cvat_track(7)},
        ("convert set -o out",),
        "--frame-name 'a b_{:02d}.png'",
    ),
    Cure(
        "transforms/cvat/read_cvat.py",
        "recordmill convert {} {} -o OUT --format cvat",
        images("a b/1.png") | {"a b/c.xml": cvat("1.png"), "a b/d.xml": cvat("1.png", "2.png")},
        ("convert 'a b' --images 'a b' --format cvat -o out",),
        "recordmill convert 'a b/d.xml' --images 'a b' -o OUT --format cvat",
        "1 of 2 images (50.0%) are rejected",
    ),
    Cure(
        "transforms/annotated/shared_images.py",
        "recordmill convert {} -o {} --format {}",
        images("a b/1.png", "a b/2.png")
        | {"a b/c.json": createml("1.png", "2.png"), "a b/d.json": createml("1.png", "2.png", more=1)},
        ("convert 'a b' --format createml -o out",),
        "recordmill convert 'a b/d.json' -o out --format createml",
    ),
    Cure(
        "transforms/coco/find_exports.py",
        "recordmill convert {} {} -o OUT --format coco",
        images("a b/1.png") | {"a b/result.json": coco("1.png"), "a b/labels.json": coco("1.png", area=9)},
        ("convert 'a b' -o out",),
        "recordmill convert 'a b/result.json' -o OUT --format coco",
    ),
    Cure(
        "transforms/join/guess_box_format.py",
        "--bbox-format {} reads that format",
        TWO | {"a.json": coco("1.png", "2.png", box=(0.1, 0.2, 0.9, 0.8))},
        (INSTANCES,),
        "--bbox-format rel-xyxy",
    ),
    Cure(
        "transforms/join/guess_box_format.py",
        "--bbox-format xywh accepts",
        TWO | {"a.json": coco("1.png", "2.png", box=(0.1, 0.2, 0.9, 0.8))},
        (INSTANCES,),
        "--bbox-format xywh",
    ),
    Cure(
        "transforms/join/guess_box_format.py",
        "--masks png lists them",
        TWO | {"a.json": coco("1.png", "2.png", segmentation=[[30, 20, 39, 20, 39, 29]])},
        (INSTANCES,),
        "--masks png",
    ),
    Cure(
        "transforms/labelstudio/read_labelstudio.py",
        "Add --of-several first, last or all",
        images("set/1.png") | {"set/a.json": labelstudio()},
        ("convert set -o out",),
        "--of-several first",
    ),
    Cure(
        "pipelines/recognise.py",
        "add --format table to write one split",
        {"a b/train/1.csv": rows("a,b", "1,2"), "a b/val/2.csv": rows("a,b", "1,2")},
        ("convert 'a b/train/1.csv' 'a b/val/2.csv' -o out",),
        "--format table",
    ),
    Cure(
        "pipelines/recognise.py",
        "Name the files by flags: recordmill convert {}",
        images("a b/1.png") | {"c d.json": coco("1.png")},
        ("convert 'a b' 'c d.json' -o out",),
        "recordmill convert 'a b' --instances 'c d.json' -o OUT",
    ),
    Cure(
        "pipelines/recognise.py",
        "recordmill convert {} -o OUT --format {}",
        images("a b/1.png", "a b/2.png") | {"a b/1.txt": BOX, "a b/classes.txt": "cat\n"},
        ("convert 'a b' -o out",),
        "recordmill convert 'a b' -o OUT --format yolo",
    ),
    Cure(
        "pipelines/recognise.py",
        "recordmill convert {} -o OUT --format table",
        {"a b/1.csv": rows("a,b", "1,2"), "a b/x.bin": "", "a b/y.bin": ""},
        ("convert 'a b' -o out",),
        "recordmill convert 'a b' -o OUT --format table",
    ),
    Cure(
        "pipelines/recognise.py",
        "if {} is the only class",
        images("a b/c d/1.png", "a b/c d/2.png"),
        ("convert 'a b' -o out",),
        "recordmill convert 'a b' -o OUT --format folder --classes 'c d'",
    ),
    Cure(
        "schemas/inputs/options.py",
        "Give fractions: --split {}",
        CLASSES,
        ("convert set -o out --split train=50,val=50",),
        "--split train=0.5,val=0.5",
    ),
    Cure(
        "pipelines/recognise.py",
        "recordmill convert {} -o OUT {}",
        images("a b/cat_1.png", "a b/dog_1.png"),
        ("convert 'a b' -o out",),
        "recordmill convert 'a b' -o OUT --format folder --label-from name",
    ),
    Cure(
        FORMATS,
        "give --image-format {}",
        CLASSES,
        ("convert set -o out --format png",),
        "--image-format png",
        in_place_of="--format",
    ),
    Cure(
        FORMATS,
        "Add --format {}",
        images("set/1.png") | {"set/a.json": createml(), "set/1.xml": voc()},
        ("convert set -o out",),
        "--format NAME",
        words={"NAME": "voc"},
    ),
    Cure(
        FORMATS,
        "recordmill convert {} {} --format {} -o OUT",
        images("a b/images/1.png") | {"a b/labels/1.xml": voc()},
        ("convert 'a b/images' --labels 'a b/labels' -o out",),
        "recordmill convert 'a b/labels' --images 'a b/images' --format voc -o OUT",
    ),
    Cure(
        FORMATS,
        "recordmill convert {}",
        images("a b/set/1.png") | {"a b/set/a.json": createml()},
        ("convert 'a b' -o out",),
        "recordmill convert 'a b/set' --output out --format createml",
    ),
    Cure(
        "launch/command_line/parser.py",
        "recordmill convert {} {} {} {}",
        images("a b/cat/1.png", "a b/dog/1.png"),
        ("folder --images 'a b' --output out",),
        "recordmill convert 'a b' --output out --progress none --format folder",
    ),
    Cure(
        "launch/preflight/check_inputs.py",
        "recordmill convert {} -o OUT --format {}",
        images("a b/1.png") | {"a b/annotations/instances_train.json": coco("1.png")},
        ("convert 'a b' --instances 'a b' -o out",),
        "recordmill convert 'a b' -o OUT --format coco",
    ),
    # Tables and texts
    Cure(
        "transforms/table/choose_schema.py",
        "Add --label {}",
        {"a.csv": rows("k d,b", "x,1", "y,2")},
        ("convert a.csv --label 'k d' -o out", "convert a.csv --schema out/schema.json -o more"),
        "--label 'k d'",
    ),
    Cure(
        "transforms/table/choose_schema.py",
        "--image-column {} checks them",
        {"a.parquet": parquet(**{"ima ge": [noise(1)], "kind": ["x"]})},
        ("convert a.parquet --format table -o out",),
        "--image-column 'ima ge'",
    ),
    Cure(
        "transforms/table/find_equal_keys.py",
        "--group-column {} keeps",
        {"a.csv": rows("k d,b", *(f"{number % 10},{number}" for number in range(40)))},
        ("convert a.csv --key 'k d' --group-column b --split a=0.5,b=0.5 -o out",),
        "--group-column 'k d'",
    ),
    Cure(
        "transforms/rows/read_csv.py",
        "Add --delimiter {}",
        {"a.csv": "a;b\n1;2\n"},
        ("convert a.csv -o out --delimiter ,",),
        "--delimiter ';'",
    ),
    Cure(
        "transforms/rows/read_csv.py",
        "Try --encoding utf-16-le, or utf-16-be",
        {"a.csv": "a,b\n1,2\n".encode("utf-16-le")},
        ("convert a.csv --format table -o out",),
        "--encoding utf-16-le",
    ),
    Cure(
        "transforms/table/table_options.py",
        "--split-by rank is exact to one row",
        {"a.csv": rows("a,b", *(f"{number},{number}" for number in range(1, 41)))},
        ("convert a.csv --format table --split x=0.5,y=0.5 --split-seed 1 -o out",),
        "--split-by rank",
    ),
    Cure(
        VOCABULARIES,
        "Give --encoders {}",
        {"a.csv": TEXTS, "b.csv": OTHER_TEXTS},
        (
            f"{TEXT_JOB} a.csv --split train -o 'o 1'",
            f"{TEXT_JOB} b.csv --split train -o other",
            f"{TEXT_JOB} b.csv --split val -o 'o 1' --encoders other",
        ),
        "--encoders 'o 1'",
        in_place_of="--encoders",
        fresh=False,
    ),
    Cure(
        VOCABULARIES,
        "by --encoders {}",
        {"a.csv": TEXTS, "b.csv": OTHER_TEXTS},
        (
            f"{TEXT_JOB} a.csv --split train -o 'o 1'",
            f"{TEXT_JOB} b.csv --split val -o 'o 1' --fit-split val",
        ),
        "--encoders 'o 1'",
        "--encoders brings its own vocabulary and settings. Leave it out, or --fit-split",
        fresh=False,
    ),
    Cure(
        VOCABULARIES,
        "or --encoders {}",
        {"a.csv": TEXTS, "b.csv": OTHER_TEXTS},
        (
            f"{TEXT_JOB} a.csv --split train -o 'o 1'",
            f"{TEXT_JOB} b.csv --split val -o 'o 1' --min-df 2",
        ),
        "--encoders 'o 1'",
        in_place_of="--min-df",
        fresh=False,
    ),
    Cure(
        VOCABULARIES,
        "Give --fit-split {}",
        {"a.csv": TEXTS, "b.csv": OTHER_TEXTS},
        (
            f"{TEXT_JOB} a.csv --split val -o 'o 1'",
            f"{TEXT_JOB} b.csv --split train -o 'o 1'",
        ),
        "--fit-split val",
        fresh=False,
    ),
    # Containers
    Cure(
        "schemas/inputs/image_options.py",
        "stores masks of objects as --masks rle only",
        {**images("set/1.png"), "a.json": coco("1.png")},
        ("convert --images set --instances a.json -o out --container webdataset --masks png",),
        "--masks rle",
    ),
    Cure(
        "transforms/shards/plan_blocks.py",
        "Use --num-shards {}",
        CLASSES,
        ("convert set -o out --container webdataset --num-shards 9",),
        "--num-shards 4",
    ),
    Cure(
        "transforms/shape/limit_blocks.py",
        "Use --limit {} or more",
        CLASSES,
        ("convert set -o out --limit 1 --group-from '^[a-z]+'",),
        "--limit 2",
    ),
    # Data sets
    Cure(
        "launch/preflight/claim_output.py",
        ", or add --overwrite to replace it",
        CLASSES,
        ("convert set -o out", "convert set -o out --container parquet"),
        "--overwrite",
        fresh=False,
    ),
    Cure(
        "launch/preflight/claim_output.py",
        "Give --split {}, another name",
        CLASSES,
        ("convert set -o out --split train", "convert set -o out --split Train"),
        "--split train",
        fresh=False,
    ),
    Cure(
        "pipelines/extract.py",
        "recordmill extract {} DIR",
        CLASSES,
        ("convert set -o 'o 1'", "extract 'o 1' more --as yolo"),
        "recordmill extract 'o 1' DIR",
        words={"DIR": "other"},
    ),
    Cure(
        "pipelines/extract.py",
        "to convert these maps, with the images of each split",
        {"set/images/train/1.png": noise(1), "set/masks/train/1.png": png(np.full((30, 40), 1, np.uint8))},
        ("convert set --class-names a,b -o 'o 1'", "extract 'o 1' 'l 1' --labels-only"),
        "recordmill convert IMAGES --format masks --mask-images 'l 1/masks' --class-names 'l 1/_classes.csv' -o OUT",
        words={"IMAGES": "set/images"},
    ),
    *(
        Cure(
            "pipelines/extract.py",
            "to convert these labels, with the images",
            files,
            (convert, f"extract 'o 1' 'l 1' --as {format_} --labels-only"),
            f"recordmill convert {cure} -o OUT",
            words={"IMAGES": folder},
        )
        for format_, files, convert, cure, folder in (
            (
                "coco",
                OF_COCO,
                TO_O_1,
                "--images IMAGES --instances 'l 1/annotations/instances_train.json' --split train",
                "img",
            ),
            ("hf", OF_COCO, TO_O_1, "'l 1' --format imagefolder --images IMAGES", "img"),
            ("voc", OF_COCO, TO_O_1, "'l 1' --format voc --images IMAGES", "by"),
            ("yolo", OF_COCO, TO_O_1, "'l 1' --format yolo --images IMAGES", "."),
            ("cvat", OF_COCO, TO_O_1, "'l 1' --format cvat --images IMAGES --match suffix", "img"),
            ("createml", OF_COCO, TO_O_1, "'l 1' --format createml --images IMAGES --match suffix", "img"),
            ("labelme", OF_COCO, TO_O_1, "'l 1' --format labelme --images IMAGES --match suffix", "img"),
            ("ndjson", OF_COCO, TO_O_1, "'l 1' --format ndjson --images IMAGES --match suffix", "img"),
            ("coco", CLASSES, "convert set -o 'o 1'", "IMAGES --labels 'l 1/annotations/labels_train.csv'", "set"),
            (
                "hf",
                CLASSES,
                "convert set -o 'o 1'",
                "IMAGES --labels 'l 1/train/metadata.jsonl' --image-column file_name --label label --split train",
                "set",
            ),
        )
    ),
    Cure(
        "transforms/records/shard_index.py",
        "recordmill index {}",
        CLASSES,
        ("convert set -o 'o 1'", "damage o*/.index/*", "open 'o 1'"),
        "recordmill index '{folder}/o 1/images-train.tfrecord-00000-of-00001'",
    ),
    Cure(
        "transforms/records/shard_index.py",
        "recordmill index %s",
        CLASSES,
        ("convert set -o 'o 1'", "delete o*/.index/*", "open 'o 1'"),
        "recordmill index '{folder}/o 1'",
    ),
    Cure(
        "launch/verbs/verify.py",
        "recordmill report {}",
        CLASSES,
        ("convert set -o 'o 1'", "verify 'o 1' --check decode"),
        "recordmill report 'o 1'",
    ),
    Cure(
        "launch/verbs/convert.py",
        "parts are complete: recordmill seal {}",
        CLASSES,
        ("convert set -o 'o 1' --part 0/1",),
        "recordmill seal 'o 1'",
    ),
    *(
        Cure(
            "pipelines/grow.py",
            "--add-as {}. If they are new versions, write them again by --sync",
            CLASSES | {"new 1/cat/1.png": noise(9), "new 1/dog/3.png": noise(8)},
            ("convert set -o out --name d", "convert 'new 1' -o out --name d --add"),
            cure,
            fresh=False,
        )
        for cure in ("--add-as 'new 1'", "--sync")
    ),
    Cure(
        "transforms/dataset/fact_lines.py",
        "recordmill repack {} {} --replan",
        CLASSES | {"new/cat/5.png": noise(9), "new/dog/6.png": noise(8)},
        ("convert set -o 'o 1' --name d", "convert new -o 'o 1' --name d --add"),
        "recordmill repack 'o 1' 'o 1-replanned' --replan",
        fresh=False,
    ),
    *(
        Cure(
            "transforms/masks/pixel_values.py",
            "If it is unknown, give --void 255",
            {f"set/{name}": data for name, data in masked((0, 255)).items()},
            ("convert set -o out --class-names 'the rest',polyp",),
            cure,
        )
        for cure in ("--class-names 'the rest=0,polyp=255'", "--void 255")
    ),
    Cure(
        "transforms/masks/pixel_values.py",
        "--class-names {}",
        {f"set/{name}": data for name, data in masked((0, 2, 7)).items()},
        ("convert set -o out",),
        "--class-names class_0=0,class_2=2,class_7=7",
    ),
    Cure(
        "transforms/masks/pixel_values.py",
        "--class-names {}",
        {f"set/{name}": data for name, data in masked(((0, 0, 0), (255, 0, 9))).items()},
        ("convert set -o out",),
        "--class-names 'class_0=#000000,class_1=#ff0009'",
    ),
    Cure(
        "transforms/masks/pixel_values.py",
        "or write them as unknown: --void {}",
        {f"set/{name}": data for name, data in masked((0, 1, 7)).items()},
        ("convert set -o out --class-names sky,car",),
        "--void 7",
    ),
    Cure(
        "transforms/masks/read_masks.py",
        "If the masks are elsewhere, add --mask-images DIR",
        {"a/1.png": noise(1), "b/1.png": masked((0, 1))["masks/1.png"]},
        ("convert a -o out --format masks --class-names sky,car",),
        "--mask-images DIR",
        words={"DIR": "b"},
    ),
    Cure(
        "transforms/masks/read_masks.py",
        "have different classes. Add --class-names FILE",
        {
            **{f"set/{split}/{name}": data for split in ("train", "val") for name, data in masked((0, 1)).items()},
            "set/train/_classes.csv": "Pixel Value, Class\n0, sky\n1, car\n",
            "set/val/_classes.csv": "Pixel Value, Class\n0, sky\n1, bus\n",
        },
        ("convert set -o out",),
        "--class-names FILE",
        words={"FILE": "set/train/_classes.csv"},
    ),
    Cure(
        "transforms/masks/recognise_masks.py",
        "recordmill convert {} --format {} -o OUT",
        images("a set/images/1.png", "a set/masks/x.png", "a set/images/2.png", "a set/masks/y.png"),
        ("convert 'a set' -o out",),
        "recordmill convert 'a set' --format folder -o OUT",
    ),
    Cure(
        "launch/verbs/sample.py",
        "recordmill convert {} --instances {} -o OUT",
        {},
        ("sample 'o 1' --count 24",),
        "recordmill convert 'o 1/images' --instances 'o 1/annotations/instances.json' -o OUT --max-rejects 1",
    ),
    Cure(
        "pipelines/extract.py",
        "or a table of labels, --as hf",
        CLASSES,
        ("convert set -o 'o 1'", "extract 'o 1' more --as yolo"),
        "--as hf",
    ),
    Cure(
        "schemas/inputs/image_options.py",
        "compares pixels, which --labels-only does not read. Add --check decode",
        CLASSES,
        ("convert set -o out --labels-only --as hf --duplicates fail",),
        "--check decode",
    ),
    Cure(
        "launch/verbs/convert_labels.py",
        "Give --as coco, {}",
        CLASSES,
        ("convert set -o out --labels-only --as yolo",),
        "--as coco",
    ),
]
