import logging
import shutil

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.shards import SplitSize
from recordmill.transforms.shards import check_space
from recordmill.transforms.shards.check_space import check_space as check

SIZES = {"train": SplitSize(10, 900, 2), "val": SplitSize(1, 100, 1)}


def free(monkeypatch, folder, number):
    """Let the disk of `folder` have `number` bytes."""

    def usage(path):
        assert path == str(folder)
        return shutil._ntuple_diskusage(2000, 0, number)

    monkeypatch.setattr(check_space.shutil, "disk_usage", usage)


@pytest.mark.parametrize(
    ("number", "is_exact", "outcome"),
    [(1000, True, ""), (999, True, "warning"), (799, True, "error"), (799, False, "warning"), (0, False, "warning")],
)
def test_plan_is_compared_with_free_space(tmp_path, monkeypatch, caplog, number, is_exact, outcome):
    free(monkeypatch, tmp_path, number)
    output = str(tmp_path / "not" / "yet")
    if outcome == "error":
        with pytest.raises(ConfigError, match=r"up to 1.0 kB, and the disk of .* has 799 bytes free"):
            check(output, SIZES, is_exact)
    else:
        with caplog.at_level(logging.WARNING):
            check(output, SIZES, is_exact)
        assert bool(caplog.records) == (outcome == "warning")


def test_finished_shards_are_there_already(tmp_path, monkeypatch):
    state = tmp_path / ".recordmill-train"
    state.mkdir()
    (state / "coco-train.tfrecord-00000-of-00002").write_bytes(bytes(600))
    free(monkeypatch, tmp_path, 400)
    check(str(tmp_path), SIZES, True)
    with pytest.raises(ConfigError):
        check(str(tmp_path), {"val": SplitSize(1, 1000, 1)}, True)
    check("gs://bucket/folder", SIZES, True)
