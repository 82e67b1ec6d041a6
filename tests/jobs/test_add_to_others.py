"""`convert --add`: images get the classes, sets, ids and encoders of the data set that they are added to."""

import json
from pathlib import Path

import pytest

import recordmill as public
from tests.jobs.test_sets import EXPECTED, classes_by_name, coco, write_sets, yolo
from tests.literal_data import jpeg, write_files


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    write_sets(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_set_is_named_after_its_folder(folder, recordmill):
    assert recordmill("convert", "a", "b", "-o", "out").code == 0
    write_files(folder / "c", coco("0.jpg", "new.jpg", ids={"eel": 3, "dog": 7}, first=30))
    done = recordmill("convert", "c", "-o", "out", "--add")
    assert done.code == 0, done
    assert "note: images are added as the set c, which is new besides a, b" in done.err
    assert "data sets           a (coco: train), b (yolo: train), c (added)" in done.out
    assert "added images have 1 new class: 'eel' (id " in done.out
    before = {name: classes for name, classes in EXPECTED.items() if not name.startswith("a2/")}
    assert classes_by_name("out") == before | {"c/0.jpg": ["eel"], "c/new.jpg": ["dog"]}
    write_files(folder / "more/b", yolo("0.jpg", "6.jpg", classes=("dog", "cow"), first=10))
    (folder / "more/b/images/6.jpg").write_bytes(jpeg(40))
    done = recordmill("convert", "more/b", "-o", "out", "--add")
    assert "note: images are added as the set b, which the data set has besides a, c" in done.err
    assert "new class" not in done.out  # that was the earlier run
    (entry,) = public.open("out").manifest.splits.values()
    assert (entry.images.present, entry.images.written) == (1, 6 + 6 + 2 + 1)
    records = [*public.open("out")["train"]]
    ids = (
        [int(record["image_id"]) for record in records],
        [id_ for record in records for id_ in record["annotation_ids"]],
    )
    assert [len({*numbers}) for numbers in ids] == [len(numbers) for numbers in ids] == [15, 15]
    assert recordmill("verify", "out", "--check", "decode").code == 0


def test_add_as_a_set_of_another_name(folder, recordmill):
    """Images of known names are others."""
    assert recordmill("convert", "a", "-o", "out").code == 0
    done = recordmill("convert", "b", "-o", "out", "--add", "--add-as", "b", "--dry-run")
    assert (done.code, "6 of 6" in done.out) == (0, True), done
    done = recordmill("convert", "b", "-o", "out", "--add", "--add-as", "b")
    assert done.code == 0, done
    assert classes_by_name("out") == {
        name.removeprefix("a/"): classes for name, classes in EXPECTED.items() if not name.startswith("a2/")
    }
    done = recordmill("convert", "b", "-o", "out", "--add", "--add-as", "b")
    assert "6 images were present" in done.out  # label files beside images are read again
    done = recordmill("convert", "b", "more/a", "-o", "out", "--add")  # their names begin with those of their sets
    assert done.code == 0, done
    assert len(classes_by_name("out")) == 12 + 2
    assert public.open("out").manifest.splits["train"].images.present == 12


def test_classes_of_folders(tmp_path, monkeypatch, recordmill):
    """A folder of one class; --class-map names classes that the folder lacks."""
    monkeypatch.chdir(tmp_path)
    write_files(
        tmp_path / "one", {f"{name}/{number}.jpg": jpeg(number) for number, name in enumerate(["bee", "cat", "bee"])}
    )
    write_files(tmp_path / "two", {"ant/7.jpg": jpeg(7)})
    write_files(tmp_path / "three", {"dog/8.jpg": jpeg(8), "ant/9.jpg": jpeg(9)})
    (tmp_path / "map.csv").write_text("bee,insect\nant,insect\n")
    for data, more in (("one", []), ("two", ["--add"]), ("three", ["--add"])):
        (tmp_path / "map.csv").write_text("bee,insect\nant,insect\n" if more else "bee,insect\n")
        done = recordmill("convert", data, "--format", "folder", "-o", "out", "--class-map", "map.csv", *more)
        assert done.code == 0, done
    data_set = public.open("out")
    labels = {record["file_name"].decode(): int(record["label"]) for record in data_set["train"]}
    assert [category.name for category in data_set.manifest.categories] == ["insect", "cat", "dog"]
    assert labels == {"bee/0.jpg": 0, "cat/1.jpg": 1, "bee/2.jpg": 0, "ant/7.jpg": 0, "dog/8.jpg": 2, "ant/9.jpg": 0}


def captions(*texts: str, first: int = 0) -> dict[str, bytes | str]:
    images = [
        {"id": id_, "file_name": f"{id_}.jpg", "width": 40, "height": 30} for id_ in range(first, first + len(texts))
    ]
    rows = [
        {"id": image["id"], "image_id": image["id"], "caption": text} for image, text in zip(images, texts, strict=True)
    ]
    files = {f"images/{image['file_name']}": jpeg(image["id"]) for image in images}
    return {"captions.json": json.dumps({"images": images, "annotations": rows}), **files}


def test_saved_encoder_is_used(tmp_path, monkeypatch, recordmill):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path / "a", captions("a cat", "a dog"))
    write_files(tmp_path / "b", captions("a cat", "a zebra", first=2))

    def convert(data: str, *more: str):
        return recordmill("convert", f"{data}/images", "--captions", f"{data}/captions.json", "-o", "out", *more)

    assert convert("a", "--caption-text", "counts", "--min-df", "1", "--ngrams", "1,2").code == 0
    encoder = (tmp_path / "out/encoders/captions.json").read_bytes()
    for given, match in (
        (["--caption-text", "tfidf"], "out stores captions as counts, not as tfidf"),
        (["--caption-text", "counts", "--ngrams", "1,3"], "with other options (ngrams: 1,2, now 1,3)"),
        ([], "with other options (caption-text: counts, now default)"),
    ):
        done = convert("b", "--add", *given)
        assert (done.code, match in done.err) == (2, True), done
    done = convert("b", "--add", "--caption-text", "counts")
    assert done.code == 0, done
    assert (tmp_path / "out/encoders/captions.json").read_bytes() == encoder
    assert public.open("out").manifest.splits["train"].texts["captions"].unknown > 0


def test_call_of_python(folder, empty_pages):
    here = {"runner_options": ["--runner=DirectRunner"], "progress": "none"}
    public.convert("a", "out", **here)
    data_set = public.convert("b", "out", add=True, add_as="b", **here)
    assert len(data_set["train"]) == 12
    with pytest.raises(public.ConfigError, match=r"^out was written with other options \(gzip: default, now True\)"):
        public.convert("more/a", "out", add=True, gzip=True, progress="none")
    with pytest.raises(public.ConfigError, match=r"^add=True does not fit limit, which chooses"):
        public.convert("more/a", "out", add=True, limit=1, progress="none")
