"""TensorFlow reads a data set where it is."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import (
    SHARED_DATA,
)
from tests.engines import servers
from tests.engines.buckets.jobs import OUT

KIT = SHARED_DATA.parent / "kit"


@pytest.mark.skipif(not KIT.exists(), reason="the proxy that leads TensorFlow to the stand-in is not on this machine")
def test_tensorflow_reads_it_where_it_is(gcs, converted, sample, tmp_path):
    """TensorFlow's own client knows no emulator: a proxy of https takes it there."""
    ports = {"9104": gcs.url.rpartition(":")[2], "9106": str(servers.free_port())}
    program = (KIT / "tls_proxy.py").read_text()
    for known, port in ports.items():
        program = program.replace(known, port)
    (tmp_path / "proxy.py").write_text(program)
    (tmp_path / "read.py").write_text(
        "import json, sys\n"
        "import recordmill\n"
        "for example in recordmill.open(sys.argv[1])['train'].tensorflow().as_numpy_iterator():\n"
        "    print(json.dumps([int(example['image_id']), example['image'].shape, len(example['boxes'])]))\n"
    )
    environment = os.environ | {
        "CURL_CA_BUNDLE": "lab-cert.pem",
        "NO_GCE_CHECK": "true",
        "https_proxy": f"http://127.0.0.1:{ports['9106']}",
    }
    with subprocess.Popen([sys.executable, "proxy.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout.readline() == "ready\n"
            command = [sys.executable, "read.py", OUT]
            read = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        finally:
            proxy.kill()
    assert read.returncode == 0, read.stderr
    found = {id_: (*shape[:2], boxes) for id_, shape, boxes in map(json.loads, read.stdout.splitlines())}
    coco = json.loads(Path(sample.instances).read_text())
    boxes = Counter(row["image_id"] for row in coco["annotations"])
    rows = {row["id"]: (row["height"], row["width"], boxes[row["id"]]) for row in coco["images"]}
    assert len(found) == 22
    assert found.items() < rows.items()
