"""pyright resolves every public name, from the clone and from a wheel, and sees the keywords of calls."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import recordmill
import recordmill.beam
from tests.engines.worker_pool import ROOT, build_wheel

BIN = Path(sys.executable).parent
RIGHT = """\
from pathlib import Path
from typing import cast

import apache_beam as beam
import recordmill
import recordmill.beam

data: recordmill.DataSet = recordmill.convert(Path("a"), "c", instances=["b"], gzip=True)
train: recordmill.Split = recordmill.open("c")["train"]
with beam.Pipeline() as p:
    # The type that Beam gives to all outputs is PValue.
    read = cast(recordmill.beam.Read, p | recordmill.beam.ReadDataset("a", instances="b"))
    read | recordmill.beam.WriteDataset("c", num_shards=2)
    read.samples | "Write" >> recordmill.beam.WriteDataset("d", labels=read.labels, facts=read.facts)
"""
WRONG = (
    'recordmill.convert("a", outptu="c")',
    'recordmill.convert("a", "c", max_side="large")',
    'recordmill.convert("a", "c", image_format="cocoa")',
    'recordmill.beam.WriteDataset("c", num_shrads=2)',
    'recordmill.beam.ReadDataset("a", num_shards=2)',
    'recordmill.beam.Sample("a.jpg", size=3)',
)


@pytest.fixture(params=["clone", "wheel"])
def project(request, tmp_path) -> tuple[Path, Path]:
    """A project, and the folder that the package is found in."""
    folder, home = tmp_path / "project", ROOT
    folder.mkdir()
    config: dict[str, Any] = {"reportUnusedExpression": "none"}
    if request.param == "wheel":
        home = tmp_path / "installed"
        with zipfile.ZipFile(build_wheel(tmp_path)) as wheel:
            wheel.extractall(home)
        config["extraPaths"] = [str(home)]
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    return folder, home


def faults(folder: Path, **programs: str) -> dict[str, list[tuple[int, str]]]:
    """Line and text of each error, by program."""
    for name, code in programs.items():
        (folder / f"{name}.py").write_text(code)
    command = [BIN / "pyright", "--pythonpath", sys.executable, "--outputjson", *(f"{name}.py" for name in programs)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    found: dict[str, list[tuple[int, str]]] = {name: [] for name in programs}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            found[Path(each["file"]).stem].append((each["range"]["start"]["line"] + 1, each["message"]))
    return found


def public_names() -> Iterator[str]:
    for module in (recordmill, recordmill.beam):
        yield from (f"{module.__name__}.{name}" for name in module.__all__ if not name.startswith("__"))


def test_public_names_have_types_and_wrong_calls_are_errors(project):
    folder, _ = project
    imports = ["import recordmill", "import recordmill.beam"]
    names = "\n".join(["# pyright: strict, reportUnusedExpression=false", *imports, *public_names()])
    found = faults(folder, right=RIGHT, wrong="\n".join([*imports, *WRONG]), names=names)
    assert (found["right"], found["names"]) == ([], [])
    assert {line for line, _ in found["wrong"]} == set(range(3, 3 + len(WRONG)))


def test_go_to_definition_opens_file_of_each_public_name(project):
    folder, home = project
    names = list(public_names())
    (folder / "script.py").write_text("\n".join(["import recordmill", "import recordmill.beam", *names]))
    server = Server(folder)
    server.open(folder / "script.py")
    try:
        for line, name in enumerate(names, 2):
            (place, *_) = server.definition(folder / "script.py", line, len(name) - 1)
            file = Path(place["uri"].removeprefix("file://"))
            defined = file.read_text().splitlines()[place["range"]["start"]["line"]]
            assert file.resolve().is_relative_to(home.resolve()), f"{name} is found in {file}"
            assert name.rpartition(".")[2] in defined, f"{name} is found at {defined!r}"
    finally:
        server.process.kill()
        server.process.wait()


class Server:
    """pyright's language server, as an editor uses it."""

    def __init__(self, folder: Path):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([BIN / "pyright-langserver", "--stdio"], cwd=folder, **pipes)
        self._number = 0
        folders = [{"uri": folder.as_uri(), "name": "project"}]
        capabilities = {"workspace": {"configuration": True}}
        self._ask("initialize", processId=None, rootUri=None, workspaceFolders=folders, capabilities=capabilities)
        self._send(method="initialized", params={})

    def open(self, file: Path) -> None:
        document = {"uri": file.as_uri(), "languageId": "python", "version": 1, "text": file.read_text()}
        self._send(method="textDocument/didOpen", params={"textDocument": document})

    def definition(self, file: Path, line: int, character: int) -> list[dict[str, Any]]:
        position = {"line": line, "character": character}
        return self._ask("textDocument/definition", textDocument={"uri": file.as_uri()}, position=position)

    def _ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        number = self._number
        self._send(id=number, method=method, params=params)
        while True:
            message = self._receive()
            if "method" not in message and message["id"] == number:
                return message["result"]
            if message.get("method") == "workspace/configuration":
                self._send(
                    id=message["id"], result=[{"pythonPath": sys.executable} for _ in message["params"]["items"]]
                )
            elif "method" in message and "id" in message:
                self._send(id=message["id"], result=None)

    def _send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        length = 0
        while header := self.process.stdout.readline().strip():
            name, _, value = header.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        return json.loads(self.process.stdout.read(length))
