"""Label files that name their images: rows are merged by image, and classes are collected."""

import pytest

from recordmill.launch.runners.beam_options import beam_options
from recordmill.launch.verbs.convert import convert
from recordmill.pipelines.annotated import prepare
from recordmill.schemas.errors import CollidingImagesError
from tests.conftest import draw_jpeg, manifest_of, read_examples, rejects_of
from tests.transforms.annotated.line_format import LineOptions

LINES = {
    "a.rows": ["x/1.jpg dog 0 0 4 3", "x/2.jpg cat 4 3 8 6", "x/1.jpg cat 10 15 20 15"],
    "b.rows": ["x/1.jpg bee 0 0 40 30", "x/1.jpg bee", "gone.jpg cat 0 0 4 3"],
}


@pytest.fixture
def folder(tmp_path):
    for number in (1, 2, 3):
        draw_jpeg(tmp_path / "data" / "x" / f"{number}.jpg")
    for name, lines in LINES.items():
        (tmp_path / "data" / name).write_text("\n".join(lines))
    return tmp_path


def run(folder, **more):
    options = LineOptions(data=str(folder / "data"), output=str(folder / "out"), max_rejects=0.5, **more)
    convert(prepare(options), "none", beam_options([]))
    return {example["image/filename"][0].decode(): example for example in read_examples(folder / "out")}


def test_rows_of_an_image_are_merged_and_classes_collected(folder):
    found = run(folder)
    assert [found["x/1.jpg"][f"image/object/bbox/{edge}"] for edge in ("xmin", "ymin")] == [[0, 0.25, 0], [0, 0.5, 0]]
    assert found["x/1.jpg"]["image/object/class/text"] == [b"dog", b"cat", b"bee"]
    assert found["x/1.jpg"]["image/object/class/label"] == [3, 2, 1]
    assert len(set(found["x/1.jpg"]["image/object/id"])) == 3
    split = manifest_of(folder / "out")["splits"]["train"]
    assert (split["images"]["rows"], split["images"]["written"], split["annotations"]["rows"]) == (3, 2, 6)
    assert split["unlisted"] == {"files": 1, "first": ["x/3.jpg"]}
    lines = {line["reason"]: line["detail"] for line in rejects_of(folder / "out")}
    assert lines == {
        "malformed_box": "b.rows, line 2: 0 numbers",
        "image_missing": "no file 'gone.jpg' under --images",
    }


def test_categories_split_and_stratify(folder):
    run(folder, categories=["cat"], split="train=0.5,val=0.5", stratify=True)
    manifest = manifest_of(folder / "out")
    assert [each["name"] for each in manifest["categories"]] == ["cat"]
    assert [split["class_counts"] for split in manifest["splits"].values()] == [[1], [1]]


def test_a_name_that_two_files_match(folder):
    draw_jpeg(folder / "data" / "y" / "1.jpg")
    with pytest.raises(CollidingImagesError, match=r"--match name: .*'x/1.jpg' and 'y/1.jpg'"):
        run(folder, match="name")
