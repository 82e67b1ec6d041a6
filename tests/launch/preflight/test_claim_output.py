"""Claim of an output, by the state of its folder."""

from hashlib import sha256

import msgspec
import pytest

from recordmill.launch.preflight import claim_output as claim_module
from recordmill.launch.preflight.claim_output import OutputState, absent_folders, claim_output, release_output
from recordmill.schemas.dataset.manifest import (
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
from recordmill.schemas.dataset.recipes import InputFile, Recipe, unlisted_folder
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import AnnotationKind
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.join.list_images import list_folder
from tests.jobs.folders import whole_folder
from tests.transforms.storage.conftest import path_of

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
STATE = ".recordmill-train"
NOTE = f"{STATE}/recipe.json"


def changed(**fields) -> Recipe:
    return msgspec.structs.replace(RECIPE, **fields)


def with_options(**options) -> Recipe:
    return changed(options=RECIPE.options | options)


NO_LINES = sha256(b"").hexdigest()


def finish(folder, *recipes: Recipe) -> None:
    """Write a data set of these splits, each of two shards."""
    splits = {}
    counts = ImageCounts(2, 2, 0, {}), AnnotationCounts(0, 0, 0, 0, 0, 0, {}, {}, 0, 0, 0)
    for recipe in recipes:
        shards = tuple(
            msgspec.structs.replace(shard, file=shard.file.replace("coco-train", f"{recipe.name}-{recipe.split}"))
            for shard in SHARDS
        )
        splits[recipe.split] = SplitManifest(recipe, {}, "", (), *counts, Unlisted(0, ()), 12, NO_LINES, shards)
        (folder / f"rejects-{recipe.split}.jsonl").write_bytes(b"")
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


VAL = changed(split="val")

OTHERWISE = [
    (with_options(seed=1), "seed: 0, now 1"),
    (with_options(gzip=True, seed=1), "gzip: False, now True; seed: 0, now 1"),
    (with_options(num_shards=3), "num-shards: default, now 3"),
    (with_options(categories=["cat", "dog"]), "categories: cat, now cat dog"),
    (changed(images=("images", "more")), "images: images, now images more"),
    (changed(layout="tfds"), "layout: detection, now tfds"),
    (
        changed(inputs=(InputFile(AnnotationKind.INSTANCES, "a.json", 1235, "AAAAAA=="),)),
        "inputs: --instances a.json (1,234 bytes, crc32c yZRlqg==), "
        "now --instances a.json (1,235 bytes, crc32c AAAAAA==)",
    ),
]


CAPTIONED = changed(parts=(Part.MASK_PNG, Part.CAPTIONS))
TEST = changed(split="test")
KERAS = changed(layout="keras")
HALF = "train=0.5,val=0.5"
SAVED = InputFile("encoders", "e.json", 1, "AAAAAA==")
OTHER_INPUTS = (InputFile("labels", "b.csv", 5, "AAAAAA=="),)
GROWN = (InputFile(AnnotationKind.INSTANCES, "a.json", 2000, "AAAAAA=="),)
COMPRESSED = (InputFile(AnnotationKind.INSTANCES, "a.json.gz", 1, "z"),)
RENAMED = (InputFile(AnnotationKind.INSTANCES, "./a.json", 1234, "yZRlqg=="),)


def split_recipe(split_name: str, **fields) -> Recipe:
    return changed(split=split_name, **fields)


def divided_recipes(names: str, division: str, **fields) -> list[Recipe]:
    return [split_recipe(name, options=RECIPE.options | {"split": division}, **fields) for name in names.split()]


def text_recipe(name: str, saved: InputFile | None = None, **texts) -> Recipe:
    return split_recipe(name, inputs=(*RECIPE.inputs, *filter(None, [saved])), options=RECIPE.options | texts)


def with_file(name: str, data: bytes = b"somebody's"):
    def write(folder) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

    return write


def begun(*recipes: Recipe):
    return lambda folder: [begin(folder, recipe) for recipe in recipes or (RECIPE,)]


def claimed(*recipes: Recipe):
    return lambda folder: claim_output(str(folder), recipes, overwrite=False)


def finished(*recipes: Recipe, but=lambda folder: None):
    def make(folder) -> None:
        finish(folder, *(recipes or (RECIPE,)))
        but(folder)

    return make


def edited(**fields):
    def edit(folder) -> None:
        manifest = decode_manifest((folder / "manifest.json").read_bytes(), "manifest.json")
        (folder / "manifest.json").write_bytes(encode_json(msgspec.structs.replace(manifest, **fields)))

    return edit


def listing_thesis(folder) -> None:
    with_file("thesis.txt")(folder)
    listed = (folder / "manifest.json").read_text().replace(SHARDS[0].file, "thesis.txt")
    (folder / "manifest.json").write_text(listed)


def without(name: str):
    return lambda folder: (folder / name).unlink()


def both(*steps):
    return lambda folder: [step(folder) for step in steps]


NEW, UNFINISHED, COMPLETE = OutputState
BOTH = (False, True)

CLAIMS = [
    # What the folder holds; what is asked for; with --overwrite or not; each split's state.
    (claimed(), [RECIPE], BOTH, [NEW]),
    (claimed(), [TEST, VAL], [False], [NEW, NEW]),
    *((with_file(name), [RECIPE], [True], [NEW]) for name in ("notes.txt", SHARDS[0].file.replace("train", "val"))),
    (with_file(SHARDS[0].file), [RECIPE], [True], [NEW]),
    (begun(), [RECIPE], BOTH, [UNFINISHED]),
    (begun(), [with_options(seed=1)], [True], [NEW]),
    (begun(), [changed(inputs=COMPRESSED)], BOTH, [UNFINISHED]),
    (claimed(RECIPE), [changed(images=("elsewhere",))], [False], [NEW]),  # it wrote no shard
    (claimed(RECIPE), [VAL], [False], [NEW]),
    *((with_file(NOTE, note), [RECIPE], [True], [NEW]) for note in (b"", b"{", b'{"format": 1}', b"\xff")),
    (both(begun(), with_file(NOTE, encode_json(changed(layout="unknown")))), [RECIPE], [False], [NEW]),
    (both(begun(), without(NOTE), with_file(f"{STATE}/rejects.jsonl")), [RECIPE], [False], [NEW]),
    (with_file(f"{STATE}/.recipe.json.000000-1-000000.0000.tmp"), [RECIPE], [False], [NEW]),
    (with_file(f"{STATE}/beam-temp-coco/x"), [RECIPE], [False], [NEW]),
    (with_file(f"{STATE}/file_00-4.tfrec.gz"), [RECIPE], [False], [NEW]),
    (finished(), [RECIPE], [False], [COMPLETE]),
    (finished(RECIPE, VAL), [VAL, RECIPE], [False], [COMPLETE, COMPLETE]),
    (both(finished(), begun(VAL)), [TEST, RECIPE, VAL], [False], [NEW, COMPLETE, UNFINISHED]),
    *(
        (finished(RECIPE, VAL, but=damage), [RECIPE], [False], [NEW])
        for damage in (
            without(SHARDS[1].file),
            with_file(SHARDS[1].file, b""),
            with_file(SHARDS[1].file, b"\1" + bytes(6)),
        )
    ),
    *((finished(), [recipe], [True], [NEW]) for recipe in (RECIPE, with_options(seed=1), changed(name="faces"))),
    (finished(), [VAL], [False], [NEW]),
    (finished(RECIPE, VAL, but=without("manifest-val.json")), [RECIPE], [False], [COMPLETE]),
    (finished(but=edited(parts=(Part.LVIS, Part.CATEGORY_ID))), [VAL], [False], [NEW]),  # which come of the input
    *(
        (finished(RECIPE, VAL), [split_recipe(name, **fields) for name in ("train", "val", "test")], [True], [NEW] * 3)
        for fields in ({"name": "faces"}, {"layout": "tfds"}, {"parts": (Part.CAPTIONS,)})
    ),
    *(
        (finished(*divided_recipes("train val", HALF)), divided_recipes("train val", division), [True], [NEW, NEW])
        for division in ("train=0.9,val=0.1", "val=0.5,train=0.5")
    ),
    (
        finished(*divided_recipes("train val", HALF)),
        divided_recipes("test", "test", inputs=OTHER_INPUTS),
        [False],
        [NEW],
    ),
    (finished(*divided_recipes("train val", HALF)), divided_recipes("test", HALF), [False], [NEW]),
    (claimed(text_recipe("train", SAVED, text="counts")), [text_recipe("val", SAVED, text="counts")], [False], [NEW]),
    (claimed(text_recipe("train", text="raw")), [text_recipe("val", text="counts")], [False], [NEW]),
    (claimed(RECIPE), [text_recipe("val", caption_text="tfidf")], [False], [NEW]),
    (
        claimed(text_recipe("train", caption_text="tfidf")),  # splits of one job share the vocabulary
        [text_recipe(name, caption_text="tfidf") for name in ("train", "val")],
        [False],
        [UNFINISHED, NEW],
    ),
]


@pytest.mark.parametrize(
    ("left", "recipes", "overwrite", "states"),
    [(left, recipes, one, states) for left, recipes, overwrites, states in CLAIMS for one in overwrites],
)
def test_allowed_outputs(tmp_path, left, recipes, overwrite, states):
    """Existing splits stay until a new split is complete; each new split gets a note and no other state."""
    left(tmp_path)
    before = whole_folder(tmp_path)
    assert claim_output(str(tmp_path), recipes, overwrite) == states
    notes = {}
    for recipe, state in zip(recipes, states, strict=True):
        if state is NEW:
            folder = f".recordmill-{recipe.split}"
            before = {name: data for name, data in before.items() if not name.startswith(f"{folder}/")}
            notes[f"{folder}/recipe.json"] = encode_json(recipe)
    assert whole_folder(tmp_path) == before | notes


REFUSED = [
    # Likewise; and a word of what is said.
    (with_file(SHARDS[0].file), [RECIPE], [False], "no manifest lists"),
    *((begun(), [recipe], [False], f"other options ({word}") for recipe, word in OTHERWISE),
    *((with_file(NOTE, note), [RECIPE], [False], "--overwrite") for note in (b"", b"{", b'{"format": 1}', b"\xff")),
    *(
        (with_file(f"{STATE}/{name}"), [RECIPE], [True], f"has {name}")
        for name in ("thesis.txt", "folder/thesis.txt", "data.json")
    ),
    (finished(), [with_options(seed=1)], [False], "other options (seed: 0, now 1"),
    (finished(but=listing_thesis), [RECIPE], [True], "'thesis.txt'"),
    (finished(RECIPE, VAL, but=without("manifest-val.json")), [TEST], [False], "manifest-val.json"),
    *((with_file("manifest.json", text), [RECIPE], [False], "not a Recordmill") for text in (b"", b"{}", b"caf\xe9")),
    (finished(but=edited(format=FORMAT - 1)), [RECIPE], BOTH, "another folder"),
    *((left(), [split_recipe("TRAIN")], [False], "differ only in case") for left in (begun, finished)),
    (finished(CAPTIONED), [split_recipe("val", parts=(Part.CAPTIONS,))], BOTH, "records with mask_png, captions"),
    (finished(changed(parts=(*RECIPE.parts, Part.TILES))), [split_recipe("val")], BOTH, "records of tiles"),
    (finished(), [split_recipe("val", options=RECIPE.options | {"tile": 64})], BOTH, "would be of tiles"),
    (finished(KERAS), [split_recipe("val", layout="keras")], BOTH, "layout keras"),
    (begun(KERAS), [split_recipe("val", layout="keras")], [False], "separate --output for --split val"),
    *(
        (
            finished(RECIPE, VAL),
            [split_recipe(name, **fields) for name in names.split()],
            overwrites,
            words,
        )
        for fields in ({"name": "faces"}, {"layout": "tfds"})
        for names, overwrites, words in (
            ("test", BOTH, "(splits: train, val)"),
            ("train val", [False], "give another --output, or add --overwrite to replace it"),
            *((names, [True], "(splits: val)") for names in ("train", "train test", "test train")),
        )
    ),
    *(
        (claimed(text_recipe("train", **first)), [text_recipe("val", **second)], [False], "another vocabulary")
        for first, second in (
            ({"caption_text": "tfidf"}, {"caption_text": "tfidf"}),
            ({"text": "counts"}, {"text": "counts", "saved": SAVED}),
            ({"text": "counts", "saved": SAVED}, {"text": "counts"}),
            (
                {"text": "counts", "saved": SAVED},
                {"text": "counts", "saved": msgspec.structs.replace(SAVED, crc32c="BBBBBB==")},
            ),
        )
    ),
    # The unfinished split of the same job keeps its finished shard.
    (
        both(
            begun(text_recipe("train", text="counts")),
            with_file(".recordmill-test/recipe.json", encode_json(text_recipe("test", SAVED, text="counts"))),
        ),
        [text_recipe("train", text="counts"), text_recipe("val", text="counts")],
        [False],
        "unfinished run of test",
    ),
    # Splits of the same inputs that were divided otherwise have images in common.
    *(
        (finished(*divided_recipes("train val", HALF)), recipes, BOTH, f"divided by --split {HALF}")
        for recipes in (
            divided_recipes("test", "test"),
            divided_recipes("test", "test", inputs=GROWN),
            divided_recipes("test", "test", inputs=OTHER_INPUTS + RECIPE.inputs),
            divided_recipes("test", "test", inputs=RENAMED),
            divided_recipes("train test", "train=0.9,test=0.1"),
        )
    ),
    (finished(), divided_recipes("test val", "test=0.5,val=0.5"), [False], "divided by --split train"),
]


def test_inputs_may_share_a_class_map(tmp_path):
    class_map = InputFile("class_map", "map.csv", 10, "AAAAAA==")
    finish(tmp_path, *divided_recipes("train val", HALF, inputs=(*RECIPE.inputs, class_map)))
    other = divided_recipes("test", "test", inputs=(*OTHER_INPUTS, class_map))
    assert claim_output(str(tmp_path), other, False) == [NEW]


@pytest.mark.parametrize(
    ("left", "recipes", "overwrite", "word"),
    [(left, recipes, one, word) for left, recipes, overwrites, word in REFUSED for one in overwrites],
)
def test_refusal_changes_nothing(tmp_path, left, recipes, overwrite, word):
    left(tmp_path)
    before = whole_folder(tmp_path)
    with pytest.raises(ConfigError) as caught:
        claim_output(str(tmp_path), recipes, overwrite)
    assert word in str(caught.value)
    assert whole_folder(tmp_path) == before


def test_images_are_listed_once_for_complete_splits(tmp_path, monkeypatch):
    folder = str(tmp_path / "images")
    with_file("images/1.jpg", bytes(3))(tmp_path)
    listed = []
    monkeypatch.setattr(claim_module, "list_folder", lambda folder: listed.append(folder) or list_folder(folder))
    asked = [changed(inputs=(unlisted_folder(folder),), split=name) for name in ("train", "val")]
    output = tmp_path / "out"
    assert claim_output(str(output), asked, overwrite=False) == [NEW] * 2
    assert claim_output(str(output), asked, overwrite=False) == [UNFINISHED] * 2
    assert listed == []
    finish(output, *(recipe.with_listings({folder: list_folder(folder)}) for recipe in asked))
    assert claim_output(str(output), asked, overwrite=True) == [UNFINISHED] * 2
    assert claim_output(str(output), asked, overwrite=False) == [COMPLETE] * 2
    assert listed == [folder]
    with pytest.raises(ConfigError, match=r"seed: 0, now 1.*\. Add --overwrite"):
        claim(output, msgspec.structs.replace(asked[1], options=RECIPE.options | {"seed": 1}))
    assert listed == [folder]
    with_file("images/2.jpg", b"1")(tmp_path)
    with pytest.raises(
        ConfigError, match=r"inputs: DATA .*images \(3 bytes.* now .*\(4 bytes.*\. Add --add to write only"
    ):
        claim(output, asked[0])


@pytest.mark.parametrize(
    ("recipe", "names_add"),
    [
        (changed(images=("more",), inputs=(InputFile(AnnotationKind.INSTANCES, "more.json", 9, "yZRlqg=="),)), True),
        (msgspec.structs.replace(with_options(num_shards=3), images=("more",)), True),
        (msgspec.structs.replace(with_options(seed=1), images=("more",)), False),
        (with_options(num_shards=3), False),
    ],
    ids=["another folder", "another folder and number of shards", "another folder and seed", "the same images"],
)
def test_other_images_may_be_added(tmp_path, recipe, names_add):
    finish(tmp_path, RECIPE)
    with pytest.raises(ConfigError) as caught:
        claim_output(str(tmp_path), [recipe], overwrite=False)
    assert ("Add --add to write only the images that it lacks" in str(caught.value)) == names_add


@pytest.mark.parametrize("seed", [0, 1])
def test_note_that_another_job_has_replaced(tmp_path, monkeypatch, seed):
    """A note with the same seed is that of a second run of the job."""
    write_note = claim_module._note_recipe
    monkeypatch.setattr(claim_module, "_note_recipe", lambda output, _: write_note(output, with_options(seed=seed)))
    if seed == 0:
        assert claim(tmp_path, RECIPE) == NEW
        return
    with pytest.raises(ConfigError, match="another job is writing train with other options"):
        claim(tmp_path, RECIPE)
    assert list(whole_folder(tmp_path)) == [NOTE]


def test_state_of_process_that_starts_at_the_same_moment_is_kept(tmp_path, monkeypatch):
    """It has noted the recipe and finished a shard after the state was read."""
    write_note = claim_module._note_recipe

    def other_first(output, recipe):
        monkeypatch.undo()
        begin(tmp_path)
        write_note(output, recipe)

    monkeypatch.setattr(claim_module, "_note_recipe", other_first)
    assert claim(tmp_path) is NEW
    assert len(whole_folder(tmp_path)) > 1


@pytest.mark.parametrize("place", ["", "a", "a/b"])
def test_released_folder_is_unchanged(tmp_path, place):
    """Claims of other runs stay."""
    output = str(tmp_path / place)
    absent = absent_folders(output)
    claim_output(output, [RECIPE, VAL], overwrite=False)
    release_output(output, [RECIPE], absent)
    assert list(whole_folder(tmp_path / place)) == [".recordmill-val/recipe.json"]
    assert not (tmp_path / place / STATE).exists()
    release_output(output, [VAL], absent)
    assert list(tmp_path.iterdir()) == []
    assert absent_folders("gs://bucket/a") == []


def test_complete_split_may_be_where_nothing_can_be_written(tmp_path, monkeypatch):
    finish(tmp_path, RECIPE)
    before = whole_folder(tmp_path)
    monkeypatch.setattr(claim_module, "folder_fault", lambda path: f"{path} may not be written to")
    assert claim(tmp_path) is COMPLETE
    for recipe, overwrite in ((RECIPE, True), (VAL, False)):
        with pytest.raises(ConfigError, match=f"^--output {tmp_path} may not be written to$"):
            claim(tmp_path, recipe, overwrite)
    assert whole_folder(tmp_path) == before


def test_split_being_replaced_is_not_missing(tmp_path, monkeypatch):
    finish(tmp_path, RECIPE, VAL)
    (tmp_path / "manifest-val.json").unlink()
    read, alone = claim_module.read_manifest, (tmp_path / "manifest-train.json").read_bytes()

    def first_read(output):
        manifest = read(output)
        (tmp_path / "manifest.json").write_bytes(alone)
        return manifest

    monkeypatch.setattr(claim_module, "read_manifest", first_read)
    assert claim(tmp_path, TEST) is NEW


def test_linked_state_folder_is_not_followed(tmp_path):
    with_file("mine/thesis.txt")(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / STATE).symlink_to(tmp_path / "mine")
    with pytest.raises(ConfigError, match=r"has thesis\.txt"):
        claim(tmp_path / "out", overwrite=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()


# A bucket that keeps what is written


@pytest.mark.parametrize(
    "protection", [{"retentionExpirationTime": "2026-12-24T18:30:00.000Z"}, {"eventBasedHold": True}]
)
def test_bucket_in_which_no_job_could_end_is_refused_each_time(gcs, protection):
    output = path_of("out")
    gcs.protection = protection
    for _ in range(2):
        with pytest.raises(ConfigError, match="can be neither"):
            claim_output(output, [RECIPE], overwrite=False)
    assert list(gcs.objects()) == [f"out/{NOTE}"]


def test_retention_policy_leaves_complete_splits(gcs, tmp_path):
    finish(tmp_path, RECIPE)
    gcs.protection = {"retentionExpirationTime": "2026-12-24T18:30:00.000Z"}
    for name, data in whole_folder(tmp_path).items():
        gcs.put(f"out/{name}", data)
    assert claim_output(path_of("out"), [RECIPE], overwrite=False) == [OutputState.COMPLETE]
