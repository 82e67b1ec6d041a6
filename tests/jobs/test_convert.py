"""`recordmill.convert`: the command as a call."""

import asyncio
import inspect
import logging
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import recordmill
from recordmill.launch.command_line.keywords import convert_module, keyword_name, keywords_module
from recordmill.pipelines.verbs import verb_fields
from recordmill.schemas.errors import WrongFlagError
from tests.conftest import shard_bytes
from tests.jobs.folders import draw_all

SPLIT = {"train": 0.75, "val": Fraction(1, 4)}
COCO = {"data": "i", "instances": "i.json", "output": "o"}
ROWS = {"data": "r.csv", "format": "table", "output": "o"}


def options(sample, output: Path) -> dict:
    """Values as Python programs have them."""
    return {
        "images": Path(sample.images),
        "instances": [Path(sample.instances)],
        "output": output,
        "num_shards": np.int64(2),
        "max_rejects": np.float32(0.2),
        "split": SPLIT,
    }


def test_convert_writes_bytes_of_command(sample, tmp_path, copy_converted, caplog):
    runner = PipelineOptions(["--runner=DirectRunner", "--direct_num_workers=1"])
    data = recordmill.convert(**options(sample, tmp_path / "out"), runner_options=runner)
    copy_converted(tmp_path / "command", "--split", "train=0.75,val=0.25", "--num-shards", 2)
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "command")
    assert (data.path, list(data)) == (str(tmp_path / "out"), ["train", "val"])
    rejects = sum(data.manifest.splits[split].rejects for split in data)
    warned = [record.args[1] for record in caplog.records if record.msg.startswith("Split %s")]
    assert sum(warned[-2:]) == rejects > 0


def test_children_of_event_loop_and_of_thread_at_once(sample, tmp_path, copy_converted, caplog):
    caplog.set_level(logging.INFO, "recordmill")

    async def convert() -> list[recordmill.DataSet]:
        one, other = (options(sample, tmp_path / name) for name in "12")
        in_a_thread = asyncio.create_task(asyncio.to_thread(recordmill.convert, **one))
        await asyncio.sleep(0)
        return [recordmill.convert(**other), await in_a_thread]

    one, other = (shard_bytes(Path(data.path)) for data in asyncio.run(convert()))
    copy_converted(tmp_path / "command", "--split", "train=0.75,val=0.25", "--num-shards", 2)
    assert one == other == shard_bytes(tmp_path / "command")
    assert f"coco-train is in {tmp_path}" in caplog.text


@pytest.mark.parametrize("runner_options", [None, ["--runner=DirectRunner"]], ids=["child", "here"])
def test_config_error_has_every_fault_in_words_of_keywords(runner_options):
    with pytest.raises(recordmill.ConfigError) as raised:
        recordmill.convert(format="coco", imges="x", shards=2, num_shards=0, boxes="cut", runner_options=runner_options)
    faults = str(raised.value).split("; ")
    assert {"output is missing. Give the folder of the data set", "num_shards must be 1 to 99999 (got 0)"} < set(faults)
    assert {
        "unknown option 'imges'. Did you mean images?",
        "unknown option 'shards'. Did you mean num_shards?",
        "boxes must be one of clip, drop, keep (got 'cut')",
    } < set(faults)
    assert "--" not in str(raised.value)


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"format": "cocoa"}, "format must be one of coco"),
        ({"data": {"a"}}, "^data: text, .* is expected, not set$"),
        ({"data": SimpleNamespace(to_parquet=print)}, r"^data: .* Write it to a file: data.to_parquet\(…\)$"),
        ({"runner_options": {"runner": "DirectRunner"}}, "^runner_options: .* not dict"),
        (COCO | {"split": [1, 2]}, '^split="1,2": neither a name'),
        (COCO | {"rename": {"a": "b"}}, "no feature 'a'"),
        (COCO | {"dry_run": True}, "^dry_run does not write a data set"),
        (COCO | {"part": "0/2"}, "^part does not write a whole data set"),
        (COCO | {"data": "/no/images"}, "images /no/images: no such folder"),
        (COCO | {"rows": "r.csv"}, "^unknown option 'rows'. Did you mean data"),
        ({"runner_options": PipelineOptions(use_public_ips=False)}, "^runner_options: use_public_ips=False"),
        (ROWS | {"runner_options": [3]}, "^after --, 3 "),
        ({"output": "o"}, r"^data is missing: .* \(help\(recordmill.convert\) has examples\)"),
        ({"data": "/no/data", "output": "o"}, "^/no/data: no such file"),
        ({"data": "/no/data"}, "^output is missing. Give the folder of the data set$"),
        ({"data": "/no/data", "label_column": "kind"}, r"^unknown option 'label_column'. Did you mean label\?$"),
        ({"data": "/no/data", "outptu": "o"}, r"^unknown option 'outptu'. Did you mean output\?$"),
        (
            {"data": "coco", "images": "i", "instances": ["a b", "c"], "output": "o", "gzip": True},
            r"The same call is: recordmill.convert\("
            r'output="o", images="i", instances=\["a b", "c"\], gzip=True\)$',
        ),
        (
            {"data": "table", "rows": "r.csv", "label_column": "x", "output": "o"},
            r'recordmill.convert\("r.csv", "o", label="x", format="table"\)$',
        ),
        ({"data": "voc", "output": "o"}, "^voc: no such file"),
        (COCO | {"format_options": {"radius": 3}}, "^unknown option 'radius'"),
        (COCO | {"format_options": ["radius=3"]}, "^format_options must be a dict"),
        (COCO | {"format_options": {"data": "x"}}, "^data: given as a keyword, and in format_options"),
        ({"data": "d", "output": "o", "label": "a", "instances": "b"}, "^label is an option of folder, table"),
        (ROWS | {"runner_options": ["--runner=Flunk"]}, "--runner must be one of"),
    ],
)
def test_config_error(values, fault):
    with pytest.raises(recordmill.ConfigError, match=fault):
        recordmill.convert(**values)


def test_arguments_without_a_name():
    with pytest.raises(recordmill.ConfigError, match=r'call is: recordmill.convert\("d", "o", format="voc"\)$'):
        recordmill.convert("voc", data="d", output="o")
    with pytest.raises(TypeError, match="got data twice, as 'a' and as 'd'"):
        recordmill.convert("a", data="d", output="o")
    with pytest.raises(TypeError, match="takes data and output without a name, and 3 values have none"):
        recordmill.convert("a", "b", "c")


def test_format_is_recognised_and_logged(tmp_path, caplog, monkeypatch):
    """Class folders below folders of splits are one data set; a data set may lack the split train."""
    caplog.set_level(logging.INFO, "recordmill")
    draw_all(tmp_path / "data", [f"{split}/{kind}/1.jpg" for split in ("train", "valid") for kind in ("cat", "dog")])
    (tmp_path / "data/valid/dog/2.jpg").write_bytes(b"-")
    more = {"num_shards": 1, "max_rejects": 0.5}
    data = recordmill.convert(tmp_path / "data", tmp_path / "out", **more)
    assert {split: len(data[split]) for split in data} == {"train": 2, "val": 2}
    assert "is read as folder: 2 class folders below train, valid" in caplog.text
    call = f'recordmill.convert("{tmp_path}/data", "{tmp_path}/out", num_shards=1, max_rejects=0.5, format="folder")'
    assert call in caplog.text
    assert "Split val: rejects: 1, see " in caplog.text
    draw_all(tmp_path / "yolo", ["images/val/1.jpg"])
    (tmp_path / "yolo/data.yaml").write_text("val: images/val\nnames: [cat]\n")
    (tmp_path / "yolo/labels/val").mkdir(parents=True)
    (tmp_path / "yolo/labels/val/1.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    monkeypatch.chdir(tmp_path)
    here = ["--runner=DirectRunner"]  # a path, and a verb of earlier versions
    data = recordmill.convert("yolo", "val", format="yolo", no_crowd=False, runner_options=here)
    assert [*data] == ["val"]
    assert recordmill.convert("yolo", "val", format="yolo").path == str(tmp_path / "val")
    assert "val already has the complete split. Add overwrite=True to write again." in caplog.text


@pytest.mark.parametrize("runner_options", [None, ["--runner=DirectRunner"]], ids=["child", "here"])
def test_warnings_name_keywords(tmp_path, caplog, runner_options):
    draw_all(tmp_path / "data", [f"{kind}/{number}.jpg" for kind in ("cat", "dog") for number in range(3)])
    more = {"split": {"train": 0.9, "val": 0.1}, "num_shards": 1, "runner_options": runner_options}
    recordmill.convert(tmp_path / "data", tmp_path / "out", **more)
    assert [text for text in caplog.messages if text.startswith("split: of 6 images, ")]
    assert [text for text in caplog.messages if 'split_by="rank"' in text]
    assert not [text for text in caplog.messages if "--" in text]


@pytest.mark.parametrize("runner_options", [None, ["--runner=DirectRunner"]], ids=["child", "here"])
def test_findings_are_logged_once_as_warnings(tmp_path, caplog, capfd, runner_options):
    caplog.set_level(logging.INFO, "recordmill")
    names = [f"{split}/{kind}/{n}.png" for split in ("train", "val") for kind in ("cat", "dog") for n in range(3)]
    draw_all(tmp_path / "data", [*names, "train/rare/1.png"])
    for copy in ("train/dog/copy.png", "val/cat/copy.png"):
        shutil.copy(tmp_path / "data/train/cat/1.png", tmp_path / "data" / copy)
    (tmp_path / "data/train/none").mkdir()
    for _ in range(2):  # the second call writes nothing
        caplog.clear()
        recordmill.convert(tmp_path / "data", tmp_path / "out", num_shards=1, runner_options=runner_options)
        texts = "\n".join([*caplog.messages, *capfd.readouterr()])
        warned = "\n".join(record.getMessage() for record in caplog.records if record.levelname == "WARNING")
        for text in (
            "LEAKAGE",
            "CONFLICTING LABELS",
            "classes absent from a split 1: rare (1, but none in val)",
            "folder 'none' in",
        ):
            assert (text, texts.count(text), warned.count(text)) == (text, 1, 1)
        for split in ("train", "val"):
            assert texts.count(f"listed in problems-{split}.jsonl") == warned.count(f"{split}: blank images") <= 1


def test_signature_has_every_option():
    parameters = inspect.signature(recordmill.convert).parameters
    names = {keyword_name(field) for field in verb_fields("convert")} - {"dry_run", "part", "debug", "print_config"}
    assert set(parameters) == names | {"runner_options", "format_options"}
    assert [name for name in parameters if f" {name}: " not in recordmill.convert.__doc__] == []
    assert parameters["image_format"].annotation == "Literal['keep', 'jpeg', 'png'] | None"


def test_job_error_has_traceback_of_child(sample, tmp_path):
    with pytest.raises(WrongFlagError, match="Give the file to captions") as raised:
        recordmill.convert(sample.images, tmp_path / "out", instances=sample.captions)
    assert isinstance(raised.value, recordmill.JobError)
    assert "runners/run.py" in str(raised.value.__cause__)


CALL = """
import sys, recordmill
try:
    recordmill.convert("gs://bucket/images", sys.argv[2], instances=sys.argv[1])
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture
def waiting_call(sample, tmp_path, monkeypatch) -> Iterator[tuple[subprocess.Popen, socket.socket]]:
    """A process that calls `convert`, and the connection on which its child waits for a bucket that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.getsockname()[1]}")
        command = [sys.executable, "-c", CALL, sample.instances, str(tmp_path / "out")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as caller:
            server.settimeout(60)
            connection, _ = server.accept()
            with connection:
                connection.settimeout(60)
                yield caller, connection
            caller.kill()


def read_to_end(connection: socket.socket) -> None:
    """Wait until the process at the other end has ended."""
    while connection.recv(1 << 16):
        pass


def test_child_ends_with_caller_killed(waiting_call):
    caller, connection = waiting_call
    caller.kill()
    read_to_end(connection)


def test_ctrl_c_in_caller_ends_child(waiting_call):
    caller, connection = waiting_call
    caller.send_signal(signal.SIGINT)
    read_to_end(connection)
    assert (caller.communicate()[0], caller.returncode) == (b"interrupted\n", 0)


def test_types_of_keywords_are_options():
    for name, source in (("_keywords", keywords_module()), ("_convert", convert_module())):
        module = Path(recordmill.__file__).with_name(f"{name}.py")
        assert module.read_text(encoding="utf-8") == source, "make templates writes it"
