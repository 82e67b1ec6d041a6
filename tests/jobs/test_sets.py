"""Several data sets become one, from the words of a user to shards."""

import json
from collections import Counter
from pathlib import Path

import pytest

import recordmill as public
from tests.literal_data import jpeg, write_files


def coco(*names: str, ids: dict[str, int], first: int = 0) -> dict[str, bytes | str]:
    """Images of an object each; the class of image N is that of the index N among `ids`."""
    images = [{"id": number, "file_name": name, "width": 40, "height": 30} for number, name in enumerate(names)]
    annotations = [
        {"id": number, "image_id": number, "category_id": [*ids.values()][number % len(ids)], "bbox": [1, 2, 3, 4]}
        for number in range(len(names))
    ]
    annotations = [row | {"area": 12, "iscrowd": 0} for row in annotations]
    rows = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": id_, "name": name} for name, id_ in ids.items()],
    }
    files = {f"images/{name}": jpeg(first + number) for number, name in enumerate(names)}
    return {"annotations/instances.json": json.dumps(rows), **files}


def yolo(*names: str, classes: tuple[str, ...], first: int) -> dict[str, bytes | str]:
    labels = {
        f"labels/{name[:-4]}.txt": f"{number % len(classes)} 0.5 0.5 0.5 0.5\n" for number, name in enumerate(names)
    }
    images = {f"images/{name}": jpeg(first + number) for number, name in enumerate(names)}
    return {"data.yaml": f"train: images\nnames: {json.dumps(classes)}\n", **labels, **images}


def write_sets(folder: Path) -> None:
    names = [f"{number}.jpg" for number in range(6)]
    write_files(folder / "a", coco(*names, ids={"cat": 7, "dog": 3}))
    write_files(folder / "b", yolo(*names, classes=("dog", "cow"), first=10))
    write_files(folder / "more/a", coco("x.jpg", "y.jpg", ids={"cow": 7}))  # the bytes of a's first images


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    write_sets(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def classes_by_name(out: str) -> dict[str, list[str]]:
    data_set = public.open(out)
    names = [category.name for category in data_set.manifest.categories]
    return {
        record["file_name"].decode(): [names[label] for label in record["labels"]]
        for split in data_set.manifest.splits
        for record in data_set[split]
    }


EXPECTED = {
    **{f"a/{number}.jpg": [("cat", "dog")[number % 2]] for number in range(6)},
    **{f"b/images/{number}.jpg": [("dog", "cow")[number % 2]] for number in range(6)},
    "a2/x.jpg": ["cow"],
    "a2/y.jpg": ["cow"],
}


def test_sets_of_a_command_and_of_a_config(folder, recordmill):
    done = recordmill("convert", "a", "b", "more/a", "-o", "out")
    assert done.code == 0, done
    assert "3 data sets become one: a (coco), b (yolo), a2 (coco)" in done.out
    assert "data sets           a (coco: train), b (yolo: train), a2 (coco: train)" in done.out
    assert "note: set a (coco): it names no splits, so its images go to train" in done.err
    assert "the sets share 2 images with the same bytes" in done.out
    assert classes_by_name("out") == EXPECTED
    (folder / "job.yaml").write_text(
        "output: configured\nsets:\n- {data: a, split: {train: 0.5, val: 0.5}, split-by: rank}\n"
        "- {data: b, split: test}\n- data: more/a\n  name: c\n"
    )
    done = recordmill("convert", "--config", "job.yaml")
    assert done.code == 0, done
    manifest = public.open("configured").manifest
    assert {name: split.images.written for name, split in manifest.splits.items()} == {"train": 5, "val": 3, "test": 6}
    assert classes_by_name("configured").keys() == {name.replace("a2/", "c/") for name in EXPECTED}
    again = recordmill("convert", "--config", "job.yaml")
    assert (again.code, "configured already has all these splits" in again.out) == (0, True), again
    assert recordmill("verify", "configured", "--check", "decode").code == 0


def test_sets_of_a_call(folder, empty_pages):
    sets = [{"data": "a", "categories": ["cat"]}, {"data": folder / "b"}]
    data_set = public.convert(sets=sets, output="out", num_shards=1, progress="none")
    dogs = {name: classes for name, classes in EXPECTED.items() if classes != ["cow"] or name.startswith("b/")}
    assert classes_by_name(data_set.path) == {
        name: [] if name.startswith("a/") and classes == ["dog"] else classes for name, classes in dogs.items()
    }
    with pytest.raises(
        public.ConfigError, match=r"^b: num_shards is an option of the whole job. Give it beside the sets$"
    ):
        public.convert(sets=[{"data": "a"}, {"data": "b", "num_shards": 2}], output="out")


def splits_by_name(out: str) -> dict[str, str]:
    data_set = public.open(out)
    return {record["file_name"].decode(): split for split in data_set.manifest.splits for record in data_set[split]}


def test_groups_of_the_job_hold_images_of_two_sets(folder, recordmill):
    """Their names are those of records, as in duplicates.jsonl."""
    flags = ["--split", "train=0.5,val=0.5", "--split-seed", 0]
    assert recordmill("convert", "a", "more/a", "-o", "apart", *flags).code == 0
    (folder / "groups.csv").write_text("file_name,group\na/0.jpg,g\na2/x.jpg,g\na2/y.jpg,h\na/1.jpg,h\n")
    done = recordmill("convert", "a", "more/a", "-o", "out", *flags, "--groups", "groups.csv")
    assert done.code == 0, done
    pairs = [("a/0.jpg", "a2/x.jpg"), ("a/1.jpg", "a2/y.jpg")]
    apart, together = (
        [splits[one] == splits[other] for one, other in pairs] for splits in map(splits_by_name, ("apart", "out"))
    )
    assert (all(apart), together) == (False, [True, True])
    assert sum(split.images.groups for split in public.open("out").manifest.splits.values()) == 2


def test_stratify_divides_each_set(folder, recordmill):
    """Also label files beside images, whose step would be fused with one that needs the classes of all of them."""
    done = recordmill("convert", "a", "b", "-o", "out", "--split", "train=0.5,val=0.5", "--stratify")
    assert done.code == 0, done
    assert Counter((name[0], split) for name, split in splits_by_name("out").items()) == {
        (top, split): 3 for top in "ab" for split in ("train", "val")
    }


def test_job_excludes_by_the_names_of_records(folder, recordmill):
    (folder / "left_out.txt").write_text("a/0.jpg\nb/images/1.jpg\n")
    done = recordmill("convert", "a", "b", "-o", "out", "--exclude", "left_out.txt", "--duplicates", "drop")
    assert done.code == 0, done
    assert classes_by_name("out").keys() == {name for name in EXPECTED if name[:2] in ("a/", "b/")} - {
        "a/0.jpg",
        "b/images/1.jpg",
    }


def test_further_splits_get_the_class_ids_of_the_data_set(folder, recordmill):
    """The ids of `b` are others than those of `a`; classes meet by name."""
    assert recordmill("convert", "a", "b", "-o", "out").code == 0
    one = {"data": "b", "name": "c", "split": "val"}
    two = {"data": "more/a", "split": "val"}
    sets = [word for given in (one, two) for word in ("--sets", json.dumps(given))]
    done = recordmill("convert", *sets, "-o", "out")
    assert done.code == 0, done
    found = classes_by_name("out")
    assert {name: found[name] for name in found if name.startswith(("c/", "more"))} == {
        name.replace("b/", "c/"): classes for name, classes in EXPECTED.items() if name.startswith("b/")
    }


def test_set_without_images_is_named(folder, recordmill):
    (folder / "none.txt").write_text("".join(f"images/{number}.jpg\n" for number in range(6)))
    sets = [{"data": "a"}, {"data": "b", "exclude": ["none.txt"]}]
    done = recordmill("convert", *(word for one in sets for word in ("--sets", json.dumps(one))), "-o", "out")
    assert done.code != 0
    assert "set b has no image to write" in done.err


def test_errors_of_a_set_name_it(folder, recordmill):
    (folder / "map.csv").write_text("cow,calf\nbird,cow\n")
    sets = [{"data": "a"}, {"data": "b", "class_map": "map.csv"}]
    done = recordmill("convert", *(word for one in sets for word in ("--sets", json.dumps(one))), "-o", "out")
    assert done.code != 0
    assert "set b: --class-map map.csv: no class is called 'bird'" in done.err
