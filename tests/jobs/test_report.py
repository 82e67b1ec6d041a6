"""report.html of whole jobs, and `recordmill report`."""

import base64
import html
import io
import json
import re

import msgspec
import pytest
from PIL import Image

from recordmill.schemas.manifest import decode_manifest, encode_manifest
from recordmill.schemas.rejects import RejectLine
from recordmill.transforms.metadata.commit_splits import publish
from recordmill.transforms.report import write_report as module

IMAGES = re.compile(rb'src="data:image/jpeg;base64,([^"]+)"')


def pictures(folder) -> list[Image.Image]:
    data = (folder / "report.html").read_bytes()
    assert len(data) < 3_000_000
    return [Image.open(io.BytesIO(base64.b64decode(found))) for found in IMAGES.findall(data)]


@pytest.mark.parametrize("flags", [(), ("--gzip",), ("--layout", "keras")], ids=["plain", "gzip", "keras"])
def test_a_job_ends_with_a_page_that_shows_its_pictures(tmp_path, copy_converted, flags):
    copy_converted(tmp_path, *flags)
    chosen = json.loads((tmp_path / "statistics.json").read_bytes())["splits"]["train"]["examples"]
    assert len(pictures(tmp_path)) == len({each["record"] for of_why in chosen.values() for each in of_why}) >= 12


def test_data_of_an_older_program_is_counted_once(tmp_path, copy_converted, recordmill):
    copy_converted(tmp_path)
    new = {file: (tmp_path / file).read_bytes() for file in ("statistics.json", "report.html")}
    path = tmp_path / "manifest-train.json"
    manifest = decode_manifest(path.read_bytes(), "manifest-train.json")
    old = msgspec.structs.replace(manifest.splits["train"], statistics_sha256=msgspec.UNSET)
    path.write_bytes(encode_manifest(msgspec.structs.replace(manifest, splits={"train": old})))
    for file in ("statistics-train.json", "report.html"):
        (tmp_path / file).unlink()
    publish(str(tmp_path))
    assert not (tmp_path / "statistics.json").exists()
    first = recordmill("report", tmp_path)
    assert (first.code, first.err) == (0, "")
    assert "counted from the records" in first.out
    assert {file: (tmp_path / file).read_bytes() for file in new} == new
    assert "counted" not in recordmill("report", tmp_path).out


def test_what_was_edited_is_not_written_anew_as_if_it_were_not(tmp_path, copy_converted, recordmill):
    copy_converted(tmp_path)
    whole = (tmp_path / "statistics-train.json").read_bytes()
    (tmp_path / "statistics-train.json").write_bytes(whole.replace(b'"images": 2', b'"images": 3'))
    assert recordmill("report", tmp_path).code == 0
    assert (tmp_path / "statistics-train.json").read_bytes() == whole
    path = tmp_path / "manifest-train.json"
    edited = path.read_bytes().replace(b'"image_missing": 1', b'"image_missing": 7')
    path.write_bytes(edited)
    assert recordmill("report", tmp_path).code == 0
    (tmp_path / "statistics-train.json").unlink()
    assert recordmill("report", tmp_path).code == 2
    assert path.read_bytes() == edited


@pytest.mark.parametrize("flags", [(), ("--gzip",)], ids=["plain", "gzip"])
def test_a_shard_that_is_cut_costs_its_pictures_and_is_never_counted(
    tmp_path, copy_converted, recordmill, caplog, flags
):
    copy_converted(tmp_path, *flags)
    (shard,) = tmp_path.glob("coco-train.tfrecord-*")
    data = shard.read_bytes()
    shard.write_bytes(data[: len(data) // 2])
    assert recordmill("report", tmp_path).code == 0
    assert len(caplog.messages) == 1
    (tmp_path / "statistics-train.json").unlink()
    assert recordmill("report", tmp_path).code == 1
    assert not (tmp_path / "statistics-train.json").exists()


def test_a_page_that_cannot_be_made_fails_no_job(sample, tmp_path, recordmill, monkeypatch, caplog):
    flags = ("table", "--rows", sample.objects, "--output", tmp_path / "out", "--split", "train=0.5,val=0.5")
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_report", lambda _: 1 / 0)
        assert recordmill(*flags).code == 0
    assert "recordmill report" in caplog.text
    assert not (tmp_path / "out" / "report.html").exists()
    assert recordmill(*flags).code == 0  # finds that all is there, but the page
    assert b"objects" not in (tmp_path / "out" / "report.html").read_bytes()[:100]


def test_the_page_shows_rejects_that_the_manifest_lists_and_of_an_older_program_those_of_the_file(
    tmp_path, copy_converted
):
    copy_converted(tmp_path)
    path = tmp_path / "manifest-train.json"
    manifest = decode_manifest(path.read_bytes(), path.name)
    split, listed = manifest.splits["train"], json.loads((tmp_path / "rejects-train.jsonl").read_text().splitlines()[0])
    told = RejectLine(listed["what"], listed["reason"], "told by the manifest")
    shown = []
    for first in ((told,), msgspec.UNSET):
        entry = msgspec.structs.replace(split, first_rejects=first)
        path.write_bytes(encode_manifest(msgspec.structs.replace(manifest, splits={"train": entry})))
        publish(str(tmp_path))
        module.write_report(str(tmp_path))
        page = html.unescape((tmp_path / "report.html").read_text())
        shown.append((told.detail in page, listed["detail"] in page))
    assert shown == [(True, False), (False, True)]
