"""manifest.json there and back."""

import json

import pytest

from schemas.coco import Category
from schemas.errors import ConfigError
from schemas.manifest import (
    FORMAT,
    AnnotationCounts,
    ImageCounts,
    InputFile,
    InputRows,
    Manifest,
    Recipe,
    SplitManifest,
    Unlisted,
    decode_manifest,
    encode_json,
    state_folder,
)
from schemas.shards import ShardInfo

RECIPE = Recipe(
    FORMAT,
    "coco",
    "train",
    "detection",
    (InputFile("a.json", 12, "yZRlqg=="),),
    ("images", "more images"),
    {"gzip": False, "seed": 0, "min_area": 0.5, "boxes": "clip", "categories": ["cat"], "num_shards": None},
)
SPLIT = SplitManifest(
    recipe=RECIPE,
    compression="",
    inputs=(InputRows("a.json", 4, 9),),
    images=ImageCounts(4, 3, {"image_missing": 1}),
    annotations=AnnotationCounts(9, 5, {"empty_box": 1}, {"crowd": 2}, 1, 2),
    unlisted=Unlisted(1, ("é.jpg",)),
    record_bytes=900,
    shards=(ShardInfo("coco-train.tfrecord-00000-of-00002", 1, 400, "ab"), ShardInfo("x", 2, 548, "cd")),
)
MANIFEST = Manifest(FORMAT, "coco", "detection", (Category(1, "cat"), Category(3, "dog", "animal")), {"train": SPLIT})


def test_a_manifest_is_read_as_it_was_written():
    assert decode_manifest(encode_json(MANIFEST), "manifest.json") == MANIFEST


def test_anybody_can_read_it():
    document = json.loads(encode_json(MANIFEST))
    assert document["categories"][1] == {"id": 3, "name": "dog", "supercategory": "animal"}
    assert document["splits"]["train"]["images"] == {"rows": 4, "examples": 3, "rejected": {"image_missing": 1}}
    assert document["splits"]["train"]["recipe"]["options"] == RECIPE.options


def test_totals_are_those_of_the_shards():
    assert (SPLIT.examples, SPLIT.bytes) == (3, 948)


def test_equal_values_give_equal_bytes_whatever_their_order():
    assert encode_json({"b": 1, "a": {"d": 2, "c": 3}}) == encode_json({"a": {"c": 3, "d": 2}, "b": 1})
    assert encode_json({"b": 1, "a": 2}) == b'{\n  "a": 2,\n  "b": 1\n}\n'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"null",
        encode_json(MANIFEST)[:-100],
        encode_json(MANIFEST).replace(b'"rows": 4', b'"rows": "4"'),
        encode_json(MANIFEST).replace("é".encode(), b"\xe9"),
    ],
)
def test_what_is_no_manifest_is_refused_by_name(data):
    with pytest.raises(ConfigError, match=r"out/manifest\.json is not a Recordmill manifest"):
        decode_manifest(data, "out/manifest.json")


@pytest.mark.parametrize("more", [{}, {"name": "coco", "layout": "detection", "categories": [], "splits": {}}])
def test_another_format_is_told_apart_even_when_it_has_another_shape(more):
    data = json.dumps({"format": FORMAT + 1, **more}).encode()
    with pytest.raises(ConfigError, match=f"is of manifest format {FORMAT + 1}"):
        decode_manifest(data, "manifest.json")


@pytest.mark.parametrize("file", ["../x", "a/b", "/etc/passwd", "", ".", ".."])
def test_a_shard_outside_the_folder_is_refused(file):
    data = encode_json(MANIFEST).replace(b'"file": "x"', b'"file": ' + json.dumps(file).encode())
    with pytest.raises(ConfigError, match="not the name of a file in its folder"):
        decode_manifest(data, "manifest.json")


def test_state_folders_of_splits_differ_and_are_hidden():
    assert (state_folder("train"), state_folder("val")) == (".recordmill-train", ".recordmill-val")
