"""The job of several data sets: its splits, its recipe, what it says of the sets."""

from pathlib import Path

import msgspec
import pytest

from recordmill.launch.command_line.parser import parse_values
from recordmill.pipelines.sets import prepare
from recordmill.schemas.errors import ConfigError
from tests.literal_data import jpeg, write_files

COCO = '{"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [], "categories": []}'
EMPTY_XML = "<annotation><object></object></annotation>"
SPLITS = {f"annotations/instances_{split}.json": COCO for split in ("train", "val")}
FILES = {
    "coco": SPLITS | {f"{split}/1.jpg": jpeg(1) for split in ("train", "val")},
    "coco2": SPLITS | {f"{split}/1.jpg": jpeg(8) for split in ("train", "val")},
    "voc": {"JPEGImages/1.jpg": jpeg(2), "Annotations/1.xml": EMPTY_XML},
    "yolo": {"data.yaml": "train: images\nnames: [a]\n", "labels/1.txt": "", "images/1.jpg": jpeg(3)},
    "pets": {"cat/1.jpg": jpeg(4), "dog/2.jpg": jpeg(5)},
    "parts": {f"{split}/{name}/1.jpg": jpeg(6) for split in ("train", "test") for name in ("cat", "dog")},
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    for name, files in FILES.items():
        write_files(tmp_path / name, files)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job_of(sets, **more):
    return prepare(parse_values("convert", {"sets": sets, "output": "out", **more}).options)


@pytest.mark.parametrize(
    ("sets", "split", "splits", "texts"),
    [
        (
            [{"data": "coco"}, {"data": "voc"}],
            None,
            ("train", "val"),
            [
                "coco (coco): splits train, val, which it names",
                "voc (voc): it names no splits, so its images go to train",
            ],
        ),
        (
            [{"data": "voc"}, {"data": "coco"}, {"data": "yolo", "split": "test"}],
            "a=0.5,train=0.5",
            ("a", "train", "val", "test"),
            [
                "voc (voc): splits a, train, by --split",
                "coco (coco): splits train, val, which it names",
                "yolo (yolo): splits test, by its own options",
            ],
        ),
        (  # a set of one split may be divided, as without other sets
            [{"data": "yolo"}, {"data": "voc"}],
            "a=0.5,b=0.5",
            ("a", "b"),
            ["yolo (yolo): splits a, b, by --split", "voc (voc): splits a, b, by --split"],
        ),
        (
            [{"data": "parts"}, {"data": "pets"}],
            "val=0.5,train=0.5",
            ("train", "test", "val"),
            ["parts (folder): splits train, test, which it names", "pets (folder): splits val, train, by --split"],
        ),
    ],
)
def test_splits(sets, split, splits, texts, folder):
    job = job_of(sets, split=split)
    assert job.splits == splits
    assert [note for note in job.notes if " (" in note] == [f"set {text}" for text in texts]


def test_split_that_divides_no_set_is_refused(folder):
    with pytest.raises(ConfigError, match=r"^--split would divide nothing, because each data set has its own splits: "):
        job_of([{"data": "coco"}, {"data": "coco2"}], split="a=0.5,b=0.5")


def test_recipe_has_inputs_and_options_of_all_sets(folder):
    (folder / "e.txt").write_text("1.jpg\n")
    sets = [{"data": "voc", "exclude": ["e.txt"], "categories": ["a"]}, {"data": "yolo", "name": "b"}]
    (recipe,) = job_of(sets, min_area=4).recipes()
    assert [(file.kind, file.path) for file in recipe.inputs] == [
        ("exclude", "e.txt"),
        ("yolo", "yolo/data.yaml"),
    ]
    assert (recipe.name, recipe.split, recipe.images) == ("sets", "train", (f"{folder}/yolo/images", "voc/JPEGImages"))
    texts = recipe.options.pop("sets")
    assert recipe.options == {"min_area": 4.0}
    assert [msgspec.json.decode(text) for text in texts] == [
        {"name": "voc", "format": "voc", "splits": ["train"], "categories": ["a"]},
        {"name": "b", "format": "yolo", "splits": ["train"]},
    ]


@pytest.mark.parametrize(
    ("sets", "more"),
    [
        ([{"data": "yolo"}, {"data": "voc"}], {}),  # their order decides ids
        ([{"data": "voc"}, {"data": "yolo", "name": "b"}], {}),
        ([{"data": "voc", "categories": ["b"]}, {"data": "yolo"}], {}),
        ([{"data": "voc"}, {"data": "yolo"}], {"split": "train=0.5,val=0.5"}),
        ([{"data": "voc"}, {"data": "yolo", "split": "train=0.5,val=0.5", "split_seed": 1}], {}),
    ],
)
def test_what_decides_bytes_is_in_the_recipe(sets, more, folder):
    assert job_of([{"data": "voc"}, {"data": "yolo"}]).recipes()[0] != job_of(sets, **more).recipes()[0]


def test_shares_are_checked_if_all_sets_are_divided(folder):
    divided = job_of([{"data": "voc"}, {"data": "yolo"}], split="train=0.5,val=0.5")
    assert divided.options.checked_shares(divided.splits)
    assert divided.recipes()[0].options["split"] == "train=0.5,val=0.5"
    some = job_of([{"data": "voc"}, {"data": "coco"}], split="train=0.5,val=0.5")
    assert not some.options.checked_shares(some.splits)
    recorded = [msgspec.json.decode(text).get("split") for text in some.recipes()[0].options["sets"]]
    assert ("split" in some.recipes()[0].options, recorded) == (False, ["train=0.5,val=0.5", None])
