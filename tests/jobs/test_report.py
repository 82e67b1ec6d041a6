"""report.html of whole jobs, and `recordmill report`."""

import base64
import html
import io
import json
import re
import shutil

import pytest
from PIL import Image

from recordmill.launch.cli import main
from recordmill.transforms.insight import write_report as module
from tests.conftest import rejects_of

IMAGES = re.compile(rb'src="data:image/jpeg;base64,([^"]+)"')


def page_images(folder) -> list[Image.Image]:
    data = (folder / "report.html").read_bytes()
    assert len(data) < 3_000_000
    return [Image.open(io.BytesIO(base64.b64decode(match))) for match in IMAGES.findall(data)]


@pytest.mark.parametrize("flags", [("--gzip",), ("--layout", "keras")], ids=["gzip", "keras"])
def test_page_shows_images_of_job(tmp_path, copy_converted, recordmill, flags):
    copy_converted(tmp_path, *flags)
    assert recordmill("report", tmp_path).code == 0
    chosen = json.loads((tmp_path / "statistics.json").read_bytes())["splits"]["train"]["examples"]
    assert (
        len(page_images(tmp_path))
        == len({example["record"] for gallery in chosen.values() for example in gallery})
        >= 12
    )
    page = html.unescape((tmp_path / "report.html").read_text())
    assert [example for example in rejects_of(tmp_path) if example["detail"] not in page] == []


def test_shard_cut_costs_its_images(tmp_path, copy_converted, recordmill, caplog):
    copy_converted(tmp_path)
    (shard,) = tmp_path.glob("coco-train.tfrecord-*")
    caplog.clear()
    data = shard.read_bytes()
    shard.write_bytes(data[: len(data) // 2])
    assert recordmill("report", tmp_path).code == 0
    assert len(caplog.messages) == 1
    (tmp_path / "statistics-train.json").unlink()
    assert recordmill("report", tmp_path).code == 0
    assert b"train: no statistics" in (tmp_path / "report.html").read_bytes()


def test_page_that_cannot_be_made_fails_no_job(sample, tmp_path, monkeypatch, caplog):
    flags = [
        "convert",
        sample.objects,
        "--format",
        "table",
        "--output",
        f"{tmp_path}/out",
        "--split",
        "train=0.5,val=0.5",
    ]
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_report", lambda _: 1 / 0)
        assert main(flags) == 0
    assert "recordmill report" in caplog.text
    assert not (tmp_path / "out" / "report.html").exists()
    assert main(flags) == 0  # finds that all is there, but the page
    page = (tmp_path / "out" / "report.html").read_bytes()
    shutil.rmtree(tmp_path / "out")
    assert main(flags) == 0
    assert (tmp_path / "out" / "report.html").read_bytes() == page != b""
