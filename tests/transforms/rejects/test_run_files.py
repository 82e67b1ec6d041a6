"""Large runs of rejects wait in files for their list."""

import shutil

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.errors import EndedElsewhereError
from recordmill.schemas.line_blocks import BlockPlace
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.metadata.dataset_folder import forget, strange_file
from recordmill.transforms.rejects import run_files
from recordmill.transforms.rejects.gather_rejects import GatherRejects
from recordmill.transforms.rejects.reject_blocks import FIRST_RUN, merged_runs, reject_runs, unique_runs
from recordmill.transforms.rejects.write_rejects import write_rejects
from recordmill.transforms.runtime import line_blocks
from tests.transforms.rejects.runs import rejects_in

REJECTS = [Rejected("image", id_ * 7919 % 5000, Reason.NO_CLASS, f"n {id_ * id_}") for id_ in range(5000)]


def files(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def is_in_file(run) -> bool:
    return all(isinstance(block.packed, BlockPlace) for block in run.blocks)


def test_large_runs_are_in_files_and_small_ones_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 20_000)
    plain = list(reject_runs(str(tmp_path), "train", REJECTS))
    assert not files(tmp_path)
    monkeypatch.setattr(run_files, "INLINE_BYTES", 5000)
    runs = list(reject_runs(str(tmp_path), "train", REJECTS))
    packed = [sum(len(block.packed) for block in run.blocks) for run in plain]
    assert [is_in_file(run) for run in runs] == [size > 5000 for size in packed]
    assert {is_in_file(run) for run in runs} == {True, False}
    assert max(len(run.blocks) for run in runs) > 3
    assert len(files(tmp_path)) == sum(map(is_in_file, runs))
    both = (list(merged_runs(str(tmp_path), "train", of)) for of in (runs, plain))
    assert next(both) == next(both)


@pytest.mark.usefixtures("all_in_files")
def test_a_bundle_that_is_done_twice_writes_the_same_files(tmp_path):
    once = list(reject_runs(str(tmp_path), "train", REJECTS))
    found = files(tmp_path)
    assert list(reject_runs(str(tmp_path), "train", REJECTS)) == once
    assert files(tmp_path) == found
    assert len(found) == len(once) > 3


@pytest.mark.usefixtures("all_in_files")
def test_they_pass_from_step_to_step_each_in_the_folder_of_its_split(tmp_path):
    items = [(split, reject) for split in ("train", "val") for reject in REJECTS[:FIRST_RUN]]
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        runs = (p | beam.Create(items),) | GatherRejects(str(tmp_path))
        assert_that(runs | beam.FlatMap(rejects_in), equal_to(items))
    folders = sorted(name.split("/")[0] for name in files(tmp_path))
    assert folders == [".recordmill-train", ".recordmill-val"]


@pytest.mark.usefixtures("all_in_files")
def test_what_counts_once_is_kept_in_files_too(tmp_path):
    runs = list(reject_runs(str(tmp_path), "train", REJECTS * 2))
    once = list(unique_runs(str(tmp_path), "train", runs))
    assert all(map(is_in_file, once))
    assert sum(len(lines) for lines in merged_runs(str(tmp_path), "train", once)) == len(REJECTS)


@pytest.mark.usefixtures("all_in_files")
@pytest.mark.parametrize(
    "merge",
    [
        lambda output, runs: write_rejects(output, ["train"], [("train", run) for run in runs]),
        lambda output, runs: list(unique_runs(output, "train", runs)),
    ],
)
@pytest.mark.parametrize("begins_anew", [False, True])
def test_another_run_is_done_and_has_deleted_them(tmp_path, merge, begins_anew):
    """What is there again is of this run, or of a third one that has a recipe."""
    state = tmp_path / ".recordmill-train"
    output, runs = str(tmp_path), list(reject_runs(str(tmp_path), "train", REJECTS[:300]))
    shutil.rmtree(state)
    runs += reject_runs(str(tmp_path), "train", REJECTS[300:600])
    if begins_anew:
        (state / "recipe.json").write_text("{}")
    left = files(tmp_path)
    with pytest.raises(EndedElsewhereError, match=rf"{state}/rejects-\w+ is gone, with rejects .* Run again"):
        merge(output, runs)
    assert files(tmp_path) == (left if begins_anew else set())


@pytest.mark.usefixtures("all_in_files")
def test_no_run_is_held_up_by_what_a_killed_one_has_left(tmp_path):
    list(reject_runs(str(tmp_path), "train", REJECTS))
    assert files(tmp_path)
    assert strange_file(str(tmp_path), "train") == ""
    forget(str(tmp_path), "train")
    assert not files(tmp_path)


@pytest.fixture
def all_in_files(monkeypatch):
    monkeypatch.setattr(run_files, "INLINE_BYTES", 0)
