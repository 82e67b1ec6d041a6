"""`Split.grain` in Grain."""

import grain

from recordmill.launch.cli import main
from tests.consumers.pages import DOCS, run
from tests.recordmill.splits import CONTENTS, draw, write_split


def test_grain_reads_a_batch_at_once(tmp_path, monkeypatch):
    contents = CONTENTS["classification"]
    split = write_split(tmp_path, contents, [draw(contents, number) for number in range(5)])
    calls = []
    read = type(split).read
    monkeypatch.setattr(type(split), "read", lambda self, numbers: calls.append(len(numbers)) or read(self, numbers))
    records = grain.MapDataset.source(split.grain(raw=True))
    assert records._getitems([3, 1]) == [split.raw(3), split.raw(1)]
    assert calls[0] == 2


def test_the_page_s_batches(tmp_path, monkeypatch):
    """The page's example works for images of several sizes, and for lists."""
    monkeypatch.chdir(tmp_path)
    assert main(["sample", "sample"]) == 0
    files = ["--images", "sample/images", "--instances", "sample/annotations/instances.json"]
    assert main(["convert", *files, "--max-rejects", "0.2", "--output", "out"]) == 0
    left = run((DOCS / "training" / "grain_hosts.py").read_text(), SIZE=16, BATCH=8)
    batches = iter(left["batches"])
    seen = [next(batches) for _ in range(len(left["train"]) // 8)]
    assert {batch["image"].shape for batch in seen} == {(8, 16, 16, 3)}
    ids = [id_ for batch in seen for id_ in batch["image_id"].tolist()]
    assert len(set(ids)) == len(ids)
