"""The DAGs for real: `airflow dags test` converts, verifies and publishes, or says why not."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from dag_run import DagRun
from PIL import Image

NOT_RUN = ("upstream_failed", 0)


@pytest.fixture
def run(home, project_python, tmp_path):
    """Runs recordmill_coco, or another DAG, with Params and settings."""

    def made(params: dict, dag_id: str = "recordmill_coco", *days: str, **settings: str) -> DagRun:
        return DagRun(home, tmp_path, {"RECORDMILL_PYTHON": project_python, **settings}, params, dag_id, *days)

    return made


def inputs(sample: Path) -> dict:
    return {"images": [str(sample / "images")], "instances": [str(sample / "annotations" / "instances.json")]}


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("[!.]*.tfrecord-*"))}


def plainly_converted(project_python: str, sample: Path, output: Path, *flags: str) -> dict[str, bytes]:
    """The shards of the command line."""
    images, instances = sample / "images", sample / "annotations" / "instances.json"
    command = [project_python, "-m", "recordmill.launch.cli", "coco", "--images", images, "--instances", instances]
    subprocess.run([*command, "--output", output, "--max-rejects", "0.2", *flags], check=True, capture_output=True)
    return shards(output)


def test_a_run_converts_verifies_and_publishes(run, project_python, sample, tmp_path):
    done = run({**inputs(sample), "num_shards": 3, "gzip": True, "max_rejects": 0.2})
    assert done.code == 0, done
    assert done.tasks == {"convert": ("success", 1), "verify": ("success", 1), "publish": ("success", 1)}
    assert "22 of 24 (image_missing 1, image_unreadable 1)" in done.log
    assert "whole: every record read, parsed and decoded" in done.log
    expected = plainly_converted(project_python, sample, tmp_path / "plain", "--num-shards", "3", "--gzip")
    assert len(expected) == 3
    assert shards(done.folder) == expected
    facts = {
        "folder": str(done.folder),
        "name": "coco",
        "layout": "detection",
        "splits": {
            "train": {
                "records": 22,
                "images": 22,
                "rejected": 2,
                "shards": 3,
                "bytes": sum(map(len, expected.values())),
            }
        },
        "verified": True,
        "manifest_sha256": hashlib.sha256((done.folder / "manifest.json").read_bytes()).hexdigest(),
    }
    assert done.asset_events == [("recordmill_coco", facts)]


def test_class_folders_by_the_account_of_a_connection(run, project_python, sample, tmp_path):
    """Each program that a task starts has it."""
    account = {"type": "service_account", "client_email": "reader@a-project.example"}
    connection = {"conn_type": "google_cloud_platform", "extra": {"keyfile_dict": account}}
    python = tmp_path / "python"
    seen = tmp_path / "seen"
    python.write_text(
        f'#!/bin/bash\n[ "$1" = -m ] && echo "$2 $(cat $GOOGLE_APPLICATION_CREDENTIALS)" >> {seen}\n'
        f'exec {project_python} "$@"\n'
    )
    python.chmod(0o755)
    settings = {
        "RECORDMILL_PYTHON": str(python),
        "RECORDMILL_CONNECTION": "reader",
        "AIRFLOW_CONN_READER": json.dumps(connection),
    }
    for number, name in enumerate(["cat/a", "cat/b", "dog/a"]):
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), (9 * number, 60, 50)).save(tmp_path / "pets" / f"{name}.jpg")
    params = {"images": [str(tmp_path / "pets")], "output": str(tmp_path / "runs/by/name")}
    done = run(params, "recordmill_folder", **settings)
    assert done.code == 0, done
    told = [line.split(" ", 1) for line in seen.read_text().splitlines()]
    by_program = {program: json.loads(account) for program, account in told}
    assert by_program == {"recordmill.launch.flat": account, "recordmill.launch.cli": account}
    ((asset, facts),) = done.asset_events
    assert (asset, facts["folder"], facts["layout"]) == (
        "recordmill_folder",
        str(tmp_path / "runs/by/name"),
        "classification",
    )
    assert facts["splits"]["train"]["records"] == 3


def test_a_third_of_the_images_broken(run, sample, tmp_path):
    broken = tmp_path / "images"
    shutil.copytree(sample / "images", broken)
    for path in sorted(path for path in broken.rglob("*") if path.is_file())[::3]:
        path.write_bytes(path.read_bytes()[:100])
    params = {**inputs(sample), "images": [str(broken)], "max_rejects": 0.1}  # one more is missing, which is told first
    done = run(params)
    assert done.code == 1
    assert done.tasks == {"convert": ("failed", 1), "verify": NOT_RUN, "publish": NOT_RUN}
    assert done.asset_events == []
    (told,) = {line.partition("recordmill: ")[2] for line in done.log.splitlines() if "recordmill: " in line}
    assert "10 of 24 images (41.7%) are rejected" in told, told
    assert "--max-rejects" in told, told
    assert "rejects.jsonl" in told, told


def test_days_are_made_up_for_and_the_oldest_go(run, tmp_path):
    """As docs/airflow.md has it: each day's rows are in a folder of the day."""
    for day in ("01", "02"):
        (tmp_path / "rows" / "2026" / "11" / day).mkdir(parents=True)
        (tmp_path / "rows" / "2026" / "11" / day / "a.csv").write_text(f"day,label\n{day},a\n{day},b\n")
    settings = {
        "RECORDMILL_TABLE_SCHEDULE": "@daily",
        "RECORDMILL_TABLE_START": "2026-11-01",
        "RECORDMILL_TABLE_CATCHUP": "true",
        "RECORDMILL_TABLE_PARAMS": json.dumps({"rows": [f"{tmp_path}/rows/{{data_interval_start:%Y/%m/%d}}/*.csv"]}),
        "RECORDMILL_VERIFY": "none",
        "RECORDMILL_LATEST": "true",
        "RECORDMILL_KEEP": "1",
    }
    done = run({}, "recordmill_table", "2026-11-02", "2026-11-03", **settings)
    assert done.code == 0, done
    root = done.root / "recordmill_table"
    last, _ = sorted(path.name for path in root.iterdir())  # such a run is of now, whatever its day
    manifest = (root / last / "manifest.json").read_bytes()
    inputs = [row["path"] for row in json.loads(manifest)["splits"]["train"]["inputs"]]
    assert inputs == [f"{tmp_path}/rows/2026/11/02/a.csv"]
    digest = hashlib.sha256(manifest).hexdigest()
    folder, latest = str(root / last), str(root / "latest.json")
    assert json.loads(Path(latest).read_bytes()) == {
        "folder": folder,
        "run": last,
        "manifest_sha256": digest,
    }
    events = [(name, facts) for name, facts in done.asset_events if facts["folder"] == folder]
    assert len(done.asset_events) == 4
    assert sorted(name for name, _ in events) == [f"file://{latest}", "recordmill_table"]
    for _, facts in events:
        assert (facts["verified"], facts["latest"], facts["manifest_sha256"]) == (False, latest, digest)


def test_a_wrong_configuration_is_not_tried_again(run, sample, tmp_path):
    missing = str(tmp_path / "no such file.json")
    done = run({**inputs(sample), "instances": [missing]}, RECORDMILL_RETRIES="2", RECORDMILL_RETRY_SECONDS="1")
    assert done.code == 1
    assert done.tasks == {"convert": ("failed", 1), "verify": NOT_RUN, "publish": NOT_RUN}
    assert f"recordmill: --instances {missing}" in done.log, done
    assert "failed with return code 2: the configuration is wrong" in done.log


def test_a_param_that_breaks_its_schema(run, sample):
    done = run({**inputs(sample), "num_shards": 0})
    assert done.code == 1
    assert "Invalid input for param num_shards: 0 is less than the minimum of 1" in done.log
    assert done.tasks == {}
    assert not done.root.exists()


def test_a_retry_goes_on_in_the_same_folder(run, project_python, sample, tmp_path):
    expected = plainly_converted(project_python, sample, tmp_path / "plain", "--num-shards", "6")
    # The first conversion finds no room for any but the smallest shards.
    room_kb = (sorted(map(len, expected.values()))[2] + 1023) // 1024
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/bash\n"
        f'if [ "$2" = recordmill.launch.flat ] && mkdir {tmp_path}/tried 2>/dev/null; then ulimit -f {room_kb}; fi\n'
        f'exec {project_python} "$@"\n'
    )
    python.chmod(0o755)
    settings = {"RECORDMILL_PYTHON": str(python), "RECORDMILL_RETRIES": "1", "RECORDMILL_RETRY_SECONDS": "1"}
    done = run({**inputs(sample), "num_shards": 6, "max_rejects": 0.2}, **settings)
    assert done.code == 0, done
    assert done.tasks == {"convert": ("success", 2), "verify": ("success", 1), "publish": ("success", 1)}
    assert "it would be larger than files may be" in done.log
    assert f"Going on with an unfinished run in {done.folder}" in done.log
    assert shards(done.folder) == expected
    assert len(done.asset_events) == 1
