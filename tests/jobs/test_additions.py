"""The commit of a run of --add, which readers see before or after."""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import recordmill as package
from recordmill.launch.cli import main
from recordmill.schemas.errors import ConfigError, JobError
from recordmill.transforms.dataset.dataset_folder import delete_old_files, read_split_manifests
from recordmill.transforms.dataset.fact_lines import class_gaps
from recordmill.transforms.shards import commit_splits as module
from recordmill.transforms.shards.commit_splits import finish_commit, read_commits
from recordmill.transforms.storage.local_storage import LocalStorage
from recordmill.transforms.verify.check_folder import folder_faults
from tests.conftest import annotation, draw_jpeg, image_row, write_coco
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


@pytest.mark.parametrize("lost", ["d-train.tfrecord-00002-of-00004", "fingerprints.jsonl"])
def test_commit_whose_files_are_lost_is_dropped_by_hand(staged, lost):
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, 3)
        with pytest.raises(Killed):
            staged.commit()
    before = records(Path(staged.output))
    Path(staged.output, ".recordmill-train", lost).unlink()
    with pytest.raises(JobError, match="If this error comes again, a file of an interrupted run") as error:
        finish_commit(staged.output)
    log = re.search("Delete (.+), and run", str(error.value))
    Path(*shlex.split(log[1])).unlink()
    assert finish_commit(staged.output) == []
    assert records(Path(staged.output)) == before


def test_verify_says_that_a_commit_was_interrupted(staged, recordmill):
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, 15)
        with pytest.raises(Killed):
            staged.commit()
    outcome = recordmill("verify", staged.output, "--check", "hashes")
    assert outcome.code == 0
    assert "A run of --add that was interrupted is about to add to test and train" in outcome.out
    Path(staged.output, ".recordmill-test/commit.json").write_bytes(b"{")
    with pytest.raises(ConfigError, match=r"commit\.json cannot be read"):
        finish_commit(staged.output)


def convert_coco(folder: Path, number: int, categories: list[str], *flags: str) -> Path:
    """Convert so many images with an object of each category, two records per shard."""
    images = [image_row(10 * number + index, f"{number}-{index}.jpg") for index in range(number)]
    annotations = [
        annotation(100 * image["id"] + id_, image["id"], category_id=id_)
        for image in images
        for id_ in range(1, len(categories) + 1)
    ]
    folder.mkdir()
    for index, image in enumerate(images):
        draw_jpeg(folder / "images" / image["file_name"], colour=(20 * number, 50 * index, 9))
    rows = [{"id": id_, "name": name} for id_, name in enumerate(categories, 1)]
    instances, out = write_coco(folder, images, annotations, rows), folder / "out"
    inputs = "--instances", str(instances), "--images", str(folder / "images")
    assert main(["convert", *inputs, "-o", str(out), "--name", "d", "--progress", "none", *flags]) == 0
    return out


@pytest.fixture
def grown(tmp_path) -> Callable[..., Path]:
    """A data set of four images in two shards, and of five more, which bring a class, in three."""

    def grow(*flags: str) -> Path:
        sizes = () if "keras" in flags else ("--examples-per-shard", "2")
        out = convert_coco(tmp_path / "base", 4, ["cat"], *flags, *sizes)
        stage(out, convert_coco(tmp_path / "more", 5, ["cat", "emu"], *flags, *sizes)).commit()
        assert folder_faults(str(out), []) == []
        return out

    return grow


@pytest.mark.parametrize("container", ["tfrecord", "parquet", "webdataset"])
def test_readers_and_files_beside_shards_have_all_records(grown, container):
    out = grown("--container", container)
    data = package.open(str(out))
    if container != "webdataset":  # members of a tar have the number of their shard
        names = {f"{number}-{index}.jpg".encode() for number in (4, 5) for index in range(number)}
        assert {example["file_name"] for example in data["train"]} == names
    assert data.classes == ("cat", "emu")
    shards = [shard.file for shard in data.manifest.splits["train"].shards]
    assert len(shards) == 5
    if (card := out / "README.md").exists():
        (files,) = yaml.safe_load(card.read_text().split("---")[1])["configs"][0]["data_files"]
        assert sorted(path.name for path in out.glob(files["path"])) == shards
        listed = json.loads((out / "croissant.json").read_text())["distribution"]
        assert [item["@id"] for item in listed if item["@type"] == "cr:FileObject"] == shards
    if container == "webdataset":
        index = json.loads((out / "train-index.json").read_text())
        assert (index["shards"], index["num_samples"], index["annotated_category_ids"]) == (shards, 9, [1, 2])
    assert not (out / "dataset_info.json").exists()


def test_tfds_reads_shards_of_layout_keras_by_links(grown):
    out = grown("--layout", "keras")
    (split,) = json.loads((out / "dataset_info.json").read_text())["splits"]
    links = [out / f"d-train.tfrecord-{index:05}-of-00002" for index in range(2)]
    assert [link.resolve().name for link in links] == ["file_00-4.tfrec", "file_01-10.tfrec"]
    assert (split["shardLengths"], sorted(out.glob("d-train.*"))) == (["4", "10"], links)


def test_class_that_one_split_has_is_a_gap_of_the_others(folders, staged):
    whole = staged.commit()
    assert whole.splits["val"].class_counts == (3, 3, 0)
    assert read_split_manifests(staged.output)["val"].splits["val"].class_counts == (3, 3)
    across = json.loads((Path(staged.output) / "statistics.json").read_text())["across_splits"]
    assert ("cat", "val") in {(gap.name, *gap.absent_from) for gap in class_gaps(whole)}
    assert {drift["name"] for drift in across["drifting"]} <= {"ant", "bee", "cat"}
