"""A bucket, what a local run writes, and a data set that is in the bucket."""

from functools import cache
from pathlib import Path

import pytest

from recordmill.launch.cli import main
from tests.engines.buckets.jobs import OUT, emptied, in_bucket, layout_flags, upload
from tests.gcs_stand_in import GcsStandIn, running


@pytest.fixture(scope="module")
def server():
    with running() as stand_in:
        yield stand_in


@pytest.fixture
def gcs(server, monkeypatch) -> GcsStandIn:
    return emptied(server, monkeypatch)


@pytest.fixture(scope="module")
def local_run(sample, tmp_path_factory):
    """Output of a local run, in each layout with and without gzip."""

    @cache
    def run(layout: str = "detection", gzip: bool = False) -> Path:
        folder = tmp_path_factory.mktemp(layout)
        assert main([*layout_flags(sample, layout, gzip), "--output", str(folder)]) == 0
        return folder

    return run


@pytest.fixture
def converted(gcs, sample, recordmill) -> list[str]:
    """The flags of a job whose data set is in OUT."""
    source = Path(sample.images).parent
    upload(gcs, source, "sample")
    flags = [*in_bucket(layout_flags(sample, "detection", False), source, "sample"), "--output", OUT]
    assert recordmill(*flags).code == 0
    gcs.log.clear()
    return flags
