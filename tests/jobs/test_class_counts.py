"""How many there are of each class, what a model has to know of them, and what is odd about shards or classes."""

import logging
from collections import Counter

import pytest

from tests.conftest import coco_flags, manifest_of, read_examples
from tests.jobs.folders import draw_all


def warnings_of(out, split: str = "train") -> list[str]:
    return manifest_of(out)["splits"][split]["warnings"]


def logged(caplog) -> list[str]:
    """Warnings, which a person reads on standard error."""
    ours = (record for record in caplog.records if record.name.startswith("recordmill"))
    return [record.getMessage() for record in ours if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "more",
    [[], ["--writer", "beam", "--num-shards", 12], ["--categories", "star"]],
    ids=["planned", "beam", "selected"],
)
def test_the_manifest_counts_the_objects_that_are_in_records(sample, tmp_path, recordmill, more):
    outcome = recordmill(*coco_flags(sample, tmp_path, *more))
    assert outcome.code == 0, outcome
    manifest = manifest_of(tmp_path)
    names = [category["name"] for category in manifest["categories"]]
    texts = Counter(text.decode() for example in read_examples(tmp_path) for text in example["image/object/class/text"])
    assert manifest["splits"]["train"]["class_counts"] == [texts[name] for name in names]
    assert manifest["num_classes"] == max(category["id"] for category in manifest["categories"]) + 1
    assert f"  num_classes  {manifest['num_classes']}, " in outcome.out
    assert f"  classes      {len(names)}: {names[0]} {texts[names[0]]}" in outcome.out
    told = ["--num-shards 12 gives split train 12 shards for 23 images, about one in each; give fewer"]
    assert warnings_of(tmp_path) == (told if "beam" in more else [])


def test_in_layout_keras_an_image_in_two_shards_is_counted_once(sample, tmp_path, recordmill):
    assert recordmill(*coco_flags(sample, tmp_path, "--layout", "keras", "--examples-per-shard", 3)).code == 0
    split = manifest_of(tmp_path)["splits"]["train"]
    assert sum(split["class_counts"]) == split["annotations"]["objects"] > 3


def test_a_resumed_job_counts_what_was_finished_before(sample, tmp_path, recordmill):
    flags = coco_flags(sample, tmp_path, "--num-shards", 3)
    assert recordmill(*flags, "--max-rejects", 0.05).code == 1  # at its end
    assert recordmill(*flags).code == 0
    split = manifest_of(tmp_path)["splits"]["train"]
    assert sum(split["class_counts"]) == split["annotations"]["objects"] > 0


def test_images_of_one_class_each_are_counted_in_each_split_of_run_and_plan(many, tmp_path, recordmill):
    flags = ["folder", "--images", many, "--output", tmp_path / "out", "--split", "train=0.5,val=0.5", "--stratify"]
    plan = recordmill(*flags, "--dry-run")
    run = recordmill(*flags)
    counts = {split: entry["class_counts"] for split, entry in manifest_of(tmp_path / "out")["splits"].items()}
    assert [sum(pair) for pair in zip(*counts.values(), strict=True)] == [24, 12, 4]
    for split, (a, b, c) in counts.items():
        assert f"  classes      {split} 3: a {a}, b {b}, c {c}\n" in plan.out
        assert f"  classes      3: a {a}, b {b}, c {c}\n" in run.out
    assert manifest_of(tmp_path / "out")["num_classes"] == 3


def test_a_copy_of_the_classes_within_one_of_them_is_told_in_plan_run_and_manifest(tmp_path, recordmill, caplog):
    images = draw_all(tmp_path / "pets", ["Cat/1.png", "Dog/2.png", "cleaned/Cat/1.png", "cleaned/Dog/2.png"])
    flags = ["folder", "--images", images, "--output", tmp_path / "out"]
    assert recordmill(*flags, "--dry-run").code == 0
    (planned,) = logged(caplog)
    outcome = recordmill(*flags)
    (text,) = warnings_of(tmp_path / "out")
    assert "'cleaned'" in text
    assert (planned, logged(caplog), outcome.out.count(text)) == (text, [text, text], 1)
    assert recordmill(*flags, "--overwrite", "--classes", "Cat,Dog").code == 0
    assert warnings_of(tmp_path / "out") == []


def test_a_table_has_no_class_folders_to_warn_of(tmp_path, recordmill):
    images = draw_all(tmp_path / "pets", ["Cat/Dog/1.png", "Dog/2.png"])
    (tmp_path / "labels.csv").write_text("path,label\nCat/Dog/1.png,Cat\nDog/2.png,Dog\n")
    flags = ["folder", "--images", images, "--labels", tmp_path / "labels.csv", "--output", tmp_path / "out"]
    assert recordmill(*flags).code == 0
    assert warnings_of(tmp_path / "out") == []


def test_a_size_without_its_unit_is_told(sample, tmp_path, recordmill, caplog):
    assert recordmill(*coco_flags(sample, tmp_path, "--shard-size", "200", "--dry-run")).code == 0
    assert "did you mean 200MB?" in logged(caplog)[0]
