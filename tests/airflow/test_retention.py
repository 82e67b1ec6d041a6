"""publish and tidy as Airflow calls them, without a run: what they leave in folders of runs, and what they delete."""

import hashlib
import json
import subprocess
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from fsspec.implementations.local import LocalFileSystem

NAMES = [f"2026110{day}t000000" for day in range(1, 5)]


@pytest.fixture(scope="session")
def manifest(project_python, tmp_path_factory) -> bytes:
    folder = tmp_path_factory.mktemp("table")
    (folder / "a.csv").write_text("n,label\n1,a\n2,b\n")
    command = ["table", "--rows", folder / "a.csv", "--output", folder / "out"]
    subprocess.run([project_python, "-m", "recordmill.launch.cli", *command], check=True, capture_output=True)
    return (folder / "out" / "manifest.json").read_bytes()


@pytest.fixture
def root(tmp_path, manifest) -> Path:
    """Folders of four runs, with a manifest and a shard each."""
    root = tmp_path / "runs" / "recordmill_coco"
    for name in NAMES:
        (root / name / "more").mkdir(parents=True)
        for file in ("a.tfrecord", "more/b"):
            (root / name / file).write_bytes(b"records")
        (root / name / "link").symlink_to("a.tfrecord")  # as TFDS wants them
        (root / name / "manifest.json").write_bytes(manifest)
    return root


@pytest.fixture
def call(load, root) -> Callable[..., dict]:
    """Calls a task of recordmill_coco, in the run of a day."""

    def called(task_id: str, day: int, output: str | None = None, **settings: str) -> dict:
        site = {"OUTPUT_ROOT": str(root.parent), "LATEST": "true", "KEEP": "2"} | settings
        bag = load(**{f"RECORDMILL_{name}": value for name, value in site.items()})
        run = {"dag_run": SimpleNamespace(run_after=datetime(2026, 11, day, tzinfo=UTC))}
        if task_id == "publish":
            run |= {"params": {"output": output}, "outlet_events": defaultdict(SimpleNamespace)}
        return bag.dags["recordmill_coco"].get_task(task_id).python_callable(**run)

    return called


@pytest.fixture
def published(call) -> Callable[..., dict]:
    """All four runs are, the last one last."""
    for day in range(1, 5):
        call("publish", day)
    return call


def folders(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir())


def test_the_oldest_go(published, root):
    assert published("tidy", 4) == {"delete": NAMES[:2], "keep": NAMES[2:], "left": {}, "dry_run": False}
    assert sorted(path.name for path in root.iterdir()) == [*NAMES[2:], "latest.json"]
    assert len(list((root / NAMES[2]).iterdir())) == 5  # with its note
    assert published("tidy", 4)["delete"] == []


def test_a_dry_run_says_what_would_go(published, root):
    files = sorted(root.rglob("*"))
    assert published("tidy", 4, KEEP_DRY_RUN="true")["delete"] == NAMES[:2]
    assert sorted(root.rglob("*")) == files


def test_what_was_named_by_output_and_what_is_linked_stay(call, root, tmp_path):
    call("publish", 4, output=str(root / NAMES[0]))  # a split that was added, say
    assert not list(root.rglob(".airflow-run.json"))
    (root / NAMES[1]).rename(tmp_path / "elsewhere")
    (root / NAMES[1]).symlink_to(tmp_path / "elsewhere")
    for day in (2, 3, 4):
        call("publish", day)
    done = call("tidy", 4, KEEP="1")
    assert (done["delete"], sorted(done["left"])) == ([NAMES[2]], NAMES[:2])
    assert len(list((tmp_path / "elsewhere").iterdir())) == 5
    assert (root / NAMES[0] / "a.tfrecord").exists()


def test_what_latest_json_names_stays(published, root):
    latest = json.loads((root / "latest.json").read_bytes())
    (root / "latest.json").write_text(json.dumps(latest | {"folder": str(root / NAMES[0])}))
    assert published("tidy", 4)["delete"] == [NAMES[1]]


def test_a_folder_that_is_half_deleted_is_no_data_set_and_goes_the_next_time(published, root, monkeypatch):
    def broken(*_, **__) -> None:
        raise PermissionError("held")

    with monkeypatch.context() as breaking:
        breaking.setattr(LocalFileSystem, "rm", broken)
        with pytest.raises(PermissionError):
            published("tidy", 4)
    assert not (root / NAMES[0] / "manifest.json").exists()
    assert (root / NAMES[0] / "a.tfrecord").exists()
    assert published("tidy", 4, KEEP="9")["delete"] == [NAMES[0]]
    assert folders(root) == NAMES[1:]


def test_latest_json_is_not_turned_back(published, root, manifest):
    latest = (root / "latest.json").read_bytes()
    assert json.loads(latest) == {
        "folder": str(root / NAMES[3]),
        "run": NAMES[3],
        "manifest_sha256": hashlib.sha256(manifest).hexdigest(),
    }
    assert published("publish", 2)["folder"] == str(root / NAMES[1])  # made up for later
    assert (root / "latest.json").read_bytes() == latest


def test_who_reads_latest_json_reads_all_of_it(call, root):
    call("publish", 1)
    (root / "as it was").hardlink_to(root / "latest.json")  # another file has its name from then on
    before = (root / "latest.json").read_bytes()
    call("publish", 2)
    assert (root / "as it was").read_bytes() == before != (root / "latest.json").read_bytes()


def test_without_being_asked_for_nothing_is_written(call, root):
    facts = call("publish", 1, LATEST="false", KEEP="")
    assert "latest" not in facts
    assert not (root / "latest.json").exists()
    assert not list(root.rglob(".airflow-run.json"))
