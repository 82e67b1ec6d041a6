"""Jobs of images with semantic masks, read back by TensorFlow."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.conftest import examples_by_name, grey, rejects_of
from tests.literal_data import jpeg, png, write_files

IMAGE = "image/segmentation/class/encoded"


def mask(*values: object, width: int = 40, palette: bytes = b"") -> bytes:
    """Return a PNG of 30 rows, with an equal number of columns of each value, or colour."""
    columns = np.repeat(np.array([values], np.uint8), width // len(values), axis=1)
    return png(np.repeat(columns, 30, axis=0), palette)


def gif(*values: int) -> bytes:
    file = io.BytesIO()
    pixels = np.repeat(np.repeat(np.array([values], np.uint8), 40 // len(values), axis=1), 30, axis=0)
    Image.fromarray(pixels).save(file, "GIF")
    return file.getvalue()


def stored(folder, split="train") -> dict[str, list[int]]:
    """Return the values in the mask of each record, from left to right."""
    return {
        name: grey(example[IMAGE][0])[0, ::10].tolist() for name, example in examples_by_name(folder, split).items()
    }


def test_voc_without_xml(tmp_path, recordmill):
    """Lists are the splits; the palette's indices are the values; images without a usable mask are rejects."""
    palette = bytes(range(256)) * 3
    good = mask(0, 4, 15, 255, palette=palette)
    write_files(
        tmp_path,
        {
            **{f"VOC/JPEGImages/{number}.jpg": jpeg(number) for number in range(8)},
            **{f"VOC/SegmentationClass/{number}.png": good for number in (0, 1, 7)},
            "VOC/SegmentationClass/3.png": mask(0, 1, width=38, palette=palette),
            "VOC/SegmentationClass/4.png": good[:-40],
            "VOC/SegmentationClass/5.png": mask(0, 200, palette=palette),
            "VOC/ImageSets/Segmentation/train.txt": "0\n2\n3\n4\n5\n",
            "VOC/ImageSets/Segmentation/val.txt": "1\n",
            "VOC/ImageSets/Segmentation/trainval.txt": "0\n1\n",
        },
    )
    outcome = recordmill("convert", tmp_path / "VOC", "-o", tmp_path / "out", "--max-rejects", 1)
    assert outcome.code == 0, outcome
    assert stored(tmp_path / "out") == {"JPEGImages/0.jpg": [0, 4, 15, 255]}
    assert stored(tmp_path / "out", "val") == {"JPEGImages/1.jpg": [0, 4, 15, 255]}
    assert {(row["file_name"], row["reason"]) for row in rejects_of(tmp_path / "out")} == {
        ("JPEGImages/2.jpg", "mask_missing"),
        ("JPEGImages/3.jpg", "mask_size_mismatch"),
        ("JPEGImages/4.jpg", "mask_unreadable"),
        ("JPEGImages/5.jpg", "unnamed_value"),
    }
    assert "'7.png'" in outcome.out + outcome.err  # a mask without an image of a list
    labels = (tmp_path / "out" / "labels.csv").read_text().splitlines()
    assert (len(labels), labels[15]) == (21, "15,person")


@pytest.mark.parametrize(
    ("files", "flags", "values"),
    [
        (
            {
                "train/a.jpg": jpeg(1),
                "train/a_mask.png": mask(0, 2, 1, 0),
                "train/_classes.csv": "id,name\n0,a\n1,b\n2,c",
            },
            [],
            {"train/a.jpg": [0, 2, 1, 0]},
        ),
        (
            {"train/a.jpg": jpeg(1), "train_masks/a_mask.gif": gif(0, 255)},
            ["--class-names", "background=0,car=255"],
            {"train/a.jpg": [0, 0, 1, 1]},
        ),
        (
            {
                "train/a.png": jpeg(1),
                "train_labels/a_L.png": mask((9, 0, 0), (0, 9, 0), (0, 0, 9), (9, 0, 0)),
                "class_dict.csv": "name,r,g,b\nsky,0,0,9\ncar,0,9,0\nvoid,9,0,0\n",
            },
            ["--void", "2"],
            {"train/a.png": [255, 1, 0, 255]},
        ),
        (  # names of images are values of pixels: the table of classes is not one of labels
            {f"images/{n}.jpg": jpeg(n) for n in (0, 1)}
            | {f"masks/{n}.png": mask(0, 1, 1, n) for n in (0, 1)}
            | {"_classes.csv": "Pixel Value,Class\n0,a\n1,b"},
            [],
            {"images/0.jpg": [0, 1, 1, 0], "images/1.jpg": [0, 1, 1, 1]},
        ),
    ],
)
def test_layouts(files, flags, values, tmp_path, recordmill):
    """Masks beside images are no images; 255 may be a class; colours are rows of a table."""
    write_files(tmp_path / "set", files)
    outcome = recordmill("convert", tmp_path / "set", "-o", tmp_path / "out", *flags)
    assert (outcome.code, "without a label file" in outcome.out + outcome.err) == (0, False), outcome
    assert stored(tmp_path / "out") == values


def test_in_a_bucket(gcs, tmp_path, recordmill):
    files = {"images/a.jpg": jpeg(1), "masks/a.png": mask(0, 1), "classes.txt": b"sky\ncar\n"}
    for name, data in files.items():
        gcs.put(f"set/{name}", data)
    assert recordmill("convert", f"{gcs.root}/set", "-o", tmp_path / "out").code == 0
    assert stored(tmp_path / "out") == {"images/a.jpg": [0, 0, 1, 1]}
