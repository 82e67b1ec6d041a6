"""`recordmill folder`: which split and which class an image is of."""

import shutil
from collections import Counter
from pathlib import Path

from tests.conftest import manifest_of, shard_bytes
from tests.jobs.folders import (
    SPLITS,
    class_list,
    classes_of,
    counts,
    divided,
    draw_all,
    examples_of,
    image_files,
    splits_of,
    three_splits,
    write_table,
)


def test_images_stay_in_their_split_when_others_join_and_go(many, tmp_path, recordmill):
    before = divided(recordmill, many, tmp_path / "before")
    assert Counter(before.values()) == {"train": 24, "val": 9, "test": 7}
    by_split = {split: [number for number in range(12) if before[f"b/{number}.png"] == split] for split in SPLITS}
    assert by_split == {"train": [1, 3, 6, 8, 10, 11], "val": [5, 7], "test": [0, 2, 4, 9]}  # of all versions
    assert divided(recordmill, many, tmp_path / "seed", "--seed", 1) == before
    assert shard_bytes(tmp_path / "seed") != shard_bytes(tmp_path / "before")
    other = divided(recordmill, many, tmp_path / "split seed", "--split-seed", 1)
    assert set(other) == set(before)
    assert sum(other[name] != before[name] for name in before) > 15
    grown = Path(shutil.copytree(many, tmp_path / "grown"))
    draw_all(grown, [f"{class_}/new {number}.jpg" for class_ in "abd" for number in range(5)])
    for number in range(10):
        (grown / "a" / f"{number}.png").unlink()
    after = divided(recordmill, grown, tmp_path / "after")
    assert len(after) == 40 + 15 - 10
    assert {name: split for name, split in after.items() if name in before} == {
        name: split for name, split in before.items() if name in after
    }


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
    assert sum(counts(tmp_path / "out", split).get("groups", 0) for split in SPLITS) == 6
    plain = divided(recordmill, many, tmp_path / "plain", "--stratify")
    assert [plain[f"a/{number}.png"] for number in range(6)] != [plain[f"b/{number}.png"] for number in range(6)]
    assert Counter(found.values()) == {"train": 20, "val": 9, "test": 11}  # nobody is off by more than a pair


def test_only_the_classes_that_are_asked_for_in_that_order(many, tmp_path, recordmill):
    """One that has no image keeps its index."""
    flags = ["--images", many, "--output", tmp_path, "--classes", "c,zebra,a"]
    assert recordmill("folder", *flags).code == 0
    assert class_list(tmp_path) == ["c", "zebra", "a"]
    found = {
        (name.split("/")[0], example["image/class/text"][0], example["image/class/label"][0])
        for name, example in examples_of(tmp_path).items()
    }
    assert found == {("c", b"c", 0), ("a", b"a", 2)}
    assert counts(tmp_path) == {"rows": 40, "written": 28, "without_record": 0, "rejected": {}, "of_other_classes": 12}
    assert recordmill("verify", tmp_path).code == 0


# Tables of labels


def test_a_table_without_splits_divides_as_the_folder_does(pictures, converted, tmp_path, recordmill):
    rows = [(name, name.split("/")[0]) for name in sorted(image_files(pictures), reverse=True)]
    table = write_table(tmp_path / "labels.csv", [("image", "class"), *rows])
    outcome = recordmill("folder", *three_splits(pictures, tmp_path / "out"), "--labels", table)
    assert outcome.code == 0, outcome
    assert shard_bytes(tmp_path / "out") == shard_bytes(converted)


def test_several_tables_with_splits(tmp_path, recordmill):
    names = ["a.jpg", "b.png", "in/c.jpg", "in/d e.JPG", "f.jpg"]
    images = draw_all(tmp_path / "images", [*names, "extra.jpg"])
    splits = ["TRAIN", "test", "Validation", "train", "test"]
    labels = ["dog", "cat, big", "dog", "cat, big", "emu"]
    rows = list(zip(splits, names, labels, strict=True))
    write_table(tmp_path / "1.csv", [("split", "image_uri", "label"), *rows[:3]])
    write_table(tmp_path / "2.csv", [("class", "set", "file"), *((label, *row) for *row, label in rows[3:])])
    tables = ["--labels", tmp_path / "1.csv", "--labels", tmp_path / "2.csv"]
    outcome = recordmill("folder", "--images", images, *tables, "--output", tmp_path / "out")
    assert outcome.code == 0, outcome
    assert splits_of(tmp_path / "out") == dict(zip(names, map(str.lower, splits), strict=True))
    assert classes_of(tmp_path / "out") == dict(zip(names, labels, strict=True))
    assert class_list(tmp_path / "out") == ["cat, big", "dog", "emu"]
    assert manifest_of(tmp_path / "out")["splits"]["test"]["unlisted"] == {"files": 1, "first": ["extra.jpg"]}
    assert recordmill("verify", tmp_path / "out").code == 0
