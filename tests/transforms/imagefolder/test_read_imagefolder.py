"""Metadata files that imagefolder refuses, and what their messages advise."""

import json

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.imagefolder import read_imagefolder
from recordmill.transforms.imagefolder.imagefolder_options import ImagefolderOptions
from tests.literal_data import write_files

OBJECTS = 'Write them into it, as {"bbox": [[x, y, width, height]], "category": ["cat"]} with lists of one length'


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "train/metadata.csv",
            "file_name,xmin,ymin,xmax,ymax,label\n1.jpg,1,2,3,4,cat",
            "d ata/train/metadata.csv has boxes (xmin, ymin, xmax, ymax) outside the column objects. Convert them by: "
            "recordmill convert 'd ata' --format tfcsv -o OUT",
        ),
        (
            "metadata.csv",
            "file_name,x,y,w,h,label\n1.jpg,1,2,3,4,cat",
            "d ata/metadata.csv has boxes (x, y, w, h) outside the column objects. Convert them by: recordmill convert "
            "'d ata/metadata.csv' --format tfcsv -o OUT",
        ),
        (
            "metadata.csv",
            "file_name,x,y,w,h,kind\n1.jpg,1,2,3,4,cat",
            f"d ata/metadata.csv has boxes (x, y, w, h) outside the column objects. {OBJECTS}",
        ),
        (
            "train/metadata.jsonl",
            '{"file_name": "1.jpg", "bbox": [[1, 2, 3, 4]], "category": ["cat"]}',
            f"d ata/train/metadata.jsonl has boxes (bbox) outside the column objects. {OBJECTS}",
        ),
        (
            "metadata.csv",
            "file_name,size,Label\n1.jpg,7,cat",
            "d ata/metadata.csv has neither objects nor captions (text, caption, captions). Its columns are: "
            "file_name, size, Label. "
            "recordmill convert 'd ata' --labels 'd ata/metadata.csv' --label Label -o OUT reads one as "
            "the class of the image, recordmill convert 'd ata/metadata.csv' --format table --images 'd ata' "
            "--image-column file_name -o OUT reads all",
        ),
        (
            "metadata.csv",
            "file_name,size\n1.jpg,7",
            "d ata/metadata.csv has neither objects nor captions (text, caption, captions). Its columns are: "
            "file_name, size. "
            "recordmill convert 'd ata' --labels 'd ata/metadata.csv' --label COLUMN -o OUT reads one as the "
            "class of the image, recordmill convert 'd ata/metadata.csv' --format table --images 'd ata' "
            "--image-column file_name -o OUT reads all",
        ),
    ],
)
def test_advice_of_a_file_without_objects(tmp_path, monkeypatch, name, text, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "d ata" / name
    path.parent.mkdir(parents=True)
    path.write_text(f"{text}\n")
    with pytest.raises(ConfigError) as caught:
        ImagefolderOptions(data="d ata", output="out").source()
    assert str(caught.value) == message


def test_no_image_outside_the_folder_is_read(tmp_path, monkeypatch):
    """Sizes of images tell the format of boxes before the job checks names."""
    read = list[bytes]()
    monkeypatch.setattr(read_imagefolder, "inspect_image", lambda data, _: (read.append(data), "png", 40, 30)[1:])
    objects = {"bbox": [[1, 1, 30, 20]], "category": ["cat"]}
    rows = [{"file_name": name, "objects": objects} for name in ("../1.png", "1.png", str(tmp_path / "1.png"))]
    files = {"1.png": b"outside", "data/1.png": b"inside", "data/metadata.jsonl": "\n".join(map(json.dumps, rows))}
    write_files(tmp_path, files)
    read_imagefolder.source(ImagefolderOptions(data=str(tmp_path / "data"), output="out"))
    assert read == [b"inside"]
