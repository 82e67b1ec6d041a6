"""`recordmill folder`: which split and which class an image is of."""

from collections import Counter

from tests.jobs.folders import (
    SPLITS,
    counts,
    divided,
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


# Tables of labels
