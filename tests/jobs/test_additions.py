"""The commit of a run of --add, which readers see before or after."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import recordmill as package
from recordmill.launch.cli import main
from recordmill.transforms.dataset.dataset_folder import delete_old_files, read_split_manifests
from recordmill.transforms.shards import commit_splits as module
from recordmill.transforms.shards.commit_splits import finish_commit, read_commits
from recordmill.transforms.storage.local_storage import LocalStorage
from recordmill.transforms.verify.check_folder import folder_faults
from tests.jobs.additions import Staged, stage
from tests.jobs.folders import draw_all, whole_folder

BASE = [f"{split}/{name}/{number}.png" for split in ("train", "val") for name in ("ant", "bee") for number in range(3)]
MORE = [
    f"{split}/{name}/{number}.png" for split in ("test", "train") for name in ("ant", "bee", "cat") for number in (7, 8)
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """Data sets of BASE and of MORE, with a reject each."""
    made = []
    for names in (BASE, MORE):
        folder = tmp_path_factory.mktemp("grow")
        (draw_all(folder / "data", names) / "train/bee/broken.png").write_bytes(b"")
        flags = "--name", "d", "--examples-per-shard", "4", "--max-rejects", "0.5", "--progress", "none"
        assert main(["convert", str(folder / "data"), "-o", str(folder / "out"), *flags]) == 0
        (folder / "out/report.html").unlink()
        made.append(folder / "out")
    return made[0], made[1]


def records(folder: Path) -> dict[str, list]:
    data = package.open(str(folder))
    return {name: [bytes(record) for record in split.grain(raw=True)] for name, split in data.splits.items()}


@pytest.fixture
def staged(folders, tmp_path) -> Staged:
    shutil.copytree(folders[0], tmp_path / "out")
    return stage(tmp_path / "out", folders[1])


class Killed(BaseException):
    """As SIGKILL: nothing is done from here on."""


def kill_at(patch: pytest.MonkeyPatch, step: int) -> Callable[[], int]:
    """Let every change of a file fail from a step on; return the number of those so far."""
    done = 0

    def killing(change):
        def method(self, *arguments):
            nonlocal done
            done += 1
            if done > step:
                raise Killed
            return change(self, *arguments)

        return method

    for name in ("write", "move", "delete", "link"):
        patch.setattr(LocalStorage, name, killing(getattr(LocalStorage, name)))
    patch.setattr(module, "_MOVES", 1)
    return lambda: done


def finish(staged: Staged) -> None:
    """What a rerun does: a commit that has begun is completed, or one is made; files that a complete one left go."""
    if finish_commit(staged.output):
        return
    complete = {split: manifest.splits[split] for split, manifest in read_split_manifests(staged.output).items()}
    if all(complete.get(split) == entry for split, entry in staged.manifest.splits.items()):
        for entry in staged.manifest.splits.values():
            delete_old_files(staged.output, entry)
    else:
        staged.commit()


def test_kill_at_every_step_leaves_the_data_set_before_or_after(folders, staged, tmp_path):
    out, copy = Path(staged.output), tmp_path / "copy"
    before = records(out)
    shutil.copytree(out, copy)
    after_staged = staged._replace(output=str(copy))
    after_staged.commit()
    after, files = records(copy), whole_folder(copy)
    assert {split: len(rows) for split, rows in before.items()} == {"train": 6, "val": 6}
    assert {split: len(rows) for split, rows in after.items()} == {"test": 6, "train": 12, "val": 6}
    assert folder_faults(str(copy), []) == []
    seen, step, is_whole = [], 0, False
    while not is_whole:
        shutil.rmtree(copy)
        shutil.copytree(out, copy)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, step)
            try:
                after_staged.commit()
                is_whole = True
            except Killed:
                pass
        now = records(copy)
        assert now in (before, after), step
        assert folder_faults(str(copy), []) == [], step
        seen.append(now == after)
        finish(after_staged)
        assert whole_folder(copy) == files, step
        step += 1
    assert step > 30
    assert seen == sorted(seen)  # never the data set before once more
    assert not seen[15]
    assert not read_commits(str(copy))


def test_kill_while_a_commit_is_completed(folders, staged):
    """A second process that completes the commit may be killed, too."""
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, 20)
        with pytest.raises(Killed):
            staged.commit()
    assert list(read_commits(staged.output)) == ["test"]
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, 9)
        with pytest.raises(Killed):
            finish_commit(staged.output)
    assert finish_commit(staged.output) == ["test", "train"]
    assert finish_commit(staged.output) == []
    assert folder_faults(staged.output, []) == []
    assert not [name for name in whole_folder(Path(staged.output)) if name.startswith(".recordmill")]
