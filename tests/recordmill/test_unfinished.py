"""What a job has finished of a split is read in the order that the finished split will have."""

import pickle
import shutil
from pathlib import Path

import msgspec
import pytest

import recordmill
from recordmill.schemas.annotations import Category
from recordmill.schemas.dataset_files import RECIPE
from recordmill.schemas.errors import RecordError
from recordmill.schemas.example import ExampleWriter
from recordmill.schemas.manifest import encode_json
from recordmill.schemas.shards import PlanPosition, ShardInfo, ShardKey, ShardResult
from recordmill.schemas.statistics import Statistics
from recordmill.split import Split
from recordmill.transforms.shards.shard_file import FinishedShards, ShardFile, ShardPlace
from recordmill.transforms.storage import gcs_storage
from recordmill.transforms.storage.gcs_storage import GcsStorage
from recordmill.transforms.storage.local_storage import LocalStorage
from tests.gcs_stand_in import running
from tests.recordmill.splits import CONTENTS, draw
from tests.transforms.metadata import test_describe_split

SHARDS = 4


def finish(
    output: str, index: int, count: int = SHARDS, name: str = "classification", gzip: bool = False, span=None
) -> ShardInfo:
    """Write shard `index`, of two records, as a job does."""
    table, labels, _ = CONTENTS[name]
    place = ShardPlace(output, "coco", table.layout, gzip)
    key = ShardKey("train", index, count)
    with ShardFile(place, key) as shard:
        for number in (2 * index, 2 * index + 1):
            shard.append(ExampleWriter(table).write(draw(CONTENTS[name], number).values))
    result = ShardResult(key, "plan", {}, shard.info, {}, (), Statistics(), span=span)
    FinishedShards(place, labels, table).note(result)
    return shard.info


def end_job(output: Path) -> None:
    """Move finished shards and their indexes to where they belong, as a job's end does, and delete its state."""
    state = output / ".recordmill-train"
    (output / ".index").mkdir(exist_ok=True)
    for path in (*state.glob(".index/*"), *state.glob("coco-*"), *state.glob("file_*")):
        if path.suffix != ".json":
            path.rename(output / path.relative_to(state))
    shutil.rmtree(state)


def position(image: int, annotation: int = 0) -> PlanPosition:
    return ((image, image), b"", f"{image}.jpg", "", annotation)


def claim(folder, name: str = "classification", **options) -> None:
    recipe = test_describe_split.RECIPE
    recipe = msgspec.structs.replace(
        recipe, layout=CONTENTS[name].table.layout, options={**recipe.options, "gzip": False, **options}
    )
    state = folder / ".recordmill-train"
    state.mkdir()
    (state / RECIPE).write_bytes(encode_json(recipe))


def ids(split) -> list[int]:
    return [int(example["image_id"]) for example in split]


@pytest.mark.parametrize("gzip", [False, True])
def test_finished_shards_are_in_the_order_of_the_finished_split(tmp_path, gzip, caplog):
    claim(tmp_path, gzip=gzip)
    for index in (3, 0):
        finish(str(tmp_path), index, gzip=gzip)
    data = recordmill.open(str(tmp_path), unfinished=True)
    train = data["train"]
    assert data.classes == ("cat", "dog")
    assert (ids(train), train.missing) == ([0, 1, 6, 7], 2)
    assert "2 more are not finished" in repr(train)
    if not gzip:
        assert train[-1]["image_id"] == 7
    assert len(list(train.tensorflow())) == 4
    finish(str(tmp_path), 1, gzip=gzip)
    assert ids(train) == [0, 1, 6, 7]
    assert ids(recordmill.open(str(tmp_path), unfinished=True)["train"]) == [0, 1, 2, 3, 6, 7]
    assert caplog.text == ""  # of an index that is not there


def test_the_shape_of_features_is_the_recipes(tmp_path):
    claim(tmp_path, "float16", feature_shape=["2", "3", "5"])
    finish(str(tmp_path), 0, name="float16")
    train = recordmill.open(str(tmp_path), unfinished=True)["train"]
    assert train.features["feature"].static_shape == train[0]["feature"].shape == (2, 3, 5)


def test_what_is_half_written_or_damaged_is_left_out(tmp_path):
    claim(tmp_path)
    finish(str(tmp_path), 0)
    finish(str(tmp_path), 1)
    state = tmp_path / ".recordmill-train"
    (state / "coco-train.tfrecord-00002-of-00004").write_bytes(b"no note of it")
    note = state / "coco-train.tfrecord-00001-of-00004.json"
    note.write_text(note.read_text().replace('"plan":"plan"', '"plan":"other"'))
    train = recordmill.open(str(tmp_path), unfinished=True)["train"]
    assert (ids(train), train.missing) == ([0, 1], 3)


def test_shards_of_a_run_with_other_classes_are_left_out_and_the_classes_are_the_later_runs(tmp_path, monkeypatch):
    claim(tmp_path)
    finish(str(tmp_path), 0)
    table, labels, shape = CONTENTS["classification"]
    others = msgspec.structs.replace(labels, categories=(Category(9, "ape"), *labels.categories))
    monkeypatch.setitem(CONTENTS, "classification", type(CONTENTS["classification"])(table, others, shape))
    finish(str(tmp_path), 1)
    data = recordmill.open(tmp_path, unfinished=True)
    assert data.classes == ("ape", "cat", "dog")
    assert (ids(data["train"]), data["train"].missing) == ([2, 3], 3)


def test_nothing_is_finished_and_shards_of_two_plans(tmp_path):
    with pytest.raises(recordmill.ConfigError, match="no job has finished a shard"):
        recordmill.open(str(tmp_path), unfinished=True)
    claim(tmp_path)
    with pytest.raises(recordmill.ConfigError, match="no job has finished a shard"):
        recordmill.open(str(tmp_path), unfinished=True)
    finish(str(tmp_path), 0)
    with pytest.raises(recordmill.ConfigError, match=r"has no manifest\.json"):
        recordmill.open(str(tmp_path))
    finish(str(tmp_path), 0, count=5)
    with pytest.raises(recordmill.ConfigError, match="two plans, of 4 and of 5 shards"):
        recordmill.open(str(tmp_path), unfinished=True)


def test_shards_that_may_hold_one_image_twice_are_of_two_plans(tmp_path):
    claim(tmp_path)
    finish(str(tmp_path), 3, span=(position(9), position(12)))
    finish(str(tmp_path), 0, span=(position(1), position(4, 5)))
    finish(str(tmp_path), 1, span=(position(4, 6), position(8)))
    assert ids(recordmill.open(tmp_path, unfinished=True)["train"]) == [0, 1, 2, 3, 6, 7]
    finish(str(tmp_path), 3, span=(position(8), position(11)))
    with pytest.raises(recordmill.ConfigError, match=r"two plans, as .*-00001-of-00004 and .*-00003-of-00004 overlap"):
        recordmill.open(tmp_path, unfinished=True)
    finish(str(tmp_path), 3, span=None)
    assert len(recordmill.open(tmp_path, unfinished=True)["train"]) == 6


def test_keras_shards_are_in_the_order_of_their_files(tmp_path):
    claim(tmp_path, "keras")
    infos = [
        finish(str(tmp_path), index, 120, "keras", span=(position(index, 1), position(index, 2)))
        for index in range(98, 103)
    ]
    train = recordmill.open(tmp_path, unfinished=True)["train"]
    files = [shard.info.file for shard in train.shards]
    assert files == sorted(info.file for info in infos)
    assert files[0] == "file_100-2.tfrec"
    assert train.missing == 115


def test_notes_that_vanish_as_they_are_read_are_of_no_shard(tmp_path, monkeypatch):
    claim(tmp_path)
    for index in range(2):
        finish(str(tmp_path), index)
    names = LocalStorage.names

    def then_deleted(storage, folder):
        found = names(storage, folder)
        (tmp_path / ".recordmill-train" / "coco-train.tfrecord-00001-of-00004.json").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(LocalStorage, "names", then_deleted)
    assert ids(recordmill.open(tmp_path, unfinished=True)["train"]) == [0, 1]


@pytest.mark.parametrize("gzip", [False, True])
@pytest.mark.parametrize("seen", [0, 3])
def test_a_shard_that_the_jobs_end_moves_is_read_on_where_it_is_then(tmp_path, gzip, seen, caplog):
    claim(tmp_path, gzip=gzip)
    for index in range(2):
        finish(str(tmp_path), index, gzip=gzip)
    train = recordmill.open(tmp_path, unfinished=True)["train"]
    read = iter(train)
    found = [next(read) for _ in range(seen)]
    copied, unread = (pickle.loads(pickle.dumps(train)) for _ in range(2))
    end_job(tmp_path)
    assert ids([*found, *read]) == ids(copied) == ids(train) == [0, 1, 2, 3]
    if not gzip:
        assert ids(map(train.__getitem__, (3, 0))) == ids([unread[3], unread[0]]) == [3, 0]
    assert ids(train.tensorflow()) == [0, 1, 2, 3]
    assert caplog.text == ""  # of an index that is not there


@pytest.mark.parametrize("read", [list, lambda train: train[3], Split.tensorflow])
@pytest.mark.parametrize("damage", ["gone", "other", "shorter"])
def test_a_shard_that_is_gone_or_another_where_it_would_have_been_moved(tmp_path, read, damage):
    claim(tmp_path)
    info = [finish(str(tmp_path), index) for index in range(2)][1]
    train = recordmill.open(tmp_path, unfinished=True)["train"]
    end_job(tmp_path)
    data = (tmp_path / info.file).read_bytes()
    (tmp_path / info.file).unlink()
    if damage != "gone":
        (tmp_path / info.file).write_bytes(data if damage == "other" else data[:-1])
    with pytest.raises(RecordError, match=r"00001-of-00004 (has changed|is gone).* since .*open the data set again"):
        read(train)


def test_in_a_bucket_and_while_a_complete_split_is_replaced(tmp_path, copy_converted, monkeypatch):
    claim(tmp_path)
    finish(str(tmp_path), 1)
    copy_converted(tmp_path / "whole", "--num-shards", 3)
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        put_all(server, tmp_path / ".recordmill-train", "out/.recordmill-train")
        train = recordmill.open("gs://bucket/out", unfinished=True)["train"]
        assert (ids(train), ids([train[1]]), train.missing) == ([2, 3], [3], 3)
        monkeypatch.setattr(gcs_storage, "RANGE_BYTES", 16)
        read = iter(train)
        found = [next(read)]
        for file in (".index/coco-train.tfrecord-00001-of-00004.idx", "coco-train.tfrecord-00001-of-00004"):
            GcsStorage().move(f"gs://bucket/out/.recordmill-train/{file}", f"gs://bucket/out/{file}")
        assert ids([*found, *read]) == [2, 3]
        assert (ids(train), ids([train[1]])) == ([2, 3], [3])
        put_all(server, tmp_path / "whole", "out")
        train = recordmill.open("gs://bucket/out", unfinished=True)["train"]
        assert (len(train), train.missing) == (22, 0)


def put_all(server, folder: Path, target: str) -> None:
    for path in filter(Path.is_file, folder.rglob("*")):
        server.put(f"{target}/{path.relative_to(folder)}", path.read_bytes())
