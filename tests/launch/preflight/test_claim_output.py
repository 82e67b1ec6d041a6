"""What may be written where, and what is there already."""

import os

import msgspec
import pytest

from recordmill.launch.preflight.claim_output import OutputState, claim_late, claim_output, damaged_shards
from recordmill.schemas.annotations import Category
from recordmill.schemas.coco import AnnotationKind
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.manifest import (
    FORMAT,
    AnnotationCounts,
    ImageCounts,
    InputFile,
    Manifest,
    Recipe,
    SplitManifest,
    Unlisted,
    decode_manifest,
    encode_json,
)
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.storage.local_storage import LocalStorage

RECIPE = Recipe(
    FORMAT,
    "coco",
    "train",
    "detection",
    (),
    (InputFile(AnnotationKind.INSTANCES, "a.json", 1234, "yZRlqg=="),),
    ("images",),
    {"gzip": False, "seed": 0, "min_area": 0.0, "categories": ["cat"], "num_shards": None},
)
SHARDS = (
    ShardInfo("coco-train.tfrecord-00000-of-00002", 1, 5, "a"),
    ShardInfo("coco-train.tfrecord-00001-of-00002", 1, 7, "b"),
)
NOTE = ".recordmill-train/recipe.json"


def changed(**fields) -> Recipe:
    return msgspec.structs.replace(RECIPE, **fields)


def with_options(**options) -> Recipe:
    return changed(options=RECIPE.options | options)


def split(recipe: Recipe, shards=SHARDS) -> SplitManifest:
    counts = ImageCounts(2, 2, 0, {}), AnnotationCounts(0, 0, 0, 0, 0, 0, {}, {}, 0, 0, 0)
    return SplitManifest(recipe, "", (), *counts, Unlisted(0, ()), 12, shards)


def finish(folder, *recipes: Recipe) -> None:
    """Write a data set of these splits, each of two shards."""
    splits = {}
    for recipe in recipes:
        shards = tuple(
            msgspec.structs.replace(shard, file=shard.file.replace("coco-train", f"{recipe.name}-{recipe.split}"))
            for shard in SHARDS
        )
        splits[recipe.split] = split(recipe, shards)
        for shard in shards:
            (folder / shard.file).write_bytes(bytes(shard.bytes))
    first = recipes[0]
    manifest = Manifest(FORMAT, first.name, first.layout, first.parts, (Category(1, "cat"),), (), splits)
    (folder / "manifest.json").write_bytes(encode_json(manifest))


def claim(folder, recipe=RECIPE, overwrite=False) -> OutputState:
    (state,) = claim_output(str(folder), [recipe], overwrite)
    return state


def contents(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def manifest_of(folder) -> Manifest:
    return decode_manifest((folder / "manifest.json").read_bytes(), "manifest.json")


VAL = changed(split="val")

OTHERWISE = [
    (with_options(seed=1), "seed was 0, now 1"),
    (with_options(gzip=True, seed=1), "gzip was False, now True; seed was 0, now 1"),
    (with_options(num_shards=3), "num-shards was None, now 3"),
    (with_options(categories=["cat", "dog"]), "categories was cat, now cat dog"),
    (changed(images=("images", "more")), "images was images, now images more"),
    (changed(layout="tfds"), "layout was detection, now tfds"),
    (
        changed(inputs=(InputFile(AnnotationKind.INSTANCES, "a.json", 1235, "AAAAAA=="),)),
        "inputs was --instances a.json (1,234 bytes, crc32c yZRlqg==), "
        "now --instances a.json (1,235 bytes, crc32c AAAAAA==)",
    ),
]


@pytest.mark.parametrize("place", [".", "new/folder"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_new_folder_is_claimed_with_a_note(tmp_path, place, overwrite):
    assert claim(tmp_path / place, overwrite=overwrite) is OutputState.NEW
    note = (tmp_path / place / NOTE).read_bytes()
    assert msgspec.json.decode(note, type=Recipe) == RECIPE


def test_other_people_s_files_are_let_be(tmp_path):
    for name in ("notes.txt", "other-train.tfrecord-00000-of-00001", "coco-val.tfrecord-00000-of-00001"):
        (tmp_path / name).write_text("mine")
    before = contents(tmp_path)
    assert claim(tmp_path, overwrite=True) is OutputState.NEW
    assert contents(tmp_path) == before | {NOTE: encode_json(RECIPE)}


# Unfinished runs


def test_the_same_recipe_goes_on(tmp_path):
    claim(tmp_path)
    (tmp_path / SHARDS[0].file).write_bytes(b"shard")
    before = contents(tmp_path)
    assert claim(tmp_path) is OutputState.UNFINISHED
    assert contents(tmp_path) == before


@pytest.mark.parametrize(("recipe", "difference"), OTHERWISE)
def test_another_recipe_does_not_go_on(tmp_path, recipe, difference):
    claim(tmp_path)
    (tmp_path / SHARDS[0].file).write_bytes(b"shard")
    before = contents(tmp_path)
    with pytest.raises(ConfigError) as caught:
        claim(tmp_path, recipe)
    assert f"has an unfinished run of coco-train made otherwise ({difference})" in str(caught.value)
    assert contents(tmp_path) == before


def test_a_run_that_wrote_no_shard_stands_in_nobody_s_way(tmp_path):
    """As after an annotation file that was malformed, and has been mended."""
    claim(tmp_path)
    recipe = msgspec.structs.replace(RECIPE, images=("elsewhere",))
    assert claim(tmp_path, recipe) is OutputState.NEW
    assert contents(tmp_path) == {NOTE: encode_json(recipe)}


def test_a_manifest_that_lists_what_is_no_shard_costs_nobody_a_file(tmp_path):
    finish(tmp_path, RECIPE)
    (tmp_path / "thesis.txt").write_text("mine")
    listed = (tmp_path / "manifest.json").read_text().replace(SHARDS[0].file, "thesis.txt")
    (tmp_path / "manifest.json").write_text(listed)
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=r"lists 'thesis\.txt', which is not the name of a shard of its split train"):
        claim(tmp_path, overwrite=True)
    assert contents(tmp_path) == before


def test_overwrite_forgets_an_unfinished_run(tmp_path):
    claim(tmp_path)
    (tmp_path / SHARDS[0].file).write_bytes(b"shard")
    (tmp_path / ".recordmill-train" / "coco-train.tfrecord-00000-of-00002.json").write_text("{}")
    assert claim(tmp_path, with_options(seed=1), overwrite=True) is OutputState.NEW
    assert contents(tmp_path) == {NOTE: encode_json(with_options(seed=1))}


@pytest.mark.parametrize("note", [b"", b"{", b'{"format": 1}', b"\xff"])
def test_a_note_that_cannot_be_read_is_told_and_overwritten(tmp_path, note):
    (tmp_path / ".recordmill-train").mkdir()
    (tmp_path / NOTE).write_bytes(note)
    with pytest.raises(ConfigError, match="--overwrite starts anew"):
        claim(tmp_path)
    assert claim(tmp_path, overwrite=True) is OutputState.NEW


def test_another_split_s_run_is_no_matter(tmp_path):
    claim(tmp_path)
    assert claim(tmp_path, VAL) is OutputState.NEW
    assert sorted(contents(tmp_path)) == [NOTE, ".recordmill-val/recipe.json"]


# Complete splits


def test_a_complete_split_is_left_as_it_is(tmp_path):
    finish(tmp_path, RECIPE)
    before = contents(tmp_path)
    assert claim(tmp_path) is OutputState.COMPLETE
    assert contents(tmp_path) == before


@pytest.mark.parametrize(("recipe", "difference"), [OTHERWISE[0], OTHERWISE[5]])
def test_a_complete_split_of_another_recipe_is_refused(tmp_path, recipe, difference):
    finish(tmp_path, RECIPE)
    before = contents(tmp_path)
    with pytest.raises(ConfigError) as caught:
        claim(tmp_path, recipe)
    assert difference in str(caught.value) or "would mix two data sets" in str(caught.value)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"")], ids=["missing", "cut short"]
)
def test_a_damaged_split_is_written_again(tmp_path, damage):
    finish(tmp_path, RECIPE, VAL)
    damage(tmp_path / SHARDS[1].file)
    val = {name: data for name, data in contents(tmp_path).items() if "val" in name}
    assert claim(tmp_path) is OutputState.NEW
    assert list(manifest_of(tmp_path).splits) == ["val"]
    assert set(contents(tmp_path)) == {"manifest.json", NOTE, *val}


def test_a_look_changes_nothing(tmp_path):
    claim(tmp_path)
    (tmp_path / "coco-train.tfrecord-00000-of-00001").touch()
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert claim_output(str(tmp_path), [RECIPE], True, look_only=True) == [OutputState.NEW]
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("recipe", [RECIPE, with_options(seed=1)])
def test_overwrite_deletes_the_split_and_no_other(tmp_path, recipe):
    finish(tmp_path, RECIPE, VAL)
    val = {name: data for name, data in contents(tmp_path).items() if "val" in name}
    assert claim(tmp_path, recipe, overwrite=True) is OutputState.NEW
    assert manifest_of(tmp_path).splits == {"val": split(VAL, manifest_of(tmp_path).splits["val"].shards)}
    left = contents(tmp_path)
    assert set(left) == {"manifest.json", NOTE, *val}
    assert left.items() >= val.items()


@pytest.mark.parametrize("others", [(), (VAL,)])
def test_no_shard_is_deleted_that_the_manifest_still_lists(tmp_path, monkeypatch, others):
    """Whoever is killed in between leaves no manifest of files that are gone."""
    finish(tmp_path, RECIPE, *others)
    delete, deleted = LocalStorage.delete, []

    def noted(self, path):
        name = os.path.basename(path)
        deleted.append(name)
        manifest = tmp_path / "manifest.json"
        assert name == manifest.name or not manifest.exists() or name not in manifest.read_text()
        delete(self, path)

    monkeypatch.setattr(LocalStorage, "delete", noted)
    claim(tmp_path, overwrite=True)
    assert {shard.file for shard in SHARDS} <= set(deleted)


def test_overwrite_of_the_only_split_may_change_name_and_layout(tmp_path):
    finish(tmp_path, RECIPE)
    other = changed(name="faces", layout="tfds")
    assert claim(tmp_path, other, overwrite=True) is OutputState.NEW
    assert contents(tmp_path) == {NOTE: encode_json(other)}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("fields", [{"name": "faces"}, {"layout": "tfds"}])
def test_a_second_split_of_another_data_set_is_refused(tmp_path, fields, overwrite):
    finish(tmp_path, RECIPE, VAL)
    before = contents(tmp_path)
    ((flag, value),) = fields.items()
    with pytest.raises(ConfigError, match=rf"holds the data set 'coco' .* --{flag} {value} would mix two data sets"):
        claim(tmp_path, changed(split="test", **fields), overwrite)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_second_split_with_other_parts_in_its_records_is_refused(tmp_path, overwrite):
    finish(tmp_path, changed(parts=(Part.MASK_PNG, Part.CAPTIONS)))
    before = contents(tmp_path)
    told = r"holds records with mask_png, captions \(splits: train\), these would have captions: give the same"
    with pytest.raises(ConfigError, match=told):
        claim(tmp_path, changed(split="val", parts=(Part.CAPTIONS,)), overwrite)
    assert contents(tmp_path) == before


def test_parts_that_come_of_the_input_are_not_asked_after(tmp_path):
    finish(tmp_path, RECIPE)
    with_lvis = msgspec.structs.replace(manifest_of(tmp_path), parts=(Part.LVIS, Part.CATEGORY_ID))
    (tmp_path / "manifest.json").write_bytes(encode_json(with_lvis))
    assert claim(tmp_path, VAL) is OutputState.NEW


@pytest.mark.parametrize("overwrite", [False, True])
def test_shards_of_the_keras_recipe_tell_no_splits_apart_so_a_second_one_is_refused(tmp_path, overwrite):
    recipe = changed(layout="keras")
    finish(tmp_path, recipe)
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=r"holds the split train; in layout keras .* give --split val an --output of"):
        claim(tmp_path, changed(layout="keras", split="val"), overwrite)
    assert contents(tmp_path) == before


def test_overwrite_replaces_the_shards_of_the_keras_recipe(tmp_path):
    recipe = changed(layout="keras")
    finish(tmp_path, recipe)
    (tmp_path / "file_00-4096.tfrec").write_bytes(b"shard")
    assert claim(tmp_path, recipe, overwrite=True) is OutputState.NEW
    assert contents(tmp_path) == {NOTE: encode_json(recipe)}


def test_an_unfinished_run_in_the_layout_keras_goes_on_and_can_be_overwritten(tmp_path):
    recipe = changed(layout="keras")
    claim(tmp_path, recipe)
    (tmp_path / "file_00-4096.tfrec").write_bytes(b"shard")
    assert claim(tmp_path, recipe) is OutputState.UNFINISHED
    assert claim(tmp_path, recipe, overwrite=True) is OutputState.NEW
    assert contents(tmp_path) == {NOTE: encode_json(recipe)}


def test_a_second_split_is_added(tmp_path):
    finish(tmp_path, RECIPE)
    before = contents(tmp_path)
    assert claim(tmp_path, VAL) is OutputState.NEW
    assert contents(tmp_path) == before | {".recordmill-val/recipe.json": encode_json(VAL)}


def test_shards_that_no_manifest_lists_are_refused_unless_overwritten(tmp_path):
    stray = "coco-train.tfrecord-00000-of-00009.gz"
    (tmp_path / stray).write_text("somebody's")
    with pytest.raises(ConfigError, match=f"has 1 shards named as these would be .*{stray}.* that no manifest lists"):
        claim(tmp_path)
    assert contents(tmp_path) == {stray: b"somebody's"}
    assert claim(tmp_path, overwrite=True) is OutputState.NEW
    assert list(contents(tmp_path)) == [NOTE]


@pytest.mark.parametrize("manifest", [b"", b"{}", b'{"name": "caf\xe9"}'])
def test_a_manifest_that_cannot_be_read_is_refused(tmp_path, manifest):
    (tmp_path / "manifest.json").write_bytes(manifest)
    with pytest.raises(ConfigError, match=r"manifest\.json is not a Recordmill manifest"):
        claim(tmp_path)
    assert contents(tmp_path) == {"manifest.json": manifest}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_manifest_of_another_format_is_left_alone(tmp_path, overwrite):
    finish(tmp_path, RECIPE)
    older = msgspec.structs.replace(manifest_of(tmp_path), format=FORMAT - 1)
    (tmp_path / "manifest.json").write_bytes(encode_json(older))
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match="convert into another folder"):
        claim(tmp_path, overwrite=overwrite)
    assert contents(tmp_path) == before


# Several splits of one job

TEST = changed(split="test")


def claim_all(folder, *recipes: Recipe, overwrite: bool = False) -> list[OutputState]:
    return claim_output(str(folder), recipes, overwrite)


def test_each_split_of_a_job_is_claimed_with_a_note_of_its_own(tmp_path):
    assert claim_all(tmp_path, TEST, VAL) == [OutputState.NEW, OutputState.NEW]
    assert contents(tmp_path) == {
        ".recordmill-test/recipe.json": encode_json(TEST),
        ".recordmill-val/recipe.json": encode_json(VAL),
    }


def test_each_split_of_a_job_has_a_state_of_its_own(tmp_path):
    finish(tmp_path, RECIPE)
    claim(tmp_path, VAL)
    (tmp_path / "coco-val.tfrecord-00000-of-00002").write_bytes(b"shard")
    states = claim_all(tmp_path, TEST, RECIPE, VAL)
    assert states == [OutputState.NEW, OutputState.COMPLETE, OutputState.UNFINISHED]


def test_splits_that_are_all_complete_are_left_as_they_are(tmp_path):
    finish(tmp_path, RECIPE, VAL)
    before = contents(tmp_path)
    assert claim_all(tmp_path, VAL, RECIPE) == [OutputState.COMPLETE] * 2
    assert contents(tmp_path) == before


@pytest.mark.parametrize("fields", [{"name": "faces"}, {"layout": "tfds"}, {"parts": (Part.CAPTIONS,)}])
def test_overwrite_of_all_splits_may_change_what_they_have_in_common(tmp_path, fields):
    finish(tmp_path, RECIPE, VAL)
    recipes = [changed(split=split, **fields) for split in ("train", "val", "test")]
    assert claim_all(tmp_path, *recipes, overwrite=True) == [OutputState.NEW] * 3
    assert contents(tmp_path) == {f".recordmill-{recipe.split}/recipe.json": encode_json(recipe) for recipe in recipes}


@pytest.mark.parametrize("fields", [{"name": "faces"}, {"layout": "tfds"}])
@pytest.mark.parametrize("splits", [("train",), ("train", "test"), ("test", "train")])
def test_overwrite_of_some_splits_may_not(tmp_path, fields, splits):
    finish(tmp_path, RECIPE, VAL)
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=r"\(splits: val\); .* would mix two data sets: give another --output"):
        claim_all(tmp_path, *(changed(split=split, **fields) for split in splits), overwrite=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("fields", [{"name": "faces"}, {"layout": "tfds"}])
def test_without_overwrite_no_split_of_another_data_set_is_taken(tmp_path, fields):
    finish(tmp_path, RECIPE, VAL)
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=r"\(splits: train, val\); .* would mix two data sets"):
        claim_all(tmp_path, changed(**fields), changed(split="val", **fields))
    assert contents(tmp_path) == before


def test_overwrite_of_some_splits_leaves_the_others(tmp_path):
    finish(tmp_path, RECIPE, VAL, TEST)
    kept = {name: data for name, data in contents(tmp_path).items() if name.startswith("coco-test")}
    assert claim_all(tmp_path, RECIPE, VAL, overwrite=True) == [OutputState.NEW] * 2
    assert list(manifest_of(tmp_path).splits) == ["test"]
    notes = {NOTE, ".recordmill-val/recipe.json"}
    assert set(contents(tmp_path)) == {"manifest.json", *notes, *kept}
    assert contents(tmp_path).items() >= kept.items()


# Splits of the same inputs that were divided otherwise have images in common


def of_division(split: str, division: str, **fields) -> Recipe:
    return changed(split=split, options=RECIPE.options | {"split": division}, **fields)


OTHER_INPUTS = (InputFile("labels", "b.csv", 5, "AAAAAA=="),)
GROWN = (InputFile(AnnotationKind.INSTANCES, "a.json", 2000, "AAAAAA=="),)
HALVES = [of_division(split, "train=0.5,val=0.5") for split in ("train", "val")]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "recipes",
    [
        [of_division("test", "test")],
        [of_division("test", "test", inputs=GROWN)],
        [of_division("test", "test", inputs=OTHER_INPUTS + RECIPE.inputs)],
        [of_division("test", "test", inputs=(InputFile(AnnotationKind.INSTANCES, "./a.json", 1234, "yZRlqg=="),))],
        [of_division(split, "train=0.9,test=0.1") for split in ("train", "test")],
    ],
    ids=["one more", "of inputs that have grown", "of more inputs", "by another name", "in place of one"],
)
def test_a_split_of_the_same_inputs_by_another_division_is_refused(tmp_path, recipes, overwrite):
    finish(tmp_path, *HALVES)
    before = contents(tmp_path)
    with pytest.raises(ConfigError) as caught:
        claim_all(tmp_path, *recipes, overwrite=overwrite)
    wanted = recipes[0].options["split"]
    assert str(caught.value).endswith(
        f"of the same images, divided by --split train=0.5,val=0.5: with --split {wanted} some images would be in "
        "both; give the same --split, or another --output"
    )
    assert contents(tmp_path) == before


def test_which_split_would_share_images_is_told(tmp_path):
    finish(tmp_path, *HALVES)
    recipes = [of_division(split, "train=0.9,test=0.1") for split in ("train", "test")]
    with pytest.raises(ConfigError, match="holds the split val of the same images, divided by --split train=0"):
        claim_all(tmp_path, *recipes, overwrite=True)


@pytest.mark.parametrize("division", ["train=0.9,val=0.1", "val=0.5,train=0.5"])
def test_overwrite_of_all_splits_may_divide_otherwise(tmp_path, division):
    finish(tmp_path, *HALVES)
    recipes = [of_division(split, division) for split in ("train", "val")]
    assert claim_all(tmp_path, *recipes, overwrite=True) == [OutputState.NEW] * 2


@pytest.mark.parametrize(
    "recipe",
    [of_division("test", "test", inputs=OTHER_INPUTS), of_division("test", "train=0.5,val=0.5")],
    ids=["of other inputs", "by the same division"],
)
def test_a_split_that_shares_no_image_is_added(tmp_path, recipe):
    finish(tmp_path, *HALVES)
    assert claim_all(tmp_path, recipe) == [OutputState.NEW]


def test_splits_that_nothing_divides_may_be_of_one_input(tmp_path):
    """`recordmill coco`: whether two splits are of one file is for whoever names it."""
    finish(tmp_path, RECIPE)
    assert "split" not in RECIPE.options
    assert claim(tmp_path, VAL) is OutputState.NEW


def test_damaged_shards(tmp_path):
    finish(tmp_path, RECIPE)
    assert damaged_shards(LocalStorage(), str(tmp_path), split(RECIPE)) == []
    (tmp_path / SHARDS[0].file).unlink()
    (tmp_path / SHARDS[1].file).write_bytes(bytes(6))
    assert damaged_shards(LocalStorage(), str(tmp_path), split(RECIPE)) == [
        "coco-train.tfrecord-00000-of-00002 is missing",
        "coco-train.tfrecord-00001-of-00002 has 6 bytes instead of 7",
    ]


# Late, when the job may be at work


def test_a_late_claim_takes_the_split_off_the_manifest_and_leaves_shards_called_as_the_jobs_own(tmp_path):
    finish(tmp_path, RECIPE)
    before = manifest_of(tmp_path)
    shards = {path.name for path in tmp_path.glob("coco-train.tfrecord-*")}
    claim_late(str(tmp_path), [with_options(seed=1)], before)
    assert not (tmp_path / "manifest.json").exists()
    assert {path.name for path in tmp_path.glob("coco-train.tfrecord-*")} == shards != set()
    assert claim(tmp_path, with_options(seed=1)) is OutputState.UNFINISHED


def test_a_late_claim_deletes_shards_of_another_name(tmp_path):
    finish(tmp_path, RECIPE)
    before = manifest_of(tmp_path)
    claim_late(str(tmp_path), [changed(name="other")], before)
    assert not list(tmp_path.glob("coco-train.tfrecord-*"))


def test_a_late_claim_leaves_what_the_job_has_finished(tmp_path):
    finish(tmp_path, RECIPE)
    before = manifest_of(tmp_path)
    finish(tmp_path, with_options(seed=1))
    files = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    claim_late(str(tmp_path), [with_options(seed=1)], before)
    assert {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
