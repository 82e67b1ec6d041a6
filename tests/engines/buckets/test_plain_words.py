"""What fails with buckets is told in one line. What goes wrong on the way is in tests/faults/test_gcs_faults.py."""

import contextlib
import os
import socket
import subprocess
import sys
import threading

from tests.engines.buckets.jobs import OUT, ROOT, is_one_line

IMAGES, INSTANCES = f"{ROOT}/in/images", f"{ROOT}/in/annotations/instances.json"


# What is done to the server; flags that differ; exit code; what is named.
def test_without_credentials_it_ends_soon(tmp_path):
    """A machine whose metadata server takes the connection and says nothing; in a process of its own, with all of its
    usual waits."""
    asked: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        threading.Thread(target=take_connections, args=(silent, asked), daemon=True).start()
        hidden = ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "NO_GCE_CHECK")
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        environment |= {"CLOUDSDK_CONFIG": str(tmp_path), "GCE_METADATA_IP": f"127.0.0.1:{silent.getsockname()[1]}"}
        command = [sys.executable, "-m", "recordmill.launch.cli", "coco", "--images", f"{ROOT}/images"]
        command += ["--instances", f"{ROOT}/a.json", "--output", OUT]
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert len(asked) == 1  # and waited for two seconds; Beam's own client asks fifteen times
    assert run.returncode == 2
    assert is_one_line(run.stderr), run.stderr
    assert "gcloud auth application-default login" in run.stderr


def take_connections(server: socket.socket, taken: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):  # it is closed
        while True:
            taken.append(server.accept()[0])
