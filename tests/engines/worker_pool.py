"""Workers as an engine has them: processes of another environment, which sees Beam, our dependencies and a wheel of
ours, and nothing of the checkout.

    python = worker_environment(folder, built_wheel)
    with running_pool(python, folder / "pool.log") as pool:
        main([*command, "--", "--runner=PortableRunner", "--environment_type=EXTERNAL",
              f"--environment_config={pool.endpoint}", ...])

The fixtures `built_wheel` and `built_sdist` are for other files to import by name.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.engines import servers

ROOT = Path(__file__).resolve().parents[2]
DEPENDENCIES_PYTHON = Path(os.environ.get("WORKER_PYTHON", ROOT / ".venv-worker/bin/python"))
"""Python of an environment with the requirements of the wheel and of its extra `beam`, and without the wheel."""
LIGHT_PYTHON = Path(os.environ.get("LIGHT_PYTHON", ROOT / ".venv-light/bin/python"))
"""Python of an environment with the requirements of the wheel without extras."""

_NOT_OF_A_CLONE = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "demo")


def worker_environment(folder: Path, wheel: Path | None, dependencies: Path = DEPENDENCIES_PYTHON) -> Path:
    """Make a small environment in `folder`, which must be new: our dependencies as another environment has them, and
    the wheel, if any. Nothing is fetched from anywhere.

    Args:
        dependencies: python of the other environment.

    Returns:
        its python, which stands first on the PATH of a pool.
    """
    assert dependencies.exists(), f"{dependencies} is not there; `make test-engines` makes it"
    _run(dependencies, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    # What a .pth file names comes behind the environment's own packages.
    (site_packages(python) / "dependencies.pth").write_text(f"{site_packages(dependencies)}\n")
    if wheel:
        pip(python, "install", "--no-deps", wheel)
    return python


def site_packages(python: Path) -> Path:
    """Folder of an environment's packages."""
    return Path(_run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


def pip(python: Path, verb: str, *arguments: object) -> str:
    """Output of pip, without network; pip must not fail."""
    offline = ["--quiet", "--no-index"] if verb in ("install", "wheel") else []
    return _run(python, "-m", "pip", "--disable-pip-version-check", verb, *offline, *arguments)


def _run(python: Path, *arguments: object, cwd: Path | None = None) -> str:
    command = [str(python), "-I", *map(str, arguments)]  # -I: nothing of PYTHONPATH, nor of this folder
    ended = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def copy_of_clone(folder: Path) -> Path:
    """The project's files in `folder`, which must be new: what is built there leaves nothing in the checkout."""
    shutil.copytree(ROOT, folder, ignore=_NOT_OF_A_CLONE)
    return folder


def build_wheel(folder: Path) -> Path:
    """Wheel of the checkout with its changes; its sources stay in `clone` beside it."""
    clone = copy_of_clone(folder / "clone")
    pip(Path(sys.executable), "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, clone)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def built_wheel(tmp_path_factory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def built_sdist(tmp_path_factory) -> Path:
    """The source distribution, as Beam makes it for --setup_file where `build` is not installed; beside it, `clone`."""
    folder = tmp_path_factory.mktemp("sdist")
    clone = copy_of_clone(folder / "clone")
    _run(Path(sys.executable), "setup.py", "--quiet", "sdist", "--dist-dir", folder, cwd=clone)
    (sdist,) = folder.glob("*.tar.gz")
    return sdist


@dataclass(frozen=True)
class Pool:
    """A pool of workers, in a separate process group.

    Attributes:
        endpoint: as `--environment_config` takes it.
        log: what it and its workers say.
    """

    endpoint: str
    process: subprocess.Popen
    log: Path

    def workers(self) -> list[int]:
        """Processes that were started for jobs and live."""
        pool = self.process.pid
        return [process.pid for process in servers.processes() if process.group == pool and process.pid != pool]


@contextlib.contextmanager
def running_pool(python: Path, log: Path, environment: Mapping[str, str] = {}) -> Iterator[Pool]:
    """A pool whose workers are of that python's environment, until the block ends.

    It starts in an empty folder and knows no variables but HOME, PATH and those of `environment`. What it and its
    workers say on standard error is added to `log`. It installs nothing of what a job staged.
    """
    with tempfile.TemporaryDirectory(prefix="pool-") as folder, _reserved_port() as port:
        # Beam's pool starts the `python` that comes first on PATH, whatever python it runs in itself.
        variables = {"HOME": folder, "PATH": f"{python.parent}:/usr/bin:/bin", **environment}
        command = [str(python), "-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"]
        listens = partial(servers.listens, port)
        with servers.running(command, log, listens, cwd=folder, env=variables) as process:
            yield Pool(f"localhost:{port}", process, log)


@contextlib.contextmanager
def _reserved_port() -> Iterator[int]:
    """A port that nobody else is given while the block runs.

    gRPC lets several servers listen on one port, unseen, and each gets some of the calls.
    """
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind(("", 0))
        yield reservation.getsockname()[1]
