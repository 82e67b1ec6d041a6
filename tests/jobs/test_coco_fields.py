"""Open fields of COCO files, compared with the JSON that they come from."""

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import (
    CATEGORIES,
    SHARED_DATA,
    annotation,
    convert,
    draw_jpeg,
    image_row,
    manifest_of,
    read_examples,
    shard_bytes,
    write_coco,
)

COCO_MINI = SHARED_DATA / "coco_mini"
OBJECT_PATHS = ("score", "attributes.occluded", "attributes.color", "attributes.track", "rank", "embedding")
IMAGE_PATHS = ("license", "date_captured", "camera.exposure")
FIELDS = ",".join([*OBJECT_PATHS, *(f"image.{path}" for path in IMAGE_PATHS)])
KEYS = {path: f"image/object/{path.replace('.', '/')}" for path in OBJECT_PATHS}
KEYS |= {f"image.{path}": f"image/{path.replace('.', '/')}" for path in IMAGE_PATHS}
MISSING = {"text": b"", "int": -1, "float": math.nan}


def draw(folder: Path, seed: int, images: int = 12) -> dict:
    """Images and a file whose rows have, and lack, fields."""
    rng, rows, annotations = random.Random(seed), [], []

    def some(**fields: Any) -> dict:
        return {name: value for name, value in fields.items() if rng.random() < 0.8}

    for number in range(1, images + 1):
        draw_jpeg(folder / "images" / f"{number}.jpg")
        own = some(license=rng.randint(0, 5), date_captured=f"2020-01-{number:02}", camera=some(exposure=rng.random()))
        rows.append(image_row(number, f"{number}.jpg") | own)
        for _ in range(rng.randint(0, 3)):
            attributes = some(occluded=rng.random() < 0.5, color=rng.choice(["red", "blau", "grün"]), track=None)
            own = some(score=rng.random(), attributes=attributes, rank=rng.randint(-3, 3), embedding=[rng.random(), 2])
            annotations.append(annotation(len(annotations) + 1, number) | own)
    annotations.append(
        annotation(len(annotations) + 1, 1)
        | {
            "score": 1,
            "rank": 7,
            "attributes": {"occluded": True, "color": "red", "track": 5},
            "embedding": [0.5, 0.25],
        }
    )
    rows[0] |= {"license": 1, "date_captured": "x", "camera": {"exposure": 0.5}}
    rng.shuffle(annotations)
    return {"images": rows, "annotations": annotations, "categories": CATEGORIES}


# The oracle: json, and nothing else.


def value_at(row: Any, path: str) -> Any:
    for key in path.split("."):
        row = row.get(key) if isinstance(row, dict) else None
    return row


def stored(value: Any, kind: str) -> Any:
    if isinstance(value, list):
        return [stored(item, kind) for item in value]
    if value is None:
        return MISSING[kind]
    return {"text": lambda: value.encode(), "int": lambda: int(value), "float": lambda: value}[kind]()


def expected(document: dict, image: dict, path: str, kind: str) -> list:
    if path.startswith("image."):
        return [stored(value_at(image, path.removeprefix("image.")), kind)]
    rows = sorted((row for row in document["annotations"] if row["image_id"] == image["id"]), key=lambda row: row["id"])
    return [stored(value_at(row, path), kind) for row in rows]


def assert_stored(folder: Path, document: dict, kinds: dict[str, str]) -> None:
    examples = {example["image/filename"][0].decode(): example for example in read_examples(folder)}
    assert len(examples) == len(document["images"])
    for image in document["images"]:
        example = examples[image["file_name"]]
        for path, kind in kinds.items():
            values = expected(document, image, path, kind)
            flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
            right = flat if kind == "text" else pytest.approx(flat, nan_ok=True, rel=1e-6)
            assert example[KEYS[path]] == right, (path, image["id"])


KINDS = dict.fromkeys(("score", "image.camera.exposure"), "float")
KINDS |= dict.fromkeys(("attributes.occluded", "attributes.track", "rank", "image.license"), "int")
KINDS |= dict.fromkeys(("attributes.color", "image.date_captured"), "text")
KINDS_OF = {path.removeprefix("image."): kind for path, kind in KINDS.items()} | {"embedding": "float"}


@pytest.mark.parametrize("seed", range(3))
def test_fields_are_those_of_json(seed, tmp_path, recordmill):
    document = draw(tmp_path, seed)
    for row in document["annotations"]:
        row.setdefault("embedding", [0.0, 0.0])
    instances = write_coco(tmp_path, **document)
    assert convert(recordmill, tmp_path, instances, "--fields", FIELDS).code == 0
    assert_stored(tmp_path / "out", document, KINDS | {"embedding": "float"})
    assert "not written" not in json.dumps(manifest_of(tmp_path / "out")["splits"]["train"]["inputs"])


def test_all_are_leaves_that_no_option_stores(tmp_path, recordmill):
    document = draw(tmp_path, 5)
    document["annotations"][0]["embedding"] = [1.5]
    instances = write_coco(tmp_path, **document)
    assert convert(recordmill, tmp_path, instances, "--fields", "all").code == 0
    assert_stored(tmp_path / "out", document, KINDS)
    keys = set(read_examples(tmp_path / "out")[0])
    convert(recordmill, tmp_path, instances, "--output", tmp_path / "plain")
    ragged = {f"{KEYS['embedding']}/ragged_flat_values", f"{KEYS['embedding']}/ragged_row_lengths_0"}
    others = {key for path, key in KEYS.items() if path != "embedding"}
    assert keys - set(read_examples(tmp_path / "plain")[0]) == others | ragged


def test_rows_of_odd_types_have_their_fields(tmp_path, recordmill):
    """Rows that are decoded one by one, with ids as strings, and NaN as pandas writes it."""
    document = draw(tmp_path, 7)
    write_coco(tmp_path, **document)
    odd = json.loads(json.dumps(document))
    for row in odd["annotations"]:
        row["id"] = str(row["id"])
        row.setdefault("score", math.nan)
    odd["images"].append({"id": "no name"})
    (tmp_path / "odd.json").write_text(json.dumps(odd))
    assert convert(recordmill, tmp_path, tmp_path / "odd.json", "--fields", FIELDS, "--max-rejects", 1).code == 0
    assert_stored(tmp_path / "out", document, KINDS)


@pytest.mark.parametrize("flags", [("--workers", 2), ("--num-shards", 3, "--workers", 2)])
def test_processes_and_order_do_not_change_bytes(flags, tmp_path, recordmill):
    document = draw(tmp_path, 3)
    instances = write_coco(tmp_path, **document)
    shards = flags[:2] if len(flags) > 2 else ()
    assert convert(recordmill, tmp_path, instances, "--fields", FIELDS, *shards, "--workers", 1).code == 0
    first = shard_bytes(tmp_path / "out")
    random.Random(0).shuffle(document["annotations"])
    instances.write_text(json.dumps(document, indent=1))
    more = "--output", tmp_path / "two", "--fields", FIELDS
    assert convert(recordmill, tmp_path, instances, *more, *flags).code == 0
    assert shard_bytes(tmp_path / "two") == first
    statistics, other = ((tmp_path / name / "statistics-train.json").read_bytes() for name in ("out", "two"))
    assert statistics == other
    assert b'"objects.field:score"' in statistics


@pytest.mark.parametrize("layout", ["detection", "keras"])
def test_statistics_count_the_values(layout, tmp_path, recordmill):
    document = draw(tmp_path, 4, 30)
    annotated = {row["image_id"] for row in document["annotations"]}
    rows = {"objects": document["annotations"], "image": document["images"]}
    if layout == "keras":  # a record is an object
        rows["image"] = [row for row in rows["image"] if row["id"] in annotated]
    instances = write_coco(tmp_path, **document)
    more = "--layout", layout, "--num-shards", 4
    assert convert(recordmill, tmp_path, instances, "--fields", FIELDS, *more).code == 0
    (file,) = (tmp_path / "out").glob("statistics-*.json")
    counted = json.loads(file.read_bytes())["fields"]
    assert counted.keys() == {f"{'image' if path in IMAGE_PATHS else 'objects'}.field:{path}" for path in KINDS_OF}
    for path, kind in KINDS_OF.items():
        axis = "image" if path in IMAGE_PATHS else "objects"
        values = [value_at(row, path) for row in rows[axis]]
        flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
        numbers = Counter(str(item) if kind == "text" else round(float(item), 5) for item in flat if item is not None)
        field = counted[f"{axis}.field:{path}"]
        if kind == "int":  # -1 is missing
            del numbers[-1.0]
        stored = {round(bin_["from"], 5): bin_["number"] for bin_ in field.get("bins", ())}
        assert (field.get("texts", {}) if kind == "text" else stored) == numbers
        assert field["rows"] == len(values)
        assert field["missing"] == sum(value is None or (kind == "int" and value == -1) for value in values)


def test_statistics_without_fields_have_no_word_of_them(tmp_path, recordmill):
    instances = write_coco(tmp_path, **draw(tmp_path, 4))
    assert convert(recordmill, tmp_path, instances).code == 0
    assert "fields" not in json.loads((tmp_path / "out" / "statistics-train.json").read_bytes())


def test_dry_run_shows_values(tmp_path, recordmill):
    document = draw(tmp_path, 6)
    instances = write_coco(tmp_path, **document)
    done = convert(recordmill, tmp_path, instances, "--fields", "score,attributes.color,image.license", "--dry-run")
    assert done.code == 0
    lines = done.out.split("field values")[1].splitlines()
    colors, image, scores = (line.strip() for line in lines[:3])
    objects = document["annotations"]
    counts = Counter(value for row in objects if (value := value_at(row, "attributes.color")))
    lacking = len(objects) - sum(counts.values())
    shown = ", ".join(f"{text} ({counts[text]})" for text in sorted(counts, key=lambda text: (-counts[text], text)))
    assert colors == f"attributes.color: {shown}; {lacking} of {len(objects)} objects have none"
    assert image.startswith("image.license: ")
    score = [row["score"] for row in objects if "score" in row]
    assert scores.startswith(f"score: {min(score)} to {max(score)}; ")
    assert not (tmp_path / "out").exists()


def test_first_file_s_values_hold(tmp_path, recordmill):
    for name in "ab":
        draw_jpeg(tmp_path / "images" / f"{name}.jpg")
    people = [{"id": 1, "name": "cat", "keypoints": ["nose"]}, CATEGORIES[1]]
    rows = [image_row(1, "a.jpg") | {"license": 1}, image_row(2, "b.jpg")]
    first = write_coco(tmp_path, rows, [annotation(5, 1) | {"score": 0.5}], CATEGORIES)
    others = [image_row(1, "a.jpg") | {"license": 4}, image_row(2, "b.jpg") | {"license": 3}]
    points = [annotation(5, 1, score=0.25, rank=3, keypoints=[6, 6, 2], num_keypoints=1)]
    points_file = tmp_path / "points.json"
    points_file.write_text(json.dumps({"images": others, "annotations": points, "categories": people}))
    run = convert(recordmill, tmp_path, first, "--keypoints", points_file, "--fields", "score,rank,image.license")
    assert run.code == 0
    by_name = {example["image/filename"][0]: example for example in read_examples(tmp_path / "out")}
    assert by_name[b"a.jpg"]["image/license"] == [1]
    assert by_name[b"b.jpg"]["image/license"] == [3]
    assert by_name[b"a.jpg"]["image/object/score"] == [0.5]
    assert by_name[b"a.jpg"]["image/object/rank"] == [3]
    warnings = manifest_of(tmp_path / "out")["splits"]["train"]["warnings"]
    assert "2 values of fields differ between files; those of the first file are stored" in warnings


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("scor", "Did you mean score?"),
        ("attributes", "Name those that records need: attributes.color"),
        ("image.licence", "Did you mean image.license?"),
        ("area", "stores area"),
        ("image.width", "stores width"),
        ("mood", "fields of captions, of regions of stuff and of panoptic segments are not read"),
    ],
)
def test_wrong_paths_are_errors(fields, words, tmp_path, recordmill):
    document = draw(tmp_path, 1)
    captions = tmp_path / "captions.json"
    captions.write_text(
        json.dumps(document | {"annotations": [{"id": 1, "image_id": 1, "caption": "A cat.", "mood": "sad"}]})
    )
    run = convert(recordmill, tmp_path, write_coco(tmp_path, **document), "--captions", captions, "--fields", fields)
    assert run.code == 2
    assert words in run.err
    assert not list(tmp_path.glob("out/*.tfrecord*"))


@pytest.mark.skipif(not COCO_MINI.exists(), reason="no coco_mini")
def test_fields_of_coco_s_own_images(tmp_path, recordmill):
    path = COCO_MINI / "annotations" / "instances_val2017.json"
    document = json.loads(path.read_text())
    flags = "--images", COCO_MINI / "val2017", "--instances", path, "--check", "none"
    fields = "image.license,image.date_captured,image.flickr_url"
    assert recordmill("convert", *flags, "--output", tmp_path, "--fields", fields).code == 0
    examples = {example["image/filename"][0].decode(): example for example in read_examples(tmp_path)}
    assert examples
    rows = {row["file_name"]: row for row in document["images"]}
    for name, example in examples.items():
        stored_ = example["image/license"] + example["image/date_captured"] + example["image/flickr_url"]
        row = rows[name]
        assert stored_ == [row["license"], row["date_captured"].encode(), row["flickr_url"].encode()]
