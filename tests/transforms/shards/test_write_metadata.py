import csv
import hashlib
import json
import re

import apache_beam as beam
import msgspec
import pytest
from apache_beam.pvalue import AsSingleton
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.dataset.manifest import (
    InputRows,
    Manifest,
    SplitManifest,
    Unlisted,
    decode_manifest,
    encode_json,
)
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.errors import DuplicatesError, EmptyDatasetError, JobError, LostImagesError, TooManyRejectsError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION
from recordmill.schemas.names import NameSources
from recordmill.schemas.problems import Fingerprints
from recordmill.schemas.rejects import Reason, Rejected, RejectLine
from recordmill.schemas.shards import ShardInfo, ShardKey, ShardResult
from recordmill.schemas.statistics import ClassStatistics, SplitStatistics, Statistics
from recordmill.transforms.dataset.compare_names import Names
from recordmill.transforms.dataset.facts import AddFacts, Facts, add_facts
from recordmill.transforms.dataset.rejects import RejectList, count_rejects
from recordmill.transforms.shards import write_metadata as module
from recordmill.transforms.shards.check_findings import JobLimits
from recordmill.transforms.shards.commit_splits import commit_splits
from recordmill.transforms.shards.describe_split import describe_split
from recordmill.transforms.shards.shard_file import FinishedShards, WrittenShard
from recordmill.transforms.shards.write_metadata import WriteMetadata, write_metadata
from recordmill.transforms.storage.local_storage import LocalStorage, TemporaryName
from tests.beam_pipeline import Pipeline
from tests.transforms.dataset.kinds import tally
from tests.transforms.insight.test_find_duplicates import shard as fingerprints_of
from tests.transforms.shards.test_describe_split import COUNTS, INPUTS, RECIPE, REJECTED, SHARDS, SPLIT, UNLISTED
from tests.transforms.shards.test_shard_file import crc32c

VAL = msgspec.structs.replace(RECIPE, split="val")
TABLE = DETECTION.with_parts(())
LABELS = LabelMap((Category(1, "cat"), Category(3, "dog, or puppy")))


def facts_of(split: str, rejected=REJECTED, inputs=INPUTS, counts=COUNTS, files=UNLISTED) -> Facts:
    """Facts of a split."""
    return Facts(
        {(split, metric): number for metric, number in counts.items()},
        {(split, rows.path, rows.kind): rows for rows in inputs},
        count_rejects((split, reject) for reject in rejected),
        Names(files.files, files.first),
        warnings={(split, "b"), (split, "a")},
        classes={(split, 0): counts["objects"]},
        statistics={split: Statistics(7)},
    )


def job_limits(folder, splits=("train",), max_rejects=0.2, duplicates="report") -> JobLimits:
    return JobLimits(splits, NameSources((), (), ""), max_rejects, str(folder), True, duplicates=duplicates)


def write_all(
    folder, recipes, *facts: Facts, max_rejects=0.2, labels=LABELS, table=TABLE, duplicates="report", notes=()
):
    """Write splits whose shards have just been finished, and left these notes."""
    added, lists = add_facts(facts), [kind for part in facts for kind in part.rejects.items()]
    limits = job_limits(folder, tuple(recipe.split for recipe in recipes), max_rejects, duplicates)
    return write_metadata(recipes, limits, added, notes, lists, labels, table)


def write(
    folder, recipe=RECIPE, shards=SHARDS, max_rejects=0.2, labels=LABELS, table=TABLE, **changed
) -> SplitManifest:
    """Write one split, whose shards have just been finished."""
    notes = stage(folder, recipe, shards)
    facts = facts_of(recipe.split, **changed)
    manifest = write_all(folder, [recipe], facts, max_rejects=max_rejects, labels=labels, table=table, notes=notes)
    return manifest.splits[recipe.split]


def stage(folder, recipe: Recipe, shards, fingerprints: Fingerprints | None = None) -> list[tuple[ShardKey, str]]:
    """The files of shards, and their notes, as the step before leaves them."""
    state = folder / f".recordmill-{recipe.split}"
    state.mkdir(parents=True, exist_ok=True)
    (state / "rejects.jsonl").write_text(recipe.split)
    finished = FinishedShards(str(folder), recipe.name, recipe.layout, recipe.container)
    notes = []
    for info in shards:
        (state / info.file).write_bytes(bytes(info.bytes))
        key = ShardKey(recipe.split, int(re.findall(r"\d+", info.file)[0]), len(shards))
        written = finished.note(ShardResult(key, "", {}, info, {}, (), Statistics(), fingerprints=fingerprints))
        notes.append((key, written.note))
    return notes


def lines(folder, file="rejects-train.jsonl") -> list[dict]:
    return [json.loads(line) for line in (folder / file).read_text().splitlines()]


def split_of(folder, images: int = 7) -> SplitManifest:
    """SPLIT, with the digests of the folder's rejects and of statistics of so many images."""
    digest = hashlib.sha256((folder / "rejects-train.jsonl").read_bytes()).hexdigest()
    counts = (ClassStatistics("cat", 9, 0), ClassStatistics("dog, or puppy", 0, 0))
    statistics = encode_json(SplitStatistics(images, {}, (), {}, counts, (), {}, {}, 0))
    return msgspec.structs.replace(
        SPLIT, rejects_sha256=digest, statistics_sha256=hashlib.sha256(statistics).hexdigest()
    )


# What is written


def contents(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def left_by_a_killed_run(name: str) -> str:
    """The temporary file of an earlier run that had the number of this process."""
    own = TemporaryName.parse(TemporaryName.make(name))
    return f".{name}.{own.host}-{own.process}-000000.0000.tmp"


def test_everything_is_in_its_place(tmp_path):
    stage(tmp_path, RECIPE, [])
    (tmp_path / ".recordmill-train" / "recipe.json").write_bytes(encode_json(RECIPE))
    (tmp_path / left_by_a_killed_run("coco-train.tfrecord-00000-of-00002")).write_text("of this split")
    (tmp_path / left_by_a_killed_run("manifest.json")).write_text("of any file")
    assert write(tmp_path) == split_of(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    manifest = decode_manifest((tmp_path / "manifest.json").read_bytes(), "manifest.json")
    assert (manifest.name, manifest.layout) == ("coco", "detection")
    assert (manifest.categories, manifest.splits) == (LABELS.categories, {"train": split_of(tmp_path)})
    alone = decode_manifest((tmp_path / "manifest-train.json").read_bytes(), "manifest-train.json")
    assert (alone.splits, alone.labels, alone.name) == (manifest.splits, manifest.labels, "coco")
    assert {shard.file: shard.bytes for shard in SHARDS} == {
        path.name: path.stat().st_size for path in tmp_path.glob("coco-train.tfrecord-*")
    }
    assert list(csv.reader((tmp_path / "labels.csv").open())) == [["1", "cat"], ["3", "dog, or puppy"]]
    assert json.loads((tmp_path / "label_map.json").read_text())["id_by_index"] == [1, 3]
    assert 'name: "dog, or puppy"' in (tmp_path / "label_map.pbtxt").read_text()


def test_manifest_is_written_when_all_else_is_in_its_place(tmp_path, monkeypatch):
    """And before what an unfinished run needs is deleted: whoever is killed at any moment can go on."""
    stage(tmp_path, RECIPE, [])
    (tmp_path / ".recordmill-train" / "recipe.json").write_bytes(encode_json(RECIPE))
    at_the_manifest: list[dict[str, bytes]] = []
    storage_write = LocalStorage.write

    def noted(self, path, data):
        if path.endswith("manifest.json"):
            at_the_manifest.append(contents(tmp_path))
        storage_write(self, path, data)

    monkeypatch.setattr(LocalStorage, "write", noted)
    write(tmp_path)
    finished = contents(tmp_path)
    del finished["manifest.json"]
    (files,) = at_the_manifest
    state = {name: files.pop(name) for name in list(files) if name.startswith(".")}
    assert files == finished
    assert state.keys() >= {".recordmill-train/recipe.json"}


def test_too_many_rejects_leave_their_list_and_no_manifest(tmp_path):
    with pytest.raises(TooManyRejectsError, match=f"They are listed in {tmp_path}/.recordmill-train/rejects.jsonl"):
        write(tmp_path, max_rejects=0.0)
    assert [path.name for path in tmp_path.iterdir()] == [".recordmill-train"]
    assert [line["id"] for line in lines(tmp_path, ".recordmill-train/rejects.jsonl")] == [4, 5, 9, None]


def test_split_without_example_leaves_its_rejects_only(tmp_path):
    """Its shards are no work that another command has to be held up for."""
    (tmp_path / ".recordmill-train").mkdir()
    (tmp_path / ".recordmill-train" / "recipe.json").write_bytes(encode_json(RECIPE))
    empty = ShardInfo("coco-train.tfrecord-00000-of-00001", 0, 0, "", "")
    counts = {"images": 0, "objects": 0}
    images = sum(rows.images for rows in INPUTS)
    missing = [Rejected("image", id_, Reason.IMAGE_MISSING, "gone") for id_ in range(images)]
    rows = [InputRows("a.json", "instances", images, 0)]
    with pytest.raises(EmptyDatasetError):
        write(tmp_path, max_rejects=1.0, shards=[empty], rejected=missing, inputs=rows, counts=counts)
    assert [path.name for path in tmp_path.rglob("*")] == [".recordmill-train", "rejects.jsonl"]


def test_manifest_lists_parts_and_segments(tmp_path):
    segments = (Category(3, "dog, or puppy", isthing=1), Category(92, "banner", isthing=0))
    table = DETECTION.with_parts((Part.SEMANTIC, Part.LVIS))
    write(tmp_path, labels=LabelMap(LABELS.categories, segments), table=table)
    manifest = decode_manifest((tmp_path / "manifest.json").read_bytes(), "manifest.json")
    assert (manifest.parts, manifest.segments) == ((Part.SEMANTIC, Part.LVIS), segments)
    assert manifest.table == table
    assert json.loads((tmp_path / "label_map.json").read_text())["semantic_by_id"] == {"3": 1, "92": 2}


# Several splits in one job


VAL_SHARDS = [msgspec.structs.replace(shard, file=shard.file.replace("train", "val")) for shard in SHARDS]


def test_splits_of_one_job_are_written_together(tmp_path):
    for split in ("train", "val"):
        (tmp_path / f"coco-{split}.tfrecord-00006-of-00007").write_text("of an earlier run")
    notes = [*stage(tmp_path, RECIPE, SHARDS), *stage(tmp_path, VAL, VAL_SHARDS)]
    train = facts_of("train", files=Unlisted(0, ()))  # names of files are of no split
    val = facts_of("val", REJECTED[:3], counts={**COUNTS, "objects": 10})
    manifest = write_all(tmp_path, [VAL, RECIPE], val, train, notes=notes)
    written = decode_manifest((tmp_path / "manifest.json").read_bytes(), "manifest.json")
    assert manifest == msgspec.structs.replace(written, sha256="")
    first = tuple(
        RejectLine(reject.what, reject.reason.value, reject.detail, reject.id)
        for reject in map(REJECTED.__getitem__, (1, 0, 2))
    )
    digest = hashlib.sha256((tmp_path / "rejects-val.jsonl").read_bytes()).hexdigest()
    statistics = (tmp_path / "statistics-val.json").read_bytes()
    val_rejects = RejectList(tally(REJECTED[:3]), digest, first)
    described = describe_split(VAL, add_facts([val]), val_rejects, [10, 0], statistics, VAL_SHARDS)
    assert manifest.splits == {"train": split_of(tmp_path), "val": described}
    assert list(manifest.splits) == ["train", "val"]
    assert [line["split"] for line in lines(tmp_path, "rejects-val.jsonl")] == ["val"] * 3
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert not list(tmp_path.glob("coco-*-of-00007"))


def test_one_split_not_whole_keeps_all_job_from_manifest(tmp_path):
    notes = [*stage(tmp_path, RECIPE, SHARDS), *stage(tmp_path, VAL, VAL_SHARDS[:1])]
    with pytest.raises(LostImagesError, match="8 records were made and 2 are in the shards"):
        write_all(tmp_path, [RECIPE, VAL], facts_of("train"), facts_of("val"), notes=notes)
    assert not list(tmp_path.glob("*manifest*"))


def test_note_gone_or_of_another_run_keeps_job_from_manifest(tmp_path):
    notes = stage(tmp_path, RECIPE, SHARDS)
    (key, _), other = notes
    note = tmp_path / ".recordmill-train" / "coco-train.tfrecord-00001-of-00002.json"
    for harm in (lambda: None, note.unlink):
        harm()
        with pytest.raises(JobError, match="is missing or has changed"):
            write_all(tmp_path, [RECIPE], facts_of("train"), notes=[(key, "0" * 64), other])
    assert not list(tmp_path.glob("*manifest*"))


def committed(folder, image: int = 0) -> Manifest:
    """A folder that another run has committed, whose shards are whole."""
    of = fingerprints_of(SHARDS[0].file, ("a.jpg", image, 0, 0), ("b.jpg", 1, 0, 0)) if image else None
    whole = [msgspec.structs.replace(info, crc32c=crc32c(bytes(info.bytes))) for info in SHARDS]
    notes = stage(folder, RECIPE, whole[:1], of) + stage(folder, RECIPE, whole[1:])
    return write_all(folder, [RECIPE], facts_of("train"), notes=notes)


def late(folder, recipe=RECIPE, duplicates="report") -> Manifest:
    """A run of which the notes are gone."""
    notes = [(ShardKey("train", index, 2), "0" * 64) for index in range(2)]
    return write_all(folder, [recipe], facts_of("train"), duplicates=duplicates, notes=notes)


def test_run_with_another_recipe_that_has_started_meanwhile(tmp_path):
    notes, note = stage(tmp_path, RECIPE, SHARDS), tmp_path / ".recordmill-train" / "recipe.json"
    note.write_bytes(encode_json(msgspec.structs.replace(RECIPE, options={"seed": 1})))
    before = contents(tmp_path)
    with pytest.raises(JobError, match="another job has begun to write train with other options, before this job"):
        write_all(tmp_path, [RECIPE], facts_of("train"), notes=notes)
    assert contents(tmp_path) == before  # of the other job, which goes on
    note.write_bytes(encode_json(RECIPE))
    write_all(tmp_path, [RECIPE], facts_of("train"), notes=notes)


def test_later_run_finds_commit_of_first(tmp_path):
    manifest = committed(tmp_path)
    before = contents(tmp_path)
    assert late(tmp_path).splits == manifest.splits
    assert contents(tmp_path) == before


@pytest.mark.parametrize("harm", ["shard", "recipe", "versions"])
def test_foreign_split_is_not_ours(tmp_path, monkeypatch, harm):
    committed(tmp_path)
    recipe = RECIPE
    if harm == "shard":
        (tmp_path / SHARDS[1].file).write_bytes(bytes(SHARDS[1].bytes - 1) + b"x")
    elif harm == "recipe":
        recipe = msgspec.structs.replace(RECIPE, images=("others",))
    else:
        monkeypatch.setattr(module, "library_versions", lambda *_: {"recordmill": "9"})
    with pytest.raises(JobError, match="is missing or has changed"):
        late(tmp_path, recipe)


@pytest.mark.parametrize(("policy", "image", "is_refused"), [("fail", 1, True), ("fail", 2, False)])
def test_late_run_searches_duplicates_of_first(tmp_path, policy, image, is_refused):
    committed(tmp_path, image)
    if not is_refused:
        assert list(late(tmp_path, duplicates=policy).splits) == ["train"]
        return
    with pytest.raises(DuplicatesError, match=r"refuses 2 images in 1 group .*The splits are complete, and stay"):
        late(tmp_path, duplicates=policy)


def test_transform_collects_facts_of_steps(tmp_path):
    notes = stage(tmp_path, RECIPE, SHARDS)

    def created(p, label, items):
        return p | label >> beam.Create(items)

    step_facts = facts_of("train", REJECTED[2:], counts=dict.fromkeys(COUNTS, 1))
    shard_facts = Facts(
        {("train", metric): number - 1 for metric, number in COUNTS.items()},
        rejects=count_rejects(("train", reject) for reject in REJECTED[:2]),
        classes={("train", 0): 8},
        statistics={"train": Statistics(2)},
    )
    facts = [shard_facts, Facts()]
    shards = [WrittenShard(key, note, part) for (key, note), part in zip(notes, facts, strict=True)]
    with Pipeline() as p:
        findings = (created(p, "Facts", [step_facts]),) | "Findings" >> AddFacts()
        sides = {name: AsSingleton(created(p, name, [of])) for name, of in (("labels", LABELS), ("table", TABLE))}
        metadata = WriteMetadata(findings, [RECIPE], job_limits(tmp_path), sides)
        manifests = created(p, "Written", shards) | metadata
        assert_that(
            manifests | beam.Map(lambda manifest: manifest.splits == {"train": split_of(tmp_path, 9)}), equal_to([True])
        )
    step_facts = decode_manifest((tmp_path / "manifest.json").read_bytes(), "manifest.json")
    assert step_facts.splits == {"train": split_of(tmp_path, 9)}
    assert step_facts.num_classes == 4  # of the ids 1 and 3
    assert [line["id"] for line in lines(tmp_path)] == [4, 5, 9, None]


@pytest.mark.parametrize(
    ("policy", "image", "is_refused"), [("leakage", 1, True), ("leakage", 2, False), ("fail", 1, True)]
)
def test_concurrent_split_is_compared(tmp_path, monkeypatch, policy, image, is_refused):
    def finish(recipe: Recipe, shards, image: int) -> Manifest:
        of = fingerprints_of(shards[0].file, (f"{recipe.split}.jpg", image, 0, 0))
        notes = stage(tmp_path, recipe, shards[:1], of) + stage(tmp_path, recipe, shards[1:])
        return write_all(tmp_path, [recipe], facts_of(recipe.split), duplicates=policy, notes=notes)

    def after_the_other(*args):
        monkeypatch.setattr(module, "commit_splits", commit_splits)
        finish(VAL, VAL_SHARDS, 1)
        return commit_splits(*args)

    monkeypatch.setattr(module, "commit_splits", after_the_other)
    if not is_refused:
        assert list(finish(RECIPE, SHARDS, image).splits) == ["train", "val"]
        return
    with pytest.raises(DuplicatesError, match=r"refuses 2 images in 1 group .*The splits are complete, and stay"):
        finish(RECIPE, SHARDS, image)
    assert (tmp_path / "manifest-train.json").exists()
