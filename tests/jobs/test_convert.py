"""`recordmill.convert`: the command as a call."""

import asyncio
import logging
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
from recordmill.launch.command_line.keywords import keywords_module
from recordmill.schemas.errors import WrongFlagError
from tests.conftest import shard_bytes
from tests.jobs.folders import draw_all

SPLIT = {"train": 0.75, "val": Fraction(1, 4)}


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
    data = recordmill.convert("coco", **options(sample, tmp_path / "out"), runner_options=runner)
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
        in_a_thread = asyncio.create_task(asyncio.to_thread(recordmill.convert, "coco", **one))
        await asyncio.sleep(0)
        return [recordmill.convert("coco", **other), await in_a_thread]

    one, other = (shard_bytes(Path(data.path)) for data in asyncio.run(convert()))
    copy_converted(tmp_path / "command", "--split", "train=0.75,val=0.25", "--num-shards", 2)
    assert one == other == shard_bytes(tmp_path / "command")
    assert f"coco-train is in {tmp_path}" in caplog.text


@pytest.mark.parametrize("runner_options", [None, ["--runner=DirectRunner"]], ids=["child", "here"])
def test_config_error_has_every_fault_in_words_of_keywords(runner_options):
    with pytest.raises(recordmill.ConfigError) as raised:
        recordmill.convert("coco", imges="x", shards=2, num_shards=0, boxes="cut", runner_options=runner_options)
    faults = str(raised.value).split("; ")
    assert {"output is missing", "images is missing", "num_shards 0 must be 1 to 99999"} < set(faults)
    assert {
        "did you mean images?",
        "did you mean num_shards?",
        "boxes must be one of clip, drop, keep (got 'cut')",
    } < set(faults)
    assert "--" not in str(raised.value)


@pytest.mark.parametrize(
    ("verb", "values", "fault"),
    [
        ("cocoa", {}, "the verb must be one of coco"),
        ("coco", {"images": {"a"}}, "^images: text, .* is expected, not set$"),
        ("table", {"rows": SimpleNamespace(to_parquet=print)}, r"^rows: .* write it to a file: rows.to_parquet\(…\)$"),
        ("coco", {"runner_options": {"runner": "DirectRunner"}}, "^runner_options: .* not dict"),
        ("coco", {"images": "i", "instances": "i.json", "output": "o", "split": [1, 2]}, "^split '1,2': a name"),
        ("coco", {"images": "i", "instances": "i.json", "output": "o", "rename": {"a": "b"}}, "no feature 'a'"),
        (
            "coco",
            {"images": "i", "instances": "i.json", "output": "o", "dry_run": True},
            "^dry_run does not write a data set",
        ),
        ("coco", {"images": "/no/images", "instances": "/no/file", "output": "o"}, "images /no/images: no such folder"),
        ("coco", {"runner_options": PipelineOptions(use_public_ips=False)}, "^runner_options: use_public_ips=False"),
        ("table", {"rows": "r.csv", "output": "o", "runner_options": [3]}, "^after --, 3 "),
        ("auto", {"output": "o"}, "^data is missing"),
        ("auto", {"data": "/no/data", "output": "o"}, "^data /no/data: no such file"),
        ("table", {"rows": "r.csv", "output": "o", "runner_options": ["--runner=Flunk"]}, "--runner must be one of"),
    ],
)
def test_config_error(verb, values, fault):
    with pytest.raises(recordmill.ConfigError, match=fault):
        recordmill.convert(verb, **values)


def test_auto_runs_recognised_command(tmp_path, caplog):
    """Class folders below folders of splits need a command each; a data set may lack the split train."""
    caplog.set_level(logging.INFO, "recordmill")
    draw_all(tmp_path / "data", [f"{split}/{kind}/1.jpg" for split in ("train", "valid") for kind in ("cat", "dog")])
    (tmp_path / "data/valid/dog/2.jpg").write_bytes(b"-")
    more = {"num_shards": 1, "max_rejects": 0.5}
    data = recordmill.convert("auto", data=tmp_path / "data", output=tmp_path / "out", **more)
    assert {split: len(data[split]) for split in data} == {"train": 2, "val": 2}
    assert "is read by recordmill folder: 2 class folders below train, valid" in caplog.text
    assert "Split val: 1 images, rows or annotations were rejected" in caplog.text
    draw_all(tmp_path / "yolo", ["images/val/1.jpg"])
    (tmp_path / "yolo/data.yaml").write_text("val: images/val\nnames: [cat]\n")
    data = recordmill.convert("auto", data=tmp_path / "yolo", output=tmp_path / "val", format_in="yolo")
    assert [*data] == ["val"]


def test_job_error_has_traceback_of_child(sample, tmp_path):
    with pytest.raises(WrongFlagError, match="give the file to captions") as raised:
        recordmill.convert("coco", images=sample.images, instances=sample.captions, output=tmp_path / "out")
    assert isinstance(raised.value, recordmill.JobError)
    assert "runners/run.py" in str(raised.value.__cause__)


CALL = """
import sys, recordmill
try:
    recordmill.convert("coco", images="gs://bucket/images", instances=sys.argv[1], output=sys.argv[2])
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
    module = Path(recordmill.__file__).with_name("keywords.py")
    assert module.read_text(encoding="utf-8") == keywords_module(), "make templates writes it"
