"""jedi completes the options of `recordmill.convert`, and pyright names what is wrong in a call."""

import inspect
import sys
from pathlib import Path

import jedi
import pytest

import recordmill
from tests.consumers.environments.pyright.test_types import faults, project  # noqa: F401  a fixture

OPTIONS = {*inspect.signature(recordmill.convert).parameters} - {"data", "output"}
WRONG = {
    'recordmill.convert("a", "c", max_sidee=3)': '"max_sidee"',
    'recordmill.convert(output="c", images="a", instancs="b")': '"instancs"',
    'recordmill.convert("a", "c", num_shards="many")': '"num_shards" of type "int | None"',
    'recordmill.convert("a", "c", image_format="cocoa")': '"image_format"',
    'recordmill.convert("a")': 'No overloads for "convert"',  # without an output
    'recordmill.convert("a", outptu="c")': 'No overloads for "convert"',
    'recordmill.convert(images="a", instances="b")': 'No overloads for "convert"',
    "recordmill.opn": '"opn" is not a known attribute of module "recordmill"',
    "train.tensorflow(batch_size=32)": '"batch_size"',
    "train.tensorflow(resize=224)": '"resize" of type "tuple[int, int] | None"',
    "train.torch(seed=0)": 'No overloads for "torch"',  # without iterable=True
}
RIGHT = """\
import recordmill
from pathlib import Path
from typing import Any

options: dict[str, Any] = {}
recordmill.convert(Path("a"), "c", split={"train": 0.8, "val": 0.2}, rename={"image/encoded": "image"})
recordmill.convert(["a", "b"], Path("c"), runner_options=["--runner=FlinkRunner"], format_options={"radius": 3})
recordmill.convert(output="c", images="a", instances="b", shard_size="1GB")
recordmill.convert("a", "c", **options)
recordmill.convert("a", "c", format="of_another_package")
data: recordmill.DataSet = recordmill.convert(output="c", config="job.yaml")
"""
RETURNED = {
    "train.torch()": "TorchDataset",
    "train.torch(iterable=True, seed=0)": "TorchIterableDataset",
    "train.grain()": "RecordSource",
    "train.numpy()": "Iterator[dict[str, Any]]",
    'recordmill.convert("a", "c")': "DataSet",
}
HEAD = 'import recordmill\ntrain = recordmill.open("c")["train"]\n'


def test_pyright_names_what_is_wrong(project):  # noqa: F811
    folder, _ = project
    types = [f"assert_type({call}, int)" for call in RETURNED]
    returned = "\n".join(["from typing import assert_type", HEAD, *types])
    found = faults(folder, wrong=HEAD + "\n".join(WRONG), right=RIGHT, returned=returned)
    assert found["right"] == []
    assert [line for line, _ in found["wrong"]] == [*range(3, 3 + len(WRONG))]
    for (_, message), (call, words) in zip(found["wrong"], WRONG.items(), strict=True):
        assert words in message, call
    for (_, message), type_ in zip(found["returned"], RETURNED.values(), strict=True):
        assert f'received "{type_}' in message


@pytest.fixture
def complete(project):  # noqa: F811
    folder, home = project

    def names(code: str) -> set[str]:
        paths = [str(home), *sys.path] if home != Path(recordmill.__file__).parents[1] else sys.path
        script = jedi.Script(code, path=folder / "script.py", project=jedi.Project(folder, sys_path=paths))
        return {completion.name for completion in script.complete()}

    return names


@pytest.mark.parametrize("start", ["", '"a", ', '"a", "c", ', 'output="c", ', '"a", "c", gzip=True, '])
def test_jedi_completes_every_option(complete, start):
    given = {"gzip"} & {*start.partition("=")[0].split()}
    keywords = {name.removesuffix("=") for name in complete(f"{HEAD}recordmill.convert({start}") if name[-1] == "="}
    assert keywords >= OPTIONS - given
    assert "unknown" not in keywords


def test_jedi_completes_public_names(complete):
    names = {name for name in complete("import recordmill\nrecordmill.") if not name.startswith("_")}
    assert names >= {name for name in recordmill.__all__ if not name.startswith("_")}
    folders = {"beam", "formats", "launch", "pipelines", "schemas", "transforms"}
    assert names - {*recordmill.__all__, *folders} == {"TYPE_CHECKING"}
    assert {name for name in complete(f"{HEAD}train.") if not name.startswith("_")} == {
        *("compression", "container", "features", "folder", "name", "shards"),
        *("grain", "numpy", "raw", "read", "repeated", "tensorflow", "torch"),
    }
    assert {"batch=", "resize=", "shuffle="} <= complete(f"{HEAD}train.tensorflow(")
    assert {"iterable=", "transform="} <= complete(f"{HEAD}train.torch(")
