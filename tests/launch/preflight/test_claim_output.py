"""What may be written where, and what is there already."""

import msgspec
import pytest

from recordmill.launch.preflight import claim_output as claim_module
from recordmill.launch.preflight.claim_output import (
    OutputState,
    absent_folders,
    claim_output,
    damaged_shards,
    release_output,
)
from recordmill.schemas.annotations import Category
from recordmill.schemas.coco import AnnotationKind
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.manifest import (
    FORMAT,
    AnnotationCounts,
    ImageCounts,
    Manifest,
    SplitManifest,
    Unlisted,
    decode_manifest,
    encode_json,
    encode_manifest,
)
from recordmill.schemas.recipes import InputFile, Recipe, to_list
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.images.listing import listing_of
from recordmill.transforms.storage.local_storage import LocalStorage
from tests.transforms.storage.conftest import gcs, path_of, server

__all__ = ["gcs", "server"]  # fixtures

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
    ShardInfo("coco-train.tfrecord-00000-of-00002", 1, 5, "RXJ2NQ==", "a"),
    ShardInfo("coco-train.tfrecord-00001-of-00002", 1, 7, "uz5qbQ==", "b"),
)
NOTE = ".recordmill-train/recipe.json"
STAGED = f".recordmill-train/{SHARDS[0].file}"


def changed(**fields) -> Recipe:
    return msgspec.structs.replace(RECIPE, **fields)


def with_options(**options) -> Recipe:
    return changed(options=RECIPE.options | options)


def split(recipe: Recipe, shards=SHARDS) -> SplitManifest:
    counts = ImageCounts(2, 2, 0, {}), AnnotationCounts(0, 0, 0, 0, 0, 0, {}, {}, 0, 0, 0)
    return SplitManifest(recipe, {}, "", (), *counts, Unlisted(0, ()), 12, "", shards)


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
    (folder / "manifest.json").write_bytes(encode_manifest(manifest))
    for name, entry in splits.items():
        alone = msgspec.structs.replace(manifest, splits={name: entry})
        (folder / f"manifest-{name}.json").write_bytes(encode_manifest(alone))


def begin(folder, recipe: Recipe = RECIPE) -> None:
    """Leave what a run does that was stopped when its first shard was finished."""
    claim(folder, recipe)
    state = folder / f".recordmill-{recipe.split}"
    for name in (SHARDS[0].file, f"{SHARDS[0].file}.json"):
        (state / name).write_text("{}")


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


@pytest.fixture
def images(tmp_path, monkeypatch):
    """A folder of images, and how often each folder is listed."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "1.jpg").write_bytes(bytes(3))
    listed = []
    monkeypatch.setattr(claim_module, "listing_of", lambda folder: listed.append(folder) or listing_of(folder))
    return str(tmp_path / "images"), listed


def test_images_are_listed_once_and_only_where_a_split_is_complete(tmp_path, images):
    folder, listed = images
    asked = [changed(inputs=(to_list(folder),), split=name) for name in ("train", "val")]
    output = tmp_path / "out"
    assert claim_output(str(output), asked, overwrite=False) == [OutputState.NEW] * 2
    assert claim_output(str(output), asked, overwrite=False) == [OutputState.UNFINISHED] * 2
    assert listed == []
    finish(output, *(recipe.with_listings({folder: listing_of(folder)}) for recipe in asked))
    assert claim_output(str(output), asked, overwrite=True) == [OutputState.UNFINISHED] * 2
    assert claim_output(str(output), asked, overwrite=False) == [OutputState.COMPLETE] * 2
    assert listed == [folder]
    with pytest.raises(ConfigError, match=r"holds coco-val made otherwise \(seed was 0, now 1\)"):
        claim(output, msgspec.structs.replace(asked[1], options=RECIPE.options | {"seed": 1}))
    assert listed == [folder]
    (tmp_path / "images" / "2.jpg").write_bytes(b"1")
    with pytest.raises(ConfigError, match=r"made otherwise \(inputs was --images .*images \(3 bytes.* now .*\(4 bytes"):
        claim(output, asked[0])


def test_a_note_that_has_what_was_listed_is_one_of_the_same_run(tmp_path, images):
    """As versions before have left them."""
    folder, _ = images
    begin(tmp_path, changed(inputs=(listing_of(folder),)))
    assert claim(tmp_path, changed(inputs=(to_list(folder),))) is OutputState.UNFINISHED


@pytest.mark.parametrize("place", [".", "new/folder"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_new_folder_is_claimed_with_a_note(tmp_path, place, overwrite):
    assert claim(tmp_path / place, overwrite=overwrite) is OutputState.NEW
    note = (tmp_path / place / NOTE).read_bytes()
    assert msgspec.json.decode(note, type=Recipe) == RECIPE


@pytest.mark.parametrize("place", ["", "a", "a/b"])
def test_what_is_released_is_as_it_was(tmp_path, place):
    output = str(tmp_path / place)
    absent = absent_folders(output)
    claim_output(output, [RECIPE, changed(split="val")], overwrite=False)
    release_output(output, [RECIPE, changed(split="val")], absent)
    assert list(tmp_path.iterdir()) == []


def test_what_another_run_claims_stays_when_one_is_released(tmp_path):
    absent = absent_folders(str(tmp_path / "out"))
    claim_output(str(tmp_path / "out"), [RECIPE], overwrite=False)
    claim_output(str(tmp_path / "out"), [changed(split="val")], overwrite=False)
    release_output(str(tmp_path / "out"), [RECIPE], absent)
    assert list(contents(tmp_path / "out")) == [".recordmill-val/recipe.json"]
    assert not (tmp_path / "out" / ".recordmill-train").exists()


def test_a_bucket_has_no_folders_to_be_absent():
    assert absent_folders("gs://bucket/a") == []


def test_other_people_s_files_are_let_be(tmp_path):
    for name in ("notes.txt", "other-train.tfrecord-00000-of-00001", "coco-val.tfrecord-00000-of-00001"):
        (tmp_path / name).write_text("mine")
    before = contents(tmp_path)
    assert claim(tmp_path, overwrite=True) is OutputState.NEW
    assert contents(tmp_path) == before | {NOTE: encode_json(RECIPE)}


# Unfinished runs


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_same_recipe_goes_on(tmp_path, overwrite):
    begin(tmp_path)
    before = contents(tmp_path)
    assert claim(tmp_path, overwrite=overwrite) is OutputState.UNFINISHED
    assert contents(tmp_path) == before


@pytest.mark.parametrize(("recipe", "difference"), OTHERWISE)
def test_another_recipe_does_not_go_on(tmp_path, recipe, difference):
    begin(tmp_path)
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
    begin(tmp_path)
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


def test_a_complete_split_may_be_where_nothing_can_be_written(tmp_path, monkeypatch):
    finish(tmp_path, RECIPE)
    before = contents(tmp_path)
    monkeypatch.setattr(claim_module, "folder_fault", lambda path: f"{path} may not be written to")
    assert claim(tmp_path) is OutputState.COMPLETE
    for recipe, overwrite in ((RECIPE, True), (VAL, False)):
        with pytest.raises(ConfigError, match=f"^--output {tmp_path} may not be written to$"):
            claim(tmp_path, recipe, overwrite)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("begun", [begin, finish])
def test_a_split_whose_name_differs_from_another_s_in_case_only_is_refused(tmp_path, begun):
    """Case-insensitive file systems would take the shards of one for those of the other."""
    begun(tmp_path, RECIPE)
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match="has the split train, and TRAIN is asked for, which differ only in case"):
        claim(tmp_path, changed(split="TRAIN"))
    assert contents(tmp_path) == before
    assert claim(tmp_path) is (OutputState.UNFINISHED if begun is begin else OutputState.COMPLETE)


@pytest.mark.parametrize(("recipe", "difference"), [OTHERWISE[0], OTHERWISE[5]])
def test_a_complete_split_of_another_recipe_is_refused(tmp_path, recipe, difference):
    finish(tmp_path, RECIPE)
    before = contents(tmp_path)
    with pytest.raises(ConfigError) as caught:
        claim(tmp_path, recipe)
    assert difference in str(caught.value) or "would mix two data sets" in str(caught.value)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "damage",
    [lambda file: file.unlink(), lambda file: file.write_bytes(b""), lambda file: file.write_bytes(b"\1" + bytes(6))],
    ids=["missing", "cut short", "a bit flipped"],
)
def test_a_damaged_split_is_written_again(tmp_path, damage):
    finish(tmp_path, RECIPE, VAL)
    damage(tmp_path / SHARDS[1].file)
    before = contents(tmp_path)
    assert claim(tmp_path) is OutputState.NEW
    assert contents(tmp_path) == before | {NOTE: encode_json(RECIPE)}


@pytest.mark.parametrize("recipe", [RECIPE, with_options(seed=1), changed(name="faces", layout="tfds")])
def test_overwrite_leaves_the_old_split_until_the_new_one_is_whole(tmp_path, recipe):
    finish(tmp_path, RECIPE)
    before = contents(tmp_path)
    assert claim(tmp_path, recipe, overwrite=True) is OutputState.NEW
    assert contents(tmp_path) == before | {NOTE: encode_json(recipe)}


def test_a_split_is_not_added_to_a_folder_that_was_copied_in_part(tmp_path):
    """The manifest, which is made of the splits' own, would no longer list the others."""
    finish(tmp_path, RECIPE, VAL)
    (tmp_path / "manifest-val.json").unlink()
    with pytest.raises(ConfigError, match=r"a manifest of the splits train, val, but no manifest-val\.json"):
        claim(tmp_path, changed(split="test"))
    assert claim(tmp_path) is OutputState.COMPLETE  # what reads the folder does not need it


def test_a_split_that_another_run_is_just_replacing_is_none_that_was_not_copied(tmp_path, monkeypatch):
    finish(tmp_path, RECIPE, VAL)
    (tmp_path / "manifest-val.json").unlink()
    read, alone = claim_module.read_manifest, (tmp_path / "manifest-train.json").read_bytes()

    def first_read(output):
        manifest = read(output)
        (tmp_path / "manifest.json").write_bytes(alone)
        return manifest

    monkeypatch.setattr(claim_module, "read_manifest", first_read)
    assert claim(tmp_path, changed(split="test")) is OutputState.NEW


def test_a_state_folder_that_leads_elsewhere_costs_nobody_a_file(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".recordmill-train").symlink_to(tmp_path / "mine")
    with pytest.raises(ConfigError, match=r"\.recordmill-train has thesis\.txt, which no run has left there"):
        claim(tmp_path / "out", overwrite=True)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["thesis.txt", "folder/thesis.txt", "data.json"])
def test_somebody_s_folder_called_as_a_state_is_not_deleted(tmp_path, name):
    (tmp_path / ".recordmill-train" / name).parent.mkdir(parents=True)
    (tmp_path / ".recordmill-train" / name).write_text("mine")
    with pytest.raises(ConfigError, match=f"has {name}, which no run has left there, and would be deleted; move it"):
        claim(tmp_path, overwrite=True)
    assert contents(tmp_path) == {f".recordmill-train/{name}": b"mine"}


def test_what_a_run_left_that_was_killed_while_it_deleted_its_state_is_deleted(tmp_path):
    begin(tmp_path)
    (tmp_path / NOTE).unlink()
    for name in ("rejects.jsonl", ".recipe.json.000000-1-000000.0000.tmp", "beam-temp-coco/x", "file_00-4.tfrec.gz"):
        (tmp_path / ".recordmill-train" / name).parent.mkdir(exist_ok=True)
        (tmp_path / ".recordmill-train" / name).touch()
    assert claim(tmp_path) is OutputState.NEW
    assert contents(tmp_path) == {NOTE: encode_json(RECIPE)}


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
    (tmp_path / "manifest.json").write_bytes(encode_manifest(with_lvis))
    assert claim(tmp_path, VAL) is OutputState.NEW


@pytest.mark.parametrize("overwrite", [False, True])
def test_shards_of_the_keras_recipe_tell_no_splits_apart_so_a_second_one_is_refused(tmp_path, overwrite):
    recipe = changed(layout="keras")
    finish(tmp_path, recipe)
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=r"holds the split train; in layout keras .* give --split val an --output of"):
        claim(tmp_path, changed(layout="keras", split="val"), overwrite)
    assert contents(tmp_path) == before


SAVED = InputFile("encoders", "e.json", 1, "AAAAAA==")


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [
        ({"caption_text": "tfidf"}, {"caption_text": "tfidf"}, True),
        ({"text": "counts"}, {"text": "counts", "saved": SAVED}, True),
        ({"text": "counts", "saved": SAVED}, {"text": "counts"}, True),
        ({"text": "counts", "saved": SAVED}, {"text": "counts", "saved": SAVED}, False),
        (
            {"text": "counts", "saved": SAVED},
            {"text": "counts", "saved": msgspec.structs.replace(SAVED, crc32c="BBBBBB==")},
            True,
        ),
        ({"text": "raw"}, {"text": "counts"}, False),
        ({}, {"caption_text": "tfidf"}, False),
    ],
)
def test_two_jobs_at_once_learn_no_two_vocabularies(tmp_path, first, second, is_refused):
    def of_texts(split: str, saved: InputFile | None = None, **texts) -> Recipe:
        return changed(split=split, inputs=(*RECIPE.inputs, *filter(None, [saved])), options=RECIPE.options | texts)

    claim(tmp_path, of_texts("train", **first))
    if not is_refused:
        claim(tmp_path, of_texts("val", **second))
        return
    with pytest.raises(ConfigError, match="unfinished run of train, whose texts have another vocabulary than val"):
        claim(tmp_path, of_texts("val", **second))
    assert [path.name for path in tmp_path.iterdir()] == [".recordmill-train"]
    claim_output(str(tmp_path), [of_texts("train", **first), of_texts("val", **second)], overwrite=False)


def test_of_two_splits_in_the_layout_keras_that_begin_at_once_one_at_most_goes_on(tmp_path):
    recipe = changed(layout="keras")
    begin(tmp_path, recipe)
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match="give --split val an --output of its own"):
        claim(tmp_path, changed(layout="keras", split="val"))
    assert contents(tmp_path) == before


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
    assert claim(tmp_path, overwrite=True) is OutputState.NEW  # and it is deleted when the split is whole


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
    begin(tmp_path, VAL)
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


def test_a_split_that_nothing_divided_shares_images_with_one_that_is_of_a_division(tmp_path):
    finish(tmp_path, RECIPE)
    with pytest.raises(ConfigError, match=r"divided by --split train: with --split test=0\.5,val=0\.5 some images"):
        claim_all(tmp_path, *(of_division(split, "test=0.5,val=0.5") for split in ("test", "val")))


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
    (tmp_path / SHARDS[1].file).write_bytes(b"\1" + bytes(6))
    assert damaged_shards(LocalStorage(), str(tmp_path), split(RECIPE))[1] == (
        "coco-train.tfrecord-00001-of-00002 has the checksum 0z1GpQ== instead of uz5qbQ=="
    )


# A bucket that keeps what is written


@pytest.mark.parametrize("kept", [{"retentionExpirationTime": "2026-12-24T18:30:00.000Z"}, {"eventBasedHold": True}])
def test_a_bucket_in_which_no_job_could_end_is_refused_each_time(gcs, kept):
    output = path_of("out")
    gcs.protection = kept
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"^gs://bucket/out/\.recordmill-train/recipe\.json can be neither"):
            claim_output(output, [RECIPE], overwrite=False)
    assert list(gcs.objects()) == [f"out/{NOTE}"]


def test_a_bucket_that_lets_go_is_taken(gcs):
    output = path_of("out")
    assert claim_output(output, [RECIPE], overwrite=False) == [OutputState.NEW]
    assert claim_output(output, [RECIPE], overwrite=False) == [OutputState.UNFINISHED]


def test_what_is_complete_stays_so_in_a_bucket_that_was_given_a_policy_since(gcs, tmp_path):
    finish(tmp_path, RECIPE)
    gcs.protection = {"retentionExpirationTime": "2026-12-24T18:30:00.000Z"}
    for name, data in contents(tmp_path).items():
        gcs.put(f"out/{name}", data)
    assert claim_output(path_of("out"), [RECIPE], overwrite=False) == [OutputState.COMPLETE]
