"""A .zip of a folder, with the folder at its top, is read as the folder."""

import hashlib
import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest

from recordmill.launch.cli import main
from tests.matrix import inputs

_OF_A_MAC = b"\0\5\x16\7of a Mac"
FORMATS = {  # writer, names of files to leave out, further flags
    "coco": (inputs.write_coco, "points.json captions.json panoptic.json segments", ""),
    "yolo": (inputs.write_yolo, "", ""),
    "voc": (inputs.write_voc, "", ""),
    "cvat": (inputs.write_cvat, "", ""),
    "imagefolder": (inputs.write_imagefolder, "", "--class-names dog,cat"),
    "labelme": (inputs.write_labelme, "", ""),
    "via": (inputs.write_via, "", ""),
    "labelstudio": (inputs.write_labelstudio, "", ""),
    "createml": (inputs.write_createml, "", ""),
    "tfcsv": (inputs.write_tfcsv, "", ""),
    "openimages": (inputs.write_openimages, "", ""),
    "vertex": (inputs.write_vertex, "", ""),
    "ndjson": (inputs.write_ndjson, "", ""),
    "masks": (inputs.write_masks, "", ""),
    "folder": (inputs.write_classes, "labels.csv", ""),
    "table": (inputs.write_tables, "rows.jsonl rows.parquet", ""),
}


def pack(folder: Path, path: Path, top: str) -> None:
    """Write a .zip as macOS does: each file has a member of its attributes in __MACOSX."""
    with ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                name = f"{top}/{file.relative_to(folder)}"
                archive.write(file, name)
                archive.writestr(f"__MACOSX/{Path(name).parent}/._{file.name}", _OF_A_MAC)


def convert(*words: str) -> dict[str, str]:
    """Return the SHA-256 of each shard, by name."""
    output = Path("out")
    assert main(["convert", *words, "-o", "out", "--max-rejects", "0.9", "--progress", "none"]) == 0
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in output.glob("*.tfrec*-of-*")}
    shutil.rmtree(output)
    return hashes


@pytest.mark.parametrize("name", FORMATS)
def test_zip_of_a_folder_is_read_as_the_folder(name, tmp_path, monkeypatch):
    write, left_out, flags = FORMATS[name]
    monkeypatch.chdir(tmp_path)
    folder = Path("set")
    folder.mkdir()
    write(folder)
    for path in map(folder.joinpath, left_out.split()):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if name == "folder":  # class folders at its top
        folder.joinpath("images").rename("classes")
        shutil.rmtree(folder)
        Path("classes").rename(folder)
    pack(folder, Path("set.zip"), "set")
    pack(folder, Path("other.zip"), "my set")
    named = ["--format", name, *flags.split()]
    expected = convert("set", *named)
    assert expected
    for words in (["set.zip", *flags.split()], ["set.zip", *named], ["set.zip/set", *named], ["other.zip", *named]):
        assert convert(*words) == expected, words
