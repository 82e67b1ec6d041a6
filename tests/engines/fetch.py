"""Fetches what the tests of engines need besides Python packages: `python tests/engines/fetch.py FOLDER`.

A part that is there is left alone. Where one cannot be had, the reason is kept in a file beside it, and the tests that
want it are skipped with that reason.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

FLINK = "1.19.3"
NEWER_FLINK = "1.20.5"
"""Flink that a few tests run: Beam's runner for 1.20 cannot be had, and the one for 1.19 runs there."""
SPARK = "3.5.9"
BEAM_JAVA = "2.62.0"
"""Version of the job servers. The parts of newer ones cannot be had together; the Python SDK does not mind."""

FLINK_OPERATOR = "1.10.0"

OPERATOR_SCHEMA = "flinkdeployments.yml"
JOB_SERVER_JAR = "job-server.jar"

_POMS = Path(__file__).resolve().parent / "job_servers"
_TIMEOUT_S = 1200


class MissingError(Exception):
    """A part cannot be had; the message says why."""


@dataclass(frozen=True)
class Part:
    """Something to fetch.

    Attributes:
        fetch: fills a folder, an absolute path, which is there and empty.
    """

    name: str
    version: str
    fetch: Callable[[Path], None]

    def folder(self, parts: Path) -> Path:
        return parts / f"{self.name}-{self.version}"

    def reason(self, parts: Path) -> Path:
        """The file that says why the part is not there."""
        return parts / f"{self.name}-{self.version}.missing"


def job_server(engine: str, engine_version: str) -> Part:
    """Beam's job server for `flink` or `spark`: one jar, as Beam would download it, merged from its parts.

    A job ships its jars; there are more than 160, of which Flink takes in 13 a second, and so one is quicker.
    """

    def fetch_jars(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as jars:
            versions = [f"-Dbeam.version={BEAM_JAVA}", f"-Dengine.version={engine_version}"]
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
            _run(["mvn", "--batch-mode", "--quiet", f"--file={_POMS / engine}.xml", *versions, *goal])
            driver = f"org.apache.beam.runners.{engine}.{engine.title()}JobServerDriver"
            merge_jars(sorted(Path(jars).glob("*.jar")), folder / JOB_SERVER_JAR, driver)

    return Part(f"{engine}-{engine_version}-job-server", BEAM_JAVA, fetch_jars)


def merge_jars(jars: Iterable[Path], merged: Path, main: str) -> None:
    """Merge jars into one with a main class. The first of several files of one name is kept; lists of services are
    joined. Folders are kept, because Spark looks for one."""
    services: dict[str, bytes] = {}
    names = {"META-INF/MANIFEST.MF"}
    with zipfile.ZipFile(merged, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nMulti-Release: true\nMain-Class: {main}\n")
        for jar in jars:
            with zipfile.ZipFile(jar) as part:
                for name in part.namelist():
                    if name.startswith("META-INF/services/") and not name.endswith("/"):
                        services[name] = services.get(name, b"") + part.read(name) + b"\n"
                    elif name not in names and not name.endswith((".SF", ".RSA", ".DSA")):
                        names.add(name)
                        archive.writestr(name, part.read(name))
        for name, lines in services.items():
            archive.writestr(name, lines)


def flink(flink_version: str) -> Part:
    """Flink itself, from the package that PyFlink depends on; without SQL and Scala."""

    def fetch_package(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as download:
            name = f"apache-flink-libraries=={flink_version}"
            _run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", download, name])
            (package,) = Path(download).glob("*.tar.gz")
            with tarfile.open(package) as archive:
                for member in archive:
                    path = Path(member.name)
                    wanted = path.match("deps/lib/flink-dist-*") or path.match("deps/lib/log4j-*")
                    if wanted or path.match("deps/bin/bash-java-utils.jar"):
                        member.name = path.name
                        archive.extract(member, folder, filter="data")

    return Part("flink", flink_version, fetch_package)


def fetch_operator(folder: Path) -> None:
    """Fetch the schema of Flink's Kubernetes Operator from its jar."""
    artifact = f"-Dartifact=org.apache.flink:flink-kubernetes-operator-api:{FLINK_OPERATOR}"
    with tempfile.TemporaryDirectory() as jars:
        _run(["mvn", "--batch-mode", "--quiet", "dependency:copy", artifact, f"-DoutputDirectory={jars}"])
        (jar,) = Path(jars).glob("*.jar")
        with zipfile.ZipFile(jar) as archive:
            schema = archive.read("META-INF/fabric8/flinkdeployments.flink.apache.org-v1beta1.yml")
    (folder / OPERATOR_SCHEMA).write_bytes(schema)


def fetch_prism(folder: Path) -> None:
    """Beam's Prism, built by Go."""
    module = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{version('apache-beam')}"
    _run(["go", "install", module], {"GOBIN": str(folder)})


def _run(command: list[str], environment: Mapping[str, str] = {}) -> None:
    if not shutil.which(command[0]):
        raise MissingError(f"{command[0]} is not installed")
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S, env={**os.environ, **environment}
        )
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"{' '.join(command)}: not done after {_TIMEOUT_S} s") from error
    except subprocess.CalledProcessError as error:
        raise MissingError(
            f"{' '.join(command)}: exit code {error.returncode}\n{error.stdout}{error.stderr}"
        ) from error


SPARK_JOB_SERVER = job_server("spark", SPARK)
PRISM = Part("prism", version("apache-beam"), fetch_prism)
OPERATOR = Part("flink-operator", FLINK_OPERATOR, fetch_operator)


def fetch(part: Part, parts: Path) -> None:
    """Fetch a part into its folder in `parts`, if it is not there. What is fetched half is never taken for it."""
    parts.mkdir(parents=True, exist_ok=True)
    folder, reason = part.folder(parts), part.reason(parts)
    if folder.exists():
        return
    print(f"fetching {folder}", flush=True)
    with tempfile.TemporaryDirectory(dir=parts) as temporary:
        new = Path(temporary).resolve() / "new"
        new.mkdir()
        try:
            part.fetch(new)
            if not any(new.iterdir()):
                raise MissingError("nothing was fetched")
        except MissingError as error:
            reason.write_text(f"{error}\n")
            print(f"{folder} cannot be had, so some tests are skipped: {error}", flush=True)
        else:
            new.rename(folder)
            reason.unlink(missing_ok=True)


if __name__ == "__main__":
    flinks = [make(it) for it in (FLINK, NEWER_FLINK) for make in (flink, partial(job_server, "flink"))]
    for wanted_part in (*flinks, SPARK_JOB_SERVER, PRISM, OPERATOR):
        fetch(wanted_part, Path(sys.argv[1]))
