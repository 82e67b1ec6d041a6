import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from recordmill.schemas.dataset.manifest import FORMAT, Manifest, decode_manifest, encode_json
from recordmill.schemas.errors import CategoryError, ConfigError, JobError
from recordmill.schemas.features import Feature, FeatureKind, Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.encoders import TextEncoder, TextForm, TextSettings, decode_encoder
from recordmill.schemas.inputs.labels import LABEL_FILES
from recordmill.schemas.shards import IndexInfo, ShardInfo
from recordmill.schemas.statistics import SplitStatistics
from recordmill.transforms.containers.container import Container
from recordmill.transforms.dataset.dataset_folder import file_sha256, read_manifest, read_split_manifests
from recordmill.transforms.shards import commit_splits as module
from recordmill.transforms.shards.commit_splits import commit_splits, companions
from recordmill.transforms.storage.local_storage import LocalStorage
from tests.transforms.shards.test_describe_split import RECIPE, SPLIT
from tests.transforms.shards.test_shard_file import crc32c
from tests.transforms.shards.test_write_metadata import contents, stage


def of_split(split: str, count: int = 2, **fields) -> Manifest:
    """A manifest of one split of so many shards."""
    shards = tuple(
        ShardInfo(f"coco-{split}.tfrecord-{index:05}-of-{count:05}", 4, 10 + index, "crc", "sha")
        for index in range(count)
    )
    recipe, rejects = msgspec.structs.replace(RECIPE, split=split), sha256(split.encode()).hexdigest()  # as of `stage`
    statistics = sha256(encode_statistics(split)).hexdigest()
    entry = msgspec.structs.replace(
        SPLIT, recipe=recipe, shards=shards, rejects_sha256=rejects, statistics_sha256=statistics
    )
    manifest = Manifest(FORMAT, "coco", "detection", (), (Category(1, "cat"),), (), {split: entry})
    return msgspec.structs.replace(manifest, **fields)


def commit(folder: Path, manifest: Manifest, byte: bytes = b"\0") -> Manifest:
    """Commit splits whose shards have just been finished; all their bytes are `byte`."""
    for split, entry in manifest.splits.items():
        stage(folder, entry.recipe, [])
        for shard in entry.shards:
            (folder / f".recordmill-{split}" / shard.file).write_bytes(byte * shard.bytes)
    return commit_splits(str(folder), manifest, statistics_of(manifest))


def statistics_of(manifest: Manifest) -> dict[str, bytes]:
    return {split: encode_statistics(split) for split in manifest.splits}


def encode_statistics(split: str) -> bytes:
    return encode_json(SplitStatistics(9, {}, (), {split: 9}, (), (), {}, {}, 0))


def listed(folder: Path) -> list[str]:
    return list(decode_manifest((folder / "manifest.json").read_bytes(), "manifest.json").splits)


@pytest.mark.parametrize(("layout", "expected"), [("detection", set(LABEL_FILES)), ("table", set())])
def test_label_files_of_no_classes(layout, expected):
    manifest = msgspec.structs.replace(of_split("train"), layout=layout, categories=())
    assert set(companions(manifest)) & set(LABEL_FILES) == expected


def test_second_split_joins_first(tmp_path):
    commit(tmp_path, of_split("val"))
    before = contents(tmp_path)
    whole = commit(tmp_path, of_split("train"))
    assert list(whole.splits) == listed(tmp_path) == ["train", "val"]
    after = contents(tmp_path)
    assert {name: after[name] for name in before if "val" in name} == {
        name: data for name, data in before.items() if "val" in name
    }
    assert (after["rejects-train.jsonl"], after["rejects-val.jsonl"]) == (b"train", b"val")
    assert not [name for name in after if name.startswith(".")]
    both = {split: json.loads(after[f"statistics-{split}.json"]) for split in ("train", "val")}
    assert json.loads(before["statistics.json"]) == {"splits": {"val": both["val"]}}
    assert json.loads(after["statistics.json"]) == {"splits": both}
    assert both["train"] != both["val"]


def test_page_of_splits_before_does_not_stay(tmp_path):
    """A run that is killed before it has made one makes it when it is started again: there is none then."""
    commit(tmp_path, of_split("val"))
    (tmp_path / "report.html").write_text("of val alone")
    commit(tmp_path, of_split("train"))
    assert not (tmp_path / "report.html").exists()


def test_two_splits_at_once_are_both_listed(tmp_path):
    """Each in its own thread, a hundred times."""
    for number in range(100):
        folder = tmp_path / str(number)
        start = threading.Barrier(2)

        def one(split: str, folder=folder, start=start) -> Manifest:
            start.wait()
            return commit(folder, of_split(split))

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, ("train", "val")))
        assert listed(folder) == ["train", "val"]
        assert {name for name in contents(folder) if "tfrecord" in name} == {
            shard.file for split in ("train", "val") for shard in of_split(split).splits[split].shards
        }


@pytest.mark.parametrize("at", ["manifest.json", "labels.csv", "dataset_info.json", "manifest-train.json"])
def test_concurrent_split_is_not_lost(tmp_path, monkeypatch, at):
    write, is_first = LocalStorage.write, [True]

    def interrupted(self, path, data):
        if path.endswith(f"/{at}") and is_first:
            is_first.clear()
            commit(tmp_path, of_split("val"))
        write(self, path, data)

    monkeypatch.setattr(LocalStorage, "write", interrupted)
    assert list(commit(tmp_path, of_split("train")).splits) == listed(tmp_path) == ["train", "val"]
    assert '"val"' in (tmp_path / "dataset_info.json").read_text()


OTHERWISE = [
    ({"categories": (Category(1, "cow"),)}, "has other categories than split train"),
    ({"parts": (Part.LVIS,)}, "has lvis in its records where train has no optional part than split train"),
    ({"layout": "tfds"}, "has another name or layout than split train"),
]


@pytest.mark.parametrize(("fields", "told"), OTHERWISE)
def test_mismatched_split_is_refused(tmp_path, fields, told):
    commit(tmp_path, of_split("train"))
    before = contents(tmp_path)
    with pytest.raises(CategoryError, match=told):
        commit(tmp_path, of_split("val", **fields))
    assert {name: data for name, data in contents(tmp_path).items() if "/" not in name} == before


def test_split_of_a_version_with_other_descriptions(tmp_path):
    feature = Feature("img", "image.encoded", FeatureKind.BYTES, (), "JPEG", "the file")
    commit(tmp_path, of_split("val", features=(feature,)))
    described = msgspec.structs.replace(feature, unit="JPEG or PNG", meaning="the image file")
    commit(tmp_path, of_split("train", features=(described,)))
    assert listed(tmp_path) == ["train", "val"]


def test_late_mismatched_split(tmp_path, monkeypatch):
    """The other split appears after the check of the first."""
    write = LocalStorage.write

    def late(self, path, data):
        if path.endswith("/manifest-val.json"):
            monkeypatch.undo()
            commit(tmp_path, of_split("train", categories=(Category(1, "cow"),)))
        write(self, path, data)

    monkeypatch.setattr(LocalStorage, "write", late)
    with pytest.raises(CategoryError, match="other categories"):
        commit(tmp_path, of_split("val"))
    assert (list(read_split_manifests(str(tmp_path))), listed(tmp_path)) == (["train"], ["train"])
    assert {path.name for path in tmp_path.glob("coco-val*")} == {
        shard.file for shard in of_split("val").splits["val"].shards
    }


def test_encoders_stay_as_long_as_split_has_them(tmp_path):
    """Encoders belong to all splits, and are deleted with the last of them."""

    def commit_encoded(split: str, *terms: str) -> None:
        encoders = [TextEncoder(1, "a/b", TextSettings(TextForm.COUNTS), "train", 7, terms)] if terms else []
        stage(tmp_path, msgspec.structs.replace(RECIPE, split=split), [])
        manifest = of_split(split, 0, encoders=tuple(encoder.info for encoder in encoders))
        commit_splits(str(tmp_path), manifest, statistics_of(manifest), encoders)

    file, classes = tmp_path / "encoders" / "a%2Fb.json", tmp_path / "encoders" / "classes.json"
    commit_encoded("train", "cat")
    commit_encoded("val", "cat")
    assert decode_encoder(file.read_bytes(), "").vocabulary == ("cat",)
    assert b'"cat"' in classes.read_bytes()
    with pytest.raises(CategoryError, match="another vocabulary of its texts"):
        commit_encoded("val", "dog")
    assert decode_encoder(file.read_bytes(), "").vocabulary == ("cat",)
    for name in ("val", "train"):
        assert file.exists()
        module._withdraw(str(tmp_path), {name: read_split_manifests(str(tmp_path))[name]}, set())
    assert not file.exists()
    assert not classes.exists()
    commit_encoded("train", "cat")
    commit_encoded("train")
    assert not file.exists()
    assert not classes.exists()


def test_only_split_may_change_everything(tmp_path):
    commit(tmp_path, of_split("train"))
    commit(tmp_path, of_split("train", categories=(Category(1, "cow"),), parts=(Part.LVIS,)))
    manifest = read_manifest(str(tmp_path))
    assert (manifest.categories, manifest.parts) == ((Category(1, "cow"),), (Part.LVIS,))


def test_old_split_goes_after_new_one(tmp_path, monkeypatch):
    """At each change of the folder: what a manifest lists is there, old or new."""
    commit(tmp_path, msgspec.structs.replace(of_split("val")))
    commit(tmp_path, of_split("train", 3), b"o")
    old_shards = {shard.file for shard in of_split("train", 3).splits["train"].shards}
    seen = set()

    def check() -> None:
        manifest = read_manifest(str(tmp_path))
        assert "val" in manifest.splits
        if "train" in manifest.splits:
            shards = manifest.splits["train"].shards
            seen.add(len(shards))
            byte = b"o" if len(shards) == 3 else b"n"
            assert all((tmp_path / shard.file).read_bytes() == byte * shard.bytes for shard in shards)

    for name in ("write", "delete", "move"):
        real = getattr(LocalStorage, name)

        def checked(self, *args, real=real):
            check()
            real(self, *args)
            check()

        monkeypatch.setattr(LocalStorage, name, checked)
    commit(tmp_path, of_split("train", 2), b"n")
    assert seen == {2, 3}
    assert not {path.name for path in tmp_path.iterdir()} & old_shards


def test_replaced_layout_leaves_nothing(tmp_path):
    recipe = msgspec.structs.replace(RECIPE, layout="keras")
    shards = tuple(ShardInfo(f"file_0{index}-4.tfrec", 4, 3, "crc", "sha") for index in range(2))
    entry = msgspec.structs.replace(of_split("train").splits["train"], recipe=recipe, shards=shards)
    (tmp_path / "file_07-3.tfrec").write_text("of an earlier run")
    commit(tmp_path, of_split("train", layout="keras", splits={"train": entry}))
    links = {path.name: os.readlink(path) for path in tmp_path.iterdir() if path.is_symlink()}
    assert links == {f"coco-train.tfrecord-0000{index}-of-00002": shards[index].file for index in range(2)}
    assert sorted(path.name for path in tmp_path.glob("*.tfrec")) == [shard.file for shard in shards]
    commit(tmp_path, of_split("train", 1))
    assert [path.name for path in tmp_path.iterdir() if "tfrec" in path.name] == ["coco-train.tfrecord-00000-of-00001"]
    assert not (tmp_path / "coco-train.tfrecord-00000-of-00001").is_symlink()


def with_index(manifest: Manifest, data: bytes) -> Manifest:
    """Each shard's index is `data`, as far as the manifest says."""
    ((split, entry),) = manifest.splits.items()
    index = IndexInfo(len(data), crc32c(data))
    shards = tuple(msgspec.structs.replace(shard, index=index) for shard in entry.shards)
    return msgspec.structs.replace(manifest, splits={split: msgspec.structs.replace(entry, shards=shards)})


def commit_with_index(folder: Path, manifest: Manifest, data: bytes) -> None:
    ((split, entry),) = manifest.splits.items()
    for shard in entry.shards:
        index = folder / f".recordmill-{split}" / ".index" / f"{shard.file}.idx"
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_bytes(data)
    commit(folder, with_index(manifest, data))


def indexes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / ".index").iterdir()}


def test_indexes_come_and_go_with_their_shards(tmp_path):
    commit_with_index(tmp_path, of_split("val", 1), b"v")
    commit_with_index(tmp_path, of_split("train", 3), b"o")
    commit_with_index(tmp_path, of_split("train", 2), b"n")
    new = {f"coco-train.tfrecord-0000{number}-of-00002.idx": b"n" for number in range(2)}
    assert indexes(tmp_path) == {"coco-val.tfrecord-00000-of-00001.idx": b"v"} | new
    commit(tmp_path, of_split("train", 1))
    assert indexes(tmp_path) == {"coco-val.tfrecord-00000-of-00001.idx": b"v"}


def test_indexes_of_replaced_shards_are_removed(tmp_path):
    """--overwrite removes indexes of the shards that it replaces; other files stay."""
    (tmp_path / ".index").mkdir()
    (tmp_path / ".index" / "coco-train.tfrecord-00008-of-00009.idx").write_bytes(b"old")
    (tmp_path / ".index" / "mine.tfrecord.idx").write_bytes(b"mine")
    commit_with_index(tmp_path, of_split("train", 1), b"n")
    assert indexes(tmp_path) == {"coco-train.tfrecord-00000-of-00001.idx": b"n", "mine.tfrecord.idx": b"mine"}


@pytest.mark.parametrize("others", [[], ["mine.idx"]])
def test_empty_folder_of_indexes_is_removed_by_container_without_indexes(tmp_path, others):
    commit_with_index(tmp_path, of_split("train", 1), b"n")
    for name in others:
        (tmp_path / ".index" / name).touch()
    old = of_split("train").splits["train"]
    recipe = msgspec.structs.replace(old.recipe, options={"container": "arrayrecord"})
    shards = (ShardInfo("coco-train.array_record-00000-of-00001", 4, 10, "crc", "sha"),)
    entry = msgspec.structs.replace(old, recipe=recipe, shards=shards)
    commit(tmp_path, of_split("train", container_name="arrayrecord", splits={"train": entry}))
    assert sorted(path.name for path in tmp_path.glob(".index/*")) == others
    assert (tmp_path / ".index").exists() is bool(others)


def test_same_split_once_more_is_never_taken_from_manifest(tmp_path, monkeypatch):
    """Two jobs may write the same split at the same time."""
    commit(tmp_path, of_split("train"))
    monkeypatch.setattr(module, "_withdraw", None)
    commit(tmp_path, of_split("train"))
    assert listed(tmp_path) == ["train"]


def test_shard_gone_or_damaged_is_no_part_of_data_set(tmp_path):
    (tmp_path / "coco-train.tfrecord-00000-of-00002").write_bytes(bytes(10))
    with pytest.raises(JobError, match=r"coco-train\.tfrecord-00000-of-00002 is missing or has changed"):
        commit_splits(str(tmp_path), of_split("train"), statistics_of(of_split("train")))
    assert not (tmp_path / "manifest.json").exists()
    assert not (tmp_path / "manifest-train.json").exists()


@pytest.mark.parametrize("file", ["", ".index/"])
def test_file_of_another_run_is_left(tmp_path, file):
    """Two jobs may read a folder of images before and after images were added."""
    manifest = with_index(of_split("train", 1), b"idx")
    (shard,) = manifest.splits["train"].shards
    stage(tmp_path, RECIPE, [shard])
    state = tmp_path / ".recordmill-train"
    (state / ".index").mkdir()
    (state / ".index" / f"{shard.file}.idx").write_bytes(b"xxx" if file else b"idx")
    (state / shard.file).write_bytes(bytes(shard.bytes if file else shard.bytes + 1))
    with pytest.raises(JobError, match=f"{file}{shard.file}.* is missing or has changed"):
        commit_splits(str(tmp_path), manifest, statistics_of(manifest))
    assert not (tmp_path / "manifest.json").exists()


def test_rejects_of_another_run(tmp_path):
    manifest = of_split("train", 0)
    stage(tmp_path, RECIPE, [])
    (tmp_path / ".recordmill-train" / "rejects.jsonl").write_text("of another image")
    (tmp_path / "rejects-train.jsonl").write_text("of yet another")
    with pytest.raises(JobError, match=r"rejects-train\.jsonl is missing or has changed"):
        commit_splits(str(tmp_path), manifest, statistics_of(manifest))
    assert not (tmp_path / "manifest.json").exists()
    (tmp_path / "rejects-train.jsonl").write_text("train")  # that run, of the same images, is done
    assert commit_splits(str(tmp_path), manifest, statistics_of(manifest)) == manifest
    assert (tmp_path / "rejects-train.jsonl").read_text() == "train"


def test_list_that_another_run_replaces_while_it_is_read(tmp_path, monkeypatch):
    """In a bucket, reading a replaced object fails as if there were none. The other run writes each list once."""
    stage(tmp_path, RECIPE, [])
    written, read = str(tmp_path / ".recordmill-train" / "rejects.jsonl"), []

    def sha256_of(path: str) -> str:
        read.append(path)
        if read.count(written) == 1 and path == written:
            raise FileNotFoundError(path)
        return file_sha256(path)

    monkeypatch.setattr(module, "file_sha256", sha256_of)
    manifest = of_split("train", 0)
    assert commit_splits(str(tmp_path), manifest, statistics_of(manifest)) == manifest
    assert (tmp_path / "rejects-train.jsonl").read_text() == "train"


def test_equal_list_of_another_run_is_not_replaced(tmp_path):
    stage(tmp_path, RECIPE, [])
    (tmp_path / "rejects-train.jsonl").write_text("train")
    before = (tmp_path / "rejects-train.jsonl").stat().st_ino
    commit_splits(str(tmp_path), of_split("train", 0), statistics_of(of_split("train", 0)))
    assert (tmp_path / "rejects-train.jsonl").stat().st_ino == before


def test_foreign_shard_in_bucket(gcs):
    shards = tuple(ShardInfo(f"coco-train.tfrecord-0000{i}-of-00002", 4, 3, crc32c(b"abc"), "") for i in range(2))
    entry = msgspec.structs.replace(of_split("train").splits["train"], shards=shards)
    manifest = of_split("train", splits={"train": entry})
    for shard, data in zip(shards, (b"abc", b"abd"), strict=True):
        gcs.put(f"out/.recordmill-train/{shard.file}", data)
    gcs.put("out/.recordmill-train/rejects.jsonl", b"train")
    with pytest.raises(JobError, match="00001-of-00002 is missing or has changed"):
        commit_splits("gs://bucket/out", manifest, statistics_of(manifest))
    gcs.put(f"out/.recordmill-train/{shards[1].file}", b"abc")
    assert commit_splits("gs://bucket/out", manifest, statistics_of(manifest)) == manifest


def test_manifest_of_another_split(tmp_path):
    commit(tmp_path, of_split("train"))
    (tmp_path / "manifest-val.json").write_bytes((tmp_path / "manifest-train.json").read_bytes())
    with pytest.raises(ConfigError, match=r"manifest-val\.json must have exactly the split val"):
        commit(tmp_path, of_split("test"))


class _WithCard(Container):
    """Container with a file beside the shards that names all splits."""

    create = read = open = None  # type: ignore[assignment]

    def folder_files(self, manifest):
        if manifest.layout != "detection":
            return {}
        own = {f"{split}-index.json": split.encode() for split in manifest.splits}
        return {"card.txt": " ".join(manifest.splits).encode(), **own}


@pytest.mark.parametrize(("card", "expected"), [(None, None), (b"mine", b"mine")])
def test_card_of_replaced_splits_is_deleted(tmp_path, monkeypatch, card, expected):
    """The card of two splits is not that of either. An edited card stays."""
    monkeypatch.setattr(module, "container_of", lambda _: _WithCard())
    commit(tmp_path, of_split("train"))
    commit(tmp_path, of_split("val"))
    path = tmp_path / "card.txt"
    assert path.read_bytes() == b"train val"
    if card:
        path.write_bytes(card)
    both = of_split("train").splits | of_split("val").splits
    commit(tmp_path, of_split("train", layout="tfds", splits=both))
    assert (path.read_bytes() if path.exists() else None) == expected


def test_files_of_replaced_split_are_deleted_before_its_shards(tmp_path, monkeypatch):
    """A job that is killed then leaves no index that names the shards of before."""
    monkeypatch.setattr(module, "container_of", lambda _: _WithCard())
    commit(tmp_path, of_split("train"))
    commit(tmp_path, of_split("val"))
    monkeypatch.setattr(module, "_move_shard", lambda *_: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception, match="killed"):
        commit(tmp_path, of_split("train", 3))
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix in (".txt", ".json")}
    assert (files["card.txt"], files["val-index.json"]) == (b"val", b"val")
    assert not {"train-index.json", "manifest-train.json"} & files.keys()
