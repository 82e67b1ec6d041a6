"""The numbers that steps keep of a job, and the line that the terminal shows of them."""

import threading

import apache_beam as beam
import msgspec
import pytest
from apache_beam.metrics import MetricsFilter

from recordmill.launch.terminal.progress import bar_width, expect_records, progress_line, show_progress
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.progress import Progress
from tests.beam_pipeline import Pipeline

REJECTS = [
    Rejected("image", 1, Reason.TOO_LARGE, ""),
    Rejected("annotation", 2, Reason.EMPTY_BOX, ""),
    Rejected("annotation", 3, Reason.EMPTY_BOX, ""),
]


@pytest.fixture(autouse=True)
def from_zero():
    progress.reset()
    yield
    progress.reset()


def without_time(now: Progress) -> Progress:
    return msgspec.structs.replace(now, planned_at=0.0)


def test_numbers_add_up():
    progress.set_step("reading annotations")
    progress.count_planned(10, 2)
    progress.count_planned(5, 1)
    progress.count_written_images(1, 90)
    progress.count_rejected_image(30)
    progress.count_skipped_images(3)
    progress.count_finished_shard()
    for reject in REJECTS:
        progress.count_reject(reject)
    assert without_time(progress.snapshot()) == Progress("reading annotations", 15, 3, 5, 3, 120, 1, 3)


def _count(_: object) -> None:
    for size in (100, 20, 3):
        progress.count_written_images(1, size)
    for reject in REJECTS:
        progress.count_reject(reject)
    progress.count_skipped_images(7)
    progress.count_finished_shard()


def test_beam_counts_the_same():
    p = Pipeline()
    p | beam.Create([1]) | beam.Map(_count)
    counters = p.run().metrics().query(MetricsFilter().with_namespace("recordmill"))["counters"]
    assert {counter.key.metric.name: counter.committed for counter in counters} == {
        "images_written": 3,
        "image_bytes_written": 123,
        "images_skipped": 7,
        "shards_written": 1,
        "rejected/image/too_large": 1,
        "rejected/annotation/empty_box": 2,
    }


@pytest.mark.parametrize(
    ("now", "seconds", "line"),
    [
        (Progress(), 0.0, "starting"),
        (Progress("listing images", rejected=3), 5.0, "listing images"),
        (Progress("x", 1000, 4), 0.0, "0 of 1,000 images (0%) · 0 of 4 shards"),
        (Progress("x", 1000, 4, 999), 0.0, "999 of 1,000 images (99%) · 0 of 4 shards"),
        (
            Progress("x", 1000, 4, 250, 0, 250_000_000, 1, 0),
            10.0,
            "250 of 1,000 images (25%) · 1 of 4 shards · 25 images/s · 25.0 MB/s · 0:30 left",
        ),
        (Progress("starting", shards_done=7), 0.0, "7 shards finished"),  # by other processes
        (
            Progress("x", 1000, 4, 1000, 0, 10**9, 4, 0),
            10.0,
            "1,000 of 1,000 images (100%) · 4 of 4 shards · 100 images/s · 100.0 MB/s",
        ),
        (  # an earlier run has written nearly all: that was not done in these ten seconds
            Progress("x", 1000, 4, 910, 900, 10**7, 3, 0),
            10.0,
            "910 of 1,000 images (91%) · 3 of 4 shards · 1 images/s · 1.0 MB/s · 1:30 left",
        ),
        (Progress("x", 1000, 4, 900, 900, 0, 3, 0), 10.0, "900 of 1,000 images (90%) · 3 of 4 shards"),
    ],
)
def test_progress_line(now, seconds, line):
    assert progress_line(now, seconds) == line


FULL = Progress("x", 118_287, 123, 1_000, 0, 190_000_000, 0, 1_234)


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (
            103,
            "1,000 of 118,287 images (0%) · 0 of 123 shards · 17 images/s · 3.2 MB/s · 1,234 rejected · 1:57:17 left",
        ),
        (102, "1,000 of 118,287 images (0%) · 0 of 123 shards · 17 images/s · 1,234 rejected · 1:57:17 left"),
        (80, "1,000 of 118,287 images (0%) · 17 images/s · 1,234 rejected · 1:57:17 left"),
        (60, "1,000 of 118,287 images (0%) · 1,234 rejected · 1:57:17 left"),
        (50, "1,000 of 118,287 images (0%) · 1:57:17 left"),
        (40, "1,000 of 118,287 images (0%)"),
        (20, "1,000 of 118,287 im…"),
        (1, "…"),
    ],
)
def test_line_fits_terminal_by_dropping_least_important(width, line):
    assert progress_line(FULL, 60.0, width) == line
    assert len(line) <= width


@pytest.mark.parametrize(("columns", "bar"), [(45, 24), (44, 12), (33, 12), (32, 0), (20, 0)])
def test_bar_gives_way_to_line(columns, bar):
    assert bar_width("9 of 10 images (90%)", columns) == bar


def test_records_are_counted_where_data_set_is_read_back():
    shards = [ShardInfo("a", 7, 100, "", ""), ShardInfo("b", 3, 50, "", "")]
    expect_records(shards, in_this_process=False)
    assert progress_line(progress.snapshot(), 0.0) == "reading 2 shards"
    expect_records(shards, in_this_process=True)
    assert progress_line(progress.snapshot(), 0.0) == "0 of 10 records (0%) · 0 of 2 shards"
    progress.count_read_record(2_000_000)
    assert progress_line(progress.snapshot(), 1.0) == (
        "1 of 10 records (10%) · 0 of 2 shards · 1 records/s · 2.0 MB/s · 0:09 left"
    )


@pytest.mark.parametrize("mode", ["none", "plain", "auto"])
def test_showing_begins_at_zero_and_ends_with_block(mode, capsys):
    progress.count_planned(5, 5)
    with show_progress(mode):
        assert progress.snapshot() == Progress()
        progress.count_planned(1, 1)
    assert without_time(progress.snapshot()) == Progress(images_planned=1, shards_planned=1)
    assert [thread for thread in threading.enumerate() if thread.name == "progress"] == []
    assert capsys.readouterr().out == ""
