"""The DAGs as a scheduler runs them: a task that is marked failed, and a DAG that an asset starts."""

import json
import re
from pathlib import Path

from conftest import ROOT
from left_running import running_with
from PIL import Image
from services import Services, running, wait_until

IMAGES = 800


def test_what_takes_a_scheduler(home, project_python, tmp_path):
    """One test, as Airflow takes half a minute to come and to go."""
    # The DAG that the manual shows is beside ours.
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "airflow.md").read_text(), re.DOTALL)
    root = tmp_path / "runs"
    settings = {"RECORDMILL_PYTHON": project_python, "RECORDMILL_OUTPUT_ROOT": str(root)}
    with running(home, tmp_path, {"train.py": example}, settings) as services:
        an_event_starts_the_training(services)
        a_task_that_is_marked_failed_ends_and_goes_on(services, root, slow_job(tmp_path))


def slow_job(folder: Path) -> dict:
    """Params of a conversion to PNG that takes minutes, one shard an image."""
    (folder / "images").mkdir()
    Image.effect_noise((800, 600), 60).convert("RGB").save(folder / "images" / "0.jpg", quality=60)
    rows = [{"id": n, "file_name": f"{n}.jpg", "width": 800, "height": 600} for n in range(IMAGES)]
    for row in rows[1:]:
        (folder / "images" / row["file_name"]).hardlink_to(folder / "images" / "0.jpg")
    boxes = [
        {"id": n, "image_id": n, "category_id": 1, "bbox": [5, 5, 9, 9], "area": 81, "iscrowd": 0}
        for n in range(IMAGES)
    ]
    document = {"images": rows, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]}
    (folder / "instances.json").write_text(json.dumps(document))
    return {
        "images": [str(folder / "images")],
        "instances": [str(folder / "instances.json")],
        "format": "png",
        "examples_per_shard": 1,
        "workers": 1,
    }


def finished(root: Path) -> list[Path]:
    """Shards of a run that is not done, which are in the folder of its state with a note of each."""
    notes = root.glob("*/*/.recordmill-*/[!.]*.tfrecord-*.json")
    return sorted(note.with_suffix("") for note in notes)


def a_task_that_is_marked_failed_ends_and_goes_on(services: Services, root: Path, params: dict) -> None:
    run = "/api/v2/dags/recordmill_coco/dagRuns/slow"
    convert = f"{run}/taskInstances/convert"
    conf = {"dag_run_id": "slow", "logical_date": None, "conf": params}
    services.ask("POST", "/api/v2/dags/recordmill_coco/dagRuns", conf)
    wait_until(lambda: finished(root), "the first shard", 300)
    services.ask("PATCH", convert, {"new_state": "failed"})
    wait_until(lambda: not running_with(str(root)), "the conversion to end", 180)
    kept = {path: path.read_bytes() for path in finished(root)}
    assert 0 < len(kept) < IMAGES
    assert not list(root.glob("*/*/manifest.json"))
    wait_until(lambda: "return code: 143" in services.log("convert"), "the exit code", 180)
    assert "recordmill: terminated; finished shards stay" in services.log("convert")
    assert services.ask("GET", convert)["state"] == "failed"

    again = {"dry_run": False, "dag_run_id": "slow"}
    services.ask("POST", "/api/v2/dags/recordmill_coco/clearTaskInstances", again)
    wait_until(lambda: len(finished(root)) > len(kept), "the next shard", 300)
    services.ask("PATCH", convert, {"new_state": "failed"})
    goes_on = f"Going on with an unfinished run in {finished(root)[0].parents[1]}: {len(kept)} finished shards are kept"
    wait_until(lambda: goes_on in services.log("convert"), "what the second try said", 180)
    assert {path: path.read_bytes() for path in kept} == kept


def an_event_starts_the_training(services: Services) -> None:
    assets = services.ask("GET", "/api/v2/assets")["assets"]
    (asset_id,) = (asset["id"] for asset in assets if asset["name"] == "recordmill_coco")
    services.ask("POST", "/api/v2/assets/events", {"asset_id": asset_id, "extra": {"folder": "gs://b/a data set"}})
    wait_until(lambda: "would train on gs://b/a data set" in services.log("fit"), "the training", 300)
