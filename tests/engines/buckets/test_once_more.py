"""Jobs into a bucket that holds a data set, and back out of it."""

from pathlib import Path

from tests.engines.buckets.jobs import OUT, ROOT, files_of, objects_of, shards_of
from tests.gcs_stand_in import GcsStandIn


def writes(gcs: GcsStandIn) -> list[str]:
    return [call.name for call in gcs.calls("start", "chunk", "delete", "copy")]


def test_job_done_writes_nothing(gcs, converted, recordmill):
    outcome = recordmill(*converted)
    assert outcome.code == 0
    assert f"{OUT} already has the complete split" in outcome.out
    assert writes(gcs) == []
    assert [call.name for call in gcs.calls("read")] == ["out/manifest.json"] * 2 + ["out/statistics-train.json"]
    gcs.put("out/" + min(shards_of(objects_of(gcs, "out"))), b"short")
    assert recordmill(*converted).code == 0
    assert recordmill("verify", OUT).code == 0


def test_a_dry_run_writes_nothing(gcs, converted, recordmill):
    before = gcs.objects()
    outcome = recordmill(*converted[:-1], f"{ROOT}/new", "--dry-run")
    assert outcome.code == 0
    assert "23 of 24 (image_missing 1)" in outcome.out
    assert gcs.objects() == before
    assert writes(gcs) == []
    assert [call for call in gcs.calls("read") if call.name.startswith("sample/images")] == []


def test_overwrite(gcs, converted, recordmill):
    refused = recordmill(*converted, "--num-shards", 2)
    assert refused.code == 2
    assert "num-shards: 3, now 2" in refused.err
    assert writes(gcs) == []
    assert recordmill(*converted, "--num-shards", 2, "--overwrite").code == 0
    assert [name[-14:] for name in sorted(shards_of(objects_of(gcs, "out")))] == ["00000-of-00002", "00001-of-00002"]
    assert [name for name in objects_of(gcs, "out") if name.startswith(".recordmill")] == []
    assert recordmill("verify", OUT).code == 0


# Back again


def test_extract_gives_images_back(gcs, converted, sample, local_run, tmp_path, recordmill):
    assert recordmill("extract", local_run(), tmp_path / "local").code == 0
    local = files_of(tmp_path / "local")
    assert recordmill("extract", OUT, f"{ROOT}/back").code == 0
    assert recordmill("extract", OUT, tmp_path / "back").code == 0
    assert objects_of(gcs, "back") == files_of(tmp_path / "back") == local
    images = {name.removeprefix("images/train/"): data for name, data in local.items() if name.startswith("images/")}
    assert len(images) == 22
    assert images.items() < files_of(Path(sample.images)).items()
