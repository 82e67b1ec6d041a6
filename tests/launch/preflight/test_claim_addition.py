"""Claim of the data set that a job adds to."""

from pathlib import Path

import msgspec
import pytest

from recordmill.launch.preflight.claim_addition import adopt_options, claim_addition, read_base
from recordmill.schemas.dataset.manifest import FORMAT, Addition, Manifest, encode_manifest
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.dataset.dataset_folder import read_manifest
from recordmill.transforms.yolo.yolo_options import YoloOptions
from tests.jobs.folders import whole_folder
from tests.launch.preflight.test_claim_output import (
    COMPLETE,
    GROWN,
    HALF,
    KERAS,
    NEW,
    OTHER_INPUTS,
    RECIPE,
    SHARDS,
    UNFINISHED,
    VAL,
    begin,
    both,
    changed,
    divided_recipes,
    edited,
    finished,
    text_recipe,
    with_file,
    with_options,
    without,
)

MASKED = changed(parts=(Part.MASK_PNG,), options=RECIPE.options | {"masks": "png"})
HALVES = finished(*divided_recipes("train val", HALF))
MORE = changed(inputs=OTHER_INPUTS, images=("more",))
SYNC = msgspec.structs.replace(MORE, options=RECIPE.options | {"sync": True})


def grown(*runs: Recipe, but=lambda folder: None):
    """Leave a data set with runs of --add."""

    def make(folder) -> None:
        finished(RECIPE)(folder)
        for file in ("manifest.json", "manifest-train.json"):
            manifest = read_manifest(str(folder), file)
            entry = manifest.splits["train"]
            additions = tuple(Addition(run, {}, entry.images, entry.annotations) for run in runs)
            splits = {"train": msgspec.structs.replace(entry, additions=additions)}
            (folder / file).write_bytes(encode_manifest(msgspec.structs.replace(manifest, splits=splits)))
        but(folder)

    return make


def begun(recipe: Recipe, of_split: Recipe = RECIPE):
    return both(finished(of_split), lambda folder: begin_again(folder, recipe))


def begin_again(folder: Path, recipe: Recipe) -> None:
    """Leave a stopped run of a split that the data set has."""
    manifests = {name: (folder / name).read_bytes() for name in ("manifest.json", "manifest-train.json")}
    for name in manifests:
        (folder / name).unlink()
    shards = {path: path.read_bytes() for path in folder.glob("*.tfrecord-*")}
    for path in shards:
        path.unlink()
    begin(folder, recipe)
    for name, data in manifests.items():
        (folder / name).write_bytes(data)
    for path, data in shards.items():
        path.write_bytes(data)


def claim(folder: Path, *recipes: Recipe):
    return claim_addition(str(folder), read_base(str(folder)), recipes)


def edited_split(folder: Path) -> None:
    path = folder / "manifest-train.json"
    path.write_text(path.read_text().replace('"written": 2', '"written": 3'))


ALLOWED = [
    (finished(), [MORE], [NEW]),
    (finished(), [RECIPE], [COMPLETE]),
    (grown(MORE), [MORE], [COMPLETE]),
    (grown(MORE, VAL), [MORE], [COMPLETE]),
    (grown(MORE), [SYNC], [NEW]),  # --sync also writes what --add listed
    (grown(MORE, SYNC), [SYNC], [COMPLETE]),
    (grown(SYNC, MORE), [SYNC], [NEW]),
    (finished(RECIPE, VAL), [MORE, changed(split="test", inputs=GROWN)], [NEW, NEW]),
    (begun(MORE), [MORE], [UNFINISHED]),
    (finished(), [with_options(num_shards=7, add_as="more", exclude_kinds=["dark"], match="name")], [NEW]),
    (finished(), [with_options(categories=["cat", "cow"])], [NEW]),
    (finished(), [changed(parts=(Part.LVIS, Part.TAGS), inputs=GROWN)], [NEW]),
    (finished(text_recipe("train", text="counts", min_df="2")), [text_recipe("train", text="counts")], [NEW]),
    (HALVES, divided_recipes("train val", HALF, inputs=GROWN), [NEW, NEW]),
    (HALVES, [changed(inputs=OTHER_INPUTS, images=("more",))], [NEW]),
]  # fmt: skip


@pytest.mark.parametrize(("left", "recipes", "states"), ALLOWED)
def test_allowed(tmp_path, left, recipes, states):
    left(tmp_path)
    before = whole_folder(tmp_path)
    assert claim(tmp_path, *recipes) == states
    new = {
        f".recordmill-{recipe.split}/recipe.json" for recipe, state in zip(recipes, states, strict=True) if state is NEW
    }
    assert whole_folder(tmp_path).keys() == before.keys() | new  # fmt: skip


REFUSED = [
    (finished(), [with_options(seed=1, tile=64)], r"^\S+ was written with other options \(seed: 0, now 1, tile: def"),
    (finished(), [changed(name="faces")], r"options \(name: coco, now faces\)"),
    (finished(), [changed(layout="tfds")], r"\(layout: detection, now tfds\)"),
    (finished(), [changed(parts=(Part.CAPTIONS,))], r"\(parts: none, now captions\)"),
    (finished(), [MASKED], r"\(masks: default, now png\), "),
    (finished(), [changed(options={}, inputs=GROWN)], r"categories: cat, now default"),
    (finished(text_recipe("train", min_df="2")), [text_recipe("train", min_df="3")], r"\(min-df: 2, now 3\)"),
    (HALVES, divided_recipes("train val", "train=0.9,val=0.1", inputs=GROWN), r"0.5,val=0.5, now train=0.9,val=0.1\)"),
    (finished(), divided_recipes("train val", HALF), r"the split train of the same images, divided by --split train,"),
    (finished(with_options(stratify=True, split=HALF)), [with_options(split=HALF)], r"\(stratify: True, now default\)"),
    (finished(KERAS), [changed(layout="keras", split="val", inputs=OTHER_INPUTS)], "separate --output for --split val"),
    (finished(), [changed(split="TRAIN", inputs=GROWN)], "differ only in case"),
    (finished(but=without(SHARDS[1].file)), [MORE], rf"is damaged: {SHARDS[1].file} is missing. .* run the command"),
    (grown(MORE, but=with_file(SHARDS[0].file)), [MORE], rf"damaged: {SHARDS[0].file} has 10 bytes .* write all "),
    (finished(but=without("rejects-train.jsonl")), [MORE], r"is damaged: rejects-train.jsonl: it is missing"),
    (finished(but=with_file("rejects-train.jsonl")), [MORE], r"damaged: rejects-train.jsonl: its content has changed"),
    (finished(but=edited(name="coco", sha256="")), [MORE], r"is damaged: manifest.json: its content has changed"),
    (finished(but=edited_split), [MORE], r"is damaged: manifest-train.json: it differs from manifest.json. Restore"),
    (begun(MORE), [changed(inputs=GROWN)], r"has another unfinished run, of train. .* delete \S+/\.recordmill-train$"),
    (finished(but=with_file(".recordmill-val/recipe.json")), [MORE], r"recordmill-val is not readable .* Delete it, "),
    (begun(VAL), [MORE], r"has another unfinished run, of val. "),
]  # fmt: skip


@pytest.mark.parametrize(("left", "recipes", "match"), REFUSED)
def test_refusal_changes_nothing(tmp_path, left, recipes, match):
    left(tmp_path)
    before = whole_folder(tmp_path)
    with pytest.raises(ConfigError, match=match):
        claim(tmp_path, *recipes)
    assert whole_folder(tmp_path) == before


@pytest.mark.parametrize(
    ("left", "match"),
    [
        (lambda folder: None, "is empty, so there is nothing to add to. Leave --add out"),
        (lambda folder: folder.rmdir(), r"does not exist.*, so there is nothing to add to\."),
        (with_file("thesis.txt"), "has no manifest.json, so it is not a data set"),
        (lambda folder: begin(folder), "has an unfinished run of train and no manifest.json. Run its command again"),
        (finished(but=edited(format=FORMAT - 1)), "has manifest format 0, but this version reads format 1"),
        (finished(RECIPE, VAL, but=without("manifest-val.json")), "but no manifest-val.json: was only a part"),
    ],
)
def test_folders_without_a_data_set_are_refused(tmp_path, left, match):
    left(tmp_path)
    with pytest.raises(ConfigError, match=match):
        read_base(str(tmp_path))


def test_second_of_two_simultaneous_jobs_ends(tmp_path):
    finished()(tmp_path)
    base = read_base(str(tmp_path))
    assert claim_addition(str(tmp_path), base, [MORE]) == [NEW]
    with pytest.raises(ConfigError, match=r"has another unfinished run, of train\. Wait until it ends"):
        claim_addition(str(tmp_path), base, [changed(split="val", inputs=GROWN)])
    assert claim_addition(str(tmp_path), base, [MORE]) == [UNFINISHED]


def base_of(*recipes: Recipe) -> Manifest:
    """Manifest of a data set whose first run and runs of --add have these recipes."""
    return msgspec.convert(
        {
            "format": 1, "name": "pets", "layout": "detection", "parts": [], "categories": [], "segments": [],
            "splits": {"train": {
                "recipe": msgspec.to_builtins(recipes[0]), "made_by": {}, "compression": "", "inputs": [],
                **NO_COUNTS, "unlisted": {"files": 0, "first": []},
                "record_bytes": 0, "rejects_sha256": "", "shards": [],
                "additions": [
                    {"recipe": msgspec.to_builtins(recipe), "made_by": {}, **NO_COUNTS} for recipe in recipes[1:]
                ],
            }},
        },
        Manifest,
    )  # fmt: skip


NO_IMAGES = {"rows": 0, "written": 0, "without_record": 0, "rejected": {}}
NO_ANNOTATIONS = {
    **dict.fromkeys(("rows", "objects", "captions", "stuff", "panoptic", "joined"), 0),
    "rejected": {},
    "filtered": {},
    "of_rejected_images": 0,
    "boxes_clipped": 0,
    "masks": 0,
}
NO_COUNTS = {"images": NO_IMAGES, "annotations": NO_ANNOTATIONS}
SETS = with_options(
    sets=['{"name": "cats", "format": "coco", "splits": ["train"]}', '{"name": "dogs", "format": "voc"}']
)


@pytest.mark.parametrize(
    ("recipes", "given", "set_name", "note"),
    [
        ([RECIPE], {}, None, ""),
        ([RECIPE, with_options(add_as="old")], {}, None, ""),
        ([RECIPE], {"add_as": "x"}, "x", "x, which is new"),
        ([SETS], {}, "cows", "cows, which is new besides cats, dogs"),
        ([SETS], {"add_as": "cats"}, "cats", "cats, which the data set has besides dogs"),
        ([SETS, with_options(add_as="cows")], {}, "cows", "cows, which the data set has besides cats, dogs"),
    ],
)
def test_set_of_added_images(recipes, given, set_name, note):
    notes = (f"images are added as the set {note}",) if note else ()
    for kind, data in (
        (YoloOptions, {"data": "x/cows"}),
        (CocoOptions, {"images": ("x/cows/images",), "instances": "a"}),
    ):
        options, lines = adopt_options(kind(output="out", add=True, **data, **given), base_of(*recipes))
        assert (options.name, options.add_as, lines) == ("pets", set_name, notes)


def test_name_of_the_job_stays():
    options, _ = adopt_options(YoloOptions(output="out", data="x", add=True, name="yolo"), base_of(RECIPE))
    assert options.name == "yolo"
