"""`recordmill folder`: which split and which class an image is of."""

from collections import Counter

from tests.conftest import draw_jpeg, manifest_of
from tests.jobs.folders import (
    SPLITS,
    class_list,
    classes_of,
    counts,
    divided,
    draw_all,
    splits_of,
    write_table,
)


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


def test_splits_by_rank_are_exact_for_the_classes_that_are_wanted(many, tmp_path, recordmill):
    found = divided(recordmill, many, tmp_path / "out", "--split-by", "rank", "--classes", "a,c")
    assert Counter(found.values()) == {"train": 14, "val": 7, "test": 7}
    assert set(found.values()) == set(SPLITS)


# Tables of labels


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


def test_a_split_that_is_added_has_the_labels_of_the_others(tmp_path, recordmill):
    for name, classes in {"train": "abc", "test": "ac", "more": "abd"}.items():
        for class_ in classes:
            draw_jpeg(tmp_path / name / class_ / f"{name}.jpg")
    flags = ["folder", "--output", tmp_path / "out"]
    assert recordmill(*flags, "--images", tmp_path / "train", "--split", "train").code == 0
    added = recordmill(*flags, "--images", tmp_path / "test", "--split", "test")
    assert added.code == 0
    assert f"no image is of 'b'; labels are those of train of {tmp_path / 'out'}" in added.out
    assert manifest_of(tmp_path / "out")["splits"]["test"]["class_counts"] == [1, 0, 1]
    refused = recordmill(*flags, "--images", tmp_path / "more", "--split", "more")
    assert refused.code == 1
    assert "has no class 'd', so labels would differ between splits: give the same --classes" in refused.err
    assert not list((tmp_path / "out").glob(".recordmill-more/*tfrecord*"))
