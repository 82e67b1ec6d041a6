import pytest

from recordmill.schemas.errors import TooManyRejectsError
from recordmill.schemas.names import NameSources
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.metadata.check_findings import Demands
from recordmill.transforms.metadata.describe_split import Rows
from recordmill.transforms.metadata.limit_rejects import ENOUGH, RejectLimit
from tests.conftest import rejects_of
from tests.transforms.rejects.kinds import kind_rejects

ROWS = {"train": Rows(900, 40), "val": Rows(100, 5000)}


def reject(number: int, what: str = "image", split: str = "train") -> tuple[str, Rejected]:
    return split, Rejected(what, number, Reason.IMAGE_UNREADABLE, f"number {number}")


def limit(output, max_rejects: float) -> RejectLimit:
    sources = NameSources(("img",), ("a.json",), "path")
    return RejectLimit(Demands(("train", "val"), sources, max_rejects, str(output)))


def add(limit: RejectLimit, items, found=()) -> None:
    """Those of one shard."""
    for run in kind_rejects(items):
        limit.add(run, ROWS, kind_rejects(found))


def accepted(limit: RejectLimit, items, found=()) -> int:
    """How many rejects were taken before the error."""
    for number, item in enumerate(items):
        try:
            add(limit, [item], found)
        except TooManyRejectsError:
            return number
    pytest.fail("no error")


def test_the_first_reject_over_the_limit_of_all_splits_stops_the_job(tmp_path):
    assert accepted(limit(tmp_path, 0.2), map(reject, range(1000))) == 200


def test_rejects_of_earlier_steps_count(tmp_path):
    found = [reject(-number - 1) for number in range(50)] + [reject(-number, "annotation") for number in range(9)]
    assert accepted(limit(tmp_path, 0.2), map(reject, range(1000)), found) == 150


def test_a_shard_that_is_written_again_counts_once(tmp_path):
    tries = limit(tmp_path, 0.2)
    shards = [[reject(number) for number in range(first, first + 40)] for first in range(0, 200, 40)]
    for shard in shards * 3:
        add(tries, shard[::-1])
    assert accepted(tries, [reject(200)]) == 0


def test_images_and_annotations_have_limits_of_their_own(tmp_path):
    both = [reject(number, what) for number in range(2000) for what in ("image", "annotation")]
    assert accepted(limit(tmp_path, 0.15), both) == 2 * 150
    assert accepted(limit(tmp_path, 0.15), both[1::2]) == 756


def test_few_rejects_let_the_job_go_on_and_list_all(tmp_path):
    assert accepted(limit(tmp_path, 0), map(reject, range(1000))) == ENOUGH - 1


def test_the_rejects_so_far_are_written_by_split_and_counted(tmp_path):
    stopped, found = limit(tmp_path, 0.1), [reject(-1, split="val")]
    for number in range(99):
        add(stopped, [reject(number)], found)
    with pytest.raises(
        TooManyRejectsError, match=r"101 of 1000 images \(10\.1%\) .*--max-rejects 0\.1 .*so far are in"
    ):
        add(stopped, [reject(99)], found)
    assert sorted((row["split"], row["id"]) for row in rejects_of(tmp_path)) == [
        *(("train", number) for number in range(100)),
        ("val", -1),
    ]
