"""The recipe holds every setting that decides the bytes of a split."""

import base64
from fractions import Fraction

import google_crc32c
import pytest

from recordmill.pipelines import coco
from recordmill.pipelines import folder as folders
from recordmill.schemas.dataset.manifest import FORMAT
from recordmill.schemas.dataset.recipes import InputFile, Recipe
from recordmill.schemas.errors import AnnotationFileError, ConfigError
from recordmill.schemas.inputs.encoders import EncoderSource, TextForm, TextSettings
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.folder.folder_options import FolderOptions

HALVES = (("b", Fraction(1, 2)), ("a", Fraction(1, 2)))


def checksum(data: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with two folders of images in it."""
    for name, size in (("images/cat/1.jpg", 3), ("images/dog/1.jpg", 4), ("more/cow/é.jpg", 5)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options(**changed) -> FolderOptions:
    return FolderOptions(**{"data": ("more", "images"), "output": "out"} | changed)


def recipes_of(given: FolderOptions) -> list[Recipe]:
    return folders.prepare(given).recipes()


def table(folder, name: str, text: str) -> InputFile:
    (folder / name).write_text(text)
    return InputFile("labels", name, len(text), checksum(text.encode()))


def test_recipe_of_annotation_files_has_their_checksums(folder):
    (folder / "a.json").write_bytes(b"{}")
    (folder / "p.json").write_bytes(b"[]")
    given = CocoOptions(
        images=("images",), output="out", instances=("a.json",), panoptic=("p.json",), panoptic_masks=("more",)
    )
    inputs = (
        InputFile("instances", "a.json", 2, checksum(b"{}")),
        InputFile("panoptic", "p.json", 2, checksum(b"[]"), "more"),
    )
    expected = Recipe(
        FORMAT, "coco", "train", "detection", given.table.parts, inputs, ("images",), given.record_options
    )
    assert coco.prepare(given).recipes() == [expected]


def test_recipe_of_texts_has_their_files(folder):
    (folder / "c.json").write_bytes(b"{}")
    (folder / "stop.txt").write_bytes(b"the")
    (folder / "e.json").write_bytes(b"[]")
    settings = TextSettings(TextForm.COUNTS)
    given = CocoOptions(
        images=("images",), output="out", captions=("c.json",), caption_text="counts", stop_words=("stop.txt",)
    )
    fitted = coco.inputs(given, EncoderSource("captions", settings, "train"))
    applied = coco.inputs(given, EncoderSource("captions", settings, path="e.json"))
    assert list(fitted)[1:] == [InputFile("stop_words", "stop.txt", 3, checksum(b"the"))]
    assert list(applied)[1:] == [InputFile("encoders", "e.json", 2, checksum(b"[]"))]


def test_order_of_repeated_flags_does_not_matter(folder):
    for name in ("a.json", "b.json", "p.json", "q.json"):
        (folder / name).write_text(f'"{name}"')
    given = CocoOptions(
        images=("images", "more"),
        output="out",
        instances=("a.json", "b.json"),
        panoptic=("p.json", "q.json"),
        panoptic_masks=("images", "more"),
        categories=("cat", "dog"),
    )
    turned = {
        name: getattr(given, name)[::-1] for name in ("images", "instances", "panoptic", "panoptic_masks", "categories")
    }
    recipes = coco.prepare(given).recipes()
    assert coco.prepare(given.model_copy(update=turned)).recipes() == recipes
    crossed = given.model_copy(update={"panoptic_masks": given.panoptic_masks[::-1]})
    assert coco.prepare(crossed).recipes() != recipes


# Folders whose names give the labels


def test_without_tables_inputs_are_folders(folder):
    inputs = (InputFile("images", "images", 0, ""), InputFile("images", "more", 0, ""))
    asked = options(split=HALVES)
    assert recipes_of(asked) == [
        Recipe(FORMAT, "images", split, "classification", (), inputs, ("images", "more"), asked.record_options)
        for split in ("b", "a")
    ]


# Tables of labels


def test_tables_without_splits_leave_them_to_options(folder):
    inputs = table(folder, "a.csv", "path,label\ncat/1.jpg,cat\n"), table(folder, "b.csv", "path,label\nx.jpg,\n")
    recipes = recipes_of(options(labels=("b.csv", "a.csv"), split=HALVES))
    assert [(recipe.split, recipe.inputs) for recipe in recipes] == [("b", inputs), ("a", inputs)]


def test_tables_with_splits_give_them_sorted(folder):
    table(folder, "a.csv", "path,label,split\n1.jpg,cat,TRAIN\n2.jpg,cat,test\n3.jpg,cat,train\n")
    table(folder, "b.csv", "image;class;set\n4.jpg;cat;validation\n5.jpg;;more\n")
    recipes = recipes_of(options(labels=("a.csv", "b.csv")))
    assert [recipe.split for recipe in recipes] == ["test", "train", "validation"]


TRAIN, VAL = (("train", Fraction(1)),), (("val", Fraction(1)),)
HEAD = "path,label,split\n"


@pytest.mark.parametrize(
    ("tables", "split", "word"),
    [
        ((f"{HEAD}1.jpg,cat,a\n", "path,label\n2.jpg,cat\n"), TRAIN, "the other tables do not"),
        ((f"{HEAD}1.jpg,cat,y\n2.jpg,cat,x\n",), HALVES, "has a column of splits (x, y)"),
        ((f"{HEAD}1.jpg,cat,y\n",), VAL, "has a column of splits (y)"),
        ((f"{HEAD}1.jpg,cat,val\n",), VAL, "has a column of splits (val)"),
        ((f"{HEAD},,\n , ,\n",), TRAIN, "no row"),
        ((f"{HEAD}1.jpg,cat,\n2.jpg,,x\n",), TRAIN, "no row"),
    ],
)
def test_splits_are_given_in_one_way(folder, tables, split, word):
    names = tuple(f"{number}.csv" for number in range(len(tables)))
    for name, text in zip(names, tables, strict=True):
        table(folder, name, text)
    with pytest.raises(ConfigError) as caught:
        recipes_of(options(labels=names, split=split))
    assert "0.csv" in str(caught.value)
    assert word in str(caught.value)


def test_table_without_its_columns(folder):
    table(folder, "a.csv", "path\n1.jpg\n")
    with pytest.raises(AnnotationFileError, match=r"a\.csv has no column of labels"):
        recipes_of(options(labels=("a.csv",)))
