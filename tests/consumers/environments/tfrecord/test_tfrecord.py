"""PyPI's `tfrecord` reads every record, alone and as one of several workers."""

from pathlib import Path

import pytest
import tfrecord

from tests.consumers.coco_truth import Truth, assert_detection


def image_ids(file: Path, truth: Truth, index_path: str | None = None, **options: object) -> list[int]:
    """Image ids of a shard's records, after a comparison of each with the data set."""
    records = tfrecord.example_loader(str(file), index_path, **options)
    return [assert_detection(record, truth) for record in records]


def test_every_record(truth, tmp_path, recordmill):
    assert recordmill("convert", *truth.flags, "--output", tmp_path, "--num-shards", 2).code == 0
    shards = sorted(tmp_path.glob("*.tfrecord-*"))
    assert sorted(id_ for shard in shards for id_ in image_ids(shard, truth)) == sorted(truth.image_ids)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_share_records_by_our_index(sample, tmp_path, copy_converted, workers):
    copy_converted(tmp_path, "--num-shards", 3)
    truth = Truth(sample.images, sample.instances)
    for shard in sorted(tmp_path.glob("*.tfrecord-*")):
        index = str(tmp_path / ".index" / f"{shard.name}.idx")
        shares = [image_ids(shard, truth, index_path=index, shard=(worker, workers)) for worker in range(workers)]
        assert all(shares)
        assert [id_ for share in shares for id_ in share] == image_ids(shard, truth)


def test_gzip(sample, tmp_path, copy_converted):
    copy_converted(tmp_path, "--gzip")
    truth = Truth(sample.images, sample.instances)
    (shard,) = tmp_path.glob("*.gz")
    assert sorted(image_ids(shard, truth, compression_type="gzip")) == sorted(truth.image_ids)
