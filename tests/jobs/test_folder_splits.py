"""`recordmill folder`: which split an image is of."""

import shutil
from collections import Counter
from pathlib import Path

from tests.conftest import shard_bytes
from tests.jobs.folders import SPLITS, THREE, divided, draw_all


def test_images_stay_in_their_split_when_others_join_and_go(many, tmp_path, recordmill):
    before = divided(recordmill, many, tmp_path / "before")
    assert Counter(before.values()) == {"train": 24, "val": 9, "test": 7}
    by_split = {split: [number for number in range(12) if before[f"b/{number}.png"] == split] for split in SPLITS}
    assert by_split == {"train": [1, 3, 6, 8, 10, 11], "val": [5, 7], "test": [0, 2, 4, 9]}  # of all versions
    grown = Path(shutil.copytree(many, tmp_path / "grown"))
    draw_all(grown, [f"{class_}/new {number}.jpg" for class_ in "abd" for number in range(5)])
    for number in range(10):
        (grown / "a" / f"{number}.png").unlink()
    after = divided(recordmill, grown, tmp_path / "after")
    assert len(after) == 40 + 15 - 10
    assert {name: split for name, split in after.items() if name in before} == {
        name: split for name, split in before.items() if name in after
    }


def test_another_seed_moves_no_image_between_splits_and_another_split_seed_does(many, tmp_path, recordmill):
    before = divided(recordmill, many, tmp_path / "before")
    assert divided(recordmill, many, tmp_path / "seed", "--seed", 1) == before
    assert shard_bytes(tmp_path / "seed") != shard_bytes(tmp_path / "before")
    other = divided(recordmill, many, tmp_path / "split seed", "--split-seed", 1)
    assert set(other) == set(before)
    assert sum(other[name] != before[name] for name in before) > 15


def test_stratify_gives_each_split_its_share_of_every_class(many, tmp_path, recordmill):
    found = divided(recordmill, many, tmp_path / "out", "--stratify")
    assert Counter((name.split("/")[0], split) for name, split in found.items()) == {
        ("a", "train"): 12,
        ("a", "val"): 6,
        ("a", "test"): 6,
        ("b", "train"): 6,
        ("b", "val"): 3,
        ("b", "test"): 3,
        ("c", "train"): 2,
        ("c", "val"): 1,
        ("c", "test"): 1,
    }
    grown = draw_all(Path(shutil.copytree(many, tmp_path / "grown")), [f"d/{number}.jpg" for number in range(8)])
    after = divided(recordmill, grown, tmp_path / "after", "--stratify")
    assert after.items() >= found.items()  # of the other classes none is moved by a new one
    assert Counter(split for name, split in after.items() if name.startswith("d/")) == {"train": 4, "val": 2, "test": 2}


def test_stratified_groups_of_a_table_are_in_one_split(many, tmp_path, recordmill):
    """Half of a and b are in pairs of one of each, where paths are typed with `./`."""
    listed = tmp_path / "groups.csv"
    listed.write_text("file_name,group\n" + "".join(f"./{name}/{n}.png,{n}\n" for n in range(6) for name in "ab"))
    found = divided(recordmill, many, tmp_path / "out", "--stratify", "--groups", listed)
    assert [found[f"a/{number}.png"] for number in range(6)] == [found[f"b/{number}.png"] for number in range(6)]
    plain = divided(recordmill, many, tmp_path / "plain", "--stratify")
    assert [plain[f"a/{number}.png"] for number in range(6)] != [plain[f"b/{number}.png"] for number in range(6)]
    assert Counter(found.values()) == {"train": 20, "val": 9, "test": 11}  # nobody is off by more than a pair


def test_a_split_that_gets_no_image_is_an_error(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["a/1.jpg", "b/2.jpg"])
    outcome = recordmill("folder", "--images", images, "--output", tmp_path / "out", *THREE)
    assert outcome.code == 2
    assert "gets none of the 2 images; give it a larger share, try another --split-seed or --stratify" in outcome.err
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_dry_run_tells_the_images_of_each_split_and_writes_nothing(many, tmp_path, recordmill):
    outcome = recordmill("folder", "--images", many, "--output", tmp_path / "out", *THREE, "--dry-run")
    assert outcome.code == 0
    assert "images-train, images-val, images-test would be written to" in outcome.out
    assert "images       40\n" in outcome.out
    assert "               train 24, val 9, test 7\n" in outcome.out
    assert "classes      train 3: " in outcome.out
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_tells_of_a_split_that_gets_no_image(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["a/1.jpg", "b/1.jpg"])
    flags = ["--images", images, "--output", tmp_path / "out", "--split", "val=1/1000,train=0.999", "--dry-run"]
    outcome = recordmill("folder", *flags)
    assert outcome.code == 2
    assert "split val gets none of the 2 images" in outcome.err
