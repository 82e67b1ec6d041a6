"""A task that is ended ends what it has started; test_services.py has the same by Airflow's user interface."""

import subprocess
import sys

from dag_run import DagRun
from left_running import running_with


def test_running_processes_are_seen(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(tmp_path)])
    try:
        assert len(running_with(str(tmp_path))) == 1
    finally:
        process.kill()
        process.wait()


def test_a_conversion_that_takes_too_long(home, tmp_path):
    """Airflow's own operator would leave it running."""
    python = tmp_path / "python"
    waiting = f'exec {sys.executable} -c "import time; print(1, flush=True); time.sleep(600)" "$@"'
    python.write_text(f'#!/bin/bash\nif [ "$2" = recordmill.launch.flat ]; then {waiting}; fi\necho 2.77.0\n')
    python.chmod(0o755)
    settings = {"RECORDMILL_PYTHON": str(python), "RECORDMILL_TIMEOUT_HOURS": "0.002"}
    params = {"images": [str(tmp_path)], "instances": [str(tmp_path / "instances.json")]}
    done = DagRun(home, tmp_path, settings, params, "recordmill_coco")
    assert done.code == 1
    assert done.tasks == dict.fromkeys(("verify", "publish"), ("upstream_failed", 0)) | {"convert": ("failed", 1)}
    assert f"recordmill.launch.flat --runner=DirectRunner --command=coco --images={tmp_path}" in done.log
    assert "AirflowTaskTimeout" in done.log
    left = running_with(str(done.root), 30)
    for process in left:
        process.kill()
    assert left == []
