"""`recordmill folder`: which classes there are, and which are taken."""

import zipfile

import pytest

from tests.conftest import manifest_of
from tests.jobs.folders import class_list, classes_of, counts, draw_all, examples_of


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg"], "are called 'train', 'val', as splits are"),
        (["cat/1.jpg", "notes.jpg"], "if it is the only class, --classes cat"),
    ],
)
def test_folders_that_are_not_likely_to_be_classes_are_refused(tmp_path, recordmill, names, told):
    images = draw_all(tmp_path / "images", names)
    for more in ([], ["--dry-run"]):
        outcome = recordmill("folder", "--images", images, "--output", tmp_path / "out", "--max-rejects", 1, *more)
        assert outcome.code == 1
        assert told.format(images=images) in outcome.err
        assert outcome.err.count("\n") == 1
        assert not (tmp_path / "out" / "manifest.json").exists()


def test_folders_that_are_called_as_splits_are_classes_if_they_are_named(tmp_path, recordmill):
    """Trains, and laboratory tests, may well be photographed."""
    names = ["train/1.jpg", "test/2.jpg"]
    flags = ["--images", draw_all(tmp_path / "images", names), "--output", tmp_path / "out"]
    outcome = recordmill("folder", *flags, "--classes", "train,test")
    assert outcome.code == 0, outcome
    assert classes_of(tmp_path / "out") == {name: name.split("/")[0] for name in names}
    assert class_list(tmp_path / "out") == ["train", "test"]


@pytest.mark.parametrize(("asked", "told"), [([], 1), (["--classes", "1,2"], 0)])
def test_classes_that_are_called_by_other_numbers_than_their_labels_are_told_unless_asked_for(
    tmp_path, recordmill, asked, told
):
    flags = ["--images", draw_all(tmp_path / "images", ["1/1.jpg", "2/2.jpg"]), "--output", tmp_path / "out"]
    outcome = recordmill("folder", *flags, *asked)
    assert outcome.out.count("that of class '1' is 0 (2 of 2") == told


def test_the_one_folder_at_the_top_of_a_zip_is_no_class(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["cat/1.jpg", "dog/2.jpg"])
    archive = tmp_path / "pets.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in images.rglob("*.jpg"):
            file.write(path, f"data/{path.relative_to(images)}")
    outcome = recordmill("folder", "--images", archive, "--output", tmp_path / "out")
    assert outcome.code == 1
    assert f"give --images {archive}/data" in outcome.err
    outcome = recordmill("folder", "--images", archive / "data", "--output", tmp_path / "out")
    assert outcome.code == 0, outcome
    assert class_list(tmp_path / "out") == ["cat", "dog"]


def test_only_the_classes_that_are_asked_for_in_that_order(many, tmp_path, recordmill):
    """One that has no image keeps its index."""
    flags = ["--images", many, "--output", tmp_path, "--classes", "c,zebra,a"]
    outcome = recordmill("folder", *flags)
    assert outcome.code == 0
    assert class_list(tmp_path) == ["c", "zebra", "a"]
    found = {
        (name.split("/")[0], example["image/class/text"][0], example["image/class/label"][0])
        for name, example in examples_of(tmp_path).items()
    }
    assert found == {("c", b"c", 0), ("a", b"a", 2)}
    assert counts(tmp_path) == {"rows": 40, "written": 28, "without_record": 0, "rejected": {}, "of_other_classes": 12}
    assert "28 of 40 (of classes not asked for 12)" in outcome.out
    assert recordmill("verify", tmp_path).code == 0


def test_a_second_split_with_other_classes_is_refused(many, tmp_path, recordmill):
    other = draw_all(tmp_path / "other", ["a/1.jpg", "z/2.jpg"])
    out = tmp_path / "out"
    assert recordmill("folder", "--images", many, "--output", out).code == 0
    before = manifest_of(out)
    outcome = recordmill("folder", "--images", other, "--output", out, "--split", "val")
    assert outcome.code == 1
    assert "split val has other categories than split train" in outcome.err
    assert manifest_of(out) == before
    flags = ["--images", other, "--output", out, "--split", "val", "--classes", "a,b,c", "--overwrite"]
    assert recordmill("folder", *flags).code == 0
    assert counts(out, "val")["of_other_classes"] == 1
    assert set(manifest_of(out)["splits"]) == {"train", "val"}
    assert recordmill("verify", out).code == 0
