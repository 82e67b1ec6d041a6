"""Jobs into a bucket that holds a data set, and back out of it."""

import json
from pathlib import Path

from recordmill.transforms.storage.gcs_storage import GcsStorage
from tests.engines.buckets.jobs import (
    OUT,
    ROOT,
    check_all_accounted,
    files_of,
    is_one_line,
    objects_of,
    shards_of,
    shown,
)
from tests.gcs_stand_in import GcsStandIn


def writes(gcs: GcsStandIn) -> list[str]:
    return [call.name for call in gcs.calls("upload", "start", "chunk", "delete", "copy")]


def test_a_job_that_is_done_writes_nothing(gcs, converted, recordmill):
    outcome = recordmill(*converted)
    assert outcome.code == 0
    assert f"{OUT} holds the whole split already" in outcome.out
    assert writes(gcs) == []
    assert [call.name for call in gcs.calls("read")] == ["out/manifest.json"] * 2 + ["out/statistics-train.json"]
    gcs.put("out/" + min(shards_of(objects_of(gcs, "out"))), b"short")
    assert recordmill(*converted).code == 0
    assert recordmill("verify", OUT).code == 0


def test_a_dry_run_writes_nothing(gcs, converted, recordmill):
    before = gcs.objects()
    outcome = recordmill(*converted[:-1], f"{ROOT}/new", "--dry-run")
    assert outcome.code == 0
    assert "images       23 (image_missing 1)" in outcome.out
    assert gcs.objects() == before
    assert writes(gcs) == []
    assert [call for call in gcs.calls("read") if call.name.startswith("sample/images")] == []


def test_another_split_joins_the_folder(gcs, converted, recordmill):
    train = shards_of(objects_of(gcs, "out"))
    assert recordmill(*converted, "--split", "val", "--seed", 1).code == 0
    both = shards_of(objects_of(gcs, "out"))
    assert both.items() > train.items()
    assert len(both) == 6
    assert set(shown(gcs)["splits"]) == {"train", "val"}
    check_all_accounted(shown(gcs))
    for split in ("train", "val"):
        lines = gcs.objects()[f"out/rejects-{split}.jsonl"].splitlines()
        assert {json.loads(line)["split"] for line in lines} == {split}
    assert recordmill("verify", OUT).code == 0


def test_overwrite(gcs, converted, recordmill):
    refused = recordmill(*converted, "--num-shards", 2)
    assert refused.code == 2
    assert "num-shards was 3, now 2" in refused.err
    assert writes(gcs) == []
    assert recordmill(*converted, "--num-shards", 2, "--overwrite").code == 0
    assert [name[-14:] for name in sorted(shards_of(objects_of(gcs, "out")))] == ["00000-of-00002", "00001-of-00002"]
    assert [name for name in objects_of(gcs, "out") if name.startswith(".recordmill")] == []
    assert recordmill("verify", OUT).code == 0


def test_a_bucket_itself_can_be_the_output(gcs, converted, recordmill):
    """With what else is in it left alone."""
    before = gcs.objects()
    out = [*converted[:-1], ROOT, "--name", "top"]
    assert recordmill(*out).code == 0
    assert recordmill(*out, "--overwrite", "--num-shards", 1).code == 0
    after = gcs.objects()
    assert {name: after[name] for name in before} == before
    assert {name for name in after.keys() - before.keys() if "/" in name} == {
        ".index/top-train.tfrecord-00000-of-00001.idx"
    }
    assert recordmill("verify", ROOT).code == 0


# Back again


def test_extract_gives_the_images_back(gcs, converted, sample, local_run, tmp_path, recordmill):
    assert recordmill("extract", local_run(), tmp_path / "local").code == 0
    local = files_of(tmp_path / "local")
    assert recordmill("extract", OUT, f"{ROOT}/back").code == 0
    assert recordmill("extract", OUT, tmp_path / "back").code == 0
    assert objects_of(gcs, "back") == files_of(tmp_path / "back") == local
    images = {name.removeprefix("images/train/"): data for name, data in local.items() if name.startswith("images/")}
    assert len(images) == 22
    assert images.items() < files_of(Path(sample.images)).items()
    again = recordmill("extract", OUT, f"{ROOT}/back")
    assert (again.code, is_one_line(again.err)) == (2, True)
    assert "is there already" in again.err


SHARD = "out/coco-train.tfrecord-00001-of-00003"


def cut(gcs: GcsStandIn) -> None:
    gcs.put(SHARD, gcs.objects()[SHARD][:-100])


def remove(gcs: GcsStandIn) -> None:
    GcsStorage().delete(f"{ROOT}/{SHARD}")


HARMS = {
    cut: "coco-train.tfrecord-00001-of-00003 record 6: truncated",
    remove: "coco-train.tfrecord-00001-of-00003: missing",
}


def test_verify_finds_harm(gcs, converted, recordmill):
    assert recordmill("verify", OUT).code == 0
    whole = gcs.objects()
    for harm, found in HARMS.items():
        gcs.reset()
        for name, data in whole.items():
            gcs.put(name, data)
        harm(gcs)
        outcome = recordmill("verify", OUT)
        assert outcome.code == 1
        assert found in outcome.out
