"""Requests of verify for shards."""

import msgspec
import pytest

from recordmill.pipelines import verify
from recordmill.pipelines.dataset_options import VerifyOptions
from recordmill.pipelines.verify import expected_shards
from recordmill.schemas.dataset.checks import Fault, Faults, ShardCheck
from recordmill.schemas.errors import FaultyDatasetError
from tests.transforms.shards.test_describe_split import SPLIT
from tests.transforms.verify.test_check_folder import write


@pytest.mark.parametrize(("boxes", "inside"), [("clip", True), ("keep", False)])
def test_boxes_that_were_kept_as_they_came_may_lie_outside(tmp_path, boxes, inside):
    recipe = msgspec.structs.replace(SPLIT.recipe, options={**SPLIT.recipe.options, "boxes": boxes})
    write(tmp_path, msgspec.structs.replace(SPLIT, recipe=recipe))
    expected = expected_shards(VerifyOptions(folder=str(tmp_path)))
    assert [(shard.path, shard.split, shard.info, shard.boxes_inside) for shard in expected] == [
        (str(tmp_path / shard.file), "train", shard, inside) for shard in SPLIT.shards
    ]


@pytest.mark.parametrize(("fraction", "number"), [(1.0, 100), (0.995, 100), (0.25, 25), (0.001, 1), (0.0, 1)])
def test_sample_of_shards_is_fixed(tmp_path, fraction, number):
    shard = SPLIT.shards[0]
    shards = tuple(msgspec.structs.replace(shard, file=f"coco-train.tfrecord-{n:05}-of-00100") for n in range(100))
    write(tmp_path, msgspec.structs.replace(SPLIT, shards=shards))
    options = VerifyOptions(folder=str(tmp_path), sample=fraction)
    files = [shard.info.file for shard in expected_shards(options)]
    assert len(files) == len(set(files)) == number
    assert files == sorted(files) == [shard.info.file for shard in expected_shards(options)]
    assert number != 25 or files[0] != shards[0].file != files[1]  # spread over all


@pytest.fixture
def check() -> ShardCheck:
    return ShardCheck("train", "coco-train.tfrecord-00000-of-00001", 3, 4, 500, 600, Faults())


def test_judging_job_fails_by_all_faults(monkeypatch, check, caplog):
    listed = [Fault(check.file, number, "schema", "no class") for number in range(4)]
    elsewhere = Fault("labels.csv", None, "missing", "it is gone")
    checks = [msgspec.structs.replace(check, split="val", examples=2000), check]

    def faults(folder: str, ordered: list[ShardCheck]) -> Faults:
        assert (folder, [shard_check.split for shard_check in ordered]) == ("gs://b/out", ["train", "val"])
        return Faults((elsewhere, *listed), more=3)

    monkeypatch.setattr(verify, "all_faults", faults)
    with pytest.raises(FaultyDatasetError) as raised:
        verify._judge(b"", "gs://b/out", checks)
    assert "8 faults in 2,003 records" in str(raised.value)
    assert [record.message for record in caplog.records] == [f"gs://b/out: {fault}" for fault in (elsewhere, *listed)]


def test_job_that_judges_ends_well_without_faults(monkeypatch, check):
    monkeypatch.setattr(verify, "all_faults", lambda folder, ordered: Faults())
    verify._judge(b"", "gs://b/out", [check])
